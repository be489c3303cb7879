//! What can be wrong with a tree: errors stop a boot, warnings do not.

use core::fmt;

/// Why no machine can be made of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error<'a> {
    /// The bytes are no flattened device tree, or a damaged one.
    Malformed {
        /// Where, in bytes from the blob's start.
        offset: usize,
        /// The number that is there, 0 after the end.
        found: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no memory that can be used. With what was wrong with memory, if any is described.
    NoMemory(Option<Warning<'a>>),
    /// A reservation says a place that cannot be read: what it reserves would be used. With what is wrong with it.
    Reservation(Warning<'a>),
    /// There is no hart that can be used. With what was wrong last, if anything was.
    NoHart(Option<Warning<'a>>),
    /// Neither `/cpus` nor a node in it has a `timebase-frequency` above 0.
    NoTimebase,
}

impl Error<'_> {
    pub(crate) fn malformed(offset: usize, found: usize, problem: &'static str) -> Self {
        Error::Malformed { offset, found, problem }
    }
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (what, warning) = match self {
            Error::Malformed { offset, found, problem } => {
                return write!(
                    f,
                    "malformed device tree: {found:#x} at byte {offset:#x} {problem}"
                );
            }
            Error::Reservation(warning) => {
                return write!(f, "a reservation in the device tree cannot be read: {warning}");
            }
            Error::NoMemory(warning) => ("no usable memory in the device tree", warning),
            Error::NoHart(warning) => ("no usable hart in the device tree", warning),
            Error::NoTimebase => {
                ("no timebase-frequency above 0 in the device tree's /cpus", &None)
            }
        };
        f.write_str(what)?;
        warning.map_or(Ok(()), |warning| write!(f, "; {warning}"))
    }
}

impl core::error::Error for Error<'_> {}

/// Something that the tree should say otherwise, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning<'a> {
    /// The node's name with its unit address.
    pub node: &'a str,
    /// How many more times in a row there was the same problem.
    pub more: u32,
    /// The property that it is about.
    pub property: &'static str,
    /// The number that is wrong, if it is a number.
    pub value: Option<u64>,
    /// What is wrong, and what is done instead.
    pub problem: &'static str,
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        if !self.property.is_empty() {
            write!(f, "{} ", self.property)?;
        }
        if let Some(value) = self.value {
            write!(f, "{value:#x} ")?;
        }
        f.write_str(self.problem)?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " (and {more} more times)"),
        }
    }
}
