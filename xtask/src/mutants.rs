//! `mutants`: breaks the kernel on purpose, one small patch at a time, and shows which test notices.
//!
//! A check that cannot fail is worth nothing. Each claim has at least one [`Mutant`] that breaks it, with the test that
//! must notice. A kill counts only if the same test passes without the patch, and if the patch changes the image at all.

use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anstream::println;
use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::cases::{Case, Run, Subject, cases};
use crate::cli::Usage;
use crate::environment::{self, Environment};
use crate::explore::Explorer;
use crate::image::{self, Image, Profile};
use crate::lanes::{self, Lane, Selection};
use crate::load::Load;
use crate::manifest::Manifest;
use crate::pool;
use crate::progress::Progress;
use crate::qemu::Boot;
use crate::style::{BAD, GOOD, MUTED, NOTABLE};
use crate::verdict::Verdict;

pub mod patch;
pub mod tree;

pub use patch::{Killer, Mutant, Sort};
use tree::{Sources, Workshop};

/// After how long a boot of a broken kernel counts as hung. Shorter than elsewhere: hangs are common among them, and a
/// kill by a hang is marked as one.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The lane in which races are explored.
const EXPLORED_IN: &str = "turns";
/// After how long an explored boot counts as hung: the kernel itself ends a test much earlier.
const EXPLORED_FOR: Duration = Duration::from_secs(120);
/// Where the ranges of seeds begin that are explored with a race, and how many each has.
const RANGES: [u64; 3] = [1, 1001, 2001];
const SEEDS: u64 = 200;
/// Boots of several harts at the most of a race that something else must notice.
const PARALLEL_BOOTS: u32 = 20;

/// Which mutants to try, and how hard.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- mutants                         every mutant
  cargo run -- mutants double_free --boots 500 those with `double_free` in their name
  cargo run -- mutants --lane smp --load 8     those that 4 harts must notice, on a busy host")]
pub struct Arguments {
    /// Only the mutants with this text in their name
    pub name: Option<String>,
    /// Only the mutants that these lanes must notice, and only there
    #[arg(long, value_name = lanes::VALUES)]
    pub lane: Option<Selection>,
    /// How often a race may be booted until it must have been noticed
    #[arg(long, value_name = "N", default_value = "200")]
    pub boots: NonZero<u32>,
    /// How many busy threads compete with the boots of a race
    #[arg(long, value_name = "L", default_value_t = 4)]
    pub load: usize,
    /// How many mutants at once [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub jobs: Option<NonZero<usize>>,
    /// Writes results/mutants.json, which CLAIMS.md shows
    #[arg(long)]
    pub save: bool,
    /// Gives the results as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Tries the mutants. The exit code is 1 unless each was killed.
///
/// # Errors
/// When the machine lacks something, a patch's header is malformed, or none has such a name.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let mutants = select(read_all()?, arguments)?;
    let jobs = arguments.jobs.unwrap_or_else(pool::default_jobs);
    let laboratory = Laboratory {
        boots: arguments.boots.get(),
        load: arguments.load,
        jobs,
        ..Laboratory::open(environment.clone())?
    };
    let mut progress = Progress::new(mutants.len() as u64, "mutants").without_plain_lines();
    let mut findings = Vec::new();
    pool::in_order(
        jobs,
        &mutants,
        |_, mutant| laboratory.examine(mutant),
        |_, finding| {
            if !arguments.json {
                progress.suspend(|| println!("{finding}"));
            }
            findings.push(finding);
            progress.advance("");
        },
    )?;
    drop(progress);
    let killed = findings.iter().filter(|finding| finding.killed()).count();
    let table = Table { mutants: findings.iter().map(Row::from).collect() };
    if arguments.save {
        let names: Vec<String> = read_all()?.into_iter().map(|mutant| mutant.name).collect();
        save(&environment, table.clone(), &names)?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        println!("\n{killed} killed, {} not", findings.len() - killed);
    }
    Ok(ExitCode::from(u8::from(killed < findings.len())))
}

