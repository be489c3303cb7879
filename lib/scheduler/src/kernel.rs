//! What the scheduler needs of the kernel below it.

use crate::{Queue, Thread};

/// A kernel: harts that lock, switch and interrupt each other.
///
/// A CPU number is dense, from 0 on. "Here" is the hart that the caller runs on; unless said otherwise interrupts are off, so
/// that it stays the same.
pub trait Kernel {
    /// Its threads.
    type Thread: Thread;

    /// How many harts are up.
    fn cpus(&self) -> usize;

    /// The hart here.
    fn cpu(&self) -> usize;

    /// The thread that runs here.
    fn current(&self) -> Self::Thread;

    /// The thread that runs here when there is no other. It is never queued.
    fn idle_thread(&self) -> Self::Thread;

    /// Masks interrupts and takes the lock of the run queue here. Gives the hart. May be called with interrupts on.
    fn lock_here(&self) -> usize;

    /// Masks interrupts and takes the lock of a hart's run queue.
    fn lock(&self, cpu: usize);

    /// Takes the lock of a hart's run queue, unless somebody has it.
    fn try_lock(&self, cpu: usize) -> bool;

    /// Releases the lock of a hart's run queue and unmasks interrupts if they were not masked before it was taken.
    fn unlock(&self, cpu: usize);

    /// The run queue of a hart, whose lock is held.
    fn with_queue<R>(&self, cpu: usize, act: impl FnOnce(&mut Queue<Self::Thread>) -> R) -> R;

    /// Saves the registers of `from`, which runs here, and goes on with those of `to`. The lock of the run queue here is held, and is the
    /// only one. Returns when `from` runs again: perhaps on another hart, whose lock is held then.
    fn switch(&self, from: Self::Thread, to: Self::Thread);

    /// The thread that the last switch here came from.
    fn previous(&self) -> Self::Thread;

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
