//! Backtraces: along the frame pointers, through traps into the code they interrupted.
//!
//! A function keeps its caller's frame pointer at fp-16 and its return address at fp-8 (psABI); the trap frame ends in the same
//! two words. Every read is a probe, so a broken chain ends the walk instead of the report.
//!
//! [`above`] and [`here`] begin a [`Walk`], whose [`Step`]s say whether an address is a return or the instruction itself; [`Folded`] counts
//! those that repeat. A walk takes no lock, allocates nothing and ends: at a zero frame pointer, at a fault, or after 4,096 steps.

use core::arch::asm;
use core::iter::Peekable;

use crate::{probe, trap};

/// Steps of a walk at the most: a chain that loops must end.
const STEPS: usize = 4096;

/// One step of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Interrupted here, or the place the walk begins at: the instruction itself.
    At(usize),
    /// A call that returns here.
    ReturnTo(usize),
}

impl Step {
    /// The address.
    pub fn address(self) -> usize {
        match self {
            Step::At(address) | Step::ReturnTo(address) => address,
        }
    }
}

/// A walk up the calls.
pub struct Walk {
    frame_pointer: usize,
    last: Option<Step>,
    steps: usize,
}

/// Walks up from the function whose frame pointer is `frame_pointer`, its caller first.
pub fn above(frame_pointer: usize) -> Walk {
    Walk { frame_pointer, last: None, steps: 0 }
}

/// Walks up from the function this is called in, its caller first.
#[inline(always)]
pub fn here() -> Walk {
    let frame_pointer: usize;
    // SAFETY: reads a register. Not `nomem` and not `pure`: it is this function's own frame pointer that is asked for.
    unsafe { asm!("mv {}, s0", out(reg) frame_pointer) };
    above(frame_pointer)
}

impl Walk {
    /// The frame pointer that the walk has come to: zero once it has reached the entry.
    pub fn frame_pointer(&self) -> usize {
        self.frame_pointer
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let frame_pointer = self.frame_pointer;
        if frame_pointer == 0 || !frame_pointer.is_multiple_of(8) || self.steps == STEPS {
            return None;
        }
        self.steps += 1;
        let return_address = probe::read(frame_pointer.wrapping_sub(8)).ok()? as usize;
        self.frame_pointer = probe::read(frame_pointer.wrapping_sub(16)).ok()? as usize;
        if return_address == 0 {
            return None;
        }
        let through_trap = self.last.is_some_and(|last| trap::is_return_to_vector(last.address()));
        let step =
            if through_trap { Step::At(return_address) } else { Step::ReturnTo(return_address) };
        self.last = Some(step);
        Some(step)
    }
}

/// Steps with those that repeat counted: each with how many times it came again right after.
pub struct Folded<I: Iterator<Item = Step>>(Peekable<I>);

impl<I: Iterator<Item = Step>> Folded<I> {
    /// Folds `steps`.
    pub fn new(steps: I) -> Self {
        Folded(steps.peekable())
    }
}

impl<I: Iterator<Item = Step>> Iterator for Folded<I> {
    type Item = (Step, usize);

    fn next(&mut self) -> Option<(Step, usize)> {
        let step = self.0.next()?;
        let mut repeated = 0;
        while self.0.next_if_eq(&step).is_some() {
            repeated += 1;
        }
        Some((step, repeated))
    }
}
