//! The machine: found in the device tree once, then known to everyone; and its devices, mapped.

use core::cell::UnsafeCell;

use machine::{HEADER_SIZE, Machine, PhysicalRange, UartKind};
use spin::Once;

use crate::address::PhysicalAddress;
use crate::console::println;
use crate::exit::{self, Failure};
use crate::{uart, vm};

/// Where the machine stays: too large to be moved about on a stack.
static SLOT: Slot = Slot(UnsafeCell::new(None));
static MACHINE: Once<&'static Machine<'static>> = Once::new();

struct Slot(UnsafeCell<Option<Machine<'static>>>);

// SAFETY: the boot hart fills it before others run, and then it is only read (invariant BOOT-4).
unsafe impl Sync for Slot {}

static UART: Once<uart::Registers> = Once::new();

/// The machine, once it has been discovered.
pub fn machine() -> Option<&'static Machine<'static>> {
    MACHINE.get().copied()
}

/// Reads the device tree at `tree`. Refuses the machine where there is none or it cannot be lived with.
pub fn discover(tree: PhysicalAddress) -> &'static Machine<'static> {
    let refuse = |error: &dyn core::fmt::Display| -> ! {
        exit::fail(Failure::Refused, format_args!("the device tree at {tree}: {error}"))
    };
    let Some(address) = vm::direct(tree).filter(|_| tree.0.is_multiple_of(8)) else {
        refuse(&"no tree can lie there");
    };
    let bytes = |size| {
        // SAFETY: the entry mapped this GiB and the next to read, the firmware put the tree there, and nothing writes to it
        // (invariant BOOT-3).
        unsafe { core::slice::from_raw_parts(core::ptr::without_provenance::<u8>(address.0), size) }
    };
    let header = bytes(HEADER_SIZE).first_chunk().expect("the slice has just that size");
    let size = machine::blob_size(header).unwrap_or_else(|error| refuse(&error));
    // SAFETY: this is called once, by the boot hart, before `MACHINE` lets anybody look (BOOT-4).
    let slot = unsafe { &mut *SLOT.0.get() };
    let machine = Machine::discover_into(slot, bytes(size)).unwrap_or_else(|error| refuse(&error));
    for warning in &machine.warnings {
        println!("device tree: {warning}");
    }
    if machine.warnings_left_out > 0 {
        println!("device tree: and {} more problems", machine.warnings_left_out);
    }
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

/// The UART's registers, if it is driven and mapped.
pub fn uart() -> Option<uart::Registers> {
    UART.get().copied()
}

fn map(registers: PhysicalRange, name: &str) -> Option<crate::address::VirtualAddress> {
    let mapped = vm::map_device(registers.start() as usize..registers.end() as usize);
    if mapped.is_err() {
        println!("{name} at {registers} is not used: no room to map it");
    }
    mapped.ok()
}
