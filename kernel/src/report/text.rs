//! A crash as people read it.
//!
//! It writes to whatever takes text, and allocates nothing.

use core::fmt::{self, Write};

use super::crash::{Crash, REGISTERS, What};
use arrayvec::ArrayVec;

use crate::backtrace::{self, Folded, Step};
use crate::console::Unlocked;
use crate::hart::{self, CpuNumber};
use crate::switch::Context;
use crate::symbols::Named;
use crate::sync::checker;
use crate::trace::Recorded;
use crate::trap::TrapFrame;
use crate::{explore, thread};

/// Lines of a backtrace at the most.
const BACKTRACE_LINES: usize = 32;
/// Threads that are shown beside those that run.
const WAITING_LINES: usize = 12;
/// Frames between where a thread left its hart and what it waits in.
const SCHEDULER_FRAMES: usize = 1;
/// Events of each hart that are looked at, and events that are shown.
const EVENTS_OF_A_HART: usize = 8;
const EVENT_LINES: usize = 16;

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
    waiting(out);
    if let Some(explored) = explore::state() {
        let _ = writeln!(out, "{explored}");
    }
    let _ = write!(out, "{}", newest_events());
}

/// Where the threads are that run nowhere.
fn waiting(out: &mut Unlocked) {
    let mut count = 0;
    thread::for_each(|thread| {
        if hart::all().any(|hart| hart.current() == thread) {
            return;
        }
        count += 1;
        if count == 1 {
            let _ = writeln!(out, "other threads:");
        }
        if count > WAITING_LINES {
            return;
        }
        let _ = write!(out, "  {}", *thread);
        if let Ok(left) = Context::left_at(thread.context.get()) {
            // The scheduler's own frames are the same for all.
            let step = backtrace::above(left.frame_pointer).nth(SCHEDULER_FRAMES);
            let step = step.unwrap_or(Step::ReturnTo(left.return_address));
            let _ = write!(out, " at {}", Named(step));
        }
        let _ = writeln!(out);
    });
    if count > WAITING_LINES {
        let _ = writeln!(out, "  and {} more", count - WAITING_LINES);
    }
}

/// What all harts did last, in the order in which they did: of each the newest.
pub struct NewestEvents(ArrayVec<(CpuNumber, Recorded), { EVENTS_OF_A_HART * hart::MAX_CPUS }>);

/// The newest events as of now; none where no trace is kept. A function of its own, as they are large.
#[inline(never)]
pub fn newest_events() -> NewestEvents {
    let mut events = ArrayVec::new();
    for hart in hart::all() {
        let newest = hart.trace.snapshot().newest(EVENTS_OF_A_HART);
        events.extend(newest.map(|event| (hart.cpu(), event)).take(EVENTS_OF_A_HART));
    }
    events.sort_unstable_by_key(|(_, event)| event.time);
    let older = events.len().saturating_sub(EVENT_LINES);
    events.drain(..older);
    NewestEvents(events)
}

impl fmt::Display for NewestEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, Recorded { time: begin, .. })) = self.0.first() else { return Ok(()) };
        writeln!(f, "last events, in ticks of the timebase from {begin} on:")?;
        self.0.iter().try_for_each(|(cpu, event)| {
            writeln!(f, "  +{:<8} CPU {cpu} {}", event.time - begin, event.words())
        })
    }
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
