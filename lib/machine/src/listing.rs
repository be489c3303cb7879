//! The machine as a listing for people: a line for each thing, its name first.

use core::fmt::{self, Write as _};

use crate::range::Bytes;
use crate::{Hart, Machine};

impl fmt::Display for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "machine      {}",
            if self.model.is_empty() {
                "(no name)"
            } else {
                self.model
            }
        )?;
        let mut rest = &self.harts[..];
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|hart| is_alike(hart, first)).count();
            write_harts(f, &rest[..alike])?;
            rest = &rest[alike..];
        }
        writeln!(f, "timebase     {} Hz", self.timebase)?;
        for bank in &self.banks {
            let (range, size) = (bank.range, Bytes(bank.range.size()));
            writeln!(
                f,
                "memory       {range}  {size}, NUMA node {}",
                bank.numa_node
            )?;
        }
        for reservation in self.reservations() {
            let name = if reservation.name.is_empty() {
                "(reservation map)"
            } else {
                reservation.name
            };
            let (range, size) = (reservation.range, Bytes(reservation.range.size()));
            let no_map = if reservation.no_map {
                ", not to be mapped"
            } else {
                ""
            };
            writeln!(f, "reserved     {range}  {size}, {name}{no_map}")?;
        }
        if let Some(initrd) = self.chosen.initrd {
            writeln!(f, "initrd       {initrd}  {}", Bytes(initrd.size()))?;
        }
        match &self.uart {
            Some(uart) => {
                write!(
                    f,
                    "uart         {}  {}, {:?}",
                    uart.registers, uart.name, uart.kind
                )?;
                match uart.interrupt {
                    Some(interrupt) => {
                        writeln!(
                            f,
                            ", interrupt {} of {}",
                            interrupt.number,
                            self.plics[usize::from(interrupt.plic)].name
                        )?;
                    }
                    None => writeln!(f, ", polled")?,
                }
            }
            None => writeln!(f, "uart         none")?,
        }
        for (index, plic) in self.plics.iter().enumerate() {
            write!(
                f,
                "interrupts   {}  {}, {} sources, contexts",
                plic.registers, plic.name, plic.sources
            )?;
            for hart in &self.harts {
                if let Some(context) = hart
                    .context
                    .filter(|context| usize::from(context.plic) == index)
                {
                    write!(f, " {}", context.number)?;
                }
            }
            writeln!(f)?;
        }
        if self.plics.is_empty() {
            writeln!(f, "interrupts   none")?;
        }
        match self.exit_device {
            Some(range) => writeln!(f, "exit device  {range}")?,
            None => writeln!(f, "exit device  none")?,
        }
        writeln!(f, "command line \"{}\"", self.chosen.bootargs)?;
        for warning in &self.warnings {
            writeln!(f, "warning      {warning}")?;
        }
        if self.warnings_left_out > 0 {
            writeln!(f, "warning      and {} more", self.warnings_left_out)?;
        }
        Ok(())
    }
}

/// Whether one line can be about both.
fn is_alike(one: &Hart, other: &Hart) -> bool {
    let traits = |hart: &Hart| (hart.enabled, hart.mmu, hart.extensions, hart.zero_block);
    traits(one) == traits(other)
}

/// A line about harts that are alike.
fn write_harts(f: &mut fmt::Formatter, harts: &[Hart]) -> fmt::Result {
    let (Some(first), Some(last)) = (harts.first(), harts.last()) else {
        return Ok(());
    };
    write!(f, "harts        {}", first.id)?;
    if first.id != last.id {
        write!(f, " to {} ({} of them)", last.id, harts.len())?;
    }
    match first.mmu {
        Some(mmu) => write!(f, ", {mmu:?}")?,
        None => write!(f, ", no paging")?,
    }
    f.write_str(", rv64")?;
    for (name, _) in first.extensions.iter_names() {
        if name.len() > 1 {
            f.write_char(' ')?;
        }
        for letter in name.chars() {
            f.write_char(letter.to_ascii_lowercase())?;
        }
    }
    if let Some(bytes) = first.zero_block {
        write!(f, " ({bytes} bytes)")?;
    }
    writeln!(f, "{}", if first.enabled { "" } else { ", disabled" })
}
