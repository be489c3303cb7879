//! Traps: the vector, the frame it leaves on the interrupted stack, and what is done about each cause.
//!
//! The vector checks that the frame fits the stack before it stores anything. If it does not (an overflow, or a wild stack
//! pointer), the frame goes to this hart's emergency stack. Everything else is the same on both ways.
//!
//! [`TrapFrame`] is what an interrupted thread leaves on its own stack, [`Cause`] why. Interrupts stay off until the handler returns; `tp` is never
//! taken from a frame (invariants HART-1, TRAP-1).

use core::arch::naked_asm;
use core::mem::offset_of;

use crate::hart::Hart;
use crate::stack::STACK_BYTES;
use crate::sync::checker;
use crate::{hart, interrupts, irq, probe, report, timer};

/// What a trap saved: all of the interrupted context. Its last two words are a frame record as a function's prologue lays it
/// down, which lets a backtrace walk from the handler into the interrupted code.
#[repr(C)]
pub struct TrapFrame {
    /// `x0` to `x31` by number. Nothing is in place 0; the return uses it to break a reservation.
    pub registers: [usize; 32],
    /// `sstatus` at the trap.
    pub status: usize,
    pad: usize,
    /// `s0` of the interrupted code again, where a frame record has it.
    record_frame_pointer: usize,
    /// The interrupted or faulting instruction. The return goes here.
    pub pc: usize,
}

const FRAME_BYTES: usize = size_of::<TrapFrame>();
const _: () = assert!(FRAME_BYTES.is_multiple_of(16), "the psABI keeps sp aligned to 16");

impl TrapFrame {
    /// Register numbers (psABI).
    pub const RA: usize = 1;
    /// Stack pointer.
    pub const SP: usize = 2;
    /// Frame pointer.
    pub const S0: usize = 8;
    /// First argument and result.
    pub const A0: usize = 10;
    /// Second argument and result.
    pub const A1: usize = 11;
}

/// Why a trap was taken: `scause` and `stval` (privileged spec 4.1.8, 4.1.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// `scause`: the top bit says interrupt.
    pub code: usize,
    /// `stval`: an address or an instruction, by cause.
    pub value: usize,
}

/// Codes in `scause` that the kernel tells apart.
pub mod code {
    /// The bit that says interrupt.
    pub const INTERRUPT: usize = 1 << 63;
    /// Supervisor software interrupt: from another hart.
    pub const IPI: usize = INTERRUPT | 1;
    /// Supervisor timer interrupt.
    pub const TIMER: usize = INTERRUPT | 5;
    /// Supervisor external interrupt: from a device.
    pub const EXTERNAL: usize = INTERRUPT | 9;
    /// Breakpoint.
    pub const BREAKPOINT: usize = 3;
    /// Instruction access fault.
    pub const FETCH_ACCESS: usize = 1;
    /// Illegal instruction.
    pub const ILLEGAL: usize = 2;
    /// Load access fault.
    pub const LOAD_ACCESS: usize = 5;
    /// Store access fault.
    pub const STORE_ACCESS: usize = 7;
    /// Instruction page fault.
    pub const FETCH_PAGE: usize = 12;
    /// Load page fault.
    pub const LOAD_PAGE: usize = 13;
    /// Store page fault.
    pub const STORE_PAGE: usize = 15;
}

impl Cause {
    /// That of the trap whose handler has just begun: another one would replace `stval`.
    fn now(code: usize) -> Cause {
        Cause { code, value: riscv::register::stval::read() }
    }

    /// The cause in words, as the privileged spec's table has them.
    pub fn name(self) -> &'static str {
        const EXCEPTIONS: [&str; 20] = [
            "instruction address misaligned",
            "instruction access fault",
            "illegal instruction",
            "breakpoint",
            "load address misaligned",
            "load access fault",
            "store address misaligned",
            "store access fault",
            "environment call from user mode",
            "environment call from supervisor mode",
            "reserved exception 10",
            "environment call from machine mode",
            "instruction page fault",
            "load page fault",
            "reserved exception 14",
            "store page fault",
            "double trap",
            "reserved exception 17",
            "software check",
            "hardware error",
        ];
        const INTERRUPTS: [&str; 10] = [
            "reserved interrupt 0",
            "software interrupt",
            "reserved interrupt 2",
            "reserved interrupt 3",
            "reserved interrupt 4",
            "timer interrupt",
            "reserved interrupt 6",
            "reserved interrupt 7",
            "reserved interrupt 8",
            "external interrupt",
        ];
        let number = self.code & !(1 << 63);
        let names: &[&str] = if self.is_interrupt() { &INTERRUPTS } else { &EXCEPTIONS };
        names.get(number).copied().unwrap_or("unknown trap")
    }

    /// Whether the hart could not fetch an instruction.
    pub fn is_fetch(self) -> bool {
        matches!(self.code, code::FETCH_ACCESS | code::FETCH_PAGE)
    }

    /// Whether it came from outside the instruction stream.
    pub fn is_interrupt(self) -> bool {
        self.code >> 63 != 0
    }
}

