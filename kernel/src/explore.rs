//! Exploring schedules: places where another thread may run, and a seed that decides whether one does.
//!
//! With `seed=N` on the command line of a checked build, each hart draws at every [`schedule_point`] whether the thread here gives
//! up its hart there and then. What is drawn is a function of the seed and of how often the hart came to a point, so under icount the
//! same seed is the same run. Without a seed, and in release builds, a point does nothing.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{hart, interrupts, sched, trace};

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
}

/// One point in so many takes the thread off its hart.
const ONE_IN: u64 = 4;

/// The seed, or 0.
static SEED: AtomicU64 = AtomicU64::new(0);

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

/// Whether this build explores at all.
pub const EXPLORES: bool = cfg!(feature = "checked");

/// Marks a place where another thread may run: if a seed says so, one does. Nothing happens where interrupts are off, where no tick
/// could come either, and in idle threads.
#[inline]
pub fn schedule_point(point: Point) {
    if EXPLORES && SEED.load(Ordering::Relaxed) != 0 {
        perhaps_yield(point);
    }
}

#[cold]
fn perhaps_yield(point: Point) {
    if !interrupts::are_enabled() {
        return;
    }
    let seed = SEED.load(Ordering::Relaxed);
    interrupts::disable();
    let hart = hart::of_this_cpu();
    let is_free = hart.masks() == 0 && hart.current() != hart.scheduling.idle();
    let gives_up = is_free && hart.draws.next(seed, hart.cpu().0).is_multiple_of(ONE_IN);
    interrupts::enable();
    if gives_up {
        trace::record(trace::Event::Point(point as u32));
        sched::yield_now();
    }
}
