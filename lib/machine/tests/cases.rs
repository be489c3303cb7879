//! Trees made by hand: what the machine is, what is warned of, what is refused.

mod common;

use common::{Node, blob_of, cpu, cpus, memory, node, plic, root, small_machine, soc, uart};
use machine::{
    Bank, Context, Error, Extensions, HartId, Interrupt, MAXIMUM_BANKS, MAXIMUM_HARTS,
    MAXIMUM_WARNINGS, Machine, Mmu, PhysicalRange, UartKind,
};

/// Discovers the machine in a tree and hands it on.
#[track_caller]
fn machine<T>(tree: &Node, look: impl FnOnce(&Machine) -> T) -> T {
    look(&Machine::discover(&tree.blob()).unwrap_or_else(|error| panic!("{error}")))
}

/// The warnings, as text.
fn warnings(machine: &Machine) -> Vec<String> {
    machine.warnings.iter().map(ToString::to_string).collect()
}

/// The same, of a tree.
#[track_caller]
fn warnings_of(tree: &Node) -> Vec<String> {
    machine(tree, warnings)
}

fn range(start: u64, size: u64) -> PhysicalRange {
    PhysicalRange::new(start, size).expect("not empty")
}

/// Starts and sizes of the banks.
fn banks(machine: &Machine) -> Vec<(u64, u64)> {
    machine.banks.iter().map(|bank| (bank.range.start(), bank.range.size())).collect()
}

/// The small machine with a PLIC and a UART in its soc.
fn machine_with_uart() -> Node {
    small_machine().child(soc().child(plic(&[100, 11, 100, 9])).child(uart(0x1000_0000)))
}

#[test]
fn a_small_machine_is_found_without_warnings() {
    machine(&machine_with_uart(), |machine| {
        let bank = Bank { range: range(0x8000_0000, 0x800_0000), numa_node: 0 };
        assert_eq!(machine.banks[..], [bank]);
        assert_eq!(machine.timebase.get(), 10_000_000);
        let [hart] = machine.harts[..] else { panic!("one hart") };
        assert_eq!((hart.id, hart.enabled, hart.mmu), (HartId(0), true, Some(Mmu::Sv39)));
        assert_eq!(hart.context, Some(Context { plic: 0, number: 1 }));
        let uart = machine.uart.expect("a UART");
        assert_eq!((uart.kind, uart.registers), (UartKind::Ns16550, range(0x1000_0000, 0x100)));
        assert_eq!((uart.register_shift, uart.access_width), (0, 1));
        assert_eq!(uart.interrupt, Some(Interrupt { plic: 0, number: 10 }));
        assert_eq!(warnings(machine), [""; 0]);
    });
}

// Memory.

#[test]
fn no_memory_node_is_an_error() {
    let tree = root().child(cpus().child(cpu(0))).blob();
    let error = Machine::discover(&tree).err().expect("an error");
    assert_eq!(error, Error::NoMemory(None));
    assert_eq!(error.to_string(), "no usable memory in the device tree");
}

#[test]
fn a_memory_node_without_reg_is_named_in_the_error() {
    let tree = root().child(node("memory@0").text("device_type", "memory")).blob();
    let error = Machine::discover(&tree).err().expect("an error");
    assert_eq!(
        error.to_string(),
        "no usable memory in the device tree; \
         memory@0: reg bytes are not whole entries: the rest is left out"
    );
}

#[test]
fn memory_is_found_by_its_name_or_its_type_and_only_where_enabled() {
    let tree = small_machine()
        .child(node("memory@100000000").numbers("reg", &[0x1_0000_0000, 0x1000]))
        .child(node("ram").text("device_type", "memory").numbers("reg", &[0, 0x1000]))
        .child(node("memory-controller@1000").numbers("reg", &[0x1000, 0x1000]))
        .child(memory(0x2_0000_0000, 0x1000).text("status", "disabled"));
    let expected = [(0, 0x1000), (0x8000_0000, 0x800_0000), (0x1_0000_0000, 0x1000)];
    assert_eq!(machine(&tree, banks), expected);
}

#[test]
fn overlapping_banks_are_taken_once_and_unaligned_ones_as_they_are() {
    let tree = small_machine().child(memory(0x87ff_fffd, 0x1001)).child(memory(0x9000_0007, 3));
    machine(&tree, |machine| {
        assert_eq!(banks(machine), [(0x8000_0000, 0x800_0ffe), (0x9000_0007, 3)]);
        let text = "memory@87fffffd: reg 0x87fffffd is in another bank too: taken once";
        assert_eq!(warnings(machine), [text]);
        assert_eq!(machine.banks[1].range.aligned_inwards(4096), None);
    });
}

