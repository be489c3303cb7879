//! Locks that let threads sleep: mutex, condition, channel.

use alloc::vec::Vec;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{Outcome, Random, ensure, ensure_eq, note, self_test, spawned};
use crate::hart::{self, CpuNumber};
use crate::sched;
use crate::sync::{Channel, Condition, Mutex, SpinLock};
use crate::thread::{self, JoinHandle};

/// Spawns `count` threads of `body` that may run anywhere, and joins them.
fn crowd(count: usize, body: fn(usize)) -> Outcome {
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(count).is_ok());
    for number in 0..count {
        threads.push(spawned(thread::spawn("crowd", move || body(number)))?);
    }
    threads.into_iter().for_each(JoinHandle::join);
    Ok(())
}

self_test!(claim 76, quick, a_mutex_lets_one_thread_in_at_a_time);
fn a_mutex_lets_one_thread_in_at_a_time() -> Outcome {
    const TURNS: usize = 300;
    const THREADS: usize = 8;
    static PAIR: Mutex<(usize, usize)> = Mutex::new("pair", (0, 0));
    fn count(_: usize) {
        for turn in 0..TURNS {
            let mut pair = PAIR.lock();
            pair.0 += 1;
            if turn % 16 == 0 {
                sched::yield_now();
            }
            pair.1 += 1;
            assert_eq!(pair.0, pair.1, "two threads were in at a time");
        }
    }
    *PAIR.lock() = (0, 0);
    crowd(THREADS, count)?;
    ensure_eq!(*PAIR.lock(), (THREADS * TURNS, THREADS * TURNS));
    ensure_eq!(PAIR.waiters(), 0);
    Ok(())
}

self_test!(claim 76, a_tally_under_a_lock_is_exact_and_without_one_is_not_promised);
fn a_tally_under_a_lock_is_exact_and_without_one_is_not_promised() -> Outcome {
    const TURNS: usize = 5_000;
    static LOCKED: SpinLock<usize> = SpinLock::new("test", 0);
    static UNLOCKED: AtomicUsize = AtomicUsize::new(0);
    fn count(_: usize) {
        for _ in 0..TURNS {
            *LOCKED.lock() += 1;
            // A load and a store, with nothing to keep another hart from coming in between: the control.
            UNLOCKED.store(UNLOCKED.load(Relaxed) + 1, Relaxed);
        }
    }
    *LOCKED.lock() = 0;
    UNLOCKED.store(0, Relaxed);
    let threads = 2 * hart::all().count();
    crowd(threads, count)?;
    ensure_eq!(*LOCKED.lock(), threads * TURNS);
    let (all, kept) = (threads * TURNS, UNLOCKED.load(Relaxed));
    note(format_args!("without a lock {} of {all} were lost", all - kept));
    Ok(())
}

self_test!(claim 76, a_mutex_goes_to_who_has_waited_longest);
fn a_mutex_goes_to_who_has_waited_longest() -> Outcome {
    static TAKEN: Mutex<Vec<usize>> = Mutex::new("taken", Vec::new());
    let mut held = TAKEN.lock();
    held.clear();
    ensure!(held.try_reserve(4).is_ok());
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(4).is_ok());
    for number in 0..4 {
        threads.push(spawned(thread::spawn_on(CpuNumber(0), "waits", move || {
            TAKEN.lock().push(number)
        }))?);
        while TAKEN.waiters() <= number {
            sched::yield_now();
        }
    }
    drop(held);
    threads.into_iter().for_each(JoinHandle::join);
    let taken = core::mem::take(&mut *TAKEN.lock());
    ensure_eq!(taken[..], [0, 1, 2, 3]);
    Ok(())
}

self_test!(claim 76, a_held_mutex_is_not_taken_by_trying);
fn a_held_mutex_is_not_taken_by_trying() -> Outcome {
    let mutex = Mutex::new("tried", 1);
    let held = mutex.lock();
    ensure!(mutex.try_lock().is_none());
    drop(held);
    ensure!(mutex.try_lock().is_some_and(|value| *value == 1));
    ensure!(mutex.try_lock().is_some(), "a guard that was dropped still holds the mutex");
    Ok(())
}

self_test!(claim 77, a_condition_loses_no_wakeup);
fn a_condition_loses_no_wakeup() -> Outcome {
    const ROUNDS: usize = 400;
    static BALL: Mutex<usize> = Mutex::new("ball", 0);
    static PASSED: Condition = Condition::new();
    /// Two players: the ball is at the one whose number is its parity.
    fn play(player: usize) {
        for _ in 0..ROUNDS {
            let ball = BALL.lock();
            let mut ball = PASSED.wait_while(ball, |ball| *ball % 2 != player);
            *ball += 1;
            PASSED.wake_one();
        }
    }
    *BALL.lock() = 0;
    crowd(2, play)?;
    ensure_eq!(*BALL.lock(), 2 * ROUNDS);
    ensure_eq!(PASSED.waiters(), 0);
    Ok(())
}

self_test!(claim 77, all_that_wait_are_woken_at_once);
fn all_that_wait_are_woken_at_once() -> Outcome {
    const THREADS: usize = 10;
    static OPEN: Mutex<bool> = Mutex::new("open", false);
    static OPENED: Condition = Condition::new();
    static THROUGH: AtomicUsize = AtomicUsize::new(0);
    *OPEN.lock() = false;
    THROUGH.store(0, Relaxed);
    let mut threads = Vec::new();
    ensure!(threads.try_reserve(THREADS).is_ok());
    for _ in 0..THREADS {
        threads.push(spawned(thread::spawn("at the gate", || {
            drop(OPENED.wait_while(OPEN.lock(), |open| !*open));
            THROUGH.fetch_add(1, Relaxed);
        }))?);
    }
    while OPENED.waiters() < THREADS {
        sched::yield_now();
    }
    ensure_eq!(THROUGH.load(Relaxed), 0);
    *OPEN.lock() = true;
    OPENED.wake_all();
    threads.into_iter().for_each(JoinHandle::join);
    ensure_eq!(THROUGH.load(Relaxed), THREADS);
    Ok(())
}

