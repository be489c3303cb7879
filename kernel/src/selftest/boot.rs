//! What the entry promises.

use riscv::register::{scounteren, sie, sstatus};

use super::{Ended, Outcome, ensure, ensure_eq, on_hart, self_test};
use crate::backtrace;
use crate::hart::{self, StackKind};
use crate::{interrupts, irq, platform, probe, stack, symbols};

self_test!(claim 1, the_lottery_word_survives_the_clearing_of_bss);
fn the_lottery_word_survives_the_clearing_of_bss() -> Outcome {
    let Some(word) = symbols::by_name("kernel::boot::LOTTERY") else {
        return Err(Ended::Skipped("the image has no symbols"));
    };
    // The winner swapped a one into it and then cleared .bss.
    let won = probe::read(word.address as usize).map(|value| value as u32);
    ensure_eq!(won, Ok(1));
    Ok(())
}

self_test!(claim 2, quick, the_kernel_runs_in_the_higher_half);
fn the_kernel_runs_in_the_higher_half() -> Outcome {
    let code = the_kernel_runs_in_the_higher_half as *const () as usize;
    ensure!(code >= 0xffff_ffc0_0000_0000, "code runs at {code:#x}");
    let local = 0;
    ensure!(
        (&raw const local).addr() >= 0xffff_ffc0_0000_0000,
        "the stack is at {:p}",
        &raw const local
    );
    Ok(())
}

self_test!(claim 3, quick, every_hart_has_the_entry_state);
fn every_hart_has_the_entry_state() -> Outcome {
    // SIE, VS, FS, XS, SUM, MXR: privileged spec 4.1.1.
    const MUST_BE_CLEAR: usize = 1 << 1 | 3 << 9 | 3 << 13 | 3 << 15 | 1 << 18 | 1 << 19;
    const SOFTWARE_AND_TIMER_INTERRUPT: usize = 1 << 1 | 1 << 5;
    const EXTERNAL_INTERRUPT: usize = 1 << 9;
    for hart in hart::all() {
        let cpu = hart.cpu();
        let (status, counters, enabled) = on_hart(cpu, || {
            let _masked = interrupts::mask();
            (sstatus::read().bits(), scounteren::read().bits(), sie::read().bits())
        })?;
        ensure!(status & MUST_BE_CLEAR == 0, "CPU {cpu} has sstatus {status:#x}");
        ensure_eq!(counters, 0);
        let external = if irq::context(cpu).is_some() { EXTERNAL_INTERRUPT } else { 0 };
        ensure_eq!(enabled, SOFTWARE_AND_TIMER_INTERRUPT | external);
    }
    Ok(())
}

self_test!(claim 4, harts 2, every_hart_of_the_tree_is_up);
fn every_hart_of_the_tree_is_up() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    for described in
        machine.harts.iter().filter(|described| described.enabled && described.mmu.is_some())
    {
        ensure!(
            hart::all().any(|hart| hart.id() == described.id),
            "hart {} is not up",
            described.id
        );
    }
    ensure!(
        machine.harts.iter().any(|described| described.id == hart::HARTS[0].id()),
        "CPU 0 has an id that no hart has"
    );
    Ok(())
}

self_test!(claim 4, harts 2, every_hart_entered_on_stacks_of_its_own);
fn every_hart_entered_on_stacks_of_its_own() -> Outcome {
    let stacks = || {
        hart::all().flat_map(|hart| {
            [StackKind::Entry, StackKind::Emergency].map(|kind| (hart.cpu(), hart.stack(kind)))
        })
    };
    for (cpu, stack) in stacks() {
        let others = stacks().filter(|(_, other)| other.contains(&stack.start)).count();
        ensure!(others == 1, "a stack of CPU {cpu} at {:#x} is that of {others}", stack.start);
    }
    for hart in hart::all() {
        // Its idle thread has run there.
        let used = stack::most_used(hart.stack(StackKind::Entry));
        ensure!(used > 0, "nothing was used of the stack of CPU {}", hart.cpu());
    }
    Ok(())
}

self_test!(claim 6, every_entry_laid_down_a_frame_record_of_zeros);
fn every_entry_laid_down_a_frame_record_of_zeros() -> Outcome {
    for hart in hart::all() {
        // The first function on the stack keeps what the entry gave it where every function does.
        let top = hart.stack(StackKind::Entry).end;
        for address in [top - 8, top - 16] {
            let word = probe::read(address);
            ensure!(word == Ok(0), "CPU {} has {word:x?} at {address:#x}", hart.cpu());
        }
    }
    Ok(())
}

self_test!(claim 6, quick, a_backtrace_ends_where_the_entry_began);
fn a_backtrace_ends_where_the_entry_began() -> Outcome {
    let mut walk = backtrace::here();
    let mut functions = 0;
    let mut last = None;
    for step in walk.by_ref() {
        functions += 1;
        last = symbols::return_site(step.address());
    }
    ensure_eq!(walk.frame_pointer(), 0);
    ensure!(functions >= 3, "the walk had {functions} steps");
    let last = last.map(|location| location.symbol.name);
    ensure!(last.is_some_and(|name| name.contains("thread_main")), "the walk ended in {last:?}");
    Ok(())
}
