//! What can be told of locks: for crash reports and the monitor. Checked builds fill it in, others know next to nothing.

use core::panic::Location;

use crate::hart::CpuNumber;

/// A lock that is held.
pub struct Held {
    /// Its name.
    pub name: &'static str,
    /// Which hart holds it, and where it took it.
    pub holder: Option<(CpuNumber, &'static Location<'static>)>,
}

/// A mutex that a thread holds or waits for.
pub struct HeldMutex {
    /// Its name.
    pub name: &'static str,
    /// Whether the thread has it.
    pub is_held: bool,
    /// Where it was taken or is waited for.
    pub site: &'static Location<'static>,
}

/// A hart that waits for a lock.
pub struct Waiting {
    /// The lock's name.
    pub name: &'static str,
    /// Who waits.
    pub cpu: CpuNumber,
    /// Where.
    pub site: &'static Location<'static>,
}

/// The longest that a spin lock or a mutex was held.
pub struct Longest {
    /// The name of it and its like.
    pub name: &'static str,
    /// For how long, in ticks of the timebase.
    pub ticks: u64,
    /// Where it was taken.
    pub site: &'static Location<'static>,
}
