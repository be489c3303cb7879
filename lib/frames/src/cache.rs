//! A hart's memory of where free frames are.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::FrameNumber;

/// Hints that a [`Cache`] has room for: one for each frame of a bitmap's word.
const HINTS: usize = 64;

/// Where a hart looks first: the frames that it freed last, and those that it found free. One for each hart, so that harts
/// allocate from different words of the bitmap.
///
/// It holds no frames, only their numbers. All accesses are relaxed and none depends on another: whatever is read here, the
/// bitmap decides.
pub struct Cache {
    hints: [AtomicUsize; HINTS],
    /// Hints there are.
    count: AtomicUsize,
    /// The word from which it searches all of memory.
    home: AtomicUsize,
    /// The word from which it searches near what it found last, plus 1; 0 before the first search.
    place: AtomicUsize,
}

impl Cache {
    /// A cache without hints.
    pub const fn new() -> Self {
        Cache {
            hints: [const { AtomicUsize::new(0) }; HINTS],
            count: AtomicUsize::new(0),
            home: AtomicUsize::new(0),
            place: AtomicUsize::new(0),
        }
    }

    /// The word from which it searches all of memory.
    pub(crate) fn home(&self) -> usize {
        self.home.load(Ordering::Relaxed)
    }

    pub(crate) fn set_home(&self, word: usize) {
        self.home.store(word, Ordering::Relaxed);
    }

    /// The word from which it searches near what it found last; `None` before the first search.
    pub(crate) fn place(&self) -> Option<usize> {
        self.place.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(crate) fn set_place(&self, word: usize) {
        self.place.store(word + 1, Ordering::Relaxed);
    }

    /// How many hints there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The hint given last.
    #[inline]
    pub(crate) fn pop(&self) -> Option<FrameNumber> {
        let last = self.count().wrapping_sub(1);
        let hint = self.hints.get(last)?.load(Ordering::Relaxed);
        self.count.store(last, Ordering::Relaxed);
        Some(FrameNumber(hint))
    }

    /// Remembers that a frame is free, if there is room.
    #[inline]
    pub(crate) fn push(&self, frame: FrameNumber) {
        let count = self.count();
        if let Some(hint) = self.hints.get(count) {
            hint.store(frame.0, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Remembers that the frames from `first` on are free whose bits are set, as far as there is room.
    pub(crate) fn push_all(&self, first: FrameNumber, mut bits: u64) {
        let mut count = self.count();
        if bits == u64::MAX && count == 0 {
            // The lowest frame last: it is taken first.
            let mut frame = first.0 + HINTS;
            for eight in self.hints.as_chunks::<8>().0 {
                for hint in eight {
                    frame = frame.wrapping_sub(1);
                    hint.store(frame, Ordering::Relaxed);
                }
            }
            count = HINTS;
        } else {
            while bits != 0
                && let Some(hint) = self.hints.get(count)
            {
                hint.store(first.0 + bits.trailing_zeros() as usize, Ordering::Relaxed);
                bits &= bits - 1;
                count += 1;
            }
        }
        self.count.store(count, Ordering::Relaxed);
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}
