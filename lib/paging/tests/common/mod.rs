//! A machine for page tables to lie in: memory, and harts whose caches forget nothing until they are told.
//!
//! Nothing here uses the crate's own reading of entries: bits are taken apart as the privileged spec says.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use paging::{FrameNumber, TableMemory, VirtualAddress};
use proptest::prelude::ProptestConfig;

pub const PAGE: usize = 4096;
pub const MEGAPAGE: usize = 512 * PAGE;
pub const GIGAPAGE: usize = 512 * MEGAPAGE;
/// Bytes that Sv39 translates. Positions count them from 0, without the gap in the middle.
pub const SPACE: usize = 1 << 39;

/// The first frame that is given out for a table.
const FIRST_FRAME: usize = 0x100;

/// Where freed frames lead when harts still take them for tables.
pub const POISON_FRAME: usize = 0x7f << 18;
const POISON: usize = POISON_FRAME << 10 | 0b1100_0111;

pub fn span(level: usize) -> usize {
    [PAGE, MEGAPAGE, GIGAPAGE][level]
}

/// As many cases as proptest's default, or `PROPTEST_CASES`, divided by the cost of one.
pub fn cases_divided_by(cost: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = (default.cases / cost).max(1);
    // Failures are kept as tests with a name, not as seeds in a file.
    ProptestConfig { cases, failure_persistence: None, ..default }
}

/// The canonical address of a position.
pub fn address(position: usize) -> VirtualAddress {
    let upper = if position >= SPACE / 2 { !(SPACE - 1) } else { 0 };
    VirtualAddress::new(upper | position).unwrap()
}

/// There is no frame left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoFrame;

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("no frame is free")
    }
}

/// What an access may find.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Found {
    Fault,
    Page { frame: usize, write: bool, execute: bool },
}

/// A page-table entry, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bits {
    Invalid,
    Pointer(usize),
    Leaf { frame: usize, write: bool, execute: bool },
}

/// Privileged spec 4.3.2, steps 3 and 4, and 4.4.1: everything reserved faults, and so does a leaf without A, or writable without D.
pub fn take_apart(bits: usize, level: usize) -> Bits {
    let bit = |n: usize| bits >> n & 1 == 1;
    let (read, write, execute, user, accessed, dirty) =
        (bit(1), bit(2), bit(3), bit(4), bit(6), bit(7));
    let frame = bits >> 10 & ((1 << 44) - 1);
    if !bit(0) || bits >> 54 != 0 || write && !read {
        return Bits::Invalid;
    }
    if !read && !execute {
        let reserved = user || accessed || dirty;
        return if reserved || level == 0 { Bits::Invalid } else { Bits::Pointer(frame) };
    }
    let aligned = (frame * PAGE).is_multiple_of(span(level));
    if !read || user || !accessed || write && !dirty || !aligned {
        return Bits::Invalid;
    }
    Bits::Leaf { frame, write, execute }
}

/// A hart's cache at its worst: every entry that a walk could have read since the last fence that reaches it.
#[derive(Clone, Default)]
struct Hart {
    /// Values that entries had, by table and index.
    stale: BTreeMap<(usize, usize), BTreeSet<usize>>,
    /// Frames that a walk can take for tables, each with the levels and positions at which it can.
    tables: BTreeMap<usize, BTreeSet<(usize, usize)>>,
}

#[derive(Default)]
struct Inner {
    /// Frames that ever were tables, from [`FIRST_FRAME`] on.
    memory: Vec<Vec<usize>>,
    free: Vec<usize>,
    budget: Option<usize>,
    root: Option<usize>,
    harts: Vec<Hart>,
}

/// Memory for tables, and harts.
pub struct Machine(RefCell<Inner>);

impl Machine {
    pub fn new() -> Machine {
        Machine(RefCell::default())
    }

    /// How many more frames can be allocated.
    pub fn set_budget(&self, frames: Option<usize>) {
        self.0.borrow_mut().budget = frames;
    }

