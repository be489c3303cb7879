//! Locks.

mod spin;

pub use self::spin::SpinLock;
