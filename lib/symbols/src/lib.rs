//! The symbol table in the kernel's image: which function or static lies at an address.
//!
//! [`Table`] reads a table where it lies, without allocating and without a panic on any bytes, so that a crash report may
//! use it. The host writes it with `build::table` (feature `build`) after the link, when every address is final.
//!
//! All numbers are little-endian; nothing is aligned.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 8 | size of the whole table in bytes, these headers included |
//! | 16 | 8 | base: the address from which offsets count |
//! | 24 | 8 | number of entries |
//! | 32 | 12 each | entries, sorted by offset; their ranges do not overlap |
//! | then | the rest | the pool of names, UTF-8 |
//!
//! An entry is three 32-bit words: the offset of the symbol's first byte from the base; its size in bytes, with bit 31 set
//! for data; where its name starts in the pool (24 bits), with the name's length in bytes above (8 bits).
//!
//! The link leaves the first 16 bytes only, with their own size in them: a table that was never inserted.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "build")]
extern crate alloc;
#[cfg(feature = "build")]
pub mod build;

use core::fmt;

/// The first bytes of every table.
pub const MAGIC: [u8; 8] = *b"16OSSYMS";
/// Bytes of the header that the linker script writes: the magic and the table's size.
pub const HEADER: usize = 16;

const ENTRIES: usize = 32;
const DATA: u32 = 1 << 31;
const NAME_START: u32 = 0x00ff_ffff;

/// Why bytes are no symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Fewer bytes than a header has; carries how many there are.
    NoHeader(usize),
    /// Other first bytes than [`MAGIC`]; carries them.
    Magic([u8; 8]),
    /// The header as the link left it: the host inserted no table.
    NotInserted,
    /// The size in the header, in bytes, does not fit the bytes given.
    Size {
        /// What the header says.
        said: u64,
        /// How many bytes there are.
        given: usize,
    },
    /// More entries than the table has room for; carries their number.
    Count(u64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::NoHeader(given) => write!(
                f,
                "a symbol table's header has {HEADER} bytes, here are {given}"
            ),
            Error::Magic(found) => write!(
                f,
                "no symbol table: it starts with \"{}\"",
                found.escape_ascii()
            ),
            Error::NotInserted => write!(f, "no symbol table was inserted after the link"),
            Error::Size { said, given } => write!(
                f,
                "the symbol table says it has {said} bytes, here are {given}"
            ),
            Error::Count(count) => write!(
                f,
                "the symbol table has no room for the {count} entries it claims"
            ),
        }
    }
}

impl core::error::Error for Error {}

/// What a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A function, or assembly with a label.
    Code,
    /// A static.
    Data,
}

/// One symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Demangled and shortened for people; several symbols may have the same.
    pub name: &'a str,
    /// Its first byte's address.
    pub address: u64,
    /// In bytes, never 0.
    pub size: u64,
    /// Code or data.
    pub kind: Kind,
}

/// An address as a person reads it: `kernel::frame::free+0x1c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The symbol that the address belongs to.
    pub symbol: Symbol<'a>,
    /// Bytes from the symbol's start. That of a return site can be the symbol's size.
    pub offset: u64,
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}+{:#x}", self.symbol.name, self.offset)
    }
}

/// Bytes that the table starting with `header` has in all, [`HEADER`] if none was inserted: where the image ends.
pub fn size(header: &[u8; HEADER]) -> Result<u64, Error> {
    let magic = double(header, 0).to_le_bytes();
    match double(header, 8) {
        _ if magic != MAGIC => Err(Error::Magic(magic)),
        said if said < HEADER as u64 => Err(Error::Size {
            said,
            given: HEADER,
        }),
        said => Ok(said),
    }
}

/// A symbol table, read where it lies.
///
/// Having one proves that its header and entries lie within the bytes given. It does not prove that they are true: a
/// corrupted table may give a wrong name or none, but no panic.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    base: u64,
    entries: &'a [[u8; 12]],
    names: &'a [u8],
}

impl<'a> Table<'a> {
    /// The table at the start of `bytes`; whatever follows its size is ignored.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let given = bytes.len();
        let said = size(bytes.first_chunk().ok_or(Error::NoHeader(given))?)?;
        if said == HEADER as u64 {
            return Err(Error::NotInserted);
        }
        let wrong = Error::Size { said, given };
        let bytes = usize::try_from(said)
            .ok()
            .and_then(|said| bytes.get(..said))
            .ok_or(wrong)?;
        let body = bytes.get(ENTRIES..).ok_or(wrong)?;
        let count = double(bytes, 24);
        let entries = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(12));
        let (entries, names) = entries
            .and_then(|size| body.split_at_checked(size))
            .ok_or(Error::Count(count))?;
        Ok(Table {
            base: double(bytes, 16),
            entries: entries.as_chunks().0,
            names,
        })
    }

    /// What lies at `address`: for the pc of a fault, or the address that it touched.
    ///
    /// None where no symbol covers the address: a gap is not put down to the symbol before it.
    pub fn exact(&self, address: u64) -> Option<Location<'a>> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let next = self
            .entries
            .partition_point(|entry| word(entry, 0) <= offset);
        let symbol = self.symbol(self.entries.get(next.checked_sub(1)?)?)?;
        let offset = address.checked_sub(symbol.address)?;
        (offset < symbol.size).then_some(Location { symbol, offset })
    }

    /// The function that returns to `address`, with the offset of `address` itself.
    ///
    /// It is looked up one byte before: a call to a function that never returns can be its caller's last instruction, and
    /// the return address then belongs to whatever comes next.
    pub fn return_site(&self, address: u64) -> Option<Location<'a>> {
        let call = self.exact(address.checked_sub(1)?)?;
        Some(Location {
            offset: call.offset + 1,
            ..call
        })
    }

    /// Every symbol, by rising address.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let table = *self;
        table
            .entries
            .iter()
            .filter_map(move |entry| table.symbol(entry))
    }

    /// The first symbol of exactly this name.
    pub fn by_name(&self, name: &str) -> Option<Symbol<'a>> {
        self.symbols().find(|symbol| symbol.name == name)
    }

    /// The symbols whose names start with `prefix`, by rising address.
    pub fn by_prefix<'p>(&self, prefix: &'p str) -> impl Iterator<Item = Symbol<'a>> + use<'a, 'p> {
        self.symbols()
            .filter(move |symbol| symbol.name.starts_with(prefix))
    }

    /// None for an entry that no writer makes.
    fn symbol(&self, entry: &[u8; 12]) -> Option<Symbol<'a>> {
        let (size, name) = (word(entry, 4), word(entry, 8));
        let name = self
            .names
            .get((name & NAME_START) as usize..)?
            .get(..(name >> 24) as usize)?;
        Some(Symbol {
            name: core::str::from_utf8(name).ok()?,
            address: self.base.checked_add(word(entry, 0).into())?,
            size: (size & !DATA).into(),
            kind: if size & DATA == 0 {
                Kind::Code
            } else {
                Kind::Data
            },
        })
    }
}

/// The 32-bit number at `at`, 0 where there is none: every caller has bounded `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The 64-bit number at `at`, 0 where there is none: every caller has bounded `at`.
fn double(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
