//! How the allocator learns what memory there is.

use core::iter;

use crate::atomic::{AtomicU64, Ordering};
use crate::bitmap::{Bitmap, LEVELS, count, pieces};
use crate::frames::{BANK_WORDS, Frames};
use crate::{FrameNumber, FrameRange, SetupError};

/// Memory being described, before anything is given out. At first all of it is reserved.
///
/// The order of calls does not matter: what is reserved once stays reserved, what is in use stays in use. Ranges may overlap
/// and lie anywhere; what is in no bank is passed over.
pub struct Setup<'a>(Frames<'a>);

impl<'a> Setup<'a> {
    /// Takes the banks of memory, sorted and disjoint, and the storage for the allocator's state, whatever is in it.
    ///
    /// # Errors
    ///
    /// If the banks are not sorted or empty, or the storage is smaller than [`words_needed`].
    pub fn new(banks: &[FrameRange], storage: &'a [AtomicU64]) -> Result<Self, SetupError> {
        let mut end = FrameNumber(0);
        for bank in banks.iter().filter(|bank| !bank.is_empty()) {
            if bank.start < end {
                return Err(SetupError::Unsorted(bank.start));
            }
            end = bank.end;
        }
        let needed = words_needed(banks);
        let Some(storage) = storage.get(..needed) else {
            return Err(SetupError::Storage { needed, given: storage.len() });
        };
        storage.iter().for_each(|word| word.store(0, Ordering::Relaxed));

        let mut rest = storage;
        let mut part = |words| {
            let (part, others) = rest.split_at(words);
            rest = others;
            part
        };
        let sizes = sizes(banks);
        let table = part(joined(banks).count() * BANK_WORDS).as_chunks().0;
        let (words, _) = part(sizes[0] * 2).as_chunks();
        let summary = core::array::from_fn(|level| part(sizes[level + 1]));
        Frames::new(joined(banks), table, Bitmap { words, summary })
            .map(Setup)
            .ok_or(SetupError::NoMemory)
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

    /// The allocator, ready.
    pub fn finish(mut self) -> Frames<'a> {
        let mut usable_frames = 0;
        for (group, words) in self.0.bitmap.words.chunks(64).enumerate() {
            let mut nonempty = 0;
            for (index, [free, usable]) in words.iter().enumerate() {
                let usable = usable.load(Ordering::Relaxed);
                // Without the marks of what is reserved.
                let bits = free.load(Ordering::Relaxed) & usable;
                free.store(bits, Ordering::Relaxed);
                nonempty |= u64::from(bits != 0) << index;
                usable_frames += count(usable);
            }
            self.0.bitmap.summary[0][group].store(nonempty, Ordering::Relaxed);
            if nonempty != 0 {
                self.0.bitmap.set_nonempty(1, group);
            }
        }
        self.0.usable = usable_frames;
        self.0
    }

    /// Changes the two words of state of the banks' frames in a range. While memory is set up, a frame is free and not usable to say
    /// that it is reserved explicitly, and neither if nothing is known.
    fn change(&mut self, frames: FrameRange, change: impl Fn(u64, u64, u64) -> (u64, u64)) {
        for bank in self.0.banks() {
            let frames = bank.frames.intersection(frames);
            if frames.is_empty() {
                continue;
            }
            for (word, mask) in pieces(bank.bits(frames)) {
                let [free, usable] = &self.0.bitmap.words[word];
                let (new_free, new_usable) =
                    change(free.load(Ordering::Relaxed), usable.load(Ordering::Relaxed), mask);
                free.store(new_free, Ordering::Relaxed);
                usable.store(new_usable, Ordering::Relaxed);
            }
        }
    }
}

/// Words of storage that [`Setup::new`] needs for these banks, 64 bits each: four in 256 frames, three for a bank, and a
/// sixty-fourth part for the summary.
pub fn words_needed(banks: &[FrameRange]) -> usize {
    let sizes = sizes(banks);
    joined(banks).count() * BANK_WORDS + sizes[0] + sizes.iter().sum::<usize>()
}

/// Words of each level of the bitmap.
fn sizes(banks: &[FrameRange]) -> [usize; LEVELS + 1] {
    let mut words: usize = joined(banks).map(words_of_bank).sum();
    core::array::from_fn(|_| {
        let level = words;
        words = words.div_ceil(64);
        level
    })
}

/// Words of a bank in the bitmap. The last is always empty, so that no run goes on into the next bank.
pub fn words_of_bank(frames: FrameRange) -> usize {
    frames.end.0.div_ceil(64) - frames.start.0 / 64 + 1
}

/// The banks that have a frame, those that touch in one.
fn joined(banks: &[FrameRange]) -> impl Iterator<Item = FrameRange> {
    let mut rest = banks.iter().copied().filter(|bank| !bank.is_empty()).peekable();
    iter::from_fn(move || {
        let mut bank = rest.next()?;
        while let Some(next) = rest.next_if(|next| next.start == bank.end) {
            bank.end = next.end;
        }
        Some(bank)
    })
}
