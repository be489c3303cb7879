//! Wrong on purpose: programs that pass when they are run, and fail under some schedules. They run only when they are named.

use arrayvec::ArrayVec;

use super::{Outcome, ensure_eq, self_test, spawned};
use crate::sync::{Condition, Mutex};
use crate::thread;

self_test!(claim 89, example, a_buffer_that_loses_a_wakeup);
fn a_buffer_that_loses_a_wakeup() -> Outcome {
    let producer = spawned(thread::spawn("producer", || (1..=20).for_each(put)))?;
    let consumer = spawned(thread::spawn("consumer", || (1..=20).map(|_| take()).sum::<u32>()))?;
    producer.join();
    ensure_eq!(consumer.join(), 210);
    Ok(())
}

/// A bounded buffer.
static VALUES: Mutex<ArrayVec<u32, 4>> = Mutex::new("values", ArrayVec::new_const());
static FILLED: Condition = Condition::new();
static EMPTIED: Condition = Condition::new();

fn put(value: u32) {
    let values = EMPTIED.wait_while(VALUES.lock(), |values| values.is_full());
    let was_empty = values.is_empty();
    drop(values);
    // The mistake: between looking and adding, the consumer may take the last value, and wait.
    VALUES.lock().push(value);
    if was_empty {
        FILLED.wake_one();
    }
}

fn take() -> u32 {
    let mut values = FILLED.wait_while(VALUES.lock(), |values| values.is_empty());
    let value = values.remove(0);
    EMPTIED.wake_one();
    value
}
