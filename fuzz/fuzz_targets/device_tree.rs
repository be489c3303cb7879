//! Any bytes are a device tree, or an error says why not. No panic, no hang, no read outside, no broken promise.

#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::{HEADER_SIZE, Machine, blob_size};

#[path = "../../lib/machine/tests/common/promises.rs"]
mod promises;

fuzz_target!(|blob: &[u8]| {
    if let Some(header) = blob.first_chunk::<HEADER_SIZE>() {
        let _ = blob_size(header);
    }
    match Machine::discover(blob) {
        Ok(machine) => promises::check_promises(&machine),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
