//! Ranges of physical addresses.
//!
//! A [`PhysicalRange`] is never empty and ends at [`PHYSICAL_END`] at the latest.

use core::fmt;

/// One past the highest physical address that a 64-bit RISC-V hart can form (privileged
/// specification, "Sv39": 44 bits of page number, 12 of offset).
pub const PHYSICAL_END: u64 = 1 << 56;

/// A range of physical addresses: never empty, and its end is at most [`PHYSICAL_END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalRange {
    start: u64,
    end: u64,
}

impl PhysicalRange {
    /// The range of `size` bytes at `start`, cut off at [`PHYSICAL_END`]. `None` if nothing is left.
    pub fn new(start: u64, size: u64) -> Option<Self> {
        Self::between(start, start.saturating_add(size))
    }

    /// The range from `start` up to and without `end`, cut off at [`PHYSICAL_END`]. `None` if
    /// nothing is left.
    pub fn between(start: u64, end: u64) -> Option<Self> {
        let end = end.min(PHYSICAL_END);
        (start < end).then_some(PhysicalRange { start, end })
    }

    /// The first address.
    pub fn start(self) -> u64 {
        self.start
    }

    /// The address after the last one.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Bytes, at least 1.
    pub fn size(self) -> u64 {
        self.end - self.start
    }

    /// Whether the address lies in the range.
    pub fn contains(self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// What both ranges have in common.
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::between(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether the two have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// The whole blocks of `alignment` bytes (a power of two) inside: what of a bank can be used.
    pub fn aligned_inwards(self, alignment: u64) -> Option<Self> {
        let start = self.start.next_multiple_of(alignment);
        Self::between(start, self.end / alignment * alignment)
    }

    /// The whole blocks of `alignment` bytes (a power of two, at most [`PHYSICAL_END`]) that have a
    /// part inside: what a reservation takes.
    pub fn aligned_outwards(self, alignment: u64) -> Self {
        let start = self.start / alignment * alignment;
        let end = self.end.next_multiple_of(alignment);
        PhysicalRange { start, end }
    }
}

impl fmt::Display for PhysicalRange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:#012x}..{:#012x}", self.start, self.end)
    }
}
