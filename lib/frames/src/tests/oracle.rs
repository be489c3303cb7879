//! What the allocator ought to do, in the simplest way: a map from every frame in a bank to its state.

use std::collections::BTreeMap;
use std::vec::Vec;

use crate::State::{Free, InUse, Reserved};
use crate::{FrameNumber, FrameRange, FreeError, State};

/// The state of every frame in a bank.
pub struct Oracle(pub BTreeMap<usize, State>);

/// A call while memory is set up.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    Release(FrameRange),
    Occupy(FrameRange),
    Reserve(FrameRange),
}

impl Oracle {
    pub fn new(banks: &[FrameRange], told: &[Told]) -> Self {
        let frames = banks.iter().flat_map(|bank| bank.start.0..bank.end.0);
        let state = |frame| {
            let is_in = |range: &FrameRange| range.contains(FrameNumber(frame));
            let is_reserved =
                told.iter().any(|told| matches!(told, Told::Reserve(range) if is_in(range)));
            let is_occupied =
                told.iter().any(|told| matches!(told, Told::Occupy(range) if is_in(range)));
            let is_released =
                told.iter().any(|told| matches!(told, Told::Release(range) if is_in(range)));
            match (is_reserved, is_occupied, is_released) {
                (true, ..) | (_, false, false) => Reserved,
                (_, true, _) => InUse,
                (_, _, true) => Free,
            }
        };
        Oracle(frames.map(|frame| (frame, state(frame))).collect())
    }

    pub fn count(&self, state: State) -> usize {
        self.0.values().filter(|it| **it == state).count()
    }

    pub fn all(&self, state: State) -> Vec<FrameNumber> {
        self.0
            .iter()
            .filter(|(_, it)| **it == state)
            .map(|(frame, _)| FrameNumber(*frame))
            .collect()
    }

    /// Whether `count` frames from one on are free.
    pub fn is_free_run(&self, first: usize, count: usize) -> bool {
        (first..first + count).all(|frame| self.0.get(&frame) == Some(&Free))
    }

    /// Whether there is a free run anywhere.
    pub fn has_run(&self, count: usize, alignment: usize) -> bool {
        let (mut start, mut end) = (0, 0);
        self.0.iter().filter(|(_, state)| **state == Free).any(|(frame, _)| {
            if *frame != end {
                start = frame.next_multiple_of(alignment);
            }
            end = frame + 1;
            start + count <= end
        })
    }

    pub fn set(&mut self, first: usize, count: usize, state: State) {
        for frame in first..first + count {
            *self.0.get_mut(&frame).unwrap() = state;
        }
    }

    /// Frees a run, or says which frame of it is the first that cannot be freed, and why.
    pub fn free_run(&mut self, first: usize, count: usize) -> Result<(), FreeError> {
        for frame in (0..count).map(|index| first.wrapping_add(index)) {
            match self.0.get(&frame) {
                Some(InUse) => {}
                Some(Free) => return Err(FreeError::Free(FrameNumber(frame))),
                Some(Reserved) => return Err(FreeError::Reserved(FrameNumber(frame))),
                None => return Err(FreeError::Foreign(FrameNumber(frame))),
            }
        }
        self.set(first, count, Free);
        Ok(())
    }
}
