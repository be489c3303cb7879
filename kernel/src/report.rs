//! The report of a crash: what happened in one sentence, then where, and how the kernel got there.
//!
//! It takes no lock and allocates nothing. One hart decides that this is a crash (`exit::decide`); a fault in its report makes a
//! shorter one, and a fault in that the last words.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::Ordering;

use crate::backtrace::{Step, Walk};
use crate::console::Unlocked;
use crate::hart::{self, Hart, Part, StackKind};
use crate::image::Section;
use crate::trap::{Cause, TrapFrame, code};
use crate::{boot, exit, interrupts, stack, symbols, vm};

/// Lines of a backtrace at the most.
const BACKTRACE_LINES: usize = 32;

/// Reports a trap that nobody expected, and ends the run. `left` is the bottom of the stack on which its frame did not fit.
pub fn trap(frame: &TrapFrame, cause: Cause, hart: &Hart, left: Option<usize>) -> ! {
    let sentence = TrapSentence { frame, cause, left };
    begin(hart, &sentence);
    let mut out = Unlocked;
    // Unlocked's writes do not fail.
    let _ = writeln!(out, "crash on hart {} (CPU {}): {sentence}", hart.id(), hart.cpu());
    let _ = writeln!(out, "  at {}", Named::exact(frame.pc));
    let _ = writeln!(out, "  called from {}", Named::return_site(frame.registers[TrapFrame::RA]));
    let _ = writeln!(
        out,
        "  scause {:#x} ({}), stval {:#x}, sstatus {:#x}",
        cause.code,
        cause.name(),
        cause.value,
        frame.status
    );
    registers(&mut out, frame);
    backtrace(&mut out, Walk::new(frame.pc, frame.registers[TrapFrame::S0]));
    exit::crash(format_args!("{sentence}"))
}

/// Reports a panic, and ends the run.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    interrupts::disable();
    let hart = hart::of_this_cpu();
    let sentence = PanicSentence(info);
    begin(hart, &sentence);
    let mut out = Unlocked;
    // Unlocked's writes do not fail.
    let _ = writeln!(out, "crash on hart {} (CPU {}): {sentence}", hart.id(), hart.cpu());
    let frame_pointer: usize;
    // SAFETY: reads a register. Not `nomem` and not `pure`: it is this function's own frame pointer that is asked for.
    unsafe { core::arch::asm!("mv {}, s0", out(reg) frame_pointer) };
    backtrace(&mut out, Walk::above(frame_pointer));
    exit::crash(format_args!("{sentence}"))
}

/// Makes this hart the one that reports, and stops here if another does, or if this is a fault in a report.
fn begin(hart: &Hart, sentence: &dyn fmt::Display) {
    match hart.reports.fetch_add(1, Ordering::Relaxed) {
        0 => exit::decide(),
        1 => {
            // Unlocked's writes do not fail.
            let _ = writeln!(Unlocked, "\nthe report itself failed: {sentence}");
            exit::crash(format_args!("a fault in the report of a crash: {sentence}"));
        }
        _ => third_fault(),
    }
    // What was being printed ends here.
    let _ = writeln!(Unlocked);
}

/// A fault in the report about a fault in a report: nothing that formats can be trusted.
fn third_fault() -> ! {
    const TEXT: &core::ffi::CStr = c"\nverdict: crash: the report of a crash failed twice\n";
    boot::say_last_words(TEXT)
}

struct PanicSentence<'a>(&'a PanicInfo<'a>);

impl fmt::Display for PanicSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panic: {}", self.0.message())?;
        match self.0.location() {
            Some(location) => write!(f, " ({}:{})", location.file(), location.line()),
            None => Ok(()),
        }
    }
}

struct TrapSentence<'a> {
    frame: &'a TrapFrame,
    cause: Cause,
    /// The bottom of the stack on which the frame did not fit.
    left: Option<usize>,
}

