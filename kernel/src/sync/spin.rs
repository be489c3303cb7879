//! A spin lock that masks interrupts while it is held.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::interrupts::{self, Masked};
use crate::stop;

/// Data that one hart at a time may touch. Holding it masks interrupts, so a handler never waits for its own hart.
pub struct SpinLock<T> {
    locked: AtomicBool,
    data: UnsafeCell<T>,
}

// SAFETY: the guard gives `&mut T` to one hart at a time (invariant LOCK-1), so `T` only ever moves between harts.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Proof that the lock is held; gives it back when dropped.
#[must_use]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Dropped after the lock's release.
    _masked: Masked,
}

impl<T> SpinLock<T> {
    /// A free lock around `data`.
    pub const fn new(data: T) -> Self {
        SpinLock { locked: AtomicBool::new(false), data: UnsafeCell::new(data) }
    }

    /// Waits until the lock is free and takes it. Interrupts stay masked until the guard is dropped.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        self.lock_masked(interrupts::mask())
    }

    /// As [`lock`](Self::lock), for who has masked interrupts already: the guard takes that over.
    pub fn lock_masked(&self, masked: Masked) -> SpinGuard<'_, T> {
        // Acquire pairs with the release in the guard's drop: what the last holder wrote is seen.
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.locked.load(Ordering::Relaxed) {
                // Its holder may stand still for a crash report.
                stop::if_asked();
                spin_loop();
            }
        }
        SpinGuard { lock: self, _masked: masked }
    }

    /// The guard of a lock that is held by this hart without one: after [`SpinGuard::leak`].
    ///
    /// # Safety
    ///
    /// This hart holds the lock, and has no other guard of it (invariant LOCK-2).
    pub unsafe fn assume_held(&self) -> SpinGuard<'_, T> {
        SpinGuard { lock: self, _masked: Masked::assume() }
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let masked = interrupts::mask();
        // Acquire: as in `lock`.
        let taken =
            self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then(|| SpinGuard { lock: self, _masked: masked })
    }

    /// Whether someone holds it; may be out of date by the time it is read.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }
}

impl<T> SpinGuard<'_, T> {
    /// Keeps the lock, and interrupts masked, without a guard.
    pub fn leak(self) {
        core::mem::forget(self);
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
    fn drop(&mut self) {
        self.lock.locked.store(false, Ordering::Release);
    }
}
