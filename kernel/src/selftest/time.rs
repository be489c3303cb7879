//! Ticks and deadlines.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;

use alloc::vec::Vec;

use super::{Ended, Outcome, ensure, ensure_eq, self_test, spawned};
use crate::hart::{self, CpuNumber, HARTS};
use crate::interrupts;
use crate::thread::{self, JoinHandle};
use crate::timer::{self, Instant};

/// Ticks of this hart, and the moment: read with interrupts off, so that no tick comes between the two.
fn ticks_and_now() -> (usize, Instant) {
    let masked = interrupts::mask();
    (masked.hart().timer.ticks.load(Relaxed), Instant::now())
}

self_test!(claim 58, icount, ticks_keep_step_with_the_clock);
fn ticks_keep_step_with_the_clock() -> Outcome {
    let period = timer::period();
    let (first, begun) = ticks_and_now();
    let end = begun.after(Duration::from_millis(500));
    while Instant::now() < end {
        spin_loop();
    }
    let (last, ended) = ticks_and_now();
    // A tick is due at each multiple of the period.
    let due = (ended.0 / period - begun.0 / period) as usize;
    ensure_eq!(last - first, due);
    Ok(())
}

self_test!(claim 58, there_are_never_more_ticks_than_the_clock_says);
fn there_are_never_more_ticks_than_the_clock_says() -> Outcome {
    let period = timer::period();
    let (first, begun) = ticks_and_now();
    let end = begun.after(Duration::from_millis(100));
    // On a busy host the time may be over before the hart ran at all.
    let patience = begun.after(Duration::from_secs(30));
    let none_came = || ticks_and_now().0 == first && Instant::now() < patience;
    while Instant::now() < end || none_came() {
        spin_loop();
    }
    let (last, ended) = ticks_and_now();
    let due = (ended.0 / period - begun.0 / period) as usize;
    // A late hart takes one for several; one that was due before may come after the first look.
    ensure!(last - first <= due + 1, "{} ticks, where {due} were due", last - first);
    ensure!(last > first, "no tick came in {due} periods");
    Ok(())
}

self_test!(claim 58, ticks_stay_on_their_grid);
fn ticks_stay_on_their_grid() -> Outcome {
    let period = timer::period();
    for _ in 0..3 {
        // Busy: a hart that idles begins anew.
        let end = Instant::now().after(Duration::from_millis(13));
        while Instant::now() < end {
            spin_loop();
        }
        let masked = interrupts::mask();
        let next = masked.hart().timer.next_tick();
        ensure!(
            next.0.is_multiple_of(period),
            "the next tick is due at {next:?}, off the grid of {period}"
        );
    }
    Ok(())
}

self_test!(claim 59, quick, nobody_wakes_before_the_deadline);
fn nobody_wakes_before_the_deadline() -> Outcome {
    let sleep_and_look = |microseconds| {
        let deadline = Instant::now().after(Duration::from_micros(microseconds));
        timer::sleep_until(deadline);
        let woken = Instant::now();
        ensure!(woken >= deadline, "it was to sleep until {deadline:?} and woke at {woken:?}");
        Ok(())
    };
    [1, 10, 100, 1_000].into_iter().try_for_each(sleep_and_look)?;
    // While somebody else keeps the hart busy, ticks come before the deadline.
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, Relaxed);
    let busy = spawned(thread::spawn_on(CpuNumber(0), "busy", || {
        while !DONE.load(Relaxed) {
            spin_loop();
        }
    }))?;
    let slept = sleep_and_look(35_000);
    DONE.store(true, Relaxed);
    busy.join();
    slept
}

self_test!(claim 59, a_deadline_in_the_past_is_no_sleep);
fn a_deadline_in_the_past_is_no_sleep() -> Outcome {
    for past in [Instant(0), Instant(Instant::now().0 - 1), Instant::now()] {
        timer::sleep_until(past);
    }
    timer::sleep(Duration::ZERO);
    Ok(())
}

