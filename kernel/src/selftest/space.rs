//! The address space: changes, and the fences that they owe.

use core::sync::atomic::{AtomicUsize, Ordering};

use ::frames::FrameNumber;
use paging::{Entry, Error};

use super::{Ended, Outcome, ensure, ensure_eq, on_every_hart, self_test, spawned};
use crate::hart::{self, CpuNumber};
use crate::image::{self, Section};
use crate::probe::{self, Fault};
use crate::stack::{self, Stack};
use crate::thread;
use crate::trap::{Cause, code};
use crate::vm::{self, PAGE, Rights};
use crate::{frame, platform};

/// Where these tests map: between the devices and the stacks.
const HERE: usize = vm::DEVICES + (32 << 30);

fn allocate() -> Result<FrameNumber, Ended> {
    frame::allocate_zeroed().ok_or(Ended::Skipped("there is no memory"))
}

fn free(page: paging::Mapping) {
    frame::free_run(page.frame, page.pages.count()).expect("the test's frames are in use");
}

fn load_fault(address: usize) -> Fault {
    Fault { cause: Cause { code: code::LOAD_PAGE, value: address } }
}

/// Writes to a page of the tests.
fn write(address: usize, value: u64) -> Result<(), Fault> {
    // SAFETY: the page is the test's, or nobody's.
    unsafe { probe::write(address, value) }
}

self_test!(claim 30, quick, a_page_is_there_once_mapped_and_gone_once_unmapped);
fn a_page_is_there_once_mapped_and_gone_once_unmapped() -> Outcome {
    let page = vm::pages(HERE, PAGE);
    ensure_eq!(probe::read(HERE), Err(load_fault(HERE)));
    ensure_eq!(vm::map(page, allocate()?, Rights::ReadWrite), Ok(()));
    ensure_eq!(write(HERE, 42), Ok(()));
    ensure_eq!(probe::read(HERE), Ok(42));
    // The access above put the entry into the TLB: without a fence it would still be used.
    ensure_eq!(vm::unmap(page, free), Ok(()));
    ensure_eq!(probe::read(HERE), Err(load_fault(HERE)));
    Ok(())
}

self_test!(claim 30, a_right_that_is_taken_away_is_gone_at_once);
fn a_right_that_is_taken_away_is_gone_at_once() -> Outcome {
    let page = vm::pages(HERE, PAGE);
    ensure_eq!(vm::map(page, allocate()?, Rights::ReadWrite), Ok(()));
    ensure_eq!(write(HERE, 1), Ok(()));
    ensure_eq!(vm::protect(page, Rights::Read), Ok(()));
    let fault = Fault { cause: Cause { code: code::STORE_PAGE, value: HERE } };
    ensure_eq!(write(HERE, 2), Err(fault));
    ensure_eq!(probe::read(HERE), Ok(1));
    ensure_eq!(vm::protect(page, Rights::ReadWrite), Ok(()));
    ensure_eq!(write(HERE, 3), Ok(()));
    ensure_eq!(vm::unmap(page, free), Ok(()));
    Ok(())
}

/// Runs `look` twice on another hart, with `change` made here in between. The thread stays on its hart, and the hart switches to no other
/// meanwhile, which might fence for a reason of its own.
fn before_and_after<T: Send + 'static>(
    cpu: CpuNumber,
    look: fn() -> T,
    change: impl FnOnce() -> Outcome,
) -> Result<(T, T), Ended> {
    static STEP: AtomicUsize = AtomicUsize::new(0);
    fn wait_for(step: usize) {
        while STEP.load(Ordering::Acquire) != step {
            core::hint::spin_loop();
        }
    }
    STEP.store(0, Ordering::Relaxed);
    let thread = spawned(thread::spawn_on(cpu, "looks twice", move || {
        vm::fence_this_hart();
        let before = look();
        STEP.store(1, Ordering::Release);
        wait_for(2);
        (before, look())
    }))?;
    wait_for(1);
    let changed = change();
    STEP.store(2, Ordering::Release);
    let looks = thread.join();
    changed.map(|()| looks)
}

