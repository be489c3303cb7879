//! Frames by number.

use core::fmt;
use core::ops::Range;

/// Bytes in a frame.
pub const FRAME_BYTES: usize = 4096;

/// A frame of physical memory: its address divided by [`FRAME_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameNumber(pub usize);

impl FrameNumber {
    /// The frame that starts at a physical address. `None` if none starts there.
    pub const fn starting_at(address: usize) -> Option<Self> {
        if address.is_multiple_of(FRAME_BYTES) { Some(Self::containing(address)) } else { None }
    }

    /// The frame that a physical address lies in.
    pub const fn containing(address: usize) -> Self {
        FrameNumber(address / FRAME_BYTES)
    }

    /// The physical address of its first byte.
    pub const fn address(self) -> usize {
        self.0 * FRAME_BYTES
    }
}

/// As an address: `0x80200000`.
impl fmt::Display for FrameNumber {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // Not `address()`: a number that is wrong must be shown too, and its address may not exist.
        write!(f, "{:#x}000", self.0)
    }
}

/// Frames from `start` up to and without `end`; empty if `end` is not after `start`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRange {
    /// The first frame.
    pub start: FrameNumber,
    /// The frame after the last.
    pub end: FrameNumber,
}

impl FrameRange {
    /// The whole frames inside a range of physical addresses: what of a bank or of usable memory there is.
    pub const fn inside(addresses: Range<usize>) -> Self {
        let start = FrameNumber(addresses.start.div_ceil(FRAME_BYTES));
        FrameRange { start, end: FrameNumber::containing(addresses.end) }
    }

    /// The frames that a range of physical addresses has a byte in: what a reservation takes.
    pub const fn touching(addresses: Range<usize>) -> Self {
        let is_empty = addresses.start >= addresses.end;
        let end = if is_empty { addresses.start } else { addresses.end }.div_ceil(FRAME_BYTES);
        let start = if is_empty { end } else { addresses.start / FRAME_BYTES };
        FrameRange { start: FrameNumber(start), end: FrameNumber(end) }
    }

    /// How many frames.
    pub const fn count(self) -> usize {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.count() == 0
    }

    /// Whether a frame is one of them.
    pub fn contains(self, frame: FrameNumber) -> bool {
        self.start <= frame && frame < self.end
    }
}
