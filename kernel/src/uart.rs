//! UARTs: bytes out and in, polled or at an interrupt. What a kind of UART does its own way is a [`Driver`], in a file of its own;
//! [`DRIVERS`] lists them. Which device is of which kind, the tree says (`lib/machine`).
//!
//! [`Registers`] is a UART with its driver. Nothing here takes a lock or waits for ever, so that a crash report may use it; who prints in order
//! has the console's lock.

use core::fmt;
use core::ptr::{read_volatile, without_provenance_mut, write_volatile};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::{Uart as Description, UartKind};

use crate::probe::{self, Fault};

mod ns16550;
mod sifive;

/// All drivers. A new board's UART is one more.
static DRIVERS: [&dyn Driver; 2] = [&ns16550::Ns16550, &sifive::SiFive];

/// How often the UART is asked whether it takes a byte before the byte is given up: some seconds, and a FIFO needs some milliseconds.
const PATIENCE: usize = 10_000_000;

/// Bytes that the UART did not take.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);
/// Whether it took the last one. While it does not, nobody waits for long.
static IS_STUCK: AtomicBool = AtomicBool::new(false);
/// How often the UART said that it had no room for what it received.
static OVERRUNS: AtomicUsize = AtomicUsize::new(0);

/// What a kind of UART does its own way. No function waits, sleeps or takes a lock: a crash may call them whatever goes on.
pub trait Driver: Sync {
    /// The devices that it drives.
    fn kind(&self) -> UartKind;
    /// A register that can be read before anything else, and without harm.
    fn harmless_register(&self) -> usize;
    /// Lets it send and receive. The firmware has set its speed.
    fn start(&self, bus: Bus);
    /// Whether it takes a byte.
    fn has_room(&self, bus: Bus) -> bool;
    /// Whether all that was sent has left it.
    fn is_empty(&self, bus: Bus) -> bool;
    /// Gives it a byte, which it has room for.
    fn send(&self, bus: Bus, byte: u8);
    /// Gives it what `next` gives, as far as it has room now. If that was not all, it must interrupt when it has room again.
    fn fill(&self, bus: Bus, next: &mut dyn FnMut() -> Option<u8>);
    /// A byte that it has received.
    fn receive(&self, bus: Bus) -> Option<u8>;
    /// Acknowledges what it interrupts for. Whether it was anything.
    fn acknowledge(&self, bus: Bus) -> bool;
    /// Prepares it for interrupts. Nothing is received any more that was not read before.
    fn begin_interrupts(&self, bus: Bus);
    /// Lets it interrupt when it has received something, and when it has room.
    fn set_interrupts(&self, bus: Bus, input: bool, room: bool);
    /// Leads what it sends back into its receiver, or out onto the line. Whether it can.
    fn loop_back(&self, bus: Bus, back: bool) -> bool;
}

/// Where a UART's registers are, and how far apart and how wide they are.
#[derive(Clone, Copy)]
pub struct Bus {
    base: usize,
    shift: u32,
    width: u32,
}

impl Bus {
    /// Reads a register, by its number.
    pub fn read(self, register: usize) -> u32 {
        let address = self.address(register);
        match self.width {
            // SAFETY: the tree says that a register of this width is here, and it is mapped (MMIO-1).
            4 => unsafe { read_volatile(without_provenance_mut::<u32>(address)) },
            // SAFETY: as above.
            _ => unsafe { read_volatile(without_provenance_mut::<u8>(address)) }.into(),
        }
    }

    /// Writes a register, by its number.
    pub fn write(self, register: usize, value: u32) {
        let address = self.address(register);
        match self.width {
            // SAFETY: as for `read`.
            4 => unsafe { write_volatile(without_provenance_mut::<u32>(address), value) },
            // SAFETY: as for `read`.
            _ => unsafe { write_volatile(without_provenance_mut::<u8>(address), value as u8) },
        }
    }

    fn address(self, register: usize) -> usize {
        self.base + (register << self.shift)
    }
}

/// Why there is no UART where the tree says so.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// Nothing answers.
    Fault(Fault),
    /// Reading gives all ones, as from a bus on which nothing is.
    AllOnes,
    /// It takes no byte for seconds.
    TakesNothing,
}

