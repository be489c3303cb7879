//! The heap.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::sync::atomic::{AtomicUsize, Ordering};

use ::heap::{FreeError, Problem};

use super::{Ended, Outcome, Random, ensure, ensure_eq, held, on_every_hart, self_test};
use crate::vm::{self, PAGE};
use crate::{frame, heap, image};

fn layout(size: usize, alignment: usize) -> Layout {
    Layout::from_size_align(size, alignment).expect("the tests ask for valid layouts")
}

fn allocate(layout: Layout) -> Result<usize, Ended> {
    heap::allocate(layout).map_err(|heap::OutOfMemory| Ended::Skipped("there is no memory"))
}

/// The bytes of a block that a test has.
fn bytes(address: usize, size: usize) -> &'static mut [u8] {
    // SAFETY: the block is the test's, and this is its only reference.
    unsafe {
        core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut(address), size)
    }
}

self_test!(claim 38, quick, boxes_and_vectors_live_on_the_heap);
fn boxes_and_vectors_live_on_the_heap() -> Outcome {
    let Ok(boxed) = heap::try_box([7_u64; 20]) else { return Err(Ended::Skipped("no memory")) };
    let address = (&raw const *boxed).addr();
    let block = heap::find(address);
    ensure!(
        block.is_some_and(|block| block.in_use && block.start == address && block.size >= 160),
        "a box at {address:#x} lies in {block:?}"
    );
    let mut list = Vec::new();
    ensure!(list.try_reserve(1000).is_ok());
    (0..1000).for_each(|number: u64| list.push(number));
    ensure_eq!(list.iter().sum::<u64>(), 499_500);
    ensure_eq!(boxed.iter().sum::<u64>(), 140);
    Ok(())
}

self_test!(claim 38, every_alignment_is_kept);
fn every_alignment_is_kept() -> Outcome {
    for shift in 0..=16 {
        let alignment = 1 << shift;
        for size in [1, 31, 33, 2048, 2049, 5000] {
            let layout = layout(size, alignment);
            let address = allocate(layout)?;
            ensure!(address.is_multiple_of(alignment), "{layout:?} is at {address:#x}");
            bytes(address, size).fill(0xa5);
            ensure_eq!(heap::free(address, layout), Ok(()));
        }
    }
    Ok(())
}

self_test!(claim 39, random_blocks_keep_what_is_written_to_them);
fn random_blocks_keep_what_is_written_to_them() -> Outcome {
    const BLOCKS: usize = 200;
    let mut random = Random(0x16_05);
    let mut blocks = Vec::<Option<(usize, Layout, u8)>>::new();
    ensure!(blocks.try_reserve(BLOCKS).is_ok());
    blocks.resize(BLOCKS, None);
    for operation in 0..5_000 {
        let place = random.between(0, BLOCKS);
        if let Some((address, layout, fill)) = blocks[place].take() {
            let wrong = bytes(address, layout.size()).iter().position(|byte| *byte != fill);
            ensure!(wrong.is_none(), "{layout:?} at {address:#x} was overwritten at {wrong:?}");
            ensure_eq!(heap::free(address, layout), Ok(()));
        } else {
            let layout = layout(random.between(1, 3_001), 1 << random.between(0, 7));
            let address = allocate(layout)?;
            bytes(address, layout.size()).fill(operation as u8);
            blocks[place] = Some((address, layout, operation as u8));
        }
    }
    for (address, layout, _) in blocks.iter().flatten() {
        ensure_eq!(heap::free(*address, *layout), Ok(()));
    }
    Ok(())
}

self_test!(claim 40, quick, a_block_is_freed_once);
fn a_block_is_freed_once() -> Outcome {
    for size in [1, 64, 100, 2048, 3 * PAGE] {
        let layout = layout(size, 8);
        let (kept, address) = (allocate(layout)?, allocate(layout)?);
        ensure_eq!(heap::free(address, layout), Ok(()));
        let again = heap::free(address, layout);
        ensure!(
            matches!(again, Err(FreeError { address: named, .. }) if named == address),
            "freeing {size} bytes twice gave {again:?}"
        );
        ensure_eq!(heap::free(kept, layout), Ok(()));
    }
    Ok(())
}

self_test!(claim 40, a_wild_pointer_is_an_error_and_not_followed);
fn a_wild_pointer_is_an_error_and_not_followed() -> Outcome {
    let frame = frame::allocate().ok_or(Ended::Skipped("there is no memory"))?;
    let layout = layout(64, 8);
    let wild = [
        0,
        8,
        1 << 45,
        usize::MAX & !63,
        image::start(),
        vm::DEVICES,
        vm::direct(0),
        vm::direct(frame.address()),
        vm::direct(vm::DIRECT_MAP_BYTES) - 64,
    ];
    for address in wild {
        let problem = heap::free(address, layout);
        ensure_eq!(problem, Err(FreeError { address, problem: Problem::Foreign }));
    }
    ensure_eq!(frame::free(frame), Ok(()));
    Ok(())
}

