//! `bench`: how many guest instructions the kernel's operations take, beside the baseline and other kernels.
//!
//! QEMU counts instructions, so the same image gives the same numbers, on a busy host too. They are no cycles of a real
//! hart: they compare one build of this kernel with another.

pub mod budget;
pub mod chart;
pub mod figures;
pub mod growth;
pub mod history;
pub mod profile;
pub mod results;
pub mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anyhow::Context;
use serde::Serialize;

use crate::cli::Usage;
use crate::environment::{self, Environment};
use crate::image::{self, Image, Options, Profile};
use crate::lanes::Lane;
use crate::manifest::Manifest;
use crate::qemu::{Boot, Outcome};
use crate::size;
use crate::style::{BAD, NOTABLE};
use crate::verdict::{Expectation, Verdict, judge};

use results::{Measured, Results};

/// The gauges that are measured on the host.
const TEXT_BYTES: &str = "text_bytes";
const CODE_LINES: &str = "code_lines";
/// The gauge that an image of its own measures: counting costs instructions in each lock.
const INTERRUPTS_OFF: &str = "interrupts_off_max";

/// Memory of the machine on which figures are compared.
const MEMORY: &str = "128M";

/// What to measure, and what to do with it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Instructions are counted on one hart with 128 MiB under QEMU's icount, in the release build with the benchmarks in it. Each
operation is measured by itself, again and again; what the measurement itself costs is subtracted. Shown are the mean and,
where they differ, the least and the most.

Examples:
  cargo run -- bench                everything, beside the baseline in results/
  cargo run -- bench frame          only what has `frame` in its name
  cargo run -- bench --json         for a program
  cargo run -- bench --memory 2G    with more memory
  cargo run -- bench --growth       what grows with memory, harts, threads, frames in use: results/growth.md
  cargo run -- bench yield --profile   how many of its instructions each function has
  cargo run -- bench --save         accepts these numbers as the new baseline, and adds them to the history
  cargo run -- bench --history      draws results/history.svg anew"
)]
pub struct Arguments {
    /// Only what has this text in its name
    pub filter: Option<String>,
    /// Gives the numbers as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Measures with so much memory: `2G`
    #[arg(long, value_name = "SIZE", conflicts_with = "save")]
    pub memory: Option<String>,
    /// Shows which functions have the instructions, for each row that is measured
    #[arg(long, conflicts_with_all = ["json", "save"])]
    pub profile: bool,
    /// Measures in one state of machine and kernel after the other, and writes results/growth.md and growth.svg; fails where
    /// something grows without a reason
    #[arg(long, conflicts_with_all = ["filter", "json", "save", "memory", "profile"])]
    pub growth: bool,
    /// Draws results/history.svg from results/history.jsonl, and measures nothing
    #[arg(long, conflicts_with_all = ["filter", "json", "save", "memory", "profile", "growth"])]
    pub history: bool,
    /// Writes the numbers to results/, as the baseline and, with the kernel's output, beside it
    #[arg(long, conflicts_with = "filter")]
    pub save: bool,
}

/// Measures, and shows the numbers. The exit code is 0 where the boot passed, and else the kernel's.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, nothing has such a name, or a file cannot be used.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.history {
        history::redraw(&environment::workspace())?;
        return Ok(ExitCode::SUCCESS);
    }
    let environment = environment::require()?;
    if arguments.growth {
        let problems = growth::run(&environment)?;
        for problem in &problems {
            eprintln!("{BAD}problem{BAD:#}: {problem}");
        }
        return Ok(ExitCode::from(u8::from(!problems.is_empty())));
    }
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let measurement = match measure_with(&environment, filter, arguments.memory.as_deref()) {
        Ok(measurement) => measurement,
        Err(error) => match error.downcast::<Failed>() {
            Ok(failed) => {
                eprintln!("{}\n{BAD}{}{BAD:#}", failed.output, failed.verdict);
                return Ok(ExitCode::from(failed.verdict.exit_code()));
            }
            Err(error) => return Err(error),
        },
    };
    let baseline = budget::baseline(&environment::workspace())?;
    let results = &measurement.results;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(results)?);
    } else {
        // With its colours: `anstream` takes them out where nobody sees them.
        println!("{}\n", table::of(results, baseline.as_ref()).enforce_styling());
        println!("{}", table::legend(results));
    }
    if arguments.profile {
        let image = image(&environment)?;
        for row in &results.rows {
            let shares = profile::of(&environment, &image, row)?;
            println!("\n{}\n{}", row.name, profile::table(row, &shares).enforce_styling());
        }
    }
    for sentence in baseline.iter().flat_map(|baseline| budget::versions(results, baseline)) {
        eprintln!("{NOTABLE}warning: {sentence}{NOTABLE:#}");
    }
    if arguments.save {
        save(&measurement, &environment, &environment::workspace())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The numbers, and what the kernel said.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The numbers.
    #[serde(flatten)]
    pub results: Results,
    /// The whole output of the boot; empty where none was needed.
    pub log: String,
}

/// The boot did not end as it should.
#[derive(Debug, thiserror::Error)]
#[error("{verdict}\n{output}")]
pub struct Failed {
    /// How it ended.
    pub verdict: Verdict,
    /// What it said.
    pub output: String,
}

