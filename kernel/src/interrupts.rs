//! Whether this hart takes interrupts: masked as a value.

use core::arch::asm;
use core::marker::PhantomData;

use crate::hart::{self, Hart};

/// `sstatus.SIE`.
const STATUS_INTERRUPTS: usize = 1 << 1;

/// While one of these lives, its hart takes no interrupt. The last of them to be dropped, in whatever order, restores what
/// was before the first.
#[must_use]
pub struct Masked {
    /// Masked is a hart's state: the value must not go to another.
    not_send: PhantomData<*const ()>,
}

/// Masks interrupts on this hart.
pub fn mask() -> Masked {
    let were_on = disable();
    let hart = hart::of_this_cpu();
    hart.enter_masked(were_on);
    Masked { not_send: PhantomData }
}

impl Masked {
    /// The value again, of a mask that was forgotten with the guard of a lock.
    pub(crate) fn assume() -> Masked {
        Masked { not_send: PhantomData }
    }

    /// The hart this runs on; it stays this one for as long as interrupts are masked.
    pub fn hart(&self) -> &'static Hart {
        hart::of_this_cpu()
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if hart::of_this_cpu().leave_masked() {
            enable();
        }
    }
}

/// Masks interrupts without a guard, and says whether they were on.
pub fn disable() -> bool {
    let before: usize;
    // SAFETY: clearing SIE only delays interrupts. Neither `nomem` nor `pure`: nothing may move across it.
    unsafe { asm!("csrrci {}, sstatus, {}", out(reg) before, const STATUS_INTERRUPTS) };
    before & STATUS_INTERRUPTS != 0
}

/// Lets this hart take interrupts.
pub fn enable() {
    // SAFETY: handlers find what they need on any stack (invariant TRAP-1). Not `nomem`: nothing may move across it.
    unsafe { asm!("csrsi sstatus, {}", const STATUS_INTERRUPTS) };
}

/// Whether this hart takes interrupts now.
pub fn are_enabled() -> bool {
    riscv::register::sstatus::read().sie()
}

/// Orders earlier memory accesses before later device accesses (unprivileged spec 2.7).
pub fn fence_before_io() {
    // SAFETY: a fence only orders. Not `nomem`: the compiler must not move stores below it.
    unsafe { asm!("fence rw, o") };
}
