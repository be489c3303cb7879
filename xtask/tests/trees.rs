//! Every tree that QEMU makes for its RISC-V machines, and what the kernel finds in it.

use std::process::Command;
use std::sync::OnceLock;

use machine::{Bank, Context, Extensions, Interrupt, Machine, Mmu, PhysicalRange, UartKind};
use xtask::environment::{self, Environment};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Where all these machines have their memory.
const MEMORY: u64 = 0x8000_0000;

fn range(start: u64, size: u64) -> PhysicalRange {
    PhysicalRange::new(start, size).expect("not empty")
}

/// The tree of a machine with these arguments, split at blanks.
fn tree(machine: &str, arguments: &str) -> Vec<u8> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    let found = ENVIRONMENT.get_or_init(|| environment::require().expect("the tools are there"));
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    xtask::machine::dump(&found.qemu, machine, &arguments).expect("QEMU makes a tree")
}

/// What is expected of a machine; what all have in common is in the defaults of each kind below.
#[derive(Debug)]
struct Expected {
    model: &'static str,
    banks: Vec<Bank>,
    /// Of each hart: its id, and its context in which PLIC.
    harts: Vec<(u64, Option<Context>)>,
    mmu: Mmu,
    timebase: u64,
    /// Kind, registers and interrupt.
    uart: Option<(UartKind, PhysicalRange, Option<Interrupt>)>,
    /// Registers and number of sources.
    plics: Vec<(PhysicalRange, u16)>,
    exit_device: Option<PhysicalRange>,
    warnings: Vec<&'static str>,
}

fn bank(start: u64, size: u64, numa_node: u32) -> Bank {
    Bank { range: range(start, size), numa_node }
}

/// QEMU gives each hart a context for machine mode, then one for supervisor mode.
fn contexts(harts: u64) -> Vec<(u64, Option<Context>)> {
    let context = |id: u64| Context { plic: 0, number: 2 * id as u16 + 1 };
    (0..harts).map(|id| (id, Some(context(id)))).collect()
}

fn virt(harts: u64, memory: u64) -> Expected {
    let interrupt = Some(Interrupt { plic: 0, number: 10 });
    Expected {
        model: "riscv-virtio,qemu",
        banks: vec![bank(MEMORY, memory, 0)],
        harts: contexts(harts),
        mmu: Mmu::Sv57,
        timebase: 10_000_000,
        uart: Some((UartKind::Ns16550, range(0x1000_0000, 0x100), interrupt)),
        plics: vec![(range(0xc00_0000, 0x60_0000), 95)],
        exit_device: Some(range(0x10_0000, 0x1000)),
        warnings: vec![],
    }
}

#[track_caller]
fn check(machine: &str, arguments: &str, expected: &Expected) {
    let blob = tree(machine, arguments);
    let found = Machine::discover(&blob).unwrap_or_else(|error| panic!("{machine}: {error}"));
    let what = format!("{machine} {arguments}\n{found}");
    assert_eq!(found.model, expected.model, "{what}");
    assert_eq!(found.banks[..], expected.banks, "{what}");
    let harts: Vec<_> = found.harts.iter().map(|hart| (hart.id.0, hart.context)).collect();
    assert_eq!(harts, expected.harts, "{what}");
    assert!(found.harts.iter().all(|hart| hart.enabled), "{what}");
    let mmus = found.harts.iter().filter_map(|hart| hart.mmu);
    assert!(mmus.clone().count() > 0 && mmus.clone().all(|mmu| mmu == expected.mmu), "{what}");
    let imac = Extensions::I | Extensions::M | Extensions::A | Extensions::C;
    assert!(found.harts.iter().all(|hart| hart.extensions.contains(imac)), "{what}");
    assert_eq!(found.timebase.get(), expected.timebase, "{what}");
    let uart = found.uart.as_ref().map(|uart| (uart.kind, uart.registers, uart.interrupt));
    assert_eq!(uart, expected.uart, "{what}");
    let plics: Vec<_> = found.plics.iter().map(|plic| (plic.registers, plic.sources)).collect();
    assert_eq!(plics, expected.plics, "{what}");
    assert_eq!(found.exit_device, expected.exit_device, "{what}");
    assert_eq!(found.reservations().count(), 0, "{what}");
    let warnings: Vec<_> = found.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, expected.warnings, "{what}");
    assert!(what.lines().count() <= 25, "{what}");
}

