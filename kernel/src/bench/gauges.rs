//! Gauges: numbers that are read once, when all rows are done.

use super::gauge;
use crate::timer::{self, Instant};
use crate::{frame, hart, interrupts, vm};

gauge!(page_table_pages);
fn page_table_pages() -> u64 {
    vm::table_pages() as u64
}

gauge!(free_frames);
fn free_frames() -> u64 {
    frame::statistics().free as u64
}

/// Deadlines that a latency is the worst of, each a little later after the one before than the last.
const DEADLINES: u64 = 200;

gauge!(timer_latency_busy_max);
fn timer_latency_busy_max() -> u64 {
    let wait = |part: &timer::Part, deadline| {
        let mut before = 0;
        interrupts::enable();
        // The handler sets the comparator anew. What was read last before it ran is when the interrupt came.
        loop {
            let now = Instant::now().0;
            if part.armed() != Some(Instant(deadline)) {
                break;
            }
            before = now;
        }
        interrupts::disable();
        before
    };
    worst_latency(wait)
}

gauge!(timer_latency_idle_max);
fn timer_latency_idle_max() -> u64 {
    worst_latency(|_, deadline| {
        loop {
            riscv::asm::wfi();
            let now = Instant::now().0;
            // It may go on for no reason.
            if now >= deadline {
                return now;
            }
        }
    })
}

/// Sets deadlines, lets `wait` wait for each with interrupts masked at first, and gives by how many ticks of the timebase the latest came
/// late.
fn worst_latency(wait: impl Fn(&timer::Part, u64) -> u64) -> u64 {
    let were_on = interrupts::disable();
    let part = &hart::of_this_cpu().timer;
    let latency = |number| {
        let deadline = Instant::now().0 + 20 + number % 17;
        part.arm(deadline);
        let came = wait(part, deadline);
        part.arm(part.next_tick().0);
        came.saturating_sub(deadline)
    };
    let worst = (0..DEADLINES).map(latency).max().unwrap_or(0);
    if were_on {
        interrupts::enable();
    }
    worst
}
