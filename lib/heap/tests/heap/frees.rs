//! Every free that is not one is refused, whatever state the page is in.

use std::collections::BTreeSet;

use crate::common::{allocate, classes, heap, layout, refused, whole};
use heap::{LARGEST, PAGE, Problem, block_size};

/// Blocks enough to fill `pages` pages of a class.
fn fill(heap: &mut heap::Heap<crate::common::Source>, size: usize, pages: usize) -> Vec<usize> {
    (0..(pages * PAGE / size).max(1)).map(|_| allocate(heap, whole(size)).unwrap()).collect()
}

#[test]
fn every_block_of_a_page_is_given_out_once() {
    for size in classes() {
        let (mut heap, memory) = heap(10);
        let mut blocks = fill(&mut heap, size, 3);
        blocks.sort();
        let frames: Vec<_> = memory.borrow().runs.keys().copied().collect();
        let expected: Vec<_> =
            frames.iter().flat_map(|frame| (*frame..frame + PAGE).step_by(size)).collect();
        assert_eq!(blocks, expected, "blocks of {size}");
    }
}

/// Each address in and around the pages of a class, with some blocks in use and others free, and the page that is allocated
/// from, those on the list and those that are full among them.
#[test]
fn an_address_that_is_no_block_in_use_is_refused() {
    for size in classes() {
        let (mut heap, memory) = heap(100);
        let mut blocks = BTreeSet::from_iter(fill(&mut heap, size, 8));
        // The first pages stay full, in others each third block is freed, and one goes.
        let (mut freed, mut step) = (BTreeSet::new(), 0);
        blocks.retain(|&block| {
            step += 1;
            let stays = step <= 2 * PAGE / size || step % 3 != 0;
            if !stays {
                heap.free(block, whole(size)).unwrap();
                freed.insert(block);
            }
            stays
        });
        let frames: Vec<_> = memory.borrow().runs.keys().copied().collect();
        for address in frames.iter().flat_map(|frame| frame - 64..frame + PAGE + 64) {
            let frame_is_held = memory.borrow().holds(address..address + 1);
            let start = address / size * size;
            let expected = match () {
                () if !frame_is_held => Problem::Foreign,
                () if start != address => Problem::Inside,
                () if freed.contains(&address) => Problem::AlreadyFree,
                () => continue,
            };
            assert_eq!(heap.free(address, whole(size)), refused(address, expected), "{size}");
            let found = heap.find(address).map(|block| (block.start, block.size, block.in_use));
            let in_use = blocks.contains(&start);
            assert_eq!(found, frame_is_held.then_some((start, size, in_use)), "{address:#x}");
        }
        for block in blocks {
            heap.free(block, whole(size)).unwrap();
        }
        crate::common::assert_all_back(&mut heap, &memory);
    }
}

#[test]
fn a_double_free_is_refused_in_a_full_page_a_listed_one_and_the_last_one() {
    for size in classes() {
        let (mut heap, memory) = heap(100);
        let blocks = fill(&mut heap, size, 3);
        for (freed, block) in blocks.iter().enumerate() {
            heap.free(*block, whole(size)).unwrap();
            for earlier in &blocks[..=freed] {
                let is_held = memory.borrow().holds(*earlier..earlier + size);
                let expected = if is_held { Problem::AlreadyFree } else { Problem::Foreign };
                assert_eq!(heap.free(*earlier, whole(size)), refused(*earlier, expected), "{size}");
            }
        }
        crate::common::assert_all_back(&mut heap, &memory);
    }
}

/// All layouts up to two pages, against a block of each size, in a page that is full and in one that is not.
#[test]
fn a_layout_of_another_block_size_is_refused() {
    let (mut heap, memory) = heap(1000);
    for size in classes().chain([PAGE, 2 * PAGE, 3 * PAGE]) {
        let parked = fill(&mut heap, size, 1)[0];
        let open = fill(&mut heap, size, 1)[0];
        for (bytes, alignment) in
            (1..=2 * PAGE + 1).flat_map(|bytes| (0..=13).map(move |bit| (bytes, 1 << bit)))
        {
            let wrong = layout(bytes, alignment);
            let fits = match bytes.max(alignment) {
                need if need <= LARGEST => need <= size && (need > size / 2 || size == 32),
                _ => bytes.div_ceil(PAGE) * PAGE == size,
            };
            assert_eq!(fits, block_size(wrong) == size, "{wrong:?}");
            if !fits {
                for block in [parked, open] {
                    let expected = refused(block, Problem::WrongLayout);
                    assert_eq!(heap.free(block, wrong), expected, "{size}: {wrong:?}");
                }
            }
        }
    }
    assert_eq!(memory.borrow().runs.len(), 2 * 10, "two pages or runs of each size");
}

