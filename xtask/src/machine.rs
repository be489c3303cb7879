//! `machine FILE.dtb`: what the kernel would find in a device tree. Also asks QEMU for the trees of its machines.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use machine::{Machine, PhysicalRange};
use serde_json::{Value, json};

use crate::environment::Qemu;
use crate::style;

/// Which tree, and how to say it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "What is wrong with the tree is said in lines that begin with `warning`. The exit code is 1 when the kernel could
not boot with it.

Examples:
  cargo run -- machine board.dtb
  cargo run -- machine board.dtb --json
  qemu-system-riscv64 -machine virt,dumpdtb=virt.dtb -smp 4 && cargo run -- machine virt.dtb"
)]
pub struct Arguments {
    /// A flattened device tree
    #[arg(value_name = "FILE.dtb")]
    pub file: PathBuf,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Reads the tree as the kernel does and prints what it found. Gives 1 when it could not boot with that.
///
/// # Errors
/// When the file cannot be read.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = &arguments.file;
    let blob = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let machine = Machine::discover(&blob);
    match &machine {
        _ if arguments.json => {
            let value = machine.as_ref().map_or_else(
                |error| json!({ "boots": false, "error": error.to_string() }),
                as_json,
            );
            anstream::println!("{value:#}");
        }
        Ok(machine) => anstream::print!("{machine}"),
        Err(error) => {
            let bad = style::BAD;
            anstream::eprintln!("{bad}the kernel could not boot:{bad:#} {error}");
        }
    }
    Ok(ExitCode::from(u8::from(machine.is_err())))
}

/// All that there is to say of a machine.
fn as_json(machine: &Machine) -> Value {
    let range = |range: PhysicalRange| json!({ "start": range.start(), "size": range.size() });
    let memory = machine.banks.iter().map(|bank| {
        let (start, size) = (bank.range.start(), bank.range.size());
        json!({ "start": start, "size": size, "numa_node": bank.numa_node })
    });
    let reservations = machine.reservations().map(|reservation| {
        let (start, size) = (reservation.range.start(), reservation.range.size());
        let (name, no_map) = (reservation.name, reservation.no_map);
        json!({ "start": start, "size": size, "name": name, "no_map": no_map })
    });
    let harts = machine.harts.iter().map(|hart| {
        let extensions = hart.extensions.iter_names();
        let context =
            |context: machine::Context| json!({ "plic": context.plic, "number": context.number });
        json!({
            "id": hart.id.0,
            "enabled": hart.enabled,
            "mmu": hart.mmu.map(|mmu| format!("{mmu:?}")),
            "extensions": extensions.map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>(),
            "isa": machine.isa(hart.id),
            "zero_block": hart.zero_block,
            "context": hart.context.map(context),
        })
    });
    let uart = machine.uart.as_ref().map(|uart| {
        json!({
            "name": uart.name,
            "kind": format!("{:?}", uart.kind),
            "registers": range(uart.registers),
            "register_shift": uart.register_shift,
            "access_width": uart.access_width,
            "clock": uart.clock,
            "speed": uart.speed,
            "interrupt": uart.interrupt.map(|source| json!({ "plic": source.plic, "number": source.number })),
        })
    });
    let plics = machine.plics.iter().map(|plic| {
        json!({ "name": plic.name, "registers": range(plic.registers), "sources": plic.sources })
    });
    let chosen = &machine.chosen;
    json!({
        "boots": true,
        "model": machine.model,
        "memory": memory.collect::<Vec<_>>(),
        "reservations": reservations.collect::<Vec<_>>(),
        "harts": harts.collect::<Vec<_>>(),
        "timebase": machine.timebase,
        "bootargs": chosen.bootargs,
        "stdout_path": chosen.stdout_path,
        "stdout_options": chosen.stdout_options,
        "initrd": chosen.initrd.map(range),
        "uart": uart,
        "plics": plics.collect::<Vec<_>>(),
        "exit_device": machine.exit_device.map(range),
        "warnings": machine.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "warnings_left_out": machine.warnings_left_out,
    })
}

/// The tree that QEMU makes for a machine (`virt,aclint=on`) with these further arguments, the same each time.
///
/// # Errors
/// When QEMU does not start, or does not know such a machine; with what it said.
pub fn dump(qemu: &Qemu, machine: &str, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("no temporary folder for a tree")?;
    let file = folder.path().join("tree.dtb");
    let output = Command::new(&qemu.program)
        .arg("-machine")
        .arg(format!("{machine},dumpdtb={}", file.display()))
        .args(["-display", "none", "-seed", "1"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", qemu.program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("no tree of {machine} with {arguments:?}: {}", said.trim());
    }
    fs::read(&file).with_context(|| format!("no tree of {machine} with {arguments:?}"))
}
