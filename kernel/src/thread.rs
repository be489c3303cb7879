//! Threads: [`spawn`] gives a closure a stack and lets it run; [`JoinHandle::join`] gives its result.
//!
//! A thread is known by a [`ThreadRef`], which is good until it has been joined. Dropping the handle joins too: no thread outlives its
//! handle, and nothing has to clean up after it.
//!
//! Owns the list of all threads. A [`Thread`] is freed by the one who joins it, after it has left its hart for the last time (invariant THREAD-1);
//! without memory there is a [`SpawnError`] and no thread.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use scheduler::{Node, Queue};

use crate::debugger::Fact;
use crate::explore::{self, Point};
use crate::hart::CpuNumber;
use crate::heap::{self, OutOfMemory};
use crate::interrupts;
use crate::sched;
use crate::stack::{NoStack, STACK_BYTES, Stack};
use crate::switch::Context;
use crate::sync::SpinLock;
use crate::sync::checker::Mutexes;
use crate::trace::{self, Event};

/// A thread. What scheduler, timers and monitor know of it.
pub struct Thread {
    /// The scheduler's part.
    pub(crate) node: Node,
    /// Its registers while it does not run.
    pub(crate) context: UnsafeCell<Context>,
    /// The lowest address of its stack.
    pub(crate) stack_low: AtomicUsize,
    /// The state of the page table in which its stack was mapped; a hart that has not fenced since must before it runs here.
    pub(crate) mapped_in: AtomicUsize,
    /// While it sleeps: when it is to be woken, in ticks of the timebase.
    pub(crate) wake_at: AtomicU64,
    /// While it gives up its hart at a point of the schedule that is explored.
    pub(crate) gives_up: AtomicBool,
    /// What it has of mutexes, in checked builds.
    pub mutexes: Mutexes,
    /// What it has done so far.
    pub counts: Counts,
    id: usize,
    name: &'static str,
    /// Its place among [`ALL`], under that lock.
    place: AtomicUsize,
    end: SpinLock<End>,
    main: UnsafeCell<Option<Box<dyn FnOnce() + Send>>>,
    /// Its own stack, unmapped when the thread is dropped; idle threads run on their hart's.
    _stack: Option<Stack>,
}

// SAFETY: `context` belongs to the hart that switches (invariant THREAD-2), `main` to the thread itself once it has begun
// (THREAD-1); everything else is atomic, under a lock, or not changed any more.
unsafe impl Sync for Thread {}

/// What a thread has done so far. Counted by its hart at switches.
pub struct Counts {
    /// Ticks of the timebase for which it ran.
    pub run_time: AtomicU64,
    /// How often it came onto a hart.
    pub switches: AtomicUsize,
    /// How often a timer interrupt took it off.
    pub preemptions: AtomicUsize,
    /// The harts it ran on: bit n is CPU n.
    pub harts: AtomicUsize,
}

/// How a thread ends for those that wait for it.
struct End {
    has_ended: bool,
    waiters: Queue<ThreadRef>,
}

/// A thread that has not been joined yet (invariant THREAD-1).
#[derive(Clone, Copy)]
pub struct ThreadRef(&'static Thread);

impl core::ops::Deref for ThreadRef {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        self.0
    }
}

impl PartialEq for ThreadRef {
    fn eq(&self, other: &ThreadRef) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for ThreadRef {}

impl scheduler::Thread for ThreadRef {
    fn node(&self) -> &Node {
        &self.0.node
    }

    fn to_word(self) -> usize {
        core::ptr::from_ref(self.0).expose_provenance()
    }

    fn from_word(word: usize) -> Self {
        // SAFETY: the scheduler's words come from `to_word`, and a thread in a queue has not been joined (THREAD-1).
        ThreadRef(unsafe { &*core::ptr::with_exposed_provenance(word) })
    }
}

/// Every thread that was spawned and not joined.
static ALL: SpinLock<Registry> =
    SpinLock::new("threads", Registry { threads: Vec::new(), next_id: 1 });

struct Registry {
    threads: Vec<ThreadRef>,
    next_id: usize,
}

/// For debuggers.
pub const LAYOUT: &[Fact] = &[
    Fact::new("all threads", SpinLock::<Registry>::DATA + offset_of!(Registry, threads)),
    Fact::new("thread: id", offset_of!(Thread, id)),
    Fact::new("thread: name", offset_of!(Thread, name)),
    Fact::new("thread: context", offset_of!(Thread, context)),
    Fact::new("thread: next", offset_of!(Thread, node) + Node::NEXT),
    Fact::new("thread: home", offset_of!(Thread, node) + Node::HOME),
    Fact::new("thread: ending", offset_of!(Thread, node) + Node::ENDING),
];

impl Thread {
    /// The thread that a hart runs when there is no other: what it entered as.
    pub const fn idle() -> Thread {
        Thread::with(0, "idle", 0, None, None)
    }

