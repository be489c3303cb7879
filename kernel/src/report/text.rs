//! A crash as people read it.

use core::fmt::Write;

use super::crash::{Crash, REGISTERS, What};
use crate::backtrace::{Folded, Step};
use crate::console::Unlocked;
use crate::hart;
use crate::symbols::Named;
use crate::sync::checker;
use crate::trap::TrapFrame;

/// Lines of a backtrace at the most.
const BACKTRACE_LINES: usize = 32;

/// Writes the report.
pub fn write(out: &mut Unlocked, crash: &Crash<'_>) {
    // Unlocked's writes do not fail, here and below.
    let _ = writeln!(out, "crash on {} in {}: {}", crash.hart, *crash.hart.current(), crash.what);
    if let What::Trap { cause, status, .. } = &crash.what {
        let _ = write!(out, "  at           {}", Named(Step::At(crash.pc)));
        if let Some(instruction) = crash.instruction() {
            let _ = write!(out, ", instruction {instruction}");
        }
        let ra = crash.registers[TrapFrame::RA];
        let _ = match ra == crash.pc {
            true => writeln!(out, "\n  returned to  {ra:#x}, the address in ra"),
            false => writeln!(out, "\n  called from  {}", Named(Step::ReturnTo(ra))),
        };
        let (name, code, value) = (cause.name(), cause.code, cause.value);
        let _ = writeln!(
            out,
            "  cause        {name}: scause {code:#x}, stval {value:#x}, sstatus {status:#x}"
        );
    }
    registers(out, crash.registers);
    harts(out);
    locks(out);
    backtrace(out, crash.steps());
}

fn registers(out: &mut Unlocked, registers: &[usize; 32]) {
    let _ = writeln!(out, "registers:");
    for (number, name) in REGISTERS.iter().enumerate().skip(1) {
        let _ = write!(out, "  {name:>3} {:016x}", registers[number]);
        if number % 4 == 0 || number == 31 {
            let _ = writeln!(out);
        }
    }
}

/// What every hart was doing, if there are several.
fn harts(out: &mut Unlocked) {
    if hart::all().count() == 1 {
        return;
    }
    let _ = writeln!(out, "harts:");
    for hart in hart::all() {
        let stop = hart.stop.get();
        let _ = write!(out, "  {hart} {}", stop.how.words());
        if let Some(step) = stop.at {
            let _ = write!(out, " at {}", Named(step));
        }
        let _ = writeln!(out, " in {}", *hart.current());
    }
}

/// The locks that are held, as far as the build can tell.
fn locks(out: &mut Unlocked) {
    for (number, held) in checker::held().enumerate() {
        if number == 0 {
            let _ = writeln!(out, "locks:");
        }
        let _ = match held.holder {
            Some((cpu, site)) => writeln!(
                out,
                "  '{}' held by CPU {cpu}, taken at {}:{}",
                held.name,
                site.file(),
                site.line()
            ),
            None => writeln!(out, "  '{}' held", held.name),
        };
    }
}

/// A line a step; a step that repeats is counted instead.
fn backtrace(out: &mut Unlocked, steps: impl Iterator<Item = Step>) {
    let _ = writeln!(out, "backtrace:");
    for (number, (step, repeated)) in Folded::new(steps).enumerate() {
        if number == BACKTRACE_LINES {
            let _ = writeln!(out, "  and so on");
            return;
        }
        let _ = writeln!(out, "  {number:>2} {}", Named(step));
        if repeated > 0 {
            let _ = writeln!(out, "     same frame repeated {repeated} more times");
        }
    }
}
