//! SiFive's UART (FU540-C000 manual, chapter 13). It has no loop, and says nothing of what it had no room for.

use machine::UartKind;

use super::{Bus, Driver};

/// Registers, of 32 bits.
mod register {
    pub const SEND: usize = 0;
    pub const RECEIVE: usize = 1;
    pub const SEND_CONTROL: usize = 2;
    pub const RECEIVE_CONTROL: usize = 3;
    pub const INTERRUPTS: usize = 4;
    pub const PENDING: usize = 5;
}

/// In SEND: there is no room. In RECEIVE: there is no byte.
const NOTHING: u32 = 1 << 31;
/// In both controls.
const ENABLE: u32 = 1;
/// In SEND_CONTROL: there is room when less than one byte waits.
const WHEN_EMPTY: u32 = 1 << 16;
/// In INTERRUPTS and PENDING.
const ROOM: u32 = 1;
/// In INTERRUPTS.
const INPUT: u32 = 2;
/// Bytes that fit.
const FIFO: usize = 8;

/// The driver.
pub struct SiFive;

impl Driver for SiFive {
    fn kind(&self) -> UartKind {
        UartKind::SiFive
    }

    fn harmless_register(&self) -> usize {
        register::PENDING
    }

    // One byte that was received is enough for an interrupt: a control of 0 bytes.
    fn start(&self, bus: Bus) {
        bus.write(register::SEND_CONTROL, ENABLE | WHEN_EMPTY);
        bus.write(register::RECEIVE_CONTROL, ENABLE);
    }

    fn has_room(&self, bus: Bus) -> bool {
        bus.read(register::SEND) & NOTHING == 0
    }

    // The last byte may still be on its way out; nothing tells.
    fn is_empty(&self, bus: Bus) -> bool {
        bus.read(register::PENDING) & ROOM != 0
    }

    fn send(&self, bus: Bus, byte: u8) {
        bus.write(register::SEND, byte.into());
    }

    // Room is an interrupt for as long as there is some, so it is on only while there is something to send.
    fn fill(&self, bus: Bus, next: &mut dyn FnMut() -> Option<u8>) {
        let mut left_over = true;
        for _ in 0..FIFO {
            if !self.has_room(bus) {
                break;
            }
            let Some(byte) = next() else {
                left_over = false;
                break;
            };
            self.send(bus, byte);
        }
        let input = bus.read(register::INTERRUPTS) & INPUT;
        bus.write(register::INTERRUPTS, input | if left_over { ROOM } else { 0 });
    }

    fn receive(&self, bus: Bus) -> Option<u8> {
        let received = bus.read(register::RECEIVE);
        (received & NOTHING == 0).then_some(received as u8)
    }

    // Nothing is acknowledged: both interrupts are what there is to do.
    fn acknowledge(&self, bus: Bus) -> bool {
        bus.read(register::PENDING) & bus.read(register::INTERRUPTS) != 0
    }

    fn begin_interrupts(&self, _: Bus) {}

    fn set_interrupts(&self, bus: Bus, input: bool, room: bool) {
        let (input, room) = (if input { INPUT } else { 0 }, if room { ROOM } else { 0 });
        bus.write(register::INTERRUPTS, input | room);
    }

    fn loop_back(&self, _: Bus, _: bool) -> bool {
        false
    }
}