    const fn with(
        id: usize,
        name: &'static str,
        stack_low: usize,
        stack: Option<Stack>,
        main: Option<Box<dyn FnOnce() + Send>>,
    ) -> Thread {
        Thread {
            node: Node::new(),
            context: UnsafeCell::new(Context::EMPTY),
            stack_low: AtomicUsize::new(stack_low),
            mapped_in: AtomicUsize::new(0),
            wake_at: AtomicU64::new(0),
            gives_up: AtomicBool::new(false),
            mutexes: Mutexes::new(),
            counts: Counts {
                run_time: AtomicU64::new(0),
                switches: AtomicUsize::new(0),
                preemptions: AtomicUsize::new(0),
                harts: AtomicUsize::new(0),
            },
            id,
            name,
            place: AtomicUsize::new(0),
            end: SpinLock::new("end of a thread", End { has_ended: false, waiters: Queue::new() }),
            main: UnsafeCell::new(main),
            _stack: stack,
        }
    }

    /// Its number: 0 for idle threads, and no other thread has had the same.
    pub fn id(&self) -> usize {
        self.id
    }

    /// What it was called when it was spawned.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The addresses of its stack.
    pub fn stack(&self) -> Range<usize> {
        let low = self.stack_low.load(Ordering::Relaxed);
        low..low + STACK_BYTES
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} ({})", self.id, self.name)
    }
}

impl ThreadRef {
    /// For how long it has run so far, in ticks of the timebase. Of a thread that runs elsewhere, as far as can be seen now.
    pub fn run_time(self) -> u64 {
        // A switch in between would move time from the second place to the first, which was read already.
        let _masked = interrupts::mask();
        self.counts.run_time.load(Ordering::Relaxed) + sched::running_for(self)
    }

    /// A thread that is never joined.
    pub fn of_static(thread: &'static Thread) -> ThreadRef {
        ThreadRef(thread)
    }

    /// Ends the thread for those that wait for it, when it has left its hart for the last time.
    pub(crate) fn end(self) {
        let mut end = self.0.end.lock();
        end.has_ended = true;
        while let Some(waiter) = end.waiters.pop() {
            sched::wake(waiter);
        }
        // The thread is gone when this lock is released: who joins it frees it.
    }
}

/// Why there is no new thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpawnError {
    /// There is no memory for its data.
    OutOfMemory,
    /// There is no memory, or no address, for its stack.
    NoStack,
    /// No such hart is up.
    NotUp(CpuNumber),
}

impl From<OutOfMemory> for SpawnError {
    fn from(_: OutOfMemory) -> Self {
        SpawnError::OutOfMemory
    }
}

impl From<NoStack> for SpawnError {
    fn from(_: NoStack) -> Self {
        SpawnError::NoStack
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::OutOfMemory => f.write_str("there is no memory for the thread"),
            SpawnError::NoStack => f.write_str("there is no memory for the thread's stack"),
            SpawnError::NotUp(cpu) => write!(f, "CPU {cpu} is not up"),
        }
    }
}

/// The right to a thread's result, and the duty to wait for its end. Dropped, it waits too.
#[must_use = "dropping the handle waits for the thread"]
pub struct JoinHandle<T> {
    thread: ThreadRef,
    /// Where the thread puts what its closure returned.
    result: NonNull<Option<T>>,
}

// SAFETY: the result goes to whoever has the handle, after the thread has ended.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle gives nothing but the thread's reference.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

/// Lets `body` run in a thread of its own, on whichever hart. Allocates; takes the locks of heap, stacks, address space and run queues;
/// does not sleep.
///
/// # Errors
/// Without memory; nothing is lost then but `body`.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    start(name, None, body)
}

/// As [`spawn`], but the thread stays on one hart.
///
/// # Errors
/// As for [`spawn`], and if no such hart is up.
pub fn spawn_on<T: Send + 'static>(
    cpu: CpuNumber,
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    if crate::hart::by_cpu(cpu).is_none() {
        return Err(SpawnError::NotUp(cpu));
    }
    start(name, Some(cpu), body)
}

fn start<T: Send + 'static>(
    name: &'static str,
    cpu: Option<CpuNumber>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    let result = NonNull::from(Box::leak(heap::try_box(None)?));
    let outcome = enlist(name, cpu, result, body);
    if outcome.is_err() {
        // SAFETY: it was leaked above, and there is no thread that knows it.
        drop(unsafe { Box::from_raw(result.as_ptr()) });
    }
    let thread = outcome?;
    trace::record(Event::Spawn { thread: thread.id() as u32, name });
    sched::wake(thread);
    explore::schedule_point(Point::Spawn);
    Ok(JoinHandle { thread, result })
}

