//! Frames and heap blocks.

use alloc::vec::Vec;
use core::alloc::Layout;

use arrayvec::ArrayVec;
use frames::{FrameNumber, FreeError};

use super::meter::REPETITIONS;
use super::{Meter, Outcome, row};
use crate::{frame, heap};

/// Frames that are allocated in a row where the common path is measured: half of what a hart's cache holds, so that each is in it.
const BATCH: usize = 32;
/// Batches of a row.
const BATCHES: usize = 100;

/// Frames that are allocated in a row, then freed, where every cache is exhausted.
const BULK: usize = 4_096;
/// How many of them are in one list.
const LIST: usize = 2_048 / size_of::<(FrameNumber, u64)>();
/// How often.
const BULKS: usize = 4;

const NO_MEMORY: &str = "there is no memory";

type Batch = ArrayVec<FrameNumber, BATCH>;

/// Fills a batch with `allocate` and empties it with `free`, again and again.
fn batches(
    meter: &mut Meter,
    allocate: impl Fn(&mut Meter) -> Option<FrameNumber>,
    free: impl Fn(&mut Meter, FrameNumber),
) -> Outcome {
    let mut complete = true;
    meter.rounds(BATCHES, |meter| {
        let batch: Batch = (0..BATCH).filter_map(|_| allocate(meter)).collect();
        complete &= batch.is_full();
        batch.into_iter().for_each(|frame| free(meter, frame));
    });
    if complete { Ok(()) } else { Err(NO_MEMORY) }
}

/// What is freed was just allocated.
fn freed(result: Result<(), FreeError>) {
    result.expect("it was just allocated");
}

row!(frame_alloc);
fn frame_alloc(meter: &mut Meter) -> Outcome {
    batches(meter, |meter| meter.time(frame::allocate), |_, frame| freed(frame::free(frame)))
}

row!(frame_free);
fn frame_free(meter: &mut Meter) -> Outcome {
    let free = |meter: &mut Meter, frame| freed(meter.time(|| frame::free(frame)));
    batches(meter, |_| frame::allocate(), free)
}

row!(frame_alloc_zeroed);
fn frame_alloc_zeroed(meter: &mut Meter) -> Outcome {
    let allocate = |meter: &mut Meter| meter.time(frame::allocate_zeroed);
    batches(meter, allocate, |_, frame| freed(frame::free(frame)))
}

row!(frame_bulk_pair);
fn frame_bulk_pair(meter: &mut Meter) -> Outcome {
    // In lists of half a page each: memory may be in pieces.
    let mut lists = [const { Vec::<(FrameNumber, u64)>::new() }; BULK / LIST];
    for list in &mut lists {
        list.try_reserve_exact(LIST).map_err(|_| NO_MEMORY)?;
    }
    let mut complete = true;
    meter.rounds(BULKS, |meter| {
        for list in &mut lists {
            for _ in 0..LIST {
                let (frame, allocating) = meter.count(frame::allocate);
                list.extend(frame.map(|frame| (frame, allocating)));
            }
            complete &= list.len() == LIST;
        }
        for list in &mut lists {
            for (frame, allocating) in list.drain(..) {
                let (result, freeing) = meter.count(|| frame::free(frame));
                freed(result);
                meter.add(allocating + freeing);
            }
        }
    });
    if complete { Ok(()) } else { Err(NO_MEMORY) }
}

row!(kmalloc_64_pair);
fn kmalloc_64_pair(meter: &mut Meter) -> Outcome {
    const LAYOUT: Layout = Layout::new::<[u64; 8]>();
    let mut complete = true;
    meter.rounds(REPETITIONS, |meter| {
        let (block, allocating) = meter.count(|| heap::allocate(LAYOUT));
        let Ok(block) = block else {
            complete = false;
            return;
        };
        let (result, freeing) = meter.count(|| heap::free(block, LAYOUT));
        result.expect("it was just allocated");
        meter.add(allocating + freeing);
    });
    if complete { Ok(()) } else { Err(NO_MEMORY) }
}
