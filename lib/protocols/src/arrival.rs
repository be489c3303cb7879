//! Whether a hart that was started is here.

use core::sync::atomic::{AtomicUsize, Ordering};

const EXPECTED: usize = 0;
const ARRIVED: usize = 1;
const GIVEN_UP: usize = 2;

/// A hart that was started, and the one that waits for it, agree on one of two ends: it arrived, or it was given up and
/// stays out.
pub struct Arrival(AtomicUsize);

impl Arrival {
    /// Nobody has decided yet.
    pub const fn new() -> Self {
        Arrival(AtomicUsize::new(EXPECTED))
    }

    /// Called by the hart that was started. False: it came too late and must park.
    #[must_use]
    pub fn arrive(&self) -> bool {
        // Release: who sees the arrival sees what the hart set up before.
        self.0.compare_exchange(EXPECTED, ARRIVED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Called by the hart that waits, when it has waited long enough. False: the other has arrived after all.
    #[must_use]
    pub fn give_up(&self) -> bool {
        self.0.compare_exchange(EXPECTED, GIVEN_UP, Ordering::Acquire, Ordering::Acquire).is_ok()
    }

    /// Whether the hart has arrived.
    pub fn has_arrived(&self) -> bool {
        self.0.load(Ordering::Acquire) == ARRIVED
    }
}

impl Default for Arrival {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hart_that_was_given_up_stays_out() {
        let arrival = Arrival::new();
        assert!(arrival.give_up());
        assert!(!arrival.arrive());
        assert!(!arrival.has_arrived());
    }

    #[test]
    fn a_hart_that_has_arrived_is_not_given_up() {
        let arrival = Arrival::new();
        assert!(arrival.arrive());
        assert!(!arrival.give_up());
        assert!(arrival.has_arrived());
    }
}