/// Where every trap of a hart goes.
///
/// On entry nothing may be stored before the frame is known to fit: `sscratch` keeps t0 for the check. An unsigned shift tells in
/// one go whether the room below the frame is within the stack: it is negative, so huge, when the stack is too full.
#[unsafe(naked)]
pub extern "C" fn trap_vector() -> ! {
    naked_asm!(
        "
        .balign 4
        .cfi_startproc
        .cfi_signal_frame               # for debuggers: what is called from here was interrupted, not called
        .cfi_return_column {interrupted}
        .cfi_register {interrupted}, {sepc}
        csrw    sscratch, t0
        .cfi_register t0, {sscratch}
        addi    sp, sp, -{frame}
        .cfi_adjust_cfa_offset {frame}
        ld      t0, {stack_low}(tp)
        sub     t0, sp, t0              # bytes that would be left below the frame
        srli    t0, t0, {stack_shift}
        .cfi_remember_state
        bnez    t0, 2f
        addi    t0, sp, {frame}
        .cfi_register sp, t0

    1:  sd      ra, 8*1(sp)
        sd      t0, 8*2(sp)             # sp as it was
        .cfi_rel_offset sp, 8*2
        sd      gp, 8*3(sp)
        sd      tp, 8*4(sp)             # for reports; never restored: the thread may return on another hart
        csrr    t0, sscratch
        sd      t0, 8*5(sp)
        sd      t1, 8*6(sp)
        sd      t2, 8*7(sp)
        sd      s0, 8*8(sp)
        sd      s1, 8*9(sp)
        sd      a0, 8*10(sp)
        sd      a1, 8*11(sp)
        sd      a2, 8*12(sp)
        sd      a3, 8*13(sp)
        sd      a4, 8*14(sp)
        sd      a5, 8*15(sp)
        sd      a6, 8*16(sp)
        sd      a7, 8*17(sp)
        sd      s2, 8*18(sp)
        sd      s3, 8*19(sp)
        sd      s4, 8*20(sp)
        sd      s5, 8*21(sp)
        sd      s6, 8*22(sp)
        sd      s7, 8*23(sp)
        sd      s8, 8*24(sp)
        sd      s9, 8*25(sp)
        sd      s10, 8*26(sp)
        sd      s11, 8*27(sp)
        sd      t3, 8*28(sp)
        sd      t4, 8*29(sp)
        sd      t5, 8*30(sp)
        sd      t6, 8*31(sp)
        .irp    number, 1,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
        .cfi_rel_offset \\number, 8*\\number
        .endr
        csrr    t0, sepc
        csrr    t1, sstatus
        sd      t0, {pc}(sp)
        .cfi_rel_offset {interrupted}, {pc}
        sd      t1, {status}(sp)
        sd      s0, {record}(sp)
        addi    s0, sp, {frame}         # the frame record's place: backtraces walk through it
        mv      a0, sp
        csrr    a1, scause
        call    {handle}
        .globl  trap_handled
    trap_handled:
        ld      t0, {pc}(sp)
        ld      t1, {status}(sp)
        csrw    sepc, t0
        csrw    sstatus, t1
        sc.d    zero, zero, (sp)        # breaks a reservation: an LR before the trap pairs with no SC after it
        ld      ra, 8*1(sp)
        ld      gp, 8*3(sp)
        ld      t0, 8*5(sp)
        ld      t1, 8*6(sp)
        ld      t2, 8*7(sp)
        ld      s0, 8*8(sp)
        ld      s1, 8*9(sp)
        ld      a0, 8*10(sp)
        ld      a1, 8*11(sp)
        ld      a2, 8*12(sp)
        ld      a3, 8*13(sp)
        ld      a4, 8*14(sp)
        ld      a5, 8*15(sp)
        ld      a6, 8*16(sp)
        ld      a7, 8*17(sp)
        ld      s2, 8*18(sp)
        ld      s3, 8*19(sp)
        ld      s4, 8*20(sp)
        ld      s5, 8*21(sp)
        ld      s6, 8*22(sp)
        ld      s7, 8*23(sp)
        ld      s8, 8*24(sp)
        ld      s9, 8*25(sp)
        ld      s10, 8*26(sp)
        ld      s11, 8*27(sp)
        ld      t3, 8*28(sp)
        ld      t4, 8*29(sp)
        ld      t5, 8*30(sp)
        ld      t6, 8*31(sp)
        ld      sp, 8*2(sp)
        .cfi_def_cfa sp, 0
        sret
        .cfi_restore_state

        # The frame does not fit: the emergency stack holds it. Whoever was there before is not coming back.
    2:  addi    t0, sp, {frame}
        .cfi_def_cfa t0, 0
        ld      sp, {emergency_top}(tp)
        addi    sp, sp, -{frame}
        j       1b
        .cfi_endproc
        ",
        stack_low = const offset_of!(Hart, stack_low),
        emergency_top = const offset_of!(Hart, emergency_top),
        frame = const FRAME_BYTES,
        stack_shift = const STACK_BYTES.ilog2(),
        pc = const offset_of!(TrapFrame, pc),
        status = const offset_of!(TrapFrame, status),
        record = const offset_of!(TrapFrame, record_frame_pointer),
        handle = sym handle,
        interrupted = const dwarf::RETURN_COLUMN,
        sepc = const dwarf::SEPC,
        sscratch = const dwarf::SSCRATCH,
    )
}

