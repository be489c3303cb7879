//! Interrupts from hart to hart.

use core::sync::atomic::Ordering;

use super::{Outcome, ensure, ensure_eq, self_test};
use crate::{interrupts, sbi};

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
