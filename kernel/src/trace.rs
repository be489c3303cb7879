//! What every hart did last: switches, wakeups, interrupts and waits for locks, in a ring of each hart's own.
//!
//! [`record`] writes down an [`Event`] with the time. A ring has one writer, its hart with interrupts masked, so it needs no lock;
//! it allocates nothing, and the newest event replaces the oldest. [`snapshot`] reads a ring while its hart goes on writing.
//! [`dump_at_the_end`] has all rings printed before the verdict, for `cargo run -- trace` on the host.
//!
//! Rings are kept in checked builds alone ([`KEPT`]); elsewhere every function here is empty. An entry is 24 bytes, a ring 12 KiB.
//! Recording costs 24 instructions and no call, two of them fences: under icount that is a quarter of a tick of the clock. The
//! time is that of the timebase and not `rdinstret`, which means nothing without icount and which firmware may keep to itself.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use riscv::register::time;

use crate::console::println;
use crate::hart::{self, CpuNumber};
use crate::{interrupts, platform, thread};

/// Whether this build records anything.
pub const KEPT: bool = cfg!(feature = "checked");

/// Events in a hart's ring.
pub const EVENTS: usize = if KEPT { 512 } else { 0 };

/// Something that happened on the hart that records it. Threads by id, CPUs by number, locks by address.
#[derive(Clone, Copy)]
pub enum Event {
    /// A thread gave way to another.
    Switch { from: u32, to: u32 },
    /// A thread was woken, which ran on a CPU last, or is to begin there.
    Wake { thread: u32, cpu: u32 },
    /// An interrupt was taken.
    Interrupt(Which),
    /// What it asked for is done; before a switch that it led to.
    InterruptEnd,
    /// A thread was taken from another CPU's queue.
    Steal { thread: u32, from_cpu: u32 },
    /// There was nothing to run: the hart sleeps until an interrupt.
    Idle,
    /// A lock was held by somebody else.
    LockWait { lock: usize },
    /// That lock was taken in the end.
    LockTaken { lock: usize },
    /// A thread was made.
    Spawn { thread: u32, name: &'static str },
    /// A thread ended.
    Exit { thread: u32, name: &'static str },
    /// Whatever somebody looks for.
    Point(u32),
}

/// Where an interrupt came from.
#[derive(Clone, Copy)]
pub enum Which {
    /// Another hart.
    Ipi,
    /// The clock.
    Timer,
    /// A device.
    External,
}

/// What the host calls each kind of event, by the number in an entry.
const KINDS: [&str; 13] = [
    "switch",
    "wake",
    "ipi",
    "timer",
    "external",
    "interrupt-end",
    "steal",
    "idle",
    "lock-wait",
    "lock-taken",
    "spawn",
    "exit",
    "point",
];

impl Event {
    /// The kind's number below the first argument, and the second argument.
    #[inline(always)]
    fn words(self) -> [u64; 2] {
        let (kind, first, second) = match self {
            Event::Switch { from, to } => (0, from, to.into()),
            Event::Wake { thread, cpu } => (1, thread, cpu.into()),
            Event::Interrupt(which) => (2 + which as u64, 0, 0),
            Event::InterruptEnd => (5, 0, 0),
            Event::Steal { thread, from_cpu } => (6, thread, from_cpu.into()),
            Event::Idle => (7, 0, 0),
            Event::LockWait { lock } => (8, 0, lock as u64),
            Event::LockTaken { lock } => (9, 0, lock as u64),
            Event::Spawn { thread, name } => (10, thread, packed(name)),
            Event::Exit { thread, name } => (11, thread, packed(name)),
            Event::Point(point) => (12, point, 0),
        };
        [u64::from(first) << 32 | kind, second]
    }
}

/// Where the image has a text, as one word: the 48 low bits of its address below its length. The host reads it there, when the thread is
/// gone that had this name.
fn packed(text: &'static str) -> u64 {
    (text.len() as u64) << 48 | (text.as_ptr().addr() as u64 & ((1 << 48) - 1))
}

/// An event as it was recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// When, in ticks of the timebase.
    pub time: u64,
    words: [u64; 2],
}

impl Recorded {
    /// Whether it is such an event.
    pub fn is(&self, event: Event) -> bool {
        self.words == event.words()
    }
}

impl Recorded {
    /// What happened, in words for people.
    pub fn words(self) -> impl fmt::Display {
        let [what, second] = self.words;
        let (kind, first) = (what as u32 as usize, what >> 32);
        fmt::from_fn(move |f| match kind {
            0 => write!(f, "switches from thread {first} to {second}"),
            1 => write!(f, "wakes thread {first}, for CPU {second}"),
            2..=4 => write!(f, "takes an interrupt: {}", KINDS[kind]),
            5 => f.write_str("has taken it"),
            6 => write!(f, "steals thread {first} from CPU {second}"),
            7 => f.write_str("sleeps"),
            8 | 9 => {
                write!(f, "{} for the lock at {:#x}", ["waits", "has waited"][kind - 8], second)
            }
            10 => write!(f, "spawns thread {first}"),
            11 => write!(f, "ends thread {first}"),
            _ => write!(f, "gives up its thread at a point ({first})"),
        })
    }
}

/// Its time, its kind and its two arguments; what has fewer has zeros.
impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, second] = self.words;
        let kind = KINDS[what as u32 as usize];
        write!(f, "{} {kind} {} {second}", self.time, what >> 32)
    }
}

/// The newest events of a hart, of which one fewer than it has room for can be read: the oldest may be being replaced.
#[repr(C)]
pub struct Ring<const EVENTS: usize> {
    /// Events recorded so far, in front, where a load reaches it from the hart's structure: the next has this number, and the place that it gives when counted around.
    recorded: AtomicUsize,
    entries: [[AtomicU64; 3]; EVENTS],
}

