//! `soak`: the same boot many times, in parallel, with the host kept busy if asked for.
//!
//! A race that shows once in thirty boots passes a single run. What counts here is the rate, and the bound of what the
//! rate can still be after so many boots without a failure.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{print, println};

use crate::cases::{Case, Run, Subject, cases};
use crate::cli::Usage;
use crate::environment;
use crate::image::Profile;
use crate::lanes::Lane;
use crate::load::Load;
use crate::manifest::Manifest;
use crate::pool;
use crate::progress::Progress;
use crate::statistics::{Summary, rate_upper};
use crate::style::BAD;
use crate::test::image_with_manifest;

/// Which boot to repeat, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- soak                                      all self-tests in one boot with 4 harts, 100 times
  cargo run -- soak --boots 1000 --load 4 threads        the tests with `threads` in their name, on a busy host
  cargo run -- soak --boots 300 --crash panic --load 8   a crash, its report and its exit code
  cargo run -- soak --boots 300 --crash all --load 8     every crash in turn")]
pub struct Arguments {
    /// Only the self-tests with this text in their name, all of them in one boot
    pub filter: Option<String>,
    /// A deliberate crash instead of self-tests, or `all` of them in turn
    #[arg(long, value_name = "KIND", conflicts_with = "filter")]
    pub crash: Option<String>,
    /// How many boots
    #[arg(long, value_name = "N", default_value = "100")]
    pub boots: NonZero<u32>,
    /// How many boots at once [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub jobs: Option<NonZero<usize>>,
    /// How many busy threads compete with the boots for the host's processors
    #[arg(long, value_name = "L", default_value_t = 0)]
    pub load: usize,
    /// The lane: icount (1 hart, every run the same), tcg (1 hart), pair (2 harts), smp (4), eight (8), or turns (4 harts, every
    /// run the same)
    #[arg(long, value_name = "icount|tcg|smp|turns|pair|eight", default_value = "smp", value_parser = parse_lane)]
    pub lane: &'static Lane,
    /// Which build of the kernel
    #[arg(long, value_enum, default_value_t = Profile::Checked)]
    pub profile: Profile,
    /// Gives the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn parse_lane(name: &str) -> Result<&'static Lane, String> {
    Lane::named(name)
        .ok_or_else(|| "one of icount|tcg|smp|turns|pair|eight belongs here".to_owned())
}

/// Boots, and says how often it failed. The exit code is 1 if it ever did.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, or nothing has such a name.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let (image, manifest) = image_with_manifest(&environment, arguments.profile)?;
    let cases = select(&manifest, arguments)?;
    let name = match &cases[..] {
        [case] => case.name(),
        _ => format!("{}::crash::{ALL}", arguments.lane.name),
    };
    let directory = environment::target_dir().join("soak").join(name.replace("::", "."));
    clear(&directory)?;

    let jobs = arguments.jobs.unwrap_or_else(pool::default_jobs);
    let boots: Vec<u32> = (1..=arguments.boots.get()).collect();
    let mut progress = Progress::new(boots.len() as u64, "boots");
    let mut tally = Tally::default();
    {
        let _load = Load::start(arguments.load);
        pool::as_completed(
            jobs,
            &boots,
            |index, boot| -> anyhow::Result<(Run, Option<PathBuf>)> {
                let run = cases[index % cases.len()].run(&environment, &image)?;
                let log = if run.passed() {
                    None
                } else {
                    Some(run.save_as(&directory, &format!("boot-{boot:05}"))?)
                };
                Ok((run, log))
            },
            |index, (run, log)| {
                tally.add(boots[index], &run, log);
                progress.advance(&tally.counts());
            },
        )?;
    }
    drop(progress);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&tally.summary())?);
    } else {
        let (boots, jobs, load) = (boots.len(), jobs, arguments.load);
        println!("{name}: {boots} boots, {jobs} at once, {load} busy threads beside them");
        print!("{tally}");
        println!("again     {}", again(arguments));
    }
    Ok(ExitCode::from(u8::from(tally.failures() > 0)))
}

/// The command that does it again.
fn again(arguments: &Arguments) -> String {
    let mut command = format!("cargo run -- soak --boots {}", arguments.boots);
    if let Some(jobs) = arguments.jobs {
        command += &format!(" --jobs {jobs}");
    }
    if arguments.load > 0 {
        command += &format!(" --load {}", arguments.load);
    }
    command += &format!(" --lane {}", arguments.lane.name);
    if arguments.profile == Profile::Release {
        command += " --profile release";
    }
    if let Some(kind) = &arguments.crash {
        command += &format!(" --crash {kind}");
    }
    if let Some(filter) = &arguments.filter {
        command += &format!(" {filter}");
    }
    command
}

