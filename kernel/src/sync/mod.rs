//! Locks: spin locks, which mask interrupts, and what is made of them for threads that sleep.
//!
//! * [`SpinLock`]: short; everywhere, in interrupt handlers too.
//! * [`Mutex`], [`Condition`], [`Channel`]: for threads; who waits sleeps. Never with a spin lock held.

mod channel;
mod condition;
mod mutex;
mod spin;

pub use self::channel::Channel;
pub use self::condition::Condition;
pub use self::mutex::Mutex;
pub use self::spin::{SpinGuard, SpinLock};
