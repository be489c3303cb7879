//! The scheduler: which thread runs on which hart, and how one that waits comes to run again.
//!
//! * [`Queue`]: threads in a row, linked through themselves; run queues and the queues of waiting threads are made of it.
//! * [`Node`]: what a thread holds for the scheduler.
//! * [`Scheduler`]: yielding, blocking, waking, stealing and idling, over a [`Kernel`] that can switch, lock and interrupt.
//!
//! The kernel and the tests on the host compile this source; the tests put threads of the host and a model checker's atomics in
//! the kernel's place. What is promised:
//!
//! * A thread runs on one hart at a time. It is queued at most once.
//! * The queue lock of a hart is taken by the thread that leaves and released by the one that comes (handoff), so nobody takes a thread
//!   from there before its registers are saved. The flag `on_cpu` says the same to who does not take that lock: a thread that is
//!   still on its hart is queued there, and not waited for.
//! * A wakeup is not lost: a thread that blocks takes the queue lock of its hart before it gives up the lock of its condition, and who
//!   wakes it needs that queue lock.
//! * A hart does not sleep while there is a thread that it may run: it says that it idles, then looks, and who queues a thread does
//!   so first and then looks who idles; both with a full fence in between.
#![no_std]
#![forbid(unsafe_code)]

mod atomic;
mod kernel;
mod node;
mod queue;
mod schedule;

pub use kernel::{ConditionLock, Kernel};
pub use node::{Node, Thread};
pub use queue::Queue;
pub use schedule::Scheduler;
