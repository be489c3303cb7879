//! `trace`: a timeline of every hart, as a file for the Perfetto viewer and as a picture.
//!
//! The kernel keeps the last events of each hart and prints them before its verdict, where the word `trace` asks for it: so a
//! trace shows how a run ended, a crash included, and not how a long one began.

pub mod log;
pub mod perfetto;
pub mod picture;
pub mod timeline;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anyhow::Context;
use object::{Object, ObjectSection, ObjectSymbol};

use crate::cli::Usage;
use crate::environment::{self, Environment};
use crate::image::{Image, Profile};
use crate::manifest::Manifest;
use crate::qemu::{Boot, Exit};
use crate::style::{BAD, NOTABLE};
use crate::test::image_with_manifest;
use crate::verdict::{Expectation, judge};

use log::Log;
use timeline::Timeline;

/// How many harts there are where nobody says so. Where they take turns, one.
const HARTS: u32 = 4;

/// What to trace, and where to put it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Each hart keeps its last 511 events: switches, wakeups, interrupts, waits for locks. Open the .json file at
ui.perfetto.dev, or the .svg file in a browser.

Examples:
  cargo run -- trace                                             the demo on 4 harts
  cargo run -- trace boot::every_hart_has_the_entry_state        one self-test
  cargo run -- trace harts --smp 8                               all with `harts` in their names, in one boot
  cargo run -- trace crash::panic                                what the harts did before a crash
  cargo run -- trace --icount                                    one hart, the same trace each time"
)]
pub struct Arguments {
    /// A self-test, or a part of the names of several, or `crash::KIND` [default: the demo]
    pub test: Option<String>,
    /// How many harts [default: 4, or 1 with --icount; more where the test needs them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub smp: Option<u32>,
    /// Let time pass with the instructions: the same boot is then the same run
    #[arg(long)]
    pub icount: bool,
    /// The folder for the files [default: target/trace]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Boots, and writes the trace. The exit code is that of the boot.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, nothing has such a name, the kernel's trace is malformed, or a
/// file cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let (image, manifest) = image_with_manifest(&environment, Profile::Checked)?;
    let subject = Subject::choose(&manifest, arguments.test.as_deref())?;
    let boot = Boot {
        harts: arguments.smp.unwrap_or(subject.harts.max(if arguments.icount { 1 } else { HARTS })),
        icount: arguments.icount,
        append: subject.words.clone(),
        ..Boot::new(&image.elf)
    };
    let outcome = boot.run(&environment)?;
    let verdict = judge(&outcome, &subject.expectation).verdict;
    if !verdict.passed() {
        eprintln!("{NOTABLE}{verdict}{NOTABLE:#}");
    }
    match Log::parse(&outcome.output) {
        Ok(mut log) => {
            name_threads(&mut log, &image.elf)?;
            let folder =
                arguments.out.clone().unwrap_or_else(|| environment::target_dir().join("trace"));
            let files = write(&log, &subject.name, &boot, &image, &folder)?;
            println!("{}", summary(&log, &subject.name, &files));
        }
        // A boot that failed may not have come so far: it has said why.
        Err(error) if verdict.passed() => return Err(error.into()),
        Err(error) => {
            eprintln!("{}\n{BAD}{error}{BAD:#}", outcome.output);
            if let Exit::TimedOut { diagnosis } = &outcome.exit {
                eprintln!("{diagnosis}");
            }
        }
    }
    Ok(ExitCode::from(verdict.exit_code()))
}

/// The picture of a self-test on so many harts.
///
/// # Errors
/// When no self-test has such a name, its boot does not pass, or the kernel's trace is malformed.
pub fn picture_of(
    environment: &Environment,
    image: &Image,
    manifest: &Manifest,
    test: &str,
    harts: u32,
) -> anyhow::Result<String> {
    let subject = Subject::choose(manifest, Some(test))?;
    let boot = Boot { harts, append: subject.words.clone(), ..Boot::new(&image.elf) };
    let outcome = boot.run(environment)?;
    let verdict = judge(&outcome, &subject.expectation).verdict;
    anyhow::ensure!(verdict.passed(), "{}: {verdict}", subject.name);
    let mut log = Log::parse(&outcome.output)?;
    name_threads(&mut log, &image.elf)?;
    let locks = lock_names(&image.elf, &log)?;
    Ok(draw(&log, &subject.name, &Timeline::new(&log), |lock| name_of(&locks, lock)))
}

