//! Protocols between harts, small enough to be checked exhaustively, and compiled into the kernel from this source.
//!
//! * [`Arrival`]: a hart that was started arrives, or is given up; never both.
#![no_std]
#![forbid(unsafe_code)]

mod arrival;

pub use arrival::Arrival;
