//! Random schedules of more threads than every interleaving could be looked at of: the scheduler's own source, over a kernel made
//! of a checker's threads that runs one of them at a time and may change to another at each atomic access.
//!
//! Ticks come at random wherever interrupts are unmasked, and a hart that sleeps may wake for no reason. Seeds are fixed. What this
//! cannot see is memory ordering: each load sees the last store. `model.rs` looks at that.
//!
//! `SCHEDULER_RANDOM_RUNS=20 cargo test --release -p scheduler --test random -- --nocapture` does twenty times as many runs.

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

mod atomic {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
}

mod checker {
    use std::cell::{RefCell, UnsafeCell};
    use std::sync::atomic::Ordering::Relaxed;

    use shuttle::rand::{Rng, thread_rng};
    pub use shuttle::sync::atomic::AtomicBool;
    pub use shuttle::thread::{Thread, current, park, spawn, yield_now as give_way};

    use crate::machine::{Handle, Here};
    use crate::node::Thread as _;
    use crate::queue::Queue;

    pub type JoinHandle = shuttle::thread::JoinHandle<()>;

    pub struct Cell<T>(UnsafeCell<T>);

    // SAFETY: of the checker's threads one runs at a time, and what a cell holds is used by who has its lock or its hart.
    unsafe impl<T> Sync for Cell<T> {}

    impl<T> Cell<T> {
        pub fn new(value: T) -> Self {
            Cell(UnsafeCell::new(value))
        }

        pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: as above.
            act(unsafe { &mut *self.0.get() })
        }
    }

    /// Takes the interrupts that are pending, where they are about to be masked or just were. One may be a tick, that ends the
    /// thread's slice.
    pub fn interrupts_are_on(here: &Here) {
        here.take_interrupts_while_running();
        if here.machine.has_ticks.load(Relaxed) && thread_rng().gen_ratio(1, 16) {
            here.yield_now();
        }
    }

    pub fn wakes_for_no_reason() -> bool {
        thread_rng().gen_ratio(1, 8)
    }

    /// A thread is in the queue once.
    pub fn look_at(queue: &mut Queue<Handle>) {
        let seen = RefCell::new(Vec::new());
        queue.pop_where(|thread| {
            let word = thread.to_word();
            assert!(!seen.borrow().contains(&word), "a thread is queued twice");
            seen.borrow_mut().push(word);
            false
        });
        assert_eq!(queue.len(), seen.borrow().len());
    }
}

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Plain;
use std::sync::atomic::Ordering::Relaxed;

use kernel::{ConditionLock, Kernel};
use machine::{Condition, Flag, Here, Machine};
use node::{Node, Thread};
use queue::Queue;
use schedule::Scheduler;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Runs a model a number of times with each of two kinds of schedules: one that may change threads at every step, and one that
/// gives the threads priorities and changes them a few times.
fn explore(name: &str, runs: usize, model: fn()) {
    let more = std::env::var("SCHEDULER_RANDOM_RUNS").map_or(1, |more| more.parse().unwrap());
    let mut config = shuttle::Config::new();
    config.silence_warnings = true;
    config.stack_size = 0x10000;
    let begin = std::time::Instant::now();
    let uniform = RandomScheduler::new_from_seed(1, runs * more);
    let uniform = shuttle::Runner::new(uniform, config.clone()).run(model);
    let changes = PctScheduler::new_from_seed(1, 5, runs * more);
    let changes = shuttle::Runner::new(changes, config).run(model);
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{name}: {uniform} schedules of random steps, {changes} of random priorities, {seconds:.1} s"
    );
}

/// Begins the idle threads of all harts, and lets a first thread start on hart 0.
fn boot(machine: &Arc<Machine>, cpus: usize, first: impl FnOnce(&Here) + Send + 'static) {
    (0..cpus).for_each(|cpu| machine.begin_idle(cpu));
    machine.begin(cpus, first);
    (1..cpus).for_each(|cpu| machine.start(cpu, cpu));
    machine.start(0, cpus);
    machine.join();
}

fn down(here: &Here, semaphore: &Condition<usize>) {
    semaphore.wait_for(here, |count| (*count > 0).then(|| *count -= 1));
}

fn up(here: &Here, semaphore: &Condition<usize>) {
    semaphore.change(here, |count| *count += 1);
}

