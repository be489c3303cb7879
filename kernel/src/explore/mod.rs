//! Exploring schedules: places where another thread may run, and a seed that decides whether one does.
//!
//! While a seed is explored, each hart draws numbers that are a function of the seed and of how often the hart has drawn. They decide
//! * at every [`schedule_point`], whether the thread here gives up its hart there and then;
//! * how long a thread runs until a timer interrupt takes it off ([`slice_end`]);
//! * which of the threads that are ready goes next ([`passed_over`]), and which hart that idles is told of one ([`pick`]);
//! * how late another hart is interrupted ([`delay`]).
//!
//! Under icount the same seed is the same run. Without a seed nothing is drawn, and in release builds all of this is empty.

pub mod places;

use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use crate::backtrace::{self, Step};
use crate::hart::Hart;
use crate::symbols::Named;
use crate::timer::{Instant, NEVER};
use crate::{hart, interrupts, sched, timer, trace};

/// A place where the schedule may legally change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Point {
    /// Interrupts were enabled again: a lock was released, or a mask dropped.
    InterruptsEnabled,
    /// A thread was woken.
    Wake,
    /// A thread was spawned.
    Spawn,
    /// Memory was probed.
    Probe,
}

/// Whether this build explores at all.
pub const EXPLORES: bool = cfg!(feature = "checked");

/// For how long a test may run with one seed, by the clock of the machine: longer is a hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lengths of slices: twice as long each, the shortest one tick of the timebase.
const SLICES: u64 = 17;

/// The seed, or 0.
static SEED: AtomicU64 = AtomicU64::new(0);
/// Forced switches so far with this seed.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// After so many forced switches nothing is drawn any more.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Where the last one was: a return address. 0 for a slice that was over.
static LAST: AtomicUsize = AtomicUsize::new(0);
/// When what is explored must have ended, in ticks of the timebase.
static DEADLINE: AtomicU64 = AtomicU64::new(NEVER);

/// Where a hart is in its row of random numbers. Its own.
pub struct Draws(AtomicU64);

impl Draws {
    /// Nothing drawn yet.
    pub const fn new() -> Draws {
        Draws(AtomicU64::new(0))
    }

    /// The next number (splitmix64): of this hart, for this seed.
    pub fn next(&self, seed: u64, cpu: usize) -> u64 {
        let step = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(step, Ordering::Relaxed);
        let mixed =
            step.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed ^ (cpu as u64) << 56);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Explores from this seed from now on, or no more where it is 0. Gives the seed before.
pub fn explore(seed: u64) -> u64 {
    SEED.swap(seed, Ordering::Relaxed)
}

/// Begins with a seed, as if nothing had been drawn before. What runs now must [`end`] it in time.
pub fn begin(seed: u64) {
    hart::all().for_each(|hart| hart.draws.0.store(0, Ordering::Relaxed));
    TAKEN.store(0, Ordering::Relaxed);
    DEADLINE.store(Instant::now().after(PATIENCE).0, Ordering::Relaxed);
    explore(seed);
    timer::begin_slice();
}

/// Ends with the seed that was begun. Gives what it did.
pub fn end() -> Option<Explored> {
    let explored = state();
    explore(0);
    DEADLINE.store(NEVER, Ordering::Relaxed);
    explored
}

/// Forces no more switches than that with a seed.
pub fn limit(switches: usize) {
    LIMIT.store(switches, Ordering::Relaxed);
}

/// What a seed did so far.
pub struct Explored {
    seed: u64,
    /// How many switches it forced.
    switches: usize,
    /// The place of the last; none where that was the end of a slice.
    last: Option<Step>,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "explored: seed {}, {} forced switches", self.seed, self.switches)?;
        match self.last {
            _ if self.switches == 0 => Ok(()),
            Some(place) => write!(f, ", the last at {}", Named(place)),
            None => f.write_str(", the last at the end of a slice"),
        }
    }
}

/// What is explored now, if anything.
pub fn state() -> Option<Explored> {
    let seed = SEED.load(Ordering::Relaxed);
    let last = Some(LAST.load(Ordering::Relaxed)).filter(|&last| last != 0);
    let switches = TAKEN.load(Ordering::Relaxed);
    (seed != 0).then(|| Explored { seed, switches, last: last.map(Step::ReturnTo) })
}

