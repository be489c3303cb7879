//! The baseline in results/, and what a change may add to it.
//!
//! Counts are exact only for one compiler and one emulator: others may give other numbers for the same sources. So the
//! baseline says what it was measured with, and where that differs it is shown and holds nobody up.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::figures::{self, Figure};
use super::results::{Results, Tenths};

/// A number may become worse by so many per cent.
const PERCENT: u64 = 3;
/// Or by so many instructions, pages, ..., whichever is more.
const AT_LEAST: Tenths = Tenths(20);

/// The file with the baseline.
pub fn path(workspace: &Path) -> PathBuf {
    workspace.join("results/baseline.json")
}

/// Reads the baseline; nothing where there is none yet.
///
/// # Errors
/// When it cannot be read or is malformed.
pub fn baseline(workspace: &Path) -> anyhow::Result<Option<Results>> {
    let path = path(workspace);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| path.display().to_string())?,
    };
    serde_json::from_str(&text).map(Some).with_context(|| path.display().to_string())
}

/// What was measured with something else than the baseline was, in a sentence each.
pub fn versions(now: &Results, baseline: &Results) -> Vec<String> {
    let pairs = [(&now.toolchain, &baseline.toolchain), (&now.qemu, &baseline.qemu)];
    let different = pairs.into_iter().filter(|(now, then)| now != then);
    different.map(|(now, then)| format!("this is {now}; the baseline is of {then}")).collect()
}

/// Where a measurement does not keep to the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// It became worse by more than it may.
    Worse {
        /// Which number.
        name: String,
        /// In the baseline.
        then: Tenths,
        /// Now.
        now: Tenths,
    },
    /// The baseline does not have it.
    New(String),
    /// Only the baseline has it.
    Gone(String),
}

impl fmt::Display for Breach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Worse { name, then, now } => {
                let difference = Tenths(now.0.abs_diff(then.0));
                let direction = if now > then { "more" } else { "less" };
                let allowed = tolerance(*then);
                write!(
                    formatter,
                    "{name} is {now} and was {then}: {difference} {direction}, where {allowed} are allowed"
                )
            }
            Breach::New(name) => write!(formatter, "{name} is not in the baseline"),
            Breach::Gone(name) => {
                write!(formatter, "{name} is in the baseline and no longer measured")
            }
        }
    }
}

/// By how much a number may become worse.
pub(super) fn tolerance(baseline: Tenths) -> Tenths {
    Tenths(baseline.0 * PERCENT / 100).max(AT_LEAST)
}

/// Every breach of the baseline, which was measured with the same versions.
pub fn breaches(now: &Results, baseline: &Results) -> Vec<Breach> {
    let gone = baseline.names().filter(|name| now.value(name).is_none());
    let gone = gone.map(|name| Breach::Gone(name.to_owned()));
    now.names().filter_map(|name| breach(name, now.value(name)?, baseline)).chain(gone).collect()
}

fn breach(name: &str, now: Tenths, baseline: &Results) -> Option<Breach> {
    let figure = figures::named(name);
    if figure.is_some_and(|figure| !figure.held) {
        return None;
    }
    let Some(then) = baseline.value(name) else {
        return Some(Breach::New(name.to_owned()));
    };
    let (better, worse) =
        if figure.is_some_and(Figure::more_is_better) { (now, then) } else { (then, now) };
    let breaks = worse.0 > better.0 + tolerance(then).0;
    breaks.then(|| Breach::Worse { name: name.to_owned(), then, now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Row;

    fn results(rows: &[(&str, u64)], gauges: &[(&str, u64)]) -> Results {
        let row = |&(name, tenths): &(&str, u64)| Row {
            name: name.to_owned(),
            instructions: Tenths(tenths),
            min: tenths / 10,
            max: tenths / 10,
        };
        Results {
            toolchain: "rustc 1".to_owned(),
            qemu: "QEMU 1".to_owned(),
            rows: rows.iter().map(row).collect(),
            gauges: gauges.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    fn worse(now: u64, then: u64) -> bool {
        !breaches(&results(&[("trap", now)], &[]), &results(&[("trap", then)], &[])).is_empty()
    }

    #[test]
    fn a_count_may_grow_by_three_per_cent_or_two_instructions() {
        // 1,000 instructions: 30 more are allowed, and not a tenth beyond.
        assert!(!worse(10_300, 10_000));
        assert!(worse(10_301, 10_000));
        // 20 instructions: 2 more.
        assert!(!worse(220, 200));
        assert!(worse(221, 200));
        assert!(!worse(1, 200), "fewer are always welcome");
    }

    #[test]
    fn free_frames_may_not_become_fewer() {
        let of = |frames| results(&[], &[("free_frames", frames)]);
        assert!(breaches(&of(32_000), &of(32_450)).is_empty(), "that is less than 3 %");
        assert!(breaches(&of(99_999), &of(32_450)).is_empty());
        let [breach] = &*breaches(&of(31_000), &of(32_450)) else { panic!("one breach") };
        assert_eq!(
            breach.to_string(),
            "free_frames is 31,000 and was 32,450: 1,450 less, where 973.5 are allowed"
        );
    }

    #[test]
    fn what_only_one_of_them_has_is_a_breach() {
        let (one, other) = (results(&[("switch", 290)], &[]), results(&[("yield", 990)], &[]));
        assert_eq!(
            breaches(&one, &other),
            [Breach::New("switch".to_owned()), Breach::Gone("yield".to_owned())]
        );
    }

    #[test]
    fn what_grows_with_the_kernel_is_not_held() {
        let of = |lines| results(&[], &[("code_lines", lines)]);
        assert!(breaches(&of(4_000), &of(1_000)).is_empty());
    }

    #[test]
    fn other_versions_are_named() {
        let one = results(&[], &[]);
        assert!(versions(&one, &one).is_empty());
        let other = Results { qemu: "QEMU 2".to_owned(), ..one.clone() };
        assert_eq!(versions(&other, &one), ["this is QEMU 2; the baseline is of QEMU 1"]);
    }

    #[test]
    fn a_baseline_that_is_not_there_is_none_and_one_that_is_malformed_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(baseline(folder.path()).unwrap(), None);
        std::fs::create_dir(folder.path().join("results")).unwrap();
        std::fs::write(path(folder.path()), "{").unwrap();
        let message = format!("{:#}", baseline(folder.path()).unwrap_err());
        assert!(message.contains("baseline.json"), "{message}");
    }
}
