//! What grows: rows in one state of the kernel after the other, with more memory, harts, threads, or frames in use.
//!
//! A row that costs more than in the first state of its series, beyond what the baseline would allow it, needs a reason here, with
//! the most that it may cost for it. Else measuring fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Context;

use super::budget;
use super::chart::{self, Chart};
use super::results::{Measured, Row, Tenths, firmware};
use crate::environment::{self, Environment};
use crate::image::Image;
use crate::progress;
use crate::size;

const TABLES: &str = "results/growth.md";
const PICTURE: &str = "results/growth.svg";

/// The rows that are measured everywhere.
pub const ROWS: [&str; 10] = [
    "frame_alloc",
    "frame_free",
    "frame_alloc_zeroed",
    "frame_bulk_pair",
    "kmalloc_64_pair",
    "spin_lock",
    "switch",
    "yield",
    "wake_to_run",
    "timer_interrupt",
];
/// What is measured besides with different sizes of memory, and only there.
const OF_MEMORY: [&str; 3] = ["boot_to_first_thread", "page_table_pages", "free_frames"];

/// What grows from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// The machine's memory.
    Memory,
    /// The harts, of which all but one idle.
    Harts,
    /// The threads, half asleep and half blocked.
    Threads,
    /// How much of memory is in use, and how.
    Fill,
}

use Grows::{Fill, Harts, Memory, Threads};

/// A machine, and what the kernel finds there before the rows are measured.
#[derive(Clone, Debug)]
pub struct State {
    /// What makes it different from others of its series.
    pub label: String,
    /// Memory in QEMU's notation.
    pub memory: &'static str,
    /// How many harts.
    pub harts: u32,
    /// What `with=` says on the kernel's command line; empty for nothing.
    pub with: String,
}

impl State {
    /// With one hart.
    pub fn new(label: impl Into<String>, memory: &'static str, with: impl Into<String>) -> State {
        State { label: label.into(), memory, harts: 1, with: with.into() }
    }
}

impl Grows {
    /// All of them.
    pub const ALL: [Grows; 4] = [Memory, Harts, Threads, Fill];

    /// The states, the least first.
    pub fn states(self) -> Vec<State> {
        match self {
            Memory => ["32M", "64M", "128M", "512M", "2G", "8G", "16G"]
                .map(|size| State::new(size.replace('M', " MiB").replace('G', " GiB"), size, ""))
                .into(),
            Harts => {
                let state = |harts| State { harts, ..State::new(harts.to_string(), "128M", "") };
                (1..=8).map(state).collect()
            }
            // 10,000 threads need 170 MiB: their stacks and, for the stacks' addresses, 630 tables.
            Threads => [0, 10, 100, 1_000, 10_000]
                .map(|count| State::new(size::spaced(count), "256M", format!("threads:{count}")))
                .into(),
            // Large enough that the 4,096 frames of a row are free when it is nearly full.
            Fill => [
                ("as booted", ""),
                ("1 %", "fill:1"),
                ("50 %", "fill:50"),
                ("99 %", "fill:99"),
                ("1 in 2", "fill:every_other"),
            ]
            .map(|(label, with)| State::new(label, "2G", with))
            .into(),
        }
    }

    /// What the series is called.
    fn title(self) -> &'static str {
        match self {
            Memory => "memory",
            Harts => "harts",
            Threads => "threads",
            Fill => "in use",
        }
    }

    /// What was done.
    fn about(self) -> &'static str {
        match self {
            Memory => {
                "One hart, memory as it is after boot. The boot reads a longer command line here than for `bench` alone, at some 2,600 instructions."
            }
            Harts => {
                "128 MiB. The rows run on one hart; the others idle. That they execute nothing meanwhile is checked in each row: no other hart may wake."
            }
            Threads => {
                "One hart, 256 MiB. So many threads more than the rows need, each with its stack of 16 KiB: half of them sleep, half are blocked in a channel."
            }
            Fill => {
                "One hart, 2 GiB, 524,000 frames. So many of them are in use, and those that are free are scattered over all of memory by chance; last, every other frame is in use."
            }
        }
    }

    fn names(self) -> Vec<&'static str> {
        let more: &[&str] = if self == Memory { &OF_MEMORY } else { &[] };
        ROWS.iter().chain(more).copied().collect()
    }
}

