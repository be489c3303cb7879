//! Self-tests: registered where they are written, run by name, each leaving the machine as it found it.

mod accounting;
mod boot;
#[cfg(feature = "checked")]
mod checker;
mod examples;
#[cfg(feature = "checked")]
mod exploring;
mod frames;
mod harts;
mod heap;
mod held;
mod interrupts;
mod irqs;
mod locks;
mod paging;
mod probes;
mod sleeping;
mod space;
mod stacks;
mod threads;
mod time;
mod traces;
mod traps;
mod tree;

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use arrayvec::{ArrayString, ArrayVec};
use command_line::Only;
use riscv::register::instret;

use crate::console::{print, println};
use crate::exit::{self, Failure};
use crate::hart::{self, CpuNumber};
use crate::sync::SpinLock;
use crate::thread::{self, JoinHandle, SpawnError};
use crate::timer::Instant;
use crate::{console, explore, image, probe, report, timer};

use accounting::Account;

/// How a test ends.
pub type Outcome = Result<(), Ended>;

/// A test that did not pass.
pub enum Ended {
    /// What was expected does not hold.
    Failed(Reason),
    /// It cannot run on this machine.
    Skipped(&'static str),
}

/// Why a test failed: where that was noticed, and, in [`MESSAGE`], what was.
pub struct Reason {
    file: &'static str,
    line: u32,
}

/// The message of the last failure. One test runs at a time, and an error that carries its text would be a large one.
static MESSAGE: SpinLock<Cut> = SpinLock::new("test message", Cut(ArrayString::new_const()));

/// What a test wants to say though it is no verdict.
static NOTE: SpinLock<Cut> = SpinLock::new("test", Cut(ArrayString::new_const()));

/// Lets the test say something on a line of its own, after its result.
pub fn note(message: fmt::Arguments<'_>) {
    let mut text = NOTE.lock();
    text.0.clear();
    // As in `Reason::new`.
    let _ = fmt::write(&mut *text, message);
}

impl Reason {
    /// A reason with a message, cut to its room.
    pub fn new(file: &'static str, line: u32, message: fmt::Arguments<'_>) -> Reason {
        let mut text = MESSAGE.lock();
        text.0.clear();
        // Cut's writes do not fail; a `Display` that reports an error of its own loses only its own text.
        let _ = fmt::write(&mut *text, message);
        Reason { file, line }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", MESSAGE.lock().0, self.file, self.line)
    }
}

/// Keeps what fits.
struct Cut(ArrayString<400>);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.try_push(character).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Ends the test as failed unless the condition holds.
macro_rules! ensure {
    ($condition:expr) => {
        $crate::selftest::ensure!($condition, "{}", stringify!($condition))
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::selftest::Ended::Failed($crate::selftest::Reason::new(file!(), line!(), format_args!($($message)+))));
        }
    };
}

/// Ends the test as failed unless both are equal; the message shows them.
macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) => $crate::selftest::ensure!(
                left == right,
                "{} is {:x?}, not {:x?}",
                stringify!($left),
                left,
                right
            ),
        }
    };
}

/// A test, registered where it is written.
pub struct SelfTest {
    name: &'static str,
    harts: usize,
    quick: bool,
    /// Whether it only means something where the clock goes with the instructions.
    icount: bool,
    /// Whether it is wrong on purpose, and runs only when it is named.
    example: bool,
    run: fn() -> Outcome,
}

/// Registers a test: `self_test!(claim N, harts N, quick, name)`; without `harts` one is enough, and `quick` means that the demo
/// runs it too. Other schedules are
/// not explored with an `unexplored` test: it demands one, or can run only once in a boot. An `example` is wrong on purpose, and runs
/// only when it is named. The host reads the same line from the image's `.manifest`.
macro_rules! self_test {
    (claim $claim:literal, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, 1, false, false, false, "-", $name);
    };
    (claim $claim:literal, quick, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, 1, true, false, false, "quick", $name);
    };
    (claim $claim:literal, harts $harts:literal, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, $harts, false, false, false, "-", $name);
    };
    (claim $claim:literal, icount, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, 1, false, true, false, "icount", $name);
    };
    (claim $claim:literal, unexplored, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, 1, false, false, false, "unexplored", $name);
    };
    (claim $claim:literal, harts $harts:literal, unexplored, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, $harts, false, false, false, "unexplored", $name);
    };
    (claim $claim:literal, example, $name:ident) => {
        $crate::selftest::self_test!(@ $claim, 1, false, false, true, "example", $name);
    };
    (@ $claim:literal, $harts:literal, $quick:literal, $icount:literal, $example:literal, $flags:literal, $name:ident) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".self_tests")]
            static TEST: $crate::selftest::SelfTest = $crate::selftest::SelfTest {
                name: concat!(module_path!(), "::", stringify!($name)),
                harts: $harts,
                quick: $quick,
                icount: $icount,
                example: $example,
                run: $name,
            };
            $crate::crash::manifest_line!(
                "test\t", module_path!(), "::", stringify!($name), "\t", $claim, "\t", $harts, "\t", $flags, "\t",
                file!(), ":", line!(), "\n"
            );
        };
    };
}

