//! Machines at random, written as trees and read back; damaged blobs, read beside another parser.

mod common;

use std::collections::BTreeMap;

use common::promises::check_promises;
use common::{Node, node};
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node as _, Property as _};
use machine::{
    Context, Error, Extensions, HEADER_SIZE, Interrupt, Machine, PHYSICAL_END, PhysicalRange,
    UartKind,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Trees that QEMU wrote: of virt with an initrd and a command line, of sifive_u, of spike.
const REAL: [&[u8]; 3] = [
    include_bytes!("blobs/virt.dtb"),
    include_bytes!("blobs/sifive_u.dtb"),
    include_bytes!("blobs/spike.dtb"),
];

// Machines at random.

#[derive(Clone, Debug)]
struct RandomHart {
    enabled: bool,
    extensions: Extensions,
    /// Whether they are given as a list rather than as a string.
    as_list: bool,
    zero_block_log2: u32,
    phandle: u32,
    /// Whether it has a supervisor context in the PLIC.
    has_context: bool,
}

#[derive(Clone, Debug)]
struct RandomMachine {
    /// Widths for the root's children, from 2 so that 64 bits fit.
    cells: (u32, u32),
    banks: Vec<(usize, usize, u32)>,
    reservations: Vec<(u64, u64)>,
    reserved_nodes: Vec<(u64, u64, bool)>,
    harts: BTreeMap<u64, RandomHart>,
    timebase: u32,
    /// Where each bus, from the root's child down, begins for its parent.
    buses: Vec<u32>,
    /// Contexts in the PLIC for machine mode (true) or supervisor mode, in this order.
    context_order: Vec<Index>,
    uart_kind: UartKind,
    uart_interrupt: u16,
    uart_first: bool,
    bootargs: String,
}

prop_compose! {
    fn random_hart()(
        enabled in any::<bool>(),
        bits in any::<u32>(),
        as_list in any::<bool>(),
        zero_block_log2 in 2..10_u32,
        phandle in any::<u32>(),
        has_context in any::<bool>(),
    ) -> RandomHart {
        let extensions = Extensions::from_bits_truncate(bits);
        RandomHart { enabled, extensions, as_list, zero_block_log2, phandle, has_context }
    }
}

prop_compose! {
    fn random_machine()(
        cells in (2..4_u32, 2..4_u32),
        banks in vec((0..64_usize, 1..9_usize, 0..3_u32), 1..12),
        reservations in vec((any::<u64>(), 1..u64::MAX), 0..4),
        reserved_nodes in vec((any::<u64>(), 1..u64::MAX, any::<bool>()), 0..4),
        mut harts in btree_map(any::<u64>(), random_hart(), 1..9),
        phandles in btree_set(2..1000_u32, 9),
        timebase in 1..u32::MAX,
        buses in vec((0..0x100_u32).prop_map(|page| page * 0x1000), 0..5),
        context_order in vec(any::<Index>(), 18),
        uart_kind in select(vec![UartKind::Ns16550, UartKind::SiFive]),
        uart_interrupt in 1..96_u16,
        uart_first in any::<bool>(),
        bootargs in "[ -~]{0,40}",
    ) -> RandomMachine {
        for (hart, phandle) in harts.values_mut().zip(phandles) {
            hart.phandle = phandle;
        }
        harts.first_entry().expect("at least one").get_mut().enabled = true;
        RandomMachine {
            cells, banks, reservations, reserved_nodes, harts, timebase, buses, context_order,
            uart_kind, uart_interrupt, uart_first, bootargs,
        }
    }
}

const UART: u32 = 0x10_0000;
const PLIC: u32 = 0x20_0000;
const PLIC_PHANDLE: u32 = 1;

impl RandomMachine {
    /// An address and a size as wide as the root says.
    fn reg(&self, pairs: &[(u64, u64)]) -> Vec<u8> {
        let wide = |number: u64, width: u32| {
            let padding = vec![0; 4 * (width as usize - 2)];
            [padding, number.to_be_bytes().to_vec()].concat()
        };
        let (address, size) = self.cells;
        pairs.iter().flat_map(|&(a, s)| [wide(a, address), wide(s, size)].concat()).collect()
    }

    /// The order of contexts: hart id, and whether it is for machine mode.
    fn contexts(&self) -> Vec<(u64, bool)> {
        let all = self.harts.iter().flat_map(|(&id, hart)| {
            let machine = (id, true);
            [machine].into_iter().chain(hart.has_context.then_some((id, false)))
        });
        let mut contexts: Vec<_> = all.collect();
        for place in 0..contexts.len() {
            let other = self.context_order[place].index(contexts.len());
            contexts.swap(place, other);
        }
        contexts
    }

    fn tree(&self) -> Node {
        let (address, size) = self.cells;
        let mut root = node("").cells("#address-cells", &[address]).cells("#size-cells", &[size]);
        for (start, length, numa_node) in &self.banks {
            let pair = (*start as u64 * 0x1000, *length as u64 * 0x1000);
            root = root.child(
                node(format!("memory@{:x}", pair.0))
                    .text("device_type", "memory")
                    .with("reg", self.reg(&[pair]))
                    .cells("numa-node-id", &[*numa_node]),
            );
        }
        root = root.child(self.cpus()).child(node("chosen").text("bootargs", &self.bootargs));

        let mut reserved = node("reserved-memory").flag("ranges");
        reserved = reserved.cells("#address-cells", &[address]).cells("#size-cells", &[size]);
        for (start, size, no_map) in &self.reserved_nodes {
            let child = node("reserved").with("reg", self.reg(&[(*start, *size)]));
            reserved = reserved.child(if *no_map { child.flag("no-map") } else { child });
        }
        root.child(reserved).child(self.devices())
    }

    fn cpus(&self) -> Node {
        let mut cpus = node("cpus").cells("#address-cells", &[2]).cells("#size-cells", &[0]);
        cpus = cpus.cells("timebase-frequency", &[self.timebase]);
        for (id, hart) in &self.harts {
            let names = hart.extensions.iter_names().map(|(name, _)| name.to_lowercase());
            let names: Vec<_> = names.collect();
            let cpu = node(format!("cpu@{id:x}"))
                .text("device_type", "cpu")
                .numbers("reg", &[*id])
                .cells("riscv,cboz-block-size", &[1 << hart.zero_block_log2])
                .text("status", if hart.enabled { "okay" } else { "disabled" });
            let cpu = if hart.as_list {
                cpu.text("riscv,isa-extensions", &names.join("\0"))
            } else {
                let (letters, words): (Vec<_>, Vec<_>) =
                    names.into_iter().partition(|name| name.len() == 1);
                let words: String = words.iter().map(|word| format!("_{word}")).collect();
                cpu.text("riscv,isa", &format!("rv64{}{words}", letters.concat()))
            };
            cpus = cpus.child(
                cpu.child(
                    node("interrupt-controller")
                        .flag("interrupt-controller")
                        .cells("phandle", &[hart.phandle]),
                ),
            );
        }
        cpus
    }

    /// The devices within the buses.
    fn devices(&self) -> Node {
        let compatible = match self.uart_kind {
            UartKind::Ns16550 => "ns16550a",
            UartKind::SiFive => "sifive,uart0",
        };
        // Below a bus there is one cell for each number, at the root there are more.
        let reg = |start: u32, size: u32| match self.buses[..] {
            [] => self.reg(&[(start.into(), size.into())]),
            _ => [start, size].iter().flat_map(|number| number.to_be_bytes()).collect(),
        };
        let uart = node("uart")
            .text("compatible", compatible)
            .with("reg", reg(UART, 0x100))
            .cells("interrupts", &[self.uart_interrupt.into()])
            .cells("interrupt-parent", &[PLIC_PHANDLE]);
        let contexts = self.contexts().into_iter().flat_map(|(id, is_machine)| {
            [self.harts[&id].phandle, if is_machine { 11 } else { 9 }]
        });
        let plic = node("plic")
            .text("compatible", "riscv,plic0")
            .with("reg", reg(PLIC, 0x40_0000))
            .cells("interrupts-extended", &contexts.collect::<Vec<_>>())
            .cells("riscv,ndev", &[95])
            .cells("phandle", &[PLIC_PHANDLE]);
        let (one, other) = if self.uart_first { (uart, plic) } else { (plic, uart) };
        let mut inner = node("devices").child(one).child(other);
        if self.buses.is_empty() {
            // A bus that changes nothing.
            let (address, size) = self.cells;
            return inner
                .flag("ranges")
                .cells("#address-cells", &[address])
                .cells("#size-cells", &[size]);
        }
        for (level, start) in self.buses.iter().enumerate().rev() {
            let parent_width = if level == 0 { self.cells.0 as usize } else { 1 };
            let mut ranges = vec![0; 1 + parent_width];
            ranges[parent_width] = *start;
            ranges.push(0x1000_0000);
            inner = inner
                .cells("ranges", &ranges)
                .cells("#address-cells", &[1])
                .cells("#size-cells", &[1]);
            if level > 0 {
                inner = node("bus").child(inner);
            }
        }
        inner
    }

    /// Which pages are in a bank.
    fn memory(&self) -> [bool; 72] {
        let mut memory = [false; 72];
        for (start, length, _) in &self.banks {
            memory[*start..start + length].fill(true);
        }
        memory
    }
}

proptest! {
    #[test]
    fn a_machine_written_as_a_tree_is_read_back(random in random_machine()) {
        let blob = random.tree().blob_with(&random.reservations);
        let machine = Machine::discover(&blob).map_err(|e| TestCaseError::fail(e.to_string()))?;

        // Memory: together the banks are what was described; where none overlap, so are they.
        let mut memory = [false; 72];
        for bank in &machine.banks {
            let pages = bank.range.start() / 0x1000..bank.range.end() / 0x1000;
            for page in pages {
                prop_assert!(!memory[page as usize], "no page is in two banks");
                memory[page as usize] = true;
                let describes = |&(start, length, numa_node): &(usize, usize, u32)| {
                    (start..start + length).contains(&(page as usize)) && numa_node == bank.numa_node
                };
                prop_assert!(random.banks.iter().any(describes), "a bank's node is the tree's");
            }
        }
        prop_assert_eq!(memory, random.memory());
        for pair in machine.banks.windows(2) {
            let touch = pair[0].range.end() == pair[1].range.start();
            prop_assert!(pair[0].range.end() <= pair[1].range.start());
            prop_assert!(!touch || pair[0].numa_node != pair[1].numa_node);
        }

        // Reservations.
        let clip = |&(start, size): &(u64, u64)| PhysicalRange::new(start, size);
        let nodes = random.reserved_nodes.iter();
        let nodes = nodes.map(|&(start, size, no_map)| (clip(&(start, size)), no_map));
        let expected = random.reservations.iter().map(|pair| (clip(pair), false)).chain(nodes);
        let expected: Vec<_> = expected.filter(|(range, _)| range.is_some()).collect();
        let found = machine.reservations().map(|found| (Some(found.range), found.no_map));
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);

        // Harts, and their contexts.
        let ids: Vec<u64> = machine.harts.iter().map(|hart| hart.id.0).collect();
        prop_assert_eq!(ids, random.harts.keys().copied().collect::<Vec<_>>());
        let contexts = random.contexts();
        for (found, (&id, hart)) in machine.harts.iter().zip(&random.harts) {
            prop_assert_eq!(found.enabled, hart.enabled);
            prop_assert_eq!(found.extensions, hart.extensions);
            let has_zicboz = hart.extensions.contains(Extensions::ZICBOZ);
            let block = found.zero_block.map(|bytes| bytes.get());
            prop_assert_eq!(block, has_zicboz.then_some(1 << hart.zero_block_log2));
            let number = contexts.iter().position(|&context| context == (id, false));
            let context = number.map(|number| Context { plic: 0, number: number as u16 });
            prop_assert_eq!(found.context, context);
        }
        prop_assert_eq!(machine.timebase.get(), u64::from(random.timebase));
        prop_assert_eq!(machine.chosen.bootargs, random.bootargs);

        // Devices: each bus adds its own start.
        let offset: u64 = random.buses.iter().map(|&start| u64::from(start)).sum();
        let uart = machine.uart.expect("a UART");
        prop_assert_eq!(uart.kind, random.uart_kind);
        prop_assert_eq!(Some(uart.registers), clip(&(offset + u64::from(UART), 0x100)));
        prop_assert_eq!(uart.interrupt, Some(Interrupt { plic: 0, number: random.uart_interrupt }));
        let plic = machine.plics[0].registers;
        prop_assert_eq!(Some(plic), clip(&(offset + u64::from(PLIC), 0x40_0000)));
    }

    #[test]
    fn ranges_are_never_empty_and_never_above_the_end(start: u64, size: u64, log2 in 0..40_u32) {
        let alignment = 1 << log2;
        let Some(range) = PhysicalRange::new(start, size) else {
            prop_assert!(size == 0 || start >= PHYSICAL_END);
            return Ok(());
        };
        prop_assert!(range.start() < range.end() && range.end() <= PHYSICAL_END);
        prop_assert_eq!(range.start(), start);
        prop_assert!(range.size() <= size);
        prop_assert!(range.contains(range.start()) && range.contains(range.end() - 1));
        prop_assert!(!range.contains(range.end()) && !range.contains(range.start().wrapping_sub(1)));
        let outer = range.aligned_outwards(alignment);
        prop_assert!(outer.start() % alignment == 0 && outer.end() % alignment == 0);
        prop_assert_eq!(outer.intersection(range), Some(range));
        prop_assert!(outer.size() < range.size() + 2 * alignment);
        match range.aligned_inwards(alignment) {
            Some(inner) => {
                prop_assert!(inner.start() % alignment == 0 && inner.end() % alignment == 0);
                prop_assert_eq!(inner.intersection(range), Some(inner));
                prop_assert!(range.size() < inner.size() + 2 * alignment);
            }
            None => prop_assert!(range.size() < 2 * alignment),
        }
    }
}

