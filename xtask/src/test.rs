//! `test`: the kernel's self-tests and crashes by name, in the lanes asked for.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::println;
use serde::Serialize;

use crate::cases::{Case, Run, cases};
use crate::cli::Usage;
use crate::environment::{self, Environment};
use crate::image::{self, Image, Profile};
use crate::lanes::{self, Selection};
use crate::manifest::Manifest;
use crate::pool;
use crate::progress::Progress;
use crate::style::{BAD, GOOD, MUTED};
use crate::verdict::Verdict;

/// Which tests to run, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- test                            everything, in every lane
  cargo run -- test frame --lane icount        the tests with `frame` in their name, in one lane
  cargo run -- test --exact crash::panic       one crash, with its report if it is not as expected")]
pub struct Arguments {
    /// Only what has this text in its name (as `--list` shows it)
    pub filter: Option<String>,
    /// The filter is a whole name, with or without its lane
    #[arg(long, requires = "filter")]
    pub exact: bool,
    /// The lanes: icount (1 hart, every run the same), tcg (1 hart), smp (4 harts), or all
    #[arg(long, value_name = lanes::VALUES, default_value = "all")]
    pub lane: Selection,
    /// Which build of the kernel
    #[arg(long, value_enum, default_value_t = Profile::Checked)]
    pub profile: Profile,
    /// How many boots at once [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub jobs: Option<NonZero<usize>>,
    /// Only names what would be run
    #[arg(long)]
    pub list: bool,
    /// Gives the results as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The image with self-tests in it, and what it says it holds.
///
/// # Errors
/// When it cannot be built, or its manifest is malformed.
pub fn image_with_manifest(
    environment: &Environment,
    profile: Profile,
) -> anyhow::Result<(Image, Manifest)> {
    let image = image::build(environment, &image::Options::new(profile))?;
    let manifest = Manifest::read(&image.elf)?;
    Ok((image, manifest))
}

/// Where the logs of single boots lie, relative to the workspace if they can be.
pub fn log_directory() -> PathBuf {
    environment::target_dir().join("logs")
}

/// Runs the tests: a line each, the report of each that failed, and a summary.
///
/// The exit code is 0 if all passed, that of the failures if they are of one sort (3 crashed, 4 hung), and else 1.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, or no test has such a name.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let (image, manifest) = image_with_manifest(&environment, arguments.profile)?;
    let selected = select(&manifest, arguments);
    if selected.is_empty() {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        let what = format!(
            "no test is called `{filter}` in the lanes asked for (`test --list` shows all)"
        );
        return Err(Usage(what).into());
    }
    if arguments.list {
        for case in &selected {
            println!("{}", case.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let jobs = arguments.jobs.unwrap_or_else(pool::default_jobs);
    let mut progress = Progress::new(selected.len() as u64, "tests").without_plain_lines();
    let mut summary = Summary::default();
    pool::in_order(
        jobs,
        &selected,
        |_, case| -> anyhow::Result<(Run, PathBuf)> {
            let run = case.run(&environment, &image)?;
            let log = run.save(&log_directory())?;
            Ok((run, log))
        },
        |_, (run, log)| {
            if !arguments.json {
                progress.suspend(|| print(&run, &log));
            }
            summary.add(&run, &log);
            progress.advance(&summary.counts());
        },
    )?;
    drop(progress);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        println!("\n{}", summary.counts());
    }
    Ok(ExitCode::from(summary.exit_code()))
}

/// The cases that the command line asks for, lane by lane.
fn select(manifest: &Manifest, arguments: &Arguments) -> Vec<Case> {
    let lanes = arguments.lane.0.iter();
    let all = lanes.flat_map(|lane| cases(manifest, lane, arguments.profile));
    match &arguments.filter {
        None => all.collect(),
        Some(filter) if arguments.exact => {
            all.filter(|case| *filter == case.name() || *filter == case.subject.name()).collect()
        }
        Some(filter) => all.filter(|case| case.name().contains(filter.as_str())).collect(),
    }
}

/// Prints the line of a test, and its report if it failed.
fn print(run: &Run, log: &Path) {
    let name = run.case.name();
    let time = format!("{MUTED}({:.2} s){MUTED:#}", run.outcome.duration.as_secs_f64());
    if run.passed() {
        println!("test {name} ... {GOOD}ok{GOOD:#} {time}");
    } else if let Verdict::NotTried(why) = &run.judgement.verdict {
        println!("test {name} ... {MUTED}not tried: {why}{MUTED:#}");
    } else {
        println!("test {name} ... {BAD}FAILED{BAD:#} {time}\n");
        println!("{}\n", run.report(log));
    }
}

/// The results of a run of `test`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    passed: usize,
    failed: usize,
    not_tried: usize,
    tests: Vec<Row>,
    #[serde(skip)]
    exit_code: Option<u8>,
}

/// The result of one test.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    result: &'static str,
    why: Option<String>,
    seconds: f64,
    log: PathBuf,
}

