//! The lock checker of checked builds: it panics where a rule about spin locks is broken, and names the locks and the lines that
//! took them. The rules are in `order`; the calls, with interrupts masked:
//!
//! * [`about_to_wait`], [`taken`], [`released`]: the spin lock's own.
//! * [`about_to_sleep`]: by whatever may wait for another thread, at its beginning and whether or not it waits this time.
//! * [`about_to_switch`], [`thread_exits`]: the scheduler's, before the switch. The lock of the run queue is the only one
//!   held then. It stays in the hart's list, and the thread that comes releases it from there.
//! * [`enter_interrupt`], [`leave_interrupt`]: the trap handler's. The scheduler preempts behind the latter.
//! * [`mutex_wanted`], [`mutex_taken`], [`mutex_released`]: the mutex's own, with interrupts on. What a thread has of mutexes is kept with
//!   the thread, and no rule is about them.
//! * [`held`]: the crash report's, and with [`waiting`], [`Mutexes`] and [`longest`] the monitor's.
//!
//! It takes no lock and allocates nothing. A hart that reports a crash is checked no more.

use core::fmt::Write;
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use arrayvec::ArrayVec;
use riscv::register::time;

use super::known::{Held, HeldMutex, Longest, Waiting};
use super::order::{Act, Class, Holding, Holds, Lock, Order, ROOM, Violation};
use crate::console::Unlocked;
use crate::hart::{self, CpuNumber, MAX_CPUS};
use crate::{interrupts, thread};

/// Whether locks are checked in this build.
pub const CHECKS: bool = true;

static ORDER: Order = Order::new();

/// What each hart holds, by CPU number.
static HOLDINGS: [Holding; MAX_CPUS] = [const { Holding::new() }; MAX_CPUS];

/// For how long locks were held.
static HOLDS: Holds = Holds::new();

/// What the checker keeps in a lock: its name, and the class of that name once it was taken.
pub struct Tag {
    name: &'static str,
    class: AtomicU8,
}

/// No class yet.
const UNKNOWN: u8 = u8::MAX;

impl Tag {
    /// Of a lock with this name.
    pub const fn new(name: &'static str) -> Tag {
        Tag { name, class: AtomicU8::new(UNKNOWN) }
    }

    fn class(&self) -> Class {
        match self.class.load(Ordering::Relaxed) {
            UNKNOWN => {
                let class = ORDER.class(self.name);
                self.class.store(class.number(), Ordering::Relaxed);
                class
            }
            number => Class::from_number(number),
        }
    }

    #[track_caller]
    fn lock(&self, address: usize) -> Lock {
        Lock { address, class: self.class(), name: self.name, site: Some(Location::caller()) }
    }
}

/// What this hart holds; nothing where it reports a crash.
fn here() -> Option<&'static Holding> {
    let hart = hart::of_this_cpu();
    (hart.reports.load(Ordering::Relaxed) == 0).then(|| &HOLDINGS[hart.cpu().0])
}

/// Applies a rule to what this hart holds.
#[inline]
#[track_caller]
fn check(rule: impl FnOnce(&Holding) -> Result<(), Violation>) {
    if let Some(Err(violation)) = here().map(rule) {
        panic!("{violation}");
    }
}

/// A lock is about to be waited for.
#[track_caller]
pub fn about_to_wait(tag: &Tag, address: usize) {
    let lock = tag.lock(address);
    check(|holding| {
        holding.want(lock);
        holding.admit(&ORDER, lock)
    });
    if ORDER.is_full() {
        say_that_it_is_full();
    }
}

/// Says once that there was no room for something. Past the console's lock: this hart may hold it.
#[cold]
fn say_that_it_is_full() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // Unlocked's writes do not fail.
        let _ =
            writeln!(Unlocked, "\nthe lock checker is full: it learns no more classes or places");
    }
}

/// A lock was taken.
#[track_caller]
pub fn taken(tag: &Tag, address: usize) {
    let lock = tag.lock(address);
    check(|holding| holding.add(lock, time::read64()));
}

/// A lock is about to be released.
#[track_caller]
pub fn released(tag: &Tag, address: usize) {
    let interrupts_on = interrupts::are_enabled();
    check(|holding| {
        let (lock, since) = holding.remove(&ORDER, address, tag.name, interrupts_on)?;
        HOLDS.note(lock, time::read64().saturating_sub(since));
        Ok(())
    });
}

