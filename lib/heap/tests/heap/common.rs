//! Frames without memory behind them: the heap must not touch what it hands out.

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use heap::{Frames, FreeError, Heap, Ledger, PAGE, Problem, REGION, Region, Usage};

/// As the kernel reaches it; neither end is a multiple of a region's size.
pub const MEMORY: Range<usize> = 0xffff_ffc0_8013_5000..0xffff_ffc0_8413_5000;

/// The frames of [`MEMORY`], of which some may be out of reach.
#[derive(Default)]
pub struct Memory {
    /// Runs in use: first address and frames.
    pub runs: BTreeMap<usize, usize>,
    /// Ledgers in use.
    pub ledgers: usize,
    /// Frames that may be in use at most, ledgers included.
    pub limit: usize,
    /// How far from the last search's the next one begins, so that blocks come to lie in several regions.
    pub stride: usize,
    hint: usize,
    returned: Vec<&'static Ledger>,
}

impl Memory {
    pub fn in_use(&self) -> usize {
        self.runs.values().sum::<usize>() + self.ledgers
    }

    /// Whether all of a range is in one run.
    pub fn holds(&self, range: Range<usize>) -> bool {
        let below = self.runs.range(..=range.start).next_back();
        below.is_some_and(|(start, count)| range.end <= start + count * PAGE)
    }
}

/// What the heap in the tests takes its frames from, shared with the test.
#[derive(Clone)]
pub struct Source(pub Rc<RefCell<Memory>>);

impl Frames for Source {
    fn allocate(&mut self, count: usize, alignment: usize) -> Option<usize> {
        assert!(count > 0 && alignment >= PAGE && alignment.is_power_of_two());
        let mut memory = self.0.borrow_mut();
        if memory.in_use().checked_add(count)? > memory.limit || count > MEMORY.len() / PAGE {
            return None;
        }
        memory.hint = (memory.hint + memory.stride) % MEMORY.len();
        let first = MEMORY.start + memory.hint;
        let fits = |&start: &usize| {
            let end = start + count * PAGE;
            let below = memory.runs.range(..end).next_back();
            end <= MEMORY.end && below.is_none_or(|(run, frames)| run + frames * PAGE <= start)
        };
        let mut starts = (first..MEMORY.end).chain(MEMORY.start..first).step_by(PAGE);
        let start = starts.find(|start| start.is_multiple_of(alignment) && fits(start))?;
        memory.runs.insert(start, count);
        Some(start)
    }

    fn free(&mut self, address: usize, count: usize) {
        let freed = self.0.borrow_mut().runs.remove(&address);
        assert_eq!(freed, Some(count), "frames come back as they were taken: {address:#x}");
    }

    fn allocate_ledger(&mut self) -> Option<&'static Ledger> {
        let mut memory = self.0.borrow_mut();
        if memory.in_use() >= memory.limit {
            return None;
        }
        memory.ledgers += 1;
        // One that came back is given out as it is: the heap has left it as it got it.
        // SAFETY: a ledger may be all zero.
        let fresh = || Box::leak(unsafe { Box::<Ledger>::new_zeroed().assume_init() });
        Some(memory.returned.pop().unwrap_or_else(|| fresh()))
    }

    fn free_ledger(&mut self, ledger: &'static Ledger) {
        let mut memory = self.0.borrow_mut();
        assert!(!memory.returned.iter().any(|other| std::ptr::eq(*other, ledger)));
        memory.ledgers -= 1;
        memory.returned.push(ledger);
    }
}

/// A heap with `limit` frames, and its frames.
pub fn heap(limit: usize) -> (Heap<Source>, Rc<RefCell<Memory>>) {
    let memory = Rc::new(RefCell::new(Memory { limit, stride: 0x9_3000, ..Memory::default() }));
    let mut heap = Heap::new(Source(memory.clone()));
    let directory = vec![Region::EMPTY; MEMORY.len().div_ceil(REGION)];
    heap.begin(MEMORY, directory.leak());
    (heap, memory)
}

pub fn allocate(heap: &mut Heap<Source>, layout: Layout) -> Option<usize> {
    heap.allocate(layout).map(usize::from)
}

pub fn layout(size: usize, alignment: usize) -> Layout {
    Layout::from_size_align(size, alignment).unwrap()
}

/// The layout of a class's whole block.
pub fn whole(size: usize) -> Layout {
    layout(size, 1)
}

pub fn classes() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(heap::SMALLEST), |size| Some(size * 2))
        .take_while(|size| *size <= heap::LARGEST)
}

pub fn refused(address: usize, problem: Problem) -> Result<(), FreeError> {
    Err(FreeError { address, problem })
}

/// Usage by class, in the order shown.
pub fn usages(heap: &Heap<Source>) -> Vec<Usage> {
    let mut usages = Vec::new();
    heap.for_each_class(|usage| usages.push(usage));
    usages
}

/// All blocks are free: nothing is kept after a trim.
pub fn assert_all_back(heap: &mut Heap<Source>, memory: &RefCell<Memory>) {
    heap.trim();
    for usage in usages(heap) {
        assert_eq!((usage.blocks, usage.pages), (0, 0), "{usage:?}");
    }
    assert_eq!(heap.ledgers(), 0);
    assert_eq!(memory.borrow().in_use(), 0);
}
