//! The kernel's command line, from `/chosen/bootargs`: which job the first thread does.
//!
//! ```
//! use command_line::{CommandLine, Job};
//!
//! let line = CommandLine::parse("test only=paging::*,exit::parks");
//! let Job::Test(only) = line.job else { panic!() };
//! assert!(only.admits("paging::null_is_not_mapped"));
//! assert!(!only.admits("frame::double_free"));
//! assert!(line.problems.is_empty());
//! ```
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;
use core::ops::Range;

use arrayvec::ArrayVec;

/// How many problems of a command line are kept; more are counted.
const PROBLEMS: usize = 8;

/// What the kernel was asked to do, and what of it made no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine<'a> {
    /// The first thread's job.
    pub job: Job<'a>,
    /// What could not be followed, in the order of the words.
    pub problems: ArrayVec<Problem<'a>, PROBLEMS>,
    /// Problems beyond those.
    pub more_problems: usize,
    /// `report=json`: crash reports for programs too.
    pub json_reports: bool,
    /// `seed=N`: schedules are explored from this number, which is not 0.
    pub seed: Option<u64>,
    /// `seeds=A..B`: the self-tests run once for each of these seeds, B excluded.
    pub seeds: Option<Range<u64>>,
    /// `switches=N`: a seed forces no more switches than that.
    pub switches: Option<usize>,
    /// `places`: where schedules were explored is printed at the end.
    pub places: bool,
    /// `trace`: what every hart did last is printed before the verdict.
    pub trace: bool,
}

/// The first thread's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job<'a> {
    /// Shows the machine and the kernel at work.
    Demo,
    /// `monitor`: the demo, and then the monitor, for somebody who types.
    Monitor,
    /// `test`: the self-tests.
    Test(Only<'a>),
    /// `bench`: the benchmarks.
    Bench(Bench<'a>),
    /// `crash=KIND`: one deliberate crash.
    Crash(Crash<'a>),
}

/// Which benchmarks, and what there is already when they are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench<'a> {
    /// `only=NAME,...`: which.
    pub only: Only<'a>,
    /// `with=WHAT,...`: what there is already. What that may be is for the kernel to say.
    pub with: &'a str,
}

/// A deliberate crash, from `crash=KIND,OPTION,...`. Whether there is such a kind is for the kernel to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash<'a> {
    /// The kind.
    pub kind: &'a str,
    /// `cpu=N`: on which CPU.
    pub cpu: usize,
    /// `locked`: with the console's lock held.
    pub locked: bool,
    /// `masked`: with interrupts off.
    pub masked: bool,
    /// `together`: on CPU 0 at the same time.
    pub together: bool,
}

impl<'a> Crash<'a> {
    /// Reads what follows `crash=`.
    ///
    /// # Errors
    /// The option that it stopped at, if there is none such.
    pub fn parse(words: &'a str) -> Result<Self, &'a str> {
        let (kind, options) = words.split_once(',').unwrap_or((words, ""));
        let mut crash = Crash { kind, cpu: 0, locked: false, masked: false, together: false };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option {
                "locked" => crash.locked = true,
                "masked" => crash.masked = true,
                "together" => crash.together = true,
                _ => {
                    let cpu = option.strip_prefix("cpu=").and_then(|cpu| cpu.parse().ok());
                    crash.cpu = cpu.ok_or(option)?;
                }
            }
        }
        Ok(crash)
    }
}

/// A choice by name, from `only=NAME,NAME,...`: exact names, or the beginning of names followed by `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only<'a>(Option<&'a str>);

impl<'a> Only<'a> {
    /// Admits every name.
    pub const EVERYTHING: Only<'static> = Only(None);

