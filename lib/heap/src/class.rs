//! A class: all blocks of one size.

use crate::Usage;
use crate::ledger::{Books, HALF, Half, List, Page};
use crate::size::{Positions, SMALLEST, Size};

/// The half that a class without a page allocates from: it has nothing.
static NOTHING: Half = Half::new(u64::MAX);

/// The blocks of one size, and the pages that they are in.
///
/// A page of a class is in one of three places: it is the one that the class allocates from (`page`), or it has free blocks
/// and is `listed`, or it was full when the class left it, and is parked: on no list, and marked so. Only the first may be empty.
pub(crate) struct Class {
    /// The half of `page` that blocks come from.
    current: &'static Half,
    /// The first address of that half.
    base: usize,
    /// The bits of a half at which blocks begin.
    starts: u64,
    page: Option<Page>,
    listed: List,
    pages: usize,
    most_pages: usize,
}

impl Class {
    pub const fn new(size: Size) -> Class {
        let mut starts = 0;
        let mut start = 0;
        while start < u64::BITS {
            starts |= 1 << start;
            start += (size.bytes() / SMALLEST) as u32;
        }
        Class {
            current: &NOTHING,
            base: 0,
            starts,
            page: None,
            listed: List::EMPTY,
            pages: 0,
            most_pages: 0,
        }
    }

    /// A free block of the current half, now in use.
    #[inline]
    pub fn take(&mut self, positions: &Positions) -> Option<usize> {
        let used = self.current.used();
        let free = self.starts & !used;
        if free == 0 {
            return None;
        }
        let lowest = free & free.wrapping_neg();
        self.current.set_used(used ^ lowest);
        Some(self.base.wrapping_add(positions.of(lowest) * SMALLEST))
    }

    /// Turns to a half that has free blocks: the other one, or in a listed page. False if there is none.
    pub fn turn(&mut self, books: &Books) -> bool {
        self.page.is_some_and(|page| self.enter(page, books))
            || self.listed.pop(books).is_some_and(|page| self.enter(page, books))
    }

    /// Turns to a fresh page.
    pub fn add(&mut self, page: Page, books: &Books) {
        self.pages += 1;
        self.most_pages = self.most_pages.max(self.pages);
        self.enter(page, books);
    }

    /// Allocates from a page from now on, and parks the one before, which is full. False if the page has nothing free.
    fn enter(&mut self, page: Page, books: &Books) -> bool {
        let Some(half) = page.halves.iter().position(|half| self.starts & !half.used() != 0) else {
            return false;
        };
        self.current = &page.halves[half];
        self.base = books.address(page) + half * HALF;
        if let Some(full) = self.page.replace(page).filter(|&before| before != page) {
            full.set_parked(true);
        }
        true
    }

    /// Takes a page back that was parked.
    pub fn list(&mut self, page: Page, books: &Books) {
        page.set_parked(false);
        self.listed.push(page, books);
    }

    /// Lets go of a page, if that is empty and the class does not allocate from it. Whether it did.
    pub fn drop_if_empty(&mut self, page: Page, books: &Books) -> bool {
        let goes = page.in_use() == 0 && self.page != Some(page);
        if goes {
            self.listed.remove(page, books);
            self.pages -= 1;
        }
        goes
    }

    /// Lets go of the page that it allocates from, if that is empty.
    pub fn leave_if_empty(&mut self) -> Option<Page> {
        let page = self.page.take_if(|page| page.in_use() == 0)?;
        self.current = &NOTHING;
        self.pages -= 1;
        Some(page)
    }

    /// What the class uses now.
    pub fn usage(&self, size: Size, books: &Books) -> Usage {
        let not_full = self.listed.iter(books).chain(self.page);
        let free: usize = not_full.map(|page| size.blocks() - page.in_use()).sum();
        Usage {
            block_size: size.bytes(),
            blocks: self.pages * size.blocks() - free,
            pages: self.pages,
            most_pages: self.most_pages,
        }
    }
}
