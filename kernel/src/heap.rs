//! The kernel heap, as Rust's global allocator.
//!
//! The logic is `lib/heap`. This file gives it frames and a lock. An allocation that finds no memory is an error that its caller
//! sees: `Vec::try_reserve`, [`try_box`]; what cannot say so is denied by clippy.toml.
//!
//! Owns the heap, behind a spin lock with which no other is taken: frames need none. A block is its owner's alone until it is freed (invariant
//! HEAP-1); a free that is wrong is an error of [`free`] that names the address, and changes nothing.

use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::num::NonZero;
use core::ptr;

use frames::FrameNumber;
use heap::{Block, Frames, FreeError, Heap, Ledger, Region, Usage};
use machine::Machine;

use crate::frame;
use crate::sync::SpinLock;
use crate::vm::{self, PAGE};

static HEAP: SpinLock<Heap<DirectFrames>> = SpinLock::new("heap", Heap::new(DirectFrames));

/// What fills a free block in checked builds.
pub const FREE_PATTERN: u8 = 0xdb;

/// There was no memory for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// Frames at their addresses in the direct map.
struct DirectFrames;

impl Frames for DirectFrames {
    fn allocate(&mut self, count: usize, alignment: usize) -> Option<usize> {
        let first = if count == 1 && alignment <= PAGE {
            frame::allocate()
        } else {
            frame::allocate_run(count, alignment.div_ceil(PAGE))
        };
        first.map(|frame| vm::direct(frame.address()))
    }

    fn free(&mut self, address: usize, count: usize) {
        let first = FrameNumber::containing(vm::physical_of_direct(address));
        let freed = if count == 1 { frame::free(first) } else { frame::free_run(first, count) };
        freed.expect("the heap gives back what it was given");
    }

    fn allocate_ledger(&mut self) -> Option<&'static Ledger> {
        let frame = frame::allocate_zeroed()?;
        let ledger = ptr::without_provenance::<Ledger>(vm::direct(frame.address()));
        // SAFETY: a frame of zeros in the direct map (VM-2) is a ledger without pages, and nobody else has it.
        Some(unsafe { &*ledger })
    }

    fn free_ledger(&mut self, ledger: &'static Ledger) {
        self.free(ptr::from_ref(ledger).addr(), 1);
    }
}

/// Gives the heap the directory of its pages. Called once, when frames can be allocated.
pub fn start(machine: &Machine<'_>) {
    let ends = machine.banks.iter().map(|bank| bank.range.end() as usize);
    let end = ends.max().unwrap_or(0).min(vm::DIRECT_MAP_BYTES);
    let start = machine.banks.first().map_or(0, |bank| bank.range.start() as usize);
    let memory = vm::direct(start / PAGE * PAGE)..vm::direct(end.next_multiple_of(PAGE));
    let regions = memory.len().div_ceil(heap::REGION);
    let count = (regions * size_of::<Region>()).div_ceil(PAGE);
    let first =
        frame::allocate_run(count, 1).expect("the boot leaves memory for the heap's directory");
    for frame in first.0..first.0 + count {
        frame::zero(FrameNumber(frame));
    }
    let directory = ptr::without_provenance_mut::<Region>(vm::direct(first.address()));
    // SAFETY: frames of zeros in the direct map (VM-2), nobody else's for good; a region of zeros is an empty one.
    let directory = unsafe { core::slice::from_raw_parts_mut(directory, regions) };
    HEAP.lock().begin(memory, directory);
}

/// Takes a block. What is in it is left from before.
///
/// # Errors
/// Without memory.
// Part of its caller, who knows the layout: which size of blocks that means is found out when it is compiled.
#[inline(always)]
pub fn allocate(layout: Layout) -> Result<usize, OutOfMemory> {
    HEAP.lock().allocate(layout).map(NonZero::get).ok_or(OutOfMemory)
}

/// Takes back a block that [`allocate`] gave for the same layout.
///
/// # Errors
/// If there is no such block in use; nothing has changed then, and the address was not followed.
#[inline(always)]
pub fn free(address: usize, layout: Layout) -> Result<(), FreeError> {
    let mut heap = HEAP.lock();
    if cfg!(feature = "checked") {
        let block = heap.find(address);
        if block.is_some_and(|block| block.in_use && block.start == address) {
            let size = layout.size().min(heap::block_size(layout));
            // SAFETY: the block is in use, so its bytes are memory that the caller gives up (invariant HEAP-1).
            unsafe {
                ptr::write_bytes(
                    ptr::with_exposed_provenance_mut::<u8>(address),
                    FREE_PATTERN,
                    size,
                )
            };
        }
    }
    heap.free(address, layout)
}

/// The block of the heap that `address` lies in.
pub fn find(address: usize) -> Option<Block> {
    HEAP.lock().find(address)
}

/// As [`find`], for crash reports: finds nothing where the heap is locked.
pub fn try_find(address: usize) -> Option<Block> {
    HEAP.try_lock()?.find(address)
}

/// Gives back the pages that are kept though nothing is in them.
pub fn trim() {
    HEAP.lock().trim();
}

/// Frames that the heap holds: for blocks, and for its own books.
pub fn frames_held() -> usize {
    let heap = HEAP.lock();
    let mut pages = 0;
    heap.for_each_class(|usage| pages += usage.pages);
    pages + heap.ledgers()
}

/// Shows what the blocks of each size use.
pub fn for_each_class(show: impl FnMut(Usage)) {
    HEAP.lock().for_each_class(show);
}

/// A value on the heap.
///
/// # Errors
/// Without memory; the value is dropped then.
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    let place = if layout.size() == 0 {
        ptr::dangling_mut::<T>()
    } else {
        ptr::with_exposed_provenance_mut::<T>(allocate(layout)?)
    };
    // SAFETY: the place has the layout of a `T` and is nobody else's (HEAP-1).
    unsafe { place.write(value) };
    // SAFETY: it comes from the global allocator with this layout, or has no size, and holds a `T`.
    Ok(unsafe { Box::from_raw(place) })
}

/// The heap as Rust sees it.
struct Global;

#[global_allocator]
static GLOBAL: Global = Global;

// SAFETY: blocks have the layout asked for, do not overlap, and stay until they are freed (invariant HEAP-1).
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout).map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Err(error) = free(block.addr(), layout) {
            panic!("{error}");
        }
    }
}
