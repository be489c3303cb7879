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
//! in the way, which keeps every alignment up to a page.
//!
//! **Locking.** None here: the caller holds a lock, and `&mut self` says so. What a class's fast path touches (its page, and
//! that page's bits) is apart from what is shared (lists, ledgers, frames), so that each hart can have pages of its own later;
//! a free from another hart is then an `amoand` on the word of bits.
#![no_std]
#![forbid(unsafe_code)]

mod class;
mod error;
mod ledger;
mod size;

use core::alloc::Layout;
use core::ops::Range;

use class::Class;
pub use error::{FreeError, OutOfMemory, Problem};
use ledger::{Books, Kind, Page, bit};
pub use ledger::{Ledger, Region};
pub use size::{LARGEST, SMALLEST};
use size::{Positions, Size};

/// Bytes in a page and in a frame.
pub const PAGE: usize = 4096;

/// Where the heap's memory comes from. Addresses are those at which the kernel reaches the frames.
pub trait Frames {
    /// Takes `count` frames in a row, the first at a multiple of `alignment` bytes (a power of two, a page at least), and
    /// gives the address of the first; nothing where there are none.
    fn allocate(&mut self, count: usize, alignment: usize) -> Option<usize>;

    /// Takes frames back: exactly what one `allocate` gave.
    fn free(&mut self, address: usize, count: usize);

    /// Takes a frame for a ledger, every byte of it zero.
    fn allocate_ledger(&mut self) -> Option<&'static Ledger>;

    /// Takes the frame of a ledger back. The heap has kept no reference to it.
    fn free_ledger(&mut self, ledger: &'static Ledger);
}

/// The heap.
#[repr(C)]
pub struct Heap<F> {
    positions: Positions,
    books: Books,
    classes: [Class; Size::ALL.len()],
    runs: Usage,
    failures: usize,
    frames: F,
}

/// What the blocks of one size use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Bytes in a block; 0 for those of whole pages.
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
    Kind::of(layout).block_size()
}

impl<F: Frames> Heap<F> {
    /// A heap that has no memory yet: every request fails.
    pub const fn new(frames: F) -> Self {
        let mut classes = [const { Class::new(Size::Bytes32) }; Size::ALL.len()];
        let mut index = 0;
        while index < classes.len() {
            classes[index] = Class::new(Size::ALL[index]);
            index += 1;
        }
        let runs = Usage { block_size: 0, blocks: 0, pages: 0, most_pages: 0 };
        Heap {
            positions: Positions::new(),
            books: Books::new(),
            classes,
            runs,
            failures: 0,
            frames,
        }
    }

    /// How many entries the directory for a range of memory has.
    pub const fn regions(memory: &Range<usize>) -> usize {
        Books::regions(memory)
    }

    /// Gives the heap its directory: [`regions`](Heap::regions) entries, each [`Region::EMPTY`], for the range in which all
    /// its frames will lie. Once, before the first request.
    pub fn begin(&mut self, memory: Range<usize>, directory: &'static mut [Region]) {
        self.books.begin(memory, directory);
    }

    /// Gives the address of a block that has the size and the alignment asked for. What is in it is left from before.
    ///
    /// # Errors
    /// No frames, nor any to be had by giving back what the heap had kept. Nothing else has changed then.
    #[inline]
    pub fn allocate(&mut self, layout: Layout) -> Result<usize, OutOfMemory> {
        if let Some(size) = Size::of(layout)
            && let Some(address) = self.classes[size as usize].take(&self.positions)
        {
            return Ok(address);
        }
        self.allocate_slowly(layout)
    }

    /// Takes back a block that [`allocate`](Heap::allocate) gave for this layout, or for one of the same [`block_size`] and,
    /// where that is of whole pages, the same alignment. The memory that `address` points to is never touched.
    ///
    /// # Errors
    /// Any other address or layout, exactly. Nothing has changed then.
    #[inline]
    pub fn free(&mut self, address: usize, layout: Layout) -> Result<(), FreeError> {
        let Some(half) = self.books.half(address) else {
            return self.free_slowly(address, layout);
        };
        let used = half.used();
        let left = used & !bit(address);
        // Whether a block begins there: nothing else has a bit that is set.
        let is_block = address.is_multiple_of(SMALLEST) && left != used;
        if !(is_block && size::fits(half.open_shift(), layout)) {
            return self.free_slowly(address, layout);
        }
        half.set_used(left);
        if left == 0 {
            return self.settle(address);
        }
        Ok(())
    }

