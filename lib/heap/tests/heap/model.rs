//! Random operations, legal and not, beside a map from address to layout that says what each must do.

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use heap::{Heap, LARGEST, PAGE, Problem, SMALLEST};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::common::{MEMORY, Memory, Source, allocate, assert_all_back, heap, layout, usages};

#[derive(Clone, Debug)]
enum Operation {
    Allocate(Layout),
    /// A block in use, as it should be.
    Free(Index),
    /// Any address that was a block once, with the layout of then.
    FreeAgain(Index),
    /// Bytes behind the beginning of a block in use.
    FreeInside(Index, usize),
    /// A block in use, with a layout that need not be its own.
    FreeAs(Index, Layout),
    /// Any address, with any layout.
    FreeWild(usize, Layout),
    /// How many frames may be taken beyond those in use.
    Limit(usize),
    Trim,
}

fn layouts() -> impl Strategy<Value = Layout> {
    let sizes = prop_oneof![
        6 => 1..=300_usize,
        3 => 1..=3000_usize,
        1 => 1..=100 * 1024_usize,
        1 => (0..12_usize, 0..3_usize).prop_map(|(bit, by)| (SMALLEST << bit) + by - 1),
    ];
    let alignments = prop_oneof![8 => 0..=4_u32, 2 => 0..=11_u32, 1 => 0..=16_u32];
    (sizes, alignments).prop_map(|(size, bit)| layout(size, 1 << bit))
}

fn operations() -> impl Strategy<Value = Operation> {
    let wild = prop_oneof![
        any::<usize>(),
        MEMORY,
        MEMORY.prop_map(|address| address / SMALLEST * SMALLEST),
        MEMORY.prop_map(|address| address / PAGE * PAGE),
    ];
    prop_oneof![
        30 => layouts().prop_map(Operation::Allocate),
        24 => any::<Index>().prop_map(Operation::Free),
        4 => any::<Index>().prop_map(Operation::FreeAgain),
        3 => (any::<Index>(), 1..200_000_usize).prop_map(|(index, by)| Operation::FreeInside(index, by)),
        4 => (any::<Index>(), layouts()).prop_map(|(index, layout)| Operation::FreeAs(index, layout)),
        2 => (wild, layouts()).prop_map(|(address, layout)| Operation::FreeWild(address, layout)),
        1 => prop_oneof![Just(usize::MAX / 2), 0..40_usize].prop_map(Operation::Limit),
        1 => Just(Operation::Trim),
    ]
}

/// Bytes in the block for a layout.
fn size_of(layout: Layout) -> usize {
    let need = layout.size().max(layout.align());
    if need <= LARGEST {
        need.max(SMALLEST).next_power_of_two()
    } else {
        layout.size().next_multiple_of(PAGE)
    }
}

struct Model {
    heap: Heap<Source>,
    memory: Rc<RefCell<Memory>>,
    live: BTreeMap<usize, Layout>,
    once: Vec<(usize, Layout)>,
    failures: usize,
}

impl Model {
    fn new() -> Model {
        let (heap, memory) = heap(usize::MAX / 2);
        Model { heap, memory, live: BTreeMap::new(), once: Vec::new(), failures: 0 }
    }

    fn pick(&self, index: Index) -> Option<(usize, Layout)> {
        let index = (!self.live.is_empty()).then(|| index.index(self.live.len()))?;
        self.live.iter().nth(index).map(|(address, layout)| (*address, *layout))
    }