pub(crate) use {ensure, ensure_eq, self_test};

fn tests() -> &'static [SelfTest] {
    image::gathered!(SelfTest, __self_tests_start, __self_tests_end)
}

impl SelfTest {
    /// Whether it is among those that were asked for.
    fn is_chosen(&self, only: Only<'_>) -> bool {
        let name = short(self.name);
        let is_named = || only.patterns().is_some_and(|mut patterns| patterns.any(|it| it == name));
        only.admits(name) && (!self.example || is_named())
    }
}

/// What everybody calls a test: its path below `selftest`.
fn short(name: &'static str) -> &'static str {
    name.strip_prefix("kernel::selftest::").unwrap_or(name)
}

/// Names that no test has, said and counted.
fn unknown(only: Only<'_>) -> usize {
    let mut unknown = 0;
    for pattern in only.patterns().into_iter().flatten() {
        if !tests().iter().any(|test| command_line::matches(pattern, short(test.name))) {
            println!("no test is called '{pattern}'");
            unknown += 1;
        }
    }
    unknown
}

/// Runs the chosen tests and ends the run.
pub fn run(only: Only<'_>) -> ! {
    let unknown = unknown(only);
    let tally = run_those(|test| test.is_chosen(only));
    if tally.failed > 0 || unknown > 0 {
        exit::fail(Failure::Test, format_args!("{tally}"))
    }
    exit::pass(format_args!(": {tally}"))
}

/// Runs the chosen tests once for each seed, and ends the run, with the first that fails or with the last. Shows `places` at the end.
pub fn explore(only: Only<'_>, seeds: Range<u64>, places: bool) -> ! {
    if !explore::EXPLORES {
        exit::fail(Failure::Refused, format_args!("this build explores no schedules"))
    }
    if places {
        explore::places::count();
    }
    let unknown = unknown(only);
    let mut tally = Tally::default();
    'seeds: for seed in seeds {
        for test in tests().iter().filter(|test| test.is_chosen(only)) {
            let outcome = run_with(test, seed);
            print!("test {}@{seed} ... ", short(test.name));
            match &outcome {
                Ok(()) => println!("ok"),
                Err(ended) => println!("{ended}"),
            }
            tally.count(&outcome);
            if tally.failed > 0 {
                break 'seeds;
            }
        }
    }
    if places {
        explore::places::print();
    }
    if unknown > 0 || tally.failed > 0 {
        exit::fail(Failure::Test, format_args!("{tally}"))
    }
    exit::pass(format_args!(": {tally}"))
}

/// Runs a test with a seed. If it fails, says how many switches that forced, and what happened last.
fn run_with(test: &SelfTest, seed: u64) -> Outcome {
    // What was printed goes out with interrupts, and the clock may be anywhere between two ticks: the test begins in a silence, at a tick.
    while console::unsent() > 0 {
        timer::sleep(Duration::from_millis(1));
    }
    let mut explored = None;
    let outcome = run_as(test, |run| {
        timer::sleep_until(hart::of_this_cpu().timer.next_tick());
        explore::begin(seed);
        let outcome = run();
        explored = explore::end();
        outcome
    });
    if let (Err(Ended::Failed(_)), Some(explored)) = (&outcome, explored) {
        print!("{explored}\n{}", report::newest_events());
    }
    outcome
}

/// Every test's name.
pub fn names() -> impl Iterator<Item = &'static str> {
    tests().iter().map(|test| short(test.name))
}

