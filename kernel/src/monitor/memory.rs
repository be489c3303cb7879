//! Memory: what there is of it, what is mapped where, and what is in it.

use core::fmt::Write;
use core::sync::atomic::AtomicU64;

use arguments::{Arguments, Problem, number};
use arrayvec::ArrayVec;
use paging::Mapping;

use super::screen::Screen;
use super::{Command, Stopped, address};
use crate::report::Place;
use crate::vm::{self, PAGE, Rights, VirtualAddress};
use crate::{frame, heap, platform, probe};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "memory",
        arguments: "",
        help: "banks, reservations, frames in use and free",
        run: memory,
    },
    Command {
        name: "heap",
        arguments: "",
        help: "blocks and pages of each size",
        run: heap_classes,
    },
    Command {
        name: "walk",
        arguments: "ADDRESS",
        help: "the page tables' entries for an address",
        run: walk,
    },
    Command { name: "map", arguments: "", help: "what is mapped, by ranges and rights", run: map },
    Command {
        name: "peek",
        arguments: "ADDRESS [BYTES]",
        help: "reads memory: 64 bytes, or so many",
        run: peek,
    },
    Command {
        name: "poke",
        arguments: "ADDRESS VALUE [1|8]",
        help: "writes memory, whatever that may break",
        run: poke,
    },
];

/// A place to try `poke` on: nobody uses it.
#[used]
static PLAYGROUND: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Bytes in a line of a dump.
const LINE: usize = 16;

/// Classes of the heap that are shown.
const CLASSES: usize = 16;

fn memory<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    if let Some(machine) = platform::machine() {
        for bank in &machine.banks {
            writeln!(screen, "bank         {}", bank.range)?;
        }
        for reservation in machine.reservations() {
            let rights = if reservation.no_map { ", not mapped" } else { "" };
            writeln!(screen, "reserved     {}{rights}", reservation.range)?;
        }
    }
    let frames = frame::statistics();
    writeln!(
        screen,
        "frames       {} usable: {} free, {} in use",
        frames.usable, frames.free, frames.in_use
    )?;
    writeln!(screen, "page tables  {} frames", vm::table_pages())?;
    writeln!(screen, "heap         {} frames", heap::frames_held())?;
    Ok(())
}

fn heap_classes<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    let mut classes = ArrayVec::<_, CLASSES>::new();
    let mut left_out = 0;
    heap::for_each_class(|usage| left_out += usize::from(classes.try_push(usage).is_err()));
    writeln!(screen, " block bytes    blocks     pages  most pages")?;
    for usage in classes {
        writeln!(
            screen,
            "{:>12} {:>9} {:>9} {:>11}",
            usage.block_size, usage.blocks, usage.pages, usage.most_pages
        )?;
    }
    if left_out > 0 {
        writeln!(screen, "and {left_out} more")?;
    }
    Ok(())
}

fn walk<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let asked = address(&mut arguments)?;
    arguments.end()?;
    let Some(canonical) = VirtualAddress::new(asked) else {
        writeln!(screen, "{asked:#x} is not canonical: bits 63 to 39 must equal bit 38")?;
        return Ok(());
    };
    for step in vm::view().walk(canonical) {
        let (level, index, table) = (step.level, step.index, step.table);
        writeln!(
            screen,
            "level {level}: entry {index:>3} of the table at {table}: {}",
            step.entry
        )?;
    }
    match vm::lookup(asked) {
        Some(page) => writeln!(
            screen,
            "{asked:#x} is physical {:#x}, {}: {}",
            page.physical(asked),
            page.rights,
            Place(asked)
        )?,
        None => writeln!(screen, "{asked:#x} is not mapped")?,
    }
    Ok(())
}

fn map<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    let mut mappings = vm::view().mappings().map(Range::of).peekable();
    while let Some(mut range) = mappings.next() {
        while let Some(next) = mappings.next_if(|next| range.goes_on_in(next)) {
            range.last = next.last;
        }
        let Range { start, last, rights, what } = range;
        let kibibytes = (last - start) / 1024 + 1;
        writeln!(screen, "{start:#018x}..{last:#018x} {rights} {kibibytes:>8} KiB  {what}")?;
    }
    Ok(())
}

/// Addresses that are mapped with the same rights for the same purpose, to whatever frames.
struct Range {
    start: usize,
    /// The last byte: the end of the last page of all is no address.
    last: usize,
    rights: Rights,
    what: &'static str,
}

impl Range {
    fn of(mapping: Mapping) -> Range {
        let start = mapping.pages.start().value();
        let device = platform::device_at(mapping.frame.address());
        Range {
            start,
            last: start + (mapping.pages.size() - 1),
            rights: mapping.rights,
            what: device.unwrap_or_else(|| vm::region_of(start)),
        }
    }

    fn goes_on_in(&self, next: &Range) -> bool {
        self.last.wrapping_add(1) == next.start
            && (self.rights, self.what) == (next.rights, next.what)
    }
}

fn peek<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let start = address(&mut arguments)?;
    let count = arguments.number_or("BYTES", 1..=PAGE as u64, 64)? as usize;
    arguments.end()?;
    let mut bytes = ArrayVec::<u8, LINE>::new();
    for offset in (0..count).step_by(LINE) {
        bytes.clear();
        let from = start.wrapping_add(offset);
        let addresses = (0..LINE.min(count - offset)).map(|further| from.wrapping_add(further));
        let mut fault = None;
        for address in addresses {
            match probe::read_byte(address) {
                Ok(byte) => bytes.push(byte),
                Err(found) => {
                    fault = Some(found);
                    break;
                }
            }
        }
        if !bytes.is_empty() {
            dump(from, &bytes, screen)?;
        }
        if let Some(fault) = fault {
            writeln!(screen, "{fault}: {}", Place(fault.cause.value))?;
            break;
        }
    }
    Ok(())
}

/// A line of bytes, as numbers and as characters.
fn dump(address: usize, bytes: &[u8], screen: &mut Screen) -> core::fmt::Result {
    write!(screen, "{address:#018x} ")?;
    for place in 0..LINE {
        match bytes.get(place) {
            Some(byte) => write!(screen, " {byte:02x}")?,
            None => write!(screen, "   ")?,
        }
    }
    write!(screen, "  ")?;
    for &byte in bytes {
        let is_shown = byte.is_ascii_graphic() || byte == b' ';
        write!(screen, "{}", if is_shown { char::from(byte) } else { '.' })?;
    }
    writeln!(screen)
}

fn poke<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let place = address(&mut arguments)?;
    let value = number("VALUE", arguments.take("VALUE")?)?;
    let size = arguments.optional().unwrap_or("8");
    arguments.end()?;
    let written = match size {
        "8" if !place.is_multiple_of(8) => {
            writeln!(screen, "{place:#x} is not a multiple of 8")?;
            return Ok(());
        }
        // SAFETY: none that a program could give: whoever types this answers for it.
        "8" => unsafe { probe::write(place, value) },
        "1" => {
            let out = Problem::OutOfRange("VALUE", value, 0, u8::MAX.into());
            let byte = u8::try_from(value).map_err(|_| out)?;
            // SAFETY: as above.
            unsafe { probe::write_byte(place, byte) }
        }
        found => {
            return Err(Problem::Unknown { name: "SIZE", found, expected: "1 or 8" }.into());
        }
    };
    match written {
        Ok(()) => writeln!(screen, "{size} bytes at {place:#x} are {value:#x} now")?,
        Err(fault) => writeln!(screen, "{fault}: {}", Place(fault.cause.value))?,
    }
    Ok(())
}
