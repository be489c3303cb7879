//! A crash as programs read it: one line, `report: ` and a JSON object (RFC 8259). README.md lists its members.
//!
//! Addresses and registers are texts in hexadecimal: JSON's numbers are not exact beyond 53 bits.

use core::fmt::{self, Write};

use super::crash::{Crash, REGISTERS, What};
use crate::backtrace::{Folded, Step};
use crate::console::Unlocked;
use crate::hart::{self, Hart};
use crate::symbols;
use crate::sync::checker;

/// Writes the line.
pub fn write(out: &mut Unlocked, crash: &Crash<'_>) {
    // Unlocked's writes do not fail, here and below.
    let _ = write!(
        out,
        "report: {{\"sentence\":\"{}\",\"hart\":{},\"cpu\":{},\"thread\":",
        Escaped(&crash.what),
        crash.hart.id(),
        crash.hart.cpu()
    );
    thread(out, crash.hart);
    match &crash.what {
        What::Panic(_) => {
            let _ = write!(out, ",\"kind\":\"panic\"");
        }
        What::Trap { cause, status, .. } => {
            let (code, value) = (cause.code, cause.value);
            let _ = write!(
                out,
                ",\"kind\":\"trap\",\"cause\":\"{}\",\"scause\":\"{code:#x}\",\"stval\":\"{value:#x}\",\"sstatus\":\"{status:#x}\",\"at\":",
                cause.name()
            );
            place(out, Step::At(crash.pc));
            if let Some(instruction) = crash.instruction() {
                let _ = write!(out, ",\"instruction\":\"{instruction}\"");
            }
        }
    }
    let _ = write!(out, ",\"registers\":{{");
    for (number, name) in REGISTERS.iter().enumerate().skip(1) {
        let comma = if number == 1 { "" } else { "," };
        let _ = write!(out, "{comma}\"{name}\":\"{:#x}\"", crash.registers[number]);
    }
    let _ = write!(out, "}},\"harts\":");
    list(out, hart::all(), |out, hart| {
        let stop = hart.stop.get();
        let _ = write!(
            out,
            "{{\"hart\":{},\"cpu\":{},\"state\":\"{}\"",
            hart.id(),
            hart.cpu(),
            stop.how.words()
        );
        if let Some(step) = stop.at {
            let _ = write!(out, ",\"at\":");
            place(out, step);
        }
        let _ = write!(out, ",\"thread\":");
        thread(out, hart);
        let _ = write!(out, "}}");
    });
    let _ = write!(out, ",\"locks\":");
    list(out, checker::held(), |out, held| {
        let _ = write!(out, "{{\"name\":\"{}\"", Escaped(&held.name));
        if let Some((cpu, site)) = held.holder {
            let (file, line) = (site.file(), site.line());
            let _ = write!(out, ",\"cpu\":{cpu},\"taken\":\"{file}:{line}\"");
        }
        let _ = write!(out, "}}");
    });
    let _ = write!(out, ",\"backtrace\":");
    list(out, Folded::new(crash.steps()), |out, (step, repeated)| {
        let _ = write!(out, "{{\"at\":");
        place(out, step);
        let _ = write!(out, ",\"repeated\":{repeated}}}");
    });
    let _ = writeln!(out, "}}");
}

/// An array: each item as `write` has it.
fn list<T>(
    out: &mut Unlocked,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut Unlocked, T),
) {
    let _ = write!(out, "[");
    for (index, item) in items.enumerate() {
        if index > 0 {
            let _ = write!(out, ",");
        }
        write(out, item);
    }
    let _ = write!(out, "]");
}

/// The thread that a hart ran.
fn thread(out: &mut Unlocked, hart: &Hart) {
    let thread = hart.current();
    let _ = write!(out, "{{\"id\":{},\"name\":\"{}\"}}", thread.id(), Escaped(&thread.name()));
}

/// A code address and its symbol.
fn place(out: &mut Unlocked, step: Step) {
    let _ = write!(out, "{{\"address\":\"{:#x}\"", step.address());
    if let Some(location) = symbols::of(step) {
        let (name, offset) = (location.symbol.name, location.offset);
        let _ = write!(out, ",\"symbol\":\"{}\",\"offset\":{offset}", Escaped(&name));
    }
    let _ = write!(out, "}}");
}

/// A text within a JSON string.
struct Escaped<'a, T>(&'a T);

impl<T: fmt::Display> fmt::Display for Escaped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Writes on, with what JSON cannot have in a string escaped (RFC 8259, 7).
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character {
            '"' | '\\' => write!(self.0, "\\{character}"),
            '\0'..='\x1f' => write!(self.0, "\\u{:04x}", u32::from(character)),
            _ => self.0.write_char(character),
        })
    }
}
