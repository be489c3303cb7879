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
const ENTRY: usize = 12;
const DATA: u32 = 1 << 31;
const NAME_START: u32 = 0x00ff_ffff;

/// Why bytes are no symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Other first bytes than [`MAGIC`]; carries them.
    Magic([u8; 8]),
    /// The header as the link left it: the host inserted no table.
    NotInserted,
    /// A table, or its header, has more bytes than there are, or too few to be one.
    Size {
        /// Bytes that the table says it has, or that a header has.
        said: u64,
        /// How many there are.
        given: usize,
    },
    /// More symbols than the table has room for; carries their number.
    Count(u64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Magic(found) => write!(f, "it starts with {}", found.escape_ascii()),
            Error::NotInserted => write!(f, "no table was inserted after the link"),
            Error::Size { said, given } => write!(f, "{said} bytes announced, {given} given"),
            Error::Count(count) => write!(f, "no room for the {count} symbols announced"),
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

/// A symbol table, read where it lies.
///
/// Having one proves that its header and entries lie within the bytes given. It does not prove that they are true: a
/// corrupted table may give a wrong name or none, but no panic.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    base: u64,
    entries: &'a [[[u8; 4]; 3]],
    names: &'a [u8],
}

impl<'a> Table<'a> {
    /// The table at the start of `bytes`; whatever follows its size is ignored.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let given = bytes.len();
        let &[magic, said, ref more @ ..] = bytes.as_chunks::<8>().0 else {
            let said = HEADER as u64;
            return Err(Error::Size { said, given });
        };
        if magic != MAGIC {
            return Err(Error::Magic(magic));
        }
        let said = u64::from_le_bytes(said);
        if said == HEADER as u64 {
            return Err(Error::NotInserted);
        }
        let wrong = Error::Size { said, given };
        let &[base, count, ..] = more else {
            return Err(wrong);
        };
        let body = bytes.get(ENTRIES..said as usize).ok_or(wrong)?;
        let count = u64::from_le_bytes(count);
        if count > (body.len() / ENTRY) as u64 {
            return Err(Error::Count(count));
        }
        let (entries, names) = body.split_at(count as usize * ENTRY);
        Ok(Table {
            base: u64::from_le_bytes(base),
            entries: entries.as_chunks().0.as_chunks().0,
            names,
        })
    }

    /// What lies at `address`: for the pc of a fault, or the address that it touched.
    ///
    /// None where no symbol covers the address: a gap is not put down to the symbol before it.
    pub fn exact(&self, address: u64) -> Option<Location<'a>> {
        let entries = self.entries;
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let next = entries.partition_point(|[start, ..]| u32::from_le_bytes(*start) <= offset);
        let symbol = self.symbol(entries.get(next.checked_sub(1)?)?)?;
        let offset = address.checked_sub(symbol.address)?;
        (offset < symbol.size).then_some(Location { symbol, offset })
    }

    /// The function that returns to `address`, with the offset of `address` itself.
    ///
    /// It is looked up one byte before: a call to a function that never returns can be its caller's last instruction, and
    /// the return address then belongs to whatever comes next.
    pub fn return_site(&self, address: u64) -> Option<Location<'a>> {
        let mut site = self.exact(address.checked_sub(1)?)?;
        site.offset += 1;
        Some(site)
    }

    /// Every symbol, by rising address.
    pub fn symbols(self) -> impl Iterator<Item = Symbol<'a>> {
        let entries = self.entries.iter();
        entries.filter_map(move |entry| self.symbol(entry))
    }

    /// The first symbol of exactly this name.
    pub fn by_name(self, name: &str) -> Option<Symbol<'a>> {
        self.symbols().find(|symbol| symbol.name == name)
    }

    /// The symbols whose names start with `prefix`, by rising address.
    pub fn by_prefix(self, prefix: &str) -> impl Iterator<Item = Symbol<'a>> {
        let symbols = self.symbols();
        symbols.filter(move |symbol| symbol.name.starts_with(prefix))
    }

    /// None for an entry that no writer makes.
    fn symbol(&self, entry: &[[u8; 4]; 3]) -> Option<Symbol<'a>> {
        let [offset, size, name] = entry.map(u32::from_le_bytes);
        let (start, length) = ((name & NAME_START) as usize, (name >> 24) as usize);
        let name = self.names.get(start..start + length)?;
        let is_data = size & DATA != 0;
        Some(Symbol {
            name: core::str::from_utf8(name).ok()?,
            address: self.base.checked_add(offset.into())?,
            size: (size & !DATA).into(),
            kind: if is_data { Kind::Data } else { Kind::Code },
        })
    }
}
