//! The writer: [`table`] makes the bytes that [`Table`](crate::Table) reads.

use crate::{DATA, ENTRIES, HEADER, Kind, MAGIC, NAME_START};
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::fmt;

/// The longest name a table can hold, in bytes.
pub const NAME_LIMIT: usize = 255;

/// A symbol to write: a [`Symbol`](crate::Symbol) that owns its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// As people shall read it; at most [`NAME_LIMIT`] bytes.
    pub name: String,
    /// Its first byte's address.
    pub address: u64,
    /// In bytes; not 0, below 2 GiB.
    pub size: u64,
    /// Code or data.
    pub kind: Kind,
}

/// Why symbols do not make a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// This one's size is 0 or over 2 GiB, or its end lies past the last address.
    Size(Definition),
    /// This one's name is longer than [`NAME_LIMIT`].
    Name(Definition),
    /// The second starts before the first ends.
    Overlap(Definition, Definition),
    /// This one starts 4 GiB or more after the first.
    Far(Definition),
    /// All names together have more bytes, given here, than the 16 MiB an entry can point into.
    Names(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Size(it) => write!(f, "{} at {:#x} has {} bytes", it.name, it.address, it.size),
            Error::Name(it) => write!(f, "the name {} has over {NAME_LIMIT} bytes", it.name),
            Error::Overlap(a, b) => write!(
                f,
                "{} at {:#x} ({} bytes) reaches into {} at {:#x}",
                a.name, a.address, a.size, b.name, b.address
            ),
            Error::Far(it) => write!(
                f,
                "{} at {:#x} is over 4 GiB from the first symbol",
                it.name, it.address
            ),
            Error::Names(bytes) => write!(f, "{bytes} bytes of names, the limit is 16 MiB"),
        }
    }
}

impl core::error::Error for Error {}

/// The table of `symbols`, which may come in any order; the same symbols always give the same bytes.
pub fn table(symbols: &[Definition]) -> Result<Vec<u8>, Error> {
    let mut symbols: Vec<&Definition> = symbols.iter().collect();
    symbols.sort_by_key(|symbol| symbol.address);
    for pair in symbols.windows(2) {
        if pair[1].address - pair[0].address < pair[0].size {
            return Err(Error::Overlap(pair[0].clone(), pair[1].clone()));
        }
    }

    let base = symbols.first().map_or(0, |first| first.address);
    let (mut names, mut starts) = (String::new(), BTreeMap::new());
    let mut entries = Vec::new();
    for symbol in &symbols {
        let offset =
            u32::try_from(symbol.address - base).map_err(|_| Error::Far((*symbol).clone()))?;
        let size = u32::try_from(symbol.size)
            .ok()
            .filter(|size| (1..DATA).contains(size));
        let size = size.filter(|_| symbol.address.checked_add(symbol.size).is_some());
        let size = size.ok_or_else(|| Error::Size((*symbol).clone()))?;
        let length = u8::try_from(symbol.name.len()).map_err(|_| Error::Name((*symbol).clone()))?;
        let start = *starts.entry(&symbol.name).or_insert_with(|| {
            names.push_str(&symbol.name);
            names.len() - symbol.name.len()
        });
        let start = u32::try_from(start)
            .ok()
            .filter(|start| *start <= NAME_START)
            .ok_or(Error::Names(names.len()))?;
        let kind = if symbol.kind == Kind::Data { DATA } else { 0 };
        for word in [offset, size | kind, start | u32::from(length) << 24] {
            entries.extend(word.to_le_bytes());
        }
    }

    let size = ENTRIES + entries.len() + names.len();
    let mut table = Vec::with_capacity(size);
    table.extend(MAGIC);
    for number in [size as u64, base, symbols.len() as u64] {
        table.extend(number.to_le_bytes());
    }
    table.extend(entries);
    table.extend(names.into_bytes());
    Ok(table)
}

/// What the linker script puts into the image: a header with no table behind it.
pub fn placeholder() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..].copy_from_slice(&(HEADER as u64).to_le_bytes());
    header
}