    /// What a list of names and beginnings chooses.
    pub const fn of(list: &'a str) -> Only<'a> {
        Only(Some(list))
    }

    /// Whether `name` was chosen.
    pub fn admits(&self, name: &str) -> bool {
        self.patterns().is_none_or(|mut patterns| patterns.any(|pattern| matches(pattern, name)))
    }

    /// The patterns asked for, or nothing where everything was.
    pub fn patterns(&self) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        self.0.map(|list| list.split(',').filter(|pattern| !pattern.is_empty()))
    }
}

/// Reads `A..B`, which is not empty and has no 0.
fn seeds(range: &str) -> Option<Range<u64>> {
    let (start, end) = range.split_once("..")?;
    let range = start.parse().ok()?..end.parse().ok()?;
    (range.start > 0 && !range.is_empty()).then_some(range)
}

/// Whether `name` is what `pattern` means: the same, or, where the pattern ends in `*`, the same up to there.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// A word that could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem<'a> {
    /// Not a word that the kernel knows.
    UnknownWord(&'a str),
    /// A second job; the first stands.
    SecondJob(&'a str),
    /// `only=` without names, or for a job that has no names to choose from, or a second time.
    UselessOnly(&'a str),
    /// `with=` for another job than the benchmarks.
    UselessWith(&'a str),
    /// An option of a crash that there is not.
    CrashOption(&'a str),
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownWord(word) => write!(f, "unknown word '{word}' is ignored"),
            Problem::SecondJob(word) => write!(f, "'{word}' asks for a second job and is ignored"),
            Problem::UselessOnly(word) => write!(f, "'{word}' chooses nothing and is ignored"),
            Problem::UselessWith(word) => {
                write!(f, "'{word}' is for the benchmarks alone and is ignored")
            }
            Problem::CrashOption(option) => write!(
                f,
                "'{option}' is no option of a crash (cpu=N, locked, masked, together); the crash is ignored"
            ),
        }
    }
}

impl<'a> CommandLine<'a> {
    /// Reads the words of `line`, in any order, separated by white space. Never fails: what makes no sense is in `problems`.
    pub fn parse(line: &'a str) -> Self {
        let mut parsed = CommandLine {
            job: Job::Demo,
            problems: ArrayVec::new(),
            more_problems: 0,
            json_reports: false,
            seed: None,
            seeds: None,
            switches: None,
            places: false,
            trace: false,
        };
        let mut job = None;
        let mut only = None;
        let mut with = None;
        for word in line.split_ascii_whitespace() {
            let asked = match word.split_once('=') {
                None if word == "test" => Job::Test(Only::EVERYTHING),
                None if word == "bench" => Job::Bench(Bench { only: Only::EVERYTHING, with: "" }),
                None if word == "monitor" => Job::Monitor,
                None if word == "trace" => {
                    parsed.trace = true;
                    continue;
                }
                None if word == "places" => {
                    parsed.places = true;
                    continue;
                }
                Some(("seeds", range)) if seeds(range).is_some() => {
                    parsed.seeds = seeds(range);
                    continue;
                }
                Some(("switches", number)) if number.parse::<usize>().is_ok() => {
                    parsed.switches = number.parse().ok();
                    continue;
                }
                Some(("crash", words)) => match Crash::parse(words) {
                    Ok(crash) => Job::Crash(crash),
                    Err(option) => {
                        parsed.note(Problem::CrashOption(option));
                        continue;
                    }
                },
                Some(("seed", number)) if number.parse().is_ok_and(|seed: u64| seed != 0) => {
                    parsed.seed = number.parse().ok();
                    continue;
                }
                Some(("report", "json")) => {
                    parsed.json_reports = true;
                    continue;
                }
                Some(("with", _)) => {
                    with = Some(word);
                    continue;
                }
                Some(("only", names)) => {
                    if only.is_some() || names.split(',').all(str::is_empty) {
                        parsed.note(Problem::UselessOnly(word));
                    } else {
                        only = Some((word, Only(Some(names))));
                    }
                    continue;
                }
                _ => {
                    parsed.note(Problem::UnknownWord(word));
                    continue;
                }
            };
            if job.is_some() {
                parsed.note(Problem::SecondJob(word));
            } else {
                job = Some(asked);
            }
        }
        parsed.job = job.unwrap_or(Job::Demo);
        if let Some((word, only)) = only {
            match &mut parsed.job {
                Job::Test(choice) | Job::Bench(Bench { only: choice, .. }) => *choice = only,
                Job::Demo | Job::Monitor | Job::Crash(_) => parsed.note(Problem::UselessOnly(word)),
            }
        }
        if let Some(word) = with {
            match &mut parsed.job {
                Job::Bench(bench) => bench.with = &word["with=".len()..],
                _ => parsed.note(Problem::UselessWith(word)),
            }
        }
        parsed
    }

    fn note(&mut self, problem: Problem<'a>) {
        if self.problems.try_push(problem).is_err() {
            self.more_problems += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_asks_for_the_demo() {
        for line in ["", "   ", "\t\n"] {
            let parsed = CommandLine::parse(line);
            assert_eq!(parsed.job, Job::Demo);
            assert!(parsed.problems.is_empty());
        }
    }

    #[test]
    fn the_monitor_follows_the_demo_and_no_other_job() {
        let parsed = CommandLine::parse("monitor");
        assert_eq!(parsed.job, Job::Monitor);
        assert!(parsed.problems.is_empty());
        let parsed = CommandLine::parse("test monitor");
        assert!(matches!(parsed.job, Job::Test(_)));
        assert_eq!(parsed.problems[..], [Problem::SecondJob("monitor")]);
        assert_eq!(
            CommandLine::parse("monitor=1").problems[..],
            [Problem::UnknownWord("monitor=1")]
        );
    }

    #[test]
    fn a_list_chooses_as_the_word_does() {
        let Job::Test(only) = CommandLine::parse("test only=a::*,b").job else { panic!() };
        assert_eq!(Only::of("a::*,b"), only);
    }

    #[test]
    fn only_narrows_the_tests_wherever_it_stands() {
        for line in ["test only=a::b,c::*", "only=a::b,c::* test"] {
            let Job::Test(only) = CommandLine::parse(line).job else { panic!("{line} is no test") };
            assert!(only.admits("a::b"));
            assert!(only.admits("c::anything"));
            assert!(!only.admits("a::bc"));
            assert!(!only.admits("a"));
        }
    }

    #[test]
    fn unknown_words_are_reported_not_ignored() {
        let parsed = CommandLine::parse("quiet test root=/dev/vda");
        assert_eq!(
            parsed.problems[..],
            [Problem::UnknownWord("quiet"), Problem::UnknownWord("root=/dev/vda")]
        );
        assert!(matches!(parsed.job, Job::Test(_)));
    }

    #[test]
    fn the_first_job_stands() {
        let parsed = CommandLine::parse("crash=panic test");
        assert!(matches!(parsed.job, Job::Crash(Crash { kind: "panic", .. })));
        assert_eq!(parsed.problems[..], [Problem::SecondJob("test")]);
    }

    #[test]
    fn a_crash_has_options() {
        let crash = |line| match CommandLine::parse(line).job {
            Job::Crash(crash) => crash,
            other => panic!("{line} gives {other:?}"),
        };
        let plain = Crash { kind: "panic", cpu: 0, locked: false, masked: false, together: false };
        assert_eq!(crash("crash=panic"), plain);
        assert_eq!(crash("crash=panic,cpu=3,masked"), Crash { cpu: 3, masked: true, ..plain });
        assert_eq!(
            crash("crash=panic,locked,together"),
            Crash { locked: true, together: true, ..plain }
        );
    }

    #[test]
    fn a_crash_with_an_unknown_option_is_reported_and_does_not_happen() {
        for option in ["cpu=", "cpu=x", "cpu=-1", "lock"] {
            let line = ["crash=panic", option].join(",");
            let parsed = CommandLine::parse(&line);
            assert_eq!(parsed.problems[..], [Problem::CrashOption(option)]);
            assert_eq!(parsed.job, Job::Demo);
        }
    }

    #[test]
    fn a_seed_is_a_number_that_is_not_zero() {
        let parsed = CommandLine::parse("test seed=18446744073709551615");
        assert_eq!(parsed.seed, Some(u64::MAX));
        assert!(parsed.problems.is_empty());
        for word in ["seed=0", "seed=", "seed=-1", "seed=x"] {
            let parsed = CommandLine::parse(word);
            assert_eq!(parsed.seed, None);
            assert_eq!(parsed.problems[..], [Problem::UnknownWord(word)]);
        }
    }

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        let parsed = CommandLine::parse("test seeds=7..27 switches=12 places only=a");
        assert_eq!(parsed.seeds, Some(7..27));
        assert_eq!(parsed.switches, Some(12));
        assert!(parsed.places && parsed.problems.is_empty());
        for word in ["seeds=0..3", "seeds=3..3", "seeds=4..3", "seeds=4", "seeds=..", "switches=-1"]
        {
            let parsed = CommandLine::parse(word);
            assert_eq!((parsed.seeds, parsed.switches), (None, None), "{word}");
            assert_eq!(parsed.problems[..], [Problem::UnknownWord(word)]);
        }
    }

    #[test]
    fn reports_as_json_are_asked_for_beside_any_job() {
        let parsed = CommandLine::parse("report=json test");
        assert!(parsed.json_reports && parsed.problems.is_empty());
        assert!(matches!(parsed.job, Job::Test(_)));
        let parsed = CommandLine::parse("report=xml");
        assert_eq!(parsed.problems[..], [Problem::UnknownWord("report=xml")]);
    }

    #[test]
    fn a_trace_is_asked_for_beside_any_job() {
        for line in ["trace", "trace trace"] {
            let parsed = CommandLine::parse(line);
            assert!(parsed.trace && parsed.problems.is_empty(), "{line}");
            assert_eq!(parsed.job, Job::Demo);
        }
        let parsed = CommandLine::parse("crash=panic trace");
        assert!(parsed.trace && matches!(parsed.job, Job::Crash(_)));
        assert!(!CommandLine::parse("test").trace);
        let parsed = CommandLine::parse("trace=1");
        assert!(!parsed.trace);
        assert_eq!(parsed.problems[..], [Problem::UnknownWord("trace=1")]);
    }

    #[test]
    fn benchmarks_are_run_with_what_is_asked_for_and_nothing_else_is() {
        for line in ["bench with=threads:10,fill:50 only=a", "only=a with=threads:10,fill:50 bench"]
        {
            let parsed = CommandLine::parse(line);
            let Job::Bench(Bench { only, with }) = parsed.job else { panic!("{line}") };
            assert_eq!((only, with), (Only::of("a"), "threads:10,fill:50"));
            assert!(parsed.problems.is_empty());
        }
        let parsed = CommandLine::parse("test with=threads:10");
        assert_eq!(parsed.problems[..], [Problem::UselessWith("with=threads:10")]);
    }

    #[test]
    fn only_without_names_or_tests_is_reported() {
        for line in ["test only=", "test only=,", "crash=panic only=a", "only=a", "monitor only=a"]
        {
            assert_eq!(CommandLine::parse(line).problems.len(), 1, "{line}");
        }
    }

    proptest! {
        #[test]
        fn every_word_that_is_not_followed_is_counted(words in proptest::collection::vec("[a-z=,*]{1,12}", 0..30)) {
            let line = words.join(" ");
            let parsed = CommandLine::parse(&line);
            let followed = words.len() - parsed.problems.len() - parsed.more_problems;
            prop_assert!(followed <= 2, "at most a job and its only= can be followed");
        }
    }
}