/// Three harts, two producers, two consumers, and room for two things between them.
#[test]
fn what_is_produced_is_consumed_once() {
    const EACH: usize = 4;
    const ROOM: usize = 2;
    struct Shop {
        room: Condition<usize>,
        things: Condition<usize>,
        shelf: Condition<VecDeque<usize>>,
        consumed: Condition<Vec<usize>>,
    }
    explore("producers and consumers", 800, || {
        let shop = Arc::new(Shop {
            room: Condition::new(ROOM),
            things: Condition::new(0),
            shelf: Condition::new(VecDeque::new()),
            consumed: Condition::new(Vec::new()),
        });
        let machine = Machine::new(3, 5, 0);
        machine.has_ticks.store(true, Relaxed);
        for me in 0..2 {
            let here_shop = shop.clone();
            machine.place(4 + me, me, false);
            machine.begin(4 + me, move |here| {
                for thing in 0..EACH {
                    down(here, &here_shop.room);
                    here_shop.shelf.change(here, |shelf| shelf.push_back(me * EACH + thing));
                    up(here, &here_shop.things);
                }
                here.exit()
            });
            let here_shop = shop.clone();
            machine.place(6 + me, 2, me == 1);
            machine.begin(6 + me, move |here| {
                for _ in 0..EACH {
                    down(here, &here_shop.things);
                    let mut thing = None;
                    here_shop.shelf.change(here, |shelf| thing = shelf.pop_front());
                    let thing = thing.expect("the semaphore counted a thing");
                    up(here, &here_shop.room);
                    here_shop.consumed.change(here, |consumed| consumed.push(thing));
                }
                here.exit()
            });
        }
        let here_shop = shop.clone();
        boot(&machine, 3, move |here| {
            (4..8).for_each(|thread| here.wake(thread));
            here_shop
                .consumed
                .wait_for(here, |consumed| (consumed.len() == 2 * EACH).then_some(()));
            here.finish();
        });
        shop.consumed.look(|consumed| {
            consumed.sort();
            assert_eq!(*consumed, (0..2 * EACH).collect::<Vec<_>>());
        });
    });
}

/// Three harts, three threads that need one each at the same time, again and again. Who computes takes no ticks: it keeps its hart.
#[test]
fn no_hart_sleeps_while_a_thread_waits_for_one() {
    const ROUNDS: usize = 3;
    explore("three threads on three harts", 1500, || {
        let machine = Machine::new(3, 3, 0);
        machine.has_ticks.store(true, Relaxed);
        let calls = Arc::new([Condition::new(0), Condition::new(0)]);
        let arrived: Arc<Vec<[Flag; 3]>> =
            Arc::new((0..ROUNDS).map(|_| std::array::from_fn(|_| Flag::new())).collect());
        for me in 0..2 {
            let (calls, arrived) = (calls.clone(), arrived.clone());
            machine.begin(4 + me, move |here| {
                for round in arrived.iter() {
                    down(here, &calls[me]);
                    round[me].set();
                    round.iter().for_each(|flag| here.compute_until(flag));
                }
                here.exit()
            });
        }
        boot(&machine, 3, move |here| {
            here.wake(4);
            here.wake(5);
            for round in arrived.iter() {
                calls.iter().for_each(|call| up(here, call));
                round[2].set();
                round.iter().for_each(|flag| here.compute_until(flag));
            }
            here.finish();
        });
    });
}

/// Two harts, four threads that yield, one of them pinned. Each ends once, and what it did is counted.
#[test]
fn threads_that_yield_all_run_to_their_end() {
    const TURNS: usize = 5;
    explore("yields and ends", 1500, || {
        let machine = Machine::new(2, 4, 4);
        machine.has_ticks.store(true, Relaxed);
        let turns: Arc<[Plain; 4]> = Arc::new(std::array::from_fn(|_| Plain::new(0)));
        machine.place(4, 1, true);
        for me in 1..4 {
            let turns = turns.clone();
            machine.begin(2 + me, move |here| {
                for _ in 0..TURNS {
                    turns[me].fetch_add(1, Relaxed);
                    here.yield_now();
                }
                here.exit()
            });
        }
        let counted = turns.clone();
        boot(&machine, 2, move |here| {
            (3..6).for_each(|thread| here.wake(thread));
            for _ in 0..TURNS {
                counted[0].fetch_add(1, Relaxed);
                here.yield_now();
            }
            here.exit()
        });
        assert!(turns.iter().all(|turns| turns.load(Relaxed) == TURNS));
        assert_eq!(machine.ended(), 4);
    });
}

/// Two harts, one thread pinned to each; they pass a ball between them.
#[test]
fn pinned_threads_wake_each_other() {
    const TURNS: usize = 6;
    explore("ping and pong", 1500, || {
        let machine = Machine::new(2, 3, 2);
        machine.has_ticks.store(true, Relaxed);
        let balls = Arc::new([Condition::new(1), Condition::new(0)]);
        for me in 0..2 {
            let balls = balls.clone();
            machine.place(3 + me, me, true);
            machine.begin(3 + me, move |here| {
                for _ in 0..TURNS {
                    down(here, &balls[me]);
                    up(here, &balls[1 - me]);
                }
                here.exit()
            });
        }
        boot(&machine, 2, move |here| {
            here.wake(3);
            here.wake(4);
            // Waits for nothing that comes: the last of the two ends the test.
            Condition::new(()).wait_for(here, |()| None)
        });
        balls[0].look(|count| assert_eq!(*count, 1));
        balls[1].look(|count| assert_eq!(*count, 0));
    });
}
