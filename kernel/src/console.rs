//! The console: first the firmware's, then the UART, polled, and from the first thread on at its interrupts.
//!
//! `print!` and `println!` write whole lines: who may sleep waits for its turn asleep, everybody else takes the console's lock for as
//! long as its text is. [`Unlocked`] takes no lock: it is for crash reports, which come whoever holds it. [`read`] gives what is typed.
//!
//! What is printed goes into a ring, from which the UART's interrupt takes it. So interrupts are off for a few bytes at a time, however
//! long a text is. When the ring is full, who may sleep does; everybody else sends the oldest bytes on by polling, as a crash report
//! and the end of the run do with all that is left. Order is kept in each case: bytes leave through the ring's end alone.

use core::fmt::{self, Write};
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;

use machine::Machine;
use protocols::Ring;
use scheduler::Queue;
use spin::Once;

use crate::sync::{Mutex, SpinLock};
use crate::thread::{self, ThreadRef};
use crate::uart::Registers;
use crate::{interrupts, irq, platform, sbi, sched, timer};

/// Bytes on their way out that there is room for.
const SENT_ROOM: usize = 2048;
/// Bytes that were typed and not yet read.
const RECEIVED_ROOM: usize = 1024;
/// Bytes that are put into the ring with interrupts off at a time.
const PIECE: usize = 32;
/// How often a console without interrupts is asked for what was typed.
const LOOKS: Duration = Duration::from_millis(10);

/// The console's lock. It protects the UART, and one end of each ring.
pub static LINE: SpinLock<Line> =
    SpinLock::new("console", Line { is_open: false, is_closed: false, writer: None });

/// Whose turn it is to print, of those who may sleep.
static TURN: Mutex<()> = Mutex::new("turn to print", ());

/// What is to be sent. Bytes are put in, and taken out, with the lock held; a crash report takes them out without.
static SENT: Ring<SENT_ROOM> = Ring::new();
/// What was received. Bytes are put in with `LINE` held and taken out with `READERS` held.
static RECEIVED: Ring<RECEIVED_ROOM> = Ring::new();
/// Who waits for something to be typed.
static READERS: SpinLock<Queue<ThreadRef>> = SpinLock::new("console readers", Queue::new());
/// Whether what is received stays in the UART: there was no room for it.
static HELD_BACK: AtomicBool = AtomicBool::new(false);

/// The UART, once it is known and mapped.
static UART: Once<Registers> = Once::new();
/// Whether it interrupts.
static INTERRUPTS: AtomicBool = AtomicBool::new(false);

const NOTHING: u8 = 0;
const DEBUG_CONSOLE: u8 = 1;
const LEGACY: u8 = 2;

/// Which of the firmware's consoles is used while there is no UART.
static FIRMWARE: AtomicU8 = AtomicU8::new(NOTHING);

/// The console, with its lock held.
pub struct Line {
    /// Whether a thread that has the turn is in the middle of its text.
    is_open: bool,
    /// Whether the last line was printed.
    is_closed: bool,
    /// Who waits for room in the ring.
    writer: Option<ThreadRef>,
}

impl Line {
    /// Puts as much of `bytes` into the ring as there is room for, and gives the rest.
    fn put<'a>(&mut self, uart: Registers, bytes: &'a [u8]) -> &'a [u8] {
        if self.is_closed {
            return &[];
        }
        let count = bytes.iter().take_while(|byte| SENT.push(**byte)).count();
        // If the UART is idle, no interrupt would come.
        uart.fill(|| SENT.pop());
        &bytes[count..]
    }

    /// Receives what there is room for. The rest stays in the UART, which holds back who sends to it, and does not interrupt for that
    /// until somebody has read.
    fn receive(&mut self, uart: Registers) {
        while RECEIVED.len() < RECEIVED_ROOM {
            let Some(byte) = uart.receive() else { break };
            keep(byte);
        }
        let is_full = RECEIVED.len() == RECEIVED_ROOM;
        if HELD_BACK.swap(is_full, Ordering::Relaxed) || is_full {
            uart.interrupt_for_input(!is_full);
        }
    }

    /// Does what the UART asks for, and gives who waited for room, if there is some now.
    fn serve(&mut self, uart: Registers) -> Option<ThreadRef> {
        uart.acknowledge();
        self.receive(uart);
        uart.fill(|| SENT.pop());
        if SENT.len() <= SENT_ROOM / 2 { self.writer.take() } else { None }
    }
}

/// Writes without sleeping: for who has the lock, or may not sleep.
impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_closed {
            return Ok(());
        }
        match UART.get() {
            Some(&uart) if interrupts_come() => {
                let mut bytes = self.put(uart, text.as_bytes());
                while let [byte, rest @ ..] = bytes {
                    if let Some(oldest) = SENT.pop() {
                        uart.send(oldest);
                    }
                    if SENT.push(*byte) {
                        bytes = rest;
                    }
                }
                Ok(())
            }
            _ => Unlocked.write_str(text),
        }
    }
}

/// Keeps a byte that was received until it is read. There is room for it.
fn keep(byte: u8) {
    let _ = RECEIVED.push(byte);
}

/// Lets the UART go on if it was held back and there is room again.
fn go_on_receiving() {
    if HELD_BACK.load(Ordering::Relaxed)
        && RECEIVED.len() <= RECEIVED_ROOM / 2
        && let Some(&uart) = UART.get()
    {
        LINE.lock().receive(uart);
    }
}

/// Writes to the device that the console uses now, polled, without a lock: first what the ring still has.
pub struct Unlocked;

