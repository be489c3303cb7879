//! How a run ends: one verdict, decided once, on the console and in QEMU's exit code.
//!
//! A pass powers off through SBI. Everything else writes its code to the exit device and parks: the device acts later, and a
//! second request in flight would decide the code at random. Without such a device SBI is all there is, and QEMU's code is 0 then;
//! so the last line of every run is its verdict, and the harness believes nothing less than both.
//!
//! Owns the exit device's register and who decides: [`decides`] says yes to one hart. [`pass`], [`fail`], [`reboot`] and [`crash`] do not
//! return; the last takes no lock.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::backtrace::{self, Step};
use crate::console::{self, LINE};
use crate::stop::{self, How};
use crate::{boot, hart, interrupts, sbi, trace};

/// The exit device's register (virtual address), or 0. In `.data`: the last words may read it before `.bss` is cleared.
#[unsafe(link_section = ".data.exit_register")]
pub static REGISTER: AtomicUsize = AtomicUsize::new(0);

/// The hart that decides the verdict: its CPU number and one, or 0.
static DECIDER: AtomicUsize = AtomicUsize::new(0);

/// A run that did not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A self-test failed.
    Test,
    /// The kernel crashed.
    Crash,
    /// The kernel refused the machine.
    Refused,
}

impl Failure {
    /// QEMU's exit code.
    pub const fn code(self) -> u32 {
        match self {
            Failure::Test => 1,
            Failure::Crash => 3,
            Failure::Refused => 5,
        }
    }

    /// What `sifive,test0` takes: the code and its command "fail".
    pub const fn device_value(self) -> u32 {
        self.code() << 16 | 0x3333
    }
}

/// Uses the exit device whose register is mapped at `register` (invariant MMIO-1).
pub fn use_device(register: usize) {
    REGISTER.store(register, Ordering::Relaxed);
}

/// Uses none for now: the firmware is all there is. Whether there was one.
pub fn stop_using_device() -> bool {
    REGISTER.swap(0, Ordering::Relaxed) != 0
}

/// Makes this hart the one that decides the verdict, unless another is. It may ask again: it may crash on its way out.
pub fn decides() -> bool {
    interrupts::disable();
    let this = hart::of_this_cpu().cpu().0 + 1;
    // Nothing is published through the word: one exchange is won, whatever else is seen.
    match DECIDER.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(decider) => decider == this,
    }
}

/// Goes on only where this hart decides. The others that try stay here for good, so that hart 0 cannot pass while hart 2
/// crashes.
fn decide() {
    if !decides() {
        stop::here(How::AtItsOwnEnd, backtrace::here().next().map_or(0, Step::address));
    }
}

/// Prints what every hart did last, if that was asked for.
fn dump_trace() {
    if trace::is_asked() {
        // Unlocked's writes do not fail.
        let _ = trace::dump(&mut *LINE.lock());
    }
}

/// Ends the run as passed. `details` follows on the verdict's line.
pub fn pass(details: fmt::Arguments<'_>) -> ! {
    decide();
    dump_trace();
    console::last_line(format_args!("verdict: pass{details}"));
    // Returns only where the firmware cannot (QEMU's sifive_u): the verdict is out, and nothing may follow it.
    sbi::shut_down(false);
    boot::park()
}

/// Ends the run as passed, and begins anew: the firmware resets the machine.
pub fn reboot() -> ! {
    decide();
    dump_trace();
    console::last_line(format_args!("verdict: pass: reboot"));
    sbi::reboot();
    boot::park()
}

/// Ends the run as failed.
pub fn fail(failure: Failure, details: fmt::Arguments<'_>) -> ! {
    decide();
    dump_trace();
    let word = match failure {
        Failure::Test => "fail",
        Failure::Crash => "crash",
        Failure::Refused => "refused",
    };
    console::last_line(format_args!("verdict: {word}: {details}"));
    leave(failure)
}

/// Ends the run after a crash report: without the console's lock, by the hart that has already decided.
pub fn crash(sentence: fmt::Arguments<'_>) -> ! {
    // Unlocked's writes do not fail.
    let _ = writeln!(console::Unlocked, "verdict: crash: {sentence}");
    leave(Failure::Crash)
}

fn leave(failure: Failure) -> ! {
    console::drain();
    let register = REGISTER.load(Ordering::Relaxed);
    if register == 0 {
        sbi::shut_down(true);
    } else {
        // SAFETY: the exit device's register is mapped there and takes this value (MMIO-1).
        unsafe {
            core::ptr::write_volatile(
                core::ptr::without_provenance_mut::<u32>(register),
                failure.device_value(),
            )
        };
    }
    boot::park()
}
