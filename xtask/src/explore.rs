//! `explore`: the same test under many schedules, each from a seed; and one of them again.
//!
//! A boot runs a test with a row of seeds, one after the other, and ends with the first that fails. That seed is then tried alone, in a
//! fresh boot; where only those before it bring the failure about, the command that is printed has them, too.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anstream::{print, println};

use crate::cases::{Case, Run, Subject};
use crate::cli::Usage;
use crate::environment::{self, Environment};
use crate::image::{Image, Profile};
use crate::lanes::Lane;
use crate::manifest::{Manifest, Test};
use crate::pool;
use crate::progress::Progress;
use crate::qemu::Boot;
use crate::statistics::{Summary, rate_upper};
use crate::style::{BAD, GOOD};
use crate::test::image_with_manifest;
use crate::verdict::{TestResult, Verdict};

/// Seeds that one boot tries.
const SEEDS_A_BOOT: u64 = 20;

/// Failures of a test that are shown in full.
const SHOWN_OF_A_TEST: usize = 3;

/// Which schedules to try.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- explore --seeds 1..201 sleeping::a_condition_loses_no_wakeup    200 schedules of one test
  cargo run -- explore --seeds 1..10001                                        10,000, shared by all tests
  cargo run -- explore --lane turns --replay 17 threads::joins_across          one of them again, on 4 harts
  cargo run -- explore --places locks                                          where threads were made to give way")]
pub struct Arguments {
    /// Only the self-tests with this text in their name. Several take turns, one boot each
    pub filter: Option<String>,
    /// The seeds, the last of them left out
    #[arg(long, value_name = "A..B", default_value = "1..201")]
    pub seeds: Seeds,
    /// Runs one seed of one test again, shows all that the kernel says, and looks for the fewest switches that it needs to fail
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    pub replay: Option<NonZero<u64>>,
    /// The lane: icount (1 hart) or turns (4 harts); in both every run is the same
    #[arg(long, value_name = "icount|turns", default_value = "icount", value_parser = parse_lane)]
    pub lane: &'static Lane,
    /// How many boots at once [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub jobs: Option<NonZero<usize>>,
    /// Shows where in the kernel threads came to points of the schedule, and how often they gave way there
    #[arg(long, conflicts_with = "replay")]
    pub places: bool,
    /// Gives the result as one JSON object
    #[arg(long, conflicts_with = "replay")]
    pub json: bool,
}

/// A range of seeds, from the command line: neither empty nor with 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds(pub Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bounds = text
            .split_once("..")
            .and_then(|(start, end)| Some(start.parse::<u64>().ok()?..end.parse::<u64>().ok()?));
        match bounds {
            Some(range) if range.start > 0 && !range.is_empty() => Ok(Seeds(range)),
            _ => Err("it is A..B, with 0 < A < B".to_owned()),
        }
    }
}

fn parse_lane(name: &str) -> Result<&'static Lane, String> {
    Lane::named(name)
        .filter(|lane| lane.icount)
        .ok_or_else(|| "icount or turns belongs here: elsewhere no run is the same".to_owned())
}

/// Tries the schedules. The exit code is 1 if one of them fails.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, or no test has such a name.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let (image, manifest) = image_with_manifest(&environment, Profile::Checked)?;
    let explorer = Explorer {
        environment: &environment,
        image: &image,
        lane: arguments.lane,
        timeout: Boot::TIMEOUT,
    };
    let tests = select(&manifest, arguments)?;
    if let Some(seed) = arguments.replay {
        return replay(&explorer, &tests, seed.get());
    }
    let rows = rows(&tests, &arguments.seeds.0);
    let directory = environment::target_dir().join("explore");
    let jobs = arguments.jobs.unwrap_or_else(pool::default_jobs);
    let all = arguments.seeds.0.end - arguments.seeds.0.start;
    let mut progress = Progress::new(all, "seeds");
    let mut tally = Tally::default();
    let started = std::time::Instant::now();
    pool::as_completed(
        jobs,
        &rows,
        |_, (test, seeds)| explorer.explore(test, seeds, arguments.places, &directory),
        |index, row| {
            tally.add(row);
            let (_, seeds) = &rows[index];
            for _ in seeds.clone() {
                progress.advance(&format!("{} failures", tally.failures.len()));
            }
        },
    )?;
    let seconds = started.elapsed().as_secs_f64();
    drop(progress);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&tally.summary())?);
    } else {
        let tests = tests.len();
        println!("{}: {all} seeds of {tests} tests, in {seconds:.0} s", arguments.lane.name);
        print!("{tally}");
    }
    Ok(ExitCode::from(u8::from(!tally.failures.is_empty())))
}