/// Where the patches lie.
pub fn directory() -> PathBuf {
    environment::workspace().join("mutants")
}

/// Reads every mutant of the workspace, sorted by name.
///
/// # Errors
/// When a patch's header cannot be used.
pub fn read_all() -> anyhow::Result<Vec<Mutant>> {
    patch::read_all(&directory())
}

fn select(mut mutants: Vec<Mutant>, arguments: &Arguments) -> anyhow::Result<Vec<Mutant>> {
    if let Some(name) = &arguments.name {
        mutants.retain(|mutant| mutant.name.contains(name.as_str()));
    }
    if let Some(Selection(asked)) = &arguments.lane {
        for mutant in &mut mutants {
            mutant.lanes.retain(|lane| asked.contains(lane));
        }
        mutants.retain(|mutant| !mutant.lanes.is_empty());
    }
    if mutants.is_empty() {
        return Err(Usage("no mutant has such a name in such a lane".to_owned()).into());
    }
    Ok(mutants)
}

/// Where mutants are built and tried.
#[derive(Debug)]
pub struct Laboratory {
    environment: Environment,
    sources: Sources,
    directory: PathBuf,
    /// How many mutants are examined at once, by all processes together.
    pub jobs: NonZero<usize>,
    /// How often a race is booted at the most.
    pub boots: u32,
    /// How many busy threads compete with the boots of a race.
    pub load: usize,
}

impl Laboratory {
    /// A laboratory for the workspace as it lies there now.
    ///
    /// # Errors
    /// When the sources cannot be read.
    pub fn open(environment: Environment) -> anyhow::Result<Self> {
        Ok(Self {
            environment,
            sources: Sources::read(&environment::workspace())?,
            directory: environment::target_dir().join("mutants"),
            jobs: pool::default_jobs(),
            boots: 200,
            load: 4,
        })
    }

    /// Builds a mutant and runs what must kill it.
    ///
    /// # Errors
    /// When something fails that says nothing about the mutant.
    pub fn examine(&self, mutant: &Mutant) -> anyhow::Result<Finding> {
        let workshop = Workshop::take(&self.directory, self.jobs.get())?;
        workshop.restore(&self.sources)?;
        if mutant.explored.is_some() {
            // Before the patch is there.
            self.clean_image(&workshop)?;
        }
        let fate = match &mutant.killer {
            Killer::Test(name) => self.boot(&workshop, mutant, name),
            Killer::Crash(kind) => self.boot(&workshop, mutant, &format!("crash::{kind}")),
            Killer::Build(text) => self.build(&workshop, mutant, text),
            Killer::Host { package, target, test } => {
                self.host(&workshop, mutant, package, target.as_deref(), test)
            }
        };
        let fate = fate.with_context(|| format!("mutant {}", mutant.name))?;
        let exploration = match (&mutant.explored, &fate) {
            (Some(test), Fate::Killed(_) | Fate::Survived(_)) => {
                Some(self.explore(&workshop, mutant, test)?)
            }
            _ => None,
        };
        Ok(Finding { mutant: mutant.clone(), fate, exploration })
    }