self_test!(claim 59, icount, a_sleeper_wakes_at_its_deadline);
fn a_sleeper_wakes_at_its_deadline() -> Outcome {
    // One tick of the timebase is a hundred instructions: the way out of the handler takes a few of them.
    const LATE: u64 = 100;
    for microseconds in [100, 3_000, 25_000] {
        let deadline = Instant::now().after(Duration::from_micros(microseconds));
        timer::sleep_until(deadline);
        let late = Instant::now().0 - deadline.0;
        ensure!(late <= LATE, "woken {late} ticks of the timebase after the deadline");
    }
    Ok(())
}

self_test!(claim 59, sleepers_wake_in_the_order_of_their_deadlines);
fn sleepers_wake_in_the_order_of_their_deadlines() -> Outcome {
    const ORDER: [u64; 5] = [30, 10, 50, 20, 40];
    static WOKEN: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    /// Whether the thread slept: not if the host was so late that its deadline was over before.
    fn sleep_and_sign(base: Instant, milliseconds: u64) -> bool {
        // Off until it has signed, so that nobody signs in between.
        interrupts::disable();
        let switches = || thread::current().counts.switches.load(Relaxed);
        let before = switches();
        timer::sleep_until(base.after(Duration::from_millis(milliseconds)));
        WOKEN[NEXT.fetch_add(1, Relaxed)].store(milliseconds as usize, Relaxed);
        let slept = switches() > before;
        interrupts::enable();
        slept
    }
    for doublings in 0..10 {
        NEXT.store(0, Relaxed);
        let base = Instant::now().after(Duration::from_millis(20 << doublings));
        let mut threads = Vec::new();
        ensure!(threads.try_reserve(ORDER.len()).is_ok());
        for milliseconds in ORDER {
            threads.push(spawned(thread::spawn_on(CpuNumber(0), "sleeper", move || {
                sleep_and_sign(base, milliseconds)
            }))?);
        }
        let slept = threads.into_iter().map(JoinHandle::join).filter(|slept| *slept).count();
        if slept == ORDER.len() {
            let woken = WOKEN.each_ref().map(|woken| woken.load(Relaxed));
            ensure_eq!(woken, [10, 20, 30, 40, 50]);
            return Ok(());
        }
    }
    Err(Ended::Skipped("the host never lets five threads sleep at once"))
}

self_test!(claim 59, sleepers_on_every_hart_wake);
fn sleepers_on_every_hart_wake() -> Outcome {
    static SLEPT: AtomicUsize = AtomicUsize::new(0);
    SLEPT.store(0, Relaxed);
    let mut threads = Vec::new();
    for round in 0..4_u64 {
        for hart in hart::all() {
            ensure!(threads.try_reserve(1).is_ok());
            threads.push(spawned(thread::spawn_on(hart.cpu(), "sleeper", move || {
                for nap in 1..10_u64 {
                    timer::sleep(Duration::from_micros(100 * nap + 37 * round));
                    SLEPT.fetch_add(1, Relaxed);
                }
            }))?);
        }
    }
    let count = threads.len();
    threads.into_iter().for_each(JoinHandle::join);
    ensure_eq!(SLEPT.load(Relaxed), 9 * count);
    Ok(())
}

self_test!(claim 75, harts 2, an_idle_hart_takes_no_ticks);
fn an_idle_hart_takes_no_ticks() -> Outcome {
    // Whatever ran there has ended: wait until nothing changes any more.
    timer::sleep(Duration::from_millis(30));
    let timer = &HARTS[1].timer;
    let look = || (timer.ticks.load(Relaxed), timer.wakeups.load(Relaxed));
    let before = look();
    timer::sleep(Duration::from_millis(100));
    let after = look();
    let (ticks, wakeups) = (after.0 - before.0, after.1 - before.1);
    ensure!(ticks <= 1, "an idle hart took {ticks} ticks in ten periods");
    // This hart may tell it once or twice of a thread that it then finds gone.
    ensure!(wakeups <= 4, "an idle hart woke {wakeups} times in ten periods");
    Ok(())
}
