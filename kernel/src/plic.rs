//! The platform-level interrupt controller's registers (RISC-V PLIC specification 1.0).
//!
//! [`Plic`] is a handle: it owns nothing and takes no lock. Who changes enables holds the lock of the routes (`irq`).

use core::num::NonZero;
use core::ptr::{read_volatile, without_provenance_mut, write_volatile};

use machine::PhysicalRange;

/// Where the registers lie ("Memory Map").
mod offset {
    pub const ENABLES: usize = 0x2000;
    pub const ENABLES_OF_A_CONTEXT: usize = 0x80;
    pub const CONTEXTS: usize = 0x20_0000;
    pub const CONTEXT: usize = 0x1000;
    pub const THRESHOLD: usize = 0;
    pub const CLAIM: usize = 4;
}

/// Of a source that interrupts nobody.
pub const NEVER: u32 = 0;
/// Above a threshold of 0.
pub const LOWEST: u32 = 1;

/// A controller, whose registers are mapped as far as the contexts in use need them.
#[derive(Clone, Copy)]
pub struct Plic {
    base: usize,
}

impl Plic {
    /// What of the registers has to be mapped where `context` is the highest that is used.
    pub fn needed(registers: PhysicalRange, context: u16) -> Option<PhysicalRange> {
        let size = offset::CONTEXTS + (usize::from(context) + 1) * offset::CONTEXT;
        let size = registers.size().min(size as u64);
        PhysicalRange::new(registers.start(), size)
    }

    /// The controller whose registers are mapped at `base` (invariant MMIO-1).
    pub fn new(base: usize) -> Plic {
        Plic { base }
    }

    /// Sets which of several sources comes first: the highest number; 0 for none at all.
    pub fn set_priority(self, source: u16, priority: u32) {
        self.write(usize::from(source) * 4, priority);
    }

    /// Lets `source` interrupt `context`, or not. Reads, changes and writes a word of 32 sources: under a lock.
    pub fn set_enabled(self, source: u16, context: u16, enabled: bool) {
        let word = Plic::enables(context) + usize::from(source) / 32 * 4;
        let bit = 1 << (source % 32);
        let others = self.read(word) & !bit;
        self.write(word, if enabled { others | bit } else { others });
    }

    /// Lets no source up to `sources` interrupt `context`.
    pub fn disable_all(self, sources: u16, context: u16) {
        for word in 0..=usize::from(sources) / 32 {
            self.write(Plic::enables(context) + word * 4, 0);
        }
    }

    /// Lets `context` be interrupted by priorities above `threshold`.
    pub fn set_threshold(self, context: u16, threshold: u32) {
        self.write(Plic::context(context) + offset::THRESHOLD, threshold);
    }

    /// Takes the most urgent pending source of `context`, which is then not pending. `None`: another hart was first, or there is none.
    pub fn claim(self, context: u16) -> Option<NonZero<u16>> {
        // A source's number has ten bits.
        NonZero::new(self.read(Plic::context(context) + offset::CLAIM) as u16)
    }

    /// Says that `source` is done with, so that it can come again. Ignored unless it is enabled for `context`.
    pub fn complete(self, context: u16, source: NonZero<u16>) {
        self.write(Plic::context(context) + offset::CLAIM, u32::from(source.get()));
    }

    fn enables(context: u16) -> usize {
        offset::ENABLES + usize::from(context) * offset::ENABLES_OF_A_CONTEXT
    }

    fn context(context: u16) -> usize {
        offset::CONTEXTS + usize::from(context) * offset::CONTEXT
    }

    fn read(self, offset: usize) -> u32 {
        // SAFETY: the tree says that the controller's registers are here, and they are mapped (MMIO-1).
        unsafe { read_volatile(without_provenance_mut::<u32>(self.base + offset)) }
    }

    fn write(self, offset: usize, value: u32) {
        // SAFETY: as for `read`.
        unsafe { write_volatile(without_provenance_mut::<u32>(self.base + offset), value) }
    }
}