impl<const EVENTS: usize> Ring<EVENTS> {
    /// With nothing in it.
    pub const fn new() -> Self {
        Ring {
            recorded: AtomicUsize::new(0),
            entries: [const { [const { AtomicU64::new(0) }; 3] }; EVENTS],
        }
    }

    /// Adds an event. By one hart alone, with interrupts masked: of two at the same time one may be lost.
    #[inline(always)]
    pub fn push(&self, event: Event) {
        let number = self.recorded.load(Ordering::Relaxed);
        // Who sees any of the words below sees the number before them, too: it is how `Snapshot` knows a replaced entry.
        fence(Ordering::Release);
        let [first, second] = event.words();
        for (place, word) in
            self.entries[number % EVENTS].iter().zip([time::read64(), first, second])
        {
            place.store(word, Ordering::Relaxed);
        }
        // Release: who sees it counted sees its words.
        self.recorded.store(number.wrapping_add(1), Ordering::Release);
    }

    /// The events from the oldest on, as of now.
    pub fn snapshot(&self) -> Snapshot<'_, EVENTS> {
        // Acquire pairs with the last release in `push`.
        let end = self.recorded.load(Ordering::Acquire);
        let next = (end + 1).saturating_sub(EVENTS);
        Snapshot { ring: self, next, end, dropped: next }
    }
}

/// The events of a ring as of a moment, in order. One that is replaced before it is read is dropped.
pub struct Snapshot<'a, const EVENTS: usize> {
    ring: &'a Ring<EVENTS>,
    next: usize,
    end: usize,
    dropped: usize,
}

impl<const EVENTS: usize> Snapshot<'_, EVENTS> {
    /// Leaves out all but the newest `count`.
    pub fn newest(mut self, count: usize) -> Self {
        self.next = self.next.max(self.end.saturating_sub(count));
        self
    }

    /// Events that were recorded and replaced before they were read, so far.
    pub fn dropped(&self) -> usize {
        self.dropped
    }
}

impl<const EVENTS: usize> Iterator for Snapshot<'_, EVENTS> {
    type Item = Recorded;

    fn next(&mut self) -> Option<Recorded> {
        while self.next < self.end {
            let number = self.next;
            self.next += 1;
            let [time, first, second] = self.ring.entries[number % EVENTS]
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            // Pairs with the fence in `push`.
            fence(Ordering::Acquire);
            if self.ring.recorded.load(Ordering::Relaxed) < number + EVENTS {
                return Some(Recorded { time, words: [first, second] });
            }
            self.dropped += 1;
        }
        None
    }
}

/// Records an event on this hart. From anywhere, with interrupts on or off; takes no lock.
#[inline(always)]
pub fn record(event: Event) {
    if KEPT {
        let were_on = interrupts::disable();
        hart::of_this_cpu().trace.push(event);
        if were_on {
            interrupts::enable();
        }
    }
}

/// While it lives, something goes on whose beginning was recorded; dropped, it records the end.
#[must_use]
pub struct Span(Event);

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        record(self.0);
    }
}

/// Records that an interrupt was taken, and its end when dropped: before a switch, or the end would be another thread's.
#[inline(always)]
pub fn interrupt(which: Which) -> Span {
    record(Event::Interrupt(which));
    Span(Event::InterruptEnd)
}

/// Records that somebody else holds `lock`, and when dropped that it was taken.
#[cold]
pub fn wait_for<T>(lock: &T) -> Span {
    let lock = core::ptr::from_ref(lock).addr();
    record(Event::LockWait { lock });
    Span(Event::LockTaken { lock })
}

/// The events of a hart as of now, from the oldest on; none of one that is not up.
pub fn snapshot(cpu: CpuNumber) -> Option<Snapshot<'static, EVENTS>> {
    hart::by_cpu(cpu).map(|hart| hart.trace.snapshot())
}

/// Whether the rings are printed at the end.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Has the rings printed at the end of the run, before its verdict.
pub fn dump_at_the_end() {
    if KEPT {
        ASKED.store(true, Ordering::Relaxed);
    } else {
        println!("command line: this build keeps no trace");
    }
}

/// Says anew whether they are.
pub fn ask_for_dump(wanted: bool) {
    ASKED.store(wanted && KEPT, Ordering::Relaxed);
}

/// Whether that was asked for.
pub fn is_asked() -> bool {
    KEPT && ASKED.load(Ordering::Relaxed)
}

/// Prints the rings, and what the threads are called: a line each, between a line that begins and one that ends it.
///
/// # Errors
/// Those of `out`.
pub fn dump(out: &mut impl Write) -> fmt::Result {
    let timebase = platform::machine().map_or(0, |machine| machine.timebase.get());
    let harts = hart::all().count();
    let dropped: usize = hart::all().map(|hart| hart.trace.snapshot().dropped()).sum();
    writeln!(out, "trace: begin timebase={timebase} harts={harts} dropped={dropped}")?;
    writeln!(out, "trace: thread 0 idle")?;
    let mut named = Ok(());
    thread::for_each(|thread| {
        let line = writeln!(out, "trace: thread {} {}", thread.id(), thread.name());
        named = named.and(line);
    });
    named?;
    let mut dropped_in_all = 0;
    for hart in hart::all() {
        let mut events = hart.trace.snapshot();
        for event in &mut events {
            writeln!(out, "trace: {} {event}", hart.cpu())?;
        }
        dropped_in_all += events.dropped();
    }
    // The other harts may have gone on meanwhile.
    if dropped_in_all > dropped {
        writeln!(out, "trace: dropped {}", dropped_in_all - dropped)?;
    }
    writeln!(out, "trace: end")
}