/// Runs the tests of a name or a beginning of names, and goes on. Says how many failed; nothing where there is no such test.
pub fn run_matching(pattern: &str) -> Option<usize> {
    let is_meant = |test: &SelfTest| command_line::matches(pattern, short(test.name));
    tests().iter().any(is_meant).then(|| {
        let tally = run_those(is_meant);
        println!("{tally}");
        tally.failed
    })
}

/// Runs the quick tests, shows those that do not pass, and says how many failed.
pub fn run_quick() -> usize {
    let mut tally = Tally::default();
    for test in tests().iter().filter(|test| test.quick) {
        let outcome = run_one(test);
        if let Err(ended) = &outcome {
            println!("test {} ... {ended}", short(test.name));
        }
        tally.count(&outcome);
    }
    println!("self-tests   {tally}");
    tally.failed
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(Ended::Failed(_)) => self.failed += 1,
            Err(Ended::Skipped(_)) => self.skipped += 1,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Failed(reason) => write!(f, "FAILED: {reason}"),
            Ended::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

fn run_those(chosen: impl Fn(&SelfTest) -> bool) -> Tally {
    let mut tally = Tally::default();
    for test in tests().iter().filter(|test| chosen(test)) {
        print!("test {} ... ", short(test.name));
        let outcome = run_one(test);
        match &outcome {
            Ok(()) => println!("ok"),
            Err(ended) => println!("{ended}"),
        }
        let note = core::mem::take(&mut NOTE.lock().0);
        if !note.is_empty() {
            println!("  {note}");
        }
        tally.count(&outcome);
    }
    tally
}

fn run_one(test: &SelfTest) -> Outcome {
    run_as(test, |run| run())
}

/// Runs a test by `how`, if it can run here, and has it leave the machine as it was.
fn run_as(test: &SelfTest, how: impl FnOnce(fn() -> Outcome) -> Outcome) -> Outcome {
    if hart::all().count() < test.harts {
        return Err(Ended::Skipped("too few harts are up"));
    }
    if test.icount && !time_goes_with_instructions() {
        return Err(Ended::Skipped("time does not go with the instructions here"));
    }
    let before = Account::take();
    how(test.run)?;
    before.settle()
}

/// Whether the clock counts instructions (QEMU's `-icount shift=0`, one a nanosecond): the same loop then takes the same
/// instructions and their time, each time that no other hart had its turn within.
fn time_goes_with_instructions() -> bool {
    const LOOPS: usize = 16;
    if !probe::has_instruction_counter() {
        return false;
    }
    let _masked = crate::interrupts::mask();
    let loops = [(); LOOPS].map(|()| {
        let (instructions, ticks) = (instret::read64(), Instant::now().0);
        (0..10_000).for_each(|_| core::hint::spin_loop());
        (instret::read64() - instructions, Instant::now().0 - ticks)
    });
    let least = loops.iter().map(|&(instructions, _)| instructions).min();
    let tick = 1_000_000_000 / (timer::period() * timer::TICK_HERTZ);
    let exact = |&&(instructions, ticks): &&(u64, u64)| {
        // The clock may move on before the first instruction of a tick, or after the last.
        Some(instructions) == least && (ticks * tick).abs_diff(instructions) <= 2 * tick
    };
    loops.iter().filter(exact).count() >= LOOPS / 2
}

/// Runs `work` on every hart at once, each with its CPU number, and returns when all are done.
fn on_every_hart(work: fn(usize)) -> Outcome {
    let mut threads = ArrayVec::<JoinHandle<()>, { hart::MAX_CPUS }>::new();
    for hart in hart::all() {
        let cpu = hart.cpu();
        threads.push(spawned(thread::spawn_on(cpu, "on every hart", move || work(cpu.0)))?);
    }
    threads.into_iter().for_each(JoinHandle::join);
    Ok(())
}

/// Runs `work` on one hart, and gives its result.
fn on_hart<T: Send + 'static>(
    cpu: CpuNumber,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Ended> {
    Ok(spawned(thread::spawn_on(cpu, "on one hart", work))?.join())
}

/// A thread that a test cannot do without.
fn spawned<T>(outcome: Result<JoinHandle<T>, SpawnError>) -> Result<JoinHandle<T>, Ended> {
    outcome.map_err(|error| Ended::Failed(Reason::new(file!(), line!(), format_args!("{error}"))))
}

/// Numbers that look random and are the same in every run (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of `low..high`.
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() as usize) % (high - low)
    }
}
