//! Every interleaving of a few threads on two or three harts, and every value that a relaxed load may see: the scheduler's own
//! source, with the model checker's atomics in place of the machine's, over a kernel made of the checker's threads.
//!
//! Within the checker's limits: five threads, idle ones included; each model bounds how often a thread is left that could go on.
//! Time, ticks and interrupts for no reason are not modelled: `random.rs` has those. A relaxed load may see an older value, but
//! never one that is stored later; and as the checker takes what a parked thread was told by who unparks it for ordered, an
//! interrupt orders all that its sender did before, as the kernel promises.
//!
//! `SCHEDULER_MODEL_PREEMPTIONS=3 cargo test --release -p scheduler --test model -- --nocapture` looks further, with that bound for
//! all, and says how many runs it took.

#![allow(missing_docs, dead_code, reason = "the library's modules, of which a test uses a part")]

#[path = "../src/kernel.rs"]
mod kernel;
mod machine;
#[path = "../src/node.rs"]
mod node;
#[path = "../src/queue.rs"]
mod queue;
#[path = "../src/schedule.rs"]
mod schedule;

/// The checker's atomics, made when they are first used: its own cannot be made in a `const fn`.
mod atomic {
    pub use loom::sync::atomic::{Ordering, fence};
    use std::cell::OnceCell;

    pub struct AtomicUsize {
        initial: usize,
        atomic: OnceCell<loom::sync::atomic::AtomicUsize>,
    }

    impl AtomicUsize {
        pub const fn new(initial: usize) -> Self {
            AtomicUsize { initial, atomic: OnceCell::new() }
        }

        fn get(&self) -> &loom::sync::atomic::AtomicUsize {
            self.atomic.get_or_init(|| loom::sync::atomic::AtomicUsize::new(self.initial))
        }

        pub fn load(&self, order: Ordering) -> usize {
            self.get().load(order)
        }

        pub fn store(&self, value: usize, order: Ordering) {
            self.get().store(value, order);
        }

        pub fn fetch_and(&self, value: usize, order: Ordering) -> usize {
            self.get().fetch_and(value, order)
        }

        pub fn fetch_or(&self, value: usize, order: Ordering) -> usize {
            self.get().fetch_or(value, order)
        }
    }

    pub struct AtomicBool {
        initial: bool,
        atomic: OnceCell<loom::sync::atomic::AtomicBool>,
    }

    impl AtomicBool {
        pub const fn new(initial: bool) -> Self {
            AtomicBool { initial, atomic: OnceCell::new() }
        }

        fn get(&self) -> &loom::sync::atomic::AtomicBool {
            self.atomic.get_or_init(|| loom::sync::atomic::AtomicBool::new(self.initial))
        }

        pub fn load(&self, order: Ordering) -> bool {
            self.get().load(order)
        }

        pub fn store(&self, value: bool, order: Ordering) {
            self.get().store(value, order);
        }
    }
}

mod checker {
    pub use loom::sync::atomic::AtomicBool;
    pub use loom::thread::{Thread, current, park, yield_now as give_way};

    use crate::machine::{Handle, Here};
    use crate::queue::Queue;

    pub type JoinHandle = loom::thread::JoinHandle<()>;

    pub fn spawn(body: impl FnOnce() + 'static) -> JoinHandle {
        loom::thread::spawn(body)
    }

    /// What accesses that are not ordered are found in.
    pub struct Cell<T>(loom::cell::UnsafeCell<T>);

    // SAFETY: the checker reports accesses that are not ordered one after the other.
    unsafe impl<T> Sync for Cell<T> {}

    impl<T> Cell<T> {
        pub fn new(value: T) -> Self {
            Cell(loom::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: as above.
            self.0.with_mut(|value| act(unsafe { &mut *value }))
        }
    }

    /// Interrupts stay pending: a thread takes them where a test says so.
    pub fn interrupts_are_on(_: &Here) {}

    pub fn wakes_for_no_reason() -> bool {
        false
    }