fn select<'a>(manifest: &'a Manifest, arguments: &Arguments) -> anyhow::Result<Vec<&'a Test>> {
    let lane = arguments.lane;
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let can = |test: &&Test| {
        let flags = &test.entry.flags;
        // What is wrong on purpose is explored when it is meant.
        let is_meant = !flags.example || filter.contains("example");
        lane.fits(&test.entry) && !flags.unexplored && !flags.icount && is_meant
    };
    let mut tests: Vec<&Test> =
        manifest.tests.iter().filter(can).filter(|test| test.name.contains(filter)).collect();
    if let Some(exact) = tests.iter().position(|test| test.name == filter) {
        tests = vec![tests[exact]];
    }
    match (tests.len(), arguments.replay) {
        (0, _) => {
            let what = format!(
                "no test with `{filter}` in its name can be explored in the lane {}",
                lane.name
            );
            Err(Usage(what).into())
        }
        (2.., Some(_)) => {
            let what =
                format!("{} tests have `{filter}` in their name; a replay is of one", tests.len());
            Err(Usage(what).into())
        }
        _ => Ok(tests),
    }
}

/// The seeds in rows, each for one boot of one test; the tests take turns.
fn rows<'a>(tests: &[&'a Test], seeds: &Range<u64>) -> Vec<(&'a Test, Range<u64>)> {
    let starts = seeds.clone().step_by(SEEDS_A_BOOT as usize);
    let rows = starts.map(|start| start..seeds.end.min(start + SEEDS_A_BOOT));
    rows.zip(tests.iter().cycle()).map(|(row, test)| (*test, row)).collect()
}

/// Runs tests with seeds, in boots of an image.
#[derive(Debug)]
pub struct Explorer<'a> {
    /// What boots are made with.
    pub environment: &'a Environment,
    /// The kernel.
    pub image: &'a Image,
    /// Where.
    pub lane: &'static Lane,
    /// After how long without an end a boot counts as hung.
    pub timeout: Duration,
}

/// What became of a row of seeds.
#[derive(Debug, Default)]
struct Row {
    runs: u64,
    failures: Vec<Failure>,
    places: Vec<Place>,
}

/// A seed that failed.
#[derive(Debug)]
struct Failure {
    test: String,
    seed: u64,
    hang: bool,
    why: String,
    /// The command that brings the failure about again.
    again: String,
    log: PathBuf,
}

/// A place in the kernel where the schedule may change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    name: String,
    visits: u64,
    taken: u64,
}

impl Place {
    /// Reads a line `place VISITS TAKEN ADDRESS NAME`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("place ")?.splitn(4, ' ');
        let visits = words.next()?.parse().ok()?;
        let taken = words.next()?.parse().ok()?;
        words.next()?;
        Some(Self { name: words.next()?.to_owned(), visits, taken })
    }
}