/// Measures whatever has `filter` in its name.
///
/// # Errors
/// [`Failed`] when the boot did not pass, [`Usage`] when nothing has such a name, [`results::Error`] when the output is not
/// as it has to be; and when an image cannot be built.
pub fn measure(environment: &Environment, filter: &str) -> anyhow::Result<Measurement> {
    measure_with(environment, filter, None)
}

/// As [`measure`], with so much memory instead of the usual 128 MiB.
fn measure_with(
    environment: &Environment,
    filter: &str,
    memory: Option<&str>,
) -> anyhow::Result<Measurement> {
    let image = image(environment)?;
    let manifest = Manifest::read(&image.elf)?;
    let names = manifest.benchmarks.iter().map(|benchmark| &*benchmark.name);
    let chosen: Vec<&str> = names.filter(|name| name.contains(filter)).collect();
    let of_host = [TEXT_BYTES, CODE_LINES].iter().any(|name| name.contains(filter));
    let of_demo = INTERRUPTS_OFF.contains(filter);
    if chosen.is_empty() && !of_host && !of_demo {
        return Err(Usage(format!("no benchmark has `{filter}` in its name")).into());
    }
    let (mut measured, log) = match chosen.is_empty() {
        true => (Measured::default(), String::new()),
        false => {
            let only = if filter.is_empty() { &[] } else { &*chosen };
            let log = pass(environment, &image, &words(only), memory.unwrap_or(MEMORY), 1)?;
            (Measured::parse(&log, &chosen)?, log)
        }
    };
    if of_host {
        let size = sizes(environment)?;
        let of_host = [(TEXT_BYTES, size.text_bytes), (CODE_LINES, size.code_lines)];
        let chosen = of_host.into_iter().filter(|(name, _)| name.contains(filter));
        measured.gauges.extend(chosen.map(|(name, value)| (name.to_owned(), value)));
    }
    if of_demo {
        measured.gauges.insert(INTERRUPTS_OFF.to_owned(), interrupts_off(environment)?);
    }
    let results = Results::new(environment, measured, results::firmware(&log));
    Ok(Measurement { results, log })
}

/// The release build with the benchmarks in it, and with nothing else that is not in every image.
///
/// # Errors
/// When it cannot be built.
pub fn image(environment: &Environment) -> Result<Image, image::Error> {
    let features = vec!["bench".to_owned()];
    image::build(environment, &Options { features, ..Options::new(Profile::Release) })
}

/// Boots the benchmarks of these names, or all of them, and gives the output of a boot that passed.
///
/// # Errors
/// [`Failed`] when it did not, and when QEMU cannot be started.
pub fn boot(environment: &Environment, image: &Image, only: &[&str]) -> anyhow::Result<String> {
    pass(environment, image, &words(only), MEMORY, 1)
}

/// The kernel's command line for the benchmarks of these names, or for all of them.
fn words(only: &[&str]) -> String {
    match only {
        [] => "bench".to_owned(),
        names => format!("bench only={}", names.join(",")),
    }
}

/// Boots where instructions are counted, and gives the output of a boot that passed.
fn pass(
    environment: &Environment,
    image: &Image,
    words: &str,
    memory: &str,
    harts: u32,
) -> anyhow::Result<String> {
    let lane = Lane::named("icount").expect("there is a lane that counts instructions");
    let boot = Boot { memory: memory.to_owned(), harts, ..lane.boot(&image.elf, words) };
    let outcome: Outcome = boot.run(environment)?;
    let verdict = judge(&outcome, &Expectation::Demo).verdict;
    if !verdict.passed() {
        return Err(Failed { verdict, output: outcome.output }.into());
    }
    Ok(outcome.output)
}

/// For how many instructions interrupts are masked at the most while the demo runs on one hart.
fn interrupts_off(environment: &Environment) -> anyhow::Result<u64> {
    let features = vec!["interrupts_off".to_owned()];
    let image = image::build(environment, &Options { features, ..Options::new(Profile::Release) })?;
    let output = pass(environment, &image, "", MEMORY, 1)?;
    // `masked       812 instructions, from kernel/src/irq.rs:10 on, at the most`
    let number = output.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? == "masked" { words.next()?.parse().ok() } else { None }
    });
    number.with_context(|| {
        format!("the demo does not say for how long interrupts were off\n{output}")
    })
}

/// Measures the sources, and the image without benchmarks.
fn sizes(environment: &Environment) -> anyhow::Result<size::Size> {
    let options = Options { features: Vec::new(), ..Options::new(Profile::Release) };
    size::measure(&environment::workspace(), &image::build(environment, &options)?.elf)
}

/// Makes these numbers the baseline, and keeps them with the kernel's output for their versions.
fn save(
    measurement: &Measurement,
    environment: &Environment,
    workspace: &Path,
) -> anyhow::Result<()> {
    let Environment { compiler, qemu, .. } = environment;
    let log = format!("results/bench-rustc-{}-qemu-{}.json", compiler.version, qemu.version);
    write(&workspace.join(log), measurement)?;
    write(&budget::path(workspace), &measurement.results)?;
    history::add(workspace, &measurement.results)
}

fn write(path: &PathBuf, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    eprintln!("written to {}", path.display());
    Ok(())
}
