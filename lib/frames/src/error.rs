//! What can be wrong with a request.

use core::fmt;

use crate::FrameNumber;

/// Why something was not freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// No frame starts at this physical address.
    Unaligned(usize),
    /// The frame lies in no bank of memory: before, between or behind them.
    Foreign(FrameNumber),
    /// The frame is reserved: it was never given out.
    Reserved(FrameNumber),
    /// The frame is free: it was freed before, or never allocated.
    Free(FrameNumber),
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (frame, what) = match self {
            FreeError::Unaligned(address) => return write!(f, "no frame starts at {address:#x}"),
            FreeError::Foreign(frame) => (frame, "lies in no bank of memory"),
            FreeError::Reserved(frame) => (frame, "is reserved and was never given out"),
            FreeError::Free(frame) => (frame, "is free already, or was never allocated"),
        };
        write!(f, "the frame at {frame} {what}")
    }
}

impl core::error::Error for FreeError {}

/// There is less storage than [`words_needed`](crate::words_needed) asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageTooSmall {
    /// Words that are needed.
    pub needed: usize,
    /// Words that are given.
    pub given: usize,
}

impl fmt::Display for StorageTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} words of storage for the frames, {} are needed", self.given, self.needed)
    }
}

impl core::error::Error for StorageTooSmall {}
