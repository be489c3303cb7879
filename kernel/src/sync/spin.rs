//! A spin lock that masks interrupts while it is held.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use scheduler::ConditionLock;

use super::checker::{self, Tag};
use crate::hart::Hart;
use crate::interrupts::{self, Masked};
use crate::{stop, trace};

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// Data that one hart at a time may touch. Holding it masks interrupts, so a handler never waits for its own hart.
///
/// A hart takes spin locks in an order that is the same everywhere: of those that have different names, in the order in which they
/// are first seen; of those that have the same, by ascending address (the elements of an array by ascending index). Checked
/// builds panic where it is broken ([`checker`]). [`try_lock`](Self::try_lock) waits for nobody and may be used in any order.
///
/// A lock can be handed over from the thread that took it to another that runs on the same hart after it: the one calls
/// [`leak`](SpinGuard::leak), the other [`assume_held`](Self::assume_held).
// In this order the lock's address is the word's, and needs no instruction more than the data's.
#[repr(C)]
pub struct SpinLock<T> {
    /// A word and not a byte: one instruction swaps it.
    word: AtomicU32,
    tag: Tag,
    data: UnsafeCell<T>,
}

// SAFETY: the guard gives `&mut T` to one hart at a time (invariant LOCK-1), so `T` only ever moves between harts.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Proof that the lock is held; gives it back when dropped.
#[must_use]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Dropped after the lock's release.
    masked: Masked,
}

impl<T> SpinLock<T> {
    /// Where the data lies in it, in bytes: for debuggers.
    pub const DATA: usize = core::mem::offset_of!(SpinLock<T>, data);

    /// A free lock around `data`. Locks that are taken for the same reason have the same name; checked builds keep it.
    pub const fn new(name: &'static str, data: T) -> Self {
        SpinLock { word: AtomicU32::new(FREE), tag: Tag::new(name), data: UnsafeCell::new(data) }
    }

    /// Waits until the lock is free and takes it. Interrupts stay masked until the guard is dropped.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.lock_masked(interrupts::mask())
    }

    /// As [`lock`](Self::lock), for who has masked interrupts already: the guard takes that over.
    #[inline]
    #[track_caller]
    pub fn lock_masked(&self, masked: Masked) -> SpinGuard<'_, T> {
        checker::about_to_wait(&self.tag, self.address());
        // Acquire pairs with the release in the guard's drop: what the last holder wrote is seen.
        if self.word.swap(TAKEN, Ordering::Acquire) != FREE {
            wait(&self.word);
        }
        checker::taken(&self.tag, self.address());
        SpinGuard { lock: self, masked }
    }

    /// Takes the lock if nobody has it.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let masked = interrupts::mask();
        // Acquire: as in `lock`.
        if self.word.swap(TAKEN, Ordering::Acquire) != FREE {
            return None;
        }
        checker::taken(&self.tag, self.address());
        Some(SpinGuard { lock: self, masked })
    }

    /// The guard of a lock that was [leaked](SpinGuard::leak): the other half of a handoff.
    ///
    /// # Safety
    ///
    /// The lock is that of this hart's run queue, the thread that ran here before leaked its guard, and this is the thread that the
    /// switch brought here, which calls this once for that switch (invariant LOCK-2).
    #[inline]
    pub unsafe fn assume_held(&self) -> SpinGuard<'_, T> {
        // SAFETY: the leaked guard's mask was leaked with it, on this hart, and is taken over here alone (LOCK-2).
        SpinGuard { lock: self, masked: unsafe { Masked::assume() } }
    }

    /// As [`lock_masked`](Self::lock_masked), within another guard, which goes on masking interrupts.
    ///
    /// # Safety
    ///
    /// This guard is given up before that one, on the same hart, and by [`SpinGuard::hand_over`] (invariant LOCK-3).
    #[inline]
    #[track_caller]
    pub unsafe fn lock_within(&self) -> SpinGuard<'_, T> {
        // SAFETY: nothing takes it over: the guard that masks interrupts outlives it (LOCK-3).
        self.lock_masked(unsafe { Masked::assume() })
    }

    /// As [`try_lock`](Self::try_lock), within another guard.
    ///
    /// # Safety
    ///
    /// That of [`lock_within`](Self::lock_within).
    #[inline]
    #[track_caller]
    pub unsafe fn try_lock_within(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: as in `lock`.
        if self.word.swap(TAKEN, Ordering::Acquire) != FREE {
            return None;
        }
        checker::taken(&self.tag, self.address());
        // SAFETY: as in `lock_within` (LOCK-3).
        Some(SpinGuard { lock: self, masked: unsafe { Masked::assume() } })
    }

    /// Whether someone holds it; may be out of date by the time it is read.
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// What [`checker`] knows it by.
    pub fn address(&self) -> usize {
        self.word.as_ptr().addr()
    }
}

/// Takes the lock of this word when its holder gives it up. A part of its caller: a call that comes back would make the caller save
/// registers, whether or not it waits.
#[inline(always)]
fn wait(word: &AtomicU32) {
    let _waits = trace::wait_for(word);
    loop {
        // Reads until it may be free: a swap would take the line away from the holder each time.
        while word.load(Ordering::Relaxed) != FREE {
            // Its holder may stand still for a crash report.
            stop::if_asked();
            spin_loop();
        }
        // Acquire: as in `lock`.
        if word.swap(TAKEN, Ordering::Acquire) == FREE {
            return;
        }
    }
}

impl<T> SpinGuard<'_, T> {
    /// Forgets the guard: the lock stays held by this hart, and interrupts stay masked, until somebody
    /// [assumes](SpinLock::assume_held) it.
    #[inline]
    pub fn leak(guard: Self) {
        mem::forget(guard);
    }

    /// Drops the only guard of `hart`, the one here, as [`Masked::drop_last`] does.
    #[inline]
    pub fn release_last(self, hart: &Hart, were_on: usize) {
        self.hand_over();
        // SAFETY: what masks interrupts was forgotten with the guard.
        unsafe { Masked::assume() }.drop_last(hart, were_on);
    }

    /// Releases the lock. Interrupts stay masked, on behalf of another guard.
    #[inline]
    pub fn hand_over(self) {
        self.release();
        mem::forget(self);
    }

    /// What masks interrupts while the lock is held.
    #[inline]
    pub fn masked(&self) -> &Masked {
        &self.masked
    }

    #[inline]
    fn release(&self) {
        checker::released(&self.lock.tag, self.lock.address());
        // A swap, whose result nobody wants, is one instruction; a store with release is a fence and a store.
        self.lock.word.swap(FREE, Ordering::Release);
    }

    /// What [`checker`] knows the lock by.
    pub fn address(&self) -> usize {
        self.lock.address()
    }
}

impl<T> ConditionLock for SpinGuard<'_, T> {
    #[inline]
    fn hand_over(self) {
        self.hand_over();
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock (LOCK-1).
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock (LOCK-1), and `&mut self` is the only way in through it.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}