impl fmt::Display for TrapSentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.cause.value;
        let stack_pointer = self.frame.registers[TrapFrame::SP];
        if let Some(low) = self.left {
            // Frames are smaller than the gaps, so an overflow ends within one stack's size of the bottom.
            let overflow = low.wrapping_sub(stack::GAP_BYTES)..low + size_of::<TrapFrame>();
            return if overflow.contains(&stack_pointer) {
                write!(f, "stack overflow: sp {stack_pointer:#x} leaves no room above {low:#x}")
            } else {
                write!(f, "wild stack pointer: sp {stack_pointer:#x}, the stack is at {low:#x}")
            };
        }
        match self.cause.code {
            code::FETCH_PAGE | code::FETCH_ACCESS => {
                write!(f, "execution of {value:#x}, {}", Place(value))
            }
            code::LOAD_PAGE | code::LOAD_ACCESS => {
                write!(f, "read of {value:#x}, {}", Place(value))
            }
            code::STORE_PAGE | code::STORE_ACCESS => {
                write!(f, "write to {value:#x}, {}", Place(value))
            }
            code::ILLEGAL => write!(f, "illegal instruction {value:#x} at {:#x}", self.frame.pc),
            _ => write!(f, "unexpected {} at {:#x}", self.cause.name(), self.frame.pc),
        }
    }
}

/// What lies at an address, in words.
struct Place(usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0;
        if address < 64 * 1024 {
            return f.write_str("near null");
        }
        if let Some((hart, kind, part)) = hart::stack_at(address) {
            let kind = match kind {
                StackKind::Entry => "stack",
                StackKind::Emergency => "emergency stack",
            };
            return match part {
                Part::Stack => write!(f, "in the {kind} of CPU {}", hart.cpu()),
                Part::Guard => {
                    write!(f, "in the gap below the {kind} of CPU {}", hart.cpu())
                }
            };
        }
        if let Some(section) = Section::of(address) {
            write!(f, "in {}", section.name())?;
            if let Some(symbol) = symbols::exact(address) {
                write!(f, ", {symbol}")?;
            }
        }
        match vm::lookup(address) {
            Some(mapping) => write!(f, ", mapped {}", mapping.rights),
            None => f.write_str("not mapped"),
        }
    }
}

/// A code address and the function it lies in.
struct Named(Step);

impl Named {
    fn exact(address: usize) -> Named {
        Named(Step::At(address))
    }

    fn return_site(address: usize) -> Named {
        Named(Step::ReturnTo(address))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = match self.0 {
            Step::At(address) => symbols::exact(address),
            Step::ReturnTo(address) => symbols::return_site(address),
        };
        match location {
            Some(location) => write!(f, "{:#x} {location}", self.0.address()),
            None => write!(f, "{:#x}", self.0.address()),
        }
    }
}

fn registers(out: &mut Unlocked, frame: &TrapFrame) {
    const NAMES: [&str; 32] = [
        "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
        "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
        "t5", "t6",
    ];
    for (number, name) in NAMES.iter().enumerate().skip(1) {
        let _ = write!(out, "  {name:>3} {:016x}", frame.registers[number]);
        if number % 4 == 0 || number == 31 {
            let _ = writeln!(out);
        }
    }
}

/// Prints a walk, a line a step; a step that repeats is counted instead.
fn backtrace(out: &mut Unlocked, walk: Walk) {
    let _ = writeln!(out, "backtrace:");
    let mut last = None;
    let mut repeated = 0_usize;
    let mut lines = 0;
    for step in walk {
        if last == Some(step) {
            repeated += 1;
            continue;
        }
        say_repeated(out, repeated);
        repeated = 0;
        if lines == BACKTRACE_LINES {
            let _ = writeln!(out, "  and so on");
            return;
        }
        let _ = writeln!(out, "  {lines:>2} {}", Named(step));
        lines += 1;
        last = Some(step);
    }
    say_repeated(out, repeated);
}

fn say_repeated(out: &mut Unlocked, times: usize) {
    if times > 0 {
        let _ = writeln!(out, "     same frame repeated {times} more times");
    }
}
