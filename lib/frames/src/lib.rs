//! Which frames of physical memory are free: a bitmap over every bank, shared by all harts without a lock.
//!
//! [`Setup`] takes the banks and learns what of them may be used; [`Setup::finish`] makes [`Frames`], which gives frames out
//! and takes them back, one by one or in runs. A hart has a [`Cache`] of its own.
//!
//! A frame is in one of three states ([`State`]):
//! - *reserved*, for good: never given out, and freeing it is an error;
//! - *free*: its bit in the bitmap is set;
//! - *in use*: usable, and its bit is clear.
//!
//! What decides is that one bit, changed by one atomic instruction, so that of two harts which take the same frame, or free it,
//! exactly one succeeds: a double free is found whenever and on whichever hart it happens. Nothing else is ever trusted:
//! - A [`Cache`] holds no frames. It holds *hints*: frames that were free a moment ago. A hint that has become wrong costs a
//!   few instructions. So nothing has to be drained when memory runs out, and a cache may be used by anyone at any time, also
//!   without masking interrupts.
//! - The summary, three levels of bitmaps with a bit for each word below that has a free frame, leads a search past memory that
//!   is full. It may lag behind for as long as a hart is in the middle of a call; so before memory is said to be exhausted,
//!   every word is looked at.
//!
//! What it costs: an allocation or a free touches at most a fixed number of words, however large, full or fragmented memory is.
//! A failed allocation looks at every word (64 frames each) once, a run ([`Frames::allocate_run`]) at those with a free frame.
//!
//! The state lies in storage that the caller brings: [`words_needed`] says how much, about one byte for four frames.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod atomic;
mod bitmap;
mod cache;
mod error;
mod frame;
mod frames;
mod run;
mod setup;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use error::{FreeError, SetupError};
pub use frame::{FRAME_BYTES, FrameNumber, FrameRange};
pub use frames::{Frames, State, Statistics};
pub use setup::{Setup, words_needed};

/// Counts the words that the tests' searches touch.
#[inline(always)]
fn touch() {
    #[cfg(test)]
    tests::count_touch();
}