    /// Looks how soon a test notices a mutant whose patch the workshop has: by seeds, and where its killer boots nothing, by boots of
    /// several harts.
    fn explore(
        &self,
        workshop: &Workshop,
        mutant: &Mutant,
        name: &str,
    ) -> anyhow::Result<Exploration> {
        let clean = self.clean_image(workshop)?;
        let manifest = Manifest::read(&clean.elf)?;
        let test = manifest.tests.iter().find(|test| test.name == name);
        let test = test.with_context(|| format!("mutant {}: no test {name}", mutant.name))?;
        let image = image::build(&self.environment, &self.options(workshop))?;
        let lane = Lane::named(EXPLORED_IN).expect("it is a lane");
        let explorer =
            |image| Explorer { environment: &self.environment, image, lane, timeout: EXPLORED_FOR };
        let mut seeds = Vec::new();
        for start in RANGES {
            // Where a whole range shows nothing, the others need not be waited for.
            if seeds.contains(&None) {
                seeds.push(None);
                continue;
            }
            let noticed = explorer(&image).first_failure(test, &(start..start + SEEDS))?;
            if let Some((seed, _)) = &noticed
                && let Some((seed, run)) =
                    explorer(&clean).first_failure(test, &(start..seed + 1))?
            {
                let verdict = run.judgement.verdict;
                anyhow::bail!("{name} fails without the mutant, with seed {seed}: {verdict}");
            }
            seeds.push(noticed.map(|(seed, _)| seed - start + 1));
        }
        let parallel_boots = match mutant.killer {
            Killer::Host { .. } => {
                let lane = Lane::named("smp").expect("it is a lane");
                let mut all = cases(&manifest, lane, Profile::Checked);
                all.retain(|case| case.subject.name() == name);
                let case = all.first().with_context(|| format!("no {}::{name}", lane.name))?;
                let _load = Load::start(self.load);
                let limit = self.boots.min(PARALLEL_BOOTS);
                self.until_noticed(case, &image, limit)?.map(|sighting| sighting.boots)
            }
            _ => None,
        };
        Ok(Exploration { test: name.to_owned(), seeds, parallel_boots })
    }

    fn boot(&self, workshop: &Workshop, mutant: &Mutant, subject: &str) -> anyhow::Result<Fate> {
        let clean = self.clean_image(workshop)?;
        let manifest = Manifest::read(&clean.elf)?;
        let mut chosen = Vec::new();
        for lane in &mutant.lanes {
            let mut all = cases(&manifest, lane, Profile::Checked);
            all.retain(|case| case.subject.name() == subject);
            match all.pop() {
                Some(case) => chosen.push(case),
                None => {
                    return Ok(Fate::NoTest(format!("there is no {}::{subject}", lane.name)));
                }
            }
        }
        for case in &chosen {
            if let Some(fate) = self.clean_fails(case, &clean, 1)? {
                return Ok(fate);
            }
        }
        if let Err(message) = workshop.apply(&mutant.patch)? {
            return Ok(Fate::NotApplied(message));
        }
        let image = match image::build(&self.environment, &self.options(workshop)) {
            Ok(image) => image,
            Err(error) => return Ok(Fate::NotBuilt(error.to_string())),
        };
        if std::fs::read(&image.elf)? == std::fs::read(&clean.elf)? {
            return Ok(Fate::Unchanged);
        }
        let mut sightings = Vec::new();
        for case in &chosen {
            let limit = match mutant.sort {
                Sort::Race if !case.lane.icount => self.boots,
                // Every boot of the deterministic lane is the same run.
                Sort::Race | Sort::Plain => 1,
            };
            let _load = (limit > 1).then(|| Load::start(self.load));
            let Some(sighting) = self.until_noticed(case, &image, limit)? else {
                return Ok(Fate::Survived(format!(
                    "{} boots in the lane {}",
                    limit, case.lane.name
                )));
            };
            // The same number of boots without the patch, under the same load: else it is the test that fails at times.
            if sighting.boots > 1
                && let Some(fate) = self.clean_fails(case, &clean, sighting.boots)?
            {
                return Ok(fate);
            }
            sightings.push(sighting);
        }
        Ok(Fate::Killed(sightings))
    }

    fn until_noticed(
        &self,
        case: &Case,
        image: &Image,
        limit: u32,
    ) -> anyhow::Result<Option<Sighting>> {
        for boots in 1..=limit {
            let run = self.run_once(case, image)?;
            if !run.passed() {
                return Ok(Some(Sighting {
                    lane: Some(case.lane),
                    boots,
                    hang: run.judgement.verdict == Verdict::Hung,
                    why: run.judgement.verdict.to_string(),
                }));
            }
        }
        Ok(None)
    }

