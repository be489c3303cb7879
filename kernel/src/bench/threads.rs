//! Switches, yields, wakeups and timer interrupts.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Meter, Outcome, instructions, row};
use crate::hart::CpuNumber;
use crate::stack::Stack;
use crate::switch::{Context, switch};
use crate::sync::Channel;
use crate::{interrupts, sched, thread};

const HERE: CpuNumber = CpuNumber(0);
const ROUNDS: usize = 1_000;

/// Two contexts that switch to each other.
struct Pair([UnsafeCell<Context>; 2]);

// SAFETY: one hart alone uses it, with interrupts masked.
unsafe impl Sync for Pair {}

static PAIR: Pair = Pair([const { UnsafeCell::new(Context::EMPTY) }; 2]);

/// The second of the pair: goes back to the first, each time.
extern "C" fn bounce() -> ! {
    loop {
        // SAFETY: interrupts are masked, and the first context was filled by the switch that came here (THREAD-2).
        unsafe { switch(PAIR.0[1].get(), PAIR.0[0].get()) };
    }
}

row!(switch_pair as switch);
fn switch_pair(meter: &mut Meter) -> Outcome {
    let stack = Stack::allocate().map_err(|_| "there is no memory for a stack")?;
    let begin = Context::beginning_at(bounce as *const () as usize, stack.range().end);
    // SAFETY: nobody uses the pair now.
    unsafe { *PAIR.0[1].get() = begin };
    let masked = interrupts::mask();
    meter.rounds(ROUNDS, |meter| {
        let before = instructions();
        // SAFETY: as in `bounce`; the second context was set up above, on a stack of this function.
        unsafe { switch(PAIR.0[0].get(), PAIR.0[1].get()) };
        meter.add(meter.since(before) / 2);
    });
    drop(masked);
    Ok(())
}

row!(yield_pair as yield);
fn yield_pair(meter: &mut Meter) -> Outcome {
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, Relaxed);
    let other = thread::spawn_on(HERE, "yields", || {
        while !DONE.load(Relaxed) {
            sched::yield_now();
        }
    });
    let other = other.map_err(|_| "there is no memory for a thread")?;
    meter.rounds(ROUNDS, |meter| {
        let before = instructions();
        sched::yield_now();
        meter.add(meter.since(before) / 2);
    });
    DONE.store(true, Relaxed);
    other.join();
    Ok(())
}

row!(wake_to_run);
fn wake_to_run(meter: &mut Meter) -> Outcome {
    static THERE: Channel<usize, 1> = Channel::new();
    static BACK: Channel<usize, 1> = Channel::new();
    const END: usize = usize::MAX;
    let other = thread::spawn_on(HERE, "echo", || {
        loop {
            match THERE.receive() {
                END => break,
                value => BACK.send(value),
            }
        }
    });
    let other = other.map_err(|_| "there is no memory for a thread")?;
    meter.rounds(ROUNDS, |meter| {
        let before = instructions();
        THERE.send(1);
        BACK.receive();
        meter.add(meter.since(before) / 2);
    });
    THERE.send(END);
    other.join();
    Ok(())
}

row!(timer_interrupt);
fn timer_interrupt(meter: &mut Meter) -> Outcome {
    const SAMPLES: usize = 20;
    /// More than the loop itself, and less than any handler.
    const GAP: u64 = 30;
    let masked_by_us = interrupts::disable();
    meter.rounds(SAMPLES, |meter| {
        // An interrupt is taken between the two reads or not at all.
        let mut usual = u64::MAX;
        loop {
            let before = instructions();
            interrupts::enable();
            interrupts::disable();
            let passed = meter.since(before);
            if passed > GAP && usual < GAP {
                meter.add(passed - usual);
                break;
            }
            usual = usual.min(passed);
        }
    });
    if masked_by_us {
        interrupts::enable();
    }
    Ok(())
}

row!(timer_rearm);
fn timer_rearm(meter: &mut Meter) -> Outcome {
    let masked = interrupts::mask();
    let part = &masked.hart().timer;
    let mut deadline = part.next_tick().0;
    meter.rounds(ROUNDS, |meter| {
        deadline += 1;
        meter.time(|| part.arm(deadline));
    });
    part.arm(part.next_tick().0);
    drop(masked);
    Ok(())
}
