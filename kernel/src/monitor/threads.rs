//! Threads, and where they are.

use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::Ordering;

use arguments::{Arguments, Problem, number};

use super::screen::Screen;
use super::{Command, Stopped};
use crate::backtrace::{self, Folded, Step};
use crate::hart::{self, CpuNumber};
use crate::switch::{Context, Left};
use crate::symbols::Named;
use crate::thread::{self, ThreadRef};
use crate::{sched, stack, timer};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "threads",
        arguments: "",
        help: "all threads, what they do and have done",
        run: threads,
    },
    Command {
        name: "backtrace",
        arguments: "THREAD | idle CPU",
        help: "the calls that a thread is in",
        run: backtrace,
    },
];

/// What is printed of a thread, which may be gone by then.
struct Row {
    id: usize,
    name: &'static str,
    state: &'static str,
    cpu: usize,
    switches: usize,
    preemptions: usize,
    milliseconds: u64,
    stack: Range<usize>,
}

impl Row {
    fn of(thread: ThreadRef) -> Row {
        Row {
            id: thread.id(),
            name: thread.name(),
            state: state(thread),
            cpu: thread.node.home(),
            switches: thread.counts.switches.load(Ordering::Relaxed),
            preemptions: thread.counts.preemptions.load(Ordering::Relaxed),
            milliseconds: timer::microseconds(thread.run_time()) / 1000,
            stack: thread.stack(),
        }
    }
}

/// What a thread is about, of the one moment when it is looked at.
fn state(thread: ThreadRef) -> &'static str {
    let sleeps = |hart| {
        let mut found = false;
        timer::for_each_sleeper(hart, |sleeper| found |= sleeper == thread);
        found
    };
    if thread.node.is_on_cpu() {
        "running"
    } else if thread.node.is_ending() {
        "ended"
    } else if sched::is_queued(thread) {
        "ready"
    } else if hart::all().any(sleeps) {
        "sleeping"
    } else if thread.id() == 0 {
        "idle"
    } else {
        "blocked"
    }
}

fn threads<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    writeln!(
        screen,
        "  id name             state     CPU  switches preempted   time ms  stack used"
    )?;
    for hart in hart::all() {
        show(&Row::of(hart.scheduling.idle()), screen)?;
    }
    let mut last = 0;
    while let Some(row) = thread::next_after(last, Row::of) {
        show(&row, screen)?;
        last = row.id;
    }
    Ok(())
}

fn show(row: &Row, screen: &mut Screen) -> core::fmt::Result {
    let Row { id, name, state, cpu, switches, preemptions, milliseconds, ref stack } = *row;
    let used = stack::most_used(stack.clone());
    writeln!(
        screen,
        "{id:>4} {name:<16} {state:<9} {cpu:>3} {switches:>9} {preemptions:>9} {milliseconds:>9} {used:>11}"
    )
}

/// Where a thread is.
enum Place {
    /// Here: it asks.
    Here,
    Running(usize),
    Left(Left),
    /// It ended meanwhile.
    Gone,
}

impl Place {
    fn of(thread: ThreadRef) -> Place {
        if thread == thread::current() {
            Place::Here
        } else if thread.node.is_on_cpu() {
            Place::Running(thread.node.home())
        } else {
            Context::left_at(thread.context.get()).map_or(Place::Gone, Place::Left)
        }
    }
}

fn backtrace<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let word = arguments.take("THREAD")?;
    let place = if word == "idle" {
        let cpu = number("CPU", arguments.take("CPU")?)? as usize;
        arguments.end()?;
        hart::by_cpu(CpuNumber(cpu)).map(|hart| Place::of(hart.scheduling.idle()))
    } else {
        let id = number("THREAD", word)? as usize;
        arguments.end()?;
        let idle = Problem::Unknown {
            name: "THREAD",
            found: word,
            expected: "above 0: try `backtrace idle CPU`",
        };
        let before = id.checked_sub(1).ok_or(idle)?;
        thread::next_after(before, |thread| (thread.id() == id).then(|| Place::of(thread)))
            .flatten()
    };
    match place {
        None if word == "idle" => writeln!(screen, "no such CPU is up")?,
        None => writeln!(screen, "there is no thread {word}; `threads` lists them")?,
        Some(Place::Gone) => writeln!(screen, "it has just ended")?,
        Some(Place::Running(cpu)) => writeln!(screen, "it runs on CPU {cpu}")?,
        Some(Place::Here) => steps(backtrace::here(), screen)?,
        Some(Place::Left(Left { return_address, frame_pointer: 0 })) => {
            writeln!(screen, "it has not begun: {}", Named(Step::At(return_address)))?;
        }
        Some(Place::Left(Left { return_address, frame_pointer })) => {
            let first = core::iter::once(Step::ReturnTo(return_address));
            steps(first.chain(backtrace::above(frame_pointer)), screen)?;
        }
    }
    Ok(())
}

fn steps(steps: impl Iterator<Item = Step>, screen: &mut Screen) -> core::fmt::Result {
    for (number, (step, repeated)) in Folded::new(steps).enumerate() {
        writeln!(screen, "  {number:>2} {}", Named(step))?;
        if repeated > 0 {
            writeln!(screen, "     same frame repeated {repeated} more times")?;
        }
    }
    Ok(())
}
