//! The [`Meter`]: counts the instructions of an operation by the hart's own counter.
//!
//! The counter is read before and after each operation by itself, so a loop around it and what keeps its results cost nothing.
//! What lies between the two reads when there is no operation (one instruction, the second read) is found out the same way, with
//! an operation that does nothing, and subtracted.
//!
//! An operation is compiled into its measurement as into any caller of it: what the compiler makes part of the caller counts
//! without a call, and what it needs to do only once for all repetitions, such as loading an address, counts not at all.

use core::arch::asm;
use core::fmt;
use core::hint::black_box;
use core::sync::atomic::Ordering;

use super::Summary;
use crate::probe;
use crate::{hart, interrupts};

/// How often [`Meter::each`] measures.
pub const REPETITIONS: usize = 1_000;

/// Counts instructions, and remembers sum and extremes of what it was given.
#[derive(Clone)]
pub struct Meter {
    /// Instructions counted for an operation that does nothing.
    empty: u64,
    count: u64,
    sum: u64,
    least: u64,
    greatest: u64,
    /// How often the other harts had woken when it began to remember.
    elsewhere: usize,
}

/// Why there is no meter.
pub enum Uncounted {
    /// Reading the counter is an illegal instruction here.
    NoCounter,
    /// The same instructions gave two counts.
    Inexact { least: u64, greatest: u64 },
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uncounted::NoCounter => f.write_str("rdinstret is an illegal instruction on this hart"),
            Uncounted::Inexact { least, greatest } => write!(
                f,
                "rdinstret counts something else than instructions, from {least} to {greatest} of it for the same ones; \
                 QEMU needs -icount shift=0 (cargo run -- run --icount)"
            ),
        }
    }
}

impl Meter {
    /// A meter that knows its own cost.
    ///
    /// # Errors
    /// If this hart has no counter, or one that is not exact.
    pub fn calibrate() -> Result<Meter, Uncounted> {
        if !probe::has_instruction_counter() {
            return Err(Uncounted::NoCounter);
        }
        let mut meter =
            Meter { empty: 0, count: 0, sum: 0, least: u64::MAX, greatest: 0, elsewhere: 0 };
        meter.each(|| ());
        let Meter { least, greatest, .. } = meter;
        if least != greatest {
            return Err(Uncounted::Inexact { least, greatest });
        }
        meter.forget();
        Ok(Meter { empty: least, ..meter })
    }

    /// Measures an operation again and again: a row of its own. What is done with its results does not count.
    pub fn each<R>(&mut self, mut operation: impl FnMut() -> R) {
        self.rounds(REPETITIONS, |meter| _ = black_box(meter.time(&mut operation)));
    }

    /// Calls `round` `count` times, and once before that to warm up, of which nothing is remembered.
    pub fn rounds(&mut self, count: usize, mut round: impl FnMut(&mut Meter)) {
        round(self);
        self.forget();
        (0..count).for_each(|_| round(self));
    }

    /// Measures an operation once.
    #[inline(always)]
    pub fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let (result, instructions) = self.count(operation);
        self.add(instructions);
        result
    }

    /// The instructions of an operation, without remembering them.
    #[inline(always)]
    pub fn count<R>(&self, operation: impl FnOnce() -> R) -> (R, u64) {
        let before = instructions();
        let result = operation();
        (result, self.since(before))
    }

    /// The instructions since `before`, which [`instructions`] gave: for what begins in one place, or one thread, and ends in
    /// another.
    #[inline(always)]
    pub fn since(&self, before: u64) -> u64 {
        instructions() - before - self.empty
    }

    /// Remembers a count.
    pub fn add(&mut self, instructions: u64) {
        self.count += 1;
        self.sum += instructions;
        self.least = self.least.min(instructions);
        self.greatest = self.greatest.max(instructions);
    }

    // Apart, so that what is measured is compiled as if it were not there.
    #[inline(never)]
    fn forget(&mut self) {
        let (least, elsewhere) = (u64::MAX, wakeups_elsewhere());
        *self = Meter { empty: self.empty, count: 0, sum: 0, least, greatest: 0, elsewhere };
    }

    /// Whether another hart ran since the first round, so that its instructions may be among those counted.
    pub fn others_ran(&self) -> bool {
        self.elsewhere != wakeups_elsewhere()
    }

    /// What it remembers; nothing where it was given nothing.
    pub fn summary(&self) -> Option<Summary> {
        let mean_tenths = (self.sum * 10 + self.count / 2).checked_div(self.count)?;
        Some(Summary { mean_tenths, least: self.least, greatest: self.greatest })
    }
}

/// How often the other harts have woken from idling so far.
fn wakeups_elsewhere() -> usize {
    let here = interrupts::mask().hart().cpu();
    let others = hart::all().filter(|hart| hart.cpu() != here);
    others.map(|hart| hart.timer.wakeups.load(Ordering::Relaxed)).sum()
}

/// Instructions that were retired since the machine started, on all harts together.
#[inline(always)]
pub fn instructions() -> u64 {
    let count: u64;
    // SAFETY: reads a counter, which `calibrate` has found there. Neither `pure` nor `nomem`: what is measured stays between two
    // reads.
    unsafe { asm!("rdinstret {}", out(reg) count, options(nostack, preserves_flags)) };
    count
}
