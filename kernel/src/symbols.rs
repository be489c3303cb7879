//! The symbol table in the image: which function or static an address belongs to.
//!
//! The table is found once and read where it lies (invariant IMAGE-1): no lock, no memory, so a crash report may ask. A return address is looked
//! up one byte before it ([`return_site`]), the place of a fault exactly ([`exact`]).

use core::fmt;

use spin::Once;

use ::symbols::{Location, Symbol, Table};

use crate::backtrace::Step;
use crate::image::Section;

unsafe extern "C" {
    static __symbols_start: u8;
}

static TABLE: Once<Table<'static>> = Once::new();

/// Bytes of the symbol table, its header included, as the header says.
pub fn table_bytes() -> usize {
    let header = (&raw const __symbols_start).cast::<[usize; 2]>();
    // SAFETY: the linker script puts a header of two words here, and the entry maps it (invariant IMAGE-1).
    let [_magic, size] = unsafe { header.read() };
    size
}

/// Finds the table, if the build has put one there. Without one, addresses have no names.
pub fn find() {
    let range = Section::Symbols.range();
    // SAFETY: the section is in the image, mapped readable by the entry, and never written (IMAGE-1).
    let bytes = unsafe { core::slice::from_raw_parts(&raw const __symbols_start, range.len()) };
    if let Ok(table) = Table::new(bytes) {
        TABLE.call_once(|| table);
    }
}

/// The symbol that holds `address`.
pub fn exact(address: usize) -> Option<Location<'static>> {
    TABLE.get()?.exact(address as u64)
}

/// The function that made the call which returns to `address`.
pub fn return_site(address: usize) -> Option<Location<'static>> {
    TABLE.get()?.return_site(address as u64)
}

/// Every symbol, by rising address; none without a table.
pub fn all() -> impl Iterator<Item = Symbol<'static>> {
    TABLE.get().into_iter().flat_map(|table| table.symbols())
}

/// The function of a backtrace's step.
pub fn of(step: Step) -> Option<Location<'static>> {
    match step {
        Step::At(address) => exact(address),
        Step::ReturnTo(address) => return_site(address),
    }
}

/// The symbol called `name`.
pub fn by_name(name: &str) -> Option<Symbol<'static>> {
    TABLE.get()?.by_name(name)
}

/// A code address and the function it lies in.
pub struct Named(pub Step);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0.address())?;
        of(self.0).map_or(Ok(()), |location| write!(f, " {location}"))
    }
}