    /// The block that has an address in it, in use or free: for reports.
    pub fn find(&self, address: usize) -> Option<Block> {
        self.look_up(address).map(|(_, _, block)| block)
    }

    /// Gives back all that is kept without need: an empty page of each class, and a ledger.
    pub fn trim(&mut self) {
        for size in Size::ALL {
            if let Some(page) = self.classes[size as usize].leave_if_empty() {
                self.close(page, 1);
            }
        }
        self.books.trim(&mut self.frames);
    }

    /// Shows each class's usage, then that of the blocks of whole pages. Counts the bits of all pages that are partly used.
    pub fn for_each_class(&self, mut show: impl FnMut(Usage)) {
        Size::ALL
            .into_iter()
            .for_each(|size| show(self.classes[size as usize].usage(size, &self.books)));
        show(self.runs);
    }

    /// Frames held for the heap's own books.
    pub fn ledgers(&self) -> usize {
        self.books.ledgers
    }

    /// Requests that failed.
    pub fn failures(&self) -> usize {
        self.failures
    }

    fn look_up(&self, address: usize) -> Option<(Page, Kind, Block)> {
        let (page, kind) = self.books.nearest(address)?;
        let first = self.books.address(page);
        let (start, in_use) = match kind {
            Kind::Blocks(size) => {
                let start = address / size.bytes() * size.bytes();
                (start, page.uses(start))
            }
            Kind::Run(_) => (first, true),
        };
        let size = kind.block_size();
        (address - first < size.max(PAGE)).then_some((page, kind, Block { start, size, in_use }))
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&mut self, layout: Layout) -> Result<usize, OutOfMemory> {
        if let Some(address) = self.allocate_from_frames(layout) {
            return Ok(address);
        }
        self.trim();
        self.allocate_from_frames(layout).ok_or_else(|| {
            self.failures += 1;
            OutOfMemory { block_size: block_size(layout) }
        })
    }

    fn allocate_from_frames(&mut self, layout: Layout) -> Option<usize> {
        match Kind::of(layout) {
            Kind::Blocks(size) => {
                let class = &mut self.classes[size as usize];
                if !class.turn(&self.books) {
                    let page = self.open(1, PAGE)?;
                    page.begin_blocks(size);
                    self.classes[size as usize].add(page, &self.books);
                }
                self.classes[size as usize].take(&self.positions)
            }
            Kind::Run(run) => {
                let page = self.open(run.frames, run.alignment)?;
                page.begin_run(run);
                self.runs.blocks += 1;
                self.runs.pages += run.frames;
                self.runs.most_pages = self.runs.most_pages.max(self.runs.pages);
                Some(self.books.address(page))
            }
        }
    }

    /// Takes frames and enters the first into the books, or does neither.
    fn open(&mut self, count: usize, alignment: usize) -> Option<Page> {
        let address = self.frames.allocate(count, alignment)?;
        let page = self.books.open(address, &mut self.frames);
        if page.is_none() {
            self.frames.free(address, count);
        }
        page
    }

    /// The other way round.
    fn close(&mut self, page: Page, count: usize) {
        self.books.close(page, &mut self.frames);
        self.frames.free(self.books.address(page), count);
    }

    /// Gives a page back, if a free that left half of it empty has left it all empty.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, address: usize) -> Result<(), FreeError> {
        if let Some(page) = self.books.page(address)
            && let Some(Kind::Blocks(size)) = page.kind()
            && self.classes[size as usize].drop_if_empty(page, &self.books)
        {
            self.close(page, 1);
        }
        Ok(())
    }

    /// Frees whole pages, or a block in a page that is parked; or says why there is nothing to free.
    #[cold]
    #[inline(never)]
    fn free_slowly(&mut self, address: usize, layout: Layout) -> Result<(), FreeError> {
        let refused = |problem| Err(FreeError { address, problem });
        let (page, kind, _) = match self.look_up(address) {
            None => return refused(Problem::Foreign),
            Some((_, _, block)) if block.start != address => return refused(Problem::Inside),
            Some((_, _, block)) if !block.in_use => return refused(Problem::AlreadyFree),
            Some((_, kind, _)) if kind != Kind::of(layout) => return refused(Problem::WrongLayout),
            Some(found) => found,
        };
        match kind {
            Kind::Blocks(size) => {
                // The page was full and has two blocks at least: it is not empty now.
                page.release(address);
                self.classes[size as usize].list(page, &self.books);
            }
            Kind::Run(run) => {
                self.runs.blocks -= 1;
                self.runs.pages -= run.frames;
                self.close(page, run.frames);
            }
        }
        Ok(())
    }
}