/// Numbers by which a debugger knows what is no numbered register (psABI, DWARF register numbers).
mod dwarf {
    const CSRS: usize = 4096;
    pub const SSCRATCH: usize = CSRS + 0x140;
    pub const SEPC: usize = CSRS + 0x141;
    /// Where a frame goes back to when that is not in `ra`.
    pub const RETURN_COLUMN: usize = 64;
}

unsafe extern "C" {
    /// The instruction after the vector's call of [`handle`]: as a return address it says that the frame record below it is a
    /// trap's.
    #[link_name = "trap_handled"]
    static TRAP_HANDLED: u8;
}

/// Whether `return_address` leads from the handler back into the vector, so that the next record of the walk is a
/// trap's: its address is the interrupted instruction, not one after a call.
pub fn is_return_to_vector(return_address: usize) -> bool {
    return_address == (&raw const TRAP_HANDLED).addr()
}

/// What is done about a trap. Interrupts are off; `frame` lies on the interrupted stack or on the emergency stack.
extern "C" fn handle(frame: &mut TrapFrame, code: usize) {
    interrupts::handler_begins(code, frame.status);
    let hart = hart::of_this_cpu();
    let frame_end = core::ptr::from_ref(frame).wrapping_add(1).addr();
    if let Some(left) = hart.settle_on_emergency_stack(frame_end) {
        report::trap(frame, Cause::now(code), hart, Some(left));
    }
    if code == code::TIMER {
        timer::handle(hart);
    } else if code & code::INTERRUPT != 0 {
        interrupt(frame, code, hart);
    } else if !(code == code::BREAKPOINT && probe::pass_breakpoint(frame)) {
        exception(frame, Cause::now(code), hart);
    }
    interrupts::handler_ends(frame.status);
}

/// Takes an interrupt that is no tick. Apart, so that `handle` needs no stack: what does has it here.
#[inline(never)]
fn interrupt(frame: &mut TrapFrame, code: usize, hart: &'static Hart) {
    checker::enter_interrupt();
    match code {
        code::IPI => hart::handle_ipi(hart, frame.pc),
        code::EXTERNAL => irq::handle(hart),
        _ => report::trap(frame, Cause::now(code), hart, None),
    }
    checker::leave_interrupt();
}

/// Goes on behind a probe, or reports.
#[cold]
#[inline(never)]
fn exception(frame: &mut TrapFrame, cause: Cause, hart: &Hart) {
    if !probe::recover(frame, cause) {
        report::trap(frame, cause, hart, None);
    }
}
