//! The bitmap with its summary: where the free frames are.
//!
//! Level 0 are the bitmap's words. An entry of the summary's level n stands for one word of level n - 1: its bit is set if that
//! word has a bit set. Any hart changes any word at any time, by one atomic instruction each, so a summary follows its words by a
//! protocol of two rules:
//!
//! 1. Who makes a word nonzero sets its bit in the level above afterwards.
//! 2. Who clears the bit of a word that he saw empty looks at the word again afterwards, and if it is not empty sets the bit.
//!
//! So when all calls have returned, the bit of every nonzero word is set. Proof: if a clearing is the last change of a bit, the look
//! after it saw zero; a word that became nonzero later would have its bit set later still; and one that became nonzero before is
//! seen, because a clearing that comes after the setting in the bit's order of changes (acquire) has seen all that came before
//! the setting (release). A bit set in vain may be left over from a race; who finds one clears it, by rule 2.

use core::mem;
use core::ops::Range;

use crate::atomic::{AtomicU64, Ordering};

/// Levels of the summary. One word of the highest stands for 64 GiB.
pub const LEVELS: usize = 3;

/// The state of 64 frames: which are free, and which are usable at all. The latter does not change after the set-up.
pub type Word = [AtomicU64; 2];

/// All words, and which of them have a bit set.
pub struct Bitmap<'a> {
    pub words: &'a [Word],
    pub summary: [&'a [AtomicU64]; LEVELS],
}

impl Bitmap<'_> {
    /// The word `index` of `level`.
    fn load(&self, level: usize, index: usize) -> u64 {
        crate::touch();
        let word = if level == 0 { &self.words[index][0] } else { &self.summary[level - 1][index] };
        word.load(Ordering::Relaxed)
    }

    /// Takes the bits of `mask` out of a word, and says which of them were there to be taken.
    #[inline(always)]
    pub fn take(&self, index: usize, mask: u64) -> u64 {
        crate::touch();
        let Some([free, _]) = self.words.get(index) else { return 0 };
        // Acquire pairs with the release in `put`: who takes a frame sees what its last user did as done.
        let old = free.fetch_and(!mask, Ordering::Acquire);
        let taken = old & mask;
        if old == taken && taken != 0 { self.set_empty(0, index, taken) } else { taken }
    }

    /// Puts the bits of `mask` into a word, and says which of them were there before. `then` is done if it was none.
    #[inline(always)]
    pub fn put(&self, index: usize, [free, _]: &Word, mask: u64, then: impl FnOnce()) -> u64 {
        crate::touch();
        let old = free.fetch_or(mask, Ordering::Release);
        if old & mask == 0 {
            then();
        }
        if old == 0 {
            self.set_nonempty(0, index);
        }
        old & mask
    }

    /// Rule 1, for the word `index` of `level`, which has become nonzero.
    #[inline]
    pub fn set_nonempty(&self, level: usize, index: usize) {
        crate::touch();
        let old = self.summary[level][index / 64].fetch_or(1 << (index % 64), Ordering::AcqRel);
        if old == 0 && level + 1 < LEVELS {
            self.set_nonempty(level + 1, index / 64);
        }
    }

    /// Rule 2, for the word `index` of `level`, which was seen to be zero. Returns `result`, so that a caller need not keep it
    /// anywhere meanwhile.
    #[cold]
    #[inline(never)]
    fn set_empty<T>(&self, level: usize, index: usize, result: T) -> T {
        crate::touch();
        let bit = 1 << (index % 64);
        let old = self.summary[level][index / 64].fetch_and(!bit, Ordering::AcqRel);
        if self.load(level, index) != 0 {
            self.set_nonempty(level, index);
        } else if old == bit && level + 1 < LEVELS {
            return self.set_empty(level + 1, index / 64, result);
        }
        result
    }

    /// The first word from `from` on that has a bit set, with what it was then.
    pub fn find(&self, from: usize) -> Option<(usize, u64)> {
        // All entries of the summary's level `level` before `index` are done with.
        let (mut level, mut index) = (0, from);
        while index / 64 < self.summary[level].len() {
            let later = self.load(level + 1, index / 64) >> (index % 64);
            if later == 0 {
                // Up, or along the highest level.
                index = index / 64 + 1;
                if level + 1 < LEVELS {
                    level += 1;
                } else {
                    index *= 64;
                }
                continue;
            }
            // Down to the first word below, unless a bit was set in vain.
            index += later.trailing_zeros() as usize;
            loop {
                let bits = self.load(level, index);
                if bits == 0 {
                    self.set_empty(level, index, ());
                    index += 1;
                    break;
                }
                if level == 0 {
                    return Some((index, bits));
                }
                level -= 1;
                index = index * 64 + bits.trailing_zeros() as usize;
            }
        }
        None
    }

    /// A word that has a bit set, wherever the summary lags behind: looks at every word.
    pub fn find_by_scan(&self) -> Option<(usize, u64)> {
        (0..self.words.len()).map(|word| (word, self.load(0, word))).find(|(_, bits)| *bits != 0)
    }
}

/// The words that a range of bits lies in, each with the mask of its bits there.
pub fn pieces(bits: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut mask = u64::MAX << (bits.start % 64);
    (bits.start / 64..bits.end.div_ceil(64)).map(move |word| {
        let last = if word == bits.end / 64 { !(u64::MAX << (bits.end % 64)) } else { u64::MAX };
        (word, mem::replace(&mut mask, u64::MAX) & last)
    })
}
