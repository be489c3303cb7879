//! The rules about spin locks, as functions that give what is wrong as a value: [`Order`] knows in which order locks were ever taken,
//! [`Holding`] which a hart holds now, [`Holds`] for how long at the most. None takes a lock. [`checker`](super::checker) applies them to the kernel's own locks.

use core::array;
use core::fmt;
use core::iter;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spin::Once;

/// Where a lock was taken.
pub type Site = Option<&'static Location<'static>>;

/// Classes of locks that there is room for: bits of a word.
const CLASSES: usize = 64;
/// Pairs of classes whose places are remembered.
const PAIRS: usize = 256;
/// Spin locks that a hart may hold at once, and mutexes that a thread may.
pub const ROOM: usize = 8;
/// Pairs of a cycle that are named.
const NAMED: usize = 4;

/// All locks of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(u8);

impl Class {
    /// Of a lock that found no room; its order is not checked.
    pub const NONE: Class = Class(CLASSES as u8);

    /// As a number below 256.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The class of a number that [`number`](Self::number) gave.
    pub fn from_number(number: u8) -> Class {
        Class(number)
    }

    fn index(self) -> Option<usize> {
        (self != Class::NONE).then_some(usize::from(self.0))
    }
}

/// A lock that was taken or is about to be.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// Which one.
    pub address: usize,
    /// Of which class.
    pub class: Class,
    /// The class's name.
    pub name: &'static str,
    /// By which line.
    pub site: Site,
}

/// A pair of classes in the order in which they were taken.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    held: Lock,
    taken: Lock,
}

