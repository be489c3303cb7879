//! Physical memory.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ::frames::{FrameNumber, FreeError, State};
use arrayvec::ArrayVec;

use super::{Ended, Outcome, ensure, ensure_eq, held, on_every_hart, self_test};
use crate::vm::{self, PAGE};
use crate::{frame, image, platform, probe, symbols};

/// The word at the beginning of a frame.
fn word(frame: FrameNumber) -> &'static AtomicU64 {
    let address = core::ptr::without_provenance::<AtomicU64>(vm::direct(frame.address()));
    // SAFETY: the frame is this test's, and the direct map shows it (VM-2).
    unsafe { &*address }
}

fn allocate() -> Result<FrameNumber, Ended> {
    frame::allocate().ok_or(Ended::Skipped("there is no memory"))
}

self_test!(claim 22, quick, a_frame_is_given_out_once);
fn a_frame_is_given_out_once() -> Outcome {
    let mut frames = ArrayVec::<FrameNumber, 200>::new();
    while !frames.is_full() {
        frames.push(allocate()?);
    }
    for (index, frame) in frames.iter().enumerate() {
        word(*frame).store(index as u64, Ordering::Relaxed);
        ensure_eq!(frame::state(*frame), Some(State::InUse));
    }
    for (index, frame) in frames.iter().enumerate() {
        ensure_eq!(word(*frame).load(Ordering::Relaxed), index as u64);
        ensure_eq!(frame::free(*frame), Ok(()));
        ensure_eq!(frame::state(*frame), Some(State::Free));
    }
    Ok(())
}

self_test!(claim 23, quick, a_double_free_is_an_error_that_names_the_frame);
fn a_double_free_is_an_error_that_names_the_frame() -> Outcome {
    let frame = allocate()?;
    ensure_eq!(frame::free(frame), Ok(()));
    let before = frame::statistics();
    ensure_eq!(frame::free(frame), Err(FreeError::Free(frame)));
    ensure_eq!(frame::free_run(frame, 1), Err(FreeError::Free(frame)));
    ensure_eq!(frame::statistics(), before);
    Ok(())
}

self_test!(claim 23, an_address_inside_a_frame_cannot_be_freed);
fn an_address_inside_a_frame_cannot_be_freed() -> Outcome {
    let frame = allocate()?;
    let address = frame.address() + 8;
    ensure_eq!(frame::free_address(address), Err(FreeError::Unaligned(address)));
    ensure_eq!(frame::state(frame), Some(State::InUse));
    ensure_eq!(frame::free_address(frame.address()), Ok(()));
    Ok(())
}

self_test!(claim 23, what_is_no_memory_cannot_be_freed);
fn what_is_no_memory_cannot_be_freed() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    let last = machine.banks.last().expect("a machine has memory").range.end() as usize;
    for address in [0, PAGE, last.next_multiple_of(PAGE), 1 << 50, usize::MAX / PAGE * PAGE] {
        let frame = FrameNumber::containing(address);
        ensure_eq!(frame::free(frame), Err(FreeError::Foreign(frame)));
    }
    Ok(())
}

self_test!(claim 23, reserved_memory_cannot_be_freed);
fn reserved_memory_cannot_be_freed() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    let reserved = machine.reservations().map(|reservation| reservation.range.start() as usize);
    let own = [vm::physical_of_image(image::start()), platform::tree().start() as usize];
    for address in reserved.chain(own) {
        let frame = FrameNumber::containing(address);
        ensure_eq!(frame::free(frame), Err(FreeError::Reserved(frame)));
    }
    Ok(())
}

self_test!(claim 24, runs_are_contiguous_and_aligned);
fn runs_are_contiguous_and_aligned() -> Outcome {
    for (count, alignment) in [(1, 1), (3, 1), (64, 64), (65, 2), (513, 512), (2000, 1)] {
        let Some(first) = frame::allocate_run(count, alignment) else {
            return Err(Ended::Skipped("there is no memory"));
        };
        ensure!(
            first.0.is_multiple_of(alignment),
            "a run aligned to {alignment} begins at {first}"
        );
        for frame in (first.0..first.0 + count).map(FrameNumber) {
            ensure_eq!(frame::state(frame), Some(State::InUse));
        }
        ensure_eq!(frame::free_run(first, count), Ok(()));
    }
    Ok(())
}

self_test!(claim 24, a_run_is_freed_whole_or_not_at_all);
fn a_run_is_freed_whole_or_not_at_all() -> Outcome {
    let Some(first) = frame::allocate_run(100, 1) else {
        return Err(Ended::Skipped("there is no memory"));
    };
    let hole = FrameNumber(first.0 + 70);
    ensure_eq!(frame::free(hole), Ok(()));
    ensure_eq!(frame::free_run(first, 100), Err(FreeError::Free(hole)));
    ensure_eq!(frame::state(first), Some(State::InUse));
    ensure_eq!(frame::free_run(first, 70), Ok(()));
    ensure_eq!(frame::free_run(FrameNumber(hole.0 + 1), 29), Ok(()));
    Ok(())
}