impl Explorer<'_> {
    /// A boot that runs a test with these seeds, with more words on the kernel's command line.
    fn boot(&self, test: &Test, seeds: &Range<u64>, more: &str) -> anyhow::Result<Run> {
        let subject = Subject::Seeds {
            name: test.name.clone(),
            place: test.entry.place.clone(),
            seeds: seeds.clone(),
            more: more.to_owned(),
        };
        let case = Case { lane: self.lane, profile: Profile::Checked, subject };
        let boot = Boot { timeout: self.timeout, ..case.boot(&self.image.elf) };
        case.run_boot(self.environment, boot)
    }

    /// The first of these seeds that fails in one boot, and how.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn first_failure(
        &self,
        test: &Test,
        seeds: &Range<u64>,
    ) -> anyhow::Result<Option<(u64, Run)>> {
        let mut start = seeds.start;
        while start < seeds.end {
            let row = start..seeds.end.min(start + SEEDS_A_BOOT);
            let run = self.boot(test, &row, "")?;
            if let Some(seed) = failing_seed(&run, test, &row) {
                return Ok(Some((seed, run)));
            }
            start = row.end;
        }
        Ok(None)
    }

    /// Tries a row of seeds to its end, however many fail.
    fn explore(
        &self,
        test: &Test,
        seeds: &Range<u64>,
        places: bool,
        logs: &Path,
    ) -> anyhow::Result<Row> {
        let mut row = Row::default();
        let mut rest = seeds.clone();
        while !rest.is_empty() {
            let run = self.boot(test, &rest, if places { " places" } else { "" })?;
            row.places.extend(run.outcome.output.lines().filter_map(Place::parse));
            let Some(seed) = failing_seed(&run, test, &rest) else {
                row.runs += rest.end - rest.start;
                break;
            };
            row.runs += seed + 1 - rest.start;
            let alone = self.boot(test, &(seed..seed + 1), "")?;
            let run = if alone.passed() { run } else { alone };
            let command = match &run.case.subject {
                Subject::Seeds { seeds, .. } if seeds.start < seed => Case {
                    subject: Subject::Seeds {
                        name: test.name.clone(),
                        place: test.entry.place.clone(),
                        seeds: seeds.start..seed + 1,
                        more: String::new(),
                    },
                    ..run.case.clone()
                }
                .command(),
                _ => run.case.command(),
            };
            row.failures.push(Failure {
                test: test.name.clone(),
                seed,
                hang: run.judgement.verdict == Verdict::Hung,
                why: run.judgement.verdict.to_string(),
                again: command,
                log: run.save_as(logs, &format!("{}@{seed}", test.name.replace("::", ".")))?,
            });
            rest.start = seed + 1;
        }
        Ok(row)
    }
}

/// The first seed that a boot does not report as passed.
fn failing_seed(run: &Run, test: &Test, seeds: &Range<u64>) -> Option<u64> {
    if run.passed() {
        return None;
    }
    let passed = |seed: &u64| {
        let name = format!("{}@{seed}", test.name);
        run.judgement
            .tests
            .iter()
            .any(|(found, result)| *found == name && *result == TestResult::Ok)
    };
    // A boot in which all seeds passed can still have ended badly: the last was part of that.
    Some(seeds.clone().find(|seed| !passed(seed)).unwrap_or(seeds.end - 1))
}

/// Runs one seed again and shows it.
fn replay(explorer: &Explorer<'_>, tests: &[&Test], seed: u64) -> anyhow::Result<ExitCode> {
    let test = tests[0];
    let seeds = seed..seed + 1;
    let run = explorer.boot(test, &seeds, "")?;
    print!("{}", run.output());
    let (verdict, command) = (&run.judgement.verdict, run.case.command());
    if run.passed() {
        println!("\n{GOOD}passed{GOOD:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\n{BAD}failed{BAD:#}    {verdict}");
    if let Some(fewest) = fewest_switches(explorer, test, &run)? {
        println!("fewest    {fewest}");
    }
    println!("again     {command}");
    Ok(ExitCode::from(verdict.exit_code()))
}

/// How few of the switches that a seed forced are enough for it to fail, and where the last of them is.
fn fewest_switches(
    explorer: &Explorer<'_>,
    test: &Test,
    run: &Run,
) -> anyhow::Result<Option<String>> {
    let Subject::Seeds { seeds, .. } = &run.case.subject else { return Ok(None) };
    let Some((all, _)) = forced(run) else { return Ok(None) };
    // So many are known to be enough, so many not to be.
    let (mut enough, mut too_few) = (all, None::<u64>);
    let mut last = None;
    while enough > too_few.map_or(0, |too_few| too_few + 1) {
        let middle = too_few.map_or(0, |too_few| too_few + (enough - too_few) / 2);
        let run = explorer.boot(test, seeds, &format!(" switches={middle}"))?;
        if run.passed() {
            too_few = Some(middle);
        } else {
            enough = middle;
            last = forced(&run).map(|(_, place)| place);
        }
    }
    let place = last.filter(|place| !place.is_empty() && enough > 0);
    let place = place.map(|place| format!(", {place}")).unwrap_or_default();
    Ok(Some(format!("the first {enough} of its {all} forced switches are enough{place}")))
}

/// How many switches a boot says that its last seed forced, and where the last was.
fn forced(run: &Run) -> Option<(u64, String)> {
    let line = run.outcome.output.lines().rfind(|line| line.starts_with("explored: seed "))?;
    let (_, rest) = line.split_once(", ")?;
    let (count, rest) = rest.split_once(" forced switches")?;
    Some((count.parse().ok()?, rest.trim_start_matches(", ").trim_end().to_owned()))
}

/// What all seeds gave.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// By test and seed, so that the order is the same whichever ended first.
    failures: BTreeMap<(String, u64), Failure>,
    /// Visits and forced switches, by the name of the place.
    places: BTreeMap<String, (u64, u64)>,
}