#[test]
fn virt_with_1_to_8_harts() {
    for harts in 1..=8 {
        check("virt", &format!("-smp {harts}"), &virt(harts, 128 * MIB));
    }
}

#[test]
fn virt_with_32_mib_to_16_gib() {
    for mib in [32, 64, 128, 1023, 1024, 2048, 3072, 8192, 16384] {
        check("virt", &format!("-m {mib}M"), &virt(1, mib * MIB));
    }
}

#[test]
fn virt_of_two_numa_nodes() {
    let arguments = "-smp 4 -m 3G -object memory-backend-ram,id=a,size=1G \
                     -object memory-backend-ram,id=b,size=2G -numa node,memdev=a,cpus=0-1 \
                     -numa node,memdev=b,cpus=2-3";
    let mut expected = virt(4, GIB);
    expected.banks.push(bank(MEMORY + GIB, 2 * GIB, 1));
    // Each node has a PLIC of its own, in which its harts count from 0.
    expected.plics.push((range(0xc60_0000, 0x60_0000), 95));
    expected.harts[2].1 = Some(Context { plic: 1, number: 1 });
    expected.harts[3].1 = Some(Context { plic: 1, number: 3 });
    check("virt", arguments, &expected);
}

#[test]
fn virt_with_aclint() {
    check("virt,aclint=on", "-smp 4", &virt(4, 128 * MIB));
}

/// A machine whose interrupt controllers have no driver.
fn with_aia(harts: u64, controllers: &'static str) -> Expected {
    let polled = "serial@10000000: interrupts 0xa is no known source: polled";
    let mut expected = virt(harts, 128 * MIB);
    expected.harts.iter_mut().for_each(|(_, context)| *context = None);
    expected.uart = Some((UartKind::Ns16550, range(0x1000_0000, 0x100), None));
    Expected { plics: vec![], warnings: vec![controllers, polled], ..expected }
}

#[test]
fn virt_with_aia() {
    let two = "interrupt-controller@d000000: has no driver: not used (and 1 more times)";
    check("virt,aia=aplic", "-smp 2", &with_aia(2, two));
    let four = "interrupt-controller@d000000: has no driver: not used (and 3 more times)";
    check("virt,aia=aplic-imsic", "-smp 8", &with_aia(8, four));
    check("virt,aclint=on,aia=aplic-imsic", "-smp 1", &with_aia(1, four));
}

#[test]
fn sifive_u_with_2_to_5_harts() {
    for harts in 2..=5 {
        // Hart 0 has no supervisor mode, so the others' contexts follow its only one.
        let contexts = (1..harts).map(|id| (id, Some(Context { plic: 0, number: 2 * id as u16 })));
        let interrupt = Some(Interrupt { plic: 0, number: 4 });
        let expected = Expected {
            model: "SiFive HiFive Unleashed A00",
            banks: vec![bank(MEMORY, 128 * MIB, 0)],
            harts: [(0, None)].into_iter().chain(contexts).collect(),
            mmu: Mmu::Sv48,
            timebase: 1_000_000,
            uart: Some((UartKind::SiFive, range(0x1001_0000, 0x1000), interrupt)),
            plics: vec![(range(0xc00_0000, 0x400_0000), 53)],
            exit_device: None,
            warnings: vec![],
        };
        check("sifive_u", &format!("-smp {harts}"), &expected);
    }
    let blob = tree("sifive_u", "-smp 5");
    let machine = Machine::discover(&blob).expect("a machine");
    let pages: Vec<_> = machine.harts.iter().map(|hart| hart.mmu.is_some()).collect();
    assert_eq!(pages, [false, true, true, true, true]);
}