impl Summary {
    fn add(&mut self, run: &Run, log: &Path) {
        let (result, why) = if run.passed() {
            self.passed += 1;
            ("ok", None)
        } else if let Verdict::NotTried(why) = &run.judgement.verdict {
            self.not_tried += 1;
            ("not tried", Some(why.clone()))
        } else {
            self.failed += 1;
            let verdict = &run.judgement.verdict;
            let code = verdict.exit_code();
            self.exit_code = match self.exit_code {
                None => Some(code),
                Some(other) if other == code => Some(code),
                Some(_) => Some(1),
            };
            ("failed", Some(verdict.to_string()))
        };
        self.tests.push(Row {
            name: run.case.name(),
            result,
            why,
            seconds: run.outcome.duration.as_secs_f64(),
            log: log.to_owned(),
        });
    }

    fn counts(&self) -> String {
        let mut counts = format!("{} passed, {} failed", self.passed, self.failed);
        if self.not_tried > 0 {
            counts += &format!(", {} not tried", self.not_tried);
        }
        counts
    }

    fn exit_code(&self) -> u8 {
        self.exit_code.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::lanes::{LANES, Scope};
    use crate::matrix::CELLS;
    use crate::qemu::{Exit, Outcome};
    use crate::verdict::judge;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn selected(words: &[&str]) -> Vec<String> {
        let manifest = Manifest::parse(
            b"test\ta::b\t1\t1\t-\tkernel/src/a.rs:1\n\
              test\ta::b_and_c\t1\t1\t-\tkernel/src/a.rs:2\n\
              crash\tpanic\t3\t1\tfixed\tkernel/src/c.rs:1\tpanicked\t-\n",
        )
        .unwrap();
        let arguments = CommandLine::parse_from([&["test"], words].concat()).arguments;
        let cases = select(&manifest, &arguments);
        cases.iter().map(Case::name).collect()
    }

    fn summary(results: &[(&str, Exit)]) -> Summary {
        let manifest = Manifest::parse(b"test\ta\t1\t1\t-\tf:1\n").unwrap();
        let lane = lanes::Lane::named("tcg").unwrap();
        let case = cases(&manifest, lane, Profile::Checked).remove(0);
        let mut summary = Summary::default();
        for (output, exit) in results {
            let outcome = Outcome {
                output: (*output).to_owned(),
                messages: String::new(),
                exit: exit.clone(),
                duration: std::time::Duration::ZERO,
            };
            let run = Run {
                boot: case.boot(Path::new("kernel")),
                judgement: judge(&outcome, &case.expectation()),
                case: case.clone(),
                outcome,
            };
            summary.add(&run, Path::new("log"));
        }
        summary
    }

    const OK: &str = "test a ... ok\nverdict: pass: 1 passed, 0 failed, 0 skipped\n";
    const FAILED: &str = "test a ... FAILED: no\nverdict: fail: 0 passed, 1 failed, 0 skipped\n";
    const CRASHED: &str = "verdict: crash: bang\n";

    #[test]
    fn a_filter_is_a_part_of_the_name_with_its_lane() {
        assert_eq!(selected(&["b_and", "--lane", "tcg"]), ["tcg::a::b_and_c"]);
        assert_eq!(selected(&["tcg::a"]), ["tcg::a::b", "tcg::a::b_and_c"]);
        let without = [Scope::Suite, Scope::Machines];
        let with_crashes = LANES.iter().filter(|lane| !without.contains(&lane.scope)).count();
        assert_eq!(selected(&["crash"]).len(), with_crashes);
        assert!(selected(&["nothing"]).is_empty());
    }

    #[test]
    fn an_exact_filter_is_a_whole_name() {
        assert_eq!(selected(&["--exact", "a::b", "--lane", "icount"]), ["icount::a::b"]);
        assert_eq!(selected(&["--exact", "smp::a::b"]), ["smp::a::b"]);
        assert!(selected(&["--exact", "a"]).is_empty());
    }

    #[test]
    fn without_a_filter_everything_is_run() {
        assert_eq!(selected(&[]).len(), 3 * 4 + 2 + 1 + 1 + CELLS.len());
        assert_eq!(selected(&["--profile", "release"])[0], "release::icount::a::b");
    }

    #[test]
    fn the_summary_counts_and_gives_the_exit_code() {
        let all = summary(&[(OK, Exit::Code(0))]);
        assert_eq!(all.counts(), "1 passed, 0 failed");
        assert_eq!(all.exit_code(), 0);
        let one = summary(&[(OK, Exit::Code(0)), (FAILED, Exit::Code(1))]);
        assert_eq!(one.counts(), "1 passed, 1 failed");
        assert_eq!(one.exit_code(), 1);
    }

    #[test]
    fn failures_of_one_sort_give_their_code_and_others_1() {
        let hang = Exit::TimedOut { diagnosis: String::new() };
        assert_eq!(summary(&[("", hang.clone())]).exit_code(), 4);
        let crash = (CRASHED, Exit::Code(3));
        assert_eq!(summary(&[crash.clone(), crash.clone()]).exit_code(), 3);
        assert_eq!(summary(&[crash, ("", hang)]).exit_code(), 1);
    }

    #[test]
    fn json_has_the_counts_and_a_row_for_each_test() {
        let json = serde_json::to_value(summary(&[(FAILED, Exit::Code(1))])).unwrap();
        assert_eq!(json["failed"], 1);
        assert_eq!(json["tests"][0]["name"], "tcg::a");
        assert_eq!(json["tests"][0]["result"], "failed");
        assert_eq!(json["tests"][0]["why"], "a failed: no");
    }
}
