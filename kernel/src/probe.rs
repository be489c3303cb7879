//! Fault probes: one read, write or execution that may fault, with the outcome as a value. Nothing else in the kernel may
//! fault.
//!
//! Each probe is one function with one instruction that may fault, and a mark behind it by which the trap handler knows it.
//!
//! [`read`], [`write()`], [`execute`] and their like give a [`Fault`] with its cause and address. They hold no state, so they may be used anywhere, in
//! handlers and reports too, and the hart may change meanwhile.

use core::arch::{asm, naked_asm};
use core::fmt;

use crate::explore::{self, Point};
use crate::trap::{Cause, TrapFrame, code};

/// An access that faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// `scause` and, in `stval`, the address.
    pub cause: Cause,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", self.cause.name(), self.cause.value)
    }
}

/// What the probes' assembly returns: a0, and in a1 zero or one more than the cause.
#[repr(C)]
struct Outcome {
    value: usize,
    cause_plus_one: usize,
}

impl Outcome {
    fn into_result(self) -> Result<u64, Fault> {
        explore::schedule_point(Point::Probe);
        match self.cause_plus_one.checked_sub(1) {
            None => Ok(self.value as u64),
            Some(code) => Err(Fault { cause: Cause { code, value: self.value } }),
        }
    }
}

/// Reads eight bytes. Any address may be asked for; reading a device may have side effects.
pub fn read(address: usize) -> Result<u64, Fault> {
    read_u64(address).into_result()
}

/// Reads four bytes: what registers of devices take.
pub fn read_word(address: usize) -> Result<u32, Fault> {
    read_u32(address).into_result().map(|word| word as u32)
}

/// Reads one byte.
pub fn read_byte(address: usize) -> Result<u8, Fault> {
    read_u8(address).into_result().map(|byte| byte as u8)
}

/// Writes eight bytes.
///
/// # Safety
///
/// Where the write succeeds, nothing may rely on what was there.
pub unsafe fn write(address: usize, value: u64) -> Result<(), Fault> {
    write_u64(address, value).into_result().map(drop)
}

/// Writes one byte.
///
/// # Safety
///
/// Where the write succeeds, nothing may rely on what was there.
pub unsafe fn write_byte(address: usize, value: u8) -> Result<(), Fault> {
    write_u8(address, value).into_result().map(drop)
}

/// Executes `cbo.zero` on the block at `address`, which the caller has; the instruction may be illegal.
pub fn zero_block(address: usize) -> Result<(), Fault> {
    cbo_zero(address).into_result().map(drop)
}

/// Writes `stimecmp`, which may not be there: when the next timer interrupt comes.
pub fn write_timer_comparator(deadline: u64) -> Result<(), Fault> {
    write_stimecmp(deadline).into_result().map(drop)
}

/// Whether this hart can read its counter of retired instructions: firmware may keep it to itself.
pub fn has_instruction_counter() -> bool {
    let count: u64;
    // SAFETY: reads a counter; where that is illegal, the trap goes on behind it with every register as it was.
    unsafe {
        asm!(
            "li {count}, 0",
            may_fault!("rdinstret {count}"),
            count = out(reg) count,
        );
    }
    count != 0
}

/// Calls what lies at `address`. An illegal instruction there counts as a fault too.
///
/// # Safety
///
/// What lies there must not be executable, or be a function that returns without touching memory or registers that a call
/// preserves.
pub unsafe fn execute(address: usize) -> Result<(), Fault> {
    execute_at(address).into_result().map(drop)
}

/// The word behind an instruction that may fault: the trap goes on there, and every register stays as it is. It does nothing when it is
/// executed: a `lui` to `zero`, which no compiler writes. So there is no state to arm, and a probe may be interrupted, preempted and
/// moved to another hart.
const GOES_ON: u32 = 0x1605_0037;
/// The same, and a0 and a1 tell of the fault.
const TELLS: u32 = GOES_ON | 1 << 12;

/// Assembly: an instruction that may fault; its trap goes on behind it.
macro_rules! may_fault {
    ($instruction:literal) => {
        $crate::probe::may_fault!($instruction, "0x16050")
    };
    ($instruction:literal, tells) => {
        $crate::probe::may_fault!($instruction, "0x16051")
    };
    ($instruction:literal, $mark:literal) => {
        concat!(
            ".option push\n.option norvc\n.balign 4\n",
            $instruction,
            "\nlui zero, ",
            $mark,
            "\n.option pop"
        )
    };
}