/// The value of `--crash` for all of them.
const ALL: &str = "all";

/// The case that is repeated, or those that take turns.
fn select(manifest: &Manifest, arguments: &Arguments) -> anyhow::Result<Vec<Case>> {
    let mut all = cases(manifest, arguments.lane, arguments.profile);
    let lane = arguments.lane.name;
    if let Some(kind) = &arguments.crash {
        let name = format!("crash::{kind}");
        all.retain(|case| case.subject.name() == name || (kind == ALL && case.ends_in_a_report()));
        if all.is_empty() {
            let known: Vec<_> = manifest.crashes.iter().map(|crash| &*crash.kind).collect();
            let known = known.join(", ");
            let what = format!("no crash `{kind}` in the lane {lane}; there are: {known}");
            return Err(Usage(what).into());
        }
        return Ok(all);
    }
    let suite =
        all.pop().ok_or_else(|| anyhow::anyhow!("the image holds no test for the lane {lane}"))?;
    let Some(filter) = &arguments.filter else {
        return Ok(vec![suite]);
    };
    let tests = all.into_iter().filter(|case| matches!(case.subject, Subject::Test { .. }));
    let matching: Vec<Case> =
        tests.filter(|case| case.subject.name().contains(filter.as_str())).collect();
    match matching.len() {
        0 => {
            let what = format!("no test has `{filter}` in its name in the lane {lane}");
            Err(Usage(what).into())
        }
        1 => Ok(matching),
        _ => Ok(vec![Case {
            subject: Subject::Suite {
                names: matching.iter().map(|case| case.subject.name()).collect(),
                all_but: None,
            },
            ..suite
        }]),
    }
}

/// Takes away the logs of an earlier run: what lies there afterwards belongs to this one.
fn clear(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What the boots gave so far.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    hangs: u64,
    exits: BTreeMap<String, u64>,
    /// By the number of the boot, so that the order is the same whichever ended first.
    failures: BTreeMap<u32, Failure>,
    fastest: Option<f64>,
    slowest: f64,
}

/// A boot that failed.
#[derive(Debug)]
struct Failure {
    why: String,
    log: PathBuf,
}

impl Tally {
    fn add(&mut self, boot: u32, run: &Run, log: Option<PathBuf>) {
        self.runs += 1;
        *self.exits.entry(run.exit()).or_default() += 1;
        let seconds = run.outcome.duration.as_secs_f64();
        self.fastest = Some(self.fastest.map_or(seconds, |fastest| fastest.min(seconds)));
        self.slowest = self.slowest.max(seconds);
        if let Some(log) = log {
            let verdict = &run.judgement.verdict;
            self.hangs += u64::from(*verdict == crate::verdict::Verdict::Hung);
            self.failures.insert(boot, Failure { why: verdict.to_string(), log });
        }
    }

    /// Boots that did not pass; those that hung are among them.
    fn failures(&self) -> u64 {
        self.failures.len() as u64
    }

    fn counts(&self) -> String {
        format!("{} failures, {} hangs", self.failures(), self.hangs)
    }

