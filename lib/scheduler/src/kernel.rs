//! What the scheduler needs of the kernel below it.

use crate::{Queue, Thread};

/// The lock of a condition, held by a thread that blocks.
pub trait ConditionLock {
    /// Releases it. Interrupts stay masked, on behalf of the run queue's lock that was taken meanwhile.
    fn hand_over(self);
}

/// A kernel: harts that lock, switch and interrupt each other.
///
/// A CPU number is dense, from 0 on. "Here" is the hart that the caller runs on; unless said otherwise interrupts are off, so
/// that it stays the same.
pub trait Kernel {
    /// Its threads.
    type Thread: Thread;

    /// The hart here, as a handle to what it has: good until interrupts come on or another thread is switched to.
    type Here: Copy;

    /// Whether a thread takes interrupts when it runs without locks.
    type Interrupts;

    /// How many harts are up.
    fn cpus(&self) -> usize;

    /// The hart here.
    fn here(&self) -> Self::Here;

    /// The number of the hart here.
    fn cpu(&self, here: Self::Here) -> usize;

    /// The thread that runs here.
    fn current(&self, here: Self::Here) -> Self::Thread;

    /// The thread that runs here when there is no other. It is never queued.
    fn idle_thread(&self, here: Self::Here) -> Self::Thread;

    /// Masks interrupts and takes the lock of the run queue here. May be called with interrupts on.
    fn lock_here(&self) -> Self::Here;

    /// Takes the lock of the run queue here, for a thread that blocks: interrupts are masked by a lock that is about to
    /// [hand that over](ConditionLock::hand_over).
    fn lock_here_masked(&self) -> Self::Here;

    /// Releases the lock of the run queue here and unmasks interrupts if they were not masked before it was taken.
    fn unlock_here(&self, here: Self::Here);

    /// Takes the lock of a hart's run queue.
    fn lock(&self, cpu: usize);

    /// Takes the lock of a hart's run queue, unless somebody has it.
    fn try_lock(&self, cpu: usize) -> bool;

    /// Releases the lock of a hart's run queue, after [`lock`](Self::lock) or [`try_lock`](Self::try_lock).
    fn unlock(&self, cpu: usize);

    /// The run queue of a hart, whose lock is held.
    fn with_queue<R>(&self, cpu: usize, act: impl FnOnce(&mut Queue<Self::Thread>) -> R) -> R;

    /// The run queue here, whose lock is held.
    fn with_queue_here<R>(
        &self,
        here: Self::Here,
        act: impl FnOnce(&mut Queue<Self::Thread>) -> R,
    ) -> R;

    /// Saves the registers of `from`, which runs here, and goes on with those of `to`. The lock of the run queue here is held, and is the
    /// only one. Returns when `from` runs again: perhaps on another hart, whose lock is held then.
    fn switch(&self, here: Self::Here, from: Self::Thread, to: Self::Thread) -> Self::Interrupts;

    /// The thread that the last switch here came from.
    fn previous(&self, here: Self::Here) -> Self::Thread;

    /// Releases the lock of the run queue here, the only one that is held, which another thread took before it switched to the one that runs
    /// now. That takes interrupts again if it did.
    fn unlock_after_switch(&self, here: Self::Here, interrupts: Self::Interrupts);

    /// Called when `thread` has left its hart for the last time: what it had may be taken away.
    fn ended(&self, thread: Self::Thread);

    /// Told that this hart took `thread` from the queue of another.
    fn stolen(&self, thread: Self::Thread, from: usize) {
        let _ = (thread, from);
    }

    /// How many threads of a queue are passed over for the next to run. None, but where schedules are explored.
    fn passed_over(&self) -> usize {
        0
    }

    /// One of the harts in a mask that is not empty, bit n for CPU n. May be called with interrupts on.
    fn pick(&self, cpus: usize) -> usize {
        cpus.trailing_zeros() as usize
    }

    /// Interrupts another hart. What was stored before is seen by whoever is interrupted.
    fn interrupt(&self, cpu: usize);

    /// Waits until an interrupt is pending here, which may be at once; interrupts stay off.
    fn wait_for_interrupt(&self);

    /// Takes the interrupts that are pending here.
    fn take_interrupts(&self);
}