/// Why a row may grow.
struct Reason {
    with: Grows,
    row: &'static str,
    /// By so many instructions at the most.
    by: u64,
    why: &'static str,
}

const LONELY: &str = "a free frame that is alone in its word of the bitmap (64 frames) costs 38 more to take, because the word's bit in the \
                      summary is cleared, and 12 more to free, because it is set again; that is the most, however full memory is";

const SHIFTED: &str = "where a word of the bitmap is not whole, the hart's cache is shifted against the words, and is filled frame by frame instead of word by word from \
                       then on";

const REASONS: &[Reason] = &[
    reason(Memory, "frame_bulk_pair", 20, SHIFTED),
    reason(
        Memory,
        "boot_to_first_thread",
        3_000_000,
        "half an instruction a frame: each word of the bitmap, of 64 frames, is cleared, filled and summed up once, 31 instructions in all",
    ),
    reason(Harts, "frame_bulk_pair", 20, SHIFTED),
    reason(
        Harts,
        "wake_to_run",
        16,
        "where any other hart idles, who wakes looks whether one has to be told; as many instructions for one as for seven",
    ),
    reason(Threads, "frame_alloc", 38, LONELY),
    reason(Threads, "frame_free", 12, LONELY),
    reason(Threads, "frame_alloc_zeroed", 38, LONELY),
    reason(Threads, "frame_bulk_pair", 20, SHIFTED),
    reason(Fill, "frame_alloc", 38, LONELY),
    reason(Fill, "frame_free", 12, LONELY),
    reason(Fill, "frame_alloc_zeroed", 38, LONELY),
    reason(
        Fill,
        "frame_bulk_pair",
        160,
        "a search finds 16 frames or more, which lie in one word or in 16: then each has its own way through the summary's levels, and costs what a lonely \
         frame costs. Full words are not looked at: with 16 GiB it is the same",
    ),
];

const fn reason(with: Grows, row: &'static str, by: u64, why: &'static str) -> Reason {
    Reason { with, row, by, why }
}

/// What became of a row in its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which row.
    pub row: &'static str,
    /// In the first state.
    pub from: Tenths,
    /// At the most.
    pub to: Tenths,
    /// In which state that is.
    pub at: String,
    /// Why; nothing where there is no reason, or it is more than that reason allows.
    pub why: Option<&'static str>,
}

/// What was measured in the states of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// What grows.
    pub grows: Grows,
    /// The states by their labels.
    pub states: Vec<(String, Measured)>,
}

impl Series {
    /// The rows that cost more than in the first state, beyond what the baseline would allow.
    pub fn changes(&self) -> Vec<Change> {
        self.grows.names().into_iter().filter_map(|row| self.change(row)).collect()
    }

    fn change(&self, name: &'static str) -> Option<Change> {
        let value = |(label, measured): &(String, Measured)| {
            row(measured, name).map(|row| (label.clone(), row.instructions))
        };
        let (_, from) = value(self.states.first()?)?;
        // The first of those that cost the most.
        let (at, to) =
            self.states.iter().filter_map(value).rev().max_by_key(|(_, value)| *value)?;
        if to.0 <= from.0 + budget::tolerance(from).0 {
            return None;
        }
        let reason = REASONS.iter().find(|reason| reason.with == self.grows && reason.row == name);
        let why = reason.filter(|reason| to.0 <= from.0 + reason.by * 10).map(|reason| reason.why);
        Some(Change { row: name, from, to, at, why })
    }
}

fn row<'a>(measured: &'a Measured, name: &str) -> Option<&'a Row> {
    measured.rows.iter().find(|row| row.name == name)
}

