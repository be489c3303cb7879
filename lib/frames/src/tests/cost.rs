//! How many words a call touches: as many for 64 GiB as for 32 MiB, and as many when memory is full.

use core::cell::Cell;
use std::thread_local;
use std::vec::Vec;

use super::{assert_summary_is_exact, range, storage};
use crate::{Cache, FrameNumber, FrameRange, Frames, Setup};

/// Words that an allocation or a free may touch. A search looks at one word above, at the 16 words of which it takes hints, and
/// climbs the summary three times at the most (from the cache's place, from its home, from the beginning).
const BOUND: usize = 48;

thread_local! {
    static TOUCHED: Cell<usize> = const { Cell::new(0) };
}

pub fn count_touch() {
    TOUCHED.set(TOUCHED.get() + 1);
}

/// Words touched by a call, and its result.
fn touched<T>(call: impl FnOnce() -> T) -> (usize, T) {
    TOUCHED.set(0);
    let result = call();
    (TOUCHED.get(), result)
}

/// A cheap sequence of numbers without order.
fn scattered(seed: usize) -> usize {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 20
}

const LARGE: usize = 96 << 18;
const SIZES: [usize; 4] = [32 << 8, 2 << 18, 16 << 18, 64 << 18];

/// Memory of which one frame in `one_in` is free, without order.
fn fragmented(size: usize, one_in: usize, test: impl FnOnce(&Frames, usize)) {
    let bank: FrameRange = range(0x80000, 0x80000 + size);
    let storage = storage(&[bank]);
    let mut setup = Setup::new(&[bank], &storage).unwrap();
    setup.occupy(bank);
    let frames = setup.finish();
    let free: Vec<usize> =
        (0..size).filter(|frame| scattered(*frame).is_multiple_of(one_in)).collect();
    for frame in &free {
        frames.free_run(FrameNumber(0x80000 + frame), 1).unwrap();
    }
    test(&frames, free.len());
}

#[test]
fn an_allocation_touches_as_many_words_whatever_the_size_and_the_use_of_memory() {
    for size in SIZES {
        for one_in in [1, 2, 100, 5000] {
            if size * 4 / one_in > SIZES[1] * 4 {
                continue; // Minutes, and nothing new: the next size is done for the scarcer ones.
            }
            fragmented(size, one_in, |frames, free| {
                let cache = Cache::new();
                let (mut most, mut all) = (0, 0);
                let mut taken = Vec::new();
                for _ in 0..free {
                    let (words, frame) = touched(|| frames.allocate(&cache));
                    taken.push(frame.expect("memory is not exhausted yet"));
                    most = most.max(words);
                    all += words;
                }
                assert!(
                    most <= BOUND,
                    "{most} words for one allocation, 1 in {one_in} of {size} frames free"
                );
                assert!(
                    all <= 16 * free,
                    "{all} words for {free} allocations, 1 in {one_in} of {size} frames free"
                );
                assert_eq!(frames.allocate(&cache), None);
                for frame in taken {
                    let (words, result) = touched(|| frames.free(&cache, frame));
                    result.unwrap();
                    assert!(
                        words <= 4,
                        "{words} words for a free, 1 in {one_in} of {size} frames free"
                    );
                }
                assert_summary_is_exact(frames);
            });
        }
    }
}

/// A bit of the summary that a race left behind costs once.
#[test]
fn a_bit_set_in_vain_is_cleared_by_who_finds_it() {
    // Only the first frame is free.
    fragmented(SIZES[1], usize::MAX, |frames, _| {
        for index in [3, 70, 71, 5000] {
            frames.bitmap.set_nonempty(0, index);
        }
        assert_eq!(frames.allocate(&Cache::new()), Some(FrameNumber(0x80000)));
        assert_eq!(frames.allocate(&Cache::new()), None);
        assert_summary_is_exact(frames);
    });
}

/// The last free frame of 96 GiB, more than one word of the highest level stands for, is found from everywhere.
#[test]
fn the_last_free_frame_is_found_by_the_summary() {
    let bank = range(0x80000, 0x80000 + LARGE);
    let storage = storage(&[bank]);
    let mut setup = Setup::new(&[bank], &storage).unwrap();
    setup.occupy(bank);
    let frames = setup.finish();
    for place in
        (0..64).map(|step| 0x80000 + scattered(step) % LARGE).chain([0x80000, bank.end.0 - 1])
    {
        let frame = FrameNumber(place);
        frames.free_run(frame, 1).unwrap();
        let cache = Cache::new();
        let (words, found) = touched(|| frames.allocate(&cache));
        assert_eq!(found, Some(frame));
        assert!(words <= BOUND, "{words} words");
        // Again, from where the cache is now.
        let elsewhere = FrameNumber(0x80000 + scattered(place) % LARGE);
        frames.free_run(elsewhere, 1).unwrap();
        let (words, found) = touched(|| frames.allocate(&cache));
        assert_eq!(found, Some(elsewhere));
        assert!(words <= BOUND, "{words} words");
    }
}

/// A run costs a look at each word with a free frame, twice at the most, and at none of the full ones.
#[test]
fn a_run_passes_over_full_memory() {
    let bank = range(0x80000, 0x80000 + SIZES[3]);
    let storage = storage(&[bank]);
    let mut setup = Setup::new(&[bank], &storage).unwrap();
    setup.occupy(bank);
    let frames = setup.finish();
    // One word in 4,096 has two free frames that do not touch; the last has a run.
    let words_with_free = SIZES[3] / 64 / 4096;
    for word in 0..words_with_free {
        for bit in [3, 17] {
            frames.free_run(FrameNumber(0x80000 + word * 64 * 4096 + bit), 1).unwrap();
        }
    }
    frames.free_run(FrameNumber(bank.end.0 - 5), 3).unwrap();
    let (words, found) = touched(|| frames.allocate_run(3, 1));
    assert_eq!(found, Some(FrameNumber(bank.end.0 - 5)));
    // The summary leads from one to the next: seven words each way.
    assert!(words <= 8 * words_with_free, "{words} words for {words_with_free} that are not full");
    let (words, found) = touched(|| frames.allocate_run(2, 1));
    assert_eq!(found, None);
    assert!(words <= 16 * words_with_free, "{words} words for {words_with_free} that are not full");
}
