//! The heap's books: what each page holds, and which blocks are in use.

use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::size::{SMALLEST, Size};
use crate::{Frames, PAGE};

/// Pages that one ledger describes.
const LEDGER_PAGES: usize = PAGE / size_of::<[Half; 2]>();
/// Bytes that one ledger describes.
const REGION: usize = LEDGER_PAGES * PAGE;
/// Bytes in half a page: as many as have their bits in one word.
pub(crate) const HALF: usize = SMALLEST * u64::BITS as usize;

/// A frame of book-keeping: what is in each of 128 pages. All zero: none of them is the heap's.
#[repr(C, align(4096))]
pub struct Ledger {
    halves: [Half; 2 * LEDGER_PAGES],
}

const _: () = assert!(size_of::<Ledger>() == PAGE && 2 * HALF == PAGE);

impl Ledger {
    /// A ledger of pages that are not the heap's: all zero.
    pub const fn new() -> Ledger {
        Ledger { halves: [const { Half::new(0) }; 2 * LEDGER_PAGES] }
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

/// What is in half a page.
///
/// Atomics, so that ledgers can be shared; relaxed, as the heap's lock orders them.
#[repr(C)]
pub(crate) struct Half {
    /// A bit for each 32 bytes: a block that is in use begins there. In the first page of a run, whose shift is 0, the first
    /// half has the number of frames here, the second the alignment.
    used: AtomicU64,
    /// The page's neighbour on its class's list, if it is on it: the next in the first half, the previous in the second.
    link: AtomicU32,
    /// [`Size::shift`] of the blocks; 0 where there are none.
    shift: AtomicU8,
    /// The same; but 0 while the page is parked, so that a free that would make room in it takes notice.
    open_shift: AtomicU8,
}

impl Half {
    pub const fn new(used: u64) -> Half {
        Half {
            used: AtomicU64::new(used),
            link: AtomicU32::new(0),
            shift: AtomicU8::new(0),
            open_shift: AtomicU8::new(0),
        }
    }

    /// The bits of the blocks in use.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    #[inline]
    pub fn set_used(&self, used: u64) {
        self.used.store(used, Relaxed);
    }

    /// What a layout must fit to be one of the blocks', unless the page is parked.
    #[inline]
    pub fn open_shift(&self) -> u8 {
        self.open_shift.load(Relaxed)
    }
}

/// A page that the heap has, or the first one of a run.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    number: PageNumber,
    pub halves: &'static [Half; 2],
}

impl PartialEq for Page {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// Pages from the beginning of the heap's memory.
type PageNumber = u32;

/// No page.
const NONE: PageNumber = PageNumber::MAX;

/// What a page holds, and what a layout needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blocks of a class.
    Blocks(Size),
    /// It is the first frame of one block.
    Run(Run),
}

/// The frames of a block larger than every class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub frames: usize,
    pub alignment: usize,
}

impl Kind {
    /// What a layout needs.
    pub fn of(layout: Layout) -> Kind {
        match Size::of(layout) {
            Some(size) => Kind::Blocks(size),
            None => {
                let frames = layout.size().div_ceil(PAGE).max(1);
                Kind::Run(Run { frames, alignment: layout.align().max(PAGE) })
            }
        }
    }

    /// Bytes in a block.
    pub fn block_size(self) -> usize {
        match self {
            Kind::Blocks(size) => size.bytes(),
            Kind::Run(run) => run.frames * PAGE,
        }
    }
}

/// The bit of a block in its half's word.
#[inline]
pub(crate) fn bit(address: usize) -> u64 {
    1 << (address / SMALLEST % u64::BITS as usize)
}

impl Page {
    /// What it holds, unless it is nobody's.
    pub fn kind(self) -> Option<Kind> {
        let [frames, alignment] = self.halves.each_ref().map(|half| half.used() as usize);
        let run = (frames != 0).then_some(Kind::Run(Run { frames, alignment }));
        self.size().map(Kind::Blocks).or(run)
    }

    /// The size of the blocks in it, if it has blocks.
    pub fn size(self) -> Option<Size> {
        Size::from_shift(self.halves[0].shift.load(Relaxed))
    }

    /// Makes it a page of free blocks, if it is nobody's.
    pub fn begin_blocks(self, size: Size) {
        for half in self.halves {
            half.shift.store(size.shift(), Relaxed);
        }
        self.set_parked(false);
    }

    /// Makes it the first page of a run, if it is nobody's.
    pub fn begin_run(self, run: Run) {
        self.halves[0].set_used(run.frames as u64);
        self.halves[1].set_used(run.alignment as u64);
    }

    /// Blocks in use.
    pub fn in_use(self) -> usize {
        self.halves.iter().map(|half| half.used().count_ones() as usize).sum()
    }

    /// Whether the block that begins at an address in it is in use.
    pub fn uses(self, start: usize) -> bool {
        self.half(start).used() & bit(start) != 0
    }

    /// The block that begins at an address in it is in use no more.
    pub fn release(self, start: usize) {
        let half = self.half(start);
        half.set_used(half.used() & !bit(start));
    }

    fn half(self, address: usize) -> &'static Half {
        &self.halves[address / HALF % 2]
    }

    /// Whether it has left its class's hands because it was full.
    pub fn set_parked(self, parked: bool) {
        for half in self.halves {
            let shift = if parked { 0 } else { half.shift.load(Relaxed) };
            half.open_shift.store(shift, Relaxed);
        }
    }

    fn next(self) -> &'static AtomicU32 {
        &self.halves[0].link
    }

    fn previous(self) -> &'static AtomicU32 {
        &self.halves[1].link
    }
}

