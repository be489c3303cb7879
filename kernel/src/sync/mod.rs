//! Locks.
//!
//! * [`SpinLock`]: for what handlers share with threads, and for what lasts a few instructions.
//! * [`checker`]: what checked builds know of the spin locks that are held, and in which order they were ever taken. Release builds
//!   have the same calls, and they do nothing.

#[cfg(feature = "checked")]
pub mod checker;
#[cfg(feature = "checked")]
pub mod order;
mod spin;
#[cfg(not(feature = "checked"))]
pub mod unchecked;

pub use self::spin::{SpinGuard, SpinLock};
#[cfg(not(feature = "checked"))]
pub use self::unchecked as checker;
