//! Memory that a test of running out of it does without. On a large machine that is all but a sample: the host that plays the machine
//! may not have as much.

use alloc::vec::Vec;

use ::frames::FrameNumber;

use super::{Ended, ensure};
use crate::frame::{self, untouched};
use crate::vm::PAGE;

/// Frames of a machine on which all of it is used.
const ALL: usize = (1 << 30) / PAGE;
/// Frames that are held together, of most of a larger machine.
const LARGE: usize = (16 << 20) / PAGE;
/// Frames that are held together where hardly any are left.
const SMALL: usize = (2 << 20) / PAGE;
/// Large pieces that are left on a larger machine, from all over its memory.
const LEFT: usize = 16;

/// Frames that nobody can have while it lives. Nothing is written to them.
pub struct Held {
    piece: usize,
    firsts: Vec<FrameNumber>,
}

/// On a machine with more than a GiB, holds all but 256 MiB of it, and what is in no whole piece.
pub fn all_but_a_sample() -> Result<Held, Ended> {
    if frame::statistics().free <= ALL {
        return Ok(Held { piece: LARGE, firsts: Vec::new() });
    }
    let mut held = Held::in_pieces(LARGE)?;
    let step = (held.firsts.len() / LEFT).max(1);
    for number in (0..LEFT).rev() {
        if number * step < held.firsts.len() {
            let first = held.firsts.remove(number * step);
            held.give(first);
        }
    }
    Ok(held)
}

/// Holds all memory but what is in no whole piece of 2 MiB: the rest is soon used up.
pub fn nearly_all() -> Result<Held, Ended> {
    Held::in_pieces(SMALL)
}

impl Held {
    fn in_pieces(piece: usize) -> Result<Held, Ended> {
        let mut held = Held { piece, firsts: Vec::new() };
        let pieces = frame::statistics().free / piece;
        ensure!(held.firsts.try_reserve(pieces).is_ok(), "no memory for a list");
        while held.firsts.len() < held.firsts.capacity()
            && let Some(first) = untouched::allocate_run(piece)
        {
            held.firsts.push(first);
        }
        Ok(held)
    }

    fn give(&self, first: FrameNumber) {
        untouched::free_run(first, self.piece).expect("it was allocated here");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.firsts.iter().for_each(|first| self.give(*first));
    }
}
