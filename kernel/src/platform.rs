//! The machine: found in the device tree once, then known to everyone; and its devices, mapped.

use core::cell::UnsafeCell;

use machine::{HEADER_SIZE, Machine, PhysicalRange, UartKind};
use spin::Once;

use crate::console::println;
use crate::exit::{self, Failure};
use crate::{irq, uart, vm};

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
    let refuse = |error: &dyn core::fmt::Display| -> ! {
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
    let machine = Machine::discover_into(slot, bytes(size)).unwrap_or_else(|error| refuse(&error));
    for warning in &machine.warnings {
        println!("device tree: {warning}");
    }
    if machine.warnings_left_out > 0 {
        println!("device tree: and {} more problems", machine.warnings_left_out);
    }
    TREE.call_once(|| PhysicalRange::new(tree as u64, size as u64).expect("a tree is not empty"));
    MACHINE.call_once(|| machine)
}

/// Maps the devices that the kernel drives. One that cannot be mapped is reported and done without.
pub fn map_devices(machine: &Machine<'_>) {
    if let Some(described) = &machine.uart
        && described.kind == UartKind::Ns16550
        && let Some(base) = map(described.registers, "the UART")
    {
        UART.call_once(|| uart::Registers::new(base, described));
    }
    if let Some(registers) = machine.exit_device
        && let Some(base) = map(registers, "the exit device")
    {
        exit::use_device(base);
    }
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
