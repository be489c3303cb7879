//! The report of a crash: what happened in one sentence, then where, and how the kernel got there.
//!
//! It takes no lock and allocates nothing. One hart decides that this is a crash (`exit::decides`) and stops the others; a fault
//! in its report makes a shorter one, and a fault in that the last words.

mod crash;
mod json;
mod place;
mod text;

use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::console::Unlocked;
use crate::hart::{self, Hart};
use crate::stop::{self, How};
use crate::trap::{Cause, TrapFrame};
use crate::{boot, exit, interrupts, trace};

use crash::{Crash, What};
pub use place::Place;
pub use text::newest_events;

/// Whether the report is also printed for programs.
static JSON: AtomicBool = AtomicBool::new(false);

/// Prints every report a second time, as one line of JSON.
pub fn also_as_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Reports a trap that nobody expected, and ends the run. `left` is the bottom of the stack on which its frame did not fit.
pub fn trap(frame: &TrapFrame, cause: Cause, hart: &Hart, left: Option<usize>) -> ! {
    report(&Crash {
        hart,
        what: What::Trap {
            cause,
            status: frame.status,
            left: left.map(|low| (low, frame.registers[TrapFrame::SP])),
        },
        pc: frame.pc,
        registers: &frame.registers,
    })
}

/// Reports a panic, and ends the run.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut registers = [0; 32];
    crash::save_registers(&mut registers);
    interrupts::disable();
    report(&Crash {
        hart: hart::of_this_cpu(),
        what: What::Panic(info),
        pc: panic as *const () as usize,
        registers: &registers,
    })
}

fn report(crash: &Crash<'_>) -> ! {
    let mut out = Unlocked;
    match crash.hart.reports.fetch_add(1, Ordering::Relaxed) {
        0 => {}
        1 => {
            // Unlocked's writes do not fail, here and below.
            let _ = writeln!(out, "\nthe report itself failed: {}", crash.what);
            exit::crash(format_args!("a fault in the report of a crash: {}", crash.what))
        }
        _ => third_fault(),
    }
    if !exit::decides() {
        stop::here(How::AtItsOwnCrash, crash.pc);
    }
    stop::others(crash.hart);
    // What was being printed ends here.
    let _ = writeln!(out);
    text::write(&mut out, crash);
    if JSON.load(Ordering::Relaxed) {
        json::write(&mut out, crash);
    }
    if trace::is_asked() {
        let _ = trace::dump(&mut out);
    }
    exit::crash(format_args!("{}", crash.what))
}

/// A fault in the report about a fault in a report: nothing that formats can be trusted.
fn third_fault() -> ! {
    const TEXT: &core::ffi::CStr = c"\nverdict: crash: the report of a crash failed twice\n";
    boot::say_last_words(TEXT)
}
