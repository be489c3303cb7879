//! Tests.

use core::cell::Cell;
use std::thread_local;
use std::vec::Vec;

use crate::atomic::AtomicU64;
use crate::{Cache, FrameNumber, FrameRange, FreeError, Setup, State, words_needed};

thread_local! {
    static TOUCHES: Cell<usize> = const { Cell::new(0) };
}

pub fn count_touch() {
    TOUCHES.set(TOUCHES.get() + 1);
}

fn range(start: usize, end: usize) -> FrameRange {
    FrameRange { start: FrameNumber(start), end: FrameNumber(end) }
}

fn storage(banks: &[FrameRange]) -> Vec<AtomicU64> {
    (0..words_needed(banks)).map(|_| AtomicU64::new(0x5555_aaaa_5555_aaaa)).collect()
}

#[test]
fn every_free_frame_is_given_out_once() {
    let banks = [range(100, 1000), range(1010, 1500)];
    let storage = storage(&banks);
    let mut setup = Setup::new(&banks, &storage).unwrap();
    setup.reserve(range(200, 300));
    setup.release(range(0, 5000));
    setup.occupy(range(250, 400));
    let frames = setup.finish();
    let cache = Cache::new();
    let mut got: Vec<FrameNumber> = std::iter::from_fn(|| frames.allocate(&cache)).collect();
    got.sort();
    let expected: Vec<_> = (100..200).chain(400..1000).chain(1010..1500).map(FrameNumber).collect();
    assert_eq!(got, expected);
    assert_eq!(frames.state(FrameNumber(300)), Some(State::InUse));
    assert_eq!(frames.free_run(FrameNumber(290), 20), Err(FreeError::Reserved(FrameNumber(290))));
    assert_eq!(frames.free_run(FrameNumber(300), 100), Ok(()));
    assert_eq!(frames.allocate_run(64, 64), Some(FrameNumber(320)));
}
