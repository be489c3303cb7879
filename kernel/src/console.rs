//! The console: first the firmware's, then the UART, polled.
//!
//! `print!` and `println!` take the console's lock, so lines of several harts do not mix. [`Unlocked`] takes none: it is for
//! crash reports, which come whoever holds the lock.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use spin::Once;

use crate::sync::SpinLock;
use crate::uart::Registers;
use crate::{platform, sbi, timer};

/// The console's lock. What it protects is the order of bytes on the line.
pub static LINE: SpinLock<Unlocked> = SpinLock::new("console", Unlocked);

/// The UART, once it is known and mapped.
static UART: Once<Registers> = Once::new();

const NOTHING: u8 = 0;
const DEBUG_CONSOLE: u8 = 1;
const LEGACY: u8 = 2;

/// Which of the firmware's consoles is used while there is no UART.
static FIRMWARE: AtomicU8 = AtomicU8::new(NOTHING);

/// Writes to the device that the console uses now, without a lock.
pub struct Unlocked;

impl Unlocked {
    fn send(&mut self, byte: u8) {
        if let Some(uart) = UART.get() {
            return uart.send(byte);
        }
        let left_over = match FIRMWARE.load(Ordering::Relaxed) {
            NOTHING => false,
            DEBUG_CONSOLE => sbi::debug_console_write(byte).is_err(),
            _ => true,
        };
        if left_over {
            sbi::legacy_console_write(byte);
        }
    }
}

impl Write for Unlocked {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.send(byte);
        }
        Ok(())
    }
}

/// How long a reader sleeps before it looks for a byte again.
const POLL: Duration = Duration::from_millis(5);

/// Waits for a byte that is typed. For one thread at a time. Sleeps.
pub fn read() -> u8 {
    loop {
        if let Some(byte) = try_read() {
            return byte;
        }
        timer::sleep(POLL);
    }
}

/// A byte that was typed, if there is one.
fn try_read() -> Option<u8> {
    match (UART.get(), FIRMWARE.load(Ordering::Relaxed)) {
        (Some(uart), _) => uart.try_receive(),
        (None, DEBUG_CONSOLE) => sbi::debug_console_read(),
        (None, _) => sbi::legacy_console_read(),
    }
}

/// Uses the firmware's console: the debug console, or the legacy call where there is none.
pub fn start_with_firmware() {
    let found = if sbi::has_debug_console() { DEBUG_CONSOLE } else { LEGACY };
    FIRMWARE.store(found, Ordering::Relaxed);
}

/// Uses the UART from now on, if the machine has one that is driven and mapped.
pub fn move_to_uart() {
    if let Some(registers) = platform::uart() {
        UART.call_once(|| registers);
    }
}

/// Waits until everything printed has left the machine. The firmware's console waits by itself.
pub fn drain() {
    if let Some(uart) = UART.get() {
        uart.drain();
    }
}

/// What the console goes through, as it is printed.
pub fn description() -> &'static str {
    match (UART.get(), FIRMWARE.load(Ordering::Relaxed)) {
        (Some(_), _) => "UART, polled",
        (None, DEBUG_CONSOLE) => "SBI debug console",
        (None, _) => "SBI legacy console",
    }
}

/// Writes to the console under its lock; what [`print!`] and [`println!`] are made of.
pub fn write(arguments: fmt::Arguments<'_>) {
    // Unlocked's writes do not fail; a `Display` that reports an error of its own loses only its own text.
    let _ = LINE.lock().write_fmt(arguments);
}

/// Writes bytes to the console under its lock, as they are.
pub fn write_bytes(bytes: &[u8]) {
    let mut line = LINE.lock();
    bytes.iter().for_each(|&byte| line.send(byte));
}

/// Prints to the console under its lock, with the syntax of `format!`.
macro_rules! print {
    ($($argument:tt)*) => { $crate::console::write(format_args!($($argument)*)) };
}

/// [`print!`] and a line's end.
macro_rules! println {
    ($($argument:tt)*) => { $crate::console::write(format_args!("{}\n", format_args!($($argument)*))) };
}

pub(crate) use {print, println};
