//! The lanes: on which machines, and how, the kernel's tests are run.
//!
//! Two kinds are never taken for each other. The deterministic lane gives the same run each time, to the instruction,
//! and so says nothing about true parallelism; in the others nothing repeats, and evidence is a rate over many boots.

use std::path::Path;

use crate::manifest::Entry;
use crate::qemu::Boot;

/// A way of running the kernel's tests.
#[derive(Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its name, as in `--lane NAME` and in the names of tests.
    pub name: &'static str,
    /// How many harts the machine has.
    pub harts: u32,
    /// Whether QEMU counts instructions, one nanosecond each, so that the same boot is the same run.
    pub icount: bool,
    /// What of it is run there.
    pub scope: Scope,
    /// What it is for.
    pub about: &'static str,
}

/// What is run in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each self-test and each crash in a boot of its own, and the suite.
    Everything,
    /// Each crash in a boot of its own, and the suite: harts that take turns are slow.
    CrashesAndSuite,
    /// The suite: all self-tests one after the other in one boot.
    Suite,
    /// The suite on each machine of the matrix, with as many harts as that has.
    Machines,
}

/// All lanes.
pub const LANES: &[Lane] = &[
    Lane {
        name: "icount",
        harts: 1,
        icount: true,
        scope: Scope::Everything,
        about: "1 hart, instructions counted: every run is the same",
    },
    Lane {
        name: "tcg",
        harts: 1,
        icount: false,
        scope: Scope::Everything,
        about: "1 hart, interrupts wherever the host's clock puts them",
    },
    Lane {
        name: "smp",
        harts: 4,
        icount: false,
        scope: Scope::Everything,
        about: "4 harts, each a thread of the host: true parallelism",
    },
    Lane {
        name: "turns",
        harts: 4,
        icount: true,
        scope: Scope::CrashesAndSuite,
        about: "4 harts that take turns, instructions counted: every run is the same",
    },
    Lane {
        name: "pair",
        harts: 2,
        icount: false,
        scope: Scope::Suite,
        about: "2 harts, each a thread of the host",
    },
    Lane {
        name: "eight",
        harts: 8,
        icount: false,
        scope: Scope::Suite,
        about: "8 harts, each a thread of the host",
    },
    Lane {
        name: "matrix",
        harts: 8,
        icount: false,
        scope: Scope::Machines,
        about: "other machines, one a boot: harts, memory, CPUs, firmware, boards, bad trees",
    },
];

impl Lane {
    /// The lane of the name `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        LANES.iter().find(|lane| lane.name == name)
    }

    /// A boot of `image` in this lane with this kernel command line.
    pub fn boot(&self, image: &Path, append: &str) -> Boot {
        Boot {
            harts: self.harts,
            icount: self.icount,
            append: append.to_owned(),
            ..Boot::new(image)
        }
    }

    /// Whether this lane has what a self-test or a crash needs.
    pub fn fits(&self, entry: &Entry) -> bool {
        // An example passes where its one run is always the same.
        entry.harts <= self.harts && (self.icount || !(entry.flags.icount || entry.flags.example))
    }
}

/// What `--lane` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(pub Vec<&'static Lane>);

/// The values of `--lane`, for a help text.
pub const VALUES: &str = "icount|tcg|smp|turns|pair|eight|matrix|all";

impl std::str::FromStr for Selection {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == "all" {
            return Ok(Self(LANES.iter().collect()));
        }
        match Lane::named(word) {
            Some(lane) => Ok(Self(vec![lane])),
            None => Err(format!("one of {VALUES} belongs here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;

    fn entry(harts: u32, flags: &str) -> Entry {
        let line = format!("test\tx\t1\t{harts}\t{flags}\tf:1\n");
        Manifest::parse(line.as_bytes()).unwrap().tests[0].entry.clone()
    }

    fn lanes_for(entry: &Entry) -> Vec<&'static str> {
        let lanes = LANES.iter().filter(|lane| lane.fits(entry));
        lanes.map(|lane| lane.name).collect()
    }

    #[test]
    fn a_test_runs_only_where_it_has_what_it_needs() {
        assert_eq!(
            lanes_for(&entry(1, "-")),
            ["icount", "tcg", "smp", "turns", "pair", "eight", "matrix"]
        );
        assert_eq!(lanes_for(&entry(2, "-")), ["smp", "turns", "pair", "eight", "matrix"]);
        assert_eq!(lanes_for(&entry(1, "icount")), ["icount", "turns"]);
        assert_eq!(lanes_for(&entry(5, "-")), ["eight", "matrix"]);
    }

    #[test]
    fn the_values_for_the_help_text_are_those_that_are_understood() {
        for value in VALUES.split('|') {
            assert!(value.parse::<Selection>().is_ok(), "{value}");
        }
        assert_eq!("all".parse::<Selection>().unwrap().0.len(), LANES.len());
        assert!("ALL".parse::<Selection>().is_err());
        assert!("".parse::<Selection>().is_err());
    }

    #[test]
    fn a_boot_has_the_lanes_harts_and_clock() {
        let boot = Lane::named("smp").unwrap().boot(Path::new("kernel"), "test");
        assert_eq!((boot.harts, boot.icount, &*boot.append), (4, false, "test"));
        let boot = Lane::named("icount").unwrap().boot(Path::new("kernel"), "");
        assert_eq!((boot.harts, boot.icount), (1, true));
    }
}
