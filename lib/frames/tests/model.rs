//! Every interleaving of a few calls on two or three harts, and every value that a relaxed load may see: the allocator's own
//! source, with the model checker's atomics in place of the machine's.
//!
//! Within the checker's limits: a run has at most [`PREEMPTIONS`] preemptions, and [`Cache`]'s hints are not modelled (they
//! decide nothing).

#![allow(missing_docs, dead_code, reason = "the library's modules, of which a test uses a part")]

#[path = "../src/bitmap.rs"]
mod bitmap;
#[path = "../src/cache.rs"]
mod cache;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/frame.rs"]
mod frame;
#[path = "../src/frames.rs"]
mod frames;
#[path = "../src/run.rs"]
mod run;
#[path = "../src/setup.rs"]
mod setup;

mod atomic {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

fn touch() {}

use cache::Cache;
use error::{FreeError, StorageTooSmall};
use frame::{FrameNumber, FrameRange};
use frames::{Frames, State};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use setup::{Setup, words_needed};

use atomic::AtomicU64;

/// How often a hart is interrupted by another, as long as it could go on.
const PREEMPTIONS: usize = 3;

/// The frames of two words, and what is in three of them at a time.
struct Memory {
    frames: Frames<'static>,
    contents: [UnsafeCell<u64>; 3],
}

impl Memory {
    /// The frames `free` are free, the others in use.
    fn new(free: &[usize]) -> Self {
        let bank = FrameRange { start: FrameNumber(0), end: FrameNumber(128) };
        let storage: Vec<AtomicU64> =
            (0..words_needed(&[bank])).map(|_| AtomicU64::new(0)).collect();
        let mut setup = Setup::new(&[bank], Box::leak(storage.into_boxed_slice())).unwrap();
        setup.occupy(bank);
        let frames = setup.finish();
        for frame in free {
            frames.free_run(FrameNumber(*frame), 1).unwrap();
        }
        Memory { frames, contents: std::array::from_fn(|_| UnsafeCell::new(0)) }
    }

    /// Uses a frame: the checker fails if another hart's use is not ordered before or after.
    fn write(&self, frame: usize) {
        // SAFETY: the model's own cell, which reports concurrent accesses.
        self.contents[frame % 3].with_mut(|content| unsafe { *content += 1 });
    }

    /// How often a frame was used.
    fn written(&self, frame: usize) -> u64 {
        // SAFETY: as in `write`.
        self.contents[frame % 3].with(|content| unsafe { *content })
    }

    /// Takes a certain frame and uses it, if it is free.
    fn take(&self, frame: usize) -> bool {
        let is_free = self.frames.bitmap.take(frame / 64, 1 << (frame % 64)) != 0;
        if is_free {
            self.write(frame);
        }
        is_free
    }

    fn free(&self, frame: usize) -> Result<(), FreeError> {
        self.write(frame);
        self.frames.free(&Cache::new(), FrameNumber(frame))
    }

    /// How many frames are free.
    fn free_frames(&self) -> usize {
        self.frames.statistics().free
    }

    /// How many of them the summary leads to.
    fn found_by_summary(&self) -> usize {
        self.frames.bitmap.find(0).map_or(0, |(_, bits)| bits.count_ones() as usize)
    }
}

/// Runs harts from a state of memory, in every way, and looks at the memory afterwards.
fn explore<const HARTS: usize>(
    free: &'static [usize],
    harts: [fn(&Memory); HARTS],
    after: fn(&Memory),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let memory = Arc::new(Memory::new(free));
        let threads = harts.map(|hart| {
            let memory = memory.clone();
            thread::spawn(move || hart(&memory))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        after(&memory);
    });
}

#[test]
fn a_frame_goes_to_one_hart_after_its_last_user_is_done() {
    let take_and_free = |memory: &Memory| {
        if memory.take(1) {
            memory.free(1).unwrap();
        }
    };
    explore(&[1], [take_and_free, take_and_free], |memory| {
        assert_eq!(memory.found_by_summary(), 1)
    });
}

/// One hart empties the word while another puts a frame into it.
#[test]
fn a_freed_frame_is_found_by_the_summary() {
    let allocate = |memory: &Memory| assert!(memory.frames.allocate(&Cache::new()).is_some());
    let free = |memory: &Memory| memory.free(0).unwrap();
    explore(&[1], [allocate, free], |memory| {
        assert_eq!(memory.free_frames(), 1);
        assert_eq!(memory.found_by_summary(), 1);
    });
}

#[test]
fn frames_freed_on_two_harts_are_found_by_the_summary() {
    explore(
        &[],
        [
            |memory| memory.free(0).unwrap(),
            |memory| memory.free(2).unwrap(),
            |memory| _ = memory.take(0),
        ],
        |memory| assert_eq!(memory.found_by_summary(), memory.free_frames()),
    );
}

/// A hart has freed a frame; another is still in the middle of freeing one in the same word. Memory is not exhausted.
#[test]
fn exhaustion_is_not_reported_while_a_frame_is_free() {
    let free_and_allocate = |memory: &Memory| {
        memory.free(2).unwrap();
        assert!(memory.frames.allocate(&Cache::new()).is_some(), "memory is said to be exhausted");
    };
    explore(&[], [|memory| memory.free(0).unwrap(), free_and_allocate], |memory| {
        assert_eq!(memory.found_by_summary(), 1);
    });
}

#[test]
fn one_of_two_frees_succeeds() {
    let free = |memory: &Memory| _ = memory.frames.free(&Cache::new(), FrameNumber(1));
    explore(&[], [free, free], |memory| {
        assert_eq!(memory.found_by_summary(), 1);
        assert_eq!(memory.frames.free_run(FrameNumber(1), 1), Err(FreeError::Free(FrameNumber(1))));
    });
}

/// Two frames in one word, and one at the end of a word with the first of the next.
#[test]
fn a_run_is_taken_as_a_whole_or_not_at_all() {
    fn allocate_run(memory: &Memory) {
        if let Some(first) = memory.frames.allocate_run(2, 1) {
            memory.write(first.0);
            memory.write(first.0 + 1);
        }
    }
    fn is_whole(memory: &Memory, first: usize) {
        let expected = if memory.written(first) == 1 { State::InUse } else { State::Free };
        assert_eq!(memory.frames.state(FrameNumber(first)), Some(expected));
        assert_eq!(memory.frames.state(FrameNumber(first + 1)), Some(State::InUse));
        assert_eq!(memory.found_by_summary(), memory.free_frames());
    }
    explore(&[0, 1], [allocate_run, |memory| _ = memory.take(1)], |memory| is_whole(memory, 0));
    explore(&[63, 64], [allocate_run, |memory| _ = memory.take(64)], |memory| is_whole(memory, 63));
}
