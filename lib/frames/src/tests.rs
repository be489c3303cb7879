//! Properties against a simple oracle, small cases in full, the number of words that are touched, and harts as threads.

mod cost;
mod errors;
mod oracle;
mod properties;
mod threads;

use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use crate::atomic::AtomicU64;
use crate::{FrameNumber, FrameRange, Frames, Setup, words_needed};

pub use cost::count_touch;

fn range(start: usize, end: usize) -> FrameRange {
    FrameRange { start: FrameNumber(start), end: FrameNumber(end) }
}

/// Storage with something in it, as memory has after a reset.
fn storage(banks: &[FrameRange]) -> Vec<AtomicU64> {
    (0..words_needed(banks)).map(|_| AtomicU64::new(0x5555_aaaa_5555_aaaa)).collect()
}

/// All frames of all banks free.
fn all_free<'a>(banks: &[FrameRange], storage: &'a [AtomicU64]) -> Frames<'a> {
    let mut setup = Setup::new(banks, storage).unwrap();
    setup.release(range(0, usize::MAX));
    setup.finish()
}

/// Fails unless the bits of the summary are set that must be, and no others: as it is when no call is under way and none raced.
fn assert_summary_is_exact(frames: &Frames) {
    let mut nonempty: Vec<bool> =
        frames.bitmap.words.iter().map(|[free, _]| free.load(Relaxed) != 0).collect();
    for level in frames.bitmap.summary {
        for (index, nonempty) in nonempty.iter().enumerate() {
            assert_eq!(
                level[index / 64].load(Relaxed) >> (index % 64) & 1 != 0,
                *nonempty,
                "the bit of word {index}"
            );
        }
        nonempty = level.iter().map(|word| word.load(Relaxed) != 0).collect();
    }
}
