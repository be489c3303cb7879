//! Stacks, in a region of their own: each with a gap of unmapped addresses below it.
//!
//! The gap is wider than any function's frame, which the build proves, so an overflow cannot step over it: this target has
//! no stack probes.
//!
//! [`Stack`] is one, mapped and nobody else's (invariant STACK-1); dropped, its frames and addresses are used again only after all harts have
//! fenced. The slots' list is under a lock, and giving a stack back needs no memory.

use alloc::vec::Vec;
use core::ops::Range;

use crate::sync::SpinLock;
use crate::vm::{self, Mapping, PAGE, Rights};
use crate::{frame, probe};

/// Bytes of every stack.
pub const STACK_BYTES: usize = 16 * 1024;

/// Bytes from one stack to the next: the gap comes first.
const SLOT_BYTES: usize = 128 * 1024;

/// Unmapped bytes below a stack of the region.
pub const GAP_BYTES: usize = SLOT_BYTES - STACK_BYTES;

/// A stack: mapped, nobody else's. Dropped, it is unmapped, and its frames and addresses are used again when no hart can reach them any
/// more: some stacks wait for one fence of all harts.
pub struct Stack {
    low: usize,
    mapped_in: usize,
}

/// There is no memory, or no address, for a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoStack;

/// Which slots of the region are free.
struct Slots {
    /// Those from this one on were never used.
    next: usize,
    /// Those that were given back. Has room for every slot in use, so that giving one back needs no memory.
    free: Vec<usize>,
}

static SLOTS: SpinLock<Slots> = SpinLock::new("stacks", Slots { next: 0, free: Vec::new() });

impl Slots {
    fn take(&mut self) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.next == vm::STACKS.len() / SLOT_BYTES {
            return None;
        }
        self.free.try_reserve(self.next + 1).ok()?;
        self.next += 1;
        Some(self.next - 1)
    }
}

impl Stack {
    /// A stack full of zeros, so that [`most_used`] can tell what was ever used. Takes the locks of stacks, heap and address space.
    ///
    /// # Errors
    /// Without memory or a free address; nothing is lost then.
    pub fn allocate() -> Result<Stack, NoStack> {
        Self::try_allocate().or_else(|NoStack| {
            vm::reclaim(give_back);
            Self::try_allocate()
        })
    }

    fn try_allocate() -> Result<Stack, NoStack> {
        let slot = SLOTS.lock().take().ok_or(NoStack)?;
        let low = vm::STACKS.start + slot * SLOT_BYTES + GAP_BYTES;
        for page in (low..low + STACK_BYTES).step_by(PAGE) {
            if !map_page(page) {
                unmap(low..page);
                SLOTS.lock().free.push(slot);
                return Err(NoStack);
            }
        }
        Ok(Stack { low, mapped_in: vm::mappings_so_far() })
    }

    /// How often the page table had been added to when this was mapped: a hart that last fenced before must fence before it comes here.
    pub fn mapped_in(&self) -> usize {
        self.mapped_in
    }

    /// Its addresses.
    pub fn range(&self) -> Range<usize> {
        self.low..self.low + STACK_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let range = self.range();
        vm::retire(vm::pages(range.start, range.len()), give_back).expect("a stack is mapped");
    }
}

/// Makes a page of a dropped stack free for others, when no hart can reach it any more: its frame, and with the lowest its addresses.
fn give_back(page: Mapping) {
    free(page);
    let (slot, offset) = slot_of(page.pages.start().value());
    if offset == GAP_BYTES {
        SLOTS.lock().free.push(slot);
    }
}

fn free(page: Mapping) {
    frame::free_run(page.frame, page.pages.count()).expect("a stack's frames are in use");
}

/// The slot in which an address lies, and where in it.
fn slot_of(address: usize) -> (usize, usize) {
    let offset = address - vm::STACKS.start;
    (offset / SLOT_BYTES, offset % SLOT_BYTES)
}

/// The most bytes of a stack that were ever used: from its top down to the lowest word that is not zero. A stack begins as zeros,
/// and what was written stays until something is written over it.
pub fn most_used(stack: Range<usize>) -> usize {
    let used = |address: &usize| probe::read(*address) != Ok(0);
    let lowest = stack.clone().step_by(size_of::<u64>()).find(used);
    lowest.map_or(0, |lowest| stack.end - lowest)
}

/// Gives back what dropped stacks had, and forgets the free slots behind the last that is in use, and the memory in which they were remembered.
pub fn trim() {
    vm::reclaim(give_back);
    let mut slots = SLOTS.lock();
    slots.free.sort_unstable();
    while slots.free.last().is_some_and(|last| last + 1 == slots.next) {
        slots.free.pop();
        slots.next -= 1;
    }
    let used = slots.next;
    slots.free.shrink_to(used);
}

/// Maps a page to a frame of its own.
fn map_page(address: usize) -> bool {
    let Some(frame) = frame::allocate_zeroed() else { return false };
    let mapped = vm::map(vm::pages(address, PAGE), frame, Rights::ReadWrite);
    if mapped.is_err() {
        frame::free(frame).expect("the frame was just allocated");
    }
    mapped.is_ok()
}

/// Unmaps pages that nobody has used yet, and frees their frames.
fn unmap(addresses: Range<usize>) {
    if !addresses.is_empty() {
        vm::unmap(vm::pages(addresses.start, addresses.len()), free).expect("a stack is mapped");
    }
}