/// The pairs by which one class came after another, the first [`NAMED`] of them.
pub type Chain = [Option<&'static Pair>; NAMED];

/// In which order locks of different classes were ever taken.
///
/// A class *follows* another if one of its locks was taken while one of the other was held. If each follows the other, directly or
/// by way of further classes, harts can wait for each other for ever; that is found as soon as the last pair is seen, whether or not
/// somebody waits at that time.
pub struct Order {
    names: [Once<&'static str>; CLASSES],
    /// The classes that follow each, a bit a class.
    followers: [AtomicU64; CLASSES],
    pairs: [Once<Pair>; PAIRS],
    pairs_used: AtomicUsize,
    is_full: AtomicBool,
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug)]
pub enum Violation {
    /// A lock is taken while another is held, and the chain shows that the other follows it.
    Cycle { held: Lock, taken: Lock, chain: Chain },
    /// A lock is taken by the hart that holds it.
    Relock { held: Lock, taken: Lock },
    /// Of two locks of a class, the one with the higher address was taken first.
    Descending { held: Lock, taken: Lock },
    /// More locks are held than there is room to remember.
    TooMany { taken: Lock },
    /// A lock is released that this hart does not hold.
    NotHeld { name: &'static str },
    /// Interrupts are on while a lock is held.
    Interruptible { held: Lock },
    /// A lock is held at a time when it must not be.
    HeldWhile { act: Act, held: Lock, more: usize },
    /// A thread would leave its hart without the lock that it hands over.
    NothingToHandOver,
    /// An interrupt handler would sleep.
    SleepInHandler,
}

/// What a thread does with no spin lock held, but the one that is handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It waits for something.
    Sleep,
    /// It leaves the hart to another.
    Switch,
    /// It ends.
    Exit,
}

impl Order {
    /// Nothing has been seen yet.
    pub const fn new() -> Order {
        Order {
            names: [const { Once::new() }; CLASSES],
            followers: [const { AtomicU64::new(0) }; CLASSES],
            pairs: [const { Once::new() }; PAIRS],
            pairs_used: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
        }
    }

    /// The class of a name.
    pub fn class(&self, name: &'static str) -> Class {
        // Whoever comes first to a free place gives it its name; the others see that name.
        let mut names = self.names.iter();
        match names.position(|place| *place.call_once(|| name) == name) {
            Some(index) => Class(index as u8),
            None => {
                self.is_full.store(true, Ordering::Relaxed);
                Class::NONE
            }
        }
    }

    /// The name of a class.
    pub fn name(&self, class: Class) -> &'static str {
        let name = class.index().and_then(|index| self.names[index].get().copied());
        name.unwrap_or("one of too many to be named")
    }

    /// Whether there was no room for something: not everything is checked, or not everything named.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Whether `taken` may be waited for while `held` is held. If so, remembers that it was.
    ///
    /// # Errors
    /// Where harts could wait for each other for ever.
    pub fn admit(&'static self, held: Lock, taken: Lock) -> Result<(), Violation> {
        if held.address == taken.address {
            return Err(Violation::Relock { held, taken });
        }
        if held.class == taken.class && held.class != Class::NONE {
            let ascends = held.address < taken.address;
            return if ascends { Ok(()) } else { Err(Violation::Descending { held, taken }) };
        }
        let (Some(from), Some(to)) = (held.class.index(), taken.class.index()) else {
            return Ok(());
        };
        let bit = 1 << to;
        // What was seen before was checked then.
        if self.followers[from].load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        // Of harts that close a cycle together, each with another pair, the last in the order of these sees all the pairs.
        if self.followers[from].fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            return Ok(());
        }
        let Some(chain) = self.chain(to, from) else {
            self.remember(Pair { held, taken });
            return Ok(());
        };
        self.followers[from].fetch_and(!bit, Ordering::Relaxed);
        Err(Violation::Cycle { held, taken, chain })
    }

    fn remember(&self, pair: Pair) {
        let free = self.pairs_used.fetch_add(1, Ordering::Relaxed);
        match self.pairs.get(free) {
            Some(place) => _ = place.call_once(|| pair),
            None => self.is_full.store(true, Ordering::Relaxed),
        }
    }

    /// How class `to` follows class `from`, if it does.
    #[cold]
    #[inline(never)]
    fn chain(&'static self, from: usize, to: usize) -> Option<Chain> {
        let mut came_from = [from as u8; CLASSES];
        let mut seen: u64 = 1 << from;
        let mut open = seen;
        while open != 0 && seen & 1 << to == 0 {
            let class = open.trailing_zeros() as usize;
            let new = self.followers[class].load(Ordering::SeqCst) & !seen;
            (0..CLASSES)
                .filter(|next| new & 1 << next != 0)
                .for_each(|next| came_from[next] = class as u8);
            seen |= new;
            open = open & (open - 1) | new;
        }
        if seen & 1 << to == 0 {
            return None;
        }
        // From the end to the beginning.
        let mut at = to;
        let steps = iter::from_fn(|| {
            let step = (at != from).then_some((usize::from(came_from[at]), at));
            at = usize::from(came_from[at]);
            step
        });
        let mut pairs = steps.filter_map(|(held, taken)| self.pair(held, taken));
        Some(array::from_fn(|_| pairs.next()))
    }

    fn pair(&'static self, held: usize, taken: usize) -> Option<&'static Pair> {
        let is_it = |pair: &&Pair| {
            pair.held.class.index() == Some(held) && pair.taken.class.index() == Some(taken)
        };
        self.pairs.iter().filter_map(Once::get).find(is_it)
    }
}

/// The spin locks that a hart holds, or the mutexes that a thread does. Changed by that hart alone, with interrupts masked, or by that
/// thread; anyone may look.
///
/// A lock that is handed over stays in the list: it belongs to the hart, whichever thread took it and whichever gives it back.
pub struct Holding {
    slots: [Slot; ROOM],
    count: AtomicUsize,
    /// The lock that the hart waits for, at whatever address but 0.
    wanted: Slot,
    /// Whether the hart is in an interrupt handler.
    pub handles_interrupt: AtomicBool,
}

struct Slot {
    address: AtomicUsize,
    class: AtomicUsize,
    site: SiteCell,
    since: AtomicU64,
}

/// For how long locks of each class were held at the most, and which line had taken that one. If two harts set a record of one class
/// at the same time, either may stay, with the line of either: these are figures for people.
pub struct Holds {
    ticks: [AtomicU64; CLASSES],
    sites: [SiteCell; CLASSES],
}

