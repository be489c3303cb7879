//! Calls to other harts.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Outcome, ensure, ensure_eq, self_test};
use crate::hart::{self, CallError, CpuNumber};
use crate::{interrupts, sbi};

static SUM: AtomicUsize = AtomicUsize::new(0);

fn add(amount: usize) {
    SUM.fetch_add(amount, Ordering::Relaxed);
}

self_test!(claim 15, harts 2, a_call_has_run_when_it_returns);
fn a_call_has_run_when_it_returns() -> Outcome {
    SUM.store(0, Ordering::Relaxed);
    let mut expected = 0;
    for turn in 0..200 {
        for hart in hart::all() {
            ensure!(
                hart::call(hart.cpu(), add, turn).is_ok(),
                "CPU {} does not answer",
                hart.cpu()
            );
            expected += turn;
            ensure_eq!(SUM.load(Ordering::Relaxed), expected);
        }
    }
    Ok(())
}

self_test!(claim 15, harts 3, harts_that_call_each_other_do_not_wait_for_ever);
fn harts_that_call_each_other_do_not_wait_for_ever() -> Outcome {
    fn call_round(hops: usize) {
        SUM.fetch_add(1, Ordering::Relaxed);
        if hops > 0 {
            let masked = interrupts::mask();
            let next = (masked.hart().cpu().0 + 1) % hart::all().count();
            hart::call(CpuNumber(next), add, 1).expect("every hart is up");
        }
    }
    SUM.store(0, Ordering::Relaxed);
    for _ in 0..100 {
        let mut inner = Ok(());
        let outer = hart::call_while(CpuNumber(1), call_round, 1, || {
            inner = hart::call(CpuNumber(2), call_round, 1)
        });
        ensure!(outer.is_ok() && inner.is_ok(), "a hart does not answer: {outer:?}, {inner:?}");
    }
    ensure_eq!(SUM.load(Ordering::Relaxed), 400);
    Ok(())
}

self_test!(claim 15, harts 3, harts_that_ask_the_same_hart_are_both_served);
fn harts_that_ask_the_same_hart_are_both_served() -> Outcome {
    const CALLS: usize = 1_000;
    const ASKED: CpuNumber = CpuNumber(2);
    fn ask(calls: usize) {
        for _ in 0..calls {
            hart::call(ASKED, add, 1).expect("CPU 2 is up");
        }
    }
    SUM.store(0, Ordering::Relaxed);
    let called = hart::call_while(CpuNumber(1), ask, CALLS, || ask(CALLS));
    ensure!(called.is_ok(), "CPU 1 does not answer: {called:?}");
    ensure_eq!(SUM.load(Ordering::Relaxed), 2 * CALLS);
    Ok(())
}

self_test!(claim 15, quick, a_call_to_a_hart_that_is_not_up_is_an_error);
fn a_call_to_a_hart_that_is_not_up_is_an_error() -> Outcome {
    let outcome = hart::call(CpuNumber(hart::MAX_CPUS), add, 1);
    ensure!(matches!(outcome, Err(CallError::NotUp(_))), "the call gave {outcome:?}");
    Ok(())
}

self_test!(claim 16, an_interrupt_is_taken_once_interrupts_are_on);
fn an_interrupt_is_taken_once_interrupts_are_on() -> Outcome {
    let were_on = interrupts::disable();
    let masked = interrupts::mask();
    let hart = masked.hart();
    let before = hart.ipis.load(Ordering::Relaxed);
    ensure!(sbi::send_ipi(hart.id()).is_ok(), "the firmware sends no IPI");
    for _ in 0..1000 {
        core::hint::spin_loop();
    }
    ensure_eq!(hart.ipis.load(Ordering::Relaxed), before);
    drop(masked);
    interrupts::enable();
    // An IPI to oneself is pending by the time the call returns (the firmware has written the bit), and is taken at once.
    interrupts::disable();
    ensure_eq!(hart.ipis.load(Ordering::Relaxed), before + 1);
    if were_on {
        interrupts::enable();
    }
    Ok(())
}
