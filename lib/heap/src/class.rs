//! Classes: all blocks of one size.
//!
//! A [`Class`] keeps a ring of the pages that may have free blocks. Only its current page may be empty: any other goes back to the frames.

use core::alloc::Layout;
use core::iter::successors;
use core::num::NonZero;

use crate::ledger::{Books, HALF, Half, Page};
use crate::{LARGEST, PAGE, SMALLEST, Usage};

/// Seven sizes, and last the blocks of whole pages.
pub(crate) const CLASSES: usize = WHOLE_PAGES + 1;
/// The class of the blocks of whole pages.
pub(crate) const WHOLE_PAGES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;

/// The offset of the last byte that a layout needs, as far as its highest bit goes: a block of a power of two that is larger
/// has both the size and the alignment.
#[inline]
pub(crate) fn reach(layout: Layout) -> usize {
    // Size 0 wraps, and gets a page: nobody asks for it.
    layout.size().wrapping_sub(1) | (layout.align() - 1)
}

/// The class that serves a layout.
#[inline]
pub(crate) fn class_of(layout: Layout) -> usize {
    /// By reach, in units of the smallest block; the last for all that reach further.
    static CLASS_OF: [u8; LARGEST / SMALLEST + 1] = {
        let mut table = [0; LARGEST / SMALLEST + 1];
        let mut unit = 1;
        while unit < table.len() {
            table[unit] = unit.ilog2() as u8 + 1;
            unit += 1;
        }
        table
    };
    usize::from(CLASS_OF[(reach(layout) / SMALLEST).min(CLASS_OF.len() - 1)]) % CLASSES
}

/// The blocks of one size, and the pages that they are in.
///
/// The pages that may have free blocks form a ring. The class allocates from the first of them, the current one, which alone
/// may be empty, or full; a full one leaves the ring when the class turns to the next, and is parked until one of its blocks
/// is freed.
pub(crate) struct Class {
    /// The half of the first page that blocks come from.
    current: Option<&'static Half>,
    /// The first address of that half.
    base: usize,
    /// The bits at which blocks begin; none for blocks of whole pages.
    starts: u64,
    pub first: Option<Page>,
    /// Times that frames were taken together, less those given back: for blocks of whole pages, the blocks.
    grants: usize,
    pages: usize,
    most_pages: usize,
}

impl Class {
    pub const fn new(class: usize) -> Class {
        let mut starts = 0;
        let mut start = if class == WHOLE_PAGES { u64::BITS } else { 0 };
        while start < u64::BITS {
            starts |= 1 << start;
            start += 1 << class;
        }
        Class { current: None, base: 0, starts, first: None, grants: 0, pages: 0, most_pages: 0 }
    }

    /// A free block of the current half, now in use.
    #[inline]
    pub fn take(&mut self) -> Option<NonZero<usize>> {
        let half = self.current?;
        let used = half.used();
        let free = self.starts & !used;
        if free == 0 {
            return None;
        }
        let lowest = free & free.wrapping_neg();
        half.set_used(used ^ lowest);
        NonZero::new(self.base.wrapping_add(lowest.trailing_zeros() as usize * SMALLEST))
    }

    /// Turns to a half that has free blocks. False if there is none.
    pub fn turn(&mut self, books: &Books) -> bool {
        while let Some(first) = self.first {
            if let Some(half) = first.halves.iter().position(|half| self.starts & !half.used() != 0)
            {
                first.set_current(true);
                self.current = Some(&first.halves[half]);
                self.base = books.address(first) + half * HALF;
                return true;
            }
            self.remove(first, books);
            first.set_parked(true);
        }
        false
    }

    /// Adds a page to the ring, as the last.
    pub fn insert(&mut self, page: Page, books: &Books) {
        let first = *self.first.get_or_insert(page);
        let last = if first == page { page } else { books.neighbours(first)[1] };
        last.join(page);
        page.join(first);
    }

    /// Takes a page out of the ring.
    pub fn remove(&mut self, page: Page, books: &Books) {
        let [next, previous] = books.neighbours(page);
        previous.join(next);
        if self.first == Some(page) {
            self.first = Some(next).filter(|next| *next != page);
            self.current = None;
            page.set_current(false);
        }
    }

    /// Puts a parked page back into the ring.
    pub fn unpark(&mut self, page: Page, books: &Books) {
        page.set_parked(false);
        self.insert(page, books);
    }

    /// Counts frames that were taken together.
    pub fn count(&mut self, frames: usize) {
        self.grants += 1;
        self.pages += frames;
        self.most_pages = self.most_pages.max(self.pages);
    }

    /// Counts frames that were given back together.
    pub fn discount(&mut self, frames: usize) {
        self.grants -= 1;
        self.pages -= frames;
    }

    /// What the class uses now.
    pub fn usage(&self, block_size: usize, books: &Books) -> Usage {
        let per_page = PAGE / block_size;
        let next =
            |page: &Page| Some(books.neighbours(*page)[0]).filter(|next| Some(*next) != self.first);
        let free: usize = successors(self.first, next).map(|page| per_page - page.in_use()).sum();
        let blocks = self.grants * per_page - free;
        Usage { block_size, blocks, pages: self.pages, most_pages: self.most_pages }
    }
}
