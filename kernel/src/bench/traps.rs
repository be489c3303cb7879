//! Traps, calls of the firmware, and the lock that masks interrupts.

use core::arch::asm;

use super::{Meter, Outcome, row};
use crate::probe::may_fault;
use crate::sync::SpinLock;

row!(trap);
fn trap(meter: &mut Meter) -> Outcome {
    // SAFETY: the breakpoint goes on behind itself with every register as it was.
    meter.each(|| unsafe { asm!(may_fault!("ebreak")) });
    Ok(())
}

row!(sbi_call);
fn sbi_call(meter: &mut Meter) -> Outcome {
    meter.each(sbi_rt::get_spec_version);
    Ok(())
}

row!(spin_lock);
fn spin_lock(meter: &mut Meter) -> Outcome {
    static LOCK: SpinLock<()> = SpinLock::new("measured", ());
    meter.each(|| drop(LOCK.lock()));
    Ok(())
}
