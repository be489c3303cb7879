//! The 16550 and its descendants.

use core::sync::atomic::{AtomicUsize, Ordering};

use machine::UartKind;
use uart_16550::spec::FIFO_SIZE;
use uart_16550::spec::registers::{FCR, IER, ISR, LSR, MCR, offsets};

use super::{Bus, Driver, count_overrun};

/// Bytes that an empty UART has room for.
static ROOM: AtomicUsize = AtomicUsize::new(1);

/// Where a PC's UARTs have it, OUT2 is what lets interrupts out.
const CONTROL: MCR = MCR::DTR.union(MCR::RTS).union(MCR::OUT_2_INT_ENABLE);

/// The driver.
pub struct Ns16550;

impl Driver for Ns16550 {
    fn kind(&self) -> UartKind {
        UartKind::Ns16550
    }

    fn harmless_register(&self) -> usize {
        offsets::LSR
    }

    // As the firmware has left it, it sends and receives.
    fn start(&self, _: Bus) {}

    fn has_room(&self, bus: Bus) -> bool {
        status(bus).contains(LSR::THR_EMPTY)
    }

    fn is_empty(&self, bus: Bus) -> bool {
        status(bus).contains(LSR::TRANSMITTER_EMPTY)
    }

    fn send(&self, bus: Bus, byte: u8) {
        set(bus, offsets::DATA, byte);
    }

    fn fill(&self, bus: Bus, next: &mut dyn FnMut() -> Option<u8>) {
        if !self.has_room(bus) {
            return;
        }
        for byte in core::iter::from_fn(next).take(ROOM.load(Ordering::Relaxed)) {
            self.send(bus, byte);
        }
    }

    fn receive(&self, bus: Bus) -> Option<u8> {
        status(bus).contains(LSR::DATA_READY).then(|| get(bus, offsets::DATA))
    }

    // Reading what it interrupts for is how an interrupt for room to send is acknowledged: else it stays.
    fn acknowledge(&self, bus: Bus) -> bool {
        identify(bus).has_pending_interrupt()
    }

    // Switching the FIFOs on loses what has been received, and is left out where they are on.
    fn begin_interrupts(&self, bus: Bus) {
        if !identify(bus).fifo_enabled() {
            set(bus, offsets::FCR, FCR::FIFO_ENABLE.bits());
        }
        if identify(bus).fifo_enabled() {
            ROOM.store(FIFO_SIZE, Ordering::Relaxed);
        }
        set(bus, offsets::MCR, CONTROL.bits());
    }

    fn set_interrupts(&self, bus: Bus, input: bool, room: bool) {
        let mut interrupts = IER::empty();
        interrupts.set(IER::DATA_READY, input);
        interrupts.set(IER::THR_EMPTY, room);
        set(bus, offsets::IER, interrupts.bits());
    }

    fn loop_back(&self, bus: Bus, back: bool) -> bool {
        set(bus, offsets::MCR, (if back { CONTROL | MCR::LOOP_BACK } else { CONTROL }).bits());
        true
    }
}

/// The line status. Reading it clears the errors in it: overruns are counted.
fn status(bus: Bus) -> LSR {
    let status = LSR::from_bits_retain(get(bus, offsets::LSR));
    if status.contains(LSR::OVERRUN_ERROR) {
        count_overrun();
    }
    status
}

fn identify(bus: Bus) -> ISR {
    ISR::from_bits_retain(get(bus, offsets::ISR))
}

fn get(bus: Bus, register: usize) -> u8 {
    bus.read(register) as u8
}

fn set(bus: Bus, register: usize, value: u8) {
    bus.write(register, value.into());
}
