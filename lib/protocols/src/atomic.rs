//! The atomics that the ring is made of, in one place: the model checker puts its own here.

pub use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