    fn clean_fails(&self, case: &Case, clean: &Image, boots: u32) -> anyhow::Result<Option<Fate>> {
        for _ in 0..boots {
            let run = self.run_once(case, clean)?;
            if !run.passed() {
                let why = format!("{}: {}", case.name(), run.judgement.verdict);
                return Ok(Some(Fate::CleanFails(why)));
            }
        }
        Ok(None)
    }

    fn run_once(&self, case: &Case, image: &Image) -> anyhow::Result<Run> {
        let timeout = match &case.subject {
            // The whole suite, on machines that may be slow.
            Subject::Machine { .. } => Boot::TIMEOUT,
            _ => TIMEOUT,
        };
        let boot = Boot { timeout, ..case.boot(&image.elf) };
        case.run_boot(&self.environment, boot)
    }

    fn build(&self, workshop: &Workshop, mutant: &Mutant, text: &str) -> anyhow::Result<Fate> {
        // A tree that does not build without the patch would make every patch look noticed.
        self.clean_image(workshop)?;
        if let Err(message) = workshop.apply(&mutant.patch)? {
            return Ok(Fate::NotApplied(message));
        }
        Ok(match image::build(&self.environment, &self.options(workshop)) {
            Ok(_) => Fate::Survived("the build".to_owned()),
            Err(error) => {
                let message = error.to_string();
                match message.lines().find(|line| line.contains(text)) {
                    Some(line) => Fate::Killed(vec![Sighting {
                        lane: None,
                        boots: 0,
                        hang: false,
                        why: line.trim().to_owned(),
                    }]),
                    None => Fate::NotBuilt(message),
                }
            }
        })
    }

    fn host(
        &self,
        workshop: &Workshop,
        mutant: &Mutant,
        package: &str,
        target: Option<&str>,
        test: &str,
    ) -> anyhow::Result<Fate> {
        let cargo_test = |options: &[&str]| {
            let mut command = Command::new(&self.environment.cargo);
            image::forget_cargo_settings(&mut command);
            command
                .current_dir(workshop.tree())
                .args(["test", "--package", package, "--target-dir"])
                .arg(workshop.host_target());
            match target {
                Some(target) => command.args(["--test", target]),
                None => command.arg("--lib"),
            };
            command.args(options);
            command.output().map(HostRun::from)
        };
        let run = ["--", "--exact", test];
        let clean = cargo_test(&run)?;
        if !clean.succeeded || clean.passed != 1 {
            return Ok(Fate::CleanFails(format!(
                "{} of 1 host tests passed\n{}",
                clean.passed, clean.output
            )));
        }
        if let Err(message) = workshop.apply(&mutant.patch)? {
            return Ok(Fate::NotApplied(message));
        }
        let built = cargo_test(&["--no-run"])?;
        if !built.succeeded {
            return Ok(Fate::NotBuilt(built.output));
        }
        let mutated = cargo_test(&run)?;
        Ok(match mutated.failure {
            Some(why) if !mutated.succeeded => {
                Fate::Killed(vec![Sighting { lane: None, boots: 0, hang: false, why }])
            }
            _ if mutated.succeeded => Fate::Survived("its host test".to_owned()),
            _ => Fate::NotBuilt(mutated.output),
        })
    }

    /// The image of the workshop's tree without a patch, built once for each state of the sources.
    fn clean_image(&self, workshop: &Workshop) -> anyhow::Result<Image> {
        let kept = workshop.clean_image();
        let stamp = kept.with_extension("stamp");
        let compiler = &self.environment.compiler.description;
        let wanted = format!("{:016x} {compiler}\n", self.sources.digest());
        if !kept.exists() || std::fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
            let image = image::build(&self.environment, &self.options(workshop))
                .context("the kernel cannot be built without a mutant")?;
            std::fs::copy(&image.elf, &kept)?;
            std::fs::write(&stamp, wanted)?;
        }
        Ok(Image { elf: kept, profile: Profile::Checked })
    }

    fn options(&self, workshop: &Workshop) -> image::Options {
        image::Options {
            source: workshop.tree(),
            target_dir: workshop.kernel_target(),
            quiet: true,
            in_pieces: true,
            ..image::Options::new(Profile::Checked)
        }
    }
}

