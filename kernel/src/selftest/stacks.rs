//! Stacks.

use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::hint::black_box;
use frames::FrameNumber;

use super::{Outcome, ensure, ensure_eq, held, self_test};
use crate::stack::{self, GAP_BYTES, NoStack, STACK_BYTES, Stack};
use crate::vm::PAGE;
use crate::{frame, probe, thread};

self_test!(claim 8, quick, a_stack_lies_above_a_gap_of_64_kib);
fn a_stack_lies_above_a_gap_of_64_kib() -> Outcome {
    let Ok(stack) = Stack::allocate() else {
        return Err(super::Ended::Skipped("there is no memory"));
    };
    let range = stack.range();
    ensure_eq!(range.len(), STACK_BYTES);
    for address in range.clone().step_by(PAGE) {
        // SAFETY: the stack is this test's.
        let written = unsafe { probe::write(address, 1) };
        ensure_eq!(written, Ok(()));
    }
    ensure!(GAP_BYTES >= 64 * 1024);
    for below in (1..=GAP_BYTES).step_by(PAGE - 1) {
        let address = range.start - below;
        ensure!(probe::read_byte(address).is_err(), "{address:#x} below a stack is mapped");
    }
    drop(stack);
    ensure!(probe::read(range.start).is_err(), "a stack is mapped after it was dropped");
    Ok(())
}

self_test!(claim 37, a_stack_without_memory_is_an_error);
fn a_stack_without_memory_is_an_error() -> Outcome {
    let _held = held::all_but_a_sample()?;
    // So few stacks are left to try.
    let most = held::nearly_all()?;
    // Perhaps the last stack finds all of its frames and leaves none.
    let kept: ArrayVec<FrameNumber, 3> = core::iter::from_fn(frame::allocate).take(3).collect();
    let mut stacks = Vec::new();
    while stacks.len() < stacks.capacity() || stacks.try_reserve(1).is_ok() {
        match Stack::allocate() {
            Ok(stack) => stacks.push(stack),
            Err(NoStack) => break,
        }
    }
    let left = frame::statistics().free;
    let count = stacks.len();
    // With fewer frames than a stack has it finds some, and gives them back.
    let rest: ArrayVec<FrameNumber, 11> =
        core::iter::from_fn(frame::allocate).take(8).chain(kept).collect();
    let few = rest.len().min(STACK_BYTES / PAGE - 1);
    let mut found = 0;
    for (number, frame) in rest.into_iter().enumerate() {
        ensure_eq!(frame::free(frame), Ok(()));
        if number < few {
            found += usize::from(Stack::allocate().is_ok());
        }
    }
    drop(stacks);
    drop(most);
    ensure_eq!(found, 0);
    ensure!(left < 8, "stack {count} failed with {left} frames left");
    ensure!(count > 10, "only {count} stacks could be allocated");
    let again = Stack::allocate();
    ensure!(again.is_ok(), "no stack can be allocated after all were dropped");
    Ok(())
}

self_test!(claim 43, the_most_stack_ever_used_is_known);
fn the_most_stack_ever_used_is_known() -> Outcome {
    /// Uses more than a KiB of stack on each level.
    #[inline(never)]
    fn descend(levels: usize) -> u64 {
        let words = black_box([levels as u64 + 1; 128]);
        if levels == 0 { words[0] } else { words[5] + black_box(descend(levels - 1)) }
    }
    let Ok(fresh) = Stack::allocate() else {
        return Err(super::Ended::Skipped("there is no memory"));
    };
    ensure_eq!(stack::most_used(fresh.range()), 0);
    // SAFETY: the stack is this test's.
    let written = unsafe { probe::write(fresh.range().end - 24, 1) };
    ensure_eq!(written, Ok(()));
    ensure_eq!(stack::most_used(fresh.range()), 24);

    let own = thread::current().stack();
    descend(3);
    let most = stack::most_used(own.clone());
    ensure!((4 * 1024 + 1..=STACK_BYTES).contains(&most), "{most} bytes were used at the most");
    ensure_eq!(stack::most_used(own), most);
    Ok(())
}
