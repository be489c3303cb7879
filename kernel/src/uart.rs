//! The 16550 family of UARTs, polled.

use core::ptr::{read_volatile, without_provenance_mut, write_volatile};

use machine::Uart as Description;
use uart_16550::Uart16550;
use uart_16550::backend::Backend;
use uart_16550::spec::registers::LSR;

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

    /// Sends one byte and waits until the UART has taken it. Takes no lock: a crash may use it whatever goes on.
    pub fn send(self, byte: u8) {
        // SAFETY: the registers answer as a 16550's: the tree says so (MMIO-1).
        let mut uart = unsafe { Uart16550::new_with_backend(self) };
        while uart.try_send_byte(byte).is_err() {
            core::hint::spin_loop();
        }
    }

    /// Takes a byte that has come in, if there is one.
    pub fn try_receive(self) -> Option<u8> {
        // SAFETY: as for `send`.
        let mut uart = unsafe { Uart16550::new_with_backend(self) };
        uart.try_receive_byte().ok()
    }

    /// Waits until the last byte that was sent is on the line. Takes no lock.
    pub fn drain(self) {
        // SAFETY: as for `send`.
        let mut uart = unsafe { Uart16550::new_with_backend(self) };
        while !uart.lsr().contains(LSR::TRANSMITTER_EMPTY) {
            core::hint::spin_loop();
        }
    }

    fn address(self, offset: u8) -> usize {
        self.base + (usize::from(offset) << self.shift)
    }
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