/// The next number of a hart, with interrupts masked on it, while a seed is explored.
#[inline]
fn draw(hart: &Hart) -> Option<u64> {
    let seed = if EXPLORES { SEED.load(Ordering::Relaxed) } else { 0 };
    if seed == 0 || TAKEN.load(Ordering::Relaxed) >= LIMIT.load(Ordering::Relaxed) {
        return None;
    }
    Some(hart.draws.next(seed, hart.cpu().0))
}

/// Counts a forced switch.
fn take(place: usize) {
    TAKEN.fetch_add(1, Ordering::Relaxed);
    LAST.store(place, Ordering::Relaxed);
}

/// Marks a place where another thread may run: if a seed says so, one does. Nothing happens where interrupts are off, where no tick
/// could come either, and in idle threads.
#[inline]
pub fn schedule_point(point: Point) {
    if EXPLORES && SEED.load(Ordering::Relaxed) != 0 {
        perhaps_yield(point);
    }
}

#[cold]
#[inline(never)]
fn perhaps_yield(point: Point) {
    if !interrupts::are_enabled() {
        return;
    }
    interrupts::disable();
    let hart = hart::of_this_cpu();
    let current = hart.current();
    // Giving up the hart comes to points of its own: they would lead to points without end.
    let is_free = hart.masks() == 0
        && current != hart.scheduling.idle()
        && !current.gives_up.load(Ordering::Relaxed);
    let mut gives_up = false;
    if is_free && !hart.scheduling.has_ready() {
        // Nobody to give way to: others come to be earlier, by comparison.
        delay(hart);
    } else if is_free && let Some(drawn) = draw(hart) {
        // Some seeds give up at nearly every point, others hardly ever.
        let one_in = 2 << (2 * (SEED.load(Ordering::Relaxed) % 4));
        gives_up = drawn.is_multiple_of(one_in);
        let place = backtrace::here().next().map_or(0, Step::address);
        places::visit(place, gives_up);
        if gives_up {
            take(place);
        }
    }
    interrupts::enable();
    if gives_up {
        current.gives_up.store(true, Ordering::Relaxed);
        trace::record(trace::Event::Point(point as u32));
        sched::yield_now();
        current.gives_up.store(false, Ordering::Relaxed);
    }
}

/// When the thread that runs on this hart from `now` on is to be taken off, in ticks of the timebase. Interrupts are masked.
pub fn slice_end(hart: &Hart, now: u64) -> u64 {
    draw(hart).map_or(NEVER, |drawn| {
        let length = 1 << (drawn % SLICES);
        now + length + (drawn >> 32) % length
    })
}

/// A slice is over.
pub fn slice_is_over() {
    if SEED.load(Ordering::Relaxed) != 0 {
        take(0);
    }
}

/// How many threads that are ready are passed over for the next one. Interrupts are masked.
pub fn passed_over(hart: &Hart) -> usize {
    draw(hart).map_or(0, |drawn| (drawn % 4) as usize)
}

/// Which of the harts in a mask that is not 0 is told of a thread, by CPU number.
pub fn pick(harts: usize) -> usize {
    let drawn = if EXPLORES { draw(interrupts::mask().hart()) } else { None };
    let left_out = drawn.map_or(0, |drawn| drawn as u32 % harts.count_ones());
    let left = (0..left_out).fold(harts, |harts, _| harts & (harts - 1));
    left.trailing_zeros() as usize
}

/// Holds up this hart, if others run: what it does next, such as to interrupt one of them, comes late. Interrupts are masked.
pub fn delay(hart: &Hart) {
    if hart::count() > 1
        && let Some(drawn) = draw(hart)
        && drawn.is_multiple_of(4)
    {
        (0..1 << (drawn >> 8 & 7)).for_each(|_: u32| core::hint::spin_loop());
    }
}

/// When what is explored must have ended, in ticks of the timebase.
pub fn deadline() -> u64 {
    if EXPLORES { DEADLINE.load(Ordering::Relaxed) } else { NEVER }
}

/// Crashes if what is explored has not ended in time: with the report of a crash, which shows what every thread waits for.
pub fn watch(now: u64) {
    if EXPLORES && now >= deadline() {
        DEADLINE.store(NEVER, Ordering::Relaxed);
        let seed = SEED.load(Ordering::Relaxed);
        panic!("what seed {seed} explores has not ended after {} s", PATIENCE.as_secs());
    }
}