self_test!(claim 31, harts 2, no_hart_reaches_an_unmapped_page);
fn no_hart_reaches_an_unmapped_page() -> Outcome {
    let page = vm::pages(HERE, PAGE);
    for hart in hart::all().skip(1) {
        let frame = allocate()?;
        ensure_eq!(vm::map(page, frame, Rights::ReadWrite), Ok(()));
        ensure_eq!(write(HERE, 77), Ok(()));
        let (before, after) = before_and_after(
            hart.cpu(),
            || probe::read(HERE),
            || {
                ensure_eq!(vm::unmap(page, free), Ok(()));
                Ok(())
            },
        )?;
        ensure_eq!(before, Ok(77));
        ensure!(after.is_err(), "CPU {} still reads {after:?}", hart.cpu());
    }
    Ok(())
}

self_test!(claim 31, harts 2, no_hart_keeps_a_right_that_was_taken_away);
fn no_hart_keeps_a_right_that_was_taken_away() -> Outcome {
    let page = vm::pages(HERE, PAGE);
    ensure_eq!(vm::map(page, allocate()?, Rights::ReadWrite), Ok(()));
    let (before, after) = before_and_after(
        CpuNumber(1),
        || write(HERE, 1),
        || {
            ensure_eq!(vm::protect(page, Rights::Read), Ok(()));
            Ok(())
        },
    )?;
    ensure_eq!(before, Ok(()));
    ensure!(after.is_err(), "CPU 1 still writes");
    ensure_eq!(vm::unmap(page, free), Ok(()));
    Ok(())
}

self_test!(claim 31, harts 2, no_hart_reaches_a_stack_that_was_given_back);
fn no_hart_reaches_a_stack_that_was_given_back() -> Outcome {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let Ok(stack) = Stack::allocate() else {
        return Err(Ended::Skipped("there is no memory"));
    };
    SEEN.store(stack.range().start, Ordering::Relaxed);
    let (before, after) = before_and_after(
        CpuNumber(1),
        || probe::read(SEEN.load(Ordering::Relaxed)),
        || {
            drop(stack);
            // It may wait for others that are given back.
            stack::trim();
            Ok(())
        },
    )?;
    ensure_eq!(before, Ok(0));
    ensure!(after.is_err(), "CPU 1 still reads {after:?}");
    Ok(())
}