self_test!(claim 25, every_free_frame_can_be_allocated_tagged_and_freed);
fn every_free_frame_can_be_allocated_tagged_and_freed() -> Outcome {
    let _held = held::all_but_a_sample()?;
    let before = frame::statistics();
    // Each frame holds the number of the one before: the list of them needs no other memory.
    let mut last = 0_usize;
    let mut count = 0;
    while let Some(frame) = frame::allocate() {
        word(frame).store(last as u64, Ordering::Relaxed);
        last = frame.0;
        count += 1;
    }
    ensure_eq!(count, before.free);
    ensure_eq!(frame::statistics().free, 0);
    ensure_eq!(frame::allocate_run(1, 1), None);
    while last != 0 {
        let frame = FrameNumber(last);
        last = word(frame).load(Ordering::Relaxed) as usize;
        ensure_eq!(frame::free(frame), Ok(()));
        count -= 1;
    }
    ensure_eq!(count, 0);
    ensure_eq!(frame::statistics(), before);
    Ok(())
}

self_test!(claim 26, a_zeroed_frame_holds_only_zeros);
fn a_zeroed_frame_holds_only_zeros() -> Outcome {
    for _ in 0..4 {
        let frame = allocate()?;
        let address = vm::direct(frame.address());
        for offset in (0..PAGE).step_by(8) {
            // SAFETY: the frame is this test's.
            let written = unsafe { probe::write(address + offset, u64::MAX) };
            ensure_eq!(written, Ok(()));
        }
        frame::zero(frame);
        for offset in (0..PAGE).step_by(8) {
            ensure_eq!(probe::read(address + offset), Ok(0));
        }
        ensure_eq!(frame::free(frame), Ok(()));
    }
    Ok(())
}

#[cfg(feature = "checked")]
self_test!(claim 27, a_freed_frame_is_filled);
#[cfg(feature = "checked")]
fn a_freed_frame_is_filled() -> Outcome {
    let frame = allocate()?;
    word(frame).store(7, Ordering::Relaxed);
    ensure_eq!(frame::free(frame), Ok(()));
    ensure_eq!(word(frame).load(Ordering::Relaxed), frame::FREE_PATTERN);
    Ok(())
}

self_test!(claim 28, memory_before_the_image_is_used);
fn memory_before_the_image_is_used() -> Outcome {
    let first = vm::physical_of_image(image::start()) / PAGE;
    let gap = (first.saturating_sub(64)..first).map(FrameNumber);
    let usable = gap.filter(|frame| frame::state(*frame) == Some(State::Free)).count();
    ensure!(usable > 0, "none of the 64 frames before the image is free");
    Ok(())
}

self_test!(claim 28, the_first_page_table_is_given_back);
fn the_first_page_table_is_given_back() -> Outcome {
    let Some(tables) = symbols::by_name("kernel::vm::BOOT_TABLES") else {
        return Err(Ended::Skipped("the image has no symbols"));
    };
    for address in (tables.address as usize..).step_by(PAGE).take(tables.size as usize / PAGE) {
        ensure_eq!(vm::lookup(address), None);
        let frame = FrameNumber::containing(vm::physical_of_image(address));
        let state = frame::state(frame);
        ensure!(state != Some(State::Reserved), "the frame at {frame} is still reserved");
    }
    Ok(())
}

self_test!(claim 29, memory_that_must_not_be_mapped_is_neither_mapped_nor_used);
fn memory_that_must_not_be_mapped_is_neither_mapped_nor_used() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    for reservation in machine.reservations().filter(|reservation| reservation.no_map) {
        for address in [reservation.range.start() as usize, reservation.range.end() as usize - 8] {
            // Not a read: the firmware's own protection may refuse it too.
            ensure_eq!(vm::lookup(vm::direct(address)), None);
            let frame = FrameNumber::containing(address);
            ensure_eq!(frame::state(frame), Some(State::Reserved));
        }
    }
    Ok(())
}

self_test!(claim 22, harts 2, harts_never_share_a_frame);
fn harts_never_share_a_frame() -> Outcome {
    static SHARED: AtomicUsize = AtomicUsize::new(0);
    fn storm(cpu: usize) {
        for round in 0..200 {
            let mut frames = ArrayVec::<FrameNumber, 40>::new();
            while let Ok(()) = frame::allocate().map_or(Err(()), |frame| {
                frames.try_push(frame).map_err(|full| {
                    frame::free(full.element()).expect("it was just allocated");
                })
            }) {}
            let tag = (cpu << 32 | round) as u64;
            frames.iter().for_each(|frame| word(*frame).store(tag, Ordering::Relaxed));
            for frame in frames {
                if word(frame).load(Ordering::Relaxed) != tag {
                    SHARED.fetch_add(1, Ordering::Relaxed);
                }
                frame::free(frame).expect("it was allocated here");
            }
        }
    }
    SHARED.store(0, Ordering::Relaxed);
    on_every_hart(storm)?;
    ensure_eq!(SHARED.load(Ordering::Relaxed), 0);
    Ok(())
}
