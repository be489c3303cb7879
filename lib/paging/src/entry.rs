//! A page-table entry, as bits and as what they mean.
//!
//! [`Entry`] is 64 bits, [`Rights`] what a leaf allows. A and D are set in every leaf that will need them; A, D and U are clear in an entry that
//! points to a table.

use core::fmt;

use frames::FrameNumber;

use crate::address::FRAMES_END;

/// V, R, W, X, A, D and the lower software bit (privileged spec 4.3.1, 4.4.1).
pub(crate) const VALID: usize = 1 << 0;
const READ: usize = 1 << 1;
const WRITE: usize = 1 << 2;
const EXECUTE: usize = 1 << 3;
const ACCESSED: usize = 1 << 6;
const DIRTY: usize = 1 << 7;
/// Stands in place of [`VALID`] in an entry whose fence is not done.
const RETIRED: usize = 1 << 8;
const FRAME_SHIFT: u32 = 10;

/// What may be done with a page. Writable and executable cannot be said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// `R--`
    Read,
    /// `RW-`
    ReadWrite,
    /// `R-X`
    ReadExecute,
}

impl Rights {
    /// The bits of a leaf. A is set, and D where writable: a hart that does not set them itself (Svade) faults on entries
    /// without (privileged spec 4.3.1).
    #[inline(always)]
    const fn bits(self) -> usize {
        match self {
            Rights::Read => READ | ACCESSED,
            Rights::ReadWrite => READ | WRITE | ACCESSED | DIRTY,
            Rights::ReadExecute => READ | EXECUTE | ACCESSED,
        }
    }
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing.
    Empty,
    /// Where the next table is.
    Table {
        /// Its frame.
        frame: FrameNumber,
        /// Whether harts see it; if not, it is retired: everything in it is, and the fence is not done.
        live: bool,
    },
    /// Where the page is: of 4 KiB, 2 MiB or 1 GiB by the level of the table.
    Leaf {
        /// Its first frame.
        frame: FrameNumber,
        /// What may be done with it.
        rights: Rights,
        /// Whether harts see it; if not, it is retired: unmapped, and the fence is not done.
        live: bool,
    },
    /// Bits that this crate does not write.
    Malformed(usize),
}

impl Entry {
    /// What the bits of an entry mean.
    #[inline(always)]
    pub fn decode(bits: usize) -> Entry {
        if bits == 0 {
            return Entry::Empty;
        }
        let frame = FrameNumber(bits >> FRAME_SHIFT);
        let live = bits & VALID != 0;
        let flags = (bits % (1 << FRAME_SHIFT)) & !(VALID | RETIRED);
        const READ_ONLY: usize = Rights::Read.bits();
        const READ_WRITE: usize = Rights::ReadWrite.bits();
        const READ_EXECUTE: usize = Rights::ReadExecute.bits();
        let leaf = |rights| Entry::Leaf { frame, rights, live };
        let entry = match flags {
            READ_ONLY => leaf(Rights::Read),
            READ_WRITE => leaf(Rights::ReadWrite),
            READ_EXECUTE => leaf(Rights::ReadExecute),
            _ => Entry::Table { frame, live },
        };
        // Whatever else is set, A or D where they should not be or reserved bits, shows in that it is not written so.
        if entry.encode() == bits && frame < FRAMES_END { entry } else { Entry::Malformed(bits) }
    }

    /// The bits of the entry. A pointer to a table has none but V: A, D and U are reserved there (privileged spec 4.3.1).
    #[inline(always)]
    pub const fn encode(self) -> usize {
        let (frame, bits, live) = match self {
            Entry::Empty => return 0,
            Entry::Malformed(bits) => return bits,
            Entry::Table { frame, live } => (frame, 0, live),
            Entry::Leaf { frame, rights, live } => (frame, rights.bits(), live),
        };
        frame.0 << FRAME_SHIFT | bits | if live { VALID } else { RETIRED }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rights::Read => "R--",
            Rights::ReadWrite => "RW-",
            Rights::ReadExecute => "R-X",
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retired = |live| if live { "" } else { "retired " };
        match *self {
            Entry::Empty => f.write_str("nothing"),
            Entry::Table { frame, live } => write!(f, "{}table at {frame}", retired(live)),
            Entry::Leaf { frame, rights, live } => {
                write!(f, "{}page {rights} at {frame}", retired(live))
            }
            Entry::Malformed(bits) => write!(f, "malformed entry {bits:#x}"),
        }
    }
}
