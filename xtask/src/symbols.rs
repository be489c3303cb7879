//! Puts the table of symbols into the linked image, and proves that nothing else moved by it.
//!
//! The linker script ends with a section `.symbols` in a segment of its own that holds no more than a table's header.
//! [`insert`] makes the table of the image's own symbols, appends it to the file, and lets that one section and segment
//! point there. No address can change, as nothing is linked again; [`prove`] checks the result, byte for byte, all the same.

pub mod name;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::mem::offset_of;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::symbols::build::{self, Definition};
use ::symbols::{HEADER, Kind, Location, Symbol, Table};
use object::LittleEndian as LE;
use object::elf::{PF_R, PT_LOAD, ProgramHeader64, SHF_ALLOC, SHF_EXECINSTR, SectionHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// The section that holds the table.
const SECTION: &str = ".symbols";
/// The table lies on pages of its own, in the file as in memory.
const PAGE: usize = 4096;
/// The most the table may have, in bytes: what the first page tables map of it (kernel.ld, boot.rs).
const TABLE_LIMIT: usize = 1 << 20;

/// Why an image has no table, or is not to be trusted with one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The image is no ELF file of the kind that the kernel is.
    #[error("the image cannot be read: {0}")]
    Elf(#[from] object::Error),
    /// The linker script did not prepare the image; the text says what is wrong.
    #[error("the image is not linked for a symbol table: {0}")]
    Layout(String),
    /// What lies in `.symbols` is no table.
    #[error("section .symbols: {0}")]
    Content(#[from] ::symbols::Error),
    /// The image's symbols make no table.
    #[error("the image's symbols make no table: {0}")]
    Symbols(#[from] build::Error),
    /// The proof failed; the text says what differs.
    #[error("the symbol table changed more than it may: {0}")]
    Proof(String),
}

/// What was inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Functions and labels in the table.
    pub functions: usize,
    /// Statics in the table.
    pub statics: usize,
    /// Bytes of the table.
    pub bytes: usize,
    /// Its address in memory.
    pub address: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Report { functions, statics, bytes, address } = self;
        write!(f, "{functions} functions and {statics} statics in {bytes} bytes at {address:#x}")
    }
}

/// Copies the image `input` to `output`, with its symbol table. The same input always gives the same bytes; an image that
/// has its table already is an input like any other, and gives itself.
///
/// `output` is replaced in one step once the proof holds, and left alone if it does not.
///
/// # Errors
/// See [`Error`].
pub fn insert(input: &Path, output: &Path) -> Result<Report, Error> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::File { path, error }
    };
    let before = std::fs::read(input).map_err(file(input))?;
    let (after, report) = inserted(&before)?;
    // Beside the output, so that the rename stays within one file system.
    let new = output.with_added_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, after).map_err(file(&new))?;
    std::fs::rename(&new, output).map_err(file(output))?;
    Ok(report)
}

/// The bytes of the image `before` with its symbol table, proved.
///
/// # Errors
/// See [`Error`].
pub fn inserted(before: &[u8]) -> Result<(Vec<u8>, Report), Error> {
    let elf = ElfFile64::<LE>::parse(before)?;
    let place = Place::find(&elf)?;
    let definitions = definitions(&elf)?;
    let table = build::table(&definitions)?;
    if table.len() > TABLE_LIMIT {
        return Err(Error::Layout(format!(
            "a table of {} bytes, the limit is {TABLE_LIMIT}",
            table.len()
        )));
    }

    let mut after = before[..place.old_table(before)?].to_vec();
    after.resize(after.len().next_multiple_of(PAGE), 0);
    let (offset, size) = (after.len() as u64, table.len() as u64);
    for (field, value) in place.fields().into_iter().zip([offset, size, offset, size, size]) {
        after[field].copy_from_slice(&value.to_le_bytes());
    }
    after.extend(&table);

    prove(before, &after)?;
    let functions = definitions.iter().filter(|symbol| symbol.kind == Kind::Code).count();
    let statics = definitions.len() - functions;
    Ok((after, Report { functions, statics, bytes: table.len(), address: place.address }))
}

/// Where `.symbols` is described in the file.
struct Place {
    address: u64,
    /// File offset and size of the section's content.
    content: Range<usize>,
    /// File offsets of the section's and of its segment's header.
    section_header: usize,
    program_header: usize,
}

