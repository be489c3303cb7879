//! Sv39 page tables over an abstract memory, and the fences that their changes owe.
//!
//! * [`AddressSpace`] changes a page table: map, protect, unmap. Each either happens whole or changes nothing.
//! * [`Owed`] is what a change leaves behind: the fence to execute, on which harts. What an unmap took out of use comes
//!   out of it only when that is done.
//! * [`View`] reads a page table: the walk of an address, the mappings. It may do so while another hart changes it.
//! * [`stretches`] says how to map memory of which some frames have other rights, or none.
//! * [`VirtualAddress`], [`Pages`], [`Rights`]: the words of it. What cannot be translated cannot be said; neither can
//!   writable and executable.
//!
//! # How a mapping ends
//!
//! A hart may go on using what it has cached until it is told, so three things wait for the fence: the frames that were
//! mapped, the table pages that became empty, and the addresses themselves. [`AddressSpace::unmap`] therefore clears the
//! valid bit but leaves the frame number where it is: the entry is *retired*. The hart ignores such an entry (privileged
//! spec 4.3.1: with V clear all other bits are the software's), a reader shows it, and [`AddressSpace::map`] refuses it.
//! After the fence, [`AddressSpace::close`] gives out the frames, empties the entries, and frees the tables. An unmap
//! whose fence is never done leaks; it harms nobody.
//!
//! # Which fence
//!
//! `sfence.vma` with an address forgets cached *leaf* entries for that address and nothing else (privileged spec 4.2.1).
//! Where a table was linked, unlinked or put in a leaf's place, only a fence of everything will do, on every hart,
//! and as long as any hart may not have executed it, later changes owe the fence of everything too: a hart that still has
//! the old upper entry would walk past the new lower one.
//!
//! Entries are not global (G clear): there is one address space and no ASID, so the bit would gain nothing, and fences
//! that name an ASID do not reach global entries (4.2.1). A missing G "merely reduces performance" (4.3.1).

#![no_std]
#![forbid(unsafe_code)]

mod address;
mod entry;
mod fence;
mod layers;
mod space;
mod view;

pub use address::{NotPages, PAGE, Pages, VirtualAddress};
pub use entry::{Entry, Rights};
pub use fence::{Fence, Harts, Owed, Settled};
pub use layers::{Layer, stretches};
pub use space::{AddressSpace, Error};
pub use view::{Mapping, Step, View};

/// Frames are named in one way throughout the kernel.
pub use frames::{FrameNumber, FrameRange};

/// Entries in a table.
pub const ENTRIES: usize = 512;

/// Where page tables lie. The kernel's is its direct map and its frame allocator.
///
/// Everything takes `&self`: entries are atomic, because harts read them at any time.
pub trait TableMemory {
    /// Why there is no frame for a table.
    type Error;

    /// Reads an entry, in one load. A [`View`] that is used without holding off changes may ask for a frame that is no table any
    /// more, or never was: answer anything, but do not fault.
    fn read(&self, table: FrameNumber, index: usize) -> usize;

    /// Writes an entry, in one store that is ordered after all earlier stores of this hart (release): a walk that sees an
    /// entry sees the table behind it.
    fn write(&self, table: FrameNumber, index: usize, bits: usize);

    /// A frame full of zeros.
    fn allocate(&self) -> Result<FrameNumber, Self::Error>;

    /// Takes back a frame from [`allocate`](Self::allocate); it is full of zeros again. No hart can reach it any more.
    fn free(&self, table: FrameNumber);
}
