//! Contiguous runs of frames.
//!
//! A run is taken by the same bits as a frame; if one of them is taken meanwhile, the others are given back and the search goes on.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use crate::bitmap::pieces;
use crate::{FrameNumber, Frames, FreeError};

impl Frames<'_> {
    /// The first of `count` frames that follow each other, its number a multiple of `alignment` frames. `None` if there is no
    /// such run in one bank, or others took it.
    ///
    /// Looks at the words with a free frame, each at most once, from where the last run was found on, and passes over the full ones.
    ///
    /// # Panics
    ///
    /// If `count` is 0 or `alignment` no power of two.
    pub fn allocate_run(&self, count: usize, alignment: usize) -> Option<FrameNumber> {
        assert!(count > 0 && alignment.is_power_of_two(), "{count} frames aligned to {alignment}");
        loop {
            let place = self.run_place.load(Relaxed);
            let start = self
                .find_run(place..usize::MAX, count, alignment)
                // Those that begin before the place, and may reach over it.
                .or_else(|| self.find_run(0..place + count / 64 + 1, count, alignment))?;
            if self.take_run(start..start + count) {
                self.run_place.store((start + count) / 64, Relaxed);
                return Some(FrameNumber(self.first + start));
            }
            // Another hart took a frame of it meanwhile: it has made progress.
        }
    }

    /// Takes back `count` frames from `first` on, all of them or none: a run as it was given out, a part of one, or several, or
    /// memory that only the boot needed ([`Setup::occupy`](crate::Setup::occupy)).
    ///
    /// # Errors
    ///
    /// If one of the frames is not in use: the error carries the first. Nothing has changed then, unless another hart frees the
    /// same frames at the same time: then those frames are free which were in use, and one of the two calls has the error.
    pub fn free_run(&self, first: FrameNumber, count: usize) -> Result<(), FreeError> {
        if count == 0 {
            return Ok(());
        }
        self.check_in_use(first)?;
        let start = first.0 - self.first;
        let bits = start..start.saturating_add(count);
        let lowest = |index: usize, bits: u64| {
            FrameNumber(self.first + index * 64 + bits.trailing_zeros() as usize)
        };
        for (index, mask) in pieces(bits.clone()) {
            let in_use = self
                .bitmap
                .words
                .get(index)
                .map_or(0, |[free, usable]| usable.load(Relaxed) & !free.load(Relaxed));
            if mask & !in_use != 0 {
                let frame = lowest(index, mask & !in_use);
                return self.check_in_use(frame).and(Err(FreeError::Free(frame)));
            }
        }
        let mut result = Ok(());
        for (index, mask) in pieces(bits) {
            let before = self.put(index, mask);
            if before != 0 {
                result = result.and(Err(FreeError::Free(lowest(index, before))));
            }
        }
        result
    }

    fn put(&self, index: usize, mask: u64) -> u64 {
        self.bitmap.put(index, &self.bitmap.words[index], mask, || ())
    }

    /// Takes all bits of a range, or none.
    fn take_run(&self, bits: Range<usize>) -> bool {
        for (index, mask) in pieces(bits.clone()) {
            let taken = self.bitmap.take(index, mask);
            if taken != mask {
                self.put(index, taken);
                for (index, mask) in pieces(bits.start..index * 64) {
                    self.put(index, mask);
                }
                return false;
            }
        }
        true
    }

    /// The first place for a run among some words.
    fn find_run(&self, words: Range<usize>, count: usize, alignment: usize) -> Option<usize> {
        // The set bits before the word that is looked at.
        let mut run = 0..0;
        let mut next = words.start;
        while let Some((word, bits)) = self.bitmap.find(next)
            && word < words.end
        {
            let base = word * 64;
            if run.end != base {
                run.start = base;
            }
            run.end = base + bits.trailing_ones() as usize;
            if run.len() >= count {
                let frame = self.first + run.start;
                let start = run.start + (frame.next_multiple_of(alignment) - frame);
                if start + count <= run.end {
                    return Some(start);
                }
            }
            if bits != u64::MAX {
                let starts = run_starts(bits, count) & aligned_bits(alignment);
                if starts != 0 {
                    return Some(base + starts.trailing_zeros() as usize);
                }
                run.start = base + 64 - bits.leading_ones() as usize;
            }
            run.end = base + 64;
            next = word + 1;
        }
        None
    }
}

/// The bits at which `count` set bits begin.
fn run_starts(mut bits: u64, count: usize) -> u64 {
    if count > 64 {
        return 0;
    }
    // `bits` are those at which `length` set bits begin.
    let mut length = 1;
    while length < count {
        let step = length.min(count - length);
        bits &= bits >> step;
        length += step;
    }
    bits
}

/// The bits of a word whose frames are multiples of `alignment`, as far as the word can tell.
fn aligned_bits(alignment: usize) -> u64 {
    match alignment {
        1..64 => u64::MAX / ((1 << alignment) - 1),
        _ => 0,
    }
}