// Damaged blobs.

/// How many damaged blobs each property looks at: 4,000, or as many as `OS16_DAMAGED_BLOBS` says for a long run.
fn damaged_blobs() -> u32 {
    let asked = std::env::var("OS16_DAMAGED_BLOBS").ok();
    asked.map_or(4000, |count| count.parse().expect("OS16_DAMAGED_BLOBS is a number"))
}

/// One thing that happens to a blob.
#[derive(Clone, Debug)]
enum Damage {
    Bit(Index, u8),
    /// A cell gets one of the numbers that mean something, or lie at an edge.
    Cell(Index, u32),
    HeaderField(usize, u32),
    /// A piece is copied over another.
    Copy(Index, Index, usize),
    CutShort(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let number = || {
        prop_oneof![
            0..10_u32,
            select(vec![31, 64, 0x7fff_ffff, 0x8000_0000, u32::MAX - 3, u32::MAX]),
            any::<u32>(),
        ]
    };
    prop_oneof![
        4 => (any::<Index>(), 0..8_u8).prop_map(|(byte, bit)| Damage::Bit(byte, bit)),
        4 => (any::<Index>(), number()).prop_map(|(cell, number)| Damage::Cell(cell, number)),
        1 => (0..10_usize, number()).prop_map(|(field, number)| Damage::HeaderField(field, number)),
        1 => (0..10_usize, 0..7000_u32).prop_map(|(field, n)| Damage::HeaderField(field, n)),
        2 => (any::<Index>(), any::<Index>(), 1..200_usize)
            .prop_map(|(from, to, length)| Damage::Copy(from, to, length)),
        1 => any::<Index>().prop_map(Damage::CutShort),
    ]
}

fn apply(damage: &Damage, blob: &mut Vec<u8>) {
    let cell = match *damage {
        Damage::Cell(cell, number) => Some((4 * cell.index(blob.len() / 4 + 1), number)),
        Damage::HeaderField(field, number) => Some((4 * field, number)),
        _ => None,
    };
    if let Some((offset, number)) = cell
        && let Some(cell) = blob.get_mut(offset..offset + 4)
    {
        cell.copy_from_slice(&number.to_be_bytes());
    }
    match *damage {
        Damage::Bit(byte, bit) if !blob.is_empty() => {
            let byte = byte.index(blob.len());
            blob[byte] ^= 1 << bit;
        }
        Damage::Copy(from, to, length) if !blob.is_empty() => {
            let (from, to) = (from.index(blob.len()), to.index(blob.len()));
            let length = length.min(blob.len() - from.max(to));
            blob.copy_within(from..from + length, to);
        }
        Damage::CutShort(length) => blob.truncate(length.index(blob.len() + 1)),
        _ => {}
    }
}

/// The same few facts by another parser: memory as pairs, hart ids, and the command line.
fn other_view(fdt: Fdt) -> (Vec<(u64, u64)>, Vec<u64>, Option<String>) {
    let numbers = |value: &[u8]| -> Vec<u64> {
        let pairs = value.as_chunks().0.iter();
        pairs.map(|bytes| u64::from_be_bytes(*bytes)).collect()
    };
    let root = fdt.root();
    let memory = root.children().filter(|node| {
        node.name_without_address() == "memory"
            || node.property("device_type").is_some_and(|it| it.value().starts_with(b"memory\0"))
    });
    let memory = memory.filter_map(|node| node.property("reg")).flat_map(|reg| {
        let numbers = numbers(reg.value());
        numbers.as_chunks().0.iter().map(|&[start, size]| (start, size)).collect::<Vec<_>>()
    });
    let memory = memory.collect();
    let cpus = root.children().find(|node| node.name_without_address() == "cpus");
    let harts = cpus.into_iter().flat_map(|cpus| cpus.children().collect::<Vec<_>>());
    let harts = harts.filter(|node| node.name_without_address() == "cpu");
    let ids = harts.filter_map(|node| {
        let reg = node.property("reg")?;
        Some(u32::from_be_bytes(*reg.value().first_chunk()?).into())
    });
    let ids = ids.collect();
    let chosen = root.children().find(|node| node.name_without_address() == "chosen");
    let bootargs = chosen.and_then(|node| {
        let property = node.property("bootargs")?;
        let text = property.value().split(|&byte| byte == 0).next()?;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    });
    (memory, ids, bootargs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(damaged_blobs()))]