impl From<Fault> for Absent {
    fn from(fault: Fault) -> Absent {
        Absent::Fault(fault)
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Fault(fault) => fault.fmt(f),
            Absent::AllOnes => f.write_str("it reads as all ones"),
            Absent::TakesNothing => f.write_str("it takes nothing"),
        }
    }
}

/// A UART with its driver.
#[derive(Clone, Copy)]
pub struct Registers {
    bus: Bus,
    driver: &'static dyn Driver,
}

impl Registers {
    /// A described UART, mapped at `base` (invariant MMIO-1), if it has a driver.
    pub fn new(base: usize, description: &Description<'_>) -> Option<Registers> {
        let shift = description.register_shift.into();
        let bus = Bus { base, shift, width: description.access_width.into() };
        let driver = *DRIVERS.iter().find(|driver| driver.kind() == description.kind)?;
        Some(Registers { bus, driver })
    }

    /// Looks whether it is there at all, and lets it send and receive.
    ///
    /// # Errors
    /// Why it is not one.
    pub fn start(self) -> Result<(), Absent> {
        let address = self.bus.address(self.driver.harmless_register());
        let is_floating = match self.bus.width {
            4 => probe::read_word(address)? == u32::MAX,
            _ => probe::read_byte(address)? == u8::MAX,
        };
        if is_floating {
            return Err(Absent::AllOnes);
        }
        self.driver.start(self.bus);
        let has_room = self.wait_for(|| self.driver.has_room(self.bus));
        if has_room { Ok(()) } else { Err(Absent::TakesNothing) }
    }

    /// Sends one byte and waits until the UART has taken it, but not for ever: one that it does not take is given up. Takes no lock:
    /// a crash may use it whatever goes on.
    pub fn send(self, byte: u8) {
        if self.wait_for(|| self.driver.has_room(self.bus)) {
            self.driver.send(self.bus, byte);
        } else {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the last byte that was sent is on the line, but not for ever. Takes no lock.
    pub fn drain(self) {
        self.wait_for(|| self.driver.is_empty(self.bus));
    }

    /// Whether this comes to hold.
    fn wait_for(self, holds: impl Fn() -> bool) -> bool {
        let patience = if IS_STUCK.load(Ordering::Relaxed) { 1 } else { PATIENCE };
        for _ in 0..patience {
            if holds() {
                IS_STUCK.store(false, Ordering::Relaxed);
                return true;
            }
            core::hint::spin_loop();
        }
        IS_STUCK.store(true, Ordering::Relaxed);
        false
    }

    /// Gives the UART as much as it has room for now of what `next` gives; it interrupts when it has room for the rest.
    pub fn fill(self, mut next: impl FnMut() -> Option<u8>) {
        self.driver.fill(self.bus, &mut next);
    }

    /// A byte that was received.
    pub fn receive(self) -> Option<u8> {
        self.driver.receive(self.bus)
    }

    /// Acknowledges what the UART interrupts for. Whether it was anything.
    pub fn acknowledge(self) -> bool {
        self.driver.acknowledge(self.bus)
    }

    /// Has it interrupt when it has received something and when it has room. Gives `keep` what it has received so far.
    pub fn begin_interrupts(self, mut keep: impl FnMut(u8)) {
        while let Some(byte) = self.receive() {
            keep(byte);
        }
        self.driver.begin_interrupts(self.bus);
        self.set_interrupts(true);
    }

    /// Lets it interrupt for both, or for nothing.
    pub fn set_interrupts(self, on: bool) {
        self.driver.set_interrupts(self.bus, on, on);
    }

    /// Lets it interrupt for what it receives, or only when it has room.
    pub fn interrupt_for_input(self, on: bool) {
        self.driver.set_interrupts(self.bus, on, true);
    }

    /// Leads what it sends back into its receiver, or out onto the line. Whether it can.
    pub fn loop_back(self, back: bool) -> bool {
        self.driver.loop_back(self.bus, back)
    }
}

/// Counts that the UART had no room for what it received.
fn count_overrun() {
    OVERRUNS.fetch_add(1, Ordering::Relaxed);
}

/// How often the UART had no room for what it received.
pub fn overruns() -> usize {
    OVERRUNS.load(Ordering::Relaxed)
}

/// Bytes that the UART did not take in time.
pub fn given_up() -> usize {
    GIVEN_UP.load(Ordering::Relaxed)
}