self_test!(claim 77, a_wakeup_for_nobody_is_forgotten);
fn a_wakeup_for_nobody_is_forgotten() -> Outcome {
    static READY: Mutex<bool> = Mutex::new("ready", false);
    static CHANGED: Condition = Condition::new();
    *READY.lock() = false;
    CHANGED.wake_one();
    CHANGED.wake_all();
    let waiter = spawned(thread::spawn("waits", || {
        drop(CHANGED.wait_while(READY.lock(), |ready| !*ready))
    }))?;
    while CHANGED.waiters() == 0 {
        sched::yield_now();
    }
    *READY.lock() = true;
    CHANGED.wake_one();
    waiter.join();
    Ok(())
}

self_test!(claim 78, quick, a_channel_keeps_the_order);
fn a_channel_keeps_the_order() -> Outcome {
    const VALUES: usize = 500;
    static CHANNEL: Channel<usize, 4> = Channel::new();
    let sender =
        spawned(thread::spawn("sender", || (0..VALUES).for_each(|value| CHANNEL.send(value))))?;
    for expected in 0..VALUES {
        ensure_eq!(CHANNEL.receive(), expected);
    }
    sender.join();
    ensure_eq!(CHANNEL.try_receive(), None);
    Ok(())
}

self_test!(claim 78, a_channel_between_many_loses_and_doubles_nothing);
fn a_channel_between_many_loses_and_doubles_nothing() -> Outcome {
    const EACH: usize = 200;
    const SENDERS: usize = 4;
    const END: usize = usize::MAX;
    static CHANNEL: Channel<usize, 3> = Channel::new();
    static SUM: AtomicUsize = AtomicUsize::new(0);
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    fn send_or_receive(number: usize) {
        if number < SENDERS {
            (0..EACH).for_each(|value| CHANNEL.send(number * EACH + value));
            CHANNEL.send(END);
        } else {
            loop {
                match CHANNEL.receive() {
                    END => break,
                    value => {
                        SUM.fetch_add(value, Relaxed);
                        COUNT.fetch_add(1, Relaxed);
                    }
                }
            }
        }
    }
    SUM.store(0, Relaxed);
    COUNT.store(0, Relaxed);
    crowd(2 * SENDERS, send_or_receive)?;
    ensure_eq!(COUNT.load(Relaxed), SENDERS * EACH);
    ensure_eq!(SUM.load(Relaxed), (0..SENDERS * EACH).sum::<usize>());
    ensure_eq!(CHANNEL.waiters(), (0, 0));
    Ok(())
}

self_test!(claim 78, a_full_channel_keeps_its_sender_waiting);
fn a_full_channel_keeps_its_sender_waiting() -> Outcome {
    static CHANNEL: Channel<usize, 2> = Channel::new();
    let sender = spawned(thread::spawn("sender", || (0..3).for_each(|value| CHANNEL.send(value))))?;
    while CHANNEL.waiters().0 == 0 {
        sched::yield_now();
    }
    ensure_eq!(CHANNEL.receive(), 0);
    sender.join();
    ensure_eq!(CHANNEL.receive(), 1);
    ensure_eq!(CHANNEL.receive(), 2);
    let receiver = spawned(thread::spawn("receiver", || CHANNEL.receive()))?;
    while CHANNEL.waiters().1 == 0 {
        sched::yield_now();
    }
    CHANNEL.send(9);
    ensure_eq!(receiver.join(), 9);
    Ok(())
}

self_test!(claim 57, harts 2, a_crowd_on_every_hart_comes_to_an_end);
fn a_crowd_on_every_hart_comes_to_an_end() -> Outcome {
    const THREADS: usize = 24;
    const STEPS: usize = 200;
    static TALLY: Mutex<usize> = Mutex::new("tally", 0);
    static CHANGED: Condition = Condition::new();
    static CHANNEL: Channel<usize, 5> = Channel::new();
    static SENDERS_DONE: AtomicUsize = AtomicUsize::new(0);
    /// Does a bit of everything in an order of its own; what each puts in another takes out.
    fn work(number: usize) {
        let mut random = Random(number as u64 * 0x9e37_79b9 + 1);
        for _ in 0..STEPS {
            match random.between(0, 4) {
                0 => sched::yield_now(),
                1 => (0..random.between(1, 200)).for_each(|_| spin_loop()),
                2 => {
                    let mut tally = TALLY.lock();
                    *tally += 1;
                    *tally -= 1;
                    CHANGED.wake_one();
                }
                _ if number.is_multiple_of(2) => CHANNEL.send(number),
                _ => _ = CHANNEL.try_receive(),
            }
            if number % 2 == 1 {
                _ = CHANNEL.try_receive();
            }
        }
        *TALLY.lock() += 1;
        CHANGED.wake_all();
        if number.is_multiple_of(2) {
            SENDERS_DONE.fetch_add(1, Relaxed);
            return;
        }
        // The receivers stay until all senders are done, so that none waits for ever.
        while SENDERS_DONE.load(Relaxed) < THREADS / 2 {
            _ = CHANNEL.try_receive();
            sched::yield_now();
        }
    }
    SENDERS_DONE.store(0, Relaxed);
    *TALLY.lock() = 0;
    crowd(THREADS, work)?;
    while CHANNEL.try_receive().is_some() {}
    ensure_eq!(*TALLY.lock(), THREADS);
    Ok(())
}
