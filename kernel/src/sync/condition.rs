//! A condition: threads wait until another says that something they look at under a mutex has changed.

use scheduler::Queue;

use super::SpinLock;
use super::mutex::MutexGuard;
use crate::sched;
use crate::thread::ThreadRef;

/// Where threads wait for a change of what a mutex protects. A wakeup cannot be lost: the mutex is given up with its guard when the
/// thread can be found by its waker already.
pub struct Condition {
    waiters: SpinLock<Queue<ThreadRef>>,
}

impl Condition {
    /// Nobody waits.
    pub const fn new() -> Self {
        Condition { waiters: SpinLock::new("condition", Queue::new()) }
    }

    /// Gives up the mutex, waits to be woken, and takes the mutex again. What was waited for may be gone by then: look in a loop, or
    /// use [`wait_while`](Self::wait_while). Sleeps.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        let mut waiters = self.waiters.lock();
        let current = waiters.masked().hart().current();
        waiters.push(current);
        drop(guard);
        sched::block(waiters);
        mutex.lock()
    }

    /// Waits for as long as `condition` holds. Sleeps.
    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Wakes the thread that has waited longest, if one waits.
    pub fn wake_one(&self) {
        let mut waiters = self.waiters.lock();
        if let Some(first) = waiters.pop() {
            sched::wake_masked(first, waiters.masked());
        }
    }

    /// Wakes all that wait now.
    pub fn wake_all(&self) {
        let mut waiters = self.waiters.lock();
        while let Some(waiter) = waiters.pop() {
            sched::wake_masked(waiter, waiters.masked());
        }
    }

    /// How many threads wait.
    pub fn waiters(&self) -> usize {
        self.waiters.lock().len()
    }
}
