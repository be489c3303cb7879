//! Addresses and ranges of pages. Each type holds only what can be translated.

use core::fmt;

use frames::FrameNumber;

/// Bytes in a page and in a frame.
pub const PAGE: usize = 4096;

const _: () = assert!(usize::BITS == 64, "Sv39 is for 64 bits");

/// Bits of a virtual address that select something; the rest repeat the highest of them (privileged spec 4.4.1).
const VIRTUAL_BITS: u32 = 39;

/// One more than the highest frame that a page-table entry can hold: 44 bits (privileged spec 4.4.1).
pub(crate) const FRAMES_END: FrameNumber = FrameNumber(1 << 44);

/// A canonical virtual address: bits 63 to 39 equal bit 38 (privileged spec 4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VirtualAddress(usize);

impl VirtualAddress {
    /// `None` if the address is not canonical: no page table can translate it.
    pub const fn new(address: usize) -> Option<Self> {
        let canonical = Self::at_position(address);
        if canonical.0 == address { Some(canonical) } else { None }
    }

    /// The number itself.
    pub const fn value(self) -> usize {
        self.0
    }

    /// The address `bytes` further, if it is one.
    pub fn checked_add(self, bytes: usize) -> Option<Self> {
        Self::new(self.0.checked_add(bytes)?)
    }

    /// Whether it lies in the upper half, the kernel's.
    const fn is_upper(self) -> bool {
        (self.0 as isize) < 0
    }

    /// The address as the tables count: from 0, without the gap in the middle.
    pub(crate) const fn position(self) -> usize {
        self.0 & ((1 << VIRTUAL_BITS) - 1)
    }

    /// The address at a position; higher bits of the position are ignored.
    pub(crate) const fn at_position(position: usize) -> Self {
        let unused = usize::BITS - VIRTUAL_BITS;
        VirtualAddress(((position << unused) as isize >> unused) as usize)
    }
}

/// One or more whole pages of virtual addresses, all in one half of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    start: VirtualAddress,
    size: usize,
}

/// So many bytes from this address on are no [`Pages`]: they do not begin or end on a page, are none, or leave their half of
/// the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotPages(pub VirtualAddress, pub usize);

impl Pages {
    /// The pages of the `size` bytes from `start` on.
    pub fn new(start: VirtualAddress, size: usize) -> Result<Self, NotPages> {
        let whole = (start.0 | size).is_multiple_of(PAGE);
        let last = size.checked_sub(1).and_then(|further| start.checked_add(further));
        if whole && last.is_some_and(|last| last.is_upper() == start.is_upper()) {
            Ok(Pages { start, size })
        } else {
            Err(NotPages(start, size))
        }
    }

    /// The first address.
    pub fn start(self) -> VirtualAddress {
        self.start
    }

    /// Bytes, at least one page.
    pub fn size(self) -> usize {
        self.size
    }

    /// Pages, at least 1.
    pub fn count(self) -> usize {
        self.size / PAGE
    }

    /// The address of each page.
    pub fn addresses(self) -> impl Iterator<Item = VirtualAddress> {
        (0..self.size).step_by(PAGE).map(move |offset| VirtualAddress(self.start.0 + offset))
    }
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl fmt::Display for NotPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} bytes from {} on are not whole pages in one half", self.1, self.0)
    }
}