impl Tally {
    fn add(&mut self, row: Row) {
        self.runs += row.runs;
        for failure in row.failures {
            self.failures.insert((failure.test.clone(), failure.seed), failure);
        }
        for place in row.places {
            let (visits, taken) = self.places.entry(place.name).or_default();
            *visits += place.visits;
            *taken += place.taken;
        }
    }

    fn hangs(&self) -> u64 {
        self.failures.values().filter(|failure| failure.hang).count() as u64
    }

    fn summary(&self) -> Summary {
        let failures = self.failures.len() as u64;
        Summary {
            runs: self.runs,
            failures,
            hangs: self.hangs(),
            rate_upper_95: rate_upper(failures, self.runs),
            logs: self.failures.values().map(|failure| failure.log.clone()).collect(),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = (None, 0);
        for Failure { test, seed, why, again, log, .. } in self.failures.values() {
            shown = if shown.0 == Some(test) { (shown.0, shown.1 + 1) } else { (Some(test), 1) };
            if shown.1 <= SHOWN_OF_A_TEST {
                writeln!(formatter, "{test}, seed {seed} {BAD}failed{BAD:#}: {why}")?;
                writeln!(formatter, "  again   {again}\n  log     {}", log.display())?;
            } else {
                writeln!(formatter, "{test}, seed {seed} {BAD}failed{BAD:#}, too")?;
            }
        }
        write!(formatter, "seeds     {}\n{}", self.runs, self.summary())?;
        if !self.places.is_empty() {
            writeln!(formatter, "\n     visits   gave way  place")?;
            let mut places: Vec<_> = self.places.iter().collect();
            places.sort_by_key(|(_, (visits, _))| std::cmp::Reverse(*visits));
            for (name, (visits, taken)) in places {
                writeln!(formatter, "{visits:>11} {taken:>10}  {name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range() {
        assert_eq!("1..201".parse(), Ok(Seeds(1..201)));
        for text in ["", "1", "0..3", "3..3", "4..3", "a..b", "1..-1"] {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_seed_is_in_one_row_and_tests_take_turns() {
        let manifest = Manifest::parse(
            b"test\ta::b\t1\t1\t-\tkernel/src/a.rs:1\ntest\ta::c\t1\t1\t-\tkernel/src/a.rs:2\n",
        )
        .unwrap();
        let tests: Vec<&Test> = manifest.tests.iter().collect();
        let rows = rows(&tests, &(5..51));
        let found: Vec<_> = rows.iter().map(|(test, row)| (&*test.name, row.clone())).collect();
        assert_eq!(found, [("a::b", 5..25), ("a::c", 25..45), ("a::b", 45..51)]);
    }

    #[test]
    fn a_place_is_read_with_its_counts() {
        let line = "place 13 2 0xffffffff8021e8dc kernel::vm::map+0x8b4";
        let place = Place { name: "kernel::vm::map+0x8b4".to_owned(), visits: 13, taken: 2 };
        assert_eq!(Place::parse(line), Some(place));
        assert_eq!(Place::parse("place 13 2"), None);
    }
}