pub(crate) use may_fault;

#[unsafe(naked)]
extern "C" fn read_u64(address: usize) -> Outcome {
    naked_asm!("li a1, 0", may_fault!("ld a0, (a0)", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn read_u32(address: usize) -> Outcome {
    naked_asm!("li a1, 0", may_fault!("lw a0, (a0)", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn read_u8(address: usize) -> Outcome {
    naked_asm!("li a1, 0", may_fault!("lbu a0, (a0)", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn write_u64(address: usize, value: u64) -> Outcome {
    naked_asm!("mv a2, a1", "li a1, 0", may_fault!("sd a2, (a0)", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn write_u8(address: usize, value: u8) -> Outcome {
    naked_asm!("mv a2, a1", "li a1, 0", may_fault!("sb a2, (a0)", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn cbo_zero(address: usize) -> Outcome {
    naked_asm!("li a1, 0", may_fault!(".insn i 0x0f, 2, x0, a0, 4", tells), "ret")
}

#[unsafe(naked)]
extern "C" fn write_stimecmp(deadline: u64) -> Outcome {
    naked_asm!("li a1, 0", may_fault!("csrw stimecmp, a0", tells), "ret")
}

/// Where the call in [`execute_at`] returns to, from its beginning.
const EXECUTE_RETURN: usize = 24;

#[unsafe(naked)]
extern "C" fn execute_at(address: usize) -> Outcome {
    naked_asm!(
        "
        .option push
        .option norvc                   # the return must be where the handler looks for it
    1:  addi    sp, sp, -16
        sd      ra, 8(sp)
        sd      s0, 0(sp)
        addi    s0, sp, 16
        li      a1, 0
        jalr    ra, (a0)
    2:  ld      ra, 8(sp)
        ld      s0, 0(sp)
        addi    sp, sp, 16
        ret
        .option pop
        .if     2b - 1b != {execute_return}
        .error  \"the execution probe returns elsewhere\"
        .endif
        ",
        execute_return = const EXECUTE_RETURN,
    )
}

/// What stands behind the instruction at which a trap came. It could be fetched, so it and what is behind it can be read: a page that
/// may be executed may be read, and the image goes on behind its code.
#[inline]
fn mark_behind(pc: usize) -> Option<u32> {
    let word = core::ptr::with_exposed_provenance::<u32>(pc.wrapping_add(MARK_OFFSET));
    // SAFETY: mapped to be read, as said, and aligned.
    pc.is_multiple_of(4).then(|| unsafe { word.read_volatile() })
}

/// From an instruction that may fault to its mark.
const MARK_OFFSET: usize = 4;

/// If this breakpoint is one that goes on behind itself, lets it and says so.
#[inline]
pub fn pass_breakpoint(frame: &mut TrapFrame) -> bool {
    let passes = mark_behind(frame.pc) == Some(GOES_ON);
    if passes {
        frame.pc = frame.pc.wrapping_add(MARK_OFFSET);
    }
    passes
}

/// If this trap is a probe's, makes the probe return the fault and says so.
pub fn recover(frame: &mut TrapFrame, cause: Cause) -> bool {
    let execute_return = execute_at as *const () as usize + EXECUTE_RETURN;
    // The execution probe calls the address in a0, and nobody else's calls return to it.
    let executes = (cause.is_fetch() || cause.code == code::ILLEGAL)
        && frame.registers[TrapFrame::RA] == execute_return
        && frame.registers[TrapFrame::A0] == frame.pc;
    let (resume, tells) = if executes {
        (execute_return, true)
    } else if cause.is_fetch() {
        return false;
    } else {
        match mark_behind(frame.pc) {
            Some(mark @ (GOES_ON | TELLS)) => (frame.pc + MARK_OFFSET, mark == TELLS),
            _ => return false,
        }
    };
    frame.pc = resume;
    if tells {
        frame.registers[TrapFrame::A0] = cause.value;
        frame.registers[TrapFrame::A1] = cause.code + 1;
    }
    true
}
