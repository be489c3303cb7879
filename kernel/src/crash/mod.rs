//! Deliberate crashes: `crash=KIND` on the command line runs one, and the host checks its report against what the kind says.

mod kinds;

use spin::Once;

use crate::exit::{self, Failure};
use crate::hart::{self, CpuNumber};
use crate::sync::checker;
use crate::{console, image, interrupts};

/// A way to crash, registered where it is written.
pub struct Kind {
    name: &'static str,
    crash: fn(),
}

/// Registers a crash kind: `crash_kind!(claim N, harts N, "flags", name, function, "what the verdict says", "frames of the backtrace")`.
/// The host reads the same line from the image's `.manifest` and checks the report against it.
macro_rules! crash_kind {
    (claim $claim:literal, harts $harts:literal, $flags:literal, $name:ident, $sentence:literal, $frames:literal) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".crash_kinds")]
            static KIND: $crate::crash::Kind =
                $crate::crash::Kind { name: stringify!($name), crash: $name };
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

/// The kind that was asked for, and its options as far as a hart needs them to crash.
static ASKED: Once<Asked> = Once::new();

struct Asked {
    crash: fn(),
    locked: bool,
    masked: bool,
}

/// Kinds that the lock checker makes a crash of; without it they hang, or nothing happens.
const CHECKED: [&str; 3] = ["deadlock", "relock", "sleepinlock"];

/// Crashes as asked for. Refuses what there is not, and lists what there is.
pub fn run(asked: command_line::Crash<'_>) -> ! {
    let name = asked.kind;
    let Some(kind) = kinds().iter().find(|kind| kind.name == name) else {
        if !checker::CHECKS && CHECKED.contains(&name) {
            let why =
                format_args!("crash={name} needs the lock checker, which is not in this build");
            exit::fail(Failure::Refused, why)
        }
        let why = format_args!("crash={name} is no kind of crash; there are {Names}");
        exit::fail(Failure::Refused, why)
    };
    ASKED.call_once(|| Asked { crash: kind.crash, locked: asked.locked, masked: asked.masked });
    let crashes_too = asked.together && asked.cpu != 0;
    let called = hart::call_while(CpuNumber(asked.cpu), crash_here, 0, || {
        if crashes_too {
            crash_here(0);
        }
    });
    if let Err(error) = called {
        exit::fail(Failure::Refused, format_args!("crash={name} on CPU {}: {error}", asked.cpu))
    }
    exit::fail(Failure::Test, format_args!("crash={name} did not crash"))
}

/// Crashes on this hart.
fn crash_here(_: usize) {
    let asked = ASKED.get().expect("it was asked for");
    let locked = asked.locked.then(|| console::LINE.lock());
    if asked.masked {
        interrupts::disable();
    } else {
        interrupts::enable();
    }
    (asked.crash)();
    drop(locked);
}

struct Names;

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
