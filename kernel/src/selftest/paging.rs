//! Rights, proved by violating each.

use super::{Outcome, ensure, ensure_eq, self_test};
use crate::hart::StackKind;
use crate::image::Section;
use crate::probe::{self, Fault};
use crate::trap::{Cause, code};
use crate::vm::{self, PAGE, Rights};
use crate::{exit, hart, platform};

/// What each access to an address gives.
#[derive(PartialEq, Eq, Debug)]
struct Access {
    read: bool,
    write: bool,
    execute: bool,
}

const NONE: Access = Access { read: false, write: false, execute: false };

/// Tries each access. The write puts back what was read. Only for addresses whose eight bytes nobody changes meanwhile, and for
/// execution only where it must fault or a `ret` stands.
fn access(address: usize) -> Access {
    let value = probe::read(address);
    // SAFETY: writes what was there, where the section lets it.
    let write = unsafe { probe::write(address, value.unwrap_or(0)) };
    // SAFETY: the callers give addresses that hold a `ret` or must not be executable.
    let execute = unsafe { probe::execute(address) };
    Access { read: value.is_ok(), write: write.is_ok(), execute: execute.is_ok() }
}

#[unsafe(naked)]
extern "C" fn returns_at_once() {
    core::arch::naked_asm!(".balign 8", "ret", ".balign 8")
}

self_test!(claim 5, quick, text_is_read_and_execute);
fn text_is_read_and_execute() -> Outcome {
    ensure_eq!(
        access(returns_at_once as *const () as usize),
        (Access { read: true, write: false, execute: true })
    );
    Ok(())
}

/// `ret`, four times, compressed.
const RETURNS: u64 = 0x8082_8082_8082_8082;

self_test!(claim 5, quick, constants_are_only_read);
fn constants_are_only_read() -> Outcome {
    static CONSTANT: u64 = RETURNS;
    ensure_eq!(Section::of((&raw const CONSTANT).addr()), Some(Section::Rodata));
    ensure_eq!(
        access((&raw const CONSTANT).addr()),
        (Access { read: true, write: false, execute: false })
    );
    Ok(())
}

self_test!(claim 5, quick, data_is_read_and_written);
fn data_is_read_and_written() -> Outcome {
    use core::sync::atomic::AtomicU64;
    static DATUM: AtomicU64 = AtomicU64::new(RETURNS);
    ensure_eq!(Section::of((&raw const DATUM).addr()), Some(Section::Data));
    ensure_eq!(
        access((&raw const DATUM).addr()),
        (Access { read: true, write: true, execute: false })
    );
    Ok(())
}

self_test!(claim 5, the_symbol_table_is_only_read);
fn the_symbol_table_is_only_read() -> Outcome {
    let range = Section::Symbols.range();
    ensure_eq!(access(range.start), (Access { read: true, write: false, execute: false }));
    ensure_eq!(access((range.end - 8) & !7), (Access { read: true, write: false, execute: false }));
    Ok(())
}

self_test!(claim 7, null_and_its_neighbourhood_are_not_mapped);
fn null_and_its_neighbourhood_are_not_mapped() -> Outcome {
    for address in [0, 8, PAGE, 64 * 1024, 1 << 30, (1 << 38) - 8] {
        ensure!(access(address) == NONE, "{address:#x} can be accessed: {:?}", access(address));
    }
    Ok(())
}

self_test!(claim 7, the_image_s_physical_addresses_mean_nothing);
fn the_image_s_physical_addresses_mean_nothing() -> Outcome {
    let physical = vm::physical_of_image(returns_at_once as *const () as usize);
    ensure_eq!(access(physical), NONE);
    Ok(())
}

self_test!(claim 8, a_byte_below_every_stack_faults);
fn a_byte_below_every_stack_faults() -> Outcome {
    for hart in hart::all() {
        for stack in [StackKind::Entry, StackKind::Emergency].map(|kind| hart.stack(kind)) {
            ensure!(
                probe::read_byte(stack.start).is_ok(),
                "the stack at {:#x} is not mapped",
                stack.start
            );
            for below in [stack.start - 1, stack.start - PAGE] {
                let fault = Fault { cause: Cause { code: code::LOAD_PAGE, value: below } };
                ensure_eq!(probe::read_byte(below), Err(fault));
                // SAFETY: must fault: it is a guard page.
                let written = unsafe { probe::write_byte(below, 0) };
                ensure!(written.is_err(), "{below:#x} can be written");
            }
        }
    }
    Ok(())
}

self_test!(claim 5, every_mapping_has_the_rights_of_what_it_maps);
fn every_mapping_has_the_rights_of_what_it_maps() -> Outcome {
    for mapping in vm::view().mappings() {
        let address = mapping.pages.start().value();
        let is_direct = (vm::direct(0)..vm::direct(vm::DIRECT_MAP_BYTES)).contains(&address);
        // What the direct map shows of the image has the image's rights: one frame, one right.
        let seen = if is_direct {
            vm::physical_of_direct(address).wrapping_add(vm::image_offset())
        } else {
            address
        };
        let expected = match Section::of(seen) {
            Some(Section::Text) if is_direct => Rights::Read,
            Some(section) => section.rights(),
            None if platform::tree().contains((mapping.frame.address()) as u64) => Rights::Read,
            None => Rights::ReadWrite,
        };
        ensure!(
            mapping.rights == expected,
            "{address:#x} is mapped {}, not {expected}",
            mapping.rights
        );
    }
    Ok(())
}

self_test!(claim 5, devices_are_not_executable);
fn devices_are_not_executable() -> Outcome {
    use core::sync::atomic::Ordering;
    let register = exit::REGISTER.load(Ordering::Relaxed);
    if register == 0 {
        return Err(super::Ended::Skipped("the machine has no exit device"));
    }
    ensure_eq!(vm::lookup(register).map(|mapping| mapping.rights), Some(Rights::ReadWrite));
    // SAFETY: must fault: devices are mapped without the right to execute.
    let fault = unsafe { probe::execute(register) };
    ensure_eq!(fault, Err(Fault { cause: Cause { code: code::FETCH_PAGE, value: register } }));
    Ok(())
}
