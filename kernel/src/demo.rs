//! The demo: threads at work on every hart, and what they did.
//!
//! Workers share a mutex and are preempted; a producer and two consumers share a channel. What they count must come out exact.
//!
//! [`run`] spawns, joins and prints; it returns with nothing left behind, and what it needs of the kernel any thread could use.

use core::hint::black_box;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrayvec::ArrayVec;

use crate::console::println;
use crate::hart::{self, Hart, MAX_CPUS};
use crate::interrupts;
use crate::sync::{Channel, Mutex, checker};
use crate::thread::{self, JoinHandle, SpawnError, ThreadRef};
use crate::timer::{self, Instant};

/// Threads of the demo at the most: a worker a hart, or two where there is one, and three at the channel.
const THREADS: usize = MAX_CPUS + 4;

/// How often each worker adds to the tally.
const ADDITIONS: usize = 2_000;
/// What it does in between: iterations of a few instructions each.
const WORK: usize = 8_000;

/// Values that go through the channel.
const VALUES: usize = 5_000;
/// What tells a consumer that no more come.
const END: usize = usize::MAX;

static TALLY: Mutex<usize> = Mutex::new("tally", 0);
static CHANNEL: Channel<usize, 16> = Channel::new();
static CONSUMED: AtomicUsize = AtomicUsize::new(0);

/// What one thread did.
struct Done {
    name: &'static str,
    microseconds: u64,
    switches: usize,
    preemptions: usize,
    harts: usize,
}

/// Lets them work and shows what they did.
///
/// # Errors
/// What is wrong, if a tally is not exact or a thread cannot be spawned.
pub fn run() -> Result<(), Failure> {
    let begun = Instant::now();
    let idle_before = hart::all().map(idle_ticks).collect::<ArrayVec<u64, MAX_CPUS>>();
    let workers = hart::all().count().max(2);
    let mut threads = ArrayVec::<JoinHandle<Done>, THREADS>::new();
    for _ in 0..workers {
        threads.push(thread::spawn("worker", || done_after(work))?);
    }
    threads.push(thread::spawn("producer", || done_after(produce))?);
    for _ in 0..2 {
        threads.push(thread::spawn("consumer", || done_after(consume))?);
    }
    println!("\nthread          time  switches  preempted  on harts");
    for thread in threads {
        let done = thread.join();
        let Done { name, microseconds, switches, preemptions, .. } = done;
        println!(
            "{name:10} {:>6}.{} ms {switches:>9} {preemptions:>10}  {}",
            microseconds / 1000,
            microseconds / 100 % 10,
            Cpus(done.harts)
        );
    }
    let elapsed = Instant::now().0 - begun.0;
    println!("\nhart          idle     ticks  interrupts from others  stolen");
    for (hart, before) in hart::all().zip(idle_before) {
        let idle = (idle_ticks(hart) - before) * 100 / elapsed.max(1);
        let ticks = hart.timer.ticks.load(Relaxed);
        let ipis = hart.ipis.load(Relaxed);
        let steals = hart.scheduling.steals.load(Relaxed);
        println!("{:<10} {idle:>5} % {ticks:>9} {ipis:>23} {steals:>7}", hart.cpu().0);
    }
    let (tally, expected) = (*TALLY.lock(), workers * ADDITIONS);
    let (consumed, produced) = (CONSUMED.load(Relaxed), (0..VALUES).sum::<usize>());
    println!(
        "\ntally        {tally} of {expected} under a mutex; values through the channel add up to {consumed} of {produced}"
    );
    // In checked builds the checks themselves count.
    if let Some((_, longest)) = interrupts::longest_off().filter(|_| !checker::CHECKS) {
        println!("masked       {longest}, at the most");
    }
    if (tally, consumed) == (expected, produced) { Ok(()) } else { Err(Failure::Tally) }
}

/// Why the demo failed.
pub enum Failure {
    /// A thread cannot be spawned.
    Spawn(SpawnError),
    /// A tally is not exact.
    Tally,
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        Failure::Spawn(error)
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Failure::Spawn(error) => write!(f, "the demo: {error}"),
            Failure::Tally => f.write_str("the demo: a tally is not exact"),
        }
    }
}

fn work() {
    for round in 0..ADDITIONS {
        let mut mixed = round;
        for _ in 0..WORK {
            mixed = black_box(mixed.wrapping_mul(0x9e37_79b9) ^ mixed >> 7);
        }
        *TALLY.lock() += 1;
    }
}

fn produce() {
    (0..VALUES).chain([END, END]).for_each(|value| CHANNEL.send(value));
}

fn consume() {
    loop {
        match CHANNEL.receive() {
            END => break,
            value => _ = CONSUMED.fetch_add(value, Relaxed),
        }
    }
}

/// What the thread here has done when `body` is through.
fn done_after(body: fn()) -> Done {
    body();
    let thread: ThreadRef = thread::current();
    let counts = &thread.counts;
    Done {
        name: thread.name(),
        microseconds: timer::microseconds(thread.run_time()),
        switches: counts.switches.load(Relaxed),
        preemptions: counts.preemptions.load(Relaxed),
        harts: counts.harts.load(Relaxed),
    }
}

/// For how long a hart has idled.
fn idle_ticks(hart: &'static Hart) -> u64 {
    hart.scheduling.idle().run_time()
}

/// CPU numbers, a bit each.
struct Cpus(usize);

impl core::fmt::Display for Cpus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut cpus = (0..MAX_CPUS).filter(|cpu| self.0 & 1 << cpu != 0);
        let mut separator = "";
        cpus.try_for_each(|cpu| write!(f, "{}{cpu}", mem::replace(&mut separator, " ")))
    }
}
