//! Which frames of physical memory are free: a bitmap, shared by all harts without a lock.
//!
//! [`Setup`] learns what memory there is; [`Setup::finish`] makes [`Frames`], which gives frames out and takes them back, one by
//! one or in runs. A hart has a [`Cache`] of its own.
//!
//! A frame in a bank is in one of three states ([`State`]): *reserved*, for good; *free*: its bit in the bitmap is set; *in use*.
//! That one bit decides, changed by one atomic instruction: of two harts that take the same frame, or free it, one succeeds, and
//! a double free is found whenever and on whichever hart it happens. Nothing else is trusted:
//! - A [`Cache`] holds no frames. It holds *hints*: frames that were free a moment ago. A wrong hint costs a few instructions.
//!   So nothing is drained when memory runs out, and any hart may use any cache at any time, with interrupts masked or not.
//! - The *summary*, three levels with a bit for each word below that has a free frame, leads a search past memory that is full.
//!   It may lag behind while a hart is in the middle of a call; so every word is looked at before memory is said to be exhausted.
//!
//! What it costs: an allocation or a free touches at most a fixed number of words, however large, full or fragmented memory is. An
//! allocation that fails looks at all words, 64 frames each; a run at those with a free frame.
//!
//! The state lies in storage that the caller brings ([`words_needed`]): a byte for four frames, holes between banks included.

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
pub use error::{FreeError, StorageTooSmall};
pub use frame::{FRAME_BYTES, FrameNumber, FrameRange};
pub use frames::{Frames, State, Statistics};
pub use setup::{Setup, words_needed};

/// Counts the words that calls touch, for the tests.
#[inline(always)]
fn touch() {
    #[cfg(test)]
    tests::count_touch();
}
