//! What can be wrong with a request.

use core::fmt;

use crate::FrameNumber;

/// Why something was not freed. Nothing has changed then.
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
        match self {
            FreeError::Unaligned(address) => write!(f, "no frame starts at {address:#x}"),
            FreeError::Foreign(frame) => {
                write!(f, "the frame at {frame} lies in no bank of memory")
            }
            FreeError::Reserved(frame) => {
                write!(f, "the frame at {frame} is reserved and was never given out")
            }
            FreeError::Free(frame) => {
                write!(f, "the frame at {frame} is free already, or was never allocated")
            }
        }
    }
}

impl core::error::Error for FreeError {}

/// Why there can be no allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// No bank has a whole frame.
    NoMemory,
    /// The bank that starts here does not lie behind the one before it.
    Unsorted(FrameNumber),
    /// The storage is too small.
    Storage {
        /// Words that [`words_needed`](crate::words_needed) asks for.
        needed: usize,
        /// Words there are.
        given: usize,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            SetupError::NoMemory => write!(f, "no bank of memory has a whole frame"),
            SetupError::Unsorted(start) => {
                write!(f, "the bank at {start} does not lie behind the one before it")
            }
            SetupError::Storage { needed, given } => {
                write!(f, "the bitmap needs {needed} words of storage, {given} are given")
            }
        }
    }
}

impl core::error::Error for SetupError {}
