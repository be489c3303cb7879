//! The machine: found in the device tree once, then known to everyone; and its devices, mapped.
//!
//! Owns the [`Machine`], which is written once and then only read (invariants BOOT-3, BOOT-4), and the handles of the devices that it maps
//! (MMIO-1). A device that is not where the tree says is said and done without.

use core::cell::UnsafeCell;
use core::fmt::Display;

use machine::{HEADER_SIZE, Machine, PhysicalRange};
use spin::Once;

use crate::console::println;
use crate::exit::{self, Failure};
use crate::{irq, probe, uart, vm};

/// Where the machine stays: too large to be moved about on a stack.
static SLOT: Slot = Slot(UnsafeCell::new(None));
static MACHINE: Once<&'static Machine<'static>> = Once::new();

struct Slot(UnsafeCell<Option<Machine<'static>>>);

// SAFETY: the boot hart fills it before others run, and then it is only read (invariant BOOT-4).
unsafe impl Sync for Slot {}

static TREE: Once<PhysicalRange> = Once::new();
static UART: Once<uart::Registers> = Once::new();

/// The machine, once it has been discovered.
pub fn machine() -> Option<&'static Machine<'static>> {
    MACHINE.get().copied()
}

/// Where the device tree lies, once it has been read.
pub fn tree() -> PhysicalRange {
    *TREE.get().expect("the tree is asked for after it was read")
}

/// Reads the device tree at the physical address `tree`. Refuses the machine where there is none or it cannot be lived with.
pub fn discover(tree: usize) -> &'static Machine<'static> {
    let refuse = |error: &dyn Display| -> ! {
        exit::fail(Failure::Refused, format_args!("the device tree at {tree:#x}: {error}"))
    };
    if tree >= vm::DIRECT_MAP_BYTES || !tree.is_multiple_of(8) {
        refuse(&"no tree can lie there");
    }
    let bytes = |size| {
        // SAFETY: the entry mapped 2 MiB from there on to read, the firmware put the tree there, and nothing writes to it
        // (invariant BOOT-3).
        unsafe {
            core::slice::from_raw_parts(core::ptr::without_provenance(vm::direct(tree)), size)
        }
    };
    let header = bytes(HEADER_SIZE).first_chunk().expect("the slice has just that size");
    let size = machine::blob_size(header).unwrap_or_else(|error| refuse(&error));
    if tree >> 30 != (tree + size - 1) >> 30 {
        refuse(&"it reaches from one GiB into the next");
    }
    // SAFETY: this is called once, by the boot hart, before `MACHINE` lets anybody look (BOOT-4).
    let slot = unsafe { &mut *SLOT.0.get() };
    let outcome = Machine::discover_into(slot, bytes(size));
    // What is refused from here on can say so by QEMU's exit code.
    if let Some(registers) = slot.as_ref().and_then(|machine| machine.exit_device) {
        let base = vm::map_early(registers);
        if is_there(base, registers, "the exit device") {
            exit::use_device(base);
        }
    }
    let machine = match (outcome, slot) {
        (Ok(()), Some(machine)) => machine,
        (Ok(()), None) => refuse(&"nothing was found"),
        (Err(error), _) => refuse(&error),
    };
    for warning in &machine.warnings {
        println!("device tree: {warning}");
    }
    if machine.warnings_left_out > 0 {
        println!("device tree: and {} more problems", machine.warnings_left_out);
    }
    TREE.call_once(|| PhysicalRange::new(tree as u64, size as u64).expect("a tree is not empty"));
    MACHINE.call_once(|| machine)
}

/// Maps the exit device, which is there.
pub fn map_exit_device(machine: &Machine<'_>) {
    if let Some(registers) = machine.exit_device
        && let Some(base) = map(registers, "the exit device")
    {
        exit::use_device(base);
    }
}

/// Maps the UART. One that cannot be mapped or is not there is reported and done without.
pub fn map_uart(machine: &Machine<'_>) {
    if let Some(described) = &machine.uart
        && let Some(base) = map(described.registers, "the UART")
    {
        let Some(registers) = uart::Registers::new(base, described) else { return };
        match registers.start() {
            Ok(()) => _ = UART.call_once(|| registers),
            Err(absent) => not_there(described.registers, "the UART", &absent),
        }
    }
}

/// Whether a device answers at the first of its registers, of 32 bits, which may be read without harm.
pub fn is_there(base: usize, registers: PhysicalRange, name: &str) -> bool {
    let answer = probe::read_word(base);
    if let Err(fault) = answer {
        not_there(registers, name, &fault);
    }
    answer.is_ok()
}

fn not_there(registers: PhysicalRange, name: &str, why: &dyn Display) {
    println!("{name} at {registers} is not used: it is not there: {why}");
}

/// The device that has a physical address, by name.
pub fn device_at(address: usize) -> Option<&'static str> {
    let machine = machine()?;
    let uart = machine.uart.as_ref().map(|uart| (uart.registers, "the UART"));
    let exit_device = machine.exit_device.map(|registers| (registers, "the exit device"));
    let controller = irq::registers().map(|registers| (registers, "the interrupt controller"));
    let mut devices = uart.into_iter().chain(exit_device).chain(controller);
    devices.find(|(registers, _)| registers.contains(address as u64)).map(|(_, name)| name)
}

/// The UART's registers, if it is driven and mapped.
pub fn uart() -> Option<uart::Registers> {
    UART.get().copied()
}

fn map(registers: PhysicalRange, name: &str) -> Option<usize> {
    let mapped = vm::map_device(registers);
    if let Err(error) = &mapped {
        println!("{name} at {registers} is not used: it cannot be mapped: {error:?}");
    }
    mapped.ok()
}
