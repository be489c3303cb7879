//! A crash: what is known of it, for whoever writes it down.
//!
//! [`Crash`] borrows all that it says; as text, [`What`] is the sentence that a report begins with. It is made on the hart that crashed, with the
//! registers as they were.

use core::arch::naked_asm;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

use super::place::Place;
use crate::backtrace::{self, Step};
use crate::hart::Hart;
use crate::stack;
use crate::trap::{Cause, TrapFrame, code};
use crate::{image::Section, probe, symbols};

/// Names of the registers by number (psABI).
pub const REGISTERS: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];

/// A crash on one hart.
pub struct Crash<'a> {
    /// Where it happened.
    pub hart: &'a Hart,
    /// What happened.
    pub what: What<'a>,
    /// The faulting instruction; of a panic, the panic handler's beginning.
    pub pc: usize,
    /// The registers by number, as they were; of a panic, at the beginning of its handler.
    pub registers: &'a [usize; 32],
}

/// What happened. As text, it is the sentence that the report begins with.
pub enum What<'a> {
    /// The kernel found that something cannot be.
    Panic(&'a PanicInfo<'a>),
    /// A trap that nobody expected.
    Trap {
        /// Why the hart took it.
        cause: Cause,
        /// `sstatus` at the trap.
        status: usize,
        /// The bottom of the stack on which the frame did not fit, and where the stack pointer was.
        left: Option<(usize, usize)>,
    },
}

impl Crash<'_> {
    /// How the kernel got there, the latest step first.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        let mut calls = backtrace::above(self.registers[TrapFrame::S0]).peekable();
        let (pc, caller) = match self.what {
            // The handler has nothing to tell; the frame pointer is its own.
            What::Panic(_) => (None, None),
            What::Trap { .. } => {
                let caller = self.hidden_caller().filter(|step| calls.peek() != Some(step));
                (Some(Step::At(self.pc)), caller)
            }
        };
        pc.into_iter().chain(caller).chain(calls)
    }

    /// The call in `ra`, where the frame pointer may still be its maker's: the fault came before its function had laid down a frame
    /// record of its own, or where there is no function.
    fn hidden_caller(&self) -> Option<Step> {
        let call = Step::ReturnTo(self.registers[TrapFrame::RA]);
        let made_by = symbols::of(call)?.symbol;
        let here = symbols::exact(self.pc).map(|location| location.symbol);
        (here != Some(made_by)).then_some(call)
    }

    /// The bytes of the faulting instruction as a number, if it can be read: two of them, or four.
    pub fn instruction(&self) -> Option<Instruction> {
        let half = |address| {
            let (low, high) =
                (probe::read_byte(address).ok()?, probe::read_byte(address + 1).ok()?);
            Some(u16::from_le_bytes([low, high]))
        };
        if Section::of(self.pc) != Some(Section::Text) {
            return None;
        }
        let low = half(self.pc)?;
        // Instructions whose two lowest bits are set have 32 bits (unprivileged spec 1.5).
        Some(if low & 3 == 3 {
            Instruction::Full(u32::from(half(self.pc + 2)?) << 16 | u32::from(low))
        } else {
            Instruction::Compressed(low)
        })
    }
}

/// A machine instruction, as it lies in memory.
#[derive(Clone, Copy)]
pub enum Instruction {
    /// Two bytes.
    Compressed(u16),
    /// Four bytes.
    Full(u32),
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Compressed(bits) => write!(f, "{bits:#06x}"),
            Instruction::Full(bits) => write!(f, "{bits:#010x}"),
        }
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut OneLine(f);
        match self {
            What::Panic(info) => {
                write!(f, "panic: {}", info.message())?;
                info.location().map_or(Ok(()), |at| write!(f, " ({}:{})", at.file(), at.line()))
            }
            What::Trap { left: Some((low, stack_pointer)), .. } => {
                // Frames are smaller than the gaps, so an overflow ends within a gap's size of the bottom.
                let overflow = low.wrapping_sub(stack::GAP_BYTES)..low + size_of::<TrapFrame>();
                if overflow.contains(stack_pointer) {
                    let stack = Place(*low);
                    write!(f, "stack overflow {stack}: sp {stack_pointer:#x}, bottom {low:#x}")
                } else {
                    let place = Place(*stack_pointer);
                    write!(f, "wild stack pointer: sp {stack_pointer:#x}, {place}")
                }
            }
            What::Trap { cause, .. } => describe(*cause, f),
        }
    }
}

/// Writes on, a space for each character that would end or garble the line: a panic's message may have any.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut parts = text.split(char::is_control);
        self.0.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(self.0, " {part}"))
    }
}

fn describe(cause: Cause, f: &mut OneLine<'_, '_>) -> fmt::Result {
    let value = cause.value;
    match cause.code {
        _ if cause.is_fetch() => write!(f, "execution of {value:#x}, {}", Place(value)),
        code::LOAD_PAGE | code::LOAD_ACCESS => write!(f, "read of {value:#x}, {}", Place(value)),
        code::STORE_PAGE | code::STORE_ACCESS => {
            write!(f, "write to {value:#x}, {}", Place(value))
        }
        code::ILLEGAL => write!(f, "illegal instruction {value:#x}"),
        _ => write!(f, "unexpected {}", cause.name()),
    }
}

/// Writes the registers down as they are, by number.
#[unsafe(naked)]
pub extern "C" fn save_registers(registers: &mut [usize; 32]) {
    naked_asm!(
        "
        .irp    number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        sd      x\\number, 8*\\number(a0)
        .endr
        ret
        "
    )
}
