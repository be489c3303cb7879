//! What happens: interrupts, locks, timers, and the trace of it all.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use arguments::{Arguments, Problem};
use arrayvec::ArrayVec;
use machine::Interrupt;

use super::screen::Screen;
use super::{Command, Stopped};
use crate::interrupts::{self, Stretch};
use crate::sync::checker;
use crate::sync::known::{HeldMutex, Longest, Waiting};
use crate::thread::{self, ThreadRef};
use crate::timer::{self, Instant};
use crate::{hart, irq, platform, trace, uart};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "interrupts",
        arguments: "",
        help: "counts by source, and the longest time without",
        run: interrupt_counts,
    },
    Command {
        name: "locks",
        arguments: "",
        help: "holders, waiters, the longest holds",
        run: locks,
    },
    Command {
        name: "timers",
        arguments: "",
        help: "when each hart's timer fires, and who sleeps",
        run: timers,
    },
    Command {
        name: "trace",
        arguments: "[on|off]",
        help: "what harts did last; on: also when the run ends",
        run: show_trace,
    },
];

/// Sleepers of a hart, and events of a hart, that are shown.
const SHOWN: usize = 20;

fn interrupt_counts<'a>(
    mut arguments: Arguments<'a>,
    screen: &mut Screen,
) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    writeln!(screen, "hart       ticks  from other harts  from devices")?;
    for hart in hart::all() {
        let ticks = hart.timer.ticks.load(Ordering::Relaxed);
        let ipis = hart.ipis.load(Ordering::Relaxed);
        let taken = irq::taken(hart.cpu());
        writeln!(screen, "CPU {:<3} {ticks:>8} {ipis:>17} {taken:>13}", hart.cpu().0)?;
    }
    let uart = platform::machine().and_then(|machine| machine.uart);
    for source in irq::sources().filter(|source| irq::count(*source) > 0) {
        let of_uart = |interrupt: Interrupt| interrupt.number == source;
        let is_uart = uart.and_then(|uart| uart.interrupt).is_some_and(of_uart);
        let device = if is_uart { ", the UART" } else { "" };
        writeln!(screen, "source {source}{device}: {} times", irq::count(source))?;
    }
    writeln!(
        screen,
        "the UART had no room for what was typed {} times; it did not send {} bytes",
        uart::overruns(),
        uart::given_up()
    )?;
    match interrupts::longest_off() {
        Some((cpu, Stretch { instructions, site })) => writeln!(
            screen,
            "longest off: {instructions} instructions (if they are counted: --icount) on CPU {cpu}, {site}"
        )?,
        None => writeln!(screen, "longest off: this build or this hart does not measure it")?,
    }
    Ok(())
}

fn locks<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    if !checker::CHECKS {
        writeln!(
            screen,
            "this build has no lock checker, and keeps no list of locks that are held"
        )?;
        return Ok(());
    }
    let mut count = 0;
    for held in checker::held() {
        count += 1;
        match held.holder {
            Some((cpu, site)) => writeln!(
                screen,
                "'{}' held by CPU {cpu}, taken at {}:{}",
                held.name,
                site.file(),
                site.line()
            )?,
            None => writeln!(screen, "'{}' held", held.name)?,
        }
    }
    writeln!(screen, "{count} spin locks are held")?;
    for Waiting { name, cpu, site } in checker::waiting() {
        writeln!(screen, "'{name}' is waited for by CPU {cpu} at {}:{}", site.file(), site.line())?;
    }
    mutexes(screen)?;
    writeln!(screen, "longest held, in us:")?;
    for Longest { name, ticks, site } in checker::longest() {
        let tenths = timer::microseconds(ticks * 10);
        let (whole, tenth) = (tenths / 10, tenths % 10);
        writeln!(screen, "{whole:>7}.{tenth} {name:<18} {}:{}", site.file(), site.line())?;
    }
    Ok(())
}

fn mutexes(screen: &mut Screen) -> core::fmt::Result {
    let (mut last, mut count) = (0, 0);
    let of_thread = |thread: ThreadRef| (thread.id(), thread.name(), thread.mutexes.all());
    while let Some((id, thread, mutexes)) = thread::next_after(last, of_thread) {
        last = id;
        for HeldMutex { name, is_held, site } in mutexes {
            count += usize::from(is_held);
            let what = if is_held { "held" } else { "waited for" };
            let (file, line) = (site.file(), site.line());
            writeln!(screen, "'{name}' {what} by thread {id} ({thread}) at {file}:{line}")?;
        }
    }
    writeln!(screen, "{count} mutexes are held")
}

fn timers<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    let now = Instant::now();
    let from_now = |at: Instant| timer::microseconds(at.0.saturating_sub(now.0));
    writeln!(
        screen,
        "now: {} us since the machine began; {} Hz, by {}",
        timer::microseconds(now.0),
        timer::TICK_HERTZ,
        timer::description()
    )?;
    for hart in hart::all() {
        let cpu = hart.cpu();
        match hart.timer.armed() {
            Some(at) => writeln!(screen, "CPU {cpu}: fires in {} us", from_now(at))?,
            None => writeln!(screen, "CPU {cpu}: is not set")?,
        }
        let mut sleepers = ArrayVec::<(usize, &'static str, Instant), SHOWN>::new();
        let mut left_out = 0;
        timer::for_each_sleeper(hart, |thread| {
            let at = Instant(thread.wake_at.load(Ordering::Relaxed));
            let sleeper = (thread.id(), thread.name(), at);
            left_out += usize::from(sleepers.try_push(sleeper).is_err());
        });
        for (id, name, at) in sleepers {
            writeln!(screen, "    thread {id} ({name}) sleeps for {} us more", from_now(at))?;
        }
        if left_out > 0 {
            writeln!(screen, "    and {left_out} more")?;
        }
    }
    Ok(())
}

fn show_trace<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let word = arguments.optional();
    arguments.end()?;
    if !trace::KEPT {
        writeln!(screen, "this build keeps no trace")?;
        return Ok(());
    }
    match word {
        Some("on") => trace::ask_for_dump(true),
        Some("off") => trace::ask_for_dump(false),
        Some(found) => {
            return Err(Problem::Unknown { name: "argument", found, expected: "on or off" }.into());
        }
        None => {
            for hart in hart::all() {
                writeln!(
                    screen,
                    "CPU {}: the last events, in us since the machine began",
                    hart.cpu()
                )?;
                let mut events = hart.trace.snapshot().newest(SHOWN);
                // All at once, before what is printed here replaces them.
                for event in (&mut events).collect::<ArrayVec<_, SHOWN>>() {
                    let time = timer::microseconds(event.time);
                    writeln!(screen, "{time:>12}  {}", event.words())?;
                }
            }
        }
    }
    let is_printed = if trace::is_asked() { "is" } else { "is not" };
    writeln!(screen, "the trace {is_printed} printed at the end of the run")?;
    Ok(())
}
