//! The atomics that the crate is made of, in one place: the model checker puts its own here.

pub use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
