//! The 16550 family of UARTs: bytes out and in, polled or at an interrupt.

use core::ptr::{read_volatile, without_provenance_mut, write_volatile};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::Uart as Description;
use uart_16550::backend::Backend;
use uart_16550::spec::FIFO_SIZE;
use uart_16550::spec::registers::{FCR, IER, ISR, LSR, MCR, offsets};

/// How often the UART is asked whether it takes a byte before the byte is given up: some seconds, and a FIFO needs some milliseconds.
const PATIENCE: usize = 10_000_000;

/// Bytes that the UART did not take.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);
/// Whether it took the last one. While it does not, nobody waits for long.
static IS_STUCK: AtomicBool = AtomicBool::new(false);
/// Bytes that an empty UART has room for.
static ROOM: AtomicUsize = AtomicUsize::new(1);
/// How often the UART said that it had no room for what it received.
static OVERRUNS: AtomicUsize = AtomicUsize::new(0);

/// A UART's registers: where they are mapped, and how far apart and how wide they are.
#[derive(Clone, Copy)]
pub struct Registers {
    base: usize,
    shift: u32,
    width: u32,
}

impl Registers {
    /// The registers of a described UART, mapped at `base` (invariant MMIO-1).
    pub fn new(base: usize, description: &Description<'_>) -> Registers {
        Registers {
            base,
            shift: description.register_shift.into(),
            width: description.access_width.into(),
        }
    }

    /// Sends one byte and waits until the UART has taken it, but not for ever: one that it does not take is given up. Takes no lock:
    /// a crash may use it whatever goes on.
    pub fn send(self, byte: u8) {
        if self.wait_for(LSR::THR_EMPTY) {
            self.set(offsets::DATA, byte);
        } else {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the last byte that was sent is on the line, but not for ever. Takes no lock.
    pub fn drain(self) {
        self.wait_for(LSR::TRANSMITTER_EMPTY);
    }

    /// Whether the UART comes to show this.
    fn wait_for(self, wanted: LSR) -> bool {
        let patience = if IS_STUCK.load(Ordering::Relaxed) { 1 } else { PATIENCE };
        for _ in 0..patience {
            if self.status().contains(wanted) {
                IS_STUCK.store(false, Ordering::Relaxed);
                return true;
            }
            core::hint::spin_loop();
        }
        IS_STUCK.store(true, Ordering::Relaxed);
        false
    }

    /// If the UART is empty, gives it as much as it has room for of what `next` gives.
    pub fn fill(self, mut next: impl FnMut() -> Option<u8>) {
        if !self.status().contains(LSR::THR_EMPTY) {
            return;
        }
        for byte in core::iter::from_fn(&mut next).take(ROOM.load(Ordering::Relaxed)) {
            self.set(offsets::DATA, byte);
        }
    }

    /// A byte that was received.
    pub fn receive(self) -> Option<u8> {
        self.status().contains(LSR::DATA_READY).then(|| self.get(offsets::DATA))
    }

    /// What the UART interrupts for. Reading it is how an interrupt for room to send is acknowledged: else it stays.
    pub fn identify(self) -> ISR {
        ISR::from_bits_retain(self.get(offsets::ISR))
    }

    /// Has it interrupt when it has received something and when it has room, with its FIFOs on. Gives `keep` what it has received
    /// so far: switching the FIFOs on would lose it.
    pub fn begin_interrupts(self, mut keep: impl FnMut(u8)) {
        while let Some(byte) = self.receive() {
            keep(byte);
        }
        if !self.identify().fifo_enabled() {
            self.set(offsets::FCR, FCR::FIFO_ENABLE.bits());
        }
        if self.identify().fifo_enabled() {
            ROOM.store(FIFO_SIZE, Ordering::Relaxed);
        }
        // Where a PC's UARTs have it, this line is what lets interrupts out.
        let control = MCR::DTR | MCR::RTS | MCR::OUT_2_INT_ENABLE;
        self.set(offsets::MCR, control.bits());
        self.set_interrupts(true);
    }

    /// Lets it interrupt for both, or for nothing.
    pub fn set_interrupts(self, on: bool) {
        if on {
            self.interrupt_for_input(true);
        } else {
            self.set(offsets::IER, 0);
        }
    }

    /// Lets it interrupt for what it receives, or only when it has room.
    pub fn interrupt_for_input(self, on: bool) {
        let input = if on { IER::DATA_READY } else { IER::empty() };
        self.set(offsets::IER, (input | IER::THR_EMPTY).bits());
    }

    /// Leads what it sends back into its receiver, or out onto the line.
    pub fn loop_back(self, back: bool) {
        let control = MCR::DTR | MCR::RTS | MCR::OUT_2_INT_ENABLE;
        self.set(offsets::MCR, (if back { control | MCR::LOOP_BACK } else { control }).bits());
    }

    /// The line status. Reading it clears the errors in it: overruns are counted.
    fn status(self) -> LSR {
        let status = LSR::from_bits_retain(self.get(offsets::LSR));
        if status.contains(LSR::OVERRUN_ERROR) {
            OVERRUNS.fetch_add(1, Ordering::Relaxed);
        }
        status
    }

    fn get(mut self, offset: usize) -> u8 {
        // SAFETY: the crate's offsets are below 8.
        unsafe { self.read(offset as u8) }
    }

    fn set(mut self, offset: usize, value: u8) {
        // SAFETY: as above.
        unsafe { self.write(offset as u8, value) }
    }

    fn address(self, offset: u8) -> usize {
        self.base + (usize::from(offset) << self.shift)
    }
}

/// How often the UART had no room for what it received.
pub fn overruns() -> usize {
    OVERRUNS.load(Ordering::Relaxed)
}

/// Bytes that the UART did not take in time.
pub fn given_up() -> usize {
    GIVEN_UP.load(Ordering::Relaxed)
}

impl Backend for Registers {
    unsafe fn read(&mut self, offset: u8) -> u8 {
        let address = self.address(offset);
        match self.width {
            // SAFETY: the tree says that a register of this width is here, and it is mapped (MMIO-1).
            4 => unsafe { read_volatile(without_provenance_mut::<u32>(address)) as u8 },
            // SAFETY: as above.
            _ => unsafe { read_volatile(without_provenance_mut::<u8>(address)) },
        }
    }

    unsafe fn write(&mut self, offset: u8, value: u8) {
        let address = self.address(offset);
        match self.width {
            // SAFETY: as for `read`.
            4 => unsafe {
                write_volatile(without_provenance_mut::<u32>(address), u32::from(value))
            },
            // SAFETY: as for `read`.
            _ => unsafe { write_volatile(without_provenance_mut::<u8>(address), value) },
        }
    }
}
