//! The allocator: one frame at a time.

use core::ops::Range;
use core::sync::atomic::AtomicUsize;

use crate::atomic::{AtomicU64, Ordering};
use crate::bitmap::{Bitmap, Word, count};
use crate::setup::words_of_bank;
use crate::{Cache, FrameNumber, FrameRange, FreeError};

/// A search ends when it has found so many.
const ENOUGH_HINTS: usize = 16;

/// Words of storage for a [`Bank`].
pub const BANK_WORDS: usize = 3;

/// What a frame in a bank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is never given out.
    Reserved,
    /// It can be allocated.
    Free,
    /// It can be freed.
    InUse,
}

/// How many frames there are of each sort. Exact if none was allocated or freed meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// Those that are not reserved.
    pub usable: usize,
    /// Those that can be allocated.
    pub free: usize,
    /// Those that can be freed.
    pub in_use: usize,
}

/// The frames of all banks. Every function may be called on any hart at any time, in interrupt handlers too: nothing waits, and a
/// call that is interrupted keeps no other from success.
pub struct Frames<'a> {
    pub(crate) bitmap: Bitmap<'a>,
    /// The words that lie in the largest bank as a whole: the common case, found without a search.
    common: &'a [Word],
    /// The frame of their first bit.
    common_frame: usize,
    /// The largest bank.
    largest: Bank,
    /// Sorted: see [`Bank`].
    banks: &'a [[AtomicU64; BANK_WORDS]],
    /// Frames that are not reserved.
    pub(crate) usable: usize,
    /// Caches that have searched, so far.
    caches: AtomicUsize,
    /// The word where the search for the next run begins.
    pub(crate) run_place: AtomicUsize,
}

/// A stretch of memory without a hole.
#[derive(Clone, Copy)]
pub struct Bank {
    pub frames: FrameRange,
    /// What a frame's place in the bitmap is more than its number, wrapping: a multiple of 64.
    offset: usize,
}

impl Bank {
    /// The place in the bitmap of a frame.
    pub fn bit(&self, frame: FrameNumber) -> usize {
        frame.0.wrapping_add(self.offset)
    }

    /// The frame at a place in the bitmap.
    pub fn frame(&self, bit: usize) -> FrameNumber {
        FrameNumber(bit.wrapping_sub(self.offset))
    }

    /// The places in the bitmap of some of its frames.
    pub fn bits(&self, frames: FrameRange) -> Range<usize> {
        self.bit(frames.start)..self.bit(frames.end)
    }
}

impl<'a> Frames<'a> {
    /// All frames reserved. `None` without any.
    pub(crate) fn new(
        banks: impl Iterator<Item = FrameRange>,
        table: &'a [[AtomicU64; BANK_WORDS]],
        bitmap: Bitmap<'a>,
    ) -> Option<Self> {
        let mut next_word = 0_usize;
        for (frames, entry) in banks.zip(table) {
            let offset = (next_word * 64).wrapping_sub(frames.start.0 / 64 * 64);
            let values = [frames.start.0, frames.end.0, offset];
            entry
                .iter()
                .zip(values)
                .for_each(|(place, value)| place.store(value as u64, Ordering::Relaxed));
            next_word += words_of_bank(frames);
        }
        let largest = table.iter().map(read_bank).max_by_key(|bank| bank.frames.count())?;
        let common_frame = largest.frames.start.0.next_multiple_of(64);
        let count = (largest.frames.end.0 / 64).saturating_sub(common_frame / 64);
        Some(Frames {
            common: &bitmap.words[largest.bit(FrameNumber(common_frame)) / 64..][..count],
            common_frame,
            largest,
            bitmap,
            banks: table,
            usable: 0,
            caches: AtomicUsize::new(0),
            run_place: AtomicUsize::new(0),
        })
    }

    /// A frame, with whatever is in it. `None` if every frame is in use or reserved.
    #[inline(always)]
    pub fn allocate(&self, cache: &Cache) -> Option<FrameNumber> {
        let Some(hint) = cache.pop() else { return self.allocate_slowly(cache, None) };
        let Some(word) = self.common(hint) else {
            return self.allocate_slowly(cache, Some(hint));
        };
        match self.bitmap.take_from(word, 1 << (hint.0 % 64), || self.largest.bit(hint) / 64) {
            0 => self.allocate_slowly(cache, None),
            _ => Some(hint),
        }
    }

    /// Takes back a frame that was given out, alone or in a run, on whichever hart. From then on another hart may get it.
    ///
    /// # Errors
    ///
    /// If the frame is not in use.
    #[inline(always)]
    pub fn free(&self, cache: &Cache, frame: FrameNumber) -> Result<(), FreeError> {
        let Some(word) = self.common(frame) else {
            return self.free_slowly(cache, frame);
        };
        let bit = 1 << (frame.0 % 64);
        if word[1].load(Ordering::Relaxed) & bit == 0 {
            return Err(FreeError::Reserved(frame));
        }
        let old = Bitmap::put_into(word, bit);
        if old & bit != 0 {
            return Err(FreeError::Free(frame));
        }
        cache.push(frame);
        if old == 0 {
            self.bitmap.set_nonempty(0, self.largest.bit(frame) / 64);
        }
        Ok(())
    }

    /// [`free`](Self::free) for a frame by its physical address.
    ///
    /// # Errors
    ///
    /// If no frame starts there, or it is not in use.
    pub fn free_address(&self, cache: &Cache, address: usize) -> Result<(), FreeError> {
        self.free(cache, FrameNumber::starting_at(address).ok_or(FreeError::Unaligned(address))?)
    }

