//! Where the instructions of a row are: how many each function executes in one operation.
//!
//! QEMU writes down every instruction (`-d exec`, one in each of its blocks), and the kernel's two reads of its counter mark where an
//! operation begins and ends. What the firmware does is not written down.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::Stdio;

use anyhow::{Context, bail};
use comfy_table::{Cell, Table};
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object, ObjectSection};
use symbols::Kind;
use symbols::build::Definition;

use super::results::{Row, Tenths};
use crate::environment::Environment;
use crate::image::Image;
use crate::lanes::Lane;
use crate::size;

/// `rdinstret` into any register, but for the register's bits.
const READ_COUNTER: u32 = 0xc020_2073;
const DESTINATION: u32 = 31 << 7;
/// Virtual minus physical address of the image, as QEMU's firmware loads it.
const IMAGE_OFFSET: u64 = 0xffff_ffff_0000_0000;
/// Reads of the counter before the first operation but the boot: two around that, and the one that finds out whether there is a counter.
const READS_BEFORE: usize = 3;
/// The row that is measured by the first two reads.
const BOOT: &str = "boot_to_first_thread";

/// So many operations are enough for a mean.
const ENOUGH: usize = 2_000;
/// After so many instructions two are: ticks are far between.
const PATIENCE: u64 = 15_000_000;

/// A function's share of an operation.
pub struct Share {
    /// Its name.
    pub function: String,
    /// Instructions in one operation, in the mean.
    pub instructions: Tenths,
}

/// The shares of one operation of a row that was measured, the largest first.
///
/// # Errors
/// When QEMU cannot be started or the image cannot be read, and when the operations are not found.
pub fn of(environment: &Environment, image: &Image, row: &Row) -> anyhow::Result<Vec<Share>> {
    let functions = Functions::read(image)?;
    let mut operations = Operations::new(row, &functions);
    trace(environment, image, &row.name, |address| {
        operations.push(address);
        operations.seen >= ENOUGH || operations.seen > 1 && operations.instructions > PATIENCE
    })?;
    let counts = operations.counts;
    let all: u64 = counts.iter().sum();
    if all == 0 {
        bail!("no operation of {} was seen", row.name);
    }
    let mut shares: Vec<Share> = functions
        .definitions
        .iter()
        .zip(&counts)
        .filter(|(_, count)| **count > 0)
        .map(|(definition, count)| Share {
            function: definition.name.clone(),
            instructions: Tenths((count * row.instructions.0 + all / 2) / all),
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.instructions));
    Ok(shares)
}

/// The shares as people read them.
pub fn table(row: &Row, shares: &[Share]) -> Table {
    let mut table = size::table(&["function", "instructions", "%"]);
    for Share { function, instructions } in shares {
        let percent = instructions.0 * 100 / row.instructions.0.max(1);
        table.add_row([Cell::new(function), Cell::new(instructions), Cell::new(percent)]);
    }
    table.add_row([Cell::new("all"), Cell::new(row.instructions), Cell::new(100)]);
    table
}

/// The image's functions, and where the counter is read.
struct Functions {
    definitions: Vec<Definition>,
    reads: Vec<u64>,
}

impl Functions {
    fn read(image: &Image) -> anyhow::Result<Functions> {
        let path = image.elf.display().to_string();
        let bytes = fs::read(&image.elf).context(path.clone())?;
        let elf = ElfFile::<FileHeader64<LittleEndian>>::parse(&*bytes).context(path)?;
        let mut definitions = crate::symbols::definitions(&elf)?;
        definitions.retain(|definition| definition.kind == Kind::Code);
        let text = elf.section_by_name(".text").context("the image has no code")?;
        let code = text.data()?;
        // Instructions begin at even addresses; what looks like one and is none is never executed.
        let reads = (0..code.len().saturating_sub(3)).step_by(2).filter(|&offset| {
            let word = code[offset..offset + 4].try_into().map(u32::from_le_bytes);
            word.is_ok_and(|word| word & !DESTINATION == READ_COUNTER)
        });
        let reads = reads.map(|offset| text.address() + offset as u64).collect();
        Ok(Functions { definitions, reads })
    }

    /// The function that has an address.
    fn find(&self, address: u64) -> Option<usize> {
        let after = self.definitions.partition_point(|function| function.address <= address);
        let index = after.checked_sub(1)?;
        let function = &self.definitions[index];
        (address < function.address + function.size).then_some(index)
    }
}

/// Counts the instructions of a row's operations by function.
struct Operations<'a> {
    functions: &'a Functions,
    /// By the place of the function.
    counts: Vec<u64>,
    /// The instructions since the last read of the counter.
    since: BTreeMap<usize, u64>,
    length: u64,
    reads: usize,
    /// Operations, and instructions in all, so far.
    seen: usize,
    instructions: u64,
    /// How long an operation is; what is shorter is a loop that waits for one, or an empty one.
    lengths: Range<u64>,
    is_boot: bool,
}

