//! Time: ticks that preempt, on a fixed grid, and threads that sleep until a deadline.
//!
//! Each hart has its own comparator. It is set to the earlier of the next tick and the first sleeper's deadline: with Sstc by one CSR
//! write, else by an SBI call. A hart that idles needs no tick.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use machine::{Extensions, Machine};
use riscv::register::{sie, time};
use scheduler::Queue;

use crate::console::println;
use crate::hart::{self, Hart};
use crate::sync::SpinLock;
use crate::thread::ThreadRef;
use crate::trace::{self, Which};
use crate::{explore, interrupts, probe, sbi, sched};

/// Ticks a second, on every hart that is not idle.
pub const TICK_HERTZ: u64 = 100;

/// Ticks of the timebase a second.
static TIMEBASE_HERTZ: AtomicU64 = AtomicU64::new(0);
/// Ticks of the timebase from one tick to the next.
static PERIOD: AtomicU64 = AtomicU64::new(0);
/// Whether `stimecmp` is there.
static SSTC: AtomicBool = AtomicBool::new(false);

/// No deadline: the comparator never fires (privileged spec 18.1, SBI 6.1).
pub const NEVER: u64 = u64::MAX;

/// What a hart has for its time. Its own.
pub struct Part {
    /// When the next tick is due: a multiple of the period.
    next_tick: AtomicU64,
    /// Ticks taken.
    pub ticks: AtomicUsize,
    /// How often the hart woke from idling.
    pub wakeups: AtomicUsize,
    /// While schedules are explored: when the current thread is taken off.
    slice_end: AtomicU64,
    /// What the comparator is set to.
    armed: AtomicU64,
    /// Threads that sleep, the first to be woken first.
    sleepers: SpinLock<Queue<ThreadRef>>,
}

impl Part {
    /// Of a hart that has not started its time.
    pub const fn new() -> Part {
        Part {
            next_tick: AtomicU64::new(NEVER),
            ticks: AtomicUsize::new(0),
            wakeups: AtomicUsize::new(0),
            slice_end: AtomicU64::new(NEVER),
            armed: AtomicU64::new(NEVER),
            sleepers: SpinLock::new("sleepers", Queue::new()),
        }
    }

    /// When the next tick is due.
    pub fn next_tick(&self) -> Instant {
        Instant(self.next_tick.load(Ordering::Relaxed))
    }

    /// What the comparator is set to; nothing where it never fires.
    pub fn armed(&self) -> Option<Instant> {
        Some(self.armed.load(Ordering::Relaxed)).filter(|&at| at != NEVER).map(Instant)
    }

    /// Sets the comparator of this hart for what comes first: the next tick, the first sleeper at `first`, the end of a slice.
    fn arm_for(&self, first: u64) {
        let mut next = first.min(self.next_tick.load(Ordering::Relaxed));
        if explore::EXPLORES {
            next = next.min(self.slice_end.load(Ordering::Relaxed));
        }
        self.arm(next);
    }

    /// Sets the comparator of this hart. Fires at once if the deadline is past.
    pub fn arm(&self, deadline: u64) {
        if self.armed.swap(deadline, Ordering::Relaxed) == deadline {
            return;
        }
        if SSTC.load(Ordering::Relaxed) {
            write_comparator(deadline);
        } else {
            // `start` has tried it.
            let _ = sbi::set_timer(deadline);
        }
    }
}

/// A moment, in ticks of the timebase since the machine began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(pub u64);

impl Instant {
    /// This moment.
    pub fn now() -> Instant {
        Instant(time::read64())
    }

    /// A moment that much later.
    pub fn after(self, duration: Duration) -> Instant {
        let hertz = u128::from(TIMEBASE_HERTZ.load(Ordering::Relaxed));
        let ticks = (duration.as_nanos() * hertz).div_ceil(1_000_000_000);
        Instant(self.0.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX)))
    }
}

/// Finds out how the comparator is set. Called once, before harts start their time.
pub fn start(machine: &Machine<'_>) {
    let hertz = machine.timebase.get();
    TIMEBASE_HERTZ.store(hertz, Ordering::Relaxed);
    PERIOD.store((hertz / TICK_HERTZ).max(1), Ordering::Relaxed);
    let mut harts = machine.harts.iter().filter(|hart| hart.enabled);
    // Any thread may come to any hart, and firmware may have left it off.
    if harts.all(|hart| hart.extensions.contains(Extensions::SSTC))
        && probe::write_timer_comparator(NEVER).is_ok()
    {
        SSTC.store(true, Ordering::Relaxed);
    } else if let Err(error) = sbi::set_timer(NEVER) {
        println!("no ticks: this hart has no Sstc, and the firmware sets no timer: {error}");
    }
}

/// Ticks of the timebase in microseconds.
pub fn microseconds(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000 / u128::from(TIMEBASE_HERTZ.load(Ordering::Relaxed).max(1)))
        as u64
}

/// Ticks of the timebase from one tick of a hart to the next.
pub fn period() -> u64 {
    PERIOD.load(Ordering::Relaxed)
}

/// How the comparator is set, as it is printed.
pub fn description() -> &'static str {
    if SSTC.load(Ordering::Relaxed) { "Sstc" } else { "SBI" }
}

/// Starts this hart's ticks. Interrupts are off.
pub fn start_here() {
    let part = &hart::of_this_cpu().timer;
    part.next_tick.store(next_on_grid(time::read64()), Ordering::Relaxed);
    part.arm(part.next_tick.load(Ordering::Relaxed));
    // SAFETY: a handler can run on this hart's stack (invariant TRAP-1).
    unsafe { sie::set_stimer() };
}