    /// Frames that are allocated.
    pub fn used(&self) -> usize {
        let inner = self.0.borrow();
        inner.memory.len() - inner.free.len()
    }

    /// The content of all frames, and how many are allocated.
    pub fn snapshot(&self) -> (Vec<Vec<usize>>, usize) {
        let mut memory = self.0.borrow().memory.clone();
        // New frames that were given back again count as never used.
        while memory.last().is_some_and(|table| table.iter().all(|&bits| bits == POISON)) {
            memory.pop();
        }
        (memory, self.used())
    }

    /// The entry, as it is in memory.
    pub fn peek(&self, table: usize, index: usize) -> usize {
        self.0.borrow().memory[table - FIRST_FRAME][index]
    }

    /// Harts begin to use the page table at `root`, with empty caches.
    pub fn start(&self, root: FrameNumber, harts: usize) {
        let mut inner = self.0.borrow_mut();
        inner.root = Some(root.0);
        inner.harts = vec![Hart::default(); harts];
        for hart in 0..harts {
            inner.fence(hart, None);
        }
    }

    /// `sfence.vma` on a hart, with an address or without.
    pub fn fence(&self, hart: usize, position: Option<usize>) {
        self.0.borrow_mut().fence(hart, position);
    }

    /// What an access of the hart to the position may find, by whatever it has cached or reads afresh.
    pub fn outcomes(&self, hart: usize, position: usize) -> BTreeSet<Found> {
        let inner = self.0.borrow();
        let mut outcomes = BTreeSet::new();
        inner.walk(&inner.harts[hart].stale, inner.root.unwrap(), 2, position, &mut outcomes);
        outcomes
    }

    /// What a hart without a cache finds below a root.
    pub fn translate(&self, root: FrameNumber, position: usize) -> Found {
        let mut outcomes = BTreeSet::new();
        self.0.borrow().walk(&BTreeMap::new(), root.0, 2, position, &mut outcomes);
        outcomes.pop_first().unwrap()
    }
}

impl Inner {
    fn table(&self, frame: usize) -> Option<&Vec<usize>> {
        self.memory.get(frame.checked_sub(FIRST_FRAME)?)
    }

    fn write(&mut self, frame: usize, index: usize, bits: usize) {
        let old = std::mem::replace(&mut self.memory[frame - FIRST_FRAME][index], bits);
        if old == bits {
            return;
        }
        for hart in 0..self.harts.len() {
            if let Some(places) = self.harts[hart].tables.get(&frame).cloned() {
                self.harts[hart].stale.entry((frame, index)).or_default().insert(old);
                for (level, base) in places {
                    if let Bits::Pointer(next) = take_apart(bits, level) {
                        self.reach(hart, next, level - 1, base + index * span(level));
                    }
                }
            }
        }
    }

    /// A walk of the hart can come to this table: to all that it points to as well.
    fn reach(&mut self, hart: usize, frame: usize, level: usize, base: usize) {
        if !self.harts[hart].tables.entry(frame).or_default().insert((level, base)) {
            return;
        }
        let Some(table) = self.table(frame) else { return };
        let mut values: Vec<(usize, usize)> = table.iter().copied().enumerate().collect();
        for (&(_, index), stale) in self.harts[hart].stale.range((frame, 0)..(frame + 1, 0)) {
            values.extend(stale.iter().map(|&bits| (index, bits)));
        }
        for (index, bits) in values {
            if let Bits::Pointer(next) = take_apart(bits, level) {
                self.reach(hart, next, level - 1, base + index * span(level));
            }
        }
    }

    /// Privileged spec 4.2.1. Without an address everything is forgotten. With one, only entries of leaves for it: no pointer,
    /// nor, at the strictest, anything where a pointer stands now, because that is a change of an entry that is no leaf.
    fn fence(&mut self, hart: usize, position: Option<usize>) {
        let Some(position) = position else {
            self.harts[hart] = Hart::default();
            return self.reach(hart, self.root.unwrap(), 2, 0);
        };
        let Inner { memory, harts, .. } = self;
        let Hart { stale, tables } = &mut harts[hart];
        for (&(frame, index), values) in stale.iter_mut() {
            for &(level, base) in &tables[&frame] {
                let covers = (position - position % span(level)) == base + index * span(level);
                let pointer = |bits| matches!(take_apart(bits, level), Bits::Pointer(_));
                if covers && !pointer(memory[frame - FIRST_FRAME][index]) {
                    values.retain(|&bits| pointer(bits));
                }
            }
        }
    }

