//! Switching from one thread's registers to another's.
//!
//! [`Context`] is what a thread keeps meanwhile, and [`switch`] all that touches it: whose it is at which moment, invariant THREAD-2 says.

use core::arch::naked_asm;
use core::mem::offset_of;

use crate::debugger::Fact;
use crate::probe::{self, Fault};

/// What a thread that does not run keeps: the registers that a function must preserve for its caller (psABI), where it goes on, and its
/// stack. The others are saved by the compiler around the call of [`switch`].
#[repr(C)]
pub struct Context {
    /// Nothing; the switch uses it to break a reservation.
    reservation: usize,
    ra: usize,
    sp: usize,
    s: [usize; 12],
}

/// For debuggers.
pub const LAYOUT: &[Fact] = &[
    Fact::new("context: return address", offset_of!(Context, ra)),
    Fact::new("context: frame pointer", offset_of!(Context, s)),
];

impl Context {
    /// Of a thread that runs.
    pub const EMPTY: Context = Context { reservation: 0, ra: 0, sp: 0, s: [0; 12] };

    /// Of a thread that begins at `entry` on a stack that ends at `top`.
    pub fn beginning_at(entry: usize, top: usize) -> Context {
        Context { ra: entry, sp: top, ..Context::EMPTY }
    }

    /// Where the thread of a context goes on, and its frame pointer. Read by probes: it may come back to a hart meanwhile, or end.
    ///
    /// # Errors
    /// If the context is gone.
    pub fn left_at(context: *const Context) -> Result<Left, Fault> {
        let word = |offset| probe::read(context.addr() + offset).map(|word| word as usize);
        Ok(Left {
            return_address: word(offset_of!(Context, ra))?,
            frame_pointer: word(offset_of!(Context, s))?,
        })
    }
}

/// Where a thread left its hart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Where it goes on.
    pub return_address: usize,
    /// Its frame pointer: 0 if it has not begun.
    pub frame_pointer: usize,
}

/// Saves this thread's registers in `from` and goes on with those in `to`. Returns when somebody switches to `from`.
///
/// # Safety
///
/// Interrupts are off. `to` was filled by this function or by [`Context::beginning_at`], nobody else uses it, and its stack is mapped
/// on this hart (invariant THREAD-2).
#[unsafe(naked)]
pub unsafe extern "C" fn switch(from: *mut Context, to: *const Context) {
    naked_asm!(
        "
        sc.d    zero, zero, (a0)        # breaks a reservation: an LR of one thread pairs with no SC of another
        sd      ra, {ra}(a0)
        sd      sp, {sp}(a0)
        sd      s0, {s} + 8*0(a0)
        sd      s1, {s} + 8*1(a0)
        sd      s2, {s} + 8*2(a0)
        sd      s3, {s} + 8*3(a0)
        sd      s4, {s} + 8*4(a0)
        sd      s5, {s} + 8*5(a0)
        sd      s6, {s} + 8*6(a0)
        sd      s7, {s} + 8*7(a0)
        sd      s8, {s} + 8*8(a0)
        sd      s9, {s} + 8*9(a0)
        sd      s10, {s} + 8*10(a0)
        sd      s11, {s} + 8*11(a0)
        ld      ra, {ra}(a1)
        ld      sp, {sp}(a1)
        ld      s0, {s} + 8*0(a1)
        ld      s1, {s} + 8*1(a1)
        ld      s2, {s} + 8*2(a1)
        ld      s3, {s} + 8*3(a1)
        ld      s4, {s} + 8*4(a1)
        ld      s5, {s} + 8*5(a1)
        ld      s6, {s} + 8*6(a1)
        ld      s7, {s} + 8*7(a1)
        ld      s8, {s} + 8*8(a1)
        ld      s9, {s} + 8*9(a1)
        ld      s10, {s} + 8*10(a1)
        ld      s11, {s} + 8*11(a1)
        ret
        ",
        ra = const offset_of!(Context, ra),
        sp = const offset_of!(Context, sp),
        s = const offset_of!(Context, s),
    )
}
