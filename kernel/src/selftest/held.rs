//! Memory that a test of running out of it does without: on a large machine, all but a sample. The host that plays the machine may
//! not have as much.

use alloc::vec::Vec;

use ::frames::FrameNumber;

use super::{Ended, ensure};
use crate::frame::{self, untouched};
use crate::vm::PAGE;

/// Frames of a machine on which all of it is used.
const ALL: usize = (1 << 30) / PAGE;
/// Frames that are held together.
const PIECE: usize = (16 << 20) / PAGE;
/// Pieces that are left on a larger machine, from all over its memory.
const LEFT: usize = 16;

/// Frames that nobody can have while it lives. Nothing is written to them.
pub struct Held(Vec<FrameNumber>);

/// On a machine with more than a GiB, holds all but 256 MiB of it, and what is in no whole piece.
pub fn all_but_a_sample() -> Result<Held, Ended> {
    let mut held = Held(Vec::new());
    let free = frame::statistics().free;
    if free <= ALL {
        return Ok(held);
    }
    ensure!(held.0.try_reserve(free / PIECE).is_ok(), "no memory for a list");
    while held.0.len() < held.0.capacity()
        && let Some(first) = untouched::allocate_run(PIECE)
    {
        held.0.push(first);
    }
    let step = (held.0.len() / LEFT).max(1);
    for number in (0..LEFT).rev() {
        if number * step < held.0.len() {
            give(held.0.remove(number * step));
        }
    }
    Ok(held)
}

fn give(first: FrameNumber) {
    untouched::free_run(first, PIECE).expect("it was allocated here");
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.drain(..).for_each(give);
    }
}