impl Place {
    fn find(elf: &ElfFile64<LE>) -> Result<Place, Error> {
        let (index, section) = elf
            .elf_section_table()
            .section_by_name(LE, SECTION.as_bytes())
            .ok_or_else(|| Error::Layout("there is no section .symbols".into()))?;
        let (address, offset, size) =
            (section.sh_addr(LE), section.sh_offset(LE), section.sh_size(LE));
        let of_section = |(_, header): &(usize, &ProgramHeader64<LE>)| {
            header.p_type(LE) == PT_LOAD
                && header.p_vaddr(LE) == address
                && header.p_offset(LE) == offset
        };
        let (segment, header) = elf
            .elf_program_headers()
            .iter()
            .enumerate()
            .find(of_section)
            .ok_or_else(|| Error::Layout("no segment starts with .symbols".into()))?;
        if (header.p_filesz(LE), header.p_memsz(LE)) != (size, size) {
            return Err(Error::Layout("the segment of .symbols holds something else too".into()));
        }
        let number = |number: u64| {
            usize::try_from(number).map_err(|_| Error::Layout(format!("an offset of {number:#x}")))
        };
        let file = elf.elf_header();
        Ok(Place {
            address,
            content: number(offset)?..number(offset.saturating_add(size))?,
            section_header: number(file.e_shoff(LE))? + index.0 * size_of::<SectionHeader64<LE>>(),
            program_header: number(file.e_phoff(LE))? + segment * size_of::<ProgramHeader64<LE>>(),
        })
    }

    /// The numbers that an insertion changes: the section's offset and size, the segment's offset, file size, memory size.
    fn fields(&self) -> [Range<usize>; 5] {
        [
            self.section_header + offset_of!(SectionHeader64<LE>, sh_offset),
            self.section_header + offset_of!(SectionHeader64<LE>, sh_size),
            self.program_header + offset_of!(ProgramHeader64<LE>, p_offset),
            self.program_header + offset_of!(ProgramHeader64<LE>, p_filesz),
            self.program_header + offset_of!(ProgramHeader64<LE>, p_memsz),
        ]
        .map(|start| start..start + 8)
    }

    /// Where an earlier table starts, or the end of the file.
    fn old_table(&self, file: &[u8]) -> Result<usize, Error> {
        let content = file.get(self.content.clone()).unwrap_or_default();
        match Table::new(content) {
            Err(::symbols::Error::NotInserted) if content.len() == HEADER => Ok(file.len()),
            Err(::symbols::Error::NotInserted) => {
                Err(Error::Layout(format!(".symbols has {} bytes, not {HEADER}", content.len())))
            }
            Err(other) => Err(other.into()),
            Ok(_) if self.content.end == file.len() => Ok(self.content.start),
            Ok(_) => Err(Error::Layout("its table is not the end of the file".into())),
        }
    }
}

/// A symbol of the ELF file; of several at one address, the least is the one to show.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate<'a> {
    /// The largest first. A label that says no size has 0.
    size: Reverse<u64>,
    is_label: bool,
    is_local: bool,
    underscores: usize,
    name: &'a str,
    is_code: bool,
    section_end: u64,
}

/// The symbols of an image that a person would look for: functions, labels of assembly, statics. Sorted by address,
/// with readable names, their ranges apart.
///
/// A label that says no size reaches to the next symbol; it counts if it is global and does not start with `__`, which
/// is how the linker script's own are called. One that lies within another symbol is a part of it.
///
/// # Errors
/// [`Error::Elf`], and [`Error::Layout`] where the image was stripped.
pub fn definitions(elf: &ElfFile64<LE>) -> Result<Vec<Definition>, Error> {
    let [mut symbols, labels] = candidates(elf)?;
    let mut end = 0;
    symbols.retain(|&address, symbol| {
        let is_apart = address.saturating_add(symbol.size.0) > end;
        end = end.max(address.saturating_add(symbol.size.0));
        is_apart
    });
    for (address, label) in labels {
        let before = symbols.range(..=address).next_back();
        if before.is_none_or(|(start, symbol)| address - start >= symbol.size.0) {
            symbols.insert(address, label);
        }
    }
    if symbols.is_empty() {
        return Err(Error::Layout("it has no symbols; was it stripped?".into()));
    }

    let mut definitions = Vec::new();
    let mut symbols = symbols.into_iter().peekable();
    while let Some((address, symbol)) = symbols.next() {
        let next = symbols.peek().map_or(u64::MAX, |(address, _)| *address);
        let size = match symbol.size.0 {
            0 => next.min(symbol.section_end).saturating_sub(address),
            size => size,
        };
        if size > 0 {
            let kind = if symbol.is_code { Kind::Code } else { Kind::Data };
            let name = name::readable(symbol.name);
            definitions.push(Definition { name, address, size, kind });
        }
    }
    Ok(definitions)
}

