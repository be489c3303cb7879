//! What the heap takes from the frames, what it gives back and when, and what it says of it.

use crate::common::{allocate, assert_all_back, classes, heap, layout, usages, whole};
use heap::{Heap, PAGE};

#[test]
fn a_heap_without_memory_refuses_everything() {
    let (_, memory) = heap(100);
    let mut heap = Heap::new(crate::common::Source(memory.clone()));
    assert_eq!(allocate(&mut heap, whole(64)), None);
    assert_eq!(allocate(&mut heap, whole(5000)), None);
    assert!(heap.free(crate::common::MEMORY.start, whole(64)).is_err());
    assert_eq!(heap.failures(), 2);
    assert_eq!(memory.borrow().in_use(), 0);
}

#[test]
#[should_panic(expected = "the directory spans the memory")]
fn a_directory_too_short_for_the_memory_is_refused() {
    let (mut heap, _) = heap(100);
    heap.begin(0..heap::REGION + PAGE, vec![heap::Region::EMPTY; 1].leak());
}

#[test]
fn every_alignment_is_kept() {
    let (mut heap, memory) = heap(2000);
    let mut blocks = Vec::new();
    for alignment in (0..=17).map(|bit| 1 << bit) {
        for size in [1, 31, 32, 33, 100, 1000, 2047, 2048, 2049, 4096, 10_000] {
            let layout = layout(size, alignment);
            let block = allocate(&mut heap, layout).unwrap();
            assert!(block.is_multiple_of(alignment), "{block:#x} for {layout:?}");
            blocks.push((block, layout));
        }
    }
    for (block, layout) in blocks {
        heap.free(block, layout).unwrap();
    }
    assert_all_back(&mut heap, &memory);
}

#[test]
fn an_empty_page_goes_back_except_the_one_in_use() {
    for size in classes() {
        let (mut heap, memory) = heap(100);
        let blocks: Vec<_> =
            (0..10 * PAGE / size).map(|_| allocate(&mut heap, whole(size)).unwrap()).collect();
        assert_eq!(memory.borrow().runs.len(), 10);
        for (freed, block) in blocks.iter().enumerate() {
            heap.free(*block, whole(size)).unwrap();
            let held = memory.borrow().runs.len();
            let pages_left = (blocks.len() - freed - 1).div_ceil(PAGE / size);
            assert_eq!(held, pages_left.max(1), "{size}");
        }
        // A block that comes and goes costs no frame each time.
        memory.borrow_mut().limit = 0;
        let block = allocate(&mut heap, whole(size)).unwrap();
        heap.free(block, whole(size)).unwrap();
        assert_all_back(&mut heap, &memory);
    }
}

#[test]
fn blocks_freed_in_full_pages_are_used_before_fresh_pages() {
    for size in classes() {
        let (mut heap, memory) = heap(100);
        let mut blocks: Vec<_> =
            (0..8 * PAGE / size).map(|_| allocate(&mut heap, whole(size)).unwrap()).collect();
        let freed: Vec<_> = blocks.iter().copied().step_by(PAGE / size).collect();
        for &block in &freed {
            heap.free(block, whole(size)).unwrap();
        }
        memory.borrow_mut().limit = 0;
        let mut again: Vec<_> =
            freed.iter().map(|_| allocate(&mut heap, whole(size)).unwrap()).collect();
        again.sort();
        blocks.retain(|block| freed.contains(block));
        blocks.sort();
        assert_eq!(again, blocks);
    }
}

/// Every request fails in the end, for each number of frames: with none left for a page, or none for its ledger.
#[test]
fn exhaustion_is_an_error_and_loses_nothing() {
    for limit in 0..12 {
        for size in classes().chain([PAGE, 3 * PAGE]) {
            let (mut heap, memory) = heap(limit);
            let mut blocks = Vec::new();
            while let Some(block) = allocate(&mut heap, whole(size)) {
                blocks.push(block);
                assert!(blocks.len() <= limit * PAGE / heap::SMALLEST);
            }
            assert_eq!(heap.failures(), 1);
            let usage = usages(&heap).into_iter().find(|usage| usage.blocks > 0);
            assert_eq!(usage.map_or(0, |usage| usage.blocks), blocks.len());
            // A page and its ledger can be had with two frames, and the heap goes on.
            if let Some(block) = blocks.pop() {
                heap.free(block, whole(size)).unwrap();
                blocks.push(allocate(&mut heap, whole(size)).unwrap());
            } else {
                assert!(limit < 2 || size == 3 * PAGE && limit < 4);
            }
            for block in blocks {
                heap.free(block, whole(size)).unwrap();
            }
            assert_all_back(&mut heap, &memory);
        }
    }
}

#[test]
fn what_is_kept_is_given_back_before_a_request_fails() {
    let (mut heap, memory) = heap(2);
    for size in classes().chain([PAGE]).chain(classes()) {
        let block = allocate(&mut heap, whole(size)).unwrap();
        heap.free(block, whole(size)).unwrap();
    }
    assert_eq!(heap.failures(), 0);
    assert_all_back(&mut heap, &memory);
}

#[test]
fn a_run_larger_than_memory_is_an_error() {
    let (mut heap, memory) = heap(usize::MAX);
    for size in [crate::common::MEMORY.len() + 1, 1 << 50, isize::MAX as usize] {
        assert_eq!(allocate(&mut heap, whole(size)), None);
    }
    assert_eq!(allocate(&mut heap, layout(1, 1 << 62)), None);
    assert_eq!(heap.failures(), 4);
    assert_all_back(&mut heap, &memory);
}

#[test]
fn usage_says_what_is_in_use_and_the_most_that_was() {
    let (mut heap, memory) = heap(1000);
    let blocks: Vec<_> = (0..3 * 64 + 1).map(|_| allocate(&mut heap, whole(64)).unwrap()).collect();
    let run = allocate(&mut heap, whole(5 * PAGE)).unwrap();
    heap.free(blocks[0], whole(64)).unwrap();
    let of = |heap: &_, size| {
        let usage = usages(heap).into_iter().find(|usage| usage.block_size == size).unwrap();
        (usage.blocks, usage.pages, usage.most_pages)
    };
    assert_eq!(of(&heap, 64), (3 * 64, 4, 4));
    assert_eq!(of(&heap, PAGE), (1, 5, 5));
    assert_eq!(of(&heap, 32), (0, 0, 0));
    heap.free(run, whole(5 * PAGE)).unwrap();
    for block in &blocks[1..] {
        heap.free(*block, whole(64)).unwrap();
    }
    assert_eq!(heap.ledgers(), memory.borrow().ledgers);
    assert_all_back(&mut heap, &memory);
    assert_eq!(of(&heap, 64), (0, 0, 4));
    assert_eq!(of(&heap, PAGE), (0, 0, 5));
    allocate(&mut heap, whole(64)).unwrap();
    assert_eq!(of(&heap, 64), (1, 1, 4));
}
