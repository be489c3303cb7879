//! The kernel heap's logic: blocks of seven sizes in pages, contiguous frames for more, and frees that are checked exactly.
//!
//! * [`Heap`]: [`allocate`](Heap::allocate) and [`free`](Heap::free), for every `Layout`.
//! * [`Frames`]: where its memory comes from and goes back to.
//! * [`Ledger`]: a frame of its book-keeping; [`Region`]: what finds the ledger of an address.
//!
//! **What is kept where.** Nothing about a block is written into its page: the heap neither reads nor writes the memory that
//! it hands out, so no payload can fake a block and no overflow reaches the books. An address leads to its [`Region`] (512
//! KiB), that to a ledger, if the heap has pages there, and the ledger says of each page what it holds and of each 32 bytes
//! whether a block *that is in use* begins there. A free looks up that one bit, so a wild pointer, one into the middle of a
//! block, and one that was freed before are the same to it: the bit is not set.
//!
//! **What it costs.** A ledger describes 128 pages: 0.8 % of them, and nothing where the heap has no pages. Regions take 16
//! bytes for 512 KiB of the machine's memory: one frame for 128 MiB. Blocks begin at multiples of their size, with no header
//! in the way, which keeps every alignment up to a page. Sizes are powers of two: steps between would save 2 to 5 % of the
//! memory where requests are spread to 2,048 bytes (10 % where all are small), for a division on each free.
//!
//! **Locking.** None here: the caller holds a lock, and `&mut self` says so. What a class's fast path touches (its page, and
//! that page's bits) is apart from what is shared (rings, directory, frames), so that each hart can have pages of its own later;
//! a free from another hart is then an `amoand` on the word of bits.
#![no_std]
#![forbid(unsafe_code)]

mod class;
mod error;
mod ledger;

use core::alloc::Layout;
use core::num::NonZero;
use core::ops::Range;

use class::{CLASSES, Class, WHOLE_PAGES, class_of};
pub use error::{FreeError, Problem};
use ledger::{Books, Page, bit};
pub use ledger::{Ledger, REGION, Region};

/// Bytes in a page and in a frame.
pub const PAGE: usize = 4096;
/// The smallest block, in bytes.
pub const SMALLEST: usize = 32;
/// The largest block that shares a page, in bytes.
pub const LARGEST: usize = 2048;

/// Where the heap's memory comes from. Addresses are those at which the kernel reaches the frames.
pub trait Frames {
    /// Takes `count` frames in a row (any number that a layout can ask for), the first at a multiple of `alignment` bytes (a
    /// power of two, a page at least), and gives the address of the first; nothing where there are none.
    fn allocate(&mut self, count: usize, alignment: usize) -> Option<usize>;

    /// Takes frames back: exactly what one `allocate` gave.
    fn free(&mut self, address: usize, count: usize);

    /// Takes a frame for a ledger, every byte of it zero.
    fn allocate_ledger(&mut self) -> Option<&'static Ledger>;

    /// Takes the frame of a ledger back. The heap has kept no reference to it.
    fn free_ledger(&mut self, ledger: &'static Ledger);
}

/// What the blocks of one size use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Bytes in a block; for those of whole pages, in the smallest.
    pub block_size: usize,
    /// Blocks in use.
    pub blocks: usize,
    /// Pages held for them.
    pub pages: usize,
    /// The most pages ever held at a time.
    pub most_pages: usize,
}

/// A block that the heap has, in use or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its first address.
    pub start: usize,
    /// Bytes.
    pub size: usize,
    /// Whether somebody has it.
    pub in_use: bool,
}

/// Bytes in the block that a layout gets.
pub fn block_size(layout: Layout) -> usize {
    match class_of(layout) {
        WHOLE_PAGES => layout.size().div_ceil(PAGE).max(1) * PAGE,
        class => SMALLEST << class,
    }
}

/// The heap.
pub struct Heap<F> {
    books: Books,
    classes: [Class; CLASSES],
    failures: usize,
    frames: F,
}

impl<F: Frames> Heap<F> {
    /// A heap that has no memory yet: every request fails.
    pub const fn new(frames: F) -> Self {
        let mut classes = [const { Class::new(0) }; CLASSES];
        let mut class = 1;
        while class < CLASSES {
            classes[class] = Class::new(class);
            class += 1;
        }
        Heap { books: Books::new(0, &mut []), classes, failures: 0, frames }
    }

    /// Gives the heap its directory, for the range of whole pages in which all its frames will lie: an entry for each
    /// [`REGION`] bytes of it, the last one perhaps in part, and each [`Region::EMPTY`]. Once, before the first request.
    pub fn begin(&mut self, memory: Range<usize>, directory: &'static mut [Region]) {
        assert!(directory.len() >= memory.len().div_ceil(REGION), "the directory spans the memory");
        self.books = Books::new(memory.start, directory);
    }

    /// Gives the address of a block that has the size and the alignment asked for. What is in it is left from before.
    ///
    /// Nothing where there are no frames, nor any to be had by giving back what the heap has kept.
    #[inline(always)]
    pub fn allocate(&mut self, layout: Layout) -> Option<NonZero<usize>> {
        match self.classes[class_of(layout)].take() {
            None => self.allocate_slowly(layout),
            address => address,
        }
    }