/// What `cargo test` of one host test gave.
struct HostRun {
    succeeded: bool,
    /// How many tests passed, over all test binaries.
    passed: usize,
    /// The first line of what the failing test said, if one ran and failed.
    failure: Option<String>,
    output: String,
}

impl From<std::process::Output> for HostRun {
    fn from(output: std::process::Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Self {
            succeeded: output.status.success(),
            passed: passed_tests(&text),
            failure: failure_message(&text),
            output: text,
        }
    }
}

/// Adds up the lines `test result: ok. N passed; ...`.
fn passed_tests(output: &str) -> usize {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "))
        .filter_map(|line| {
            let (_, counts) = line.split_once(". ")?;
            counts.split_once(" passed")?.0.parse::<usize>().ok()
        })
        .sum()
}

/// The message of the first panic of a test that failed.
fn failure_message(output: &str) -> Option<String> {
    let failed =
        output.lines().any(|line| line.starts_with("test ") && line.ends_with("... FAILED"));
    let message = output
        .lines()
        .skip_while(|line| !line.contains("panicked at"))
        .nth(1)
        .unwrap_or("it failed");
    failed.then(|| message.to_owned())
}

/// What became of a mutant.
#[derive(Debug)]
pub struct Finding {
    /// The mutant.
    pub mutant: Mutant,
    /// What became of it.
    pub fate: Fate,
    /// Of a race: how soon other schedules showed it.
    pub exploration: Option<Exploration>,
}

/// How soon a race was noticed when schedules were explored.
#[derive(Debug)]
pub struct Exploration {
    /// By which self-test.
    test: String,
    /// After how many seeds of each range; none if all of them passed.
    seeds: Vec<Option<u64>>,
    /// After how many boots of several harts; none if all of them passed, or if such boots are what must notice it.
    parallel_boots: Option<u32>,
}

impl Exploration {
    /// The median over the ranges: none where most of them passed.
    fn median(&self) -> Option<u64> {
        let mut seeds = self.seeds.clone();
        seeds.sort_by_key(|seeds| seeds.unwrap_or(u64::MAX));
        seeds[seeds.len() / 2]
    }
}

impl fmt::Display for Exploration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |seeds: &Option<u64>| match seeds {
            Some(seeds) => seeds.to_string(),
            None => format!("more than {SEEDS}"),
        };
        let seeds: Vec<String> = self.seeds.iter().map(shown).collect();
        write!(formatter, "explored, seeds until {} noticed: {}", self.test, seeds.join(", "))?;
        match self.parallel_boots {
            Some(boots) => write!(formatter, "; parallel boots: {boots}"),
            None => Ok(()),
        }
    }
}

/// What can become of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its test noticed it in each of its lanes.
    Killed(Vec<Sighting>),
    /// Nobody noticed it, after this.
    Survived(String),
    /// Its patch no longer fits the sources; what git says.
    NotApplied(String),
    /// The broken kernel does not compile, or a proof in the build refuses it and should not.
    NotBuilt(String),
    /// The image is the same with and without it.
    Unchanged,
    /// Its test is not there in its lane.
    NoTest(String),
    /// Its test fails without it.
    CleanFails(String),
}

/// How a mutant was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Where; none on the host.
    pub lane: Option<&'static Lane>,
    /// In which boot; 0 on the host.
    pub boots: u32,
    /// Whether the boot hung.
    pub hang: bool,
    /// What was wrong.
    pub why: String,
}

impl Finding {
    /// Whether the mutant was noticed as it must be.
    pub fn killed(&self) -> bool {
        match self.fate {
            Fate::Killed(_) => true,
            Fate::Survived(_) => self.seeds().is_some(),
            _ => false,
        }
    }

    fn parallel_boots(&self) -> Option<u32> {
        self.exploration.as_ref().and_then(|exploration| exploration.parallel_boots)
    }

