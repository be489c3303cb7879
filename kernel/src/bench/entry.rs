//! From the kernel's entry to its first job. The entry (`boot`) reads the counter of instructions before anything else.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Meter, Outcome, instructions, row};

/// The counter at the entry, which stores it here; 0 where it could not be read.
#[unsafe(export_name = "instructions_at_entry")]
static AT_ENTRY: AtomicU64 = AtomicU64::new(0);

/// The counter when the first job began.
static AT_FIRST_JOB: AtomicU64 = AtomicU64::new(0);

/// Reads the counter now, if the entry could.
pub fn first_job_begins() {
    if AT_ENTRY.load(Ordering::Relaxed) != 0 {
        AT_FIRST_JOB.store(instructions(), Ordering::Relaxed);
    }
}

row!(boot_to_first_thread);
fn boot_to_first_thread(meter: &mut Meter) -> Outcome {
    meter.add(AT_FIRST_JOB.load(Ordering::Relaxed) - AT_ENTRY.load(Ordering::Relaxed));
    Ok(())
}
