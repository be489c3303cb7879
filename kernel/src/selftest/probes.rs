//! Fault probes.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Outcome, ensure_eq, self_test};
use crate::image;
use crate::probe::{self, Fault};
use crate::trap::{Cause, code};

fn fault(code: usize, address: usize) -> Fault {
    Fault { cause: Cause { code, value: address } }
}

self_test!(claim 12, quick, a_probe_reads_and_writes_what_is_there);
fn a_probe_reads_and_writes_what_is_there() -> Outcome {
    static WORD: AtomicU64 = AtomicU64::new(0x1122_3344_5566_7788);
    let address = (&raw const WORD).addr();
    WORD.store(0x1122_3344_5566_7788, Ordering::Relaxed);
    ensure_eq!(probe::read(address), Ok(0x1122_3344_5566_7788));
    ensure_eq!(probe::read_byte(address + 1), Ok(0x77));
    // SAFETY: nobody else uses WORD.
    ensure_eq!(unsafe { probe::write(address, u64::MAX) }, Ok(()));
    // SAFETY: as above.
    ensure_eq!(unsafe { probe::write_byte(address + 7, 0) }, Ok(()));
    ensure_eq!(WORD.load(Ordering::Relaxed), 0x00ff_ffff_ffff_ffff);
    Ok(())
}

self_test!(claim 12, quick, a_probe_returns_the_cause_and_the_address);
fn a_probe_returns_the_cause_and_the_address() -> Outcome {
    let unmapped = image::start() - 8;
    ensure_eq!(probe::read(unmapped), Err(fault(code::LOAD_PAGE, unmapped)));
    ensure_eq!(probe::read_byte(unmapped + 3), Err(fault(code::LOAD_PAGE, unmapped + 3)));
    // SAFETY: must fault: nothing is mapped there.
    let written = unsafe { probe::write(unmapped, 1) };
    ensure_eq!(written, Err(fault(code::STORE_PAGE, unmapped)));
    // SAFETY: as above.
    let byte_written = unsafe { probe::write_byte(unmapped, 1) };
    ensure_eq!(byte_written, Err(fault(code::STORE_PAGE, unmapped)));
    // SAFETY: as above.
    let executed = unsafe { probe::execute(unmapped) };
    ensure_eq!(executed, Err(fault(code::FETCH_PAGE, unmapped)));
    Ok(())
}

self_test!(claim 12, an_address_that_is_not_canonical_is_a_fault_too);
fn an_address_that_is_not_canonical_is_a_fault_too() -> Outcome {
    let address = 1 << 45;
    ensure_eq!(probe::read(address), Err(fault(code::LOAD_PAGE, address)));
    Ok(())
}