impl<'a> Operations<'a> {
    fn new(row: &Row, functions: &'a Functions) -> Self {
        // A row may be the sum of two operations, or half of one.
        let lengths = row.min / 4..row.max.saturating_mul(3);
        let counts = vec![0; functions.definitions.len()];
        let is_boot = row.name == BOOT;
        Operations {
            functions,
            counts,
            since: BTreeMap::new(),
            length: 0,
            reads: 0,
            seen: 0,
            instructions: 0,
            lengths,
            is_boot,
        }
    }

    /// The next instruction.
    fn push(&mut self, address: u64) {
        if self.functions.reads.binary_search(&address).is_ok() {
            let is_operation = match self.is_boot {
                true => self.reads == 1,
                false => {
                    let ended = self.reads.checked_sub(READS_BEFORE);
                    ended.is_some_and(|reads| reads % 2 == 1) && self.lengths.contains(&self.length)
                }
            };
            if is_operation {
                self.seen += 1;
                self.since.iter().for_each(|(&function, count)| self.counts[function] += count);
            }
            self.since.clear();
            self.length = 0;
            self.reads += 1;
        }
        self.instructions += 1;
        if let Some(function) = self.functions.find(address) {
            *self.since.entry(function).or_default() += 1;
            self.length += 1;
        }
    }
}

/// Boots the benchmark of a name, and calls `see` with the address of each instruction of the kernel, until it has seen enough.
fn trace(
    environment: &Environment,
    image: &Image,
    name: &str,
    mut see: impl FnMut(u64) -> bool,
) -> anyhow::Result<()> {
    let lane = Lane::named("icount").expect("there is a lane that counts instructions");
    let mut boot = lane.boot(&image.elf, &format!("bench only={name}"));
    let more = ["-accel", "tcg,one-insn-per-tb=on", "-d", "exec,nochain", "-dfilter"];
    boot.extra.extend(more.map(str::to_owned));
    boot.extra.push(format!("0x80200000+0x400000,{:#x}+0x400000", IMAGE_OFFSET + 0x8020_0000));
    let mut command = boot.command(environment);
    let mut qemu =
        command.args(["-serial", "null", "-monitor", "none"]).stdout(Stdio::null()).spawn()?;
    let log = qemu.stderr.take().expect("it is piped");
    // An instruction is said before it is executed; one that was not after all is taken back by the line after it.
    let mut last = None;
    for line in BufReader::new(log).lines() {
        let line = line?;
        if line.starts_with("Trace") {
            let now = address(&line).context("QEMU's log is not as expected")?;
            if last.replace(now).is_some_and(&mut see) {
                break;
            }
        } else if line.starts_with("Stopped execution") {
            last = None;
        }
    }
    // Whatever it has still to say does not matter.
    qemu.kill()?;
    qemu.wait()?;
    Ok(())
}

/// The virtual address in a line such as `Trace 0: 0x7f52 [00000000/ffffffff80200000/00000000/ff000000] name`.
fn address(line: &str) -> Option<u64> {
    let address = u64::from_str_radix(line.split('/').nth(1)?, 16).ok()?;
    // Before paging is on.
    Some(if address < IMAGE_OFFSET { address + IMAGE_OFFSET } else { address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_before_paging_is_that_of_the_same_code_later() {
        let line = |address| format!("Trace 0: 0x7f521c000100 [00000000/{address}/00/ff] _start");
        assert_eq!(address(&line("0000000080200010")), Some(0xffff_ffff_8020_0010));
        assert_eq!(address(&line("ffffffff80200010")), Some(0xffff_ffff_8020_0010));
        assert_eq!(address("Trace 0: 0x7f521c000100"), None);
    }

    #[test]
    fn what_lies_between_two_operations_counts_nothing() {
        let function = |name: &str, address| Definition {
            name: name.to_owned(),
            address,
            size: 16,
            kind: Kind::Code,
        };
        let definitions = vec![function("row", 0x100), function("work", 0x200)];
        let functions = Functions { definitions, reads: vec![0x100, 0x104] };
        let row = Row { name: "row".to_owned(), instructions: Tenths(30), min: 3, max: 3 };
        let mut operations = Operations::new(&row, &functions);
        // The boot, and whether there is a counter; then two operations with another call between them.
        for address in [0x100, 0x200, 0x100, 0x200, 0x100] {
            operations.push(address);
        }
        for address in [
            0x100, 0x200, 0x202, 0x204, 0x104, 0x206, 0x208, 0x20a, 0x100, 0x200, 0x202, 0x204,
            0x104,
        ] {
            operations.push(address);
        }
        assert_eq!(operations.counts, [2, 6]);
    }
}