/// The thread here may wait for another. It holds no spin lock, or only the one at the address `allowed` ([`SpinLock::address`];
/// 0 for none), and is no interrupt handler.
///
/// [`SpinLock::address`]: super::SpinLock::address
#[track_caller]
pub fn about_to_sleep(allowed: usize) {
    let _masked = interrupts::mask();
    check(|holding| holding.allows(&ORDER, Act::Sleep, allowed));
}

/// The thread here is about to leave the hart to another, with the lock at this address held and no other.
#[track_caller]
pub fn about_to_switch(handed_over: usize) {
    check(|holding| holding.allows(&ORDER, Act::Switch, handed_over));
}

/// The thread here is about to leave its hart for the last time; as [`about_to_switch`].
#[track_caller]
pub fn thread_exits(handed_over: usize) {
    check(|holding| holding.allows(&ORDER, Act::Exit, handed_over));
}

/// An interrupt handler begins on this hart. Until [`leave_interrupt`] nothing here may sleep.
#[track_caller]
pub fn enter_interrupt() {
    check(|holding| holding.interrupted(&ORDER));
}

/// The handler is done. What comes before the trap's return may switch to another thread.
pub fn leave_interrupt() {
    if let Some(holding) = here() {
        holding.handles_interrupt.store(false, Ordering::Relaxed);
    }
}

/// The locks that are held, of each hart the first taken first. For crash reports: of a hart that does not stand still it may be wrong.
pub fn held() -> impl Iterator<Item = Held> {
    HOLDINGS.iter().enumerate().flat_map(|(cpu, holding)| {
        holding.locks(&ORDER).map(move |lock| Held {
            name: lock.name,
            holder: lock.site.map(|site| (CpuNumber(cpu), site)),
        })
    })
}

/// The mutexes that a thread holds, and the one that it waits for. Changed by that thread alone; anyone may look.
pub struct Mutexes(Holding);

impl Mutexes {
    /// None.
    pub const fn new() -> Mutexes {
        Mutexes(Holding::new())
    }

    /// Those that the thread holds, the first taken first, and then the one that it waits for.
    pub fn all(&self) -> ArrayVec<HeldMutex, { ROOM + 1 }> {
        let held = self.0.locks(&ORDER).map(|lock| (lock, true));
        let wanted = self.0.wanted(&ORDER).map(|lock| (lock, false));
        let known = |(lock, is_held): (Lock, bool)| {
            Some(HeldMutex { name: lock.name, is_held, site: lock.site? })
        };
        held.chain(wanted).filter_map(known).collect()
    }
}

/// This thread is about to wait for a mutex, if it is not free.
#[track_caller]
pub fn mutex_wanted(tag: &Tag, address: usize) {
    thread::current().mutexes.0.want(tag.lock(address));
}

/// This thread has taken a mutex.
#[track_caller]
pub fn mutex_taken(tag: &Tag, address: usize) {
    let taken = tag.lock(address);
    if let Err(violation) = thread::current().mutexes.0.add(taken, time::read64()) {
        panic!("{violation}");
    }
}

/// This thread is about to give up a mutex.
pub fn mutex_released(tag: &Tag, address: usize) {
    match thread::current().mutexes.0.remove(&ORDER, address, tag.name, false) {
        Ok((lock, since)) => HOLDS.note(lock, time::read64().saturating_sub(since)),
        Err(violation) => panic!("{violation}"),
    }
}

/// The harts that wait for locks, of this moment.
pub fn waiting() -> impl Iterator<Item = Waiting> {
    HOLDINGS.iter().enumerate().filter_map(|(cpu, holding)| {
        let wanted = holding.wanted(&ORDER)?;
        Some(Waiting { name: wanted.name, cpu: CpuNumber(cpu), site: wanted.site? })
    })
}

/// For each name of locks, the longest that one was held; not those that were held for less than a tick of the timebase.
pub fn longest() -> impl Iterator<Item = Longest> {
    HOLDS
        .longest(&ORDER)
        .filter_map(|(name, ticks, site)| Some(Longest { name, ticks, site: site? }))
}
