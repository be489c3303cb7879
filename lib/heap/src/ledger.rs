//! The heap's books: what each page holds, and which blocks are in use.

use core::alloc::Layout;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::class::reach;
use crate::{Frames, LARGEST, PAGE, SMALLEST};

/// Bytes in half a page: as many as have their bits in one word.
pub(crate) const HALF: usize = SMALLEST * u64::BITS as usize;
/// Half pages that one ledger describes.
const HALVES: usize = PAGE / size_of::<Half>();
/// Bytes of memory that one ledger describes.
pub const REGION: usize = HALVES * HALF;

/// A frame of book-keeping: what is in each of 128 pages. Its bytes may be all zero, which says that none of them is the heap's.
#[repr(C, align(4096))]
pub struct Ledger {
    halves: [Half; HALVES],
}

const _: () = assert!(size_of::<Ledger>() == PAGE && 2 * HALF == PAGE);

/// What is in half a page.
///
/// Atomics, so that ledgers can be shared; relaxed, as the heap's lock orders them.
#[repr(C)]
pub(crate) struct Half {
    /// A bit for each 32 bytes: a block that is in use begins there. In the first half of a run, whose shift is 0, the
    /// number of its frames.
    used: AtomicU64,
    /// The page's neighbour in its class's ring: the next in the first half, the previous in the second.
    neighbour: AtomicU32,
    /// How often 2 must be doubled to give the blocks' size; 0 where there are none.
    shift: AtomicU8,
    /// The same; but 0 while the page is parked, so that a free that would make room in it takes notice.
    open_shift: AtomicU8,
    /// Its class allocates from the page, which stays even when it gets empty.
    is_current: AtomicBool,
}

impl Half {
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    #[inline]
    pub fn set_used(&self, used: u64) {
        self.used.store(used, Relaxed);
    }

    #[inline]
    pub fn is_current(&self) -> bool {
        self.is_current.load(Relaxed)
    }

    /// Whether its blocks are those that a layout gets, and its page is not parked.
    #[inline]
    pub fn fits(&self, layout: Layout) -> bool {
        // The smallest blocks serve all below them too. With 0 for a shift, what is left is never 1.
        let reach = reach(layout) | (SMALLEST / 2);
        reach.wrapping_shr(u32::from(self.open_shift.load(Relaxed))) == 1
    }
}

/// The bit of the block at an address in its half's word.
#[inline]
pub(crate) fn bit(address: usize) -> u64 {
    1 << (address / SMALLEST % u64::BITS as usize)
}

/// A page that is in a ledger, by its number from the beginning of the heap's memory.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    number: u32,
    pub halves: &'static [Half; 2],
}

impl PartialEq for Page {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Page {
    /// Bytes in the blocks that it holds, or in the one that begins with it; 0 if it is not the heap's.
    pub fn block_size(self) -> usize {
        match self.halves[0].shift.load(Relaxed) {
            0 => self.halves[0].used() as usize * PAGE,
            shift => 2 << shift,
        }
    }

    /// The half that an address in it is in.
    pub fn half(self, address: usize) -> &'static Half {
        &self.halves[address / HALF % 2]
    }

    /// Makes it hold free blocks, or begin one of whole pages.
    pub fn begin(self, block_size: usize) {
        if block_size > LARGEST {
            self.halves[0].set_used((block_size / PAGE) as u64);
        } else {
            for half in self.halves {
                half.shift.store((block_size / 2).ilog2() as u8, Relaxed);
            }
            self.set_parked(false);
        }
    }

    /// Whether it has left its class's ring because it was full.
    pub fn set_parked(self, parked: bool) {
        for half in self.halves {
            let shift = if parked { 0 } else { half.shift.load(Relaxed) };
            half.open_shift.store(shift, Relaxed);
        }
    }

    /// Whether its class allocates from it.
    pub fn set_current(self, is_current: bool) {
        for half in self.halves {
            half.is_current.store(is_current, Relaxed);
        }
    }

    /// Blocks in use.
    pub fn in_use(self) -> usize {
        self.halves.iter().map(|half| half.used().count_ones() as usize).sum()
    }

    /// Makes `next` the one after `self` in a ring.
    pub fn join(self, next: Page) {
        self.halves[0].neighbour.store(next.number, Relaxed);
        next.halves[1].neighbour.store(self.number, Relaxed);
    }
}

/// What finds the ledger of an address: an entry for each 512 KiB of memory.
#[derive(Clone, Copy)]
pub struct Region {
    ledger: Option<&'static Ledger>,
    /// Pages and runs in the ledger.
    pages: usize,
}

impl Region {
    /// A region without pages of the heap's: zero bytes.
    pub const EMPTY: Region = Region { ledger: None, pages: 0 };
}

/// The directory.
pub(crate) struct Books {
    /// Where the first region begins.
    base: usize,
    regions: &'static mut [Region],
    /// How many there are.
    pub ledgers: usize,
}

impl Books {
    /// Books over all of memory from `base` on, a page's beginning, that the regions span.
    pub const fn new(base: usize, regions: &'static mut [Region]) -> Books {
        Books { base, regions, ledgers: 0 }
    }

    /// What the ledger says of the half page around an address, if there is one.
    #[inline]
    pub fn half(&self, address: usize) -> Option<&'static Half> {
        let offset = address.wrapping_sub(self.base);
        let ledger = self.regions.get(offset / REGION)?.ledger?;
        Some(&ledger.halves[offset / HALF % HALVES])
    }

    /// The page around an address, if there is a ledger for it.
    pub fn page(&self, address: usize) -> Option<Page> {
        let offset = address.wrapping_sub(self.base);
        let ledger = self.regions.get(offset / REGION)?.ledger?;
        let halves = &ledger.halves.as_chunks().0[offset / PAGE % (HALVES / 2)];
        Some(Page { number: (offset / PAGE) as u32, halves })
    }

    /// First address of a page.
    pub fn address(&self, page: Page) -> usize {
        self.base + page.number as usize * PAGE
    }

    /// The next and the previous page in a ring.
    pub fn neighbours(&self, page: Page) -> [Page; 2] {
        page.halves.each_ref().map(|half| {
            let address = self.base + half.neighbour.load(Relaxed) as usize * PAGE;
            self.page(address).expect("a page in a ring is in a ledger")
        })
    }

    /// Enters a page into the ledger of its region, which is made if there is none. Nothing where there is no frame for that.
    pub fn open(&mut self, address: usize, frames: &mut impl Frames) -> Option<Page> {
        let region = self.regions.get_mut(address.wrapping_sub(self.base) / REGION)?;
        if region.ledger.is_none() {
            region.ledger = Some(frames.allocate_ledger()?);
            self.ledgers += 1;
        }
        region.pages += 1;
        self.page(address)
    }

    /// Strikes a page out. The region's ledger goes with its last page.
    pub fn close(&mut self, page: Page, frames: &mut impl Frames) {
        for half in page.halves {
            half.set_used(0);
            half.neighbour.store(0, Relaxed);
            half.shift.store(0, Relaxed);
            half.open_shift.store(0, Relaxed);
        }
        let region = &mut self.regions[page.number as usize / (HALVES / 2)];
        region.pages -= 1;
        if let Some(ledger) = region.ledger.take_if(|_| region.pages == 0) {
            self.ledgers -= 1;
            frames.free_ledger(ledger);
        }
    }
}
