//! A [`Mutant`]: a patch that breaks one claim, and its header, which names the test that must notice.
//!
//! ```text
//! Mutant: double_free_is_not_noticed
//! Claim: 12
//! Sort: plain
//! Test: frame::double_free_is_an_error
//! Lane: icount
//! Breaks: the check before a frame is freed, so that two owners would get the same frame
//!
//! diff --git a/kernel/src/frame.rs b/kernel/src/frame.rs
//! ...
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::lanes::Lane;

/// A deliberate fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Its name, that of its file.
    pub name: String,
    /// The number of the claim that it breaks.
    pub claim: u32,
    /// Whether one run must notice it.
    pub sort: Sort,
    /// What must notice it.
    pub killer: Killer,
    /// Where: each of these lanes must. None for a killer that needs no boot.
    pub lanes: Vec<&'static Lane>,
    /// A self-test that is explored with a race: its own, or where that is on the host, one that the field `Explored` names.
    pub explored: Option<String>,
    /// What it takes away, and what somebody would suffer.
    pub breaks: String,
    /// The patch.
    pub patch: PathBuf,
}

/// Whether one run of the right test must notice a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// One run must.
    Plain,
    /// It takes away a step of a protocol between harts, threads or interrupts: it shows only in some runs.
    Race,
}

impl Sort {
    /// Its name in the header and in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Race => "race",
        }
    }
}

/// What must notice a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Killer {
    /// A self-test of the kernel.
    Test(String),
    /// A deliberate crash, by its report or its exit code.
    Crash(String),
    /// A test on the host.
    Host {
        /// The crate.
        package: String,
        /// The integration test's file, without `.rs`; none for a unit test.
        target: Option<String>,
        /// The test.
        test: String,
    },
    /// The build: it must fail, and say this.
    Build(String),
}

impl Killer {
    /// Whether it is a test that tries schedules of a protocol on the host.
    pub fn is_model(&self) -> bool {
        let targets = [Some("model"), Some("random")];
        matches!(self, Self::Host { target, .. } if targets.contains(&target.as_deref()))
    }
}

impl fmt::Display for Killer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(name) => write!(formatter, "{name}"),
            Self::Crash(kind) => write!(formatter, "crash::{kind}"),
            Self::Host { package, target, test } => match target {
                Some(target) => write!(formatter, "{package}::{target}::{test}"),
                None => write!(formatter, "{package}::{test}"),
            },
            Self::Build(text) => write!(formatter, "the build (`{text}`)"),
        }
    }
}

/// Why a patch's header cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", patch.display())]
pub struct Error {
    /// The patch.
    pub patch: PathBuf,
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

/// What can be wrong with a patch's header.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] std::io::Error),
    /// There is no line that begins with `diff --git`.
    #[error("no diff in it")]
    NoDiff,
    /// A line before the diff that is no `Field: value`.
    #[error("line {0} of the header is no `Field: value`")]
    NotField(usize),
    /// A field that is not there, or that is empty.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field that nobody knows.
    #[error("nobody knows the field `{0}`")]
    Unknown(String),
    /// A field that is there twice.
    #[error("the field `{0}` is there twice")]
    Twice(String),
    /// A value that the field cannot have.
    #[error("`{field}: {value}`: {expected} belongs there")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
}

/// Reads all patches in a directory, sorted by name.
///
/// # Errors
/// For the first patch whose header cannot be used.
pub fn read_all(directory: &Path) -> anyhow::Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            mutants.push(Mutant::read(&path)?);
        }
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

impl Mutant {
    /// Reads the header of a patch.
    ///
    /// # Errors
    /// When it is not as described, or the patch has another name than its file.
    pub fn read(patch: &Path) -> Result<Self, Error> {
        let read = || {
            let text = std::fs::read_to_string(patch)?;
            Self::parse(&text, patch)
        };
        read().map_err(|problem| Error { patch: patch.to_owned(), problem })
    }

