//! Deliberate crashes: `crash=KIND` on the command line runs one, and the host checks its report against what the kind says.

mod kinds;

use core::time::Duration;

use command_line::{CommandLine, Job};
use spin::Once;

use crate::exit::{self, Failure};
use crate::hart::{self, CpuNumber};
use crate::sync::checker;
use crate::{console, image, interrupts, stop, thread, timer};

/// A way to crash, registered where it is written.
pub struct Kind {
    name: &'static str,
    place: Place,
    crash: fn(),
}

/// On which stack a crash happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A thread's, on the CPU asked for.
    Thread,
    /// The one that a CPU entered on, before its first thread.
    EntryOf(CpuNumber),
}

/// Registers a crash kind: `crash_kind!(claim N, harts N, "flags", name, function, "what the verdict says", "frames of the backtrace")`.
/// The host reads the same line from the image's `.manifest` and checks the report against it.
macro_rules! crash_kind {
    (claim $claim:literal, harts $harts:literal, $flags:literal, $name:ident, $sentence:literal, $frames:literal) => {
        $crate::crash::crash_kind!(claim $claim, harts $harts, $flags, Place::Thread, $name, $sentence, $frames);
    };
    (claim $claim:literal, harts $harts:literal, $flags:literal, $place:expr, $name:ident, $sentence:literal, $frames:literal) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".crash_kinds")]
            static KIND: $crate::crash::Kind =
                $crate::crash::Kind { name: stringify!($name), place: $place, crash: $name };
            $crate::crash::manifest_line!(
                "crash\t",
                stringify!($name),
                "\t",
                $claim,
                "\t",
                $harts,
                "\t",
                $flags,
                "\t",
                file!(),
                ":",
                line!(),
                "\t",
                $sentence,
                "\t",
                $frames,
                "\n"
            );
        };
    };
}

/// Adds a line to the image's `.manifest`, which only the host reads.
macro_rules! manifest_line {
    ($($part:expr),* $(,)?) => {
        const TEXT: &str = concat!($($part),*);
        #[used]
        #[unsafe(link_section = ".manifest")]
        static LINE: [u8; TEXT.len()] = *TEXT.as_bytes().first_chunk().expect("the array is as long as the text");
    };
}

pub(crate) use {crash_kind, manifest_line};

fn kinds() -> &'static [Kind] {
    image::gathered!(Kind, __crash_kinds_start, __crash_kinds_end)
}

/// What was asked for, as far as a hart needs it to crash.
static ASKED: Once<Asked> = Once::new();

struct Asked {
    kind: &'static Kind,
    locked: bool,
    masked: bool,
}

/// Kinds that the lock checker makes a crash of; without it they hang, or nothing happens.
const CHECKED: [&str; 3] = ["deadlock", "relock", "sleepinlock"];

/// Why there is no crash.
pub enum Refusal<'a> {
    /// No kind is called so.
    Unknown(&'a str),
    /// It needs the lock checker, which is not in this build.
    NeedsChecker(&'a str),
    /// It happens while the machine boots, and not later.
    AtBoot(&'a str),
    /// No such hart is up.
    NotUp(CpuNumber),
}

impl core::fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Unknown(name) => {
                write!(f, "crash={name} is no kind of crash; there are {Names}")
            }
            Refusal::NeedsChecker(name) => {
                write!(f, "crash={name} needs the lock checker, which is not in this build")
            }
            Refusal::AtBoot(name) => {
                write!(f, "crash={name} happens at boot: it must be on the kernel's command line")
            }
            Refusal::NotUp(cpu) => write!(f, "CPU {cpu} is not up"),
        }
    }
}

fn find(name: &str) -> Result<&'static Kind, Refusal<'_>> {
    match kinds().iter().find(|kind| kind.name == name) {
        Some(kind) => Ok(kind),
        None if !checker::CHECKS && CHECKED.contains(&name) => Err(Refusal::NeedsChecker(name)),
        None => Err(Refusal::Unknown(name)),
    }
}

/// Keeps the crash that the command line asks for, if any. Refuses what there is not, and lists what there is.
pub fn ask(line: &CommandLine<'_>) {
    let Job::Crash(asked) = line.job else { return };
    match find(asked.kind) {
        Ok(kind) => keep(kind, asked),
        Err(refusal) => exit::fail(Failure::Refused, format_args!("{refusal}")),
    }
}

fn keep(kind: &'static Kind, asked: command_line::Crash<'_>) {
    ASKED.call_once(|| Asked { kind, locked: asked.locked, masked: asked.masked });
}

/// Crashes now, for somebody who asks a kernel that runs.
///
/// # Errors
/// If there is no such crash; nothing has happened then.
pub fn now(asked: command_line::Crash<'_>) -> Result<core::convert::Infallible, Refusal<'_>> {
    let kind = find(asked.kind)?;
    if kind.place != Place::Thread {
        return Err(Refusal::AtBoot(asked.kind));
    }
    if hart::by_cpu(CpuNumber(asked.cpu)).is_none() {
        return Err(Refusal::NotUp(CpuNumber(asked.cpu)));
    }
    keep(kind, asked);
    run(asked)
}

/// Crashes if that is to happen on the stack that this CPU entered on.
pub fn on_entry_stack(cpu: CpuNumber) {
    if let Some(asked) = ASKED.get()
        && asked.kind.place == Place::EntryOf(cpu)
    {
        // A report shows every hart: this one waits for the last.
        while cpu != CpuNumber(0) && !hart::are_started() {
            stop::if_asked();
            core::hint::spin_loop();
        }
        crash_here();
    }
}

/// Crashes in threads, as asked for: on which CPU, and whether on CPU 0 too.
pub fn run(asked: command_line::Crash<'_>) -> ! {
    let name = asked.kind;
    if ASKED.get().is_some_and(|asked| asked.kind.place != Place::Thread) {
        // It happens on another hart, now that all are up.
        timer::sleep(Duration::from_secs(60));
    }
    let there = match asked.cpu {
        0 => None,
        cpu => Some(thread::spawn_on(CpuNumber(cpu), "crash", crash_here)),
    };
    if let Some(Err(error)) = there {
        exit::fail(Failure::Refused, format_args!("crash={name} on CPU {}: {error}", asked.cpu))
    }
    if let Some(Ok(thread)) = there
        && !asked.together
    {
        thread.join();
    } else {
        crash_here();
    }
    exit::fail(Failure::Test, format_args!("crash={name} did not crash"))
}

/// Crashes on this hart. Backtraces of crashes are checked for its frame, whatever the compiler thinks of inlining it.
#[inline(never)]
fn crash_here() {
    let asked = ASKED.get().expect("it was asked for");
    let locked = asked.locked.then(|| console::LINE.lock());
    if asked.masked {
        interrupts::disable();
    }
    (asked.kind.crash)();
    drop(locked);
}

/// The kinds of crash, as they are listed.
pub struct Names;

impl core::fmt::Display for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, kind) in kinds().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(kind.name)?;
        }
        Ok(())
    }
}