fn draw(log: &Log, name: &str, timeline: &Timeline, lock: impl Fn(u64) -> String) -> String {
    picture::draw(timeline, &format!("16-os: {name}"), &counts(log), lock)
}

fn name_of(locks: &BTreeMap<u64, String>, lock: u64) -> String {
    locks.get(&lock).cloned().unwrap_or_else(|| format!("a lock at {lock:#x}"))
}

/// What is booted.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    /// As a file's name.
    name: String,
    /// The kernel's command line.
    words: String,
    /// How many harts it needs.
    harts: u32,
    expectation: Expectation,
}

impl Subject {
    fn choose(manifest: &Manifest, asked: Option<&str>) -> Result<Subject, Usage> {
        let Some(asked) = asked else {
            let (name, words) = ("demo".to_owned(), "trace".to_owned());
            return Ok(Subject { name, words, harts: 1, expectation: Expectation::Demo });
        };
        let name = asked.replace("::", ".");
        if let Some(kind) = asked.strip_prefix("crash::") {
            let is_it = |crash: &&crate::manifest::Crash| crash.kind == kind;
            let crash = manifest.crashes.iter().find(is_it).ok_or_else(|| {
                Usage(format!("no crash is called `{kind}` (`test --list` shows all)"))
            })?;
            let (words, harts) = (format!("crash={kind} trace"), crash.entry.harts);
            return Ok(Subject { name, words, harts, expectation: Expectation::Demo });
        }
        let exact = manifest.tests.iter().any(|test| test.name == asked);
        let chosen = manifest.tests.iter().filter(|test| match exact {
            true => test.name == asked,
            false => test.name.contains(asked),
        });
        let chosen: Vec<_> = chosen.filter(|test| !test.entry.flags.icount).collect();
        let harts = chosen.iter().map(|test| test.entry.harts).max();
        let Some(harts) = harts else {
            return Err(Usage(format!(
                "no self-test has `{asked}` in its name (`test --list` shows all)"
            )));
        };
        let names: Vec<String> = chosen.iter().map(|test| test.name.clone()).collect();
        let words = format!("test only={} trace", names.join(","));
        let expectation = Expectation::Tests { ok: names, skipped: Vec::new() };
        Ok(Subject { name, words, harts, expectation })
    }
}

/// Where the trace was put.
struct Files {
    perfetto: PathBuf,
    picture: PathBuf,
}

fn write(
    log: &Log,
    name: &str,
    boot: &Boot,
    image: &Image,
    folder: &Path,
) -> anyhow::Result<Files> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let timeline = Timeline::new(log);
    let locks = lock_names(&image.elf, log)?;
    let lock_name = |lock| name_of(&locks, lock);
    let about = BTreeMap::from([
        ("command line", boot.append.clone()),
        ("QEMU", boot.command_line()),
        ("events that are missing", log.dropped.to_string()),
    ]);
    let file = perfetto::file(&timeline, lock_name, about);
    let picture = draw(log, name, &timeline, lock_name);
    let files = Files {
        perfetto: folder.join(format!("{name}.json")),
        picture: folder.join(format!("{name}.svg")),
    };
    let text = serde_json::to_string(&file)?;
    for (path, text) in [(&files.perfetto, text), (&files.picture, picture)] {
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(files)
}

