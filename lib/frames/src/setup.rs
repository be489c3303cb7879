//! How the allocator learns what memory there is.
//!
//! [`Setup`] owns the memory's description until [`finish`](Setup::finish) makes [`Frames`] of it: so nothing is given out that is reserved later.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::atomic::AtomicU64;
use crate::bitmap::{Bitmap, LEVELS, pieces};
use crate::{FrameNumber, FrameRange, Frames, StorageTooSmall};

/// Memory being described, before anything is given out. At first all of it is reserved.
///
/// The order of calls does not matter: what is reserved once stays reserved, what is in use stays in use. Ranges may overlap
/// and lie anywhere; what is in no bank is passed over.
pub struct Setup<'a>(Frames<'a>);

impl<'a> Setup<'a> {
    /// Takes the banks of memory and the storage for the allocator's state, whatever is in it.
    ///
    /// # Errors
    ///
    /// If the storage is smaller than [`words_needed`].
    pub fn new(banks: &[FrameRange], storage: &'a [AtomicU64]) -> Result<Self, StorageTooSmall> {
        let (first, sizes) = layout(banks);
        let needed = words_needed(banks);
        let Some(storage) = storage.get(..needed) else {
            return Err(StorageTooSmall { needed, given: storage.len() });
        };
        // By eights, so that the compiler unrolls.
        let (eights, rest) = storage.as_chunks::<8>();
        eights.iter().for_each(|eight| eight.iter().for_each(|word| word.store(0, Relaxed)));
        rest.iter().for_each(|word| word.store(0, Relaxed));
        let (table, rest) = storage.split_at(2 * banks.len());
        let (words, mut rest) = rest.split_at(2 * sizes[0]);
        let summary = core::array::from_fn(|level| {
            let (this, others) = rest.split_at(sizes[level + 1]);
            rest = others;
            this
        });
        let (table, words) = (table.as_chunks().0, words.as_chunks().0);
        for ([start, end], bank) in table.iter().zip(banks) {
            start.store(bank.start.0 as u64, Relaxed);
            end.store(bank.end.0 as u64, Relaxed);
        }
        let (caches, run_place) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Setup(Frames {
            bitmap: Bitmap { words, summary },
            first,
            banks: table,
            caches,
            run_place,
        }))
    }

    /// These frames may be given out.
    pub fn release(&mut self, frames: FrameRange) {
        self.change(frames, |free, usable, mask| {
            let new = mask & !(free | usable);
            (free | new, usable | new)
        });
    }

    /// These frames are in use already, and can be freed: memory that only the boot needs.
    pub fn occupy(&mut self, frames: FrameRange) {
        self.change(frames, |free, usable, mask| {
            let new = mask & !(free & !usable);
            (free & !new, usable | new)
        });
    }

    /// These frames are never given out.
    pub fn reserve(&mut self, frames: FrameRange) {
        self.change(frames, |free, usable, mask| (free | mask, usable & !mask));
    }

    /// Changes the two words of state of a range's frames in banks. While memory is set up, a frame is free and not usable to say
    /// that it was reserved by a call, and neither if nothing is known.
    fn change(&mut self, frames: FrameRange, change: impl Fn(u64, u64, u64) -> (u64, u64)) {
        for [start, end] in self.0.banks {
            let start = frames.start.0.max(start.load(Relaxed) as usize);
            let end = frames.end.0.min(end.load(Relaxed) as usize);
            if start < end {
                for (index, mask) in pieces(start - self.0.first..end - self.0.first) {
                    let [free, usable] = &self.0.bitmap.words[index];
                    let new = change(free.load(Relaxed), usable.load(Relaxed), mask);
                    free.store(new.0, Relaxed);
                    usable.store(new.1, Relaxed);
                }
            }
        }
    }

    /// The allocator, ready.
    pub fn finish(self) -> Frames<'a> {
        let Bitmap { words, summary } = &self.0.bitmap;
        summarize(words, summary[0], |[free, usable]| {
            // Without the marks of what was reserved by a call.
            let bits = free.load(Relaxed) & usable.load(Relaxed);
            free.store(bits, Relaxed);
            bits
        });
        for level in 1..LEVELS {
            summarize(summary[level - 1], summary[level], |word| word.load(Relaxed));
        }
        self.0
    }
}

/// Fills one level of the summary from the words that it stands for.
fn summarize<W>(words: &[W], summary: &[AtomicU64], bits: impl Fn(&W) -> u64) {
    for (entry, words) in summary.iter().zip(words.chunks(64)) {
        let shift_in = |set, word| set << 1 | u64::from(bits(word) != 0);
        entry.store(words.iter().rev().fold(0, shift_in), Relaxed);
    }
}

/// Words of storage that [`Setup::new`] needs for these banks: two for 64 frames, from the first bank's start to the last one's
/// end, a sixty-fourth part for the summary, and two for a bank.
pub fn words_needed(banks: &[FrameRange]) -> usize {
    let (_, sizes) = layout(banks);
    2 * banks.len() + sizes[0] + sizes.iter().sum::<usize>()
}

/// The frame of the bitmap's first bit, and the words of its levels.
fn layout(banks: &[FrameRange]) -> (usize, [usize; LEVELS + 1]) {
    let banks = banks.iter().filter(|bank| !bank.is_empty());
    let first = banks.clone().map(|bank| bank.start).min().unwrap_or(FrameNumber(0)).0 / 64 * 64;
    let end = banks.map(|bank| bank.end).max().unwrap_or(FrameNumber(0)).0;
    let mut entries = end - first;
    let sizes = core::array::from_fn(|_| {
        entries = entries.div_ceil(64);
        entries
    });
    (first, sizes)
}
