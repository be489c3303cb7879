//! The lock checker's calls where there is no lock checker: nothing is kept, nothing is done.

use super::known::{Held, HeldMutex, Longest, Waiting};
use super::spin::SpinLock;
use crate::console;

/// Whether locks are checked in this build.
pub const CHECKS: bool = false;

/// What the checker keeps in a lock.
pub struct Tag;

impl Tag {
    /// Of a lock with this name.
    pub const fn new(_: &'static str) -> Tag {
        Tag
    }
}

macro_rules! nothing {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => { $(
        /// Nothing.
        #[inline(always)]
        pub fn $name($($argument: $type),*) { $(_ = $argument;)* }
    )* };
}

nothing! {
    about_to_wait(tag: &Tag, address: usize);
    taken(tag: &Tag, address: usize);
    released(tag: &Tag, address: usize);
    about_to_sleep(allowed: usize);
    about_to_switch(handed_over: usize);
    thread_exits(handed_over: usize);
    enter_interrupt();
    leave_interrupt();
    mutex_wanted(tag: &Tag, address: usize);
    mutex_taken(tag: &Tag, address: usize);
    mutex_released(tag: &Tag, address: usize);
}

/// The mutexes of a thread: not known here.
pub struct Mutexes;

impl Mutexes {
    /// None.
    pub const fn new() -> Mutexes {
        Mutexes
    }

    /// None.
    pub fn all(&self) -> impl Iterator<Item = HeldMutex> + use<> {
        core::iter::empty()
    }
}

/// The locks that are held: of the console's alone it can be told.
pub fn held() -> impl Iterator<Item = Held> {
    let is_locked = SpinLock::is_locked(&console::LINE);
    is_locked.then_some(Held { name: "console", holder: None }).into_iter()
}

/// The harts that wait for locks: not known here.
pub fn waiting() -> impl Iterator<Item = Waiting> {
    core::iter::empty()
}

/// How long locks were held at the most: not known here.
pub fn longest() -> impl Iterator<Item = Longest> {
    core::iter::empty()
}
