//! The sizes of blocks: powers of two, so that every multiple of a size is aligned to it.

use core::alloc::Layout;

use crate::PAGE;

/// The smallest block, in bytes.
pub const SMALLEST: usize = 32;
/// The largest block that shares a page, in bytes.
pub const LARGEST: usize = SMALLEST << (Size::ALL.len() - 1);

/// The size of a class's blocks. An enumeration, so that an index into a table of all needs no check.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Size {
    Bytes32,
    Bytes64,
    Bytes128,
    Bytes256,
    Bytes512,
    Bytes1024,
    Bytes2048,
}

impl Size {
    /// Every size, ascending.
    pub const ALL: [Size; 7] = [
        Size::Bytes32,
        Size::Bytes64,
        Size::Bytes128,
        Size::Bytes256,
        Size::Bytes512,
        Size::Bytes1024,
        Size::Bytes2048,
    ];

    /// The size with a [`shift`](Size::shift), if there is one.
    pub fn from_shift(shift: u8) -> Option<Size> {
        Self::ALL.into_iter().find(|size| size.shift() == shift)
    }

    /// The size for a layout, unless it gets whole pages.
    #[inline]
    pub fn of(layout: Layout) -> Option<Size> {
        /// By reach, in units of the smallest.
        static SIZES: [Size; LARGEST / SMALLEST] = {
            let mut sizes = [Size::Bytes32; LARGEST / SMALLEST];
            let mut unit = 1;
            while unit < sizes.len() {
                sizes[unit] = Size::ALL[unit.ilog2() as usize + 1];
                unit += 1;
            }
            sizes
        };
        SIZES.get(reach(layout) / SMALLEST).copied()
    }

    /// Bytes in a block.
    pub const fn bytes(self) -> usize {
        SMALLEST << self as usize
    }

    /// Blocks in a page.
    pub const fn blocks(self) -> usize {
        PAGE / self.bytes()
    }

    /// How far the last byte of each layout that gets this size must be shifted for 1 to be left: see [`fits`].
    pub const fn shift(self) -> u8 {
        (self.bytes() / 2).ilog2() as u8
    }
}

/// The offset of the last byte in what a layout needs, rounded to where its highest bit is right: a block of a power of two
/// that is larger has the size and the alignment.
#[inline]
fn reach(layout: Layout) -> usize {
    // Size 0 wraps, and gets whole pages: nobody asks for it.
    layout.size().wrapping_sub(1) | (layout.align() - 1)
}

/// Whether the blocks with this shift are those that a layout gets. Never for 0, which is the shift of none.
#[inline]
pub(crate) fn fits(shift: u8, layout: Layout) -> bool {
    // The smallest blocks serve all below them too.
    (reach(layout) | (SMALLEST / 2)).wrapping_shr(u32::from(shift)) == 1
}

/// The table that finds the only bit of a word: the target has no instruction that counts zeros (Leiserson, Prokop, Randall:
/// Using de Bruijn sequences to index a 1 in a computer word). The heap has one beside what else it reads on its fast path,
/// which saves making its address and the constant each time.
pub(crate) struct Positions {
    /// Its stretches of six bits all differ.
    de_bruijn: u64,
    /// By the stretch that a bit's product with the sequence begins with: where the bit stands.
    positions: [u8; 64],
}

impl Positions {
    pub const fn new() -> Positions {
        let de_bruijn = 0x0218_a392_cd3d_5dbf;
        let mut positions = [0; 64];
        let mut position = 0;
        while position < 64 {
            positions[(de_bruijn << position >> 58) as usize] = position as u8;
            position += 1;
        }
        Positions { de_bruijn, positions }
    }

    /// The position of the only bit of a word.
    #[inline]
    pub fn of(&self, bit: u64) -> usize {
        usize::from(self.positions[(bit.wrapping_mul(self.de_bruijn) >> 58) as usize])
    }
}
