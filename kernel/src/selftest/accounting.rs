//! What a test must give back: the state of this hart and of the others, compared before and after.

use riscv::register::{scounteren, sie, sstatus, stvec};

use super::{Outcome, ensure_eq};
use crate::hart;
use crate::{frame, heap, interrupts, stack, thread, vm};

/// A snapshot of everything that a test could leave changed. A lock that is still held shows as a mask.
#[derive(PartialEq, Eq, Debug)]
pub struct Account {
    masks: usize,
    interrupts_on: bool,
    status: usize,
    enabled_interrupts: usize,
    vector: usize,
    counters: usize,
    frames_in_use: usize,
    table_pages: usize,
    heap_blocks: usize,
    harts_up: usize,
    threads: usize,
}

impl Account {
    /// What there is now.
    pub fn take() -> Account {
        // What stacks and heap keep for later is nobody's.
        thread::trim();
        stack::trim();
        heap::trim();
        let mut heap_blocks = 0;
        heap::for_each_class(|usage| heap_blocks += usage.blocks);
        Account {
            masks: hart::of_this_cpu().masks(),
            interrupts_on: interrupts::are_enabled(),
            status: status_without_trap_history(),
            enabled_interrupts: sie::read().bits(),
            vector: stvec::read().bits(),
            counters: scounteren::read().bits(),
            // The same blocks may lie in more pages or fewer, by where others lay meanwhile.
            frames_in_use: frame::statistics().in_use - heap::frames_held(),
            table_pages: vm::table_pages(),
            heap_blocks,
            harts_up: hart::all().count(),
            threads: thread::count(),
        }
    }

    /// Fails unless everything is as it was.
    pub fn settle(self) -> Outcome {
        let after = Account::take();
        ensure_eq!(after, self);
        Ok(())
    }
}

/// `sstatus` without SPP and SPIE, which any trap writes (privileged spec 4.1.1).
fn status_without_trap_history() -> usize {
    sstatus::read().bits() & !(1 << 8 | 1 << 5)
}
