//! A mutex: who does not get it sleeps.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use scheduler::Queue;

use super::SpinLock;
use super::checker::{self, Tag};
use crate::sched;
use crate::thread::ThreadRef;

/// Data that one thread at a time may touch, for as long as it likes. May sleep; not for interrupt handlers, and not to be taken
/// with a spin lock held.
///
/// The guard stays with the thread that took it: checked builds list what each thread holds.
pub struct Mutex<T> {
    tag: Tag,
    state: SpinLock<State>,
    data: UnsafeCell<T>,
}

struct State {
    is_held: bool,
    waiters: Queue<ThreadRef>,
}

// SAFETY: the guard gives `&mut T` to one thread at a time (invariant LOCK-1), so `T` only ever moves between threads.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Proof that the mutex is held; gives it to the thread that has waited longest when dropped.
#[must_use]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Not for another thread.
    _thread: PhantomData<*const ()>,
}

impl<T> Mutex<T> {
    /// A free mutex around `data`. Checked builds keep the name.
    pub const fn new(name: &'static str, data: T) -> Self {
        let state = State { is_held: false, waiters: Queue::new() };
        Mutex {
            tag: Tag::new(name),
            state: SpinLock::new("mutex", state),
            data: UnsafeCell::new(data),
        }
    }

    /// Waits until the mutex is free and takes it. First come, first served. Sleeps.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        checker::mutex_wanted(&self.tag, self.state.address());
        let mut state = self.state.lock();
        if state.is_held {
            let current = state.masked().hart().current();
            state.waiters.push(current);
            // Whoever gives it back gives it to this thread: it stays held.
            sched::block(state);
        } else {
            state.is_held = true;
            drop(state);
        }
        self.taken()
    }

    /// Takes the mutex if nobody has it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let was_held = core::mem::replace(&mut self.state.lock().is_held, true);
        if was_held { None } else { Some(self.taken()) }
    }

    /// The guard, for who has just taken it.
    #[track_caller]
    fn taken(&self) -> MutexGuard<'_, T> {
        checker::mutex_taken(&self.tag, self.state.address());
        MutexGuard { mutex: self, _thread: PhantomData }
    }

    /// How many threads wait for it.
    pub fn waiters(&self) -> usize {
        self.state.lock().waiters.len()
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// The mutex that is held.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the mutex (LOCK-1).
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the mutex (LOCK-1), and `&mut self` is the only way in through it.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        checker::mutex_released(&self.mutex.tag, self.mutex.state.address());
        let mut state = self.mutex.state.lock();
        match state.waiters.pop() {
            Some(next) => sched::wake_masked(next, state.masked()),
            None => state.is_held = false,
        }
    }
}