/// Measures `names` in a state.
///
/// # Errors
/// As for [`measure`](super::measure).
pub fn measure(
    environment: &Environment,
    image: &Image,
    state: &State,
    names: &[&str],
) -> anyhow::Result<(Measured, String)> {
    let mut words = super::words(names);
    if !state.with.is_empty() {
        let _ = write!(words, " with={}", state.with);
    }
    let log = super::pass(environment, image, &words, state.memory, state.harts)?;
    Ok((Measured::parse(&log, names)?, log))
}

/// Measures everything, writes the tables and the picture to results/, and says which changes have no reason.
///
/// # Errors
/// When something cannot be measured or written.
pub fn run(environment: &Environment) -> anyhow::Result<Vec<String>> {
    let image = super::image(environment)?;
    let mut all = Vec::new();
    let mut qemu = environment.qemu.description.clone();
    for grows in Grows::ALL {
        let mut states = Vec::new();
        for state in grows.states() {
            progress::say(&format!("{}: {}", grows.title(), state.label));
            let (measured, log) = measure(environment, &image, &state, &grows.names())
                .with_context(|| format!("{}: {}", grows.title(), state.label))?;
            if let Some(firmware) = firmware(&log) {
                qemu = format!("{}, {firmware}", environment.qemu.description);
            }
            states.push((state.label, measured));
        }
        all.push(Series { grows, states });
    }
    let versions = format!("{}; {qemu}", environment.compiler.description);
    let workspace = environment::workspace();
    super::history::write(&workspace, TABLES, &tables(&all, &versions))?;
    super::history::write(&workspace, PICTURE, &picture(&all, &versions))?;
    Ok(all.iter().flat_map(without_reason).collect())
}

/// Those changes of a series that have no reason, as sentences.
fn without_reason(series: &Series) -> Vec<String> {
    let changes = series.changes().into_iter().filter(|change| change.why.is_none());
    let title = series.grows.title();
    let sentence = |Change { row, from, to, at, .. }: Change| {
        format!(
            "{row} grows from {from} to {to} ({title}: {at}), and there is no reason for so much in xtask/src/bench/growth.rs"
        )
    };
    changes.map(sentence).collect()
}