    /// The block in use that an address is in.
    fn around(&self, address: usize) -> Option<(usize, Layout)> {
        let (start, layout) = self.live.range(..=address).next_back()?;
        (address - start < size_of(*layout)).then_some((*start, *layout))
    }

    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Allocate(layout) => self.allocate(layout),
            Operation::Free(index) => {
                if let Some((address, layout)) = self.pick(index) {
                    self.free(address, layout);
                    assert!(!self.live.contains_key(&address));
                }
            }
            Operation::FreeAgain(index) => {
                if !self.once.is_empty() {
                    let (address, layout) = *index.get(&self.once);
                    self.free(address, layout);
                }
            }
            Operation::FreeInside(index, by) => {
                if let Some((address, layout)) = self.pick(index) {
                    self.free(address + by % size_of(layout), layout);
                }
            }
            Operation::FreeAs(index, layout) => {
                if let Some((address, _)) = self.pick(index) {
                    self.free(address, layout);
                }
            }
            Operation::FreeWild(address, layout) => self.free(address, layout),
            Operation::Limit(more) => {
                let mut memory = self.memory.borrow_mut();
                memory.limit = memory.in_use() + more;
            }
            Operation::Trim => self.heap.trim(),
        }
    }

    fn allocate(&mut self, layout: Layout) {
        let size = size_of(layout);
        match allocate(&mut self.heap, layout) {
            Some(address) => {
                assert!(address.is_multiple_of(layout.align()), "{address:#x}, {layout:?}");
                assert!(self.memory.borrow().holds(address..address + size));
                assert_eq!(self.around(address), None);
                assert_eq!(self.around(address + size - 1), None);
                assert!(self.live.range(address..address + size).next().is_none());
                self.live.insert(address, layout);
            }
            None => {
                self.failures += 1;
                // Something was missing: the frames with, it may be, a ledger; or so many in a row.
                let memory = self.memory.borrow();
                let is_short = memory.in_use() + size.div_ceil(PAGE) + 1 > memory.limit;
                assert!(is_short || size > PAGE, "{layout:?}");
            }
        }
    }

    /// Frees what may be a block in use, or not, and compares.
    fn free(&mut self, address: usize, layout: Layout) {
        let around = self.around(address);
        let is_held = self.memory.borrow().holds(address..address + 1);
        let before = (usages(&self.heap), self.memory.borrow().runs.clone());
        let result = self.heap.free(address, layout);
        let expected: &[Problem] = match around {
            Some((start, own)) if start == address && size_of(own) == size_of(layout) => &[],
            Some((start, _)) if start == address => &[Problem::WrongLayout],
            // The books say nothing of a block's second page.
            Some((start, _)) if address / PAGE != start / PAGE => &[Problem::Foreign],
            Some(_) => &[Problem::Inside],
            // Where a free block begins is not in the map.
            None if is_held => &[Problem::AlreadyFree, Problem::Inside],
            None => &[Problem::Foreign],
        };
        match result {
            Ok(()) => {
                assert_eq!(expected, [], "freed {address:#x} as {layout:?}");
                self.once.push((address, self.live.remove(&address).unwrap()));
            }
            Err(error) => {
                assert_eq!(error.address, address);
                assert!(expected.contains(&error.problem), "{error:?}, not {expected:?}");
                assert_eq!(before, (usages(&self.heap), self.memory.borrow().runs.clone()));
            }
        }
    }

    /// What the heap says of itself, beside the map and the frames.
    fn compare(&self) {
        let memory = self.memory.borrow();
        assert_eq!(self.heap.failures(), self.failures);
        assert_eq!(self.heap.ledgers(), memory.ledgers);
        let mut pages = 0;
        for usage in usages(&self.heap) {
            let is_run = usage.block_size > LARGEST;
            let own = self.live.iter().filter(|(_, layout)| match is_run {
                true => size_of(**layout) > LARGEST,
                false => size_of(**layout) == usage.block_size,
            });
            let (addresses, layouts): (Vec<usize>, Vec<Layout>) = own.unzip();
            assert_eq!(usage.blocks, addresses.len(), "{usage:?}");
            let mut with_blocks: Vec<_> = addresses.iter().map(|address| address / PAGE).collect();
            with_blocks.dedup();
            let needed = match is_run {
                true => layouts.iter().map(|layout| size_of(*layout) / PAGE).sum(),
                false => with_blocks.len(),
            };
            let kept = usage.pages - needed;
            assert!(kept <= usize::from(!is_run), "at most one empty page is kept: {usage:?}");
            assert!(usage.most_pages >= usage.pages);
            pages += usage.pages;
        }
        assert_eq!(pages + memory.ledgers, memory.in_use());
    }
}

proptest! {
    #[test]
    fn the_heap_does_what_a_map_says(operations in proptest::collection::vec(operations(), 1..600)) {
        let mut model = Model::new();
        for operation in operations {
            model.run(operation);
            model.compare();
        }
        for (address, layout) in std::mem::take(&mut model.live) {
            model.heap.free(address, layout).unwrap();
        }
        assert_all_back(&mut model.heap, &model.memory);
    }
}