self_test!(claim 40, a_pointer_into_a_block_is_an_error);
fn a_pointer_into_a_block_is_an_error() -> Outcome {
    for size in [64, 2048, 3 * PAGE] {
        let layout = layout(size, 8);
        let address = allocate(layout)?;
        for inside in [address + 1, address + 8, address + 32, address + size - 1] {
            let outcome = heap::free(inside, layout);
            ensure!(
                matches!(outcome, Err(FreeError { address: named, .. }) if named == inside),
                "freeing {inside:#x} in a block of {size} at {address:#x} gave {outcome:?}"
            );
        }
        ensure_eq!(heap::free(address, layout), Ok(()));
    }
    Ok(())
}

self_test!(claim 40, a_wrong_layout_is_an_error);
fn a_wrong_layout_is_an_error() -> Outcome {
    for (size, other) in [(64, 65), (64, 3), (2048, 2049), (3 * PAGE, 64), (3 * PAGE, 5 * PAGE)] {
        let address = allocate(layout(size, 8))?;
        let outcome = heap::free(address, layout(other, 8));
        ensure_eq!(outcome, Err(FreeError { address, problem: Problem::WrongLayout }));
        ensure_eq!(heap::free(address, layout(size, 8)), Ok(()));
    }
    Ok(())
}

self_test!(claim 41, pages_go_back_when_nothing_is_in_them);
fn pages_go_back_when_nothing_is_in_them() -> Outcome {
    heap::trim();
    let before = frame::statistics();
    let mut blocks = Vec::new();
    ensure!(blocks.try_reserve(4_000).is_ok());
    for number in 0..4_000 {
        let layout = layout(32 << (number % 7), 8);
        blocks.push((allocate(layout)?, layout));
    }
    let most = frame::statistics().in_use;
    ensure!(most > before.in_use + 500, "4,000 blocks took {} frames", most - before.in_use);
    for (address, layout) in &blocks {
        ensure_eq!(heap::free(*address, *layout), Ok(()));
    }
    drop(blocks);
    heap::trim();
    ensure_eq!(frame::statistics(), before);
    Ok(())
}

self_test!(claim 42, exhausted_memory_is_an_error_and_comes_back);
fn exhausted_memory_is_an_error_and_comes_back() -> Outcome {
    let _held = held::all_but_a_sample()?;
    // Each block holds the address of the one before: the list of them needs no other memory.
    let layout = layout(2048, 8);
    let mut last = 0_usize;
    let mut count = 0;
    while let Ok(address) = heap::allocate(layout) {
        bytes(address, 8).copy_from_slice(&last.to_le_bytes());
        last = address;
        count += 1;
    }
    ensure!(count > 1_000, "memory ran out after {count} blocks");
    let boxed = heap::try_box([0_u8; 2048]);
    ensure!(boxed.is_err(), "a box was made of no memory");
    ensure!(Vec::<u8>::new().try_reserve(PAGE).is_err(), "a vector was made of no memory");
    ensure_eq!(heap::allocate(self::layout(64 * PAGE, PAGE)), Err(heap::OutOfMemory));
    while last != 0 {
        let address = last;
        let words = bytes(address, 8).first_chunk::<8>().expect("a block has eight bytes");
        last = usize::from_le_bytes(*words);
        ensure_eq!(heap::free(address, layout), Ok(()));
    }
    ensure!(heap::try_box(1_u8).is_ok(), "memory does not come back");
    Ok(())
}

self_test!(claim 42, an_absurd_request_is_an_error);
fn an_absurd_request_is_an_error() -> Outcome {
    for size in [1 << 40, isize::MAX as usize - PAGE] {
        ensure_eq!(heap::allocate(layout(size, 8)), Err(heap::OutOfMemory));
    }
    ensure_eq!(heap::allocate(layout(8, 1 << 40)), Err(heap::OutOfMemory));
    Ok(())
}

self_test!(claim 38, values_without_size_need_no_memory);
fn values_without_size_need_no_memory() -> Outcome {
    let boxed: Result<Box<()>, _> = heap::try_box(());
    ensure!(boxed.is_ok());
    Ok(())
}

self_test!(claim 39, harts 2, harts_allocate_and_free_at_once);
fn harts_allocate_and_free_at_once() -> Outcome {
    static WRONG: AtomicUsize = AtomicUsize::new(0);
    fn storm(cpu: usize) {
        let mut random = Random(cpu as u64 + 1);
        for _ in 0..500 {
            let layout = layout(random.between(1, 3_001), 8);
            let Ok(address) = heap::allocate(layout) else { continue };
            bytes(address, layout.size()).fill(cpu as u8);
            let overwritten = bytes(address, layout.size()).iter().any(|byte| *byte != cpu as u8);
            if overwritten || heap::free(address, layout).is_err() {
                WRONG.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    WRONG.store(0, Ordering::Relaxed);
    on_every_hart(storm)?;
    ensure_eq!(WRONG.load(Ordering::Relaxed), 0);
    Ok(())
}

#[cfg(feature = "checked")]
self_test!(claim 27, a_freed_block_is_filled);
#[cfg(feature = "checked")]
fn a_freed_block_is_filled() -> Outcome {
    let layout = layout(64, 8);
    let (kept, address) = (allocate(layout)?, allocate(layout)?);
    bytes(address, 64).fill(1);
    ensure_eq!(heap::free(address, layout), Ok(()));
    ensure!(bytes(address, 64).iter().all(|byte| *byte == heap::FREE_PATTERN));
    ensure_eq!(heap::free(kept, layout), Ok(()));
    Ok(())
}
