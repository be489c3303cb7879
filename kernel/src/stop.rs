//! Stopping the other harts, so that a crash report describes a machine that stands still.
//!
//! The hart that reports asks once and interrupts the others. One that takes the interrupt, or waits with interrupts off and looks
//! ([`if_asked`]), writes down where it was and parks.
//!
//! A hart's [`Note`] is written by itself and read by the one that reports. [`others`] waits two seconds of the timebase at the most: one that has
//! not answered is listed as such.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use riscv::register::time;

use crate::backtrace::{self, Step};
use crate::hart::{self, Hart};
use crate::{boot, platform, sbi};

/// How long the others are waited for, in seconds of the timebase. Under icount a full turn of all harts takes a tenth.
const PATIENCE_SECONDS: u64 = 2;

static ASKED: AtomicBool = AtomicBool::new(false);

/// How a hart came to stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum How {
    /// It has not stopped.
    NotAnswering,
    /// It writes the report.
    Reports,
    /// It was interrupted.
    Interrupted,
    /// It waited with interrupts off.
    Waiting,
    /// It came to an end of its own, and another was first.
    AtItsOwnEnd,
    /// It crashed too, and another was first.
    AtItsOwnCrash,
}

impl How {
    const ALL: [How; 6] = [
        How::NotAnswering,
        How::Reports,
        How::Interrupted,
        How::Waiting,
        How::AtItsOwnEnd,
        How::AtItsOwnCrash,
    ];

    /// As the report says it.
    pub fn words(self) -> &'static str {
        match self {
            How::NotAnswering => "not answering",
            How::Reports => "reports this",
            How::Interrupted => "stopped",
            How::Waiting => "waiting",
            How::AtItsOwnEnd => "ending the run too",
            How::AtItsOwnCrash => "crashed too",
        }
    }
}

/// Where a hart stands still.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// How it came to.
    pub how: How,
    /// What it was executing, where it said so.
    pub at: Option<Step>,
}

/// A hart's note of where it stopped: written by itself, read by the hart that reports.
pub struct Note {
    how: AtomicUsize,
    address: AtomicUsize,
}

impl Note {
    /// Of a hart that runs.
    pub const fn new() -> Note {
        Note { how: AtomicUsize::new(How::NotAnswering as usize), address: AtomicUsize::new(0) }
    }

    fn set(&self, how: How, address: usize) {
        self.address.store(address, Ordering::Relaxed);
        // Release: who sees that it stopped sees where.
        self.how.store(how as usize, Ordering::Release);
    }

    /// What it says now.
    pub fn get(&self) -> Stop {
        let how = How::ALL[self.how.load(Ordering::Acquire)];
        let address = self.address.load(Ordering::Relaxed);
        let at = match how {
            How::NotAnswering | How::Reports => None,
            How::Interrupted | How::AtItsOwnCrash => Some(Step::At(address)),
            How::Waiting | How::AtItsOwnEnd => Some(Step::ReturnTo(address)),
        };
        Stop { how, at }
    }
}

/// Stops every hart but this one, as far as they answer.
pub fn others(this: &Hart) {
    this.stop.set(How::Reports, 0);
    // Release: who is asked sees the crash as decided.
    ASKED.store(true, Ordering::Release);
    let others = || hart::all().filter(|hart| !core::ptr::eq(*hart, this));
    for hart in others() {
        // One that cannot be interrupted does not answer, and the report says so.
        let _ = sbi::send_ipi(hart.id());
    }
    let Some(machine) = platform::machine() else { return };
    let patience = machine.timebase.get().saturating_mul(PATIENCE_SECONDS);
    let asked_at = time::read64();
    while others().any(|hart| hart.stop.get().how == How::NotAnswering)
        && time::read64().wrapping_sub(asked_at) < patience
    {
        core::hint::spin_loop();
    }
}

/// Stops this hart for good if that was asked: what an interrupted hart does at `pc`.
pub fn if_asked_at(pc: usize) {
    if ASKED.load(Ordering::Acquire) {
        here(How::Interrupted, pc);
    }
}

/// Stops this hart for good if that was asked: looked at by whoever waits with interrupts off.
#[inline]
pub fn if_asked() {
    if ASKED.load(Ordering::Relaxed) {
        wait_here();
    }
}

/// Stops where the caller is.
#[cold]
#[inline(never)]
fn wait_here() -> ! {
    here(How::Waiting, backtrace::here().next().map_or(0, Step::address))
}

/// Stops this hart for good.
pub fn here(how: How, address: usize) -> ! {
    crate::interrupts::disable();
    hart::of_this_cpu().stop.set(how, address);
    boot::park()
}
