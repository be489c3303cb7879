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
    /// Its first byte's address; less than 4 GiB behind the first symbol's.
    pub address: u64,
    /// In bytes; not 0, below 2 GiB.
    pub size: u64,
    /// Code or data.
    pub kind: Kind,
}

/// A symbol that does not go into a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Which one.
    pub symbol: Definition,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Definition { name, address, size, .. } = &self.symbol;
        let problem = self.problem;
        write!(f, "{name} at {address:#x}, {size} bytes: {problem}")
    }
}

impl core::error::Error for Error {}

/// The table of `symbols`, which may come in any order; the same symbols always give the same bytes.
///
/// # Errors
/// The first symbol that the format cannot hold, or that starts before the one before it ends.
pub fn table(symbols: &[Definition]) -> Result<Vec<u8>, Error> {
    let mut symbols: Vec<&Definition> = symbols.iter().collect();
    symbols.sort_by_key(|symbol| symbol.address);
    let base = symbols.first().map_or(0, |first| first.address);
    let (mut entries, mut names, mut starts) = (Vec::new(), String::new(), BTreeMap::new());
    let mut end = 0;
    for &symbol in &symbols {
        let Definition { name, address, size, kind } = symbol;
        let offset = address - base;
        let start = *starts.entry(name).or_insert(names.len());
        let problem = [
            (*address < end, "the symbol before reaches into it"),
            (offset > u32::MAX.into(), "4 GiB or more behind the first symbol"),
            (*size == 0 || *size >= DATA.into(), "no size, or 2 GiB or more"),
            (address.checked_add(*size).is_none(), "its end is no address"),
            (name.len() > NAME_LIMIT, "its name has over 255 bytes"),
            (start > NAME_START as usize, "over 16 MiB of names before its own"),
        ];
        if let Some((_, problem)) = problem.into_iter().find(|(is_so, _)| *is_so) {
            let symbol = symbol.clone();
            return Err(Error { symbol, problem });
        }
        if start == names.len() {
            names.push_str(name);
        }
        end = address + size;
        let kind = if *kind == Kind::Data { DATA } else { 0 };
        let name = start as u32 | (name.len() as u32) << 24;
        for word in [offset as u32, *size as u32 | kind, name] {
            entries.extend(word.to_le_bytes());
        }
    }

    let size = ENTRIES + entries.len() + names.len();
    let mut table = MAGIC.to_vec();
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
