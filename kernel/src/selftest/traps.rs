//! The trap vector.

use super::{Ended, Outcome, ensure, ensure_eq, self_test};
use core::arch::{asm, naked_asm};
use core::sync::atomic::AtomicU64;

use crate::probe::{self, may_fault};
use crate::symbols;
use crate::trap::Cause;

self_test!(claim 17, quick, a_trap_keeps_every_register);
fn a_trap_keeps_every_register() -> Outcome {
    let mut before = [0_u64; 32];
    let mut after = [0_u64; 32];
    for (number, value) in before.iter_mut().enumerate() {
        *value = 0x0101_0101_0101_0101 * number as u64;
    }
    // Without sp and tp, which say where the stack and the hart's own data are.
    trap_with_registers(&before, &mut after);
    for number in (1..32).filter(|number| ![2, 4].contains(number)) {
        ensure!(
            after[number] == before[number],
            "x{number} was {:#x} before the trap and {:#x} after",
            before[number],
            after[number]
        );
    }
    Ok(())
}

/// Loads every register but sp and tp from `before`, traps, and stores them to `after`.
#[unsafe(naked)]
extern "C" fn trap_with_registers(before: &[u64; 32], after: &mut [u64; 32]) {
    naked_asm!(
        "
        addi    sp, sp, -144
        sd      ra, 136(sp)
        sd      gp, 128(sp)
        sd      s0, 120(sp)
        sd      s1, 112(sp)
        sd      s2, 104(sp)
        sd      s3, 96(sp)
        sd      s4, 88(sp)
        sd      s5, 80(sp)
        sd      s6, 72(sp)
        sd      s7, 64(sp)
        sd      s8, 56(sp)
        sd      s9, 48(sp)
        sd      s10, 40(sp)
        sd      s11, 32(sp)
        sd      a1, 24(sp)              # after
        .irp    number, 1, 3, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        ld      x\\number, 8*\\number(a0)
        .endr
        ld      a0, 8*10(a0)
        ",
        may_fault!("ebreak"),
        "
        sd      t0, 16(sp)
        ld      t0, 24(sp)
        .irp    number, 1, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        sd      x\\number, 8*\\number(t0)
        .endr
        ld      t1, 16(sp)
        sd      t1, 8*5(t0)
        ld      ra, 136(sp)
        ld      gp, 128(sp)
        ld      s0, 120(sp)
        ld      s1, 112(sp)
        ld      s2, 104(sp)
        ld      s3, 96(sp)
        ld      s4, 88(sp)
        ld      s5, 80(sp)
        ld      s6, 72(sp)
        ld      s7, 64(sp)
        ld      s8, 56(sp)
        ld      s9, 48(sp)
        ld      s10, 40(sp)
        ld      s11, 32(sp)
        addi    sp, sp, 144
        ret
        ",
    )
}

/// What `sc.d` says after an `lr.d`: 0 for success. With a trap between the two, or without.
fn store_conditional(after_a_trap: bool) -> usize {
    let word = AtomicU64::new(0);
    let failed: usize;
    if after_a_trap {
        // SAFETY: the pair works on a local word, and the trap between them is registered to go on behind it.
        unsafe {
            asm!(
                "lr.d {value}, ({word})",
                may_fault!("ebreak"),
                "sc.d {failed}, {value}, ({word})",
                value = out(reg) _, word = in(reg) word.as_ptr(), failed = lateout(reg) failed,
            );
        }
    } else {
        // SAFETY: the pair works on a local word.
        unsafe {
            asm!(
                "lr.d {value}, ({word})",
                "sc.d {failed}, {value}, ({word})",
                value = out(reg) _, word = in(reg) word.as_ptr(), failed = lateout(reg) failed,
            );
        }
    }
    failed
}

self_test!(claim 18, a_trap_breaks_a_reservation);
fn a_trap_breaks_a_reservation() -> Outcome {
    ensure_eq!(store_conditional(false), 0);
    ensure!(store_conditional(true) != 0, "an LR before a trap paired with an SC after it");
    Ok(())
}

self_test!(claim 9, causes_are_named_as_the_specification_does);
fn causes_are_named_as_the_specification_does() -> Outcome {
    ensure_eq!(Cause { code: 13, value: 0 }.name(), "load page fault");
    ensure_eq!(Cause { code: 15, value: 0 }.name(), "store page fault");
    ensure_eq!(Cause { code: 1 << 63 | 5, value: 0 }.name(), "timer interrupt");
    ensure_eq!(Cause { code: 1 << 63 | 77, value: 0 }.name(), "unknown trap");
    Ok(())
}

self_test!(claim 18, the_trap_return_has_an_instruction_that_breaks_reservations);
fn the_trap_return_has_an_instruction_that_breaks_reservations() -> Outcome {
    // QEMU breaks reservations at every trap by itself, so the instruction's effect cannot be seen there.
    const STORE_CONDITIONAL: u32 = 0b00011 << 27 | 2 << 15 | 3 << 12 | 0x2f; // sc.d zero, zero, (sp)
    const RETURN: u32 = 0x1020_0073; // sret
    let words = vector()?;
    let mut broken = false;
    let mut returns = 0;
    for word in words {
        broken |= word == STORE_CONDITIONAL;
        if word == RETURN {
            ensure!(broken, "the vector returns without breaking a reservation");
            returns += 1;
        }
    }
    ensure_eq!(returns, 1);
    Ok(())
}

self_test!(claim 47, the_trap_return_never_writes_tp);
fn the_trap_return_never_writes_tp() -> Outcome {
    const TP: u32 = 4;
    let writes_tp = |word: u32| match (word & 3, word & 0x7f) {
        // Stores and branches have no destination (unprivileged spec 2.2).
        (3, 0x23 | 0x63) => false,
        (3, _) => word >> 7 & 31 == TP,
        // c.addi, c.li, c.lui, c.slli, c.ldsp, c.mv and c.add have theirs in the same bits; the others are of x8 to x15.
        (2, _) => word >> 13 & 7 != 7 && word >> 7 & 31 == TP,
        (1, _) => word >> 13 & 7 < 4 && word >> 7 & 31 == TP,
        _ => false,
    };
    let mut instructions = 0;
    let mut skip = false;
    for word in vector()? {
        // Only where an instruction begins: the second half of a long one may look like anything.
        if core::mem::take(&mut skip) {
            continue;
        }
        skip = word & 3 == 3;
        instructions += 1;
        ensure!(!writes_tp(word), "instruction {instructions} of the vector, {word:#x}, writes tp");
    }
    ensure!(instructions > 70, "the vector has {instructions} instructions");
    Ok(())
}

/// What lies at every second byte of the trap vector, as four bytes.
fn vector() -> Result<impl Iterator<Item = u32>, Ended> {
    let Some(vector) = symbols::by_name("kernel::trap::trap_vector") else {
        return Err(Ended::Skipped("the image has no symbols"));
    };
    let start = vector.address as usize;
    let word = move |offset| probe::read(start + offset).map_or(0, |word| word as u32);
    Ok((0..vector.size as usize).step_by(2).map(word))
}