self_test!(claim 31, harts 2, a_storm_of_unmaps_leaves_no_stale_entry);
fn a_storm_of_unmaps_leaves_no_stale_entry() -> Outcome {
    static WRONG: AtomicUsize = AtomicUsize::new(0);
    fn address(cpu: usize) -> usize {
        HERE + cpu * PAGE
    }
    fn storm(cpu: usize) {
        for _ in 0..10 {
            let Some(frame) = frame::allocate_zeroed() else { continue };
            let page = vm::pages(address(cpu), PAGE);
            vm::map(page, frame, Rights::ReadWrite).expect("the page is this hart's");
            write(address(cpu), address(cpu) as u64).expect("it is mapped to write");
            // A neighbour's page: not there, empty still, or its own. Anything else is a frame that has another owner by now.
            for neighbour in 0..hart::MAX_CPUS {
                match probe::read(address(neighbour)) {
                    Err(_) | Ok(0) => {}
                    Ok(value) if value == address(neighbour) as u64 => {}
                    Ok(_) => {
                        WRONG.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            vm::unmap(page, free).expect("it is mapped");
        }
    }
    WRONG.store(0, Ordering::Relaxed);
    on_every_hart(storm)?;
    ensure_eq!(WRONG.load(Ordering::Relaxed), 0);
    Ok(())
}

self_test!(claim 32, what_is_mapped_cannot_be_mapped_again);
fn what_is_mapped_cannot_be_mapped_again() -> Outcome {
    let (first, second) = (allocate()?, allocate()?);
    ensure_eq!(vm::map(vm::pages(HERE + PAGE, PAGE), first, Rights::ReadWrite), Ok(()));
    let tables = vm::table_pages();
    let outcome = vm::map(vm::pages(HERE, 3 * PAGE), second, Rights::ReadWrite);
    ensure!(
        matches!(outcome, Err(Error::Occupied(step)) if step.address.value() == HERE + PAGE),
        "mapping over a page gave {outcome:?}"
    );
    ensure_eq!(vm::table_pages(), tables);
    ensure_eq!(vm::lookup(HERE), None);
    ensure_eq!(vm::unmap(vm::pages(HERE + PAGE, PAGE), free), Ok(()));
    ensure_eq!(frame::free(second), Ok(()));
    Ok(())
}

self_test!(claim 32, what_is_not_mapped_cannot_be_unmapped_or_protected);
fn what_is_not_mapped_cannot_be_unmapped_or_protected() -> Outcome {
    ensure_eq!(vm::map(vm::pages(HERE, PAGE), allocate()?, Rights::ReadWrite), Ok(()));
    let both = vm::pages(HERE, 2 * PAGE);
    let hole = Err(Error::Hole(vm::VirtualAddress::new(HERE + PAGE).expect("it is canonical")));
    ensure_eq!(vm::unmap(both, free), hole);
    ensure_eq!(vm::protect(both, Rights::Read), hole);
    ensure_eq!(vm::lookup(HERE).map(|mapping| mapping.rights), Some(Rights::ReadWrite));
    ensure_eq!(vm::unmap(vm::pages(HERE, PAGE), free), Ok(()));
    Ok(())
}

self_test!(claim 33, quick, memory_is_mapped_with_large_pages);
fn memory_is_mapped_with_large_pages() -> Outcome {
    let large = vm::view().mappings().filter(|mapping| {
        mapping.pages.start().value() < vm::DEVICES && mapping.pages.size() >= 2 << 20
    });
    let mut seen = 0;
    for mapping in large {
        let inside = mapping.pages.start().value().next_multiple_of(2 << 20);
        let address = vm::VirtualAddress::new(inside).expect("it is canonical");
        if inside + (2 << 20) <= mapping.pages.start().value() + mapping.pages.size() {
            ensure!(vm::view().lookup(address).level > 0, "{inside:#x} is mapped with small pages");
            seen += 1;
        }
    }
    ensure!(seen > 0, "no memory is mapped with large pages");
    // A bank's end and a reservation's need a table of small pages each.
    let banks = platform::machine().map_or(0, |machine| machine.banks.len());
    let most = 12 + 2 * banks;
    ensure!(vm::table_pages() <= most, "the page table takes {} pages", vm::table_pages());
    Ok(())
}

self_test!(claim 34, accessed_and_dirty_are_set_in_every_leaf_and_nothing_in_links);
fn accessed_and_dirty_are_set_in_every_leaf_and_nothing_in_links() -> Outcome {
    const VALID: u64 = 1;
    const RIGHTS: u64 = 0b1110;
    const WRITE: u64 = 0b100;
    const EXECUTE: u64 = 0b1000;
    const USER: u64 = 1 << 4;
    const ACCESSED: u64 = 1 << 6;
    const DIRTY: u64 = 1 << 7;
    const RESERVED: u64 = !0 << 54;
    fn check(table: usize, level: usize) -> Outcome {
        for index in 0..paging::ENTRIES {
            let Ok(entry) = probe::read(vm::direct(table * PAGE) + index * 8) else {
                return Err(Ended::Skipped("a table is not in the direct map"));
            };
            if entry & VALID == 0 {
                continue;
            }
            ensure!(entry & (USER | RESERVED) == 0, "entry {entry:#x} is the user's or malformed");
            if entry & RIGHTS == 0 {
                ensure!(entry & (ACCESSED | DIRTY) == 0, "link {entry:#x} has A or D");
                ensure!(level > 0, "link {entry:#x} lies in a lowest table");
                check((entry >> 10) as usize, level - 1)?;
            } else {
                ensure!(entry & ACCESSED != 0, "leaf {entry:#x} has no A");
                ensure!(entry & WRITE == 0 || entry & DIRTY != 0, "leaf {entry:#x} has no D");
                ensure!(entry & WRITE == 0 || entry & EXECUTE == 0, "leaf {entry:#x} is W and X");
            }
        }
        Ok(())
    }
    check(riscv::register::satp::read().ppn(), 2)
}

self_test!(claim 2, quick, the_lower_half_maps_nothing);
fn the_lower_half_maps_nothing() -> Outcome {
    let lowest = vm::view().mappings().map(|mapping| mapping.pages.start().value()).min();
    ensure!(lowest.is_some_and(|lowest| lowest >= vm::direct(0)), "{lowest:x?} is mapped");
    Ok(())
}

self_test!(claim 35, what_is_neither_memory_nor_a_driven_device_is_not_mapped);
fn what_is_neither_memory_nor_a_driven_device_is_not_mapped() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    let devices = [machine.uart.as_ref().map(|uart| uart.registers), machine.exit_device];
    let plics = machine.plics.iter().map(|plic| plic.registers);
    let starts = devices.into_iter().flatten().chain(plics).map(|range| range.start() as usize);
    let ends = machine.banks.iter().map(|bank| bank.range.end() as usize);
    let is_memory =
        |address: usize| machine.banks.iter().any(|bank| bank.range.contains(address as u64));
    for address in starts.chain(ends).chain([0]).filter(|address| !is_memory(*address)) {
        let address = vm::direct(address);
        ensure_eq!(probe::read(address), Err(load_fault(address)));
    }
    // Between and behind the devices' own pages.
    let last = vm::view().mappings().map(|mapping| mapping.pages);
    let last = last.filter(|pages| (vm::DEVICES..HERE).contains(&pages.start().value()));
    if let Some(end) = last.map(|pages| pages.start().value() + pages.size()).max() {
        ensure_eq!(probe::read(end), Err(load_fault(end)));
    }
    Ok(())
}

self_test!(claim 36, text_is_not_writable_through_the_direct_map);
fn text_is_not_writable_through_the_direct_map() -> Outcome {
    for section in [Section::Text, Section::Rodata, Section::Symbols] {
        let address = vm::direct(vm::physical_of_image(section.range().start));
        ensure!(probe::read(address).is_ok(), "{} is not in the direct map", section.name());
        ensure!(write(address, 0).is_err(), "{} is writable at {address:#x}", section.name());
        // SAFETY: must fault: nothing is executed in the direct map.
        let executed = unsafe { probe::execute(address) };
        ensure!(executed.is_err(), "{} is executable at {address:#x}", section.name());
    }
    Ok(())
}

self_test!(claim 36, no_frame_has_two_different_rights);
fn no_frame_has_two_different_rights() -> Outcome {
    let image = image::start()..Section::Symbols.range().end;
    for address in image.step_by(PAGE) {
        let direct = vm::lookup(vm::direct(vm::physical_of_image(address)));
        let Some(linked) = vm::lookup(address) else { continue };
        let rights = direct.map(|mapping| mapping.rights);
        let same = match linked.rights {
            Rights::ReadExecute => Rights::Read,
            rights => rights,
        };
        ensure!(rights == Some(same), "{address:#x} is {} and {rights:?}", linked.rights);
    }
    Ok(())
}

self_test!(claim 8, guards_of_the_boot_stacks_are_not_in_the_direct_map);
fn guards_of_the_boot_stacks_are_not_in_the_direct_map() -> Outcome {
    for guard in hart::boot_stack_guards() {
        let address = vm::direct(vm::physical_of_image(guard));
        ensure_eq!(probe::read(address), Err(load_fault(address)));
    }
    Ok(())
}

self_test!(claim 30, a_walk_ends_at_the_page_that_translates);
fn a_walk_ends_at_the_page_that_translates() -> Outcome {
    let address = vm::VirtualAddress::new(image::start()).expect("the image is canonical");
    let mut levels = 0;
    for step in vm::view().walk(address) {
        levels += 1;
        if step.level == 0 {
            let frame = FrameNumber::containing(vm::physical_of_image(image::start()));
            ensure_eq!(step.entry, Entry::Leaf { frame, rights: Rights::ReadExecute, live: true });
        }
    }
    ensure_eq!(levels, 3);
    Ok(())
}