    /// What a frame is now. `None` if it lies in no bank.
    pub fn state(&self, frame: FrameNumber) -> Option<State> {
        let [free, usable] = &self.bitmap.words[self.bank_of(frame)?.bit(frame) / 64];
        let is_set = |word: &AtomicU64| word.load(Ordering::Relaxed) & 1 << (frame.0 % 64) != 0;
        Some(match (is_set(usable), is_set(free)) {
            (false, _) => State::Reserved,
            (true, true) => State::Free,
            (true, false) => State::InUse,
        })
    }

    /// Counts. Looks at every word.
    pub fn statistics(&self) -> Statistics {
        let free =
            self.bitmap.words.iter().map(|[free, _]| count(free.load(Ordering::Relaxed))).sum();
        Statistics { usable: self.usable, free, in_use: self.usable - free }
    }

    /// The state of a frame that lies in the common words.
    #[inline]
    fn common(&self, frame: FrameNumber) -> Option<&'a Word> {
        self.common.get(frame.0.wrapping_sub(self.common_frame) / 64)
    }

    /// [`free`](Self::free) for a frame that lies in a smaller bank, in the first or last word of one, or in none.
    #[cold]
    fn free_slowly(&self, cache: &Cache, frame: FrameNumber) -> Result<(), FreeError> {
        self.free_run(frame, 1)?;
        cache.push(frame);
        Ok(())
    }

    /// [`allocate`](Self::allocate) for when the first hint was none, wrong, or not a common frame.
    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, cache: &Cache, mut hint: Option<FrameNumber>) -> Option<FrameNumber> {
        loop {
            while let Some(frame) = hint {
                if let Some(bank) = self.bank_of(frame)
                    && self.bitmap.take(bank.bit(frame) / 64, 1 << (frame.0 % 64)) != 0
                {
                    return hint;
                }
                hint = cache.pop();
            }
            // Again only if others took meanwhile what was found: they have made progress.
            self.search(cache)?;
            hint = cache.pop();
        }
    }

    /// Finds hints: in the 64 words where the last ones were found, or else in the first word from the cache's home on that has
    /// a free frame. So what one hart has in use lies close together, and apart from what others have.
    #[inline(never)]
    fn search(&self, cache: &Cache) -> Option<()> {
        if let Some(place) = cache.place() {
            let first = place / 64 * 64;
            let mut words = self.bitmap.load(1, place / 64) & (u64::MAX << (place % 64));
            while words != 0 && cache.count() < ENOUGH_HINTS {
                let word = first + words.trailing_zeros() as usize;
                words &= words - 1;
                match self.bitmap.load(0, word) {
                    0 => self.bitmap.clear_in_vain(0, word),
                    bits => cache.push_all(self.frame(word * 64), bits),
                }
            }
            if cache.count() > 0 {
                return Some(());
            }
        } else {
            cache.set_home(self.next_home());
        }
        self.search_far(cache)
    }

    #[cold]
    #[inline(never)]
    fn search_far(&self, cache: &Cache) -> Option<()> {
        let home = cache.home();
        let found = self
            .bitmap
            .find(home)
            .or_else(|| self.bitmap.find(0))
            .or_else(|| self.bitmap.find_by_scan());
        let (word, bits) = found?;
        cache.set_place(if word / 64 == home / 64 { home } else { word / 64 * 64 });
        cache.push_all(self.frame(word * 64), bits);
        Some(())
    }

    /// Where the next cache is at home: at the beginning, at 1/2, 1/4, 3/4, 1/8 ... of memory. However many there will be, they
    /// are apart.
    #[cold]
    #[inline(never)]
    fn next_home(&self) -> usize {
        let part = self.caches.fetch_add(1, Ordering::Relaxed).reverse_bits();
        ((part as u128 * self.bitmap.words.len() as u128) >> usize::BITS) as usize
    }

    /// All banks, sorted.
    pub(crate) fn banks(&self) -> impl Iterator<Item = Bank> + use<'a> {
        self.banks.iter().map(read_bank)
    }

    /// The bank that a frame lies in.
    pub(crate) fn bank_of(&self, frame: FrameNumber) -> Option<Bank> {
        if self.largest.frames.contains(frame) {
            return Some(self.largest);
        }
        self.last_bank(|bank| bank.frames.start <= frame).filter(|bank| bank.frames.contains(frame))
    }

    /// The frame at a place in the bitmap.
    pub(crate) fn frame(&self, bit: usize) -> FrameNumber {
        let frame = self.largest.frame(bit);
        if self.largest.frames.contains(frame) {
            return frame;
        }
        let bank = self.last_bank(|bank| bank.bit(bank.frames.start) / 64 <= bit / 64);
        bank.expect("the first bank begins at the first word").frame(bit)
    }

    /// The last bank for which something holds that holds for no bank after one for which it does not.
    #[cold]
    fn last_bank(&self, holds: impl Fn(&Bank) -> bool) -> Option<Bank> {
        let count = self.banks.partition_point(|entry| holds(&read_bank(entry)));
        self.banks[..count].last().map(read_bank)
    }
}

fn read_bank(entry: &[AtomicU64; BANK_WORDS]) -> Bank {
    let [start, end, offset] = entry.each_ref().map(|word| word.load(Ordering::Relaxed) as usize);
    Bank { frames: FrameRange { start: FrameNumber(start), end: FrameNumber(end) }, offset }
}