    /// Privileged spec 4.3.2, with every choice between memory and cache.
    fn walk(
        &self,
        stale: &BTreeMap<(usize, usize), BTreeSet<usize>>,
        frame: usize,
        level: usize,
        position: usize,
        outcomes: &mut BTreeSet<Found>,
    ) {
        let index = position / span(level) % 512;
        // What is no table holds whatever its owner likes.
        let now = self.table(frame).map_or(POISON, |table| table[index]);
        let cached = stale.get(&(frame, index)).into_iter().flatten().copied();
        for bits in cached.chain([now]) {
            match take_apart(bits, level) {
                Bits::Invalid => drop(outcomes.insert(Found::Fault)),
                Bits::Pointer(next) => self.walk(stale, next, level - 1, position, outcomes),
                Bits::Leaf { frame, write, execute } => {
                    let frame = frame + position % span(level) / PAGE;
                    outcomes.insert(Found::Page { frame, write, execute });
                }
            }
        }
    }
}

impl TableMemory for &Machine {
    type Error = NoFrame;

    fn read(&self, table: FrameNumber, index: usize) -> usize {
        self.peek(table.0, index)
    }

    fn write(&self, table: FrameNumber, index: usize, bits: usize) {
        let mut inner = self.0.borrow_mut();
        assert!(!inner.free.contains(&table.0), "a freed table is written: {table}");
        inner.write(table.0, index, bits);
    }

    fn allocate(&self) -> Result<FrameNumber, NoFrame> {
        let mut inner = self.0.borrow_mut();
        if let Some(left) = &mut inner.budget {
            *left = left.checked_sub(1).ok_or(NoFrame)?;
        }
        // The frame freed last comes first.
        let frame = inner.free.pop().unwrap_or_else(|| {
            inner.memory.push(vec![0; 512]);
            FIRST_FRAME + inner.memory.len() - 1
        });
        for index in 0..512 {
            inner.write(frame, index, 0);
        }
        Ok(FrameNumber(frame))
    }

    fn free(&self, table: FrameNumber) {
        let mut inner = self.0.borrow_mut();
        let content = inner.table(table.0).unwrap();
        assert!(content.iter().all(|&bits| bits == 0), "{table} is not empty");
        assert!(!inner.free.contains(&table.0), "{table} is freed twice");
        inner.free.push(table.0);
        // Its next owner writes what he likes.
        for index in 0..512 {
            inner.write(table.0, index, POISON);
        }
        if let Some(left) = &mut inner.budget {
            *left += 1;
        }
    }
}

/// Positions at which ranges may begin and end: around the edges of pages, megapages and gigapages, at both ends of both halves.
pub fn points() -> Vec<usize> {
    let mut points = BTreeSet::new();
    for base in [0, SPACE / 2 - 2 * GIGAPAGE, SPACE / 2, SPACE - 2 * GIGAPAGE] {
        for (gigapages, megapages, pages) in [
            (0, 0, 0),
            (0, 0, 1),
            (0, 0, 4),
            (0, 0, 511),
            (0, 1, 0),
            (0, 1, 1),
            (0, 2, 0),
            (0, 511, 0),
            (0, 511, 511),
            (1, 0, 0),
            (1, 0, 1),
            (1, 1, 0),
            (1, 1, 3),
            (1, 510, 0),
            (1, 511, 511),
            (2, 0, 0),
        ] {
            points.insert(base + gigapages * GIGAPAGE + megapages * MEGAPAGE + pages * PAGE);
        }
    }
    points.into_iter().collect()
}