#[test]
fn numa_nodes_keep_banks_apart_that_touch() {
    let bank = |start, id| memory(start, 0x1000).cells("numa-node-id", &[id]);
    let tree = root()
        .child(bank(0x2000, 1))
        .child(bank(0x1000, 0))
        .child(bank(0x3000, 1))
        .child(cpus().child(cpu(0)));
    machine(&tree, |machine| {
        assert_eq!(banks(machine), [(0x1000, 0x1000), (0x2000, 0x2000)]);
        assert_eq!(machine.banks.iter().map(|bank| bank.numa_node).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(warnings(machine), [""; 0]);
    });
}

#[test]
fn hundreds_of_banks_that_touch_are_one() {
    let numbers: Vec<u64> = (0..300).flat_map(|n| [(299 - n) * 0x1000, 0x1000]).collect();
    let tree = root().child(node("memory@0").numbers("reg", &numbers)).child(cpus().child(cpu(0)));
    assert_eq!(machine(&tree, banks), [(0, 300 * 0x1000)]);
    assert_eq!(warnings_of(&tree), [""; 0]);
}

#[test]
fn of_hundreds_of_banks_the_largest_are_kept() {
    // Sizes from 1 to 300 pages, in an order that mixes them.
    let size = |n: u64| (1 + n * 7 % 300) * 0x1000;
    let numbers: Vec<u64> = (0..300).flat_map(|n| [n << 32, size(n)]).collect();
    let tree = root().child(node("memory@0").numbers("reg", &numbers)).child(cpus().child(cpu(0)));
    machine(&tree, |machine| {
        let mut sizes: Vec<u64> = machine.banks.iter().map(|bank| bank.range.size()).collect();
        sizes.sort();
        let expected = (301 - MAXIMUM_BANKS as u64..=300).map(|pages| pages * 0x1000);
        assert_eq!(sizes, expected.collect::<Vec<_>>());
        assert!(machine.banks.is_sorted_by_key(|bank| bank.range));
        let [warning] = machine.warnings[..] else { panic!("{:?}", warnings(machine)) };
        assert_eq!(warning.more as usize, 300 - MAXIMUM_BANKS - 1);
        assert!(warning.to_string().contains("one bank too many: left out (and 268 more times)"));
    });
}

#[test]
fn a_bank_is_cut_off_where_physical_addresses_end() {
    let tree = small_machine().child(memory(0xff_ffff_ffff_f000, u64::MAX));
    machine(&tree, |machine| {
        assert_eq!(banks(machine)[1], (0xff_ffff_ffff_f000, 0x1000));
        assert_eq!(warnings(machine).len(), 1);
    });
    let tree = small_machine().child(memory(0xff_ffff_ffff_f000, 0x1000));
    assert_eq!(warnings_of(&tree), [""; 0]);
    let tree = small_machine().child(memory(u64::MAX, u64::MAX));
    assert_eq!(machine(&tree, |machine| machine.banks.len()), 1);
}

#[test]
fn cells_of_one_two_and_three_are_honoured() {
    for address in 1..=3 {
        for size in 1..=3 {
            let number = |width: usize, number: u32| [vec![0; width - 1], vec![number]].concat();
            let reg = [number(address, 0x8000_0000), number(size, 0x1000)].concat();
            let tree = node("")
                .cells("#address-cells", &[address as u32])
                .cells("#size-cells", &[size as u32])
                .child(node("memory@80000000").cells("reg", &reg))
                .child(cpus().child(cpu(0)));
            assert_eq!(machine(&tree, banks), [(0x8000_0000, 0x1000)]);
            assert_eq!(warnings_of(&tree), [""; 0]);
        }
    }
}

#[test]
fn cells_default_to_two_and_one() {
    let tree = node("")
        .child(node("memory@80000000").cells("reg", &[0, 0x8000_0000, 0x1000]))
        .child(cpus().child(cpu(0)));
    assert_eq!(machine(&tree, banks), [(0x8000_0000, 0x1000)]);
}

#[test]
fn a_number_above_64_bits_is_left_out() {
    let tree = node("")
        .cells("#address-cells", &[3])
        .cells("#size-cells", &[1])
        .child(node("memory@0").cells("reg", &[1, 0, 0, 0x1000, 0, 0, 0x2000, 0x1000]))
        .child(cpus().child(cpu(0)));
    assert_eq!(machine(&tree, banks), [(0x2000, 0x1000)]);
    assert_eq!(warnings_of(&tree), ["memory@0: reg has numbers above 64 bits: left out"]);
}

#[test]
fn cells_of_none_and_of_millions_leave_no_memory() {
    for cells in [[0, 0], [u32::MAX, u32::MAX], [2, u32::MAX], [0, 2]] {
        let tree = node("")
            .cells("#address-cells", &cells[..1])
            .cells("#size-cells", &cells[1..])
            .child(node("memory@0").numbers("reg", &[0x8000_0000, 0]))
            .child(cpus().child(cpu(0)))
            .blob();
        let outcome = Machine::discover(&tree);
        // Two cells of size alone are a bank at 0, of which the second entry is empty.
        assert_eq!(outcome.is_ok(), cells == [0, 2], "{cells:?}");
    }
}

#[test]
fn reg_that_ends_inside_an_entry_gives_the_whole_ones() {
    let mut tree = small_machine();
    tree.at(&["memory@80000000"]).properties[1].1.extend([0; 12]);
    assert_eq!(machine(&tree, banks), [(0x8000_0000, 0x800_0000)]);
    let text = "memory@80000000: reg 0x1c bytes are not whole entries: the rest is left out";
    assert_eq!(warnings_of(&tree), [text]);
}

// Reservations.

#[test]
fn both_kinds_of_reservation_are_listed() {
    let reserved = node("reserved-memory")
        .cells("#address-cells", &[1])
        .cells("#size-cells", &[1])
        .flag("ranges")
        .child(node("firmware@80000000").cells("reg", &[0x8000_0000, 0x8000]).flag("no-map"))
        .child(node("two").cells("reg", &[0x100, 0x10, 0x200, 0x20]))
        .child(node("unused").cells("reg", &[0x300, 0x30]).text("status", "disabled"))
        .child(node("later").cells("size", &[0x10_0000]));
    let tree = small_machine().child(reserved).blob_with(&[(7, 8), (9, u64::MAX)]);
    let machine = Machine::discover(&tree).expect("a machine");
    let found: Vec<_> = machine
        .reservations()
        .map(|reservation| {
            let range = reservation.range;
            (range.start(), range.size(), reservation.name, reservation.no_map)
        })
        .collect();
    let expected = [
        (7, 8, "", false),
        (9, machine::PHYSICAL_END - 9, "", false),
        (0x8000_0000, 0x8000, "firmware@80000000", true),
        (0x100, 0x10, "two", false),
        (0x200, 0x20, "two", false),
    ];
    assert_eq!(found, expected);
    assert_eq!(warnings(&machine), ["later: size 0x100000 without reg: not reserved"]);
}

#[test]
fn a_reservation_that_cannot_be_read_is_an_error() {
    let cases: [(&[u32], &str); 3] = [
        (&[0x400], "reg 0x4 bytes are not whole entries: the rest is left out"),
        (&[], "reg 0x0 bytes are not whole entries: the rest is left out"),
        (&[1, 0, 0, 0, 0, 9], "reg has numbers above 64 bits: left out"),
    ];
    for (reg, problem) in cases {
        let reserved = node("reserved-memory")
            .cells("#address-cells", &[3])
            .cells("#size-cells", &[3])
            .child(node("broken").cells("reg", reg));
        let tree = small_machine().child(reserved).blob();
        let error = Machine::discover(&tree).err().expect("an error").to_string();
        let expected =
            format!("a reservation in the device tree cannot be read: broken: {problem}");
        assert_eq!(error, expected);
    }
}

#[test]
fn reservations_have_no_limit() {
    let map: Vec<(u64, u64)> = (1..5000).map(|n| (n * 0x1000, 1)).collect();
    let tree = small_machine().blob_with(&map);
    let machine = Machine::discover(&tree).expect("a machine");
    assert_eq!(machine.reservations().count(), map.len());
}

// Harts.

#[test]
fn no_hart_is_an_error() {
    let without = root().child(memory(0, 0x1000));
    let empty = root().child(memory(0, 0x1000)).child(cpus());
    let mut disabled = small_machine();
    let hart = disabled.at(&["cpus", "cpu@0"]);
    hart.replace("status", Some(b"disabled\0".to_vec()));
    for tree in [without, empty, disabled] {
        assert_eq!(Machine::discover(&tree.blob()).err(), Some(Error::NoHart(None)));
    }
}

#[test]
fn a_timebase_of_zero_or_none_is_an_error() {
    for timebase in [None, Some(vec![0; 4]), Some(vec![0; 8]), Some(vec![1; 3])] {
        let mut tree = small_machine();
        tree.at(&["cpus"]).replace("timebase-frequency", timebase);
        assert_eq!(Machine::discover(&tree.blob()).err(), Some(Error::NoTimebase));
    }
}

#[test]
fn the_timebase_may_have_64_bits_or_be_a_harts() {
    let mut tree = small_machine();
    tree.at(&["cpus"]).replace("timebase-frequency", Some(0x1_0000_0000_u64.to_be_bytes().into()));
    assert_eq!(machine(&tree, |machine| machine.timebase.get()), 0x1_0000_0000);
    tree.at(&["cpus"]).replace("timebase-frequency", None);
    tree.at(&["cpus", "cpu@0"]).replace("timebase-frequency", Some(vec![0, 0, 1, 0]));
    assert_eq!(machine(&tree, |machine| machine.timebase.get()), 0x100);
}

#[test]
fn harts_are_sorted_sparse_and_once_each() {
    let mut tree = root().child(memory(0, 0x1000)).child(
        cpus().child(cpu(7)).child(cpu(3)).child(node("l2-cache")).child(cpu(7)).child(cpu(0xffff)),
    );
    tree.at(&["cpus", "cpu@3"]).replace("status", Some(b"disabled\0".to_vec()));
    machine(&tree, |machine| {
        let found: Vec<_> = machine.harts.iter().map(|hart| (hart.id.0, hart.enabled)).collect();
        assert_eq!(found, [(3, false), (7, true), (0xffff, true)]);
        assert_eq!(warnings(machine), ["cpu@7: reg 0x7 is a hart twice: left out"]);
    });
}

#[test]
fn a_hart_is_known_by_its_name_or_its_type() {
    let mut named = cpu(1);
    named.replace("device_type", None);
    let mut typed = cpu(2);
    typed.name = b"core@2".to_vec();
    let mut neither = typed.clone();
    neither.replace("device_type", None);
    let tree =
        root().child(memory(0, 0x1000)).child(cpus().child(named).child(typed).child(neither));
    machine(&tree, |machine| {
        let ids: Vec<_> = machine.harts.iter().map(|hart| hart.id.0).collect();
        assert_eq!((ids, warnings(machine)), (vec![1, 2], vec![]));
    });
}

#[test]
fn hart_ids_may_have_64_bits() {
    let hart = cpu(0);
    let mut cpus = cpus().child(hart);
    cpus.replace("#address-cells", Some(2_u32.to_be_bytes().into()));
    cpus.children[0].replace("reg", Some(0x1_2345_6789_u64.to_be_bytes().into()));
    let tree = root().child(memory(0, 0x1000)).child(cpus);
    machine(&tree, |machine| {
        assert_eq!(machine.harts[0].id, HartId(0x1_2345_6789));
        assert_eq!(machine.isa(HartId(0x1_2345_6789)), "rv64imac");
        assert_eq!(machine.isa(HartId(0)), "");
    });
}

#[test]
fn harts_beyond_the_table_are_left_out() {
    let all = (0..300).fold(cpus(), |cpus, id| cpus.child(cpu(id)));
    machine(&root().child(memory(0, 0x1000)).child(all), |machine| {
        assert_eq!(machine.harts.len(), MAXIMUM_HARTS);
        let text = "cpu@20: reg 0x20 is one hart too many: left out (and 267 more times)";
        assert_eq!(warnings(machine), [text]);
    });
}

#[test]
fn extensions_are_read_from_either_property() {
    use Extensions as E;
    let imac = E::I | E::M | E::A | E::C;
    let cases = [
        ("rv64imac", imac),
        ("rv64gc", imac | E::F | E::D),
        ("RV64IMAC_ZBA_Sstc", imac | E::ZBA | E::SSTC),
        ("rv64i2p1m2p0a2p1c2p0_zicbom1p0_svadu1p0", imac | E::ZICBOM | E::SVADU),
        ("rv64imacsu", imac),
        ("rv64imasstc_zba", E::I | E::M | E::A | E::SSTC | E::ZBA),
        ("rv64imaczihintpause_zawrs", imac | E::ZIHINTPAUSE | E::ZAWRS),
        (
            "rv64imac_zic64b_zve64d_xventana_svinval_svnapot_svpbmt_svade",
            imac | E::SVINVAL | E::SVNAPOT | E::SVPBMT | E::SVADE,
        ),
        ("rv64imachv_zbb_zbs", imac | E::H | E::V | E::ZBB | E::ZBS),
        ("rv64", E::empty()),
        ("rv", E::empty()),
        ("rv64é_sstc", E::SSTC),
        ("", E::empty()),
    ];
    for (isa, expected) in cases {
        let mut tree = small_machine();
        tree.at(&["cpus", "cpu@0"]).replace("riscv,isa", Some(format!("{isa}\0").into()));
        assert_eq!(machine(&tree, |machine| machine.harts[0].extensions), expected, "{isa}");
    }
    // The list has precedence, and its names are whole.
    let mut tree = small_machine();
    let list = b"i\0m\0a\0c\0sstc\0zbax\0\0svadu\0";
    tree.at(&["cpus", "cpu@0"]).replace("riscv,isa-extensions", Some(list.to_vec()));
    let expected = imac | E::SSTC | E::SVADU;
    assert_eq!(machine(&tree, |machine| machine.harts[0].extensions), expected);
}

#[test]
fn zicboz_needs_its_block_size() {
    for (size, expected) in [(None, None), (Some(0), None), (Some(48), None), (Some(64), Some(64))]
    {
        let mut tree = small_machine();
        let hart = tree.at(&["cpus", "cpu@0"]);
        hart.replace("riscv,isa", Some(b"rv64imac_zicboz\0".to_vec()));
        let value = size.map(|size: u32| size.to_be_bytes().to_vec());
        hart.replace("riscv,cboz-block-size", value);
        machine(&tree, |machine| {
            let hart = machine.harts[0];
            assert_eq!(hart.zero_block.map(|bytes| bytes.get()), expected);
            assert_eq!(hart.extensions.contains(Extensions::ZICBOZ), expected.is_some());
            assert_eq!(machine.warnings.len(), usize::from(expected.is_none()));
        });
    }
}

#[test]
fn page_tables_are_those_of_mmu_type() {
    let cases = [
        ("riscv,sv39", Some(Mmu::Sv39)),
        ("riscv,sv48", Some(Mmu::Sv48)),
        ("riscv,sv57", Some(Mmu::Sv57)),
        ("riscv,none", None),
        ("riscv,sv32", None),
    ];
    for (name, expected) in cases {
        let mut tree = small_machine();
        tree.at(&["cpus", "cpu@0"]).replace("mmu-type", Some(format!("{name}\0").into()));
        assert_eq!(machine(&tree, |machine| machine.harts[0].mmu), expected);
    }
}

// `/chosen`.

/// What is found of a `/chosen` with these properties, in a machine with two UARTs.
fn chosen(properties: &[(&str, &[u8])], look: impl FnOnce(&Machine)) {
    let chosen =
        properties.iter().fold(node("chosen"), |chosen, (name, value)| chosen.with(name, *value));
    let tree = small_machine()
        .child(node("aliases").text("serial1", "/soc/serial@10001000"))
        .child(chosen)
        .child(soc().child(uart(0x1000_0000)).child(uart(0x1000_1000)).child(plic(&[])));
    machine(&tree, look);
}

#[test]
fn the_console_is_the_uart_that_stdout_path_names() {
    let cases: [(&str, u64, &str); 7] = [
        ("/soc/serial@10001000", 0x1000_1000, ""),
        ("/soc/serial@10001000:115200n8", 0x1000_1000, "115200n8"),
        ("serial1:9600", 0x1000_1000, "9600"),
        ("serial1", 0x1000_1000, ""),
        ("/soc/serial", 0x1000_0000, ""),
        ("/soc/serial@10001000/", 0x1000_1000, ""),
        ("/memory@80000000", 0x1000_0000, ""),
    ];
    for property in ["stdout-path", "linux,stdout-path"] {
        for (path, address, options) in cases {
            let value = format!("{path}\0");
            chosen(&[(property, value.as_bytes())], |machine| {
                let uart = machine.uart.expect("a UART");
                assert_eq!(uart.registers.start(), address, "{path}");
                assert_eq!(machine.chosen.stdout_options, options);
                assert_eq!(warnings(machine), [""; 0]);
            });
        }
    }
}

#[test]
fn without_a_node_for_stdout_the_first_uart_is_the_console() {
    for path in ["/soc/serial@2", "serial0", "", "/soc/serial@10001000/x", "soc/serial@10001000"] {
        let value = format!("{path}\0");
        chosen(&[("stdout-path", value.as_bytes())], |machine| {
            assert_eq!(machine.uart.map(|uart| uart.registers.start()), Some(0x1000_0000));
            assert_eq!(warnings(machine), ["chosen: stdout-path names no node: any UART is taken"]);
        });
    }
    chosen(&[], |machine| assert!(machine.uart.is_some() && machine.warnings.is_empty()));
}

#[test]
fn the_command_line_is_text_or_empty() {
    chosen(&[("bootargs", b"test only=frame::*\0")], |machine| {
        assert_eq!(machine.chosen.bootargs, "test only=frame::*");
    });
    chosen(&[], |machine| assert_eq!(machine.chosen.bootargs, ""));
    chosen(&[("bootargs", b"\xff\0")], |machine| {
        assert_eq!(machine.chosen.bootargs, "");
        assert_eq!(warnings(machine), ["chosen: bootargs is no text: taken as empty"]);
    });
}

#[test]
fn the_initrd_has_32_or_64_bits() {
    let start = ("linux,initrd-start", &[0, 0, 0, 0, 0x84, 0, 0, 0][..]);
    chosen(&[start, ("linux,initrd-end", &[0x84, 0, 0x30, 0])], |machine| {
        assert_eq!(machine.chosen.initrd, Some(range(0x8400_0000, 0x3000)));
    });
    chosen(&[start, ("linux,initrd-end", &[0x84, 0, 0, 0])], |machine| {
        assert_eq!(machine.chosen.initrd, None);
        let text = "chosen: linux,initrd-end 0x84000000 is not after the start: no initrd";
        assert_eq!(warnings(machine), [text]);
    });
    chosen(&[start], |machine| assert_eq!(machine.chosen.initrd, None));
}

// Devices.

/// The UART that is found where it has other properties, and the warnings.
fn uart_with(properties: &[(&str, &[u32])], look: impl FnOnce(Option<machine::Uart>, Vec<String>)) {
    let mut tree = machine_with_uart();
    for (name, cells) in properties {
        let value = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        tree.at(&["soc", "serial@10000000"]).replace(name, Some(value));
    }
    machine(&tree, |machine| look(machine.uart, warnings(machine)));
}

#[test]
fn registers_of_a_uart_are_as_far_apart_and_as_wide_as_the_tree_says() {
    let properties: [(&str, &[u32]); 5] = [
        ("reg-shift", &[2]),
        ("reg-io-width", &[4]),
        ("reg-offset", &[0x40]),
        ("clock-frequency", &[3_686_400]),
        ("current-speed", &[115_200]),
    ];
    uart_with(&properties, |uart, warnings| {
        let uart = uart.expect("a UART");
        assert_eq!((uart.register_shift, uart.access_width), (2, 4));
        assert_eq!(uart.registers, range(0x1000_0040, 0xc0));
        assert_eq!(uart.clock.map(|clock| clock.get()), Some(3_686_400));
        assert_eq!(uart.speed.map(|speed| speed.get()), Some(115_200));
        assert_eq!(warnings, [""; 0]);
    });
}

#[test]
fn a_uart_that_cannot_be_is_not_used() {
    let cases: [(&str, &[u32], &str); 6] = [
        ("reg-shift", &[40], "reg-shift 0x28 or reg-io-width cannot be: not used"),
        ("reg-io-width", &[3], "reg-shift 0x0 or reg-io-width cannot be: not used"),
        ("reg-offset", &[0xff], "reg 0x100 bytes are too few: not used"),
        ("reg-offset", &[u32::MAX, u32::MAX], "reg 0x100 bytes are too few: not used"),
        ("reg", &[0, 0x1000_0000, 0, 7], "reg 0x7 bytes are too few: not used"),
        ("reg", &[u32::MAX, u32::MAX, 1, 0], "reg 0x100000000 bytes are too few: not used"),
    ];
    for (name, cells, text) in cases {
        uart_with(&[(name, cells)], |uart, warnings| {
            assert_eq!(uart, None, "{name} {cells:?}");
            assert_eq!(warnings, [format!("serial@10000000: {text}")]);
        });
    }
}

#[test]
fn a_uart_needs_room_for_its_registers_and_no_more() {
    for shift in 0..=4 {
        for (missing, is_found) in [(0, true), (1, false)] {
            let reg: &[u32] = &[0, 0x1000_0000, 0, (8 << shift) - missing];
            uart_with(&[("reg-shift", &[shift]), ("reg", reg)], |uart, _| {
                assert_eq!(uart.is_some(), is_found, "{shift} {missing}");
            });
        }
    }
}

#[test]
fn a_sifive_uart_needs_no_widths() {
    let mut tree = machine_with_uart();
    let uart = tree.at(&["soc", "serial@10000000"]);
    uart.replace("compatible", Some(b"sifive,fu740-c000-uart\0sifive,uart0\0".to_vec()));
    machine(&tree, |machine| {
        let uart = machine.uart.expect("a UART");
        assert_eq!((uart.kind, uart.register_shift, uart.access_width), (UartKind::SiFive, 2, 4));
    });
}

#[test]
fn an_interrupt_out_of_range_is_polled() {
    for number in [0, 96, 1023, u32::MAX] {
        uart_with(&[("interrupts", &[number])], |uart, warnings| {
            assert_eq!(uart.expect("a UART").interrupt, None);
            let text = format!("interrupts {number:#x} is no known source: polled");
            assert_eq!(warnings, [format!("serial@10000000: {text}")]);
        });
    }
    uart_with(&[("interrupts", &[95])], |uart, _| assert!(uart.unwrap().interrupt.is_some()));
    uart_with(&[("interrupts", &[])], |uart, _| assert!(uart.unwrap().interrupt.is_none()));
    uart_with(&[("interrupt-parent", &[2])], |uart, _| assert!(uart.unwrap().interrupt.is_none()));
    uart_with(&[("interrupts-extended", &[1, 33, 5, 6])], |uart, _| {
        assert_eq!(uart.unwrap().interrupt, Some(Interrupt { plic: 0, number: 33 }));
    });
}

#[test]
fn the_interrupt_parent_is_inherited() {
    for level in [&["soc"][..], &[]] {
        let mut tree = machine_with_uart();
        tree.at(&["soc", "serial@10000000"]).replace("interrupt-parent", None);
        assert!(machine(&tree, |machine| machine.uart.unwrap().interrupt.is_none()));
        tree.at(level).replace("interrupt-parent", Some(vec![0, 0, 0, 1]));
        assert!(machine(&tree, |machine| machine.uart.unwrap().interrupt.is_some()));
    }
}

#[test]
fn a_device_in_memory_is_not_used() {
    let exit = node("test@100000")
        .text("compatible", "sifive,test1")
        .numbers("reg", &[0x87ff_ffff, 0x1000]);
    let devices = soc().child(plic(&[100, 9])).child(uart(0x8000_1000)).child(uart(0x1000_0000));
    machine(&small_machine().child(devices.child(exit)), |machine| {
        assert_eq!(machine.uart.expect("another").registers.start(), 0x1000_0000);
        assert_eq!(machine.exit_device, None);
        let text = "serial@80001000: reg 0x80001000 is in memory: not used (and 1 more times)";
        assert_eq!(warnings(machine), [text]);
    });
}

#[test]
fn registers_are_found_by_what_a_device_is_compatible_with() {
    let clock = |address: u64, status: &str| {
        node(format!("rtc@{address:x}"))
            .with("compatible", "a,newer\0google,goldfish-rtc\0")
            .text("status", status)
            .numbers("reg", &[address, 0x1000])
    };
    let devices = soc().child(clock(0x10_0000, "disabled")).child(clock(0x10_1000, "okay"));
    machine(&small_machine().child(devices.child(clock(0x10_2000, "okay"))), |machine| {
        let found = |compatible| machine.registers_of(compatible);
        assert_eq!(found("google,goldfish-rtc"), Some(range(0x10_1000, 0x1000)));
        assert_eq!(found("a,newer"), Some(range(0x10_1000, 0x1000)));
        assert_eq!(found("google,goldfish"), None);
        assert_eq!(warnings(machine), [""; 0]);
    });
    let in_memory = small_machine().child(soc().child(clock(0x8000_1000, "okay")));
    machine(&in_memory, |machine| assert_eq!(machine.registers_of("a,newer"), None));
}

#[test]
fn a_machine_that_is_refused_still_has_its_exit_device() {
    let exit = || {
        node("test@100000").text("compatible", "sifive,test1").numbers("reg", &[0x10_0000, 0x1000])
    };
    let mut timeless = small_machine();
    timeless.at(&["cpus"]).replace("timebase-frequency", None);
    let reserved = node("reserved-memory").child(node("broken").cells("reg", &[0]));
    let trees = [
        (root().child(cpus().child(cpu(0))), Error::NoMemory(None)),
        (root().child(memory(0x8000_0000, 0x1000)), Error::NoHart(None)),
        (timeless, Error::NoTimebase),
    ];
    for (tree, expected) in trees {
        let blob = tree.child(soc().child(exit())).blob();
        let mut slot = None;
        assert_eq!(Machine::discover_into(&mut slot, &blob), Err(expected));
        let found = slot.and_then(|machine| machine.exit_device);
        assert_eq!(found, Some(range(0x10_0000, 0x1000)), "{expected:?}");
    }
    let blob = small_machine().child(reserved).child(soc().child(exit())).blob();
    let mut slot = None;
    assert!(matches!(Machine::discover_into(&mut slot, &blob), Err(Error::Reservation(_))));
    assert!(slot.is_some_and(|machine| machine.exit_device.is_some()));
}

#[test]
fn a_disabled_bus_disables_its_devices() {
    for path in [&["soc"][..], &["soc", "serial@10000000"]] {
        let mut tree = machine_with_uart();
        tree.at(path).replace("status", Some(b"disabled\0".to_vec()));
        assert!(machine(&tree, |machine| machine.uart.is_none()));
    }
}

#[test]
fn contexts_are_those_of_interrupts_extended() {
    let tree = root()
        .child(memory(0, 0x1000))
        .child(cpus().child(cpu(1)).child(cpu(4)).child(cpu(5)).child(cpu(9)))
        // Hart 1 has no supervisor mode; a context is not connected; another's hart is not there.
        .child(soc().child(plic(&[101, 11, 105, 9, u32::MAX, u32::MAX, 999, 9, 104, 11, 104, 9])))
        .child(plic(&[109, 9, 104, 9]));
    machine(&tree, |machine| {
        let found: Vec<_> = machine.harts.iter().map(|hart| hart.context).collect();
        let context = |plic, number| Some(Context { plic, number });
        assert_eq!(found, [None, context(0, 5), context(0, 1), context(1, 0)]);
        let text = "plic@c000000: interrupts-extended 0x1 is a context without registers, \
                    or a hart's second: left out";
        assert_eq!(warnings(machine), [text]);
    });
}

#[test]
fn a_context_without_registers_is_left_out() {
    // Context 1 has its registers from 0x20_1000 to 0x20_2000.
    for (size, plics, warnings) in [(0x20_2000, 1, 0), (0x20_1fff, 1, 1), (0x20_0fff, 0, 2)] {
        let mut tree = machine_with_uart();
        let reg = [0xc00_0000, size].map(u64::to_be_bytes).concat();
        tree.at(&["soc", "plic@c000000"]).replace("reg", Some(reg));
        machine(&tree, |machine| {
            assert_eq!(machine.harts[0].context.is_some(), size == 0x20_2000);
            assert_eq!((machine.plics.len(), machine.warnings.len()), (plics, warnings));
        });
    }
}

#[test]
fn the_number_of_sources_is_from_1_to_1023() {
    for (ndev, expected) in [(None, 1023), (Some(0), 1023), (Some(1024), 1023), (Some(53), 53)] {
        let mut tree = machine_with_uart();
        let value = ndev.map(|ndev: u32| ndev.to_be_bytes().to_vec());
        tree.at(&["soc", "plic@c000000"]).replace("riscv,ndev", value);
        machine(&tree, |machine| {
            assert_eq!(machine.plics[0].sources, expected);
            let is_about_ndev = |text: &String| text.starts_with("plic@c000000: riscv,ndev");
            assert_eq!(warnings(machine).iter().any(is_about_ndev), expected != 53);
        });
    }
}

#[test]
fn devices_without_driver_are_named() {
    let tree = machine_with_uart()
        .child(node("htif").text("compatible", "ucb,htif0"))
        .child(node("aplic@1").text("compatible", "riscv,aplic"))
        .child(node("imsics@2").text("compatible", "riscv,imsics"));
    assert_eq!(warnings_of(&tree), ["htif: has no driver: not used (and 2 more times)"]);
}

#[test]
fn the_exit_device_is_the_first_test_device() {
    let test = |address| {
        node(format!("test@{address:x}"))
            .with("compatible", *b"sifive,test1\0sifive,test0\0syscon\0")
            .numbers("reg", &[address, 0x1000])
    };
    let tree = small_machine().child(soc().child(test(0x10_0000)).child(test(0x20_0000)));
    machine(&tree, |machine| assert_eq!(machine.exit_device, Some(range(0x10_0000, 0x1000))));
}

// Buses.

/// A bus with one cell for an address and one for a size, and these ranges, of four cells each.
fn bus(ranges: Option<&[u32]>, child: Node) -> Node {
    let bus = node("bus").cells("#address-cells", &[1]).cells("#size-cells", &[1]).child(child);
    ranges.into_iter().fold(bus, |bus, ranges| bus.cells("ranges", ranges))
}

/// A UART at 0x100 of such a bus.
fn uart_on_bus() -> Node {
    let mut uart = uart(0x100);
    uart.replace("reg", Some([0x100_u32, 0x100].iter().flat_map(|n| n.to_be_bytes()).collect()));
    uart
}

#[test]
fn addresses_are_translated_by_every_bus_above() {
    // 0x100 on the inner bus is 0x1100 on the outer one, which the CPU sees at 0x1_0000_1100.
    let inner = bus(Some(&[0, 0x8000, 0x80, 0x80, 0x1080, 0x180]), uart_on_bus());
    assert_eq!(inner.properties.last().unwrap().1.len(), 24);
    let inner = bus(Some(&[0x80, 0x1080, 0x180]), uart_on_bus());
    let outer = bus(Some(&[0, 0, 0, 0x1000, 0x1000, 1, 0x1000, 0x1000]), inner);
    let tree = small_machine().child(soc().child(outer));
    machine(&tree, |machine| {
        let uart = machine.uart.expect("a UART");
        assert_eq!(uart.registers, range(0x1_0000_1100, 0x100));
    });
}

#[test]
fn a_device_off_its_buses_is_not_used() {
    let ranges: [Option<&[u32]>; 6] = [
        None,
        Some(&[0x101, 0, 0x1000, 0x1000]),
        Some(&[0, 0, 0x1000, 0x100]),
        Some(&[0x100, 0, 0x1000, 0xff]),
        Some(&[0xff, u32::MAX, u32::MAX, 0x1000]),
        Some(&[0x100, 0, 0x1000]),
    ];
    for ranges in ranges {
        let tree = small_machine().child(bus(ranges, uart_on_bus()));
        machine(&tree, |machine| {
            assert_eq!(machine.uart, None, "{ranges:x?}");
            assert_eq!(warnings(machine), ["serial@100: reg 0x100 is on no bus: not used"]);
        });
    }
}

// The listing.

#[test]
fn the_listing_has_a_line_for_each_thing() {
    let mut tree = root()
        .text("model", "A board")
        .child(memory(0x8000_0000, 0x4000_0000))
        .child(memory(0x1_0000_0000, 0x1800).cells("numa-node-id", &[1]))
        .child(cpus().child(cpu(0)).child(cpu(1)).child(cpu(2)).child(cpu(4)))
        .child(
            node("chosen")
                .text("bootargs", "say \"hello\"")
                .cells("linux,initrd-start", &[0x8400_0000])
                .cells("linux,initrd-end", &[0x8400_0003]),
        )
        .child(
            node("reserved-memory")
                .cells("#address-cells", &[2])
                .cells("#size-cells", &[2])
                .child(node("rom@0").numbers("reg", &[0x8000_0000, 0x2_0000]).flag("no-map"))
                .child(node("log@0").numbers("reg", &[0x9000_0000, 0x20_0000])),
        )
        .child(soc().child(uart(0x1000_0000)).child(plic(&[101, 9, 100, 9, 104, 9])))
        .child(node("htif").text("compatible", "ucb,htif0"));
    let hart = tree.at(&["cpus", "cpu@0"]);
    hart.replace("mmu-type", None);
    hart.replace("status", Some(b"fail\0".to_vec()));
    for name in ["cpu@1", "cpu@2"] {
        let hart = tree.at(&["cpus", name]);
        hart.replace("riscv,isa", Some(b"rv64imac_zicboz_sstc\0".to_vec()));
        hart.replace("riscv,cboz-block-size", Some(vec![0, 0, 0, 64]));
    }
    let blob = tree.blob_with(&[(0x9900_0000, 0x1000)]);
    let expected = r#"
machine      A board
harts        0, no paging, rv64imac, disabled
harts        1 to 2 (2 of them), Sv39, rv64imac zicboz sstc, cbo.zero of 64 bytes
harts        4, Sv39, rv64imac
timebase     10000000 Hz
memory       0x0080000000..0x00c0000000, 1 GiB, NUMA node 0
memory       0x0100000000..0x0100001800, 6 KiB, NUMA node 1
reserved     0x0099000000..0x0099001000, 4 KiB, in the header
reserved     0x0080000000..0x0080020000, 128 KiB, rom@0, not to be mapped
reserved     0x0090000000..0x0090200000, 2 MiB, log@0
initrd       0x0084000000..0x0084000003, 3 bytes
uart         0x0010000000..0x0010000100, serial@10000000, Ns16550, interrupt 10 of plic@c000000
interrupts   0x000c000000..0x000c600000, plic@c000000, 95 sources, context of hart 0:1 1:0 4:2
exit device  none
command line "say \"hello\""
warning      htif: has no driver: not used
"#;
    let machine = Machine::discover(&blob).expect("a machine");
    assert_eq!(machine.to_string(), expected.trim_start());
}

#[test]
fn the_listing_says_what_is_not_there() {
    let expected = r#"
machine      (unnamed)
harts        0, Sv39, rv64imac
timebase     10000000 Hz
memory       0x0080000000..0x0088000000, 128 MiB, NUMA node 0
uart         none
interrupts   none
exit device  none
command line ""
"#;
    assert_eq!(machine(&small_machine(), |machine| machine.to_string()), expected.trim_start());
}

// What is malformed, long, deep or large.

#[test]
fn names_over_31_characters_and_of_any_characters_cost_nothing() {
    let odd = [&b"a-name-of-a-node-that-is-longer-than-31-characters@0"[..], b"", b"@@", b"\xff"];
    let tree = odd.iter().fold(machine_with_uart(), |tree, name| {
        tree.child(node(name).flag("a-name-of-a-property-that-is-longer-than-31-characters"))
    });
    machine(&tree, |machine| assert!(machine.uart.is_some() && machine.warnings.is_empty()));
    // Not even where it is the UART's own.
    let mut tree = machine_with_uart();
    tree.at(&["soc", "serial@10000000"]).name = b"\xff@10000000".to_vec();
    assert_eq!(
        machine(&tree, |machine| machine.uart.unwrap().name.to_owned()),
        "(a name that is not text)"
    );
}

#[test]
fn a_hundred_levels_are_not_looked_into_and_cost_nothing() {
    let deep = (0..100).fold(uart(0x2000_0000), |inner, _| soc().child(inner));
    let tree = small_machine().child(deep);
    machine(&tree, |machine| {
        assert_eq!(machine.uart, None);
        assert_eq!(warnings(machine), ["/: has 0x26 nodes too deep in it: left out"]);
    });
    let deep = (0..62).fold(uart(0x2000_0000), |inner, _| soc().child(inner));
    assert!(machine(&small_machine().child(deep), |machine| machine.uart.is_some()));
}

#[test]
fn depth_costs_no_stack() {
    let (begin, end) = ([0, 0, 0, 1, b'a', 0, 0, 0], [0, 0, 0, 2]);
    let levels = 150_000;
    let mut structure = [0, 0, 0, 1, 0, 0, 0, 0].to_vec();
    (0..levels).for_each(|_| structure.extend(begin));
    (0..=levels).for_each(|_| structure.extend(end));
    structure.extend([0, 0, 0, 9]);
    let blob = blob_of(&[], &structure, b"");
    let thread = std::thread::Builder::new().stack_size(256 * 1024);
    let outcome =
        thread.spawn(move || Machine::discover(&blob).err() == Some(Error::NoMemory(None)));
    assert!(outcome.expect("a thread").join().expect("no overflow"));
}

#[test]
fn a_blob_of_a_megabyte_is_read_and_one_above_two_is_refused() {
    let big = |bytes| small_machine().child(node("big").with("data", vec![0x55; bytes])).blob();
    assert!(Machine::discover(&big(1 << 20)).is_ok());
    let many = (0..20_000).fold(small_machine(), |tree, n| tree.child(node(format!("node@{n}"))));
    assert!(Machine::discover(&many.blob()).is_ok());
    let error = Machine::discover(&big(2 << 20)).err().expect("an error").to_string();
    assert!(error.starts_with("malformed device tree: 0x200"), "{error}");
    assert!(error.ends_with("at byte 0x4 is no total size from 40 bytes to 2 MiB"), "{error}");
}

#[test]
fn damage_on_purpose_does_not_make_it_slow() {
    // Each of many UARTs would have to be looked up in all of a bus's many ranges, in vain.
    let ranges: Vec<u32> = (0..50_000).flat_map(|_| [0xffff_0000, 0, 0, 1]).collect();
    let mut hostile = bus(Some(&ranges), node("x"));
    hostile.children = vec![uart_on_bus(); 10_000];
    machine(&small_machine().child(hostile), |machine| {
        assert_eq!(machine.uart, None);
        let expected = "serial@100: is one too many: left out";
        assert_eq!(warnings(machine).last().map(String::as_str), Some(expected));
    });
}

#[test]
fn sixty_four_known_devices_are_looked_at() {
    for (others, is_found) in [(63, true), (64, false)] {
        let off = |n: u64| uart(0x1000_0000 + n * 0x1000).text("status", "disabled");
        let soc = (0..others).fold(soc(), |soc, n| soc.child(off(n)));
        let tree = small_machine().child(soc.child(uart(0x2000_0000)));
        machine(&tree, |machine| assert_eq!(machine.uart.is_some(), is_found));
    }
}

#[test]
fn a_blob_cut_short_at_any_byte_is_an_error() {
    let blob = machine_with_uart().blob();
    assert!(Machine::discover(&blob).is_ok());
    for length in 0..blob.len() {
        let outcome = Machine::discover(&blob[..length]);
        assert!(matches!(outcome, Err(Error::Malformed { .. })), "{length}");
        // Also where the header owns up to it: every block but the last byte's is then short.
        let mut cut = blob[..length].to_vec();
        if length >= 8 {
            cut[4..8].copy_from_slice(&(length as u32).to_be_bytes());
            assert!(matches!(Machine::discover(&cut), Err(Error::Malformed { .. })), "{length}");
        }
    }
}

#[test]
fn bytes_after_the_blob_are_not_looked_at() {
    let mut blob = machine_with_uart().blob();
    blob.extend([0xa5; 1000]);
    assert!(Machine::discover(&blob).is_ok());
}

#[test]
fn every_damaged_field_of_the_header_is_named() {
    let blob = machine_with_uart().blob();
    let cases = [
        (0, 0xd00d_feee_u32, "0xd00dfeee at byte 0x0 is not the magic number 0xd00dfeed"),
        (4, 39, "0x27 at byte 0x4 is no total size from 40 bytes to 2 MiB"),
        (4, 0x20_0000, "0x200000 at byte 0x4 is more bytes than there are"),
        (8, u32::MAX, "0xffffffff at byte 0x8 leads outside the blob"),
        (12, u32::MAX, "0xffffffff at byte 0xc leads outside the blob"),
        (16, u32::MAX, "0xffffffff at byte 0x10 leads outside the blob"),
        (20, 16, "0x10 at byte 0x14 is a version below 17"),
        (24, 18, "0x12 at byte 0x18 is an oldest compatible version above 17"),
        (32, u32::MAX, "0xffffffff at byte 0x20 leads outside the blob"),
        (36, u32::MAX, "0xffffffff at byte 0x24 leads outside the blob"),
    ];
    for (offset, value, text) in cases {
        let mut damaged = blob.clone();
        damaged[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        let error = Machine::discover(&damaged).err().expect("an error").to_string();
        assert_eq!(error, format!("malformed device tree: {text}"));
    }
}

#[test]
fn tokens_out_of_place_are_refused() {
    let (begin, end, finish) = (&[1, 0][..], &[2][..], &[9][..]);
    let property = &[3, 0, 0][..];
    let nothing = &[4, 4][..];
    let cases: [(&[&[u32]], Option<usize>); 14] = [
        (&[begin, end, finish], None),
        (&[nothing, begin, nothing, property, nothing, end, nothing, finish], None),
        (&[begin, begin, property, end, begin, end, end, finish], None),
        (&[finish], Some(0)),
        (&[], Some(0)),
        (&[property, begin, end, finish], Some(0)),
        (&[end, begin, finish], Some(0)),
        (&[begin, finish], Some(8)),
        (&[begin, end, end, finish], Some(12)),
        (&[begin, end, begin, end, finish], Some(12)),
        (&[begin, begin, end, property, end, finish], Some(20)),
        (&[begin, &[3, 0, 1], end, finish], Some(8)),
        (&[begin, &[3, 13, 0], end, finish], Some(8)),
        (&[begin, &[5], end, finish], Some(8)),
    ];
    for (tokens, expected) in cases {
        let structure: Vec<u8> = tokens.concat().iter().flat_map(|n| n.to_be_bytes()).collect();
        let blob = blob_of(&[], &structure, b"\0");
        match (Machine::discover(&blob).err(), expected) {
            (Some(Error::NoMemory(None)), None) => {}
            (Some(Error::Malformed { offset, .. }), Some(expected)) => {
                assert_eq!(offset, 40 + 16 + expected, "{tokens:?}");
            }
            (outcome, _) => panic!("{tokens:?}: {outcome:?}"),
        }
    }
}

#[test]
fn warnings_beyond_the_list_are_counted() {
    let reserved = (0..100).fold(node("reserved-memory"), |parent, n| {
        // Two problems in turn, so that they are not told as one.
        parent.child(if n % 2 == 0 { node("a") } else { node("b").cells("size", &[1]) })
    });
    machine(&small_machine().child(reserved), |machine| {
        assert_eq!(machine.warnings.len(), MAXIMUM_WARNINGS);
        let told: u32 = machine.warnings.iter().map(|warning| 1 + warning.more).sum();
        assert_eq!(told as usize + machine.warnings_left_out, 100);
        let last = format!("warning      and {} more\n", machine.warnings_left_out);
        assert!(machine.warnings_left_out > 0 && machine.to_string().ends_with(&last));
    });
}
