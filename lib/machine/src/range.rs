//! Ranges of physical addresses.

use core::fmt;

/// One past the highest physical address that a RISC-V hart with 64 bits can form (privileged specification, "Sv39":
/// 44 bits of frame number, 12 of offset).
pub const PHYSICAL_END: u64 = 1 << 56;

/// A range of physical addresses: never empty, and its end is at most [`PHYSICAL_END`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalRange {
    start: u64,
    size: u64,
}

impl PhysicalRange {
    /// The range of `size` bytes at `start`, cut off at [`PHYSICAL_END`]. `None` if nothing is left.
    pub fn new(start: u64, size: u64) -> Option<Self> {
        Self::between(start, start.saturating_add(size))
    }

    /// The range from `start` up to and without `end`, cut off at [`PHYSICAL_END`]. `None` if nothing is left.
    pub fn between(start: u64, end: u64) -> Option<Self> {
        let size = end.min(PHYSICAL_END).checked_sub(start)?;
        (size > 0).then_some(PhysicalRange { start, size })
    }

    /// The first address.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Bytes, at least 1.
    pub fn size(self) -> u64 {
        self.size
    }

    /// The address after the last one.
    pub fn end(self) -> u64 {
        self.start + self.size
    }

    /// Whether the address lies in the range.
    pub fn contains(self, address: u64) -> bool {
        (self.start..self.end()).contains(&address)
    }

    /// Whether the two share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// The whole blocks of `alignment` bytes (a power of two) that lie inside: what of a memory bank can be used.
    pub fn aligned_inwards(self, alignment: u64) -> Option<Self> {
        Self::between(
            self.start.next_multiple_of(alignment),
            self.end() / alignment * alignment,
        )
    }

    /// The whole blocks of `alignment` bytes (a power of two) that have a part inside: what a reservation takes.
    pub fn aligned_outwards(self, alignment: u64) -> Self {
        let start = self.start / alignment * alignment;
        PhysicalRange {
            start,
            size: self.end().next_multiple_of(alignment) - start,
        }
    }
}

impl fmt::Display for PhysicalRange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:#012x}..{:#012x}", self.start, self.end())
    }
}

/// A number of bytes, in the largest unit that divides it.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
        let unit = (self.0.trailing_zeros() / 10).min(4);
        write!(f, "{} {}", self.0 >> (10 * unit), units[unit as usize])
    }
}