#[test]
fn spike_with_1_to_8_harts() {
    let no_size = "cpu@0: riscv,cboz-block-size is no size: no Zicboz";
    let no_driver = "htif: has no driver: not used";
    for harts in 1..=8 {
        let more = format!("{no_size} (and {} more times)", harts - 1);
        let no_size = if harts == 1 { no_size } else { more.leak() };
        let expected = Expected {
            model: "ucbbar,spike-bare,qemu",
            harts: (0..harts).map(|id| (id, None)).collect(),
            mmu: Mmu::Sv48,
            uart: None,
            plics: vec![],
            exit_device: None,
            warnings: vec![no_size, no_driver],
            ..virt(harts, 128 * MIB)
        };
        check("spike", &format!("-smp {harts}"), &expected);
    }
}

#[test]
fn extensions_are_those_of_the_cpu() {
    use Extensions as E;
    let imac = E::I | E::M | E::A | E::C;
    let plain = imac
        | E::F
        | E::D
        | E::H
        | E::ZBA
        | E::ZBB
        | E::ZBS
        | E::ZICBOM
        | E::ZICBOZ
        | E::ZIHINTPAUSE
        | E::ZAWRS
        | E::SSTC
        | E::SVADU;
    let cases = [
        ("rv64", plain),
        ("rv64,sstc=off", plain - E::SSTC),
        ("rv64,svade=on,svadu=off", (plain - E::SVADU) | E::SVADE),
        ("rv64,zicboz=off", plain - E::ZICBOZ),
        ("rv64,f=off,d=off,zfa=off", plain - E::F - E::D),
        (
            "rv64,v=on,svpbmt=on,svinval=on,svnapot=on",
            plain | E::V | E::SVPBMT | E::SVINVAL | E::SVNAPOT,
        ),
        ("sifive-u54", imac | E::F | E::D),
    ];
    for (cpu, expected) in cases {
        let blob = tree("virt", &format!("-cpu {cpu}"));
        let machine = Machine::discover(&blob).expect("a machine");
        let hart = machine.harts[0];
        assert_eq!(hart.extensions, expected, "{cpu}");
        let block = hart.zero_block.map(|bytes| bytes.get());
        assert_eq!(block, expected.contains(E::ZICBOZ).then_some(64), "{cpu}");
        // The older property says the same.
        let isa = machine.isa(hart.id);
        assert!(isa.starts_with("rv64ima"), "{cpu}: {isa}");
        assert_eq!(isa.contains("_sstc"), expected.contains(E::SSTC), "{cpu}: {isa}");
    }
}

#[test]
fn sv39_alone() {
    let expected = Expected { mmu: Mmu::Sv39, ..virt(1, 128 * MIB) };
    check("virt", "-cpu rv64,sv57=off,sv48=off", &expected);
}

/// What `machine FILE.dtb` says of a blob: its exit code, its output, its errors.
fn command(blob: &[u8], arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("tree.dtb");
    std::fs::write(&file, blob).expect("the file is written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("machine").arg(&file).args(arguments).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_lists_what_there_is() {
    let blob = tree("virt", "-smp 2");
    let machine = Machine::discover(&blob).expect("a machine");
    assert_eq!(command(&blob, &[]), (Some(0), machine.to_string(), String::new()));
    let (code, output, _) = command(&blob, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!((code, &json["boots"]), (Some(0), &true.into()));
    assert_eq!(json["harts"][1]["context"]["number"], 3);
    assert_eq!(json["memory"][0]["size"], 128 * MIB);
    assert_eq!(json["uart"]["interrupt"]["number"], 10);
}

#[test]
fn the_command_says_why_the_kernel_could_not_boot() {
    let blob = tree("virt", "");
    let cut = &blob[..blob.len() / 2];
    let error = Machine::discover(cut).err().expect("an error").to_string();
    let text = format!("the kernel could not boot: {error}\n");
    assert_eq!(command(cut, &[]), (Some(1), String::new(), text));
    let (code, output, _) = command(cut, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!((code, &json["boots"]), (Some(1), &false.into()));
    assert_eq!(json["error"], error);
}
