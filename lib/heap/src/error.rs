//! What can go wrong.

use core::fmt;

/// A free that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeError {
    /// What was to be freed. [`Heap::find`](crate::Heap::find) tells what is there.
    pub address: usize,
    /// Why it is not.
    pub problem: Problem,
}

/// Why an address cannot be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It is in no block of the heap's: never was, or the page was given back since.
    Foreign,
    /// It is inside a block, not where it begins.
    Inside,
    /// The block is free already.
    AlreadyFree,
    /// The block is not one that the layout gets: another size, or another alignment of whole pages.
    WrongLayout,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.problem {
            Problem::Foreign => "is in no block of the heap",
            Problem::Inside => "is not where its block begins",
            Problem::AlreadyFree => "is a block that is free already",
            Problem::WrongLayout => "is a block that was not allocated with this layout",
        };
        write!(f, "{:#018x} {why}", self.address)
    }
}

impl core::error::Error for FreeError {}
