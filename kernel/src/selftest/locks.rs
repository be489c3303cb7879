//! Interrupt masking and the spin lock.

use super::{Outcome, ensure, ensure_eq, self_test, spawned};
use crate::hart::CpuNumber;
use crate::interrupts;
use crate::sync::{SpinGuard, SpinLock, checker};
use crate::thread;

self_test!(claim 13, quick, guards_dropped_in_any_order_restore_interrupts_with_the_last);
fn guards_dropped_in_any_order_restore_interrupts_with_the_last() -> Outcome {
    let were_on = interrupts::are_enabled();
    interrupts::enable();
    let outcome = drop_out_of_order();
    if !were_on {
        interrupts::disable();
    }
    outcome
}

fn drop_out_of_order() -> Outcome {
    let (one, two) = (SpinLock::new("first", 1), SpinLock::new("second", 2));
    let first = one.lock();
    let second = two.lock();
    ensure!(!interrupts::are_enabled());
    drop(first);
    ensure!(!interrupts::are_enabled(), "interrupts are on while the second lock is held");
    drop(second);
    ensure!(interrupts::are_enabled(), "interrupts stay off after the last lock");
    let masked = interrupts::mask();
    let third = one.lock();
    drop(masked);
    ensure!(!interrupts::are_enabled(), "interrupts are on while a lock is held");
    drop(third);
    ensure!(interrupts::are_enabled());
    Ok(())
}

self_test!(claim 13, a_lock_taken_with_interrupts_off_leaves_them_off);
fn a_lock_taken_with_interrupts_off_leaves_them_off() -> Outcome {
    let were_on = interrupts::disable();
    let lock = SpinLock::new("tested", 7);
    ensure_eq!(*lock.lock(), 7);
    ensure!(!interrupts::are_enabled());
    if were_on {
        interrupts::enable();
    }
    Ok(())
}

self_test!(claim 61, the_calls_of_the_scheduler_pass_where_the_rules_are_kept);
fn the_calls_of_the_scheduler_pass_where_the_rules_are_kept() -> Outcome {
    let queue = SpinLock::new("handed over", ());
    checker::about_to_sleep(0);
    let guard = queue.lock();
    checker::about_to_sleep(queue.address());
    checker::about_to_switch(queue.address());
    checker::thread_exits(queue.address());
    drop(guard);
    checker::about_to_sleep(queue.address());
    Ok(())
}

self_test!(claim 64, a_leaked_lock_stays_held_until_its_guard_is_assumed);
fn a_leaked_lock_stays_held_until_its_guard_is_assumed() -> Outcome {
    static LOCK: SpinLock<usize> = SpinLock::new("handed over", 0);
    let were_on = interrupts::are_enabled();
    interrupts::enable();
    let mut guard = LOCK.lock();
    *guard += 1;
    let before = *guard;
    SpinGuard::leak(guard);
    let (held, open) = (LOCK.try_lock().is_none(), interrupts::are_enabled());
    // SAFETY: this is both the thread that leaked the guard and the one that comes after it, on one hart (LOCK-2).
    let guard = unsafe { LOCK.assume_held() };
    let after = *guard;
    drop(guard);
    let (freed, opened) = (!LOCK.is_locked(), interrupts::are_enabled());
    if !were_on {
        interrupts::disable();
    }
    ensure!(held && !open, "the leaked lock is free, or interrupts are on");
    ensure_eq!(after, before);
    ensure!(freed && opened, "the lock stays held after its guard was assumed, or interrupts off");
    Ok(())
}

self_test!(claim 63, interrupts_are_off_while_a_lock_is_held);
fn interrupts_are_off_while_a_lock_is_held() -> Outcome {
    let lock = SpinLock::new("closed", ());
    let were_on = interrupts::are_enabled();
    interrupts::enable();
    let guard = lock.lock();
    let locked = interrupts::are_enabled();
    drop(guard);
    let tried = lock.try_lock();
    let locked_at_once = interrupts::are_enabled();
    // The lock is held: trying in vain leaves interrupts as they are.
    let in_vain = lock.try_lock().is_none() && !interrupts::are_enabled();
    drop(tried);
    let open = interrupts::are_enabled();
    if !were_on {
        interrupts::disable();
    }
    ensure!(!locked && !locked_at_once, "interrupts are on while the lock is held");
    ensure!(in_vain, "the lock is taken twice, or interrupts are on after it was tried");
    ensure!(open, "interrupts stay off after the lock");
    Ok(())
}

self_test!(claim 14, harts 2, a_lock_lets_one_hart_in_at_a_time);
fn a_lock_lets_one_hart_in_at_a_time() -> Outcome {
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    const TURNS: usize = 2_000;
    /// Two words that only a lock keeps equal.
    static PAIR: SpinLock<(usize, usize)> = SpinLock::new("pair", (0, 0));
    static TORN: AtomicUsize = AtomicUsize::new(0);
    static BEGIN: AtomicBool = AtomicBool::new(false);
    fn count() {
        for _ in 0..TURNS {
            let mut pair = PAIR.lock();
            if pair.0 != pair.1 {
                TORN.fetch_add(1, Ordering::Relaxed);
            }
            pair.0 += 1;
            core::hint::black_box(&mut pair.0);
            pair.1 += 1;
        }
    }
    *PAIR.lock() = (0, 0);
    TORN.store(0, Ordering::Relaxed);
    BEGIN.store(false, Ordering::Relaxed);
    let there = spawned(thread::spawn_on(CpuNumber(1), "counts", || {
        BEGIN.store(true, Ordering::Relaxed);
        count();
    }))?;
    while !BEGIN.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    count();
    there.join();
    ensure_eq!(*PAIR.lock(), (2 * TURNS, 2 * TURNS));
    ensure_eq!(TORN.load(Ordering::Relaxed), 0);
    Ok(())
}