/// Makes the thread, known and ready to run, but not queued.
fn enlist<T: Send + 'static>(
    name: &'static str,
    cpu: Option<CpuNumber>,
    result: NonNull<Option<T>>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<ThreadRef, SpawnError> {
    let place = SendPointer(result);
    let main = heap::try_box(move || {
        let place = place;
        let result = Some(body());
        // SAFETY: the handle does not look before the thread has ended, and frees the place only then (THREAD-1).
        unsafe { place.0.write(result) };
    })?;
    let stack = Stack::allocate()?;
    let Range { start: low, end: top } = stack.range();
    let mapped_in = stack.mapped_in();
    let mut all = ALL.lock();
    all.threads.try_reserve(1).map_err(|_| SpawnError::OutOfMemory)?;
    let thread = heap::try_box(Thread {
        context: UnsafeCell::new(Context::beginning_at(thread_entry as *const () as usize, top)),
        mapped_in: AtomicUsize::new(mapped_in),
        place: AtomicUsize::new(all.threads.len()),
        ..Thread::with(all.next_id, name, low, Some(stack), Some(main))
    })?;
    let thread = ThreadRef(Box::leak(thread));
    let here = interrupts::mask().hart().cpu();
    thread.node.place(cpu.unwrap_or(here).0, cpu.is_some());
    all.next_id += 1;
    all.threads.push(thread);
    Ok(thread)
}

/// A pointer that a closure may take to another hart.
struct SendPointer<T>(NonNull<T>);

// SAFETY: what it points to is for the other hart, and may go there.
unsafe impl<T: Send> Send for SendPointer<T> {}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended, and gives what its closure returned. Sleeps.
    pub fn join(mut self) -> T {
        let result = self.finish();
        core::mem::forget(self);
        result
    }

    /// The thread.
    pub fn thread(&self) -> ThreadRef {
        self.thread
    }

    fn finish(&mut self) -> T {
        let thread = self.thread;
        loop {
            let mut end = thread.0.end.lock();
            if end.has_ended {
                break;
            }
            end.waiters.push(current());
            sched::block(end);
        }
        {
            let mut all = ALL.lock();
            let place = thread.place.load(Ordering::Relaxed);
            all.threads.swap_remove(place);
            if let Some(moved) = all.threads.get(place) {
                moved.place.store(place, Ordering::Relaxed);
            }
        }
        // SAFETY: it was leaked by `start`, the thread has ended, and there is one handle.
        let result = unsafe { Box::from_raw(self.result.as_ptr()) };
        // SAFETY: it was leaked by `enlist`; it has left its hart, is in no queue and on no list, and nobody may use references to a
        // thread that was joined (THREAD-1).
        drop(unsafe { Box::from_raw(core::ptr::from_ref(thread.0).cast_mut()) });
        result.expect("a thread that has ended has left its result")
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        drop(self.finish());
    }
}

/// Gives back the memory that was kept for more threads than there are.
pub fn trim() {
    ALL.lock().threads.shrink_to_fit();
}

/// The thread that this runs in.
pub fn current() -> ThreadRef {
    interrupts::mask().hart().current()
}

/// Calls `look` with every thread that was spawned and not joined, with interrupts off and the lock of their list held; nothing if somebody
/// has it: crash reports look too.
pub fn for_each(mut look: impl FnMut(ThreadRef)) {
    if let Some(all) = ALL.try_lock() {
        all.threads.iter().for_each(|&thread| look(thread));
    }
}

/// Calls `look` with the thread that has the lowest id above `id`, with interrupts off and the lock of their list held: it may be gone
/// afterwards.
pub fn next_after<R>(id: usize, look: impl FnOnce(ThreadRef) -> R) -> Option<R> {
    let all = ALL.lock();
    let later = all.threads.iter().filter(|thread| thread.id() > id);
    later.min_by_key(|thread| thread.id()).map(|thread| look(*thread))
}

/// How many threads were spawned and not joined.
pub fn count() -> usize {
    ALL.lock().threads.len()
}

/// Where a new thread begins: every backtrace ends here, at a zero frame pointer and return address.
#[unsafe(naked)]
extern "C" fn thread_entry() -> ! {
    naked_asm!("mv s0, zero", "mv ra, zero", "tail {main}", main = sym thread_main)
}

/// The first Rust of a new thread: interrupts are off, and the lock of this hart's run queue is held.
extern "C" fn thread_main() -> ! {
    sched::begin();
    let thread = current();
    // SAFETY: the thread itself, once (THREAD-1).
    let main = unsafe { (*thread.0.main.get()).take() };
    if let Some(main) = main {
        main();
    }
    sched::exit()
}