/// What finds the ledger of an address: one entry for 512 KiB of memory.
#[derive(Clone, Copy)]
pub struct Region {
    ledger: Option<&'static Ledger>,
    /// Pages and runs that the ledger describes.
    pages: usize,
}

impl Region {
    /// A region without pages of the heap's.
    pub const EMPTY: Region = Region { ledger: None, pages: 0 };
}

/// The directory and what belongs to it.
pub(crate) struct Books {
    /// First address of the first region.
    base: usize,
    regions: &'static mut [Region],
    /// A ledger that was needed no more: kept for the next region, or a block that comes and goes alone would fetch and
    /// clear one each time. Only ledgers in which all is zero again are put here.
    spare: Option<&'static Ledger>,
    /// Ledgers held, the spare one among them.
    pub ledgers: usize,
}

impl Books {
    pub const fn new() -> Books {
        Books { base: 0, regions: &mut [], spare: None, ledgers: 0 }
    }

    pub const fn regions(memory: &Range<usize>) -> usize {
        memory.end.div_ceil(REGION) - memory.start / REGION
    }

    pub fn begin(&mut self, memory: Range<usize>, directory: &'static mut [Region]) {
        self.base = memory.start / REGION * REGION;
        self.regions = directory;
    }

    /// What the ledger says of the half page around an address, if there is one.
    #[inline]
    pub fn half(&self, address: usize) -> Option<&'static Half> {
        let offset = address.wrapping_sub(self.base);
        let ledger = self.regions.get(offset / REGION)?.ledger?;
        Some(&ledger.halves[offset / HALF % (2 * LEDGER_PAGES)])
    }

    /// What the ledger says of the page around an address, if there is one.
    pub fn page(&self, address: usize) -> Option<Page> {
        let offset = address.wrapping_sub(self.base);
        let ledger = self.regions.get(offset / REGION)?.ledger?;
        let halves = &ledger.halves.as_chunks().0[offset / PAGE % LEDGER_PAGES];
        Some(Page { number: (offset / PAGE) as PageNumber, halves })
    }

    /// First address of a page.
    pub fn address(&self, page: Page) -> usize {
        self.base + page.number as usize * PAGE
    }

    /// A page whose region has a ledger.
    fn listed(&self, number: PageNumber) -> Page {
        let page = self.page(self.base + number as usize * PAGE);
        page.expect("a page on a list is in a ledger")
    }

    /// The nearest page of the heap's, from an address downwards, and what it holds.
    pub fn nearest(&self, address: usize) -> Option<(Page, Kind)> {
        let last = address.checked_sub(self.base)? / PAGE;
        let regions = self.regions.get(..=last / LEDGER_PAGES)?;
        let described =
            regions.iter().enumerate().rev().filter(|(_, region)| region.ledger.is_some());
        described
            .flat_map(|(index, _)| (index * LEDGER_PAGES..(index + 1) * LEDGER_PAGES).rev())
            .filter(|&number| number <= last)
            .map(|number| self.listed(number as PageNumber))
            .find_map(|page| Some((page, page.kind()?)))
    }

    /// Enters a page into the ledger of its region, which is made if there is none. Nothing where no frame is left for it.
    pub fn open(&mut self, address: usize, frames: &mut impl Frames) -> Option<Page> {
        let region = self.regions.get_mut(address.wrapping_sub(self.base) / REGION)?;
        if region.ledger.is_none() {
            region.ledger = match self.spare.take() {
                Some(spare) => Some(spare),
                None => {
                    let fresh = frames.allocate_ledger()?;
                    self.ledgers += 1;
                    Some(fresh)
                }
            };
        }
        region.pages += 1;
        self.page(address)
    }

    /// Strikes a page out, with all that its halves say. The region's ledger goes with its last page.
    pub fn close(&mut self, page: Page, frames: &mut impl Frames) {
        for half in page.halves {
            half.used.store(0, Relaxed);
            half.link.store(0, Relaxed);
            half.shift.store(0, Relaxed);
            half.open_shift.store(0, Relaxed);
        }
        let region = &mut self.regions[page.number as usize / LEDGER_PAGES];
        region.pages -= 1;
        if region.pages == 0
            && let Some(second) = region.ledger.take().and_then(|ledger| self.spare.replace(ledger))
        {
            self.ledgers -= 1;
            frames.free_ledger(second);
        }
    }

    /// Gives the spare ledger back.
    pub fn trim(&mut self, frames: &mut impl Frames) {
        if let Some(spare) = self.spare.take() {
            self.ledgers -= 1;
            frames.free_ledger(spare);
        }
    }
}

/// Pages with free blocks, linked through their ledgers. Each operation takes the same time however many there are.
pub(crate) struct List {
    first: PageNumber,
}

impl List {
    pub const EMPTY: List = List { first: NONE };

    pub fn push(&mut self, page: Page, books: &Books) {
        page.next().store(self.first, Relaxed);
        page.previous().store(NONE, Relaxed);
        if self.first != NONE {
            books.listed(self.first).previous().store(page.number, Relaxed);
        }
        self.first = page.number;
    }

    pub fn remove(&mut self, page: Page, books: &Books) {
        let next = page.next().load(Relaxed);
        let previous = page.previous().load(Relaxed);
        if previous == NONE {
            self.first = next;
        } else {
            books.listed(previous).next().store(next, Relaxed);
        }
        if next != NONE {
            books.listed(next).previous().store(previous, Relaxed);
        }
    }

    pub fn pop(&mut self, books: &Books) -> Option<Page> {
        let first = self.iter(books).next()?;
        self.remove(first, books);
        Some(first)
    }

    pub fn iter(&self, books: &Books) -> impl Iterator<Item = Page> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let page = (next != NONE).then(|| books.listed(next))?;
            next = page.next().load(Relaxed);
            Some(page)
        })
    }
}
