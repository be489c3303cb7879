//! The allocator: one frame at a time.
//!
//! [`Frames`] owns the bits. An allocation takes the frame whose bit it changed itself from free to in use, and nothing else makes a frame
//! somebody's; a free that is wrong changes nothing.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::atomic::AtomicU64;
use crate::bitmap::{Bitmap, LEVELS};
use crate::{Cache, FrameNumber, FreeError};

/// A search ends when it has found so many hints.
const ENOUGH_HINTS: usize = 16;

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
    /// The frame of the bitmap's first bit, a multiple of 64.
    pub(crate) first: usize,
    /// Start and end of each bank, in frames.
    pub(crate) banks: &'a [[AtomicU64; 2]],
    /// Caches that have searched, so far.
    pub(crate) caches: AtomicUsize,
    /// The word where the search for the next run begins.
    pub(crate) run_place: AtomicUsize,
}

impl Frames<'_> {
    /// No memory: nothing can be allocated, and every frame is foreign.
    pub const fn empty() -> Frames<'static> {
        Frames {
            bitmap: Bitmap { words: &[], summary: [&[]; LEVELS] },
            first: 0,
            banks: &[],
            caches: AtomicUsize::new(0),
            run_place: AtomicUsize::new(0),
        }
    }

    /// A frame, with whatever is in it. `None` if every frame is in use or reserved.
    #[inline(always)]
    pub fn allocate(&self, cache: &Cache) -> Option<FrameNumber> {
        match cache.pop() {
            Some(hint) if self.take(hint) => Some(hint),
            _ => self.allocate_by_search(cache),
        }
    }

    /// Takes back a frame that was given out, alone or in a run, on whichever hart. From then on another hart may get it.
    ///
    /// # Errors
    ///
    /// If the frame is not in use. Nothing has changed then.
    #[inline(always)]
    pub fn free(&self, cache: &Cache, frame: FrameNumber) -> Result<(), FreeError> {
        let (index, mask) = self.place(frame);
        let Some(word) = self.bitmap.words.get(index) else {
            return Err(FreeError::Foreign(frame));
        };
        if word[1].load(Relaxed) & mask == 0 {
            return self.check_in_use(frame);
        }
        match self.bitmap.put(index, word, mask, || cache.push(frame)) {
            0 => Ok(()),
            _ => Err(FreeError::Free(frame)),
        }
    }

    /// [`free`](Self::free) for a frame by its physical address.
    ///
    /// # Errors
    ///
    /// If no frame starts there, or it is not in use. Nothing has changed then.
    pub fn free_address(&self, cache: &Cache, address: usize) -> Result<(), FreeError> {
        self.free(cache, FrameNumber::starting_at(address).ok_or(FreeError::Unaligned(address))?)
    }

    /// What a frame is now. `None` if it lies in no bank.
    pub fn state(&self, frame: FrameNumber) -> Option<State> {
        let (index, mask) = self.place(frame);
        match self.bitmap.words.get(index)?.each_ref().map(|word| word.load(Relaxed) & mask != 0) {
            [true, _] => Some(State::Free),
            [false, true] => Some(State::InUse),
            [false, false] => {
                let is_in = |[start, end]: &[AtomicU64; 2]| {
                    (start.load(Relaxed)..end.load(Relaxed)).contains(&(frame.0 as u64))
                };
                self.banks.iter().any(is_in).then_some(State::Reserved)
            }
        }
    }

    /// Whether a frame can be freed now.
    ///
    /// # Errors
    ///
    /// What [`free`](Self::free) would say.
    #[cold]
    pub fn check_in_use(&self, frame: FrameNumber) -> Result<(), FreeError> {
        match self.state(frame) {
            Some(State::InUse) => Ok(()),
            Some(State::Free) => Err(FreeError::Free(frame)),
            Some(State::Reserved) => Err(FreeError::Reserved(frame)),
            None => Err(FreeError::Foreign(frame)),
        }
    }

    /// Counts. Looks at every word.
    pub fn statistics(&self) -> Statistics {
        let count = |which: usize| {
            self.bitmap
                .words
                .iter()
                .map(|word| word[which].load(Relaxed).count_ones() as usize)
                .sum()
        };
        let (free, usable) = (count(0), count(1));
        Statistics { usable, free, in_use: usable - free }
    }

    /// The word and the bit of a frame. Those of a frame that lies in no bank may be anywhere, or nowhere.
    #[inline]
    pub(crate) fn place(&self, frame: FrameNumber) -> (usize, u64) {
        (frame.0.wrapping_sub(self.first) / 64, 1 << (frame.0 % 64))
    }

    /// Takes a frame, if it is free.
    #[inline(always)]
    fn take(&self, frame: FrameNumber) -> bool {
        let (index, mask) = self.place(frame);
        self.bitmap.take(index, mask) != 0
    }

    #[cold]
    #[inline(never)]
    fn allocate_by_search(&self, cache: &Cache) -> Option<FrameNumber> {
        loop {
            while let Some(hint) = cache.pop() {
                if self.take(hint) {
                    return Some(hint);
                }
            }
            // Again only if others took meanwhile what was found: they have made progress.
            self.search(cache)?;
        }
    }

    /// Finds hints: in the 64 words where the last ones were found, or else in the next word with a free frame. So what one hart
    /// has in use lies close together, and apart from what others have: the first eight begin in different parts of memory.
    #[inline(never)]
    fn search(&self, cache: &Cache) -> Option<()> {
        let place = cache.place.load(Relaxed).checked_sub(1).unwrap_or_else(|| {
            self.caches.fetch_add(1, Relaxed) % 8 * (self.bitmap.words.len() / 8)
        });
        let near = self.bitmap.find(place / 64 * 64).or_else(|| self.bitmap.find(0));
        let (mut word, mut bits) = near.or_else(|| self.bitmap.find_by_scan())?;
        cache.place.store(word + 1, Relaxed);
        while cache.push_all(FrameNumber(self.first + word * 64), bits) < ENOUGH_HINTS
            && let Some(next) = self.bitmap.find(word + 1)
            && next.0 / 64 == word / 64
        {
            (word, bits) = next;
        }
        Some(())
    }
}