    fn parse(text: &str, patch: &Path) -> Result<Self, Problem> {
        let mut header = Header::parse(text)?;
        let name = header.take("Mutant")?;
        if patch.file_stem().and_then(|stem| stem.to_str()) != Some(&name) {
            return Err(Problem::Value {
                field: "Mutant",
                value: name,
                expected: "the name of the file",
            });
        }
        let claim = header.take("Claim")?;
        let claim = claim.parse().map_err(|_| Problem::Value {
            field: "Claim",
            value: claim,
            expected: "a claim's number",
        })?;
        let sort = match &*header.take("Sort")? {
            "plain" => Sort::Plain,
            "race" => Sort::Race,
            other => {
                return Err(Problem::Value {
                    field: "Sort",
                    value: other.to_owned(),
                    expected: "`plain` or `race`",
                });
            }
        };
        let killer = parse_killer(&header.take("Test")?)?;
        let lanes = parse_lanes(&header.take("Lane")?, &killer)?;
        let breaks = header.take("Breaks")?;
        let explored = header.take_if_there("Explored");
        header.finish()?;
        let explored = explored.or_else(|| match (sort, &killer) {
            (Sort::Race, Killer::Test(name)) => Some(name.clone()),
            _ => None,
        });
        let patch = patch.to_owned();
        Ok(Self { name, claim, sort, killer, lanes, explored, breaks, patch })
    }
}

/// The fields before the diff.
struct Header(BTreeMap<String, String>);

impl Header {
    fn parse(text: &str) -> Result<Self, Problem> {
        let end = if text.starts_with("diff --git ") {
            0
        } else {
            text.find("\ndiff --git ").ok_or(Problem::NoDiff)?
        };
        let mut fields = BTreeMap::new();
        for (index, line) in text[..end].lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let (field, value) = line.split_once(": ").ok_or(Problem::NotField(index + 1))?;
            let value = value.trim().to_owned();
            if fields.insert(field.to_owned(), value).is_some() {
                return Err(Problem::Twice(field.to_owned()));
            }
        }
        Ok(Self(fields))
    }

    fn take(&mut self, field: &'static str) -> Result<String, Problem> {
        self.0.remove(field).filter(|value| !value.is_empty()).ok_or(Problem::Missing(field))
    }

    fn take_if_there(&mut self, field: &'static str) -> Option<String> {
        self.0.remove(field).filter(|value| !value.is_empty())
    }

    fn finish(self) -> Result<(), Problem> {
        match self.0.into_keys().next() {
            Some(field) => Err(Problem::Unknown(field)),
            None => Ok(()),
        }
    }
}

fn parse_killer(value: &str) -> Result<Killer, Problem> {
    let words: Vec<&str> = value.split_whitespace().collect();
    match words[..] {
        ["build", ..] if words.len() > 1 => Ok(Killer::Build(words[1..].join(" "))),
        ["crash", kind] => Ok(Killer::Crash(kind.to_owned())),
        ["host", package, test] => {
            let (package, target) = match package.split_once(':') {
                Some((package, target)) => (package, Some(target.to_owned())),
                None => (package, None),
            };
            Ok(Killer::Host { package: package.to_owned(), target, test: test.to_owned() })
        }
        [name] if !matches!(name, "build" | "crash" | "host") => Ok(Killer::Test(name.to_owned())),
        _ => Err(Problem::Value {
            field: "Test",
            value: value.to_owned(),
            expected: "a self-test's name, `crash KIND`, `host PACKAGE TEST`, `host PACKAGE:FILE TEST` or \
                       `build TEXT OF ITS ERROR`",
        }),
    }
}

