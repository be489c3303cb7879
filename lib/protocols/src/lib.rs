//! Protocols between harts, small enough to be checked exhaustively, and compiled into the kernel from this source.
//!
//! * [`Arrival`]: a hart that was started arrives, or is given up; never both.
//! * [`Ring`]: bytes from one side to another, none lost, doubled or out of order.
#![no_std]
#![forbid(unsafe_code)]

mod arrival;
mod atomic;
mod ring;

pub use arrival::Arrival;
pub use ring::Ring;

use atomic::{AtomicU8, AtomicUsize};

impl<const N: usize> Ring<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        Ring::of(
            [const { AtomicU8::new(0) }; N],
            const { AtomicUsize::new(0) },
            const { AtomicUsize::new(0) },
        )
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}
