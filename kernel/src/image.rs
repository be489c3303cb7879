//! The image's own extent: where its sections lie, as the linker script (`kernel.ld`) laid them out.
//!
//! [`Section`] says where each part lies and what may be done with it; [`gathered`] gives the statics that the linker put in a row (invariant
//! IMAGE-2).

use core::ops::Range;

use paging::Rights;

/// The name of this build, as it is printed.
pub const PROFILE: &str = if cfg!(feature = "checked") { "checked" } else { "release" };

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __symbols_start: u8;
}

/// A part of the image with rights of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// Machine code: read and execute.
    Text,
    /// Constants: read.
    Rodata,
    /// Statics, zeroed ones and the boot stacks included: read and write.
    Data,
    /// The symbol table: read.
    Symbols,
}

impl Section {
    /// Every section, in the order of their addresses.
    pub const ALL: [Section; 4] = [Section::Text, Section::Rodata, Section::Data, Section::Symbols];

    /// Where it lies; both ends on page boundaries, but for the end of the symbols.
    pub fn range(self) -> Range<usize> {
        let text = (&raw const __text_start).addr();
        let rodata = (&raw const __rodata_start).addr();
        let data = (&raw const __data_start).addr();
        let symbols = (&raw const __symbols_start).addr();
        match self {
            Section::Text => text..rodata,
            Section::Rodata => rodata..data,
            Section::Data => data..symbols,
            Section::Symbols => symbols..symbols + crate::symbols::table_bytes(),
        }
    }

    /// The section that holds `address`.
    pub fn of(address: usize) -> Option<Section> {
        Self::ALL.into_iter().find(|section| section.range().contains(&address))
    }

    /// What may be done there.
    pub fn rights(self) -> Rights {
        match self {
            Section::Text => Rights::ReadExecute,
            Section::Rodata | Section::Symbols => Rights::Read,
            Section::Data => Rights::ReadWrite,
        }
    }

    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Section::Text => "kernel text",
            Section::Rodata => "kernel constants",
            Section::Data => "kernel data",
            Section::Symbols => "the symbol table",
        }
    }
}

/// The lowest virtual address of the image.
pub fn start() -> usize {
    Section::Text.range().start
}

/// The slice of `$type` that the linker script gathered between the symbols `$start` and `$end` (invariant IMAGE-2).
macro_rules! gathered {
    ($type:ty, $start:ident, $end:ident) => {{
        unsafe extern "C" {
            static $start: u8;
            static $end: u8;
        }
        let start = &raw const $start;
        let length = ((&raw const $end).addr() - start.addr()) / size_of::<$type>();
        // SAFETY: the linker script keeps the statics of one section there, all of this type, and nothing else (IMAGE-2).
        unsafe { core::slice::from_raw_parts(start.cast::<$type>(), length) }
    }};
}

pub(crate) use gathered;