/// By address, the symbols that say a size, and labels in code that say none.
fn candidates<'a>(elf: &ElfFile64<'a, LE>) -> Result<[BTreeMap<u64, Candidate<'a>>; 2], Error> {
    let (mut sized, mut labels) = (BTreeMap::new(), BTreeMap::new());
    for symbol in elf.symbols() {
        let Some(section) = symbol.section_index() else {
            continue;
        };
        let section = elf.section_by_index(section)?;
        let flags = section.elf_section_header().sh_flags(LE);
        let is_code = flags.contains(SHF_EXECINSTR);
        let (name, size) = (symbol.name()?, symbol.size());
        // Marks of the assembler, and constants of the compiler.
        let nobody_looks_for_it =
            name.is_empty() || ["$", ".L", "anon."].iter().any(|it| name.starts_with(it));
        let of_a_kind =
            matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown);
        if nobody_looks_for_it
            || !of_a_kind
            || !flags.contains(SHF_ALLOC)
            || section.name()? == SECTION
        {
            continue;
        }
        let is_function = symbol.kind() == SymbolKind::Text;
        let map = if size > 0 {
            &mut sized
        } else if is_code && (is_function || symbol.is_global() && !name.starts_with("__")) {
            &mut labels
        } else {
            continue;
        };
        let candidate = Candidate {
            size: Reverse(size),
            is_label: symbol.kind() == SymbolKind::Unknown,
            is_local: symbol.is_local(),
            underscores: name.len() - name.trim_start_matches('_').len(),
            name,
            is_code,
            section_end: section.address() + section.size(),
        };
        let best = map.entry(symbol.address()).or_insert(candidate);
        *best = candidate.min(*best);
    }
    Ok([sized, labels])
}

/// Proves that `after` is `before` with a symbol table, and nothing else.
///
/// - The file is the same up to the table, but for five numbers: offset and size of `.symbols` and of its segment.
/// - Every other section and segment has the same name, type, rights, address, size and content.
/// - The table's segment can be read and no more, and nothing in memory lies at or behind it, no label either: whatever
///   lay there would have been overwritten.
/// - The table names every function and static of the image at its first byte and its last, and nothing past its end.
///
/// # Errors
/// [`Error::Proof`] with what is wrong; the others where a file cannot be read at all.
pub fn prove(before: &[u8], after: &[u8]) -> Result<(), Error> {
    let (old, new) = (ElfFile64::<LE>::parse(before)?, ElfFile64::<LE>::parse(after)?);
    let (old_place, place) = (Place::find(&old)?, Place::find(&new)?);
    let failed = |text: String| Err(Error::Proof(text));

    let kept = place.content.start.min(before.len());
    let Some(same) = after.get(..kept) else {
        return failed(format!("the table is to start at {kept:#x}, behind the end of the file"));
    };
    let mut expected = before[..kept].to_vec();
    for field in old_place.fields() {
        if let (Some(old), Some(new)) = (expected.get_mut(field.clone()), same.get(field)) {
            old.copy_from_slice(new);
        }
    }
    if let Some(at) = (0..kept).find(|&at| expected[at] != same[at]) {
        let (was, is) = (before[at], after[at]);
        return failed(format!("byte {at:#x} of the file was {was:#04x} and is {is:#04x}"));
    }
    if place.content.start % PAGE != 0 || place.content.end != after.len() {
        let Range { start, end } = place.content;
        return failed(format!(
            "the table is {start:#x}..{end:#x} of a file of {:#x} bytes",
            after.len()
        ));
    }
    if after[kept..place.content.start].iter().any(|byte| *byte != 0) {
        return failed("there is something between the old end of the file and the table".into());
    }

    if (old.sections().count(), old.segments().count())
        != (new.sections().count(), new.segments().count())
    {
        return failed("there are more sections or segments, or fewer".into());
    }
    for (old, new) in old.sections().zip(new.sections()) {
        let name = old.name()?;
        let (was, is) = (old.elf_section_header(), new.elf_section_header());
        let facts = |header: &SectionHeader64<LE>| {
            (header.sh_type(LE), header.sh_flags(LE), header.sh_addr(LE))
        };
        if name != new.name()? || facts(was) != facts(is) {
            return failed(format!(
                "section {name} has another name, type, address or other flags"
            ));
        }
        if name == SECTION {
            continue;
        }
        if was.sh_size(LE) != is.sh_size(LE) || old.data()? != new.data()? {
            return failed(format!("section {name} has another size or content"));
        }
        if was.sh_flags(LE).contains(SHF_ALLOC) && was.sh_addr(LE) + was.sh_size(LE) > place.address
        {
            return failed(format!(
                "section {name} reaches to {:#x}, behind the table's start",
                was.sh_addr(LE) + was.sh_size(LE)
            ));
        }
    }
    for (number, (was, is)) in
        old.elf_program_headers().iter().zip(new.elf_program_headers()).enumerate()
    {
        let facts = |header: &ProgramHeader64<LE>| {
            (
                header.p_type(LE),
                header.p_flags(LE),
                header.p_vaddr(LE),
                header.p_paddr(LE),
                header.p_align(LE),
            )
        };
        let extent = |header: &ProgramHeader64<LE>| {
            (header.p_offset(LE), header.p_filesz(LE), header.p_memsz(LE))
        };
        if facts(was) != facts(is) {
            return failed(format!(
                "segment {number} has another type, address, alignment or other rights"
            ));
        }
        if was.p_vaddr(LE) == place.address && was.p_type(LE) == PT_LOAD {
            continue;
        }
        if extent(was) != extent(is) || was.data(LE, before) != is.data(LE, after) {
            return failed(format!("segment {number} has another size or content"));
        }
    }
    prove_alone(&new, &place)?;
    prove_lookup(&new, &after[place.content])
}

