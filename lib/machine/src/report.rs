//! What can be wrong with a tree: errors, which stop a boot, and warnings, which do not.

use core::fmt;

/// Why no machine can be made of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error<'a> {
    /// The blob is shorter than its header.
    Short {
        /// Bytes there are.
        length: usize,
    },
    /// The blob does not begin as a flattened device tree does.
    Magic {
        /// What is there instead of 0xd00dfeed.
        found: u32,
    },
    /// The format is too old, or too new to be compatible with version 17.
    Version {
        /// The blob's version.
        version: u32,
        /// The oldest version that it says it is compatible with.
        compatible: u32,
    },
    /// The header's total size cannot be.
    TotalSize {
        /// What it says, in bytes.
        size: usize,
    },
    /// There are fewer bytes than the header says.
    CutShort {
        /// What it says, in bytes.
        size: usize,
        /// Bytes there are.
        length: usize,
    },
    /// A block lies outside the blob, in whole or in part.
    Block {
        /// Which.
        name: &'static str,
        /// Where it begins, in bytes from the blob's start.
        start: usize,
    },
    /// The memory reservation block has no end inside the blob.
    ReservationMap,
    /// The structure block is malformed.
    Structure {
        /// Where, in bytes from the block's start.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// The tree has no memory that can be used.
    NoMemory {
        /// The first thing that was wrong with memory, if anything was there.
        warning: Option<Warning<'a>>,
    },
    /// The tree has no hart that can be used.
    NoHart {
        /// The first thing that was wrong so far, if anything was.
        warning: Option<Warning<'a>>,
    },
    /// Neither `/cpus` nor a node in it has a `timebase-frequency` above 0.
    NoTimebase,
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Error::Short { length } => write!(
                f,
                "the device tree has {length} bytes, its header alone has 40"
            ),
            Error::Magic { found } => write!(
                f,
                "this is no device tree: it begins with {found:#010x}, not 0xd00dfeed"
            ),
            Error::Version {
                version,
                compatible,
            } => {
                write!(
                    f,
                    "the device tree has version {version}, readable as {compatible}; known here is 17"
                )
            }
            Error::TotalSize { size } => {
                write!(
                    f,
                    "the device tree's header gives {size} bytes in all; 40 to {} can be",
                    crate::MAXIMUM_BLOB_SIZE
                )
            }
            Error::CutShort { size, length } => {
                write!(
                    f,
                    "the device tree is cut short: {length} bytes of the {size} in its header"
                )
            }
            Error::Block { name, start } => {
                write!(
                    f,
                    "the device tree's {name} block at byte {start:#x} is not inside it"
                )
            }
            Error::ReservationMap => {
                write!(f, "the device tree's memory reservation block does not end")
            }
            Error::Structure { offset, problem } => {
                write!(
                    f,
                    "the device tree's structure block, byte {offset:#x}: {problem}"
                )
            }
            Error::NoMemory { warning } => because(f, "no memory in the device tree", warning),
            Error::NoHart { warning } => because(f, "no usable hart in the device tree", warning),
            Error::NoTimebase => write!(
                f,
                "/cpus has no timebase-frequency above 0, nor has a cpu in it"
            ),
        }
    }
}

fn because(f: &mut fmt::Formatter, what: &str, warning: Option<Warning>) -> fmt::Result {
    match warning {
        Some(warning) => write!(f, "{what}: {warning}"),
        None => write!(f, "{what}"),
    }
}

impl core::error::Error for Error<'_> {}

/// Something that the tree should say otherwise, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning<'a> {
    /// The node's name with its unit address.
    pub node: &'a str,
    /// The property, or empty where it is about the node as a whole.
    pub property: &'static str,
    /// What is wrong.
    pub problem: Problem,
    /// What was done instead.
    pub instead: &'static str,
    /// How many more nodes in a row have the same problem.
    pub more: u32,
}

impl Warning<'_> {
    /// Whether only the nodes differ.
    pub(crate) fn is_like(&self, other: &Warning) -> bool {
        (self.property, self.problem, self.instead)
            == (other.property, other.problem, other.instead)
    }
}

/// What is wrong with a node or a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is not there.
    Missing,
    /// It has so many bytes, which is not what its kind has.
    Length(usize),
    /// It has this value, which cannot be or is not known.
    Value(u64),
    /// It has a value that does not fit 64 bits, cannot be or is not known.
    Unknown,
    /// It describes what another node described before, in whole or in part.
    Again,
    /// Its address cannot be reached: a bus above has no `ranges` that would translate it.
    Unreachable,
    /// There is no driver for it.
    NotDriven,
    /// It is smaller than its kind of device, with so many bytes.
    TooSmall(u64),
    /// There is no room for it.
    TooMany,
    /// There is no room for so many.
    LeftOut(usize),
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Warning {
            node,
            property,
            problem,
            instead,
            more,
        } = self;
        write!(f, "{node}")?;
        if *more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str(": ")?;
        if !property.is_empty() {
            write!(f, "{property} ")?;
        }
        match problem {
            Problem::Missing => write!(f, "is missing"),
            Problem::Length(bytes) => write!(f, "has {bytes} bytes"),
            Problem::Value(value) => write!(f, "is {value:#x}"),
            Problem::Unknown => write!(f, "has an unknown value"),
            Problem::Again => write!(f, "is there already"),
            Problem::Unreachable => write!(f, "is not translated by the buses above"),
            Problem::NotDriven => write!(f, "has no driver"),
            Problem::TooSmall(bytes) => write!(f, "has room for {bytes:#x} bytes only"),
            Problem::TooMany => write!(f, "is one too many"),
            Problem::LeftOut(count) => write!(f, "has {count} too many"),
        }?;
        write!(f, "; {instead}")
    }
}