    pub fn look_at(_: &mut Queue<Handle>) {}
}

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Plain;
use std::sync::atomic::Ordering::Relaxed;

use kernel::{ConditionLock, Kernel};
use machine::{Condition, Flag, Here, Machine};
use node::{Node, Thread};
use queue::Queue;
use schedule::Scheduler;

/// Explores a model with a bound on how often a thread is left that could go on, and says how many runs that were.
fn explore(name: &str, preemptions: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    let more = std::env::var("SCHEDULER_MODEL_PREEMPTIONS").map(|more| more.parse().unwrap());
    builder.preemption_bound = Some(more.unwrap_or(preemptions));
    builder.max_branches = 20_000;
    let runs = Arc::new(Plain::new(0));
    let counted = runs.clone();
    let begin = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    let bound = builder.preemption_bound.unwrap_or_default();
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{name}: {} runs with at most {bound} preemptions, {seconds:.1} s",
        runs.load(Relaxed)
    );
}

/// Two harts. A thread wakes another on its own hart and goes on computing until that ran: the other hart must take it.
#[test]
fn a_hart_does_not_sleep_while_a_thread_waits_on_a_busy_one() {
    explore("idle and wake", 3, || {
        let machine = Machine::new(2, 2, 0);
        machine.begin_idle(1);
        machine.begin(3, Here::finish);
        machine.start(1, 1);
        machine.become_thread(0, 2, |here| {
            here.wake(3);
            here.compute_for_ever();
        });
    });
}

/// Two harts. A pinned thread yields, and another is left on its hart's queue in its place: the other hart must take that.
#[test]
fn a_hart_does_not_sleep_while_a_thread_waits_behind_a_pinned_one() {
    explore("idle and yield", 3, || {
        let machine = Machine::new(2, 2, 0);
        machine.place(3, 0, true);
        machine.begin_idle(1);
        machine.begin(3, |here| here.compute_for_ever());
        machine.start(1, 1);
        machine.become_thread(0, 2, |here| {
            here.wake(3);
            here.yield_now();
            here.finish();
        });
    });
}

/// Two harts. A thread waits for a condition that a thread on another hart brings about.
#[test]
fn a_wakeup_is_not_lost() {
    explore("sleep and wakeup", 3, || {
        let machine = Machine::new(2, 2, 0);
        let condition = Arc::new(Condition::new(false));
        let changed = condition.clone();
        machine.begin_idle(0);
        machine.begin(3, move |here| {
            changed.change(here, |is_true| *is_true = true);
            here.compute_for_ever();
        });
        machine.start(1, 3);
        machine.become_thread(0, 2, |here| {
            condition.wait_for(here, |is_true| is_true.then_some(()));
            here.finish();
        });
    });
}

/// Three harts. A thread blocks on the first; an interrupt on the second wakes it meanwhile; the third has nothing to do.
#[test]
fn a_thread_that_is_still_on_its_hart_is_not_run_by_another() {
    explore("on-CPU flag", 2, || {
        let machine = Machine::new(3, 1, 0);
        let condition = Arc::new(Condition::new(false));
        let changed = condition.clone();
        machine.begin_idle(0);
        machine.begin(1, move |here| {
            changed.change(here, |is_true| *is_true = true);
            here.compute_for_ever();
        });
        machine.begin_idle(2);
        machine.start(1, 1);
        machine.start(2, 2);
        machine.become_thread(0, 3, |here| {
            condition.wait_for(here, |is_true| is_true.then_some(()));
            here.finish();
        });
    });
}

/// Two harts. One leaves a thread queued, and goes on with it; the other steals. Both threads end, once.
#[test]
fn a_thread_is_popped_or_stolen_and_not_both() {
    explore("steal and pop", 2, || {
        let machine = Machine::new(2, 2, 2);
        machine.begin_idle(0);
        machine.begin_idle(1);
        machine.begin(3, |here| here.exit());
        machine.start(1, 1);
        machine.become_thread(0, 2, |here| {
            here.wake(3);
            here.exit()
        });
    });
}

/// Two harts. A thread yields to another, and is stolen while the hart is on its way to that.
#[test]
fn a_thread_that_yields_is_stolen_after_it_has_left() {
    explore("steal and yield", 2, || {
        let machine = Machine::new(2, 2, 1);
        machine.begin_idle(0);
        machine.begin_idle(1);
        machine.begin(3, |here| here.compute_for_ever());
        machine.start(1, 1);
        machine.become_thread(0, 2, |here| {
            here.wake(3);
            here.yield_now();
            here.exit()
        });
    });
}