/// The tables as Markdown.
fn tables(all: &[Series], versions: &str) -> String {
    let mut text = format!(
        "# What grows\n\n`cargo run -- bench --growth` measures this and writes it, and growth.svg beside it: guest instructions in the mean, the most in brackets \
         where some cost more. Release build, `-icount shift=0,sleep=off`, {versions}.\n\n![every row in every state](growth.svg)\n"
    );
    for series in all {
        let names = series.grows.names();
        // Writing into a string does not fail.
        let _ =
            write!(text, "\n## {}\n\n{}\n\n", capital(series.grows.title()), series.grows.about());
        let _ = writeln!(text, "| {} | {} |", series.grows.title(), names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
        for (label, measured) in &series.states {
            let cells: Vec<String> = names.iter().map(|name| cell(measured, name)).collect();
            let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
        }
        let changes = series.changes();
        let _ = match changes.is_empty() {
            true => writeln!(text, "\nNothing grows."),
            false => writeln!(text, "\nEverything is flat but:\n"),
        };
        // Rows that have one reason share a line.
        for why in changes.iter().map(|change| change.why).collect::<BTreeSet<_>>() {
            let of_it = changes.iter().filter(|change| change.why == why);
            let rows: Vec<String> = of_it
                .map(|Change { row, from, to, .. }| format!("{row}, from {from} to {to}"))
                .collect();
            let why = why.unwrap_or("**no reason is known**");
            let _ = writeln!(text, "- {}: {why}.", rows.join("; "));
        }
    }
    text.push_str(REST);
    text
}

/// What no row shows.
const REST: &str = "
## What grows and is no row

- A thread that goes to sleep is put into its hart's list by its deadline: at its end without a look at the others if it is due last, as those above were, else step by step
  past those that are due earlier.
- A timer interrupt at which n sleepers are due wakes n. One at which none is due does not look at them.
- A search for frames in a row looks at the words with a free frame, each once at the most; an allocation that fails looks at all words, 64 frames each.
- Unmapping the last page of a table looks at its 512 entries, 16 at a time.
";

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A number as the tables have it.
fn cell(measured: &Measured, name: &str) -> String {
    if let Some(gauge) = measured.gauges.get(name) {
        return size::spaced(*gauge);
    }
    let Some(row) = row(measured, name) else { return String::new() };
    if row.instructions == Tenths(row.max * 10) {
        row.instructions.to_string()
    } else {
        format!("{} ({})", row.instructions, size::spaced(row.max))
    }
}

/// A line of charts for each row, one for each series.
fn picture(all: &[Series], versions: &str) -> String {
    let chart = |name: &str, series: &Series| {
        let value = |measured: &Measured| {
            let gauge = measured.gauges.get(name).map(|gauge| Tenths(gauge * 10));
            row(measured, name).map(|row| row.instructions).or(gauge)
        };
        Chart {
            title: format!("{name} by {}", series.grows.title()),
            labels: series.states.iter().map(|(label, _)| label.clone()).collect(),
            values: series.states.iter().map(|(_, measured)| value(measured)).collect(),
            goal: None,
        }
    };
    let charts: Vec<Chart> = ROWS
        .iter()
        .chain(&OF_MEMORY)
        .flat_map(|&name| {
            let has = move |series: &Series| series.grows.names().contains(&name);
            let chart = &chart;
            all.iter().map(
                move |series| {
                    if has(series) { chart(name, series) } else { Chart::default() }
                },
            )
        })
        .collect();
    chart::draw("What grows: guest instructions in the mean", versions, all.len(), &charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(grows: Grows, name: &str, tenths: &[u64]) -> Series {
        let state = |&tenths: &u64| {
            let row = Row { name: name.to_owned(), instructions: Tenths(tenths), min: 1, max: 999 };
            (tenths.to_string(), Measured { rows: vec![row], ..Measured::default() })
        };
        Series { grows, states: tenths.iter().map(state).collect() }
    }

    #[test]
    fn what_stays_within_the_baselines_tolerance_is_flat() {
        assert_eq!(series(Threads, "yield", &[1_070, 1_060, 1_100]).changes(), []);
        assert_eq!(series(Threads, "frame_alloc", &[240, 260]).changes(), []);
    }

    #[test]
    fn what_grows_has_a_reason_up_to_its_bound_or_fails() {
        let changes = series(Harts, "wake_to_run", &[2_980, 3_120, 3_120]).changes();
        assert_eq!((changes.len(), &*changes[0].at), (1, "3120"));
        assert!(changes[0].why.is_some());
        let beyond = series(Harts, "wake_to_run", &[2_980, 3_200]);
        assert_eq!(beyond.changes()[0].why, None);
        let elsewhere = series(Threads, "wake_to_run", &[2_980, 3_120]);
        let sentences = without_reason(&elsewhere);
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].starts_with("wake_to_run grows from 298 to 312 (threads: 3120), and"));
    }

    #[test]
    fn the_tables_say_what_grows_and_why() {
        let all = [series(Harts, "wake_to_run", &[2_980, 3_120]), series(Fill, "yield", &[1_070])];
        let text = tables(&all, "rustc; QEMU");
        for line in [
            "## Harts",
            "- wake_to_run, from 298 to 312: where any other hart idles, who wakes looks whether one has to be told; \
             as many instructions for one as for seven.",
            "## In use",
            "Nothing grows.",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let picture = picture(&all, "rustc; QEMU");
        let picture = roxmltree::Document::parse(&picture).unwrap();
        let dots = picture.descendants().filter(|node| node.has_tag_name("circle"));
        assert_eq!(dots.count(), 3);
    }
}
