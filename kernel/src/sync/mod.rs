//! Locks: spin locks, which mask interrupts, and what is made of them for threads that sleep.
//!
//! * [`SpinLock`]: for what handlers share with threads, and for what lasts a few instructions.
//! * [`Mutex`], [`Condition`], [`Channel`]: for threads; who waits sleeps. Never with a spin lock held.
//! * [`known`]: what can be told of locks, for people.
//! * [`checker`]: what checked builds know of the spin locks that are held, and in which order they were ever taken. Release builds
//!   have the same calls, and they do nothing.

mod channel;
#[cfg(feature = "checked")]
pub mod checker;
mod condition;
pub mod known;
mod mutex;
#[cfg(feature = "checked")]
pub mod order;
mod spin;
#[cfg(not(feature = "checked"))]
pub mod unchecked;

pub use self::channel::Channel;
pub use self::condition::Condition;
pub use self::mutex::Mutex;
pub use self::spin::{SpinGuard, SpinLock};
#[cfg(not(feature = "checked"))]
pub use self::unchecked as checker;