    /// Takes back a block that [`allocate`](Heap::allocate) gave for a layout of this [`block_size`]. The memory that
    /// `address` points to is never touched.
    ///
    /// # Errors
    /// Any other address or layout, exactly. Nothing has changed then.
    #[inline(always)]
    pub fn free(&mut self, address: usize, layout: Layout) -> Result<(), FreeError> {
        let Some(half) = self.books.half(address) else {
            return self.free_slowly(address, layout);
        };
        let used = half.used();
        let left = used & !bit(address);
        // Only where a block begins can a bit be set.
        let is_in_use = address.is_multiple_of(SMALLEST) && left != used;
        if !(is_in_use && half.fits(layout)) {
            return self.free_slowly(address, layout);
        }
        half.set_used(left);
        if left == 0 && !half.is_current() {
            return self.settle(address, layout);
        }
        Ok(())
    }

    /// The block that an address is in, for reports; of one of whole pages, the first page only.
    pub fn find(&self, address: usize) -> Option<Block> {
        let page = self.books.page(address).filter(|page| page.block_size() != 0)?;
        let size = page.block_size();
        let start = address - address % size.min(PAGE);
        let in_use = size > LARGEST || page.half(start).used() & bit(start) != 0;
        Some(Block { start, size, in_use })
    }

    /// Gives back what is kept without need: an empty page of each class.
    pub fn trim(&mut self) {
        for class in 0..WHOLE_PAGES {
            if let Some(page) = self.classes[class].first.filter(|page| page.in_use() == 0) {
                self.classes[class].remove(page, &self.books);
                self.close(class, page);
            }
        }
    }

    /// Shows each class's usage, that of the blocks of whole pages last. Visits every page that is partly used.
    pub fn for_each_class(&self, mut show: impl FnMut(Usage)) {
        for (index, class) in self.classes.iter().enumerate() {
            show(class.usage(SMALLEST << index, &self.books));
        }
    }

    /// Frames held for the heap's own books.
    pub fn ledgers(&self) -> usize {
        self.books.ledgers
    }

    /// Requests that failed.
    pub fn failures(&self) -> usize {
        self.failures
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&mut self, layout: Layout) -> Option<NonZero<usize>> {
        if let Some(address) = self.allocate_from_frames(layout) {
            return Some(address);
        }
        self.trim();
        let address = self.allocate_from_frames(layout);
        self.failures += usize::from(address.is_none());
        address
    }

    fn allocate_from_frames(&mut self, layout: Layout) -> Option<NonZero<usize>> {
        let class = class_of(layout);
        if class == WHOLE_PAGES {
            let page = self.open(class, layout)?;
            return NonZero::new(self.books.address(page));
        }
        if !self.classes[class].turn(&self.books) {
            let page = self.open(class, layout)?;
            self.classes[class].insert(page, &self.books);
            self.classes[class].turn(&self.books);
        }
        self.classes[class].take()
    }

    /// Takes frames and enters the first into the books, or does neither.
    fn open(&mut self, class: usize, layout: Layout) -> Option<Page> {
        let size = block_size(layout);
        let count = size.div_ceil(PAGE);
        let address = self.frames.allocate(count, layout.align().max(PAGE))?;
        let Some(page) = self.books.open(address, &mut self.frames) else {
            self.frames.free(address, count);
            return None;
        };
        page.begin(size);
        self.classes[class].count(count);
        Some(page)
    }

    /// The other way round.
    fn close(&mut self, class: usize, page: Page) {
        let count = page.block_size().div_ceil(PAGE);
        self.classes[class].discount(count);
        self.books.close(page, &mut self.frames);
        self.frames.free(self.books.address(page), count);
    }

    /// After a free that left half a page empty: gives the page back, if the other half is empty too.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, address: usize, layout: Layout) -> Result<(), FreeError> {
        if let Some(page) = self.books.page(address).filter(|page| page.in_use() == 0) {
            let class = class_of(layout);
            self.classes[class].remove(page, &self.books);
            self.close(class, page);
        }
        Ok(())
    }

    /// Frees whole pages, or a block in a page that is parked; or says why there is nothing to free.
    #[cold]
    #[inline(never)]
    fn free_slowly(&mut self, address: usize, layout: Layout) -> Result<(), FreeError> {
        let (page, block) = match (self.books.page(address), self.find(address)) {
            (Some(page), Some(block)) => (page, block),
            _ => return Err(FreeError { address, problem: Problem::Foreign }),
        };
        let problem = match class_of(layout) {
            _ if block.start != address => Problem::Inside,
            _ if !block.in_use => Problem::AlreadyFree,
            _ if block.size != block_size(layout) => Problem::WrongLayout,
            WHOLE_PAGES => {
                self.close(WHOLE_PAGES, page);
                return Ok(());
            }
            class => {
                // The page was full, of two blocks at least: it is not empty now.
                let half = page.half(address);
                half.set_used(half.used() & !bit(address));
                self.classes[class].unpark(page, &self.books);
                return Ok(());
            }
        };
        Err(FreeError { address, problem })
    }
}
