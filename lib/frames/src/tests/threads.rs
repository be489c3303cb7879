//! Harts as threads of the host.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::thread;
use std::vec::Vec;

use super::{all_free, range, storage};
use crate::{Cache, FrameNumber, FreeError};

/// Few frames, many harts, memory exhausted again and again: no frame is ever given to two, and none is lost.
#[test]
fn a_frame_has_one_owner() {
    const ROUNDS: usize = 20_000;
    let banks = [range(60, 150), range(200, 210)];
    let storage = storage(&banks);
    let frames = all_free(&banks, &storage);
    let owned: Vec<AtomicBool> = (0..210).map(|_| AtomicBool::new(false)).collect();
    let shared = Cache::new();
    let work = |hart: usize| {
        let own = Cache::new();
        let mut held = Vec::new();
        let mut random = hart + 1;
        for round in 0..ROUNDS {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let cache = if random >> 40 & 3 == 0 { &shared } else { &own };
            let count = random >> 33 & 7;
            if random >> 50 & 1 == 0 {
                if count == 7 {
                    if let Some(first) = frames.allocate_run(5, 1) {
                        held.extend((first.0..first.0 + 5).map(FrameNumber));
                        for frame in &held[held.len() - 5..] {
                            assert!(!owned[frame.0].swap(true, AcqRel), "{frame} has two owners");
                        }
                    }
                } else if let Some(frame) = frames.allocate(cache) {
                    assert!(!owned[frame.0].swap(true, AcqRel), "{frame} has two owners");
                    held.push(frame);
                }
            } else if !held.is_empty() {
                let frame = held.swap_remove(round % held.len());
                assert!(owned[frame.0].swap(false, AcqRel));
                frames.free(cache, frame).unwrap();
            }
        }
        for frame in held {
            assert!(owned[frame.0].swap(false, AcqRel));
            frames.free(&own, frame).unwrap();
        }
    };
    thread::scope(|scope| {
        for hart in 0..4 {
            scope.spawn(move || work(hart));
        }
    });
    assert_eq!(frames.statistics().free, 100);
    // Every word with a free frame is known to the summary.
    for (index, [free, _]) in frames.bitmap.words.iter().enumerate() {
        let is_known = frames.bitmap.summary[0][0].load(Relaxed) >> index & 1 != 0;
        assert!(is_known || free.load(Relaxed) == 0, "word {index}");
    }
    let cache = Cache::new();
    assert_eq!(core::iter::from_fn(|| frames.allocate(&cache)).count(), 100);
}

/// Of harts that free the same frame, one succeeds.
#[test]
fn a_double_free_is_found_on_whichever_hart() {
    let banks = [range(0, 64)];
    let storage = storage(&banks);
    let frames = all_free(&banks, &storage);
    let caches = [const { Cache::new() }; 4];
    for _ in 0..300 {
        let frame = frames.allocate(&caches[0]).unwrap();
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                caches.iter().map(|cache| scope.spawn(|| frames.free(cache, frame))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(FreeError::Free(_)))));
        assert_eq!(frames.statistics().free, 64);
    }
}