/// The first moment of the grid after `now`.
fn next_on_grid(now: u64) -> u64 {
    let period = PERIOD.load(Ordering::Relaxed);
    (now / period + 1).saturating_mul(period)
}

/// Takes a timer interrupt: wakes who is due, counts the tick, and sets the comparator again. Says whether the current thread is to be
/// taken off: a tick was due, or its slice is over.
pub fn handle(hart: &Hart) -> bool {
    let _taken = trace::interrupt(Which::Timer);
    let part = &hart.timer;
    let now = time::read64();
    // It has fired: whatever it is set to next must be written, or it stays pending.
    part.armed.store(now, Ordering::Relaxed);
    let first = wake_sleepers(part, now);
    let is_due = now >= part.next_tick.load(Ordering::Relaxed);
    if is_due {
        part.ticks.store(part.ticks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // A late hart takes one tick and goes on with the grid: no storm, no drift.
        part.next_tick.store(next_on_grid(now), Ordering::Relaxed);
    }
    let slice_is_over = explore::EXPLORES && end_slice(hart, now);
    part.arm_for(first);
    is_due || slice_is_over
}

/// What is explored at a timer interrupt: whether the slice of the current thread is over, and then how long the next one is.
fn end_slice(hart: &Hart, now: u64) -> bool {
    explore::watch(now);
    let slice_end = &hart.timer.slice_end;
    let is_over = now >= slice_end.load(Ordering::Relaxed);
    if is_over {
        explore::slice_is_over();
        slice_end.store(explore::slice_end(hart, now), Ordering::Relaxed);
    }
    is_over
}

/// Begins with slices on this hart, which are explored from now on.
pub fn begin_slice() {
    let masked = interrupts::mask();
    let hart = masked.hart();
    let part = &hart.timer;
    part.slice_end.store(explore::slice_end(hart, time::read64()), Ordering::Relaxed);
    part.arm(part.armed.load(Ordering::Relaxed).min(part.slice_end.load(Ordering::Relaxed)));
}

/// Wakes the sleepers that are due. Gives the deadline of the first that is not.
fn wake_sleepers(part: &Part, now: u64) -> u64 {
    let mut sleepers = part.sleepers.lock();
    while let Some(first) = sleepers.first() {
        let deadline = first.wake_at.load(Ordering::Relaxed);
        if deadline > now {
            return deadline;
        }
        sleepers.pop();
        sched::wake(first);
    }
    NEVER
}

/// Lets the current thread sleep until `deadline`, or not at all if that is past. Never wakes early; late by what the hart is busy with.
pub fn sleep_until(deadline: Instant) {
    let masked = interrupts::mask();
    let hart = masked.hart();
    if Instant::now() >= deadline {
        return;
    }
    let current = hart.current();
    current.wake_at.store(deadline.0, Ordering::Relaxed);
    let mut sleepers = hart.timer.sleepers.lock_masked(masked);
    sleepers.insert_before(current, |other| other.wake_at.load(Ordering::Relaxed) > deadline.0);
    let first = sleepers.first().map_or(NEVER, |first| first.wake_at.load(Ordering::Relaxed));
    hart.timer.arm_for(first);
    sched::block(sleepers);
}

/// Calls `look` with each thread that sleeps on a hart, the first to be woken first, with interrupts off and the lock of that list held.
pub fn for_each_sleeper(hart: &Hart, look: impl FnMut(ThreadRef)) {
    hart.timer.sleepers.lock().iter().for_each(look);
}

/// Lets the current thread sleep for at least `duration`.
pub fn sleep(duration: Duration) {
    sleep_until(Instant::now().after(duration));
}

/// Breaks what the handler of this hart's next timer interrupt follows: for the crash of that name.
pub fn damage_sleepers(wild: usize) {
    let masked = interrupts::mask();
    let mut sleepers = masked.hart().timer.sleepers.lock();
    sleepers.push(<ThreadRef as scheduler::Thread>::from_word(wild));
}

/// Leaves out the ticks while the hart idles: only sleepers wake it. Interrupts are off.
pub fn before_idling() {
    let part = &hart::of_this_cpu().timer;
    let sleepers = part.sleepers.lock();
    let first = sleepers.first().map_or(NEVER, |first| first.wake_at.load(Ordering::Relaxed));
    part.arm(first.min(explore::deadline()));
}

/// Begins with ticks again, on the same grid. Interrupts are off.
pub fn after_idling() {
    let hart = hart::of_this_cpu();
    let part = &hart.timer;
    part.wakeups.store(part.wakeups.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let sleepers = part.sleepers.lock();
    let first = sleepers.first().map_or(NEVER, |first| first.wake_at.load(Ordering::Relaxed));
    let now = time::read64();
    part.next_tick.store(next_on_grid(now), Ordering::Relaxed);
    if explore::EXPLORES {
        part.slice_end.store(explore::slice_end(hart, now), Ordering::Relaxed);
    }
    part.arm_for(first);
}

/// Writes `stimecmp` (privileged spec 18.1); an extension that `start` has found.
fn write_comparator(deadline: u64) {
    // SAFETY: sets when the next timer interrupt comes, and nothing else.
    unsafe { core::arch::asm!("csrw stimecmp, {}", in(reg) deadline, options(nomem, nostack)) };
}
