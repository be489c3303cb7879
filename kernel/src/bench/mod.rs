//! Benchmarks: guest instructions for what the kernel does most, registered where they are written and run by name.
//!
//! A [`Meter`] counts. What it says holds under QEMU's `-icount shift=0`, with one hart, or with others that rest:
//! there the hart's counter of retired instructions is exact, and the same in every run. On anything else [`run`] refuses.
//!
//! A row is a function and a line that registers it:
//!
//! ```text
//! row!(spin_lock);
//! fn spin_lock(meter: &mut Meter) -> Outcome {
//!     static LOCK: SpinLock<()> = SpinLock::new("measured", ());
//!     meter.each(|| drop(LOCK.lock()));
//!     Ok(())
//! }
//! ```

pub mod entry;
mod gauges;
mod load;
mod memory;
mod meter;
mod threads;
mod traps;

use core::fmt;
use core::time::Duration;

use command_line::{Bench, Only};

use crate::console::println;
use crate::exit::{self, Failure};
use crate::{frame, hart, heap, image, interrupts, stack, thread, timer};

use load::Load;

pub use meter::{Meter, Uncounted, instructions};

/// For how long the other harts are left to themselves before the first row.
const SETTLING: Duration = Duration::from_millis(10);

/// How measuring ends: well, or with what was missing.
pub type Outcome = Result<(), &'static str>;

/// A benchmark, registered where it is written.
pub struct Benchmark {
    name: &'static str,
    measure: Measure,
}

/// What is measured.
pub enum Measure {
    /// Instructions for an operation that is repeated.
    Row(fn(&mut Meter) -> Outcome),
    /// A number that is read once, when all rows are done.
    Gauge(fn() -> u64),
}

/// Registers a function as a row of its name, or of another.
macro_rules! row {
    ($name:ident) => {
        $crate::bench::benchmark!("bench", Row, $name, $name);
    };
    ($name:ident as $row:ident) => {
        $crate::bench::benchmark!("bench", Row, $name, $row);
    };
}

/// Registers a function as a gauge of its name.
macro_rules! gauge {
    ($name:ident) => {
        $crate::bench::benchmark!("gauge", Gauge, $name, $name);
    };
}

/// Registers a benchmark. The host reads its name from the image's `.manifest`.
macro_rules! benchmark {
    ($sort:literal, $measure:ident, $name:ident, $row:ident) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".benchmarks")]
            static BENCHMARK: $crate::bench::Benchmark = $crate::bench::Benchmark {
                name: stringify!($row),
                measure: $crate::bench::Measure::$measure($name),
            };
            $crate::crash::manifest_line!(
                $sort,
                "\t",
                stringify!($row),
                "\t",
                file!(),
                ":",
                line!(),
                "\n"
            );
        };
    };
}

pub(crate) use {benchmark, gauge, row};

fn benchmarks() -> impl Iterator<Item = &'static Benchmark> {
    image::gathered!(Benchmark, __benchmarks_start, __benchmarks_end).iter()
}

/// The names of all benchmarks.
#[cfg(feature = "monitor")]
pub fn names() -> impl Iterator<Item = &'static str> {
    benchmarks().map(|benchmark| benchmark.name)
}

/// Measures what was chosen, a line each, under the load that is asked for, and ends the run.
pub fn run(asked: Bench<'_>) -> ! {
    let unknown = unknown_names(asked.only);
    // As threads run: rows that mask interrupts pay for restoring them.
    interrupts::enable();
    let before = InUse::now();
    let load = Load::new(asked.with).unwrap_or_else(|why| {
        exit::fail(Failure::Refused, format_args!("there is no such load: {why}"))
    });
    let failures = measure(asked.only).unwrap_or_else(|uncounted| {
        exit::fail(Failure::Refused, format_args!("nothing can be measured: {uncounted}"))
    });
    load.end();
    let failures = unknown + failures + usize::from(!before.is_as_before());
    if failures > 0 {
        exit::fail(Failure::Test, format_args!("{failures} of the measurements failed"))
    }
    exit::pass(format_args!(""))
}

/// Measures what was chosen, a line each, with interrupts on, and gives how many measurements failed. Sleeps.
///
/// # Errors
/// If instructions cannot be counted here.
pub fn measure(only: Only<'_>) -> Result<usize, Uncounted> {
    let meter = Meter::calibrate()?;
    let mut failures = 0;
    let before = InUse::now();
    if hart::count() > 1 {
        // The counter is of all harts together: while this one sleeps, the others come to rest.
        timer::sleep(SETTLING);
    }
    for benchmark in benchmarks().filter(|benchmark| only.admits(benchmark.name)) {
        if let Measure::Row(measure) = benchmark.measure {
            failures += usize::from(!run_row(benchmark.name, measure, meter.clone()));
        }
    }
    failures += usize::from(!before.is_as_before());
    for benchmark in benchmarks().filter(|benchmark| only.admits(benchmark.name)) {
        if let Measure::Gauge(read) = benchmark.measure {
            println!("gauge {} {}", benchmark.name, read());
        }
    }
    Ok(failures)
}

/// Names those that were asked for and are none, and counts them.
fn unknown_names(only: Only<'_>) -> usize {
    let is_unknown = |pattern: &&str| {
        !benchmarks().any(|benchmark| command_line::matches(pattern, benchmark.name))
    };
    let unknown = only.patterns().into_iter().flatten().filter(is_unknown);
    unknown.inspect(|pattern| println!("no benchmark is called '{pattern}'")).count()
}

/// Measures one row and shows it. Says whether there was something to show.
fn run_row(name: &str, measure: fn(&mut Meter) -> Outcome, mut meter: Meter) -> bool {
    let mut outcome = measure(&mut meter);
    if meter.others_ran() {
        outcome = outcome.and(Err("another hart ran meanwhile, and the counter is of all of them"));
    }
    match (outcome, meter.summary()) {
        (Ok(()), Some(summary)) => println!("bench {name} {summary}"),
        (Ok(()), None) => println!("benchmark {name} measured nothing"),
        (Err(why), _) => println!("benchmark {name} failed: {why}"),
    }
    outcome.is_ok() && meter.summary().is_some()
}

/// What is in use, without what stacks, heap and threads keep for later. The same blocks may lie in more pages or fewer.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InUse {
    frames: usize,
    blocks: usize,
}

impl InUse {
    /// What is in use now.
    fn now() -> InUse {
        thread::trim();
        stack::trim();
        heap::trim();
        let mut blocks = 0;
        heap::for_each_class(|usage| blocks += usage.blocks);
        InUse { frames: frame::statistics().in_use - heap::frames_held(), blocks }
    }

    /// Whether as much is in use as before, and says so if not.
    fn is_as_before(self) -> bool {
        let now = InUse::now();
        if now != self {
            println!("{self} were in use before the rows, and {now} after them");
        }
        now == self
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames and {} blocks", self.frames, self.blocks)
    }
}

/// The mean of some counts with one decimal, the least and the greatest.
#[derive(Clone, Copy)]
pub struct Summary {
    mean_tenths: u64,
    least: u64,
    greatest: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { mean_tenths, least, greatest } = self;
        write!(f, "{}.{} {least} {greatest}", mean_tenths / 10, mean_tenths % 10)
    }
}
