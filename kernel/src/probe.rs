//! Fault probes: one read, write or execution that may fault, with the outcome as a value. Nothing else in the kernel may
//! fault.
//!
//! Each probe is one function with one instruction that may fault, and a table in the image says where its trap goes on.

use core::arch::{asm, naked_asm};
use core::fmt;

use crate::explore::{self, Point};
use crate::image;
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
            "1: rdinstret {count}",
            "2:",
            recovery!("1b", "2b", 0),
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

/// An instruction that may fault, and where its trap goes on instead. The trap handler finds them by address in a section of
/// the image, so there is no state to arm, and a probe may be interrupted, preempted and moved to another hart.
#[repr(C)]
struct Recovery {
    instruction: usize,
    resume: usize,
    /// Whether a0 and a1 tell of the fault; otherwise every register stays as it is.
    tells: usize,
}

/// Assembly that registers a [`Recovery`]: the instruction at `$instruction` goes on at `$resume`, and a0 and a1 tell of the fault
/// if `$tells` is 1.
macro_rules! recovery {
    ($instruction:literal, $resume:literal, $tells:literal) => {
        concat!(
            ".pushsection .recoveries, \"a\"\n.balign 8\n.dword ",
            $instruction,
            ", ",
            $resume,
            ", ",
            $tells,
            "\n.popsection"
        )
    };
}

pub(crate) use recovery;

#[unsafe(naked)]
extern "C" fn read_u64(address: usize) -> Outcome {
    naked_asm!("li a1, 0", "1: ld a0, (a0)", "2: ret", recovery!("1b", "2b", 1))
}

#[unsafe(naked)]
extern "C" fn read_u8(address: usize) -> Outcome {
    naked_asm!("li a1, 0", "1: lbu a0, (a0)", "2: ret", recovery!("1b", "2b", 1))
}

#[unsafe(naked)]
extern "C" fn write_u64(address: usize, value: u64) -> Outcome {
    naked_asm!("mv a2, a1", "li a1, 0", "1: sd a2, (a0)", "2: ret", recovery!("1b", "2b", 1))
}

#[unsafe(naked)]
extern "C" fn write_u8(address: usize, value: u8) -> Outcome {
    naked_asm!("mv a2, a1", "li a1, 0", "1: sb a2, (a0)", "2: ret", recovery!("1b", "2b", 1))
}

#[unsafe(naked)]
extern "C" fn cbo_zero(address: usize) -> Outcome {
    naked_asm!("li a1, 0", "1: .insn i 0x0f, 2, x0, a0, 4", "2: ret", recovery!("1b", "2b", 1))
}

#[unsafe(naked)]
extern "C" fn write_stimecmp(deadline: u64) -> Outcome {
    naked_asm!("li a1, 0", "1: csrw stimecmp, a0", "2: ret", recovery!("1b", "2b", 1))
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

fn recoveries() -> &'static [Recovery] {
    image::gathered!(Recovery, __recoveries_start, __recoveries_end)
}

/// If this trap is a probe's, makes the probe return the fault and says so.
pub fn recover(frame: &mut TrapFrame, cause: Cause) -> bool {
    let execute_return = execute_at as *const () as usize + EXECUTE_RETURN;
    // The execution probe calls the address in a0, and nobody else's calls return to it.
    let executes = matches!(cause.code, code::FETCH_ACCESS | code::FETCH_PAGE | code::ILLEGAL)
        && frame.registers[TrapFrame::RA] == execute_return
        && frame.registers[TrapFrame::A0] == frame.pc;
    let (resume, tells) = if executes {
        (execute_return, true)
    } else {
        match recoveries().iter().find(|recovery| recovery.instruction == frame.pc) {
            Some(recovery) => (recovery.resume, recovery.tells != 0),
            None => return false,
        }
    };
    frame.pc = resume;
    if tells {
        frame.registers[TrapFrame::A0] = cause.value;
        frame.registers[TrapFrame::A1] = cause.code + 1;
    }
    true
}