/// Shifts of such sizes wrap around where the processor takes the shift's low bits only.
#[test]
fn a_layout_of_astronomical_size_is_refused() {
    let (mut heap, _) = heap(1000);
    for size in classes() {
        for block in [fill(&mut heap, size, 1)[0], fill(&mut heap, size, 1)[0]] {
            for bit in 12..63 {
                let expected = refused(block, Problem::WrongLayout);
                assert_eq!(heap.free(block, layout(1 << bit, 1)), expected, "{size} as 2^{bit}");
                assert_eq!(heap.free(block, layout(1, 1 << bit)), expected, "{size} as 2^{bit}");
            }
        }
    }
}

#[test]
fn whole_pages_are_freed_once_from_their_beginning_with_their_length() {
    for pages in [1, 2, 3, 25, 200] {
        for alignment in [8, PAGE, 2 * PAGE, 16 * PAGE] {
            let (mut heap, memory) = heap(1000);
            let right = layout(pages * PAGE - 1, alignment);
            let block = allocate(&mut heap, right).unwrap();
            let other = allocate(&mut heap, right).unwrap();
            assert!(block.is_multiple_of(alignment));
            let wrong = [pages - 1, pages + 1].map(|pages| layout(pages * PAGE, alignment));
            // Nobody asks for no bytes.
            for wrong in
                wrong.into_iter().chain([layout(LARGEST, 1)]).filter(|wrong| wrong.size() > 0)
            {
                assert_eq!(
                    heap.free(block, wrong),
                    refused(block, Problem::WrongLayout),
                    "{wrong:?}"
                );
            }
            for inside in (1..pages * PAGE).step_by(31).chain((32..pages * PAGE).step_by(32)) {
                let expected = if inside < PAGE { Problem::Inside } else { Problem::Foreign };
                assert_eq!(heap.free(block + inside, right), refused(block + inside, expected));
            }
            heap.free(block, right).unwrap();
            assert_eq!(heap.free(block, right), refused(block, Problem::Foreign));
            heap.free(other, right).unwrap();
            crate::common::assert_all_back(&mut heap, &memory);
        }
    }
}

#[test]
fn a_frame_that_held_blocks_and_now_holds_one_is_not_freed_as_it_was() {
    for size in classes() {
        let (mut heap, memory) = heap(100);
        memory.borrow_mut().stride = 0;
        let kept = heap.allocate(whole(PAGE)).unwrap();
        let before = fill(&mut heap, size, 2);
        before.iter().for_each(|block| heap.free(*block, whole(size)).unwrap());
        heap.trim();
        let run = usize::from(heap.allocate(whole(PAGE)).unwrap());
        assert!(before.contains(&run) && run != kept.get());
        assert_eq!(heap.free(run, whole(size)), refused(run, Problem::WrongLayout));
        for block in before.iter().filter(|block| !(run..run + PAGE).contains(block)) {
            assert_eq!(heap.free(*block, whole(size)), refused(*block, Problem::Foreign));
        }
    }
}

#[test]
fn a_wild_pointer_is_refused() {
    let (mut heap, _) = heap(100);
    let block = allocate(&mut heap, whole(64)).unwrap();
    let run = allocate(&mut heap, whole(3 * PAGE)).unwrap();
    let ends = [crate::common::MEMORY.start, crate::common::MEMORY.end, 0, 1 << 63];
    let around =
        ends.into_iter().flat_map(|end| (-65..65).map(move |by| end.wrapping_add_signed(by)));
    for address in around.chain([block ^ 1 << 38, run ^ 1 << 38, block ^ 1 << 63, run ^ 1 << 20]) {
        for size in classes().chain([PAGE, 3 * PAGE]) {
            assert_eq!(heap.free(address, whole(size)), refused(address, Problem::Foreign));
        }
    }
}