/// The table's segment is the last in memory, and only to be read; no symbol lies within or behind it.
fn prove_alone(elf: &ElfFile64<LE>, place: &Place) -> Result<(), Error> {
    let failed = |text: String| Err(Error::Proof(text));
    let loaded = || {
        elf.elf_program_headers()
            .iter()
            .enumerate()
            .filter(|(_, header)| header.p_type(LE) == PT_LOAD)
    };
    let mut own = loaded().filter(|(_, header)| header.p_vaddr(LE) == place.address);
    let (Some((own, table)), None) = (own.next(), own.next()) else {
        return failed(format!("not exactly one segment starts at {:#x}", place.address));
    };
    if table.p_flags(LE) != PF_R {
        return failed(format!(
            "the table's segment has the rights {:?}, not only to be read",
            table.p_flags(LE)
        ));
    }
    if table.p_align(LE) == 0
        || table.p_offset(LE) % table.p_align(LE) != place.address % table.p_align(LE)
    {
        return failed(format!(
            "the table's offset does not suit an alignment of {:#x}",
            table.p_align(LE)
        ));
    }
    if place.address.checked_add(table.p_memsz(LE)).is_none() {
        return failed(format!("the table does not fit behind {:#x}", place.address));
    }
    for (number, other) in loaded().filter(|(number, _)| *number != own) {
        let size = other.p_memsz(LE);
        let behind = |start: u64, table: u64| start.checked_add(size).is_none_or(|end| end > table);
        if behind(other.p_vaddr(LE), place.address) || behind(other.p_paddr(LE), table.p_paddr(LE))
        {
            return failed(format!("segment {number} reaches behind the table's start"));
        }
    }
    let absolute = |symbol: &object::read::elf::ElfSymbol64<LE>| symbol.section_index().is_none();
    let range = place.address + 1..=place.address + table.p_memsz(LE);
    match elf.symbols().find(|symbol| range.contains(&symbol.address()) && !absolute(symbol)) {
        Some(symbol) => failed(format!(
            "the symbol {} lies behind the table's start: it would be wrong now",
            symbol.name()?
        )),
        None => Ok(()),
    }
}

/// The table says of each symbol what the image's own symbols say.
fn prove_lookup(elf: &ElfFile64<LE>, content: &[u8]) -> Result<(), Error> {
    let failed = |text: String| Err(Error::Proof(text));
    let table = Table::new(content)?;
    let definitions = definitions(elf)?;
    if table.symbols().count() != definitions.len() {
        let found = table.symbols().count();
        return failed(format!("the table has {found} of {} symbols", definitions.len()));
    }
    for (index, Definition { name, address, size, kind }) in definitions.iter().enumerate() {
        let (address, size, kind) = (*address, *size, *kind);
        let symbol = Symbol { name, address, size, kind };
        let expected = |offset| Some(Location { symbol, offset });
        let end = address + size;
        if table.exact(address) != expected(0) || table.exact(end - 1) != expected(size - 1) {
            return failed(format!("the table does not find {name} at {address:#x}, {size} bytes"));
        }
        if table.return_site(end) != expected(size) {
            return failed(format!(
                "the table does not find {name} from the return address {end:#x}"
            ));
        }
        let adjacent = definitions.get(index + 1).is_some_and(|next| next.address == end);
        if !adjacent && table.exact(end).is_some() {
            return failed(format!("the table names {end:#x}, where {name} has ended"));
        }
    }
    // Once more from the image's own symbols, whatever was made of them: no function is missing.
    for symbol in elf.symbols().filter(|it| it.kind() == SymbolKind::Text && it.size() > 0) {
        let covers = |it: Location| it.offset + symbol.size() <= it.symbol.size;
        if !table.exact(symbol.address()).is_some_and(covers) {
            return failed(format!("the table does not cover the function {}", symbol.name()?));
        }
    }
    Ok(())
}