    fn summary(&self) -> Summary {
        Summary {
            runs: self.runs,
            failures: self.failures(),
            hangs: self.hangs,
            rate_upper_95: rate_upper(self.failures(), self.runs),
            logs: self.failures.values().map(|failure| failure.log.clone()).collect(),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (boot, Failure { why, log }) in &self.failures {
            writeln!(formatter, "boot {boot} {BAD}failed{BAD:#}: {why}\n  {}", log.display())?;
        }
        write!(formatter, "boots     {}\n{}", self.runs, self.summary())?;
        let exits = self.exits.iter().map(|(exit, count)| format!("{exit}: {count}"));
        writeln!(formatter, "exits     {}", exits.collect::<Vec<_>>().join(", "))?;
        let fastest = self.fastest.unwrap_or_default();
        writeln!(formatter, "a boot    {fastest:.2} to {:.2} s", self.slowest)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::qemu::{Exit, Outcome};
    use crate::verdict::judge;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(words: &[&str]) -> Arguments {
        CommandLine::parse_from([&["soak"], words].concat()).arguments
    }

    fn manifest() -> Manifest {
        Manifest::parse(
            b"test\ta::b\t1\t1\t-\tkernel/src/a.rs:1\n\
              test\ta::c\t1\t1\t-\tkernel/src/a.rs:2\n\
              test\ta::d\t1\t4\t-\tkernel/src/a.rs:3\n\
              crash\tpanic\t3\t1\t-\tkernel/src/c.rs:1\tpanicked\t-\n",
        )
        .unwrap()
    }

    fn append(words: &[&str]) -> String {
        let case = select(&manifest(), &arguments(words)).unwrap().remove(0);
        case.boot(Path::new("kernel")).append
    }

    fn tally(results: &[(u32, &str, Exit)]) -> Tally {
        let case = select(&manifest(), &arguments(&["a::b"])).unwrap().remove(0);
        let mut tally = Tally::default();
        for (boot, output, exit) in results {
            let outcome = Outcome {
                output: (*output).to_owned(),
                messages: String::new(),
                exit: exit.clone(),
                duration: std::time::Duration::from_millis(250),
            };
            let run = Run {
                boot: case.boot(Path::new("kernel")),
                judgement: judge(&outcome, &case.expectation()),
                case: case.clone(),
                outcome,
            };
            let log = (!run.passed()).then(|| format!("boot-{boot}").into());
            tally.add(*boot, &run, log);
        }
        tally
    }

    const OK: &str = "test a::b ... ok\nverdict: pass: 1 passed, 0 failed, 0 skipped\n";

    fn hang() -> Exit {
        Exit::TimedOut { diagnosis: String::new() }
    }

    #[test]
    fn all_crashes_take_turns() {
        let cases = select(&manifest(), &arguments(&["--crash", "all"])).unwrap();
        assert!(cases.len() > 1 && cases.iter().all(Case::ends_in_a_report), "{cases:?}");
    }

    #[test]
    fn one_boot_holds_all_tests_that_match() {
        assert_eq!(append(&[]), "test");
        assert_eq!(append(&["--lane", "tcg"]), "test");
        assert_eq!(append(&["a::"]), "test only=a::b,a::c,a::d");
        assert_eq!(append(&["b"]), "test only=a::b");
        assert_eq!(append(&["--crash", "panic"]), "crash=panic report=json");
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_what_is() {
        let error =
            |words: &[&str]| select(&manifest(), &arguments(words)).unwrap_err().to_string();
        assert_eq!(error(&["--crash", "no"]), "no crash `no` in the lane smp; there are: panic");
        assert_eq!(error(&["no"]), "no test has `no` in its name in the lane smp");
    }

    #[test]
    fn hangs_are_failures_too_and_counted_apart() {
        let tally = tally(&[(1, OK, Exit::Code(0)), (2, "", hang()), (3, OK, Exit::Code(3))]);
        let summary = tally.summary();
        assert_eq!((summary.runs, summary.failures, summary.hangs), (3, 2, 1));
        assert!((summary.rate_upper_95 - rate_upper(2, 3)).abs() < 1e-12);
    }

    #[test]
    fn logs_come_in_the_order_of_the_boots() {
        let tally = tally(&[(9, "", Exit::Code(0)), (2, "", hang()), (5, "", Exit::Code(0))]);
        assert_eq!(
            tally.summary().logs,
            [Path::new("boot-2"), Path::new("boot-5"), Path::new("boot-9")]
        );
    }

    #[test]
    fn the_exits_are_a_histogram() {
        let tally = tally(&[
            (1, OK, Exit::Code(0)),
            (2, OK, Exit::Code(0)),
            (3, OK, Exit::Code(3)),
            (4, "", hang()),
        ]);
        let text = tally.to_string();
        assert!(text.contains("exits     code 0: 2, code 3: 1, hung: 1\n"), "{text}");
    }

    #[test]
    fn the_bound_is_shown_even_without_a_failure() {
        let text = tally(&[(1, OK, Exit::Code(0))]).to_string();
        assert!(text.contains("rate      below 95.000 % (upper bound at 95 %)"), "{text}");
    }

    #[test]
    fn json_has_the_documented_fields() {
        let json = serde_json::to_value(tally(&[(1, OK, Exit::Code(0))]).summary()).unwrap();
        let fields: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["failures", "hangs", "logs", "rate_upper_95", "runs"]);
    }

    #[test]
    fn the_command_to_do_it_again_has_every_option() {
        let words = [
            "--boots",
            "7",
            "--jobs",
            "2",
            "--load",
            "3",
            "--lane",
            "tcg",
            "--profile",
            "release",
            "a::b",
        ];
        let again = again(&arguments(&words));
        assert_eq!(again, format!("cargo run -- soak {}", words.join(" ")));
        assert!(CommandLine::try_parse_from(again.split(' ').skip(3)).is_ok());
    }

    #[test]
    fn clearing_what_is_not_there_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("logs");
        clear(&logs).unwrap();
        std::fs::create_dir(&logs).unwrap();
        std::fs::write(logs.join("boot-1.log"), "").unwrap();
        clear(&logs).unwrap();
        assert!(!logs.exists());
    }
}
