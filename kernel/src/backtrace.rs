//! Backtraces: along the frame pointers, through traps into the code they interrupted.
//!
//! A function keeps its caller's frame pointer at fp-16 and its return address at fp-8 (psABI); the trap frame ends in the same
//! two words. Every read is a probe, so a broken chain ends the walk instead of the report.

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

/// A walk from `pc`, in a function whose frame pointer is `frame_pointer`.
pub struct Walk {
    next: Option<Step>,
    frame_pointer: usize,
    steps: usize,
}

impl Walk {
    /// Begins at an instruction and its frame pointer.
    pub fn new(pc: usize, frame_pointer: usize) -> Walk {
        Walk { next: Some(Step::At(pc)), frame_pointer, steps: 0 }
    }

    /// Begins at the caller of the function whose frame pointer is `frame_pointer`.
    pub fn above(frame_pointer: usize) -> Walk {
        let mut walk = Walk { next: None, frame_pointer, steps: 0 };
        walk.next = walk.follow(Step::ReturnTo(0));
        walk
    }

    /// The frame pointer that the walk has come to: zero once it has reached the entry.
    pub fn frame_pointer(&self) -> usize {
        self.frame_pointer
    }

    fn follow(&mut self, from: Step) -> Option<Step> {
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
        let through_trap =
            matches!(from, Step::ReturnTo(address) if trap::is_return_to_vector(address));
        Some(if through_trap { Step::At(return_address) } else { Step::ReturnTo(return_address) })
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = self.next?;
        self.next = self.follow(step);
        Some(step)
    }
}