/// Adds the names of threads that were gone when the kernel listed them: the image has them.
fn name_threads(log: &mut Log, elf: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(elf).with_context(|| elf.display().to_string())?;
    let object = object::File::parse(&*bytes).with_context(|| elf.display().to_string())?;
    let name = |text: log::Text| {
        let mut sections = object.sections();
        let name = sections
            .find_map(|section| section.data_range(text.address(), text.bytes()).ok().flatten())?;
        std::str::from_utf8(name).ok()
    };
    for event in &log.events {
        if let log::Kind::Spawn { thread, name: text } | log::Kind::Exit { thread, name: text } =
            event.kind
            && let Some(name) = name(text)
        {
            log.threads.entry(thread).or_insert_with(|| name.to_owned());
        }
    }
    Ok(())
}

/// The names of the locks that lie in the image.
fn lock_names(elf: &Path, log: &Log) -> anyhow::Result<BTreeMap<u64, String>> {
    let bytes = std::fs::read(elf).with_context(|| elf.display().to_string())?;
    let object = object::File::parse(&*bytes).with_context(|| elf.display().to_string())?;
    let name = |lock: u64| {
        let mut symbols = object.symbols();
        let symbol = symbols.find(|symbol| {
            let place = symbol.address()..symbol.address() + symbol.size();
            // Not the one that the compiler made for several statics together: theirs are there too.
            place.contains(&lock) && symbol.name().is_ok_and(|name| !name.starts_with(".L"))
        })?;
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
        Some((lock, name))
    };
    let locks = log.events.iter().filter_map(|event| match event.kind {
        log::Kind::LockWait(lock) => Some(lock),
        _ => None,
    });
    Ok(locks.filter_map(name).collect())
}

/// What there is, in a line.
fn counts(log: &Log) -> String {
    let threads: usize = Timeline::new(log).threads.len();
    let dropped = match log.dropped {
        0 => "none is missing".to_owned(),
        dropped => format!("{dropped} older ones are missing"),
    };
    format!("{} events on {} harts, {threads} threads; {dropped}", log.events.len(), log.harts)
}

fn summary(log: &Log, name: &str, files: &Files) -> String {
    format!(
        "{name}: {}.\n{} is for ui.perfetto.dev, {} for a browser.",
        counts(log),
        files.perfetto.display(),
        files.picture.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(asked: &str) -> Result<Subject, Usage> {
        let manifest = Manifest::parse(
            b"test\ta::b\t1\t1\t-\tf:1\n\
              test\ta::b_and_c\t1\t3\t-\tf:2\n\
              test\ta::counts\t1\t1\ticount\tf:3\n\
              crash\tpanic\t3\t2\tfixed\tf:4\tpanicked\t-\n",
        )
        .unwrap();
        Subject::choose(&manifest, Some(asked))
    }

    #[test]
    fn a_whole_name_is_one_test_and_a_part_may_be_several() {
        let one = choose("a::b").unwrap();
        assert_eq!((&*one.name, &*one.words, one.harts), ("a.b", "test only=a::b trace", 1));
        let several = choose("::b").unwrap();
        assert_eq!(&*several.words, "test only=a::b,a::b_and_c trace");
        assert_eq!(several.harts, 3);
        let Expectation::Tests { ok, .. } = several.expectation else {
            panic!("tests are asked for")
        };
        assert_eq!(ok, ["a::b", "a::b_and_c"]);
    }

    #[test]
    fn a_crash_is_asked_for_by_kind() {
        let crash = choose("crash::panic").unwrap();
        assert_eq!((&*crash.words, crash.harts), ("crash=panic trace", 2));
    }

    #[test]
    fn what_does_not_exist_is_a_usage_error() {
        for asked in ["nothing", "crash::nothing", "a::counts"] {
            let error = choose(asked).unwrap_err();
            assert!(error.0.contains(asked.trim_start_matches("crash::")), "{error}");
        }
    }

    #[test]
    fn nobody_asks_for_the_demo_by_name() {
        let demo = Subject::choose(&Manifest::default(), None).unwrap();
        assert_eq!((&*demo.name, &*demo.words), ("demo", "trace"));
    }
}