    fn seeds(&self) -> Option<u64> {
        self.exploration.as_ref().and_then(Exploration::median)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { name, claim, killer, breaks, .. } = &self.mutant;
        write!(formatter, "mutant {name} (claim {claim}) ... ")?;
        let explored = |formatter: &mut fmt::Formatter<'_>| match &self.exploration {
            Some(exploration) => write!(formatter, "\n    {exploration}"),
            None => Ok(()),
        };
        let (what, details) = match &self.fate {
            Fate::Killed(sightings) => {
                write!(formatter, "{GOOD}killed{GOOD:#} by {killer}")?;
                for sighting in sightings {
                    write!(formatter, "\n    {sighting}")?;
                }
                return explored(formatter);
            }
            Fate::Survived(what) if self.killed() => {
                write!(formatter, "{GOOD}killed{GOOD:#} by exploration, not in {what}")?;
                return explored(formatter);
            }
            Fate::Survived(what) => ("SURVIVED", format!("{what} without a failure of {killer}")),
            Fate::NotApplied(message) => ("no longer applies", message.clone()),
            Fate::NotBuilt(message) => ("does not build", message.clone()),
            Fate::Unchanged => ("changes nothing", "the image is the same without it".to_owned()),
            Fate::NoTest(what) => ("has no test", what.clone()),
            Fate::CleanFails(why) => ("cannot be judged: its test fails without it", why.clone()),
        };
        write!(formatter, "{BAD}{what}{BAD:#}\n    {breaks}")?;
        for line in details.lines() {
            write!(formatter, "\n    {line}")?;
        }
        explored(formatter)
    }
}

impl fmt::Display for Sighting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lane) = self.lane {
            write!(formatter, "{}, boot {}: ", lane.name, self.boots)?;
        }
        if self.hang {
            write!(formatter, "{NOTABLE}hang{NOTABLE:#}: ")?;
        }
        write!(formatter, "{MUTED}{}{MUTED:#}", self.why)
    }
}

/// What `--json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    /// A row for each mutant.
    pub mutants: Vec<Row>,
}

/// A row of [`Table`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The mutant.
    pub name: String,
    /// The number of the claim that it breaks.
    pub claim: u32,
    /// `plain` or `race`.
    pub sort: String,
    /// What noticed it, marked where it was by a hang; null if nothing did.
    pub killed_by: Option<String>,
    /// The boot with one hart that noticed it, counted from 1; null if it was not tried so.
    pub boots: Option<u32>,
    /// The number of seeds until it was noticed; null if it was not explored.
    pub seeds: Option<u64>,
    /// The boot with several harts that noticed it, counted from 1; null if it was not tried so.
    pub parallel_boots: Option<u32>,
    /// Whether the model checker noticed it; null if it was not tried so.
    pub model_checker: Option<bool>,
}

impl From<&Finding> for Row {
    fn from(finding: &Finding) -> Self {
        let mutant = &finding.mutant;
        let sightings: &[Sighting] = match &finding.fate {
            Fate::Killed(sightings) => sightings,
            _ => &[],
        };
        let boots = |parallel: bool| {
            let mut matching = sightings
                .iter()
                .filter(|sighting| sighting.lane.is_some_and(|lane| (lane.harts > 1) == parallel));
            matching.next().map(|sighting| sighting.boots)
        };
        let hang = sightings.iter().any(|sighting| sighting.hang);
        Self {
            name: mutant.name.clone(),
            claim: mutant.claim,
            sort: mutant.sort.name().to_owned(),
            killed_by: finding.killed().then(|| {
                let mark = if hang { " (hang)" } else { "" };
                format!("{}{mark}", mutant.killer)
            }),
            boots: boots(false),
            seeds: finding.seeds(),
            parallel_boots: boots(true).or(finding.parallel_boots()),
            model_checker: mutant.killer.is_model().then(|| finding.killed()),
        }
    }
}

/// What results/mutants.json holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The compiler.
    pub toolchain: String,
    /// QEMU.
    pub qemu: String,
    /// The rows.
    #[serde(flatten)]
    pub table: Table,
}

