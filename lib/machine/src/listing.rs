//! The machine as a listing for people: a line for each thing.

use core::fmt::{self, Display, Formatter};

use crate::{Hart, Machine, PhysicalRange};

impl Display for Machine<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let model = if self.model.is_empty() { "(unnamed)" } else { self.model };
        writeln!(f, "machine      {model}")?;
        for harts in self.harts.chunk_by(Hart::is_like) {
            write_harts(f, harts)?;
        }
        writeln!(f, "timebase     {} Hz", self.timebase)?;
        for bank in &self.banks {
            writeln!(f, "memory       {}, NUMA node {}", Sized(bank.range), bank.numa_node)?;
        }
        for reservation in self.reservations() {
            let name = Some(reservation.name).filter(|name| !name.is_empty());
            let name = name.unwrap_or("in the header");
            let no_map = if reservation.no_map { ", not to be mapped" } else { "" };
            writeln!(f, "reserved     {}, {name}{no_map}", Sized(reservation.range))?;
        }
        if let Some(initrd) = self.chosen.initrd {
            writeln!(f, "initrd       {}", Sized(initrd))?;
        }
        match self.uart {
            Some(uart) => {
                write!(f, "uart         {}, {}, {:?}", uart.registers, uart.name, uart.kind)?;
                match uart.interrupt {
                    Some(source) => {
                        let plic = self.plics[usize::from(source.plic)].name;
                        writeln!(f, ", interrupt {} of {plic}", source.number)?;
                    }
                    None => writeln!(f, ", polled")?,
                }
            }
            None => writeln!(f, "uart         none")?,
        }
        for (index, plic) in self.plics.iter().enumerate() {
            let (range, name, sources) = (plic.registers, plic.name, plic.sources);
            write!(f, "interrupts   {range}, {name}, {sources} sources, context of hart")?;
            for hart in &self.harts {
                if let Some(context) = hart.context.filter(|context| context.plic == index as u8) {
                    write!(f, " {}:{}", hart.id, context.number)?;
                }
            }
            writeln!(f)?;
        }
        if self.plics.is_empty() {
            writeln!(f, "interrupts   none")?;
        }
        match self.exit_device {
            Some(registers) => writeln!(f, "exit device  {registers}")?,
            None => writeln!(f, "exit device  none")?,
        }
        writeln!(f, "command line {:?}", self.chosen.bootargs)?;
        for warning in &self.warnings {
            writeln!(f, "warning      {warning}")?;
        }
        match self.warnings_left_out {
            0 => Ok(()),
            count => writeln!(f, "warning      and {count} more"),
        }
    }
}

impl Hart {
    /// Whether one line can be about both.
    fn is_like(&self, other: &Hart) -> bool {
        let traits = |hart: &Hart| (hart.enabled, hart.mmu, hart.extensions, hart.zero_block);
        traits(self) == traits(other)
    }
}

/// A line about harts that are alike.
fn write_harts(f: &mut Formatter, harts: &[Hart]) -> fmt::Result {
    let [first, rest @ ..] = harts else {
        return Ok(());
    };
    write!(f, "harts        {}", first.id)?;
    if let Some(last) = rest.last() {
        write!(f, " to {} ({} of them)", last.id, harts.len())?;
    }
    match first.mmu {
        Some(mmu) => write!(f, ", {mmu:?}, rv64")?,
        None => write!(f, ", no paging, rv64")?,
    }
    for (name, _) in first.extensions.iter_names() {
        let space = if name.len() > 1 { " " } else { "" };
        f.write_str(space)?;
        name.chars().try_for_each(|letter| write!(f, "{}", letter.to_ascii_lowercase()))?;
    }
    if let Some(bytes) = first.zero_block {
        write!(f, ", cbo.zero of {bytes} bytes")?;
    }
    writeln!(f, "{}", if first.enabled { "" } else { ", disabled" })
}

/// A range with its size.
struct Sized(PhysicalRange);

impl Display for Sized {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let unit = (self.0.size().trailing_zeros() / 10).min(3);
        let name = ["bytes", "KiB", "MiB", "GiB"][unit as usize];
        write!(f, "{}, {} {name}", self.0, self.0.size() >> (10 * unit))
    }
}