/// A site that is shared.
struct SiteCell(AtomicPtr<Location<'static>>);

impl SiteCell {
    const fn new() -> SiteCell {
        SiteCell(AtomicPtr::new(ptr::null_mut()))
    }

    fn set(&self, site: Site) {
        let site = site.map_or(ptr::null_mut(), |site| ptr::from_ref(site).cast_mut());
        self.0.store(site, Ordering::Relaxed);
    }

    fn get(&self) -> Site {
        // SAFETY: null, or what `set` was given: a reference to a constant.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }
}

impl Holds {
    /// Nothing was held yet.
    pub const fn new() -> Holds {
        Holds {
            ticks: [const { AtomicU64::new(0) }; CLASSES],
            sites: [const { SiteCell::new() }; CLASSES],
        }
    }

    /// A lock was released after this time.
    pub fn note(&self, lock: Lock, ticks: u64) {
        let Some(index) = lock.class.index() else { return };
        if ticks > self.ticks[index].load(Ordering::Relaxed) {
            self.ticks[index].store(ticks, Ordering::Relaxed);
            self.sites[index].set(lock.site);
        }
    }

    /// Each class of which a lock was held for a tick of the timebase or longer: its name, for how long, by which line.
    pub fn longest(&self, order: &Order) -> impl Iterator<Item = (&'static str, u64, Site)> {
        let all = self.ticks.iter().zip(&self.sites).enumerate();
        all.filter_map(|(index, (ticks, site))| {
            let ticks = ticks.load(Ordering::Relaxed);
            (ticks > 0).then(|| (order.name(Class(index as u8)), ticks, site.get()))
        })
    }
}

impl Holding {
    /// None.
    pub const fn new() -> Holding {
        Holding {
            slots: [const { Slot::new() }; ROOM],
            count: AtomicUsize::new(0),
            wanted: Slot::new(),
            handles_interrupt: AtomicBool::new(false),
        }
    }

    /// The locks, the first taken first.
    pub fn locks(
        &self,
        order: &Order,
    ) -> impl DoubleEndedIterator<Item = Lock> + ExactSizeIterator {
        let count = self.count.load(Ordering::Relaxed).min(ROOM);
        self.slots[..count].iter().map(|slot| slot.lock(order))
    }

    /// Whether `taken` may be waited for with what is held.
    ///
    /// # Errors
    /// As [`Order::admit`].
    pub fn admit(&self, order: &'static Order, taken: Lock) -> Result<(), Violation> {
        // The latest first: it is the one that a person looks for.
        self.locks(order).rev().try_for_each(|held| order.admit(held, taken))
    }

    /// The lock is waited for from now on, until one is [added](Self::add).
    pub fn want(&self, lock: Lock) {
        self.wanted.set(lock);
    }

    /// The lock that the hart waits for; in passing also one that is free.
    pub fn wanted(&self, order: &Order) -> Option<Lock> {
        let wanted = self.wanted.lock(order);
        (wanted.address != 0).then_some(wanted)
    }

    /// Adds a lock that was taken, at this time of the timebase.
    ///
    /// # Errors
    /// Without room.
    pub fn add(&self, taken: Lock, now: u64) -> Result<(), Violation> {
        let count = self.count.load(Ordering::Relaxed);
        let slot = self.slots.get(count).ok_or(Violation::TooMany { taken })?;
        slot.set(taken);
        slot.since.store(now, Ordering::Relaxed);
        self.wanted.address.store(0, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes off a lock that is released, in whatever order, and gives it and its time as it was added.
    ///
    /// # Errors
    /// If it is not held, or interrupts are on.
    pub fn remove(
        &self,
        order: &Order,
        address: usize,
        name: &'static str,
        interrupts_on: bool,
    ) -> Result<(Lock, u64), Violation> {
        let mut locks = self.locks(order);
        let Some(place) = locks.rposition(|held| held.address == address) else {
            return Err(Violation::NotHeld { name });
        };
        let removed = self.slots[place].lock(order);
        let since = self.slots[place].since.load(Ordering::Relaxed);
        if interrupts_on {
            return Err(Violation::Interruptible { held: removed });
        }
        let last = self.count.load(Ordering::Relaxed) - 1;
        for place in place..last {
            let next = &self.slots[place + 1];
            self.slots[place].set(next.lock(order));
            self.slots[place].since.store(next.since.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.count.store(last, Ordering::Relaxed);
        Ok((removed, since))
    }

    /// Whether a thread may do this now, with no lock held but the one at `handed_over`: which it need not hold to sleep, and must
    /// otherwise.
    ///
    /// # Errors
    /// Where it holds another, or is an interrupt handler that would sleep.
    pub fn allows(&self, order: &Order, act: Act, handed_over: usize) -> Result<(), Violation> {
        if act == Act::Sleep && self.handles_interrupt.load(Ordering::Relaxed) {
            return Err(Violation::SleepInHandler);
        }
        let mut others = self.locks(order).filter(|held| held.address != handed_over);
        // The latest first: it is the one that a person looks for.
        if let Some(held) = others.next_back() {
            return Err(Violation::HeldWhile { act, held, more: others.count() });
        }
        if act != Act::Sleep && self.count.load(Ordering::Relaxed) == 0 {
            return Err(Violation::NothingToHandOver);
        }
        Ok(())
    }

    /// An interrupt handler begins.
    ///
    /// # Errors
    /// If a lock is held: it should have kept the interrupt out.
    pub fn interrupted(&self, order: &Order) -> Result<(), Violation> {
        self.handles_interrupt.store(true, Ordering::Relaxed);
        let last = self.locks(order).next_back();
        last.map_or(Ok(()), |held| Err(Violation::Interruptible { held }))
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            address: AtomicUsize::new(0),
            class: AtomicUsize::new(0),
            site: SiteCell::new(),
            since: AtomicU64::new(0),
        }
    }

    fn set(&self, lock: Lock) {
        self.address.store(lock.address, Ordering::Relaxed);
        self.class.store(usize::from(lock.class.0), Ordering::Relaxed);
        self.site.set(lock.site);
    }

    fn lock(&self, order: &Order) -> Lock {
        let class = Class(self.class.load(Ordering::Relaxed) as u8);
        let address = self.address.load(Ordering::Relaxed);
        Lock { address, class, name: order.name(class), site: self.site.get() }
    }
}

/// As text, the place: a file and a line.
struct At(Site);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(site) => write!(f, "{}:{}", site.file(), site.line()),
            None => f.write_str("an unknown place"),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pair { held, taken } = self;
        let (held_at, taken_at) = (At(held.site), At(taken.site));
        write!(
            f,
            "'{}' at {taken_at} while '{}', taken at {held_at}, was held",
            taken.name, held.name
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::Cycle { held, taken, chain } => {
                write!(f, "deadlock: took {}; before, took ", Pair { held, taken })?;
                for (index, pair) in chain.iter().flatten().enumerate() {
                    let and = if index > 0 { ", and " } else { "" };
                    write!(f, "{and}{pair}")?;
                }
                // Another hart has seen the pair, and not yet written it down.
                if chain[0].is_none() { f.write_str("the other way round") } else { Ok(()) }
            }
            Violation::Relock { held, taken } => write!(
                f,
                "'{}' is taken again at {} by the hart that holds it, since {}",
                taken.name,
                At(taken.site),
                At(held.site)
            ),
            Violation::Descending { held, taken } => write!(
                f,
                "of two locks '{}' the lower ({:#x}, at {}) is taken after the higher ({:#x}, at {})",
                taken.name,
                taken.address,
                At(taken.site),
                held.address,
                At(held.site)
            ),
            Violation::TooMany { taken } => {
                let (name, site) = (taken.name, At(taken.site));
                write!(f, "'{name}' at {site} is one too many: {ROOM} can be held at once")
            }
            Violation::NotHeld { name } => {
                write!(f, "'{name}' is released by a hart that does not hold it")
            }
            Violation::Interruptible { held } => {
                let (name, site) = (held.name, At(held.site));
                write!(f, "interrupts are on while '{name}', taken at {site}, is held")
            }
            Violation::HeldWhile { act, held, more } => {
                let act = match act {
                    Act::Sleep => "sleeps",
                    Act::Switch => "leaves its hart",
                    Act::Exit => "ends",
                };
                let (name, site) = (held.name, At(held.site));
                write!(f, "a thread {act} while its hart holds '{name}', taken at {site}")?;
                if more > 0 { write!(f, ", and {more} more") } else { Ok(()) }
            }
            Violation::NothingToHandOver => {
                f.write_str("a thread leaves its hart without the run queue's lock")
            }
            Violation::SleepInHandler => f.write_str("an interrupt handler sleeps"),
        }
    }
}