impl Unlocked {
    fn send(&mut self, byte: u8) {
        if let Some(uart) = UART.get() {
            send_ring(*uart);
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

/// Sends what the ring has, polled.
fn send_ring(uart: Registers) {
    while let Some(byte) = SENT.pop() {
        uart.send(byte);
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

/// Has the UART interrupt CPU 0 from now on, if it can; else it stays polled. What was typed before is kept.
pub fn begin_interrupts(machine: &Machine<'_>) {
    let interrupt = machine.uart.and_then(|uart| uart.interrupt);
    let (Some(uart), Some(interrupt)) = (UART.get(), interrupt) else { return };
    if irq::register(interrupt.number, handle_interrupt).is_ok() {
        uart.begin_interrupts(keep);
        INTERRUPTS.store(true, Ordering::Relaxed);
    }
}

fn interrupts_come() -> bool {
    INTERRUPTS.load(Ordering::Relaxed)
}

/// Takes the UART's interrupt.
fn handle_interrupt() {
    let Some(uart) = UART.get() else { return };
    let writer = LINE.lock().serve(*uart);
    if let Some(writer) = writer {
        sched::wake(writer);
    }
    if !RECEIVED.is_empty() {
        let mut readers = READERS.lock();
        while let Some(reader) = readers.pop() {
            sched::wake(reader);
        }
    }
}

/// Takes the next byte that was typed. Sleeps until there is one.
pub fn read() -> u8 {
    if !interrupts_come() {
        return read_polled();
    }
    loop {
        let mut readers = READERS.lock();
        if let Some(byte) = RECEIVED.pop() {
            drop(readers);
            go_on_receiving();
            return byte;
        }
        readers.push(thread::current());
        sched::block(readers);
    }
}

/// As [`read`], of a console that does not interrupt.
fn read_polled() -> u8 {
    loop {
        let typed = match UART.get() {
            Some(uart) => {
                let _line = LINE.lock();
                uart.receive()
            }
            None => sbi::legacy_console_read(),
        };
        if let Some(byte) = typed {
            return byte;
        }
        timer::sleep(LOOKS);
    }
}

/// Waits until everything printed has left the machine, but not for ever. The firmware's console waits by itself.
pub fn drain() {
    if let Some(uart) = UART.get() {
        // Held by somebody else, or by this hart, it is not waited for: this may be the end of the run.
        let _line = LINE.try_lock();
        send_ring(*uart);
        uart.drain();
    }
}

/// Prints the last line of the run, whole, and waits until it has left the machine. What is printed after it is dropped.
pub fn last_line(arguments: fmt::Arguments<'_>) {
    let mut line = LINE.lock();
    line.end_open_line();
    // As in `write`.
    let _ = line.write_fmt(arguments);
    let _ = line.write_str("\n");
    line.is_closed = true;
    drain();
}

/// What the console goes through, as it is printed.
pub fn description() -> &'static str {
    match (UART.get(), FIRMWARE.load(Ordering::Relaxed)) {
        (Some(_), _) if interrupts_come() => "UART, at its interrupts",
        (Some(_), _) => "UART, polled",
        (None, DEBUG_CONSOLE) => "SBI debug console",
        (None, _) => "SBI legacy console",
    }
}

/// Writes to the console; what [`print!`] and [`println!`] are made of. From anywhere. Sleeps where interrupts are on.
pub fn write(arguments: fmt::Arguments<'_>) {
    match UART.get() {
        // With interrupts on this is a thread that holds no spin lock, and no handler.
        Some(&uart) if interrupts_come() && interrupts::are_enabled() => {
            let turn = TURN.lock();
            // Neither writer's writes fail; a `Display` that reports an error of its own loses only its own text.
            let _ = Patient { uart }.write_fmt(arguments);
            LINE.lock().is_open = false;
            drop(turn);
        }
        _ => {
            let mut line = LINE.lock();
            line.end_open_line();
            let _ = line.write_fmt(arguments);
        }
    }
}

/// Writes bytes to the console, as far as they are UTF-8. As [`write()`].
pub fn write_bytes(bytes: &[u8]) {
    bytes.utf8_chunks().for_each(|chunk| write(format_args!("{}", chunk.valid())));
}

impl Line {
    /// Who does not wait for its turn may come into the middle of another's text: it begins a line of its own.
    fn end_open_line(&mut self) {
        if mem::take(&mut self.is_open) {
            let _ = self.write_str("\n");
        }
    }
}

/// Writes for a thread that has the turn: sleeps while the ring is full.
struct Patient {
    uart: Registers,
}

impl Write for Patient {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(PIECE) {
            let mut rest = piece;
            loop {
                let mut line = LINE.lock();
                line.is_open = true;
                rest = line.put(self.uart, rest);
                if rest.is_empty() {
                    break;
                }
                line.writer = Some(thread::current());
                sched::block(line);
            }
        }
        Ok(())
    }
}

/// For tests: the UART by itself.
#[cfg(feature = "selftest")]
pub fn uart() -> Option<Registers> {
    UART.get().copied().filter(|_| interrupts_come())
}

/// For tests: bytes that wait to be sent.
#[cfg(feature = "selftest")]
pub fn unsent() -> usize {
    SENT.len()
}

/// For tests: takes a byte that was received, if there is one.
#[cfg(feature = "selftest")]
pub fn try_read() -> Option<u8> {
    let byte = {
        let _readers = READERS.lock();
        RECEIVED.pop()
    };
    go_on_receiving();
    byte
}

/// Prints to the console, with the syntax of `format!`.
macro_rules! print {
    ($($argument:tt)*) => { $crate::console::write(format_args!($($argument)*)) };
}

/// [`print!`] and a line's end.
macro_rules! println {
    ($($argument:tt)*) => { $crate::console::write(format_args!("{}\n", format_args!($($argument)*))) };
}

pub(crate) use {print, println};
