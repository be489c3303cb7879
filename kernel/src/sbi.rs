//! The firmware: SBI calls, with every error named and every unsafe one guarded by what it needs.
//!
//! An [`Error`] has the specification's name. A call takes no lock, and its time is left out of what is measured of interrupts. In the steady
//! state there are only IPIs and remote fences, and without Sstc the timer's.

use core::fmt;

use machine::HartId;
use sbi_rt::{ColdReboot, HartMask, NoReason, Shutdown, SystemFailure};
use sbi_spec::binary::SbiRet;

use crate::interrupts::{fence_before_io, in_firmware};

/// An error that the firmware returned (SBI 3, table 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error(isize);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            -1 => "failed",
            -2 => "not supported",
            -3 => "invalid parameter",
            -4 => "denied",
            -5 => "invalid address",
            -6 => "already available",
            -7 => "already started",
            -8 => "already stopped",
            -9 => "no shared memory",
            -10 => "invalid state",
            -11 => "bad range",
            -12 => "timeout",
            -13 => "input or output error",
            -14 => "denied or locked",
            other => return write!(f, "SBI error {other}"),
        };
        f.write_str(name)
    }
}

/// Makes a call of the firmware.
fn call(call: impl FnOnce() -> SbiRet) -> Result<usize, Error> {
    let returned = in_firmware(call);
    match returned.error as isize {
        0 => Ok(returned.value),
        error => Err(Error(error)),
    }
}

/// The firmware as it names itself (SBI 4).
pub struct Firmware {
    implementation: usize,
    implementation_version: usize,
    specification: sbi_rt::Version,
}

impl Firmware {
    /// Asks the firmware who it is.
    pub fn ask() -> Firmware {
        Firmware {
            implementation: sbi_rt::get_sbi_impl_id(),
            implementation_version: sbi_rt::get_sbi_impl_version(),
            specification: sbi_rt::get_spec_version(),
        }
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 13] = [
            "Berkeley Boot Loader",
            "OpenSBI",
            "Xvisor",
            "KVM",
            "RustSBI",
            "Diosix",
            "Coffer",
            "Xen",
            "PolarFire",
            "coreboot",
            "oreboot",
            "bhyve",
            "Hermit",
        ];
        match NAMES.get(self.implementation) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "SBI implementation {:#x}", self.implementation)?,
        }
        let version = self.implementation_version;
        if self.implementation == 1 {
            write!(f, " {}.{}", version >> 16, version & 0xffff)?;
        } else {
            write!(f, " {version:#x}")?;
        }
        write!(f, ", SBI {}.{}", self.specification.major(), self.specification.minor())
    }
}

/// Whether the firmware has the debug console extension (SBI 12).
pub fn has_debug_console() -> bool {
    in_firmware(|| sbi_rt::probe_extension(sbi_rt::Console).is_available())
}

/// Writes a byte to the debug console; the firmware waits until there is room (SBI 12.3).
pub fn debug_console_write(byte: u8) -> Result<(), Error> {
    call(|| sbi_rt::console_write_byte(byte)).map(drop)
}

/// Writes a byte to the legacy console; the firmware waits until there is room (SBI 5.2).
#[expect(deprecated, reason = "firmware before SBI 2.0 has no other console")]
pub fn legacy_console_write(byte: u8) {
    in_firmware(|| sbi_rt::legacy::console_putchar(usize::from(byte)));
}

/// Takes a byte from the legacy console, if there is one (SBI 5.3).
#[expect(deprecated, reason = "firmware before SBI 2.0 has no other console")]
pub fn legacy_console_read() -> Option<u8> {
    // All ones where there is none.
    u8::try_from(in_firmware(sbi_rt::legacy::console_getchar)).ok()
}

/// Starts a stopped hart at `entry`, with its id in a0 and `opaque` in a1, MMU and interrupts off (SBI 9.1).
pub fn hart_start(id: HartId, entry: usize, opaque: usize) -> Result<(), Error> {
    call(|| sbi_rt::hart_start(id.0 as usize, entry, opaque)).map(drop)
}

/// Makes a supervisor timer interrupt pending on this hart when the timebase reaches `deadline`, and not before (SBI 6.1).
pub fn set_timer(deadline: u64) -> Result<(), Error> {
    call(|| sbi_rt::set_timer(deadline)).map(drop)
}

/// Makes a supervisor software interrupt pending on another hart (SBI 7.1).
pub fn send_ipi(id: HartId) -> Result<(), Error> {
    // Stores before the call are seen by the hart before it sees the interrupt: the firmware's own write is I/O, and only a fence
    // orders memory with that.
    fence_before_io();
    call(|| sbi_rt::send_ipi(HartMask::from_mask_base(1, id.0 as usize))).map(drop)
}

/// Makes other harts forget what they have cached of the page table for `size` bytes from `start` on; everything where `size` is
/// the largest number (SBI 8.2). They have when it returns.
pub fn remote_fence(harts: HartGroup, start: usize, size: usize) -> Result<(), Error> {
    // The tables' stores are seen by the harts before they fence, as in `send_ipi`.
    fence_before_io();
    let mask = HartMask::from_mask_base(harts.mask, harts.base);
    call(|| sbi_rt::remote_sfence_vma(mask, start, size)).map(drop)
}

/// Harts whose ids are not far apart: bit n of the mask is the hart `base + n` (SBI 3.1).
#[derive(Clone, Copy)]
pub struct HartGroup {
    /// The lowest id.
    pub base: usize,
    /// Which of the 64 from there on.
    pub mask: usize,
}

/// Powers the machine off; with `failed`, for the reason "system failure" (SBI 10.1). Returns only if the firmware cannot.
pub fn shut_down(failed: bool) {
    if failed {
        sbi_rt::system_reset(Shutdown, SystemFailure);
    } else {
        sbi_rt::system_reset(Shutdown, NoReason);
    }
}

/// Resets the machine (SBI 10.1). Returns only if the firmware cannot.
pub fn reboot() {
    sbi_rt::system_reset(ColdReboot, NoReason);
}