/// Where the results are kept that CLAIMS.md shows.
pub fn results_file() -> PathBuf {
    environment::workspace().join("results/mutants.json")
}

/// Reads the results that were saved last; none if there are none.
///
/// # Errors
/// When they cannot be read or are malformed.
pub fn read_saved(path: &Path) -> anyhow::Result<Option<Saved>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            Ok(Some(serde_json::from_str(&text).with_context(|| path.display().to_string())?))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn save(environment: &Environment, table: Table, names: &[String]) -> anyhow::Result<()> {
    let path = results_file();
    let old = read_saved(&path)?.unwrap_or_default();
    let saved = Saved {
        toolchain: environment.compiler.description.clone(),
        qemu: environment.qemu.description.clone(),
        table: merged(old.table, table, names),
    };
    std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
    let text = serde_json::to_string_pretty(&saved)? + "\n";
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

/// The rows of `new`, and those of `old` for mutants that are still there and were not tried this time; sorted.
fn merged(old: Table, new: Table, names: &[String]) -> Table {
    let mut mutants = new.mutants;
    for row in old.mutants {
        let tried = mutants.iter().any(|new| new.name == row.name);
        if !tried && names.contains(&row.name) {
            mutants.push(row);
        }
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Table { mutants }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn lane(name: &str) -> &'static Lane {
        Lane::named(name).unwrap()
    }

    fn mutant(name: &str, lanes: &[&str]) -> Mutant {
        Mutant {
            explored: None,
            name: name.to_owned(),
            claim: 3,
            sort: Sort::Race,
            killer: Killer::Test("a::b".to_owned()),
            lanes: lanes.iter().map(|name| lane(name)).collect(),
            breaks: "a fence".to_owned(),
            patch: PathBuf::from("x.patch"),
        }
    }

    fn selected(words: &[&str]) -> Vec<(String, Vec<&'static str>)> {
        let arguments = CommandLine::parse_from([&["mutants"], words].concat()).arguments;
        let all = vec![
            mutant("fence", &["smp", "icount"]),
            mutant("free", &["icount"]),
            mutant("host", &[]),
        ];
        let Ok(selected) = select(all, &arguments) else {
            return Vec::new();
        };
        let lanes = |mutant: &Mutant| mutant.lanes.iter().map(|lane| lane.name).collect();
        selected.iter().map(|mutant| (mutant.name.clone(), lanes(mutant))).collect()
    }

    fn killed(sightings: &[(Option<&str>, u32, bool)]) -> Finding {
        Finding {
            exploration: None,
            mutant: mutant("fence", &["smp"]),
            fate: Fate::Killed(
                sightings
                    .iter()
                    .map(|&(name, boots, hang)| Sighting {
                        lane: name.map(lane),
                        boots,
                        hang,
                        why: "a::b failed: stale".to_owned(),
                    })
                    .collect(),
            ),
        }
    }

    fn row(name: &str, killed_by: Option<&str>) -> Row {
        Row {
            name: name.to_owned(),
            killed_by: killed_by.map(str::to_owned),
            ..Row::from(&killed(&[]))
        }
    }

    #[test]
    fn a_lane_selects_mutants_and_where_they_are_tried() {
        assert_eq!(selected(&[]).len(), 3);
        assert_eq!(selected(&["f"]).len(), 2);
        assert_eq!(selected(&["--lane", "smp"]), [("fence".to_owned(), vec!["smp"])]);
        assert!(selected(&["--lane", "tcg"]).is_empty());
        assert!(selected(&["nothing"]).is_empty());
    }

    #[test]
    fn a_row_tells_boots_with_one_hart_from_boots_with_several() {
        let row = Row::from(&killed(&[(Some("icount"), 1, false), (Some("smp"), 17, false)]));
        assert_eq!((row.boots, row.parallel_boots), (Some(1), Some(17)));
        assert_eq!(row.killed_by.as_deref(), Some("a::b"));
        let row = Row::from(&killed(&[(None, 0, false)]));
        assert_eq!((row.boots, row.parallel_boots), (None, None));
        assert!(row.killed_by.is_some());
    }

    #[test]
    fn a_kill_by_a_hang_is_marked() {
        let finding = killed(&[(Some("smp"), 2, true)]);
        assert_eq!(Row::from(&finding).killed_by.as_deref(), Some("a::b (hang)"));
        assert!(finding.to_string().contains("hang"));
    }

    #[test]
    fn only_a_kill_is_a_kill() {
        let why = || "why".to_owned();
        for fate in [
            Fate::Survived(why()),
            Fate::NotApplied(why()),
            Fate::NotBuilt(why()),
            Fate::Unchanged,
            Fate::NoTest(why()),
            Fate::CleanFails(why()),
        ] {
            let finding = Finding { mutant: mutant("fence", &["smp"]), fate, exploration: None };
            assert!(!finding.killed());
            assert_eq!(Row::from(&finding).killed_by, None);
            assert!(finding.to_string().contains("a fence"), "{finding}");
        }
    }

    #[test]
    fn json_has_the_documented_fields() {
        let table = Table { mutants: vec![row("fence", Some("a::b"))] };
        let json = serde_json::to_value(table).unwrap();
        let fields: Vec<_> = json["mutants"][0].as_object().unwrap().keys().collect();
        assert_eq!(
            fields,
            [
                "boots",
                "claim",
                "killed_by",
                "model_checker",
                "name",
                "parallel_boots",
                "seeds",
                "sort"
            ]
        );
    }

    #[test]
    fn saving_keeps_what_was_not_tried_and_forgets_what_is_gone() {
        let table = |rows: &[Row]| Table { mutants: rows.to_vec() };
        let old = table(&[row("a", None), row("b", None), row("gone", None)]);
        let new = table(&[row("c", None), row("a", Some("a::b"))]);
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            merged(old, new, &names),
            table(&[row("a", Some("a::b")), row("b", None), row("c", None)])
        );
    }

    #[test]
    fn saved_results_are_read_back_and_none_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mutants.json");
        assert_eq!(read_saved(&path).unwrap(), None);
        let saved = Saved {
            toolchain: "rustc".to_owned(),
            qemu: "QEMU".to_owned(),
            table: Table { mutants: vec![row("fence", None)] },
        };
        std::fs::write(&path, serde_json::to_string(&saved).unwrap()).unwrap();
        assert_eq!(read_saved(&path).unwrap(), Some(saved));
        std::fs::write(&path, "{").unwrap();
        let message = read_saved(&path).unwrap_err().to_string();
        assert!(message.contains("mutants.json"), "{message}");
    }

    const HOST_FAILURE: &str = "running 1 test\ntest lookup::tests::exact ... FAILED\n\nfailures:\n\n\
         thread 'x' (1) panicked at lib/symbols/src/lib.rs:9:9:\nassertion `left == right` failed\n\n\
         test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 5 filtered out\n";

    #[test]
    fn a_host_tests_failure_is_told_from_one_that_did_not_run() {
        assert_eq!(
            failure_message(HOST_FAILURE).as_deref(),
            Some("assertion `left == right` failed")
        );
        assert_eq!(failure_message("error[E0425]: cannot find value\n"), None);
        let without_message = "test a ... FAILED\n";
        assert_eq!(failure_message(without_message).as_deref(), Some("it failed"));
    }

    #[test]
    fn passed_host_tests_are_added_up() {
        let line = "test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed_tests(&line.repeat(2)), 2);
        assert_eq!(passed_tests("test result: ok. 0 passed; 0 failed\n"), 0);
        assert_eq!(passed_tests(HOST_FAILURE), 0);
        assert_eq!(passed_tests(""), 0);
    }

    #[test]
    fn every_patch_has_a_header_and_applies() {
        let workspace = environment::workspace();
        for mutant in read_all().unwrap() {
            let result = tree::applies(&workspace, &mutant.patch).unwrap();
            assert_eq!(result, Ok(()), "{} no longer applies", mutant.name);
        }
    }
}
