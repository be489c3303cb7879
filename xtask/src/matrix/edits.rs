//! Changes of QEMU's tree of `virt`: what other boards leave out, and what is wrong with bad trees.

use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};

/// Where `virt` has its memory.
const MEMORY: u64 = 0x8000_0000;

/// The node at a path that `virt`'s tree has.
fn node<'a>(tree: &'a mut DeviceTree, path: &str) -> &'a mut DeviceTreeNode {
    tree.find_node_mut(path).unwrap_or_else(|| panic!("virt's tree has {path}"))
}

fn set(node: &mut DeviceTreeNode, name: &str, value: impl AsRef<[u8]>) {
    node.remove_property(name);
    node.add_property(DeviceTreeProperty::new_unchecked(name, value.as_ref()));
}

fn cells(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn numbers(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

fn new_node(name: &str) -> DeviceTreeNode {
    DeviceTreeNode::new_unchecked(name)
}

/// No UART and no test device, and so no way to end QEMU.
pub fn bare(tree: &mut DeviceTree) {
    without_exit_device(tree);
    node(tree, "/soc").remove_child("serial@10000000");
    node(tree, "/chosen").remove_property("stdout-path");
    tree.root.remove_child("aliases");
}

/// No test device: neither kernel nor firmware can end QEMU.
pub fn without_exit_device(tree: &mut DeviceTree) {
    for name in ["poweroff", "reboot"] {
        tree.root.remove_child(name);
    }
    node(tree, "/soc").remove_child("test@100000");
}

/// Only hart 1 may boot; the firmware starts no other first.
pub fn boot_hart_is_1(tree: &mut DeviceTree) {
    let hart = node(tree, "/cpus/cpu@1");
    let phandle = hart.property_mut("phandle").expect("virt's harts have one");
    let phandle = dtoolkit::Property::value(&&*phandle).to_vec();
    let mut config = new_node("opensbi-config");
    set(&mut config, "compatible", "opensbi,config\0");
    set(&mut config, "cold-boot-harts", phandle);
    node(tree, "/chosen").add_child(config);
}

/// Hart 0 is not to be used.
pub fn hart_0_disabled(tree: &mut DeviceTree) {
    set(node(tree, "/cpus/cpu@0"), "status", "disabled\0");
}

/// No node says where memory is.
pub fn no_memory(tree: &mut DeviceTree) {
    tree.root.remove_child("memory@80000000");
}

/// Time stands still.
pub fn timebase_zero(tree: &mut DeviceTree) {
    set(node(tree, "/cpus"), "timebase-frequency", cells(&[0]));
}

/// Banks that overlap, in part and wholly, and that begin and end within a page.
pub fn untidy_banks(tree: &mut DeviceTree) {
    let banks = [
        (MEMORY, 0x200_0000),
        (MEMORY + 0x100_0000, 0x200_0123),
        (MEMORY + 0x10_0000, 0x1000),
        (MEMORY + 0x400_0fff, 0x3ff_f001),
        (MEMORY + 0x380_0000, 7),
    ];
    let banks: Vec<u64> = banks.into_iter().flat_map(|(start, size)| [start, size]).collect();
    set(node(tree, "/memory@80000000"), "reg", numbers(&banks));
}

/// Hundreds of banks, a page apart from each other, after the one that holds kernel and tree.
pub fn hundreds_of_banks(tree: &mut DeviceTree) {
    let mut banks = vec![MEMORY, 0x100_0000];
    banks.extend((0..400).flat_map(|n| [MEMORY + 0x100_0000 + n * 0x1_0000, 0xf000]));
    // QEMU puts the tree near the end.
    banks.extend([MEMORY + 0x600_0000, 0x200_0000]);
    set(node(tree, "/memory@80000000"), "reg", numbers(&banks));
}

/// Of 32 MiB nothing is left but the MiB of the kernel, 256 KiB before it, two MiB after it, and this much more.
fn all_reserved_but(tree: &mut DeviceTree, more: u64) {
    let begin = MEMORY + 0x60_0000 + more;
    let taken = [
        (MEMORY + 0x6_0000, MEMORY + 0x1c_0000),
        (MEMORY + 0x30_0000, MEMORY + 0x40_0000),
        (begin, MEMORY + 0x200_0000),
    ];
    let taken = taken.map(|(start, end)| ("taken", start, end - start));
    reserve(tree, &taken);
}

/// As much memory as the kernel says that it needs, on two harts.
pub fn just_enough(tree: &mut DeviceTree) {
    all_reserved_but(tree, 0x12_0000);
}

/// Enough memory to begin with, and too little to go on.
pub fn too_little(tree: &mut DeviceTree) {
    all_reserved_but(tree, 0x4_0000);
}

/// Adds reservations.
fn reserve(tree: &mut DeviceTree, ranges: &[(&str, u64, u64)]) {
    let mut reserved = new_node("reserved-memory");
    set(&mut reserved, "#address-cells", cells(&[2]));
    set(&mut reserved, "#size-cells", cells(&[2]));
    set(&mut reserved, "ranges", []);
    for (name, start, size) in ranges {
        let mut child = new_node(&format!("{name}@{start:x}"));
        set(&mut child, "reg", numbers(&[*start, *size]));
        reserved.add_child(child);
    }
    tree.root.add_child(reserved);
}

/// A reservation of the kernel's own image, and one that the firmware's overlaps.
pub fn reservations_over_the_kernel(tree: &mut DeviceTree) {
    reserve(tree, &[("kernel", MEMORY + 0x20_0000, 0x8_0000), ("odd", MEMORY + 0x28_0001, 0x17)]);
}

/// The kernel's own image must not be mapped, says a reservation.
pub fn kernel_not_to_be_mapped(tree: &mut DeviceTree) {
    reservations_over_the_kernel(tree);
    set(node(tree, "/reserved-memory/kernel@80200000"), "no-map", []);
}

/// A UART that the kernel would take for the console, and that is not there. The firmware does not know this kind.
pub fn absent_uart(tree: &mut DeviceTree) {
    let mut uart = new_node("serial@18000000");
    set(&mut uart, "compatible", "ns16450\0");
    set(&mut uart, "reg", numbers(&[0x1800_0000, 0x100]));
    let soc = node(tree, "/soc");
    let there = soc.remove_child("serial@10000000").expect("virt has a UART");
    soc.add_child(uart);
    soc.add_child(there);
    node(tree, "/chosen").remove_property("stdout-path");
    tree.root.remove_child("aliases");
}

/// A UART where something else answers: the configuration space of PCI.
pub fn uart_is_something_else(tree: &mut DeviceTree) {
    absent_uart(tree);
    set(node(tree, "/soc/serial@18000000"), "reg", numbers(&[0x3000_0000, 0x100]));
}

/// A UART where reading gives all ones: PCI, where no card is.
pub fn uart_reads_as_ones(tree: &mut DeviceTree) {
    absent_uart(tree);
    set(node(tree, "/soc/serial@18000000"), "reg", numbers(&[0x3000_0000 + (5 << 15), 0x100]));
}

/// A UART in the middle of memory.
pub fn uart_in_memory(tree: &mut DeviceTree) {
    absent_uart(tree);
    set(node(tree, "/soc/serial@18000000"), "reg", numbers(&[MEMORY + 0x100_0000, 0x100]));
}

/// An exit device that is not there.
pub fn absent_exit_device(tree: &mut DeviceTree) {
    without_exit_device(tree);
    let mut exit = new_node("test@18000000");
    set(&mut exit, "compatible", "sifive,test1\0sifive,test0\0");
    set(&mut exit, "reg", numbers(&[0x1800_0000, 0x1000]));
    node(tree, "/soc").add_child(exit);
}

/// Interrupt numbers that no controller has, and a controller that says it has more than there can be.
pub fn interrupt_out_of_range(tree: &mut DeviceTree) {
    set(node(tree, "/soc/serial@10000000"), "interrupts", cells(&[96]));
}

/// Addresses and sizes of three cells.
pub fn three_cells(tree: &mut DeviceTree) {
    set(&mut tree.root, "#address-cells", cells(&[3]));
    set(&mut tree.root, "#size-cells", cells(&[3]));
    set(node(tree, "/memory@80000000"), "reg", cells(&[0, 0, 0x8000_0000, 0, 0, 0x800_0000]));
    tree.root.remove_child("flash@20000000");
    tree.root.remove_child("fw-cfg@10100000");
}

/// Addresses and sizes of one cell, where the bus below has two.
pub fn one_cell(tree: &mut DeviceTree) {
    set(&mut tree.root, "#address-cells", cells(&[1]));
    set(&mut tree.root, "#size-cells", cells(&[1]));
    set(node(tree, "/memory@80000000"), "reg", cells(&[0x8000_0000, 0x800_0000]));
    tree.root.remove_child("flash@20000000");
    tree.root.remove_child("fw-cfg@10100000");
}

/// A hundred nodes, each in the one before.
pub fn deep(tree: &mut DeviceTree) {
    let innermost = new_node("level");
    let nest = (0..99).fold(innermost, |below, _| {
        let mut level = new_node("level");
        level.add_child(below);
        level
    });
    tree.root.add_child(nest);
}

/// A tree of a MiB.
pub fn large(tree: &mut DeviceTree) {
    let mut ballast = new_node("ballast");
    // Many properties and one large one: neither number nor size may matter.
    for n in 0..1000 {
        set(&mut ballast, &format!("p{n}"), [7; 32]);
    }
    set(&mut ballast, "large", vec![0xa5; 980 << 10]);
    tree.root.add_child(ballast);
}
