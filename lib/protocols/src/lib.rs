//! Protocols between harts, small enough to be checked exhaustively, and compiled into the kernel from this source.
//!
//! * [`Mailbox`]: one hart asks another to call a function, and learns when it has.
//! * [`Arrival`]: a hart that was started arrives, or is given up; never both.
#![no_std]
#![forbid(unsafe_code)]

mod arrival;
mod mailbox;

pub use arrival::Arrival;
pub use mailbox::{Letter, Mailbox};
