//! Locks.

mod spin;

pub use self::spin::{SpinGuard, SpinLock};