fn parse_lanes(value: &str, killer: &Killer) -> Result<Vec<&'static Lane>, Problem> {
    let wrong = |expected| Problem::Value { field: "Lane", value: value.to_owned(), expected };
    if matches!(killer, Killer::Host { .. } | Killer::Build(_)) {
        return match value {
            "host" => Ok(Vec::new()),
            _ => Err(wrong("`host`, as the test needs no boot,")),
        };
    }
    value
        .split(',')
        .map(|name| {
            Lane::named(name.trim()).ok_or_else(|| {
                wrong("icount, tcg, pair, smp, eight or turns, or some of them with commas,")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Mutant: stale\nClaim: 7\nSort: race\nTest: vm::unmap_is_seen\nLane: smp, icount\n\
                        Breaks: the fence after an unmap: a freed frame would still be written\n\n\
                        diff --git a/x b/x\n--- a/x\n+++ b/x\n";

    fn parse(text: &str) -> Result<Mutant, Problem> {
        Mutant::parse(text, Path::new("mutants/stale.patch"))
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    fn killer(value: &str) -> Killer {
        parse_killer(value).unwrap()
    }

    #[test]
    fn a_header_is_read_field_by_field() {
        let mutant = parse(GOOD).unwrap();
        assert_eq!(mutant.name, "stale");
        assert_eq!(mutant.claim, 7);
        assert_eq!(mutant.sort, Sort::Race);
        assert_eq!(mutant.killer, Killer::Test("vm::unmap_is_seen".into()));
        let lanes: Vec<_> = mutant.lanes.iter().map(|lane| lane.name).collect();
        assert_eq!(lanes, ["smp", "icount"]);
        assert_eq!(mutant.breaks, "the fence after an unmap: a freed frame would still be written");
    }

    #[test]
    fn every_sort_of_killer_is_understood() {
        assert_eq!(killer("crash panic"), Killer::Crash("panic".into()));
        assert_eq!(
            killer("host symbols lookup::tests::exact"),
            Killer::Host {
                package: "symbols".into(),
                target: None,
                test: "lookup::tests::exact".into()
            }
        );
        assert_eq!(
            killer("host machine:trees virt_8"),
            Killer::Host {
                package: "machine".into(),
                target: Some("trees".into()),
                test: "virt_8".into()
            }
        );
        assert_eq!(
            killer("build the frame of `huge` exceeds"),
            Killer::Build("the frame of `huge` exceeds".into())
        );
        for wrong in ["", "build", "crash", "host symbols", "a b", "crash a b"] {
            assert!(parse_killer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_field_must_be_there_once_and_no_other() {
        for field in ["Mutant", "Claim", "Sort", "Test", "Lane", "Breaks"] {
            let without: String =
                GOOD.split_inclusive('\n').filter(|line| !line.starts_with(field)).collect();
            assert_eq!(message(&without), format!("the field `{field}` is missing"));
        }
        let empty = GOOD.replace("Test: vm::unmap_is_seen", "Test: ");
        assert_eq!(message(&empty), "the field `Test` is missing");
        assert_eq!(message(&format!("Mutant: stale\n{GOOD}")), "the field `Mutant` is there twice");
        assert_eq!(message(&format!("Author: me\n{GOOD}")), "nobody knows the field `Author`");
        assert_eq!(message(&format!("Hello\n{GOOD}")), "line 1 of the header is no `Field: value`");
    }

    #[test]
    fn a_value_that_cannot_be_is_named() {
        for (right, wrong) in [
            ("Mutant: stale", "Mutant: other"),
            ("Claim: 7", "Claim: seven"),
            ("Sort: race", "Sort: quick"),
            ("Lane: smp, icount", "Lane: host"),
            ("Lane: smp, icount", "Lane: smp icount"),
        ] {
            let message = message(&GOOD.replace(right, wrong));
            assert!(message.starts_with(&format!("`{wrong}`: ")), "{message}");
        }
    }

    #[test]
    fn a_killer_without_a_boot_has_no_lane_but_the_host() {
        let host = GOOD.replace("Test: vm::unmap_is_seen", "Test: host symbols lookup");
        assert!(message(&host).contains("`host`"));
        let host = host.replace("Lane: smp, icount", "Lane: host");
        assert!(parse(&host).unwrap().lanes.is_empty());
    }

    #[test]
    fn a_file_without_a_diff_is_no_mutant() {
        assert_eq!(message("Mutant: stale\n"), "no diff in it");
        assert_eq!(message(""), "no diff in it");
    }

    #[test]
    fn an_error_names_the_file() {
        let error = Mutant::read(Path::new("/nowhere/x.patch")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/x.patch: "));
    }
}