/// Two harts. One has two threads queued, of which the first is pinned; the other hart may take the second.
#[test]
fn a_pinned_thread_is_not_stolen() {
    explore("steal and pin", 3, || {
        let machine = Machine::new(2, 3, 0);
        machine.place(3, 0, true);
        machine.begin_idle(1);
        machine.begin(3, |here| here.compute_for_ever());
        machine.begin(4, Here::finish);
        machine.start(1, 1);
        machine.become_thread(0, 2, |here| {
            here.wake(3);
            here.wake(4);
            here.compute_for_ever();
        });
    });
}

/// Three harts, of which the first computes and the others sleep. It wakes two threads; the second hart is interrupted meanwhile for
/// another reason. The threads need one hart each.
#[test]
fn two_threads_go_to_two_idle_harts() {
    explore("two wakes", 1, || {
        let machine = Machine::new(3, 3, 0);
        let have_run = Arc::new([Flag::new(), Flag::new()]);
        machine.begin_idle(1);
        machine.begin_idle(2);
        for me in 0..2 {
            machine.place(4 + me, 1, false);
            let seen = have_run.clone();
            machine.begin(4 + me, move |here| {
                seen[me].set();
                here.compute_until(&seen[1 - me]);
                here.finish();
            });
        }
        machine.start(1, 1);
        machine.start(2, 2);
        machine.become_thread(0, 3, |here| {
            here.compute_until_asleep(1);
            here.compute_until_asleep(2);
            here.interrupt(1);
            here.wake(4);
            here.wake(5);
            here.compute_for_ever();
        });
    });
}

/// Three harts, of which two sleep. The first is left by a thread that yields to a pinned one, which wakes a third. One of the two that
/// slept may be told of both threads: it takes one, and tells the other hart.
#[test]
fn a_hart_that_is_told_of_two_threads_passes_one_on() {
    explore("pass on", 1, || {
        let machine = Machine::new(3, 3, 0);
        let have_run = Arc::new([Flag::new(), Flag::new()]);
        machine.place(4, 0, true);
        machine.begin_idle(1);
        machine.begin_idle(2);
        machine.begin(4, |here| {
            here.wake(5);
            here.compute_for_ever();
        });
        let seen = have_run.clone();
        machine.begin(5, move |here| {
            seen[1].set();
            here.compute_until(&seen[0]);
            here.finish();
        });
        machine.start(1, 1);
        machine.start(2, 2);
        machine.become_thread(0, 3, |here| {
            here.compute_until_asleep(1);
            here.compute_until_asleep(2);
            here.wake(4);
            here.yield_now();
            have_run[0].set();
            here.compute_until(&have_run[1]);
            here.finish();
        });
    });
}

/// Three harts. The third wakes a thread that ran on the second, and sleeps; the first wakes another, and computes. The second may be
/// told of that, and find the other first.
#[test]
fn a_hart_that_finds_another_thread_first_passes_one_on() {
    explore("pass on and sleep", 1, || {
        let machine = Machine::new(3, 3, 0);
        let have_run = Arc::new([Flag::new(), Flag::new()]);
        machine.place(4, 1, false);
        machine.begin_idle(1);
        machine.begin(2, |here| {
            here.wake(4);
            here.idle();
        });
        for me in 0..2 {
            let seen = have_run.clone();
            machine.begin(4 + me, move |here| {
                seen[me].set();
                here.compute_until(&seen[1 - me]);
                here.finish();
            });
        }
        machine.start(1, 1);
        machine.start(2, 2);
        machine.become_thread(0, 3, |here| {
            here.wake(5);
            here.compute_for_ever();
        });
    });
}

/// Three harts. The second is told of a thread, that only it may run, while the third goes to sleep: that must not be forgotten when
/// there is a thread for the third.
#[test]
fn a_hart_that_goes_to_sleep_is_not_forgotten() {
    explore("wakes and sleep", 1, || {
        let machine = Machine::new(3, 3, 0);
        let have_run = Arc::new([Flag::new(), Flag::new()]);
        machine.begin_idle(1);
        machine.begin_idle(2);
        for me in 0..2 {
            machine.place(4 + me, 1, me == 0);
            let seen = have_run.clone();
            machine.begin(4 + me, move |here| {
                seen[me].set();
                here.compute_until(&seen[1 - me]);
                here.finish();
            });
        }
        machine.start(1, 1);
        machine.start(2, 2);
        machine.become_thread(0, 3, |here| {
            here.compute_until_asleep(1);
            here.wake(4);
            here.wake(5);
            here.compute_for_ever();
        });
    });
}
