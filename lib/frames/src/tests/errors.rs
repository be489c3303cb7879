//! Each error by example, and the set-up.

use std::string::ToString;
use std::vec::Vec;

use super::{all_free, range, storage};
use crate::atomic::AtomicU64;
use crate::{
    Cache, FRAME_BYTES, FrameNumber, FrameRange, FreeError, Setup, State, StorageTooSmall,
    words_needed,
};

#[test]
fn what_is_not_in_use_is_not_freed() {
    let banks = [range(100, 300), range(310, 400)];
    let storage = storage(&banks);
    let mut setup = Setup::new(&banks, &storage).unwrap();
    setup.release(range(0, 1000));
    setup.reserve(range(150, 200));
    let frames = setup.finish();
    let cache = Cache::new();
    let frame = frames.allocate(&cache).unwrap();
    let before = frames.statistics();
    let never_allocated = if frame == FrameNumber(120) { 121 } else { 120 };
    for (wrong, error) in [
        (never_allocated, FreeError::Free(FrameNumber(never_allocated))),
        (150, FreeError::Reserved(FrameNumber(150))),
        (99, FreeError::Foreign(FrameNumber(99))),
        (305, FreeError::Foreign(FrameNumber(305))),
        (400, FreeError::Foreign(FrameNumber(400))),
        (usize::MAX, FreeError::Foreign(FrameNumber(usize::MAX))),
    ] {
        assert_eq!(frames.free(&cache, FrameNumber(wrong)), Err(error));
        assert_eq!(frames.free_run(FrameNumber(wrong), 1), Err(error));
        assert_eq!(frames.statistics(), before);
    }
    assert_eq!(
        frames.free_address(&cache, frame.address() + 8),
        Err(FreeError::Unaligned(frame.address() + 8))
    );
    assert_eq!(frames.state(frame), Some(State::InUse));
    assert_eq!(frames.free_address(&cache, frame.address()), Ok(()));
    assert_eq!(frames.free(&cache, frame), Err(FreeError::Free(frame)));
}

#[test]
fn a_run_is_freed_as_a_whole_or_not_at_all() {
    let banks = [range(0, 1000)];
    let storage = storage(&banks);
    let frames = all_free(&banks, &storage);
    let first = frames.allocate_run(300, 128).unwrap();
    let hole = FrameNumber(first.0 + 200);
    assert_eq!(frames.free(&Cache::new(), hole), Ok(()));
    let before = frames.statistics();
    assert_eq!(frames.free_run(first, 300), Err(FreeError::Free(hole)));
    assert_eq!(frames.free_run(first, 5000), Err(FreeError::Free(hole)));
    assert_eq!(frames.free_run(first, usize::MAX), Err(FreeError::Free(hole)));
    assert_eq!(frames.statistics(), before);
    assert_eq!(frames.free_run(first, 200), Ok(()));
    assert_eq!(frames.free_run(FrameNumber(first.0 + 201), 99), Ok(()));
    assert_eq!(frames.statistics().free, 1000);
    assert_eq!(frames.free_run(first, 0), Ok(()));
}

#[test]
fn memory_that_the_boot_needed_is_given_back() {
    let banks = [range(0, 500)];
    let storage = storage(&banks);
    let mut setup = Setup::new(&banks, &storage).unwrap();
    setup.occupy(range(64, 300));
    setup.release(range(0, 500));
    let frames = setup.finish();
    assert_eq!(frames.statistics().in_use, 236);
    assert_eq!(frames.free_run(FrameNumber(64), 236), Ok(()));
    assert_eq!(frames.statistics().free, 500);
}

#[test]
fn errors_name_the_address() {
    let frame = FrameNumber(0x80200);
    assert_eq!(
        FreeError::Free(frame).to_string(),
        "the frame at 0x80200000 is free already, or was never allocated"
    );
    assert_eq!(
        FreeError::Reserved(frame).to_string(),
        "the frame at 0x80200000 is reserved and was never given out"
    );
    assert_eq!(
        FreeError::Foreign(frame).to_string(),
        "the frame at 0x80200000 lies in no bank of memory"
    );
    assert_eq!(FreeError::Unaligned(0x80200008).to_string(), "no frame starts at 0x80200008");
}

#[test]
fn set_up_is_refused_without_storage() {
    let storage: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
    let refusal = |banks: &[FrameRange]| Setup::new(banks, &storage).err();
    let large = [range(0, 1 << 44)];
    let error = StorageTooSmall { needed: words_needed(&large), given: 100 };
    assert_eq!(refusal(&large), Some(error));
    assert_eq!(refusal(&[range(25, 30), range(0, 10), range(10, 20), range(70, 1)]), None);
}

#[test]
fn memory_without_a_frame_is_exhausted() {
    let banks = [range(5, 5), range(9, 8)];
    let storage = storage(&banks);
    let frames = all_free(&banks, &storage);
    assert_eq!(frames.allocate(&Cache::new()), None);
    assert_eq!(frames.allocate_run(1, 1), None);
    assert_eq!(frames.free(&Cache::new(), FrameNumber(5)), Err(FreeError::Foreign(FrameNumber(5))));
}

#[test]
fn storage_is_about_a_byte_for_four_frames() {
    assert_eq!(words_needed(&[range(0x80000, 0x80000 + 8192)]), 262);
    assert_eq!(words_needed(&[range(0x80000, 0x80000 + 32768)]), 1036);
    assert_eq!(words_needed(&[range(0x80000, 0x80000 + (64 << 18))]), 528_451);
}

#[test]
fn ranges_of_addresses_are_rounded() {
    let page = FRAME_BYTES;
    assert_eq!(FrameRange::inside(1..3 * page - 1), range(1, 2));
    assert_eq!(FrameRange::inside(0..3 * page), range(0, 3));
    assert!(FrameRange::inside(1..page).is_empty());
    assert!(FrameRange::inside(page + 1..page + 2).is_empty());
    assert_eq!(FrameRange::touching(1..3 * page - 1), range(0, 3));
    assert_eq!(FrameRange::touching(page..page + 1), range(1, 2));
    assert!(FrameRange::touching(page + 1..page + 1).is_empty());
    assert_eq!(FrameNumber::starting_at(0x8020_0000), Some(FrameNumber(0x80200)));
    assert_eq!(FrameNumber::starting_at(0x8020_0001), None);
}
