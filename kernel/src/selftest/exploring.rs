//! Exploring schedules: what a seed does to the threads here.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::Relaxed;

use super::{Ended, Outcome, ensure, ensure_eq, self_test, spawned};
use crate::explore::{self, Draws};
use crate::hart::CpuNumber;
use crate::interrupts;
use crate::sync::SpinLock;
use crate::thread;
use crate::timer::{self, Instant};

/// The hart of these tests.
const HERE: CpuNumber = CpuNumber(0);

self_test!(claim 89, icount, a_seed_takes_threads_off_their_hart);
fn a_seed_takes_threads_off_their_hart() -> Outcome {
    const TURNS: usize = 200;
    /// Takes a lock again and again, and counts how often another thread came in between.
    fn lock_and_count() -> usize {
        static LOCK: SpinLock<()> = SpinLock::new("explored", ());
        let counts = &thread::current().counts;
        let before = counts.switches.load(Relaxed);
        (0..TURNS).for_each(|_| drop(LOCK.lock()));
        counts.switches.load(Relaxed) - before
    }
    let before = explore::explore(0);
    let switches = |seed| {
        let first = spawned(thread::spawn_on(HERE, "explored", lock_and_count))?;
        let second = spawned(thread::spawn_on(HERE, "explored", lock_and_count))?;
        explore::explore(seed);
        let switches = first.join() + second.join();
        explore::explore(0);
        Ok::<usize, Ended>(switches)
    };
    let without = switches(0)?;
    let with = switches(12)?;
    explore::explore(before);
    ensure!(without < TURNS / 10, "{without} switches without a seed");
    ensure!(with > TURNS / 4, "{with} switches with one");
    Ok(())
}

self_test!(claim 89, what_is_drawn_is_a_function_of_the_seed);
fn what_is_drawn_is_a_function_of_the_seed() -> Outcome {
    let row = |seed, cpu| {
        let draws = Draws::new();
        [0; 8].map(|_: u64| draws.next(seed, cpu))
    };
    ensure_eq!(row(7, 0), row(7, 0));
    ensure!(row(7, 0) != row(8, 0), "two seeds draw the same");
    ensure!(row(7, 0) != row(7, 1), "two harts draw the same");
    Ok(())
}

self_test!(claim 89, icount, a_seed_cuts_the_time_of_threads_short);
fn a_seed_cuts_the_time_of_threads_short() -> Outcome {
    const PERIODS: u64 = 4;
    /// Comes to no point. How often it was taken off its hart.
    fn spin() -> usize {
        let end = Instant::now().0 + PERIODS * timer::period();
        while Instant::now().0 < end {
            spin_loop();
        }
        thread::current().counts.preemptions.load(Relaxed)
    }
    let preemptions = |seed| {
        let first = spawned(thread::spawn_on(HERE, "spins", spin))?;
        let second = spawned(thread::spawn_on(HERE, "spins", spin))?;
        explore::begin(seed);
        let preemptions = first.join() + second.join();
        explore::end();
        Ok::<usize, Ended>(preemptions)
    };
    let (without, with) = (preemptions(0)?, preemptions(3)?);
    ensure!(without <= 2 * PERIODS as usize, "{without} preemptions without a seed");
    ensure!(with > 3 * PERIODS as usize, "{with} preemptions with one");
    Ok(())
}

self_test!(claim 89, unexplored, a_seed_changes_which_thread_goes_next_and_which_hart_is_told);
fn a_seed_changes_which_thread_goes_next_and_which_hart_is_told() -> Outcome {
    let drawn = |seed| {
        explore::explore(seed);
        let masked = interrupts::mask();
        let mut seen = (0_u64, 0_u64);
        for _ in 0..100 {
            seen.0 |= 1 << explore::passed_over(masked.hart());
            seen.1 |= 1 << explore::pick(0b1011);
        }
        explore::explore(0);
        seen
    };
    ensure_eq!(drawn(0), (1, 1));
    ensure_eq!(drawn(5), (0b1111, 0b1011));
    Ok(())
}
