//! Time: ticks that preempt, on a fixed grid, and threads that sleep until a deadline.
//!
//! Each hart has its own comparator. It is set to the earlier of the next tick and the first sleeper's deadline: with Sstc by one CSR
//! write, else by an SBI call. A hart that idles needs no tick.
//!
//! Each hart's [`Part`] is its own; its list of sleepers has a lock, because a thread is woken with it held. [`sleep_until`] never wakes early. The
//! handler of a usual tick takes no lock.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use machine::{Extensions, Machine};
use riscv::register::{sie, time};
use scheduler::Queue;

use crate::console::println;
use crate::debugger::Fact;
use crate::hart::{self, Hart};
use crate::sync::{SpinLock, checker};
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
    /// When the first thread that sleeps is to be woken, with the lock of [`sleepers`](Self::sleepers) held.
    first_wake: AtomicU64,
    /// Threads that sleep, the first to be woken first. Added and taken by this hart alone.
    sleepers: SpinLock<Queue<ThreadRef>>,
}

/// For debuggers.
pub const LAYOUT: &[Fact] =
    &[Fact::new("timer: first sleeper", offset_of!(Part, sleepers) + Lock::DATA + Threads::FIRST)];
type Threads = Queue<ThreadRef>;
type Lock = SpinLock<Threads>;

impl Part {
    /// Of a hart that has not started its time.
    pub const fn new() -> Part {
        Part {
            next_tick: AtomicU64::new(NEVER),
            ticks: AtomicUsize::new(0),
            wakeups: AtomicUsize::new(0),
            slice_end: AtomicU64::new(NEVER),
            armed: AtomicU64::new(NEVER),
            first_wake: AtomicU64::new(NEVER),
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

    /// Sets the comparator of this hart. Fires at once if the deadline is past.
    #[inline]
    pub fn arm(&self, deadline: u64) {
        if SSTC.load(Ordering::Relaxed) {
            self.armed.store(deadline, Ordering::Relaxed);
            write_comparator(deadline);
        } else if self.armed.swap(deadline, Ordering::Relaxed) != deadline {
            // A call costs more than to look whether it changes anything. `start` has tried it.
            let _ = sbi::set_timer(deadline);
        }
    }

    /// Sets the comparator for what comes first: the next tick, the first sleeper, the end of a slice.
    #[inline]
    fn arm_for_next(&self) {
        self.arm_for(self.next_tick.load(Ordering::Relaxed));
    }

    /// As [`arm_for_next`](Self::arm_for_next), when the next tick is due at `tick`.
    #[inline]
    fn arm_for(&self, tick: u64) {
        let mut next = tick.min(self.first_wake.load(Ordering::Relaxed));
        if explore::EXPLORES {
            next = next.min(self.slice_end.load(Ordering::Relaxed));
        }
        self.arm(next);
    }

    /// Keeps when the first of the sleepers is to be woken.
    fn look_at_first(&self, sleepers: &Queue<ThreadRef>) {
        let first = sleepers.first().map_or(NEVER, |first| first.wake_at.load(Ordering::Relaxed));
        self.first_wake.store(first, Ordering::Relaxed);
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
    part.arm_for_next();
    // SAFETY: a handler can run on this hart's stack (invariant TRAP-1).
    unsafe { sie::set_stimer() };
}

/// The first moment of the grid after `now`.
fn next_on_grid(now: u64) -> u64 {
    let period = PERIOD.load(Ordering::Relaxed);
    (now / period + 1).saturating_mul(period)
}

/// Takes a timer interrupt: wakes who is due, counts the tick, sets the comparator again, and lets another thread run if a tick was due.
#[inline]
pub fn handle(hart: &'static Hart) {
    let part = &hart.timer;
    let now = time::read64();
    let tick = part.next_tick.load(Ordering::Relaxed);
    let next = tick.wrapping_add(PERIOD.load(Ordering::Relaxed));
    let wakes_nobody = now < part.first_wake.load(Ordering::Relaxed);
    if !explore::EXPLORES && wakes_nobody && tick <= now && now < next {
        finish(hart, Some(next), || false);
    } else {
        handle_unusual(hart, now);
    }
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

/// As [`handle`], when somebody is to be woken, or no tick or more than one is due. Apart, so that a usual tick needs no stack.
#[cold]
#[inline(never)]
fn handle_unusual(hart: &'static Hart, now: u64) {
    let is_due = now >= hart.timer.next_tick.load(Ordering::Relaxed);
    // A late hart takes one tick and goes on with the grid: no storm, no drift.
    finish(hart, is_due.then(|| next_on_grid(now)), || {
        if now >= hart.timer.first_wake.load(Ordering::Relaxed) {
            wake_sleepers(&hart.timer, now);
        }
        explore::EXPLORES && end_slice(hart, now)
    });
}

/// Does what is due; `next` is the tick after the one that is. What `act` does comes first; it says whether the current thread's slice is
/// over.
#[inline(always)]
fn finish(hart: &'static Hart, next: Option<u64>, act: impl FnOnce() -> bool) {
    checker::enter_interrupt();
    let taken = trace::interrupt(Which::Timer);
    let part = &hart.timer;
    let slice_is_over = act();
    if let Some(next) = next {
        let ticks = part.ticks.load(Ordering::Relaxed);
        part.ticks.store(ticks.wrapping_add(1), Ordering::Relaxed);
        part.next_tick.store(next, Ordering::Relaxed);
    }
    let next_tick = next.unwrap_or_else(|| part.next_tick.load(Ordering::Relaxed));
    // Later than what has fired, so it is written: else the interrupt would stay pending.
    part.arm_for(next_tick);
    drop(taken);
    checker::leave_interrupt();
    if next.is_some() || slice_is_over {
        sched::preempt(hart);
    }
}

/// Wakes the sleepers that are due.
fn wake_sleepers(part: &Part, now: u64) {
    let mut sleepers = part.sleepers.lock();
    while let Some(first) = sleepers.first() {
        if first.wake_at.load(Ordering::Relaxed) > now {
            break;
        }
        sleepers.pop();
        sched::wake(first);
    }
    part.look_at_first(&sleepers);
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
    hart.timer.look_at_first(&sleepers);
    hart.timer.arm_for_next();
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
    let part = &masked.hart().timer;
    part.sleepers.lock().push(<ThreadRef as scheduler::Thread>::from_word(wild));
    part.first_wake.store(0, Ordering::Relaxed);
}

/// Leaves out the ticks while the hart idles: only sleepers wake it. Interrupts are off.
pub fn before_idling() {
    let part = &hart::of_this_cpu().timer;
    part.arm(part.first_wake.load(Ordering::Relaxed).min(explore::deadline()));
}

/// Begins with ticks again, on the same grid. Interrupts are off.
pub fn after_idling() {
    let hart = hart::of_this_cpu();
    let part = &hart.timer;
    part.wakeups.store(part.wakeups.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let now = time::read64();
    part.next_tick.store(next_on_grid(now), Ordering::Relaxed);
    if explore::EXPLORES {
        part.slice_end.store(explore::slice_end(hart, now), Ordering::Relaxed);
    }
    part.arm_for_next();
}

/// Writes `stimecmp` (privileged spec 18.1); an extension that `start` has found.
fn write_comparator(deadline: u64) {
    // SAFETY: sets when the next timer interrupt comes, and nothing else.
    unsafe { core::arch::asm!("csrw stimecmp, {}", in(reg) deadline, options(nomem, nostack)) };
}