    #[test]
    fn a_damaged_blob_gives_an_error_or_a_machine_that_keeps_its_promises(
        which in 0..REAL.len(),
        damages in vec(damage(), 1..12),
    ) {
        let mut blob = REAL[which].to_vec();
        damages.iter().for_each(|damage| apply(damage, &mut blob));
        if let Some(header) = blob.first_chunk::<HEADER_SIZE>() {
            let _ = machine::blob_size(header);
        }
        let outcome = Machine::discover(&blob);
        match &outcome {
            Ok(machine) => check_promises(machine),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        // What a parser that is stricter about names accepts is not malformed here. It does not look
        // at the structure block's size, though.
        if blob.get(36..40) == REAL[which].get(36..40) && Fdt::new(&blob).is_ok() {
            prop_assert!(!matches!(outcome, Err(Error::Malformed { .. })), "{:?}", outcome.err());
        }
    }

    #[test]
    fn another_parser_sees_the_same_in_a_damaged_value(
        which in 0..REAL.len(),
        damages in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let mut blob = REAL[which].to_vec();
        // Only what the other view reads: the values of memory's and the harts' reg, and bootargs.
        let name = |name: &str| {
            let wanted = format!("{name}\0");
            let strings = u32::from_be_bytes(*blob[12..].first_chunk().unwrap()) as usize;
            let found = blob[strings..].windows(wanted.len()).position(|w| w == wanted.as_bytes());
            found.unwrap_or(usize::MAX)
        };
        let places: Vec<usize> = ["reg", "bootargs"].into_iter().map(name).flat_map(|name| {
            let structure = u32::from_be_bytes(*blob[8..].first_chunk().unwrap()) as usize;
            let cell = |offset: usize| u32::from_be_bytes(*blob[offset..].first_chunk().unwrap());
            let offsets = (structure..blob.len() - 12).step_by(4);
            let properties = offsets
                .filter(|&offset| cell(offset) == 3 && cell(offset + 8) as usize == name)
                .filter(|&offset| cell(offset + 4) <= 20);
            properties
                .flat_map(|offset| offset + 12..offset + 12 + cell(offset + 4) as usize)
                .collect::<Vec<_>>()
        }).collect();
        for (place, byte) in damages {
            blob[*place.get(&places)] = byte;
        }
        let fdt = Fdt::new(&blob).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let (memory, mut ids, bootargs) = other_view(fdt);
        match Machine::discover(&blob) {
            Ok(machine) => {
                let banks = memory.iter().filter_map(|&(start, size)| PhysicalRange::new(start, size));
                let found = machine.banks.iter().map(|bank| bank.range);
                prop_assert_eq!(found.collect::<Vec<_>>(), banks.collect::<Vec<_>>());
                ids.sort();
                ids.dedup();
                let found: Vec<u64> = machine.harts.iter().map(|hart| hart.id.0).collect();
                prop_assert_eq!(found, ids);
                prop_assert_eq!(machine.chosen.bootargs, bootargs.unwrap_or_default());
            }
            Err(error) => {
                prop_assert!(matches!(error, Error::NoMemory(_)), "{}", error);
                let mut banks = memory.iter().map(|&(start, size)| PhysicalRange::new(start, size));
                prop_assert!(banks.all(|bank| bank.is_none()));
            }
        }
    }
}

#[test]
fn a_real_blob_cut_short_at_any_byte_is_an_error() {
    for blob in REAL {
        assert!(Machine::discover(blob).is_ok());
        for length in 0..blob.len() {
            assert!(Machine::discover(&blob[..length]).is_err(), "{length}");
            let mut owns_up = blob[..length].to_vec();
            if let Some(size) = owns_up.get_mut(4..8) {
                size.copy_from_slice(&(length as u32).to_be_bytes());
            }
            if let Ok(machine) = Machine::discover(&owns_up) {
                check_promises(&machine);
            }
        }
    }
}

#[test]
fn each_byte_of_a_real_blob_may_have_a_wrong_bit() {
    for blob in REAL {
        let mut blob = blob.to_vec();
        for byte in 0..blob.len() {
            blob[byte] ^= 1 << (byte % 8);
            if let Ok(machine) = Machine::discover(&blob) {
                check_promises(&machine);
            }
            blob[byte] ^= 1 << (byte % 8);
        }
    }
}
