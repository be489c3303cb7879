//! A hart's memory of where free frames are.
//!
//! [`Cache`] holds hints and owns no frame: a wrong one costs a few instructions, and the bit decides.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::FrameNumber;

/// Hints that a [`Cache`] has room for: one for each frame of a bitmap's word.
const HINTS: usize = 64;

/// Where a hart looks first: the frames that it freed last, and those that it found free. One for each hart, so that harts
/// allocate from different words of the bitmap.
///
/// All accesses are relaxed and none depends on another: whatever is read here, the bitmap decides.
pub struct Cache {
    hints: [AtomicUsize; HINTS],
    count: AtomicUsize,
    /// The word where it found something last, plus 1; 0 before the first search.
    pub(crate) place: AtomicUsize,
}

impl Cache {
    /// A cache without hints.
    pub const fn new() -> Self {
        Cache {
            hints: [const { AtomicUsize::new(0) }; HINTS],
            count: AtomicUsize::new(0),
            place: AtomicUsize::new(0),
        }
    }

    /// The hint given last.
    #[inline]
    pub(crate) fn pop(&self) -> Option<FrameNumber> {
        let last = self.count.load(Relaxed).wrapping_sub(1);
        let hint = self.hints.get(last)?.load(Relaxed);
        self.count.store(last, Relaxed);
        Some(FrameNumber(hint))
    }

    /// Remembers that a frame is free, if there is room.
    #[inline]
    pub(crate) fn push(&self, frame: FrameNumber) {
        let count = self.count.load(Relaxed);
        if let Some(hint) = self.hints.get(count) {
            hint.store(frame.0, Relaxed);
            self.count.store(count + 1, Relaxed);
        }
    }

    /// Remembers that the frames from `first` on are free whose bits are set, as far as there is room. Says how many hints there
    /// are then.
    pub(crate) fn push_all(&self, first: FrameNumber, mut bits: u64) -> usize {
        let mut count = self.count.load(Relaxed);
        if bits == u64::MAX && count == 0 {
            // The lowest comes last, as it is taken first. By eights, so that the compiler unrolls.
            let mut frame = first.0 + HINTS;
            for hints in self.hints.as_chunks::<8>().0 {
                for hint in hints {
                    frame = frame.wrapping_sub(1);
                    hint.store(frame, Relaxed);
                }
            }
            count = HINTS;
        }
        while count < HINTS && bits != 0 {
            self.hints[count].store(first.0 + bits.trailing_zeros() as usize, Relaxed);
            bits &= bits - 1;
            count += 1;
        }
        self.count.store(count, Relaxed);
        count
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}
