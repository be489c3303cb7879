//! Scheduling on this machine: what `lib/scheduler` needs of harts, locks, switches and interrupts.
//!
//! The decisions, and why no wakeup is lost, are in `lib/scheduler`.
//!
//! Each hart has a [`Part`]: its run queue under a spin lock, and what it runs. [`block`] takes the guard of the lock that protects the condition,
//! so a lost wakeup cannot be written; [`wake`] may be called anywhere; who switches holds the run queue's lock and no other (invariants
//! THREAD-2, LOCK-2, LOCK-3).

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use riscv::register::time;
use scheduler::{Kernel, Queue, Scheduler};

use crate::debugger::Fact;
use crate::explore::{self, Point};
use crate::hart::{self, HARTS, Hart};
use crate::interrupts::{self, Masked};
use crate::switch;
use crate::sync::{SpinGuard, SpinLock, checker};
use crate::thread::{self, Thread, ThreadRef};
use crate::trace::{self, Event};
use crate::{sbi, timer, vm};

static SCHEDULER: Scheduler = Scheduler::new();
const _: () = assert!(hart::MAX_CPUS <= Scheduler::MAXIMUM_CPUS);

/// What a hart has for scheduling. Its own, but for the queue.
pub struct Part {
    queue: SpinLock<Queue<ThreadRef>>,
    current: AtomicPtr<Thread>,
    previous: AtomicPtr<Thread>,
    idle: Thread,
    /// Which hart this is: bit n is CPU n.
    bit: usize,
    /// The state of the page table that this hart has fenced for.
    fenced_in: AtomicUsize,
    /// Since when the current thread runs here, in ticks of the timebase.
    since: AtomicU64,
    /// Threads taken from other harts' queues.
    pub steals: AtomicUsize,
}

/// For debuggers.
pub const LAYOUT: &[Fact] = &[
    Fact::new("scheduling: current", offset_of!(Part, current)),
    Fact::new("scheduling: idle", offset_of!(Part, idle)),
    Fact::new("scheduling: first ready", offset_of!(Part, queue) + Lock::DATA + Threads::FIRST),
];
type Threads = Queue<ThreadRef>;
type Lock = SpinLock<Threads>;

impl Part {
    /// Of a hart that is not up.
    pub const fn new(cpu: usize) -> Part {
        Part {
            bit: 1 << cpu,
            queue: SpinLock::new("run queue", Queue::new()),
            current: AtomicPtr::new(core::ptr::null_mut()),
            previous: AtomicPtr::new(core::ptr::null_mut()),
            idle: Thread::idle(),
            fenced_in: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            steals: AtomicUsize::new(0),
        }
    }

    /// Makes what runs on this hart its idle thread, on its stack from `stack_low` on. The first thing that a hart does.
    pub fn settle(&'static self, cpu: usize, stack_low: usize) {
        let idle = ThreadRef::of_static(&self.idle);
        idle.stack_low.store(stack_low, Ordering::Relaxed);
        idle.node.place(cpu, true);
        idle.node.enter();
        self.set_current(idle);
        self.since.store(time::read64(), Ordering::Relaxed);
    }

    fn set_current(&self, thread: ThreadRef) {
        self.current.store(core::ptr::from_ref::<Thread>(&thread).cast_mut(), Ordering::Relaxed);
    }

    /// The thread that runs here.
    pub fn current(&self) -> ThreadRef {
        of_pointer(&self.current)
    }

    /// Whether another thread waits here to run. Takes the lock of the queue.
    pub fn has_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }

    /// The thread that runs here when there is no other.
    pub fn idle(&'static self) -> ThreadRef {
        ThreadRef::of_static(&self.idle)
    }
}

/// A hart's current or previous thread.
fn of_pointer(pointer: &AtomicPtr<Thread>) -> ThreadRef {
    // SAFETY: a hart's current thread has not ended, and its previous one is looked at before it is ended (invariant THREAD-1); both
    // are set from the time on when the hart is up.
    ThreadRef::of_static(unsafe { &*pointer.load(Ordering::Relaxed) })
}

/// Lets the next thread of this hart run, if there is one; the current one goes on after all others. No lock may be held.
pub fn yield_now() {
    checker::about_to_sleep(0);
    SCHEDULER.yield_now(&Harts);
}

/// Blocks the current thread, which is queued where its waker will find it, until that wakes it. `condition` is the lock of that queue; it
/// is released once the thread can be woken, and is the only lock held. Sleeps.
pub fn block<T>(condition: SpinGuard<'_, T>) {
    checker::about_to_sleep(condition.address());
    SCHEDULER.block(&Harts, condition);
}

/// Makes a blocked thread run, which is in no queue any more. Takes the lock of a run queue; may be called anywhere.
pub fn wake(thread: ThreadRef) {
    wake_masked(thread, &interrupts::mask());
}

/// As [`wake`], for who has interrupts masked.
pub fn wake_masked(thread: ThreadRef, _: &Masked) {
    // Before it is: it may run, end and be gone as soon as it is queued.
    trace::record(Event::Wake { thread: thread.id() as u32, cpu: thread.node.home() as u32 });
    SCHEDULER.wake(&Harts, thread);
    explore::schedule_point(Point::Wake);
}

/// For how long a thread runs where it runs now, in ticks of the timebase: 0 if it does not.
pub fn running_for(thread: ThreadRef) -> u64 {
    let part = &HARTS[thread.node.home()].scheduling;
    let since = part.since.load(Ordering::Relaxed);
    if part.current() == thread { time::read64().saturating_sub(since) } else { 0 }
}

/// Whether a thread waits in a run queue. Takes their locks, one after the other.
pub fn is_queued(thread: ThreadRef) -> bool {
    hart::all().any(|hart| hart.scheduling.queue.lock().iter().any(|other| other == thread))
}

/// The first thing in a new thread: ends the switch that brought it here, and turns interrupts on.
pub fn begin() {
    SCHEDULER.arrive(&Harts, interrupts::ON);
}

/// Ends the current thread. No lock may be held.
pub fn exit() -> ! {
    let current = thread::current();
    trace::record(Event::Exit { thread: current.id() as u32, name: current.name() });
    SCHEDULER.exit(&Harts);
    unreachable!("nothing queues a thread that has ended")
}

/// What an idle thread does for ever. Interrupts are off.
pub fn idle() -> ! {
    SCHEDULER.idle(&Harts)
}

/// Takes the current thread off its hart, the one here, if another waits there: what a timer interrupt does on its way out.
#[inline]
pub fn preempt(hart: &'static Hart) {
    if SCHEDULER.has_queued(hart.cpu().0) {
        preempt_for_another(hart);
    }
}

#[cold]
#[inline(never)]
fn preempt_for_another(hart: &'static Hart) {
    let current = hart.current();
    if current == hart.scheduling.idle() {
        return;
    }
    let before = current.counts.switches.load(Ordering::Relaxed);
    yield_now();
    if current.counts.switches.load(Ordering::Relaxed) != before {
        current.counts.preemptions.fetch_add(1, Ordering::Relaxed);
    }
}

/// This machine, for the scheduler.
struct Harts;

impl Kernel for Harts {
    type Thread = ThreadRef;
    type Here = &'static Hart;
    /// `sstatus.SIE` as it was: the bit in its place, or 0.
    type Interrupts = usize;

    fn cpus(&self) -> usize {
        hart::count()
    }

    #[inline(always)]
    fn here(&self) -> &'static Hart {
        hart::of_this_cpu()
    }

    #[inline(always)]
    fn cpu(&self, here: &'static Hart) -> usize {
        here.cpu().0
    }

    #[inline(always)]
    fn current(&self, here: &'static Hart) -> ThreadRef {
        here.current()
    }

    fn idle_thread(&self, here: &'static Hart) -> ThreadRef {
        here.scheduling.idle()
    }

    #[inline(always)]
    fn lock_here(&self) -> &'static Hart {
        let masked = interrupts::mask();
        let hart = masked.hart();
        SpinGuard::leak(hart.scheduling.queue.lock_masked(masked));
        hart
    }

    #[inline(always)]
    fn lock_here_masked(&self) -> &'static Hart {
        let hart = hart::of_this_cpu();
        // SAFETY: the lock of the condition masks interrupts, and hands that over to this one (LOCK-3).
        SpinGuard::leak(unsafe { hart.scheduling.queue.lock_within() });
        hart
    }

    fn unlock_here(&self, here: &'static Hart) {
        drop(held(here));
    }

    fn lock(&self, cpu: usize) {
        // SAFETY: the scheduler calls this with interrupts masked, and then `unlock` (LOCK-3).
        SpinGuard::leak(unsafe { queue(cpu).lock_within() });
    }

    fn try_lock(&self, cpu: usize) -> bool {
        // SAFETY: as in `lock`.
        unsafe { queue(cpu).try_lock_within() }.map(SpinGuard::leak).is_some()
    }

    fn unlock(&self, cpu: usize) {
        held(&HARTS[cpu]).hand_over();
    }

    fn with_queue<R>(&self, cpu: usize, act: impl FnOnce(&mut Queue<ThreadRef>) -> R) -> R {
        let mut queue = held(&HARTS[cpu]);
        let result = act(&mut queue);
        SpinGuard::leak(queue);
        result
    }

    #[inline(always)]
    fn with_queue_here<R>(
        &self,
        here: &'static Hart,
        act: impl FnOnce(&mut Queue<ThreadRef>) -> R,
    ) -> R {
        let mut queue = held(here);
        let result = act(&mut queue);
        SpinGuard::leak(queue);
        result
    }

    #[inline(always)]
    fn unlock_after_switch(&self, here: &'static Hart, interrupts_were_on: usize) {
        held(here).release_last(here, interrupts_were_on);
    }

    #[inline(always)]
    fn switch(&self, hart: &'static Hart, from: ThreadRef, to: ThreadRef) -> usize {
        debug_assert!(!interrupts::are_enabled(), "a switch with interrupts on");
        assert!(
            hart.masks() == 1,
            "a switch with {} masks, not the run queue's alone",
            hart.masks()
        );
        trace::record(Event::Switch { from: from.id() as u32, to: to.id() as u32 });
        hart.scheduling.leave(from, to, hart);
        let interrupts_were_on = hart.interrupts_were_on();
        // SAFETY: interrupts are off. `to` was queued when it had left its hart, is queued no more, and its stack is fenced for
        // (invariant THREAD-2).
        unsafe { switch::switch(from.context.get(), to.context.get()) };
        // Perhaps another hart: whether interrupts were on belongs to the thread.
        interrupts_were_on
    }

    #[inline(always)]
    fn previous(&self, here: &'static Hart) -> ThreadRef {
        of_pointer(&here.scheduling.previous)
    }

    fn ended(&self, thread: ThreadRef) {
        thread.end();
    }

    fn stolen(&self, thread: ThreadRef, from: usize) {
        trace::record(Event::Steal { thread: thread.id() as u32, from_cpu: from as u32 });
        let steals = &hart::of_this_cpu().scheduling.steals;
        steals.store(steals.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn passed_over(&self) -> usize {
        explore::passed_over(hart::of_this_cpu())
    }

    fn pick(&self, cpus: usize) -> usize {
        explore::pick(cpus)
    }

    fn interrupt(&self, cpu: usize) {
        explore::delay(hart::of_this_cpu());
        if let Err(error) = sbi::send_ipi(HARTS[cpu].id()) {
            panic!("the firmware sends no IPI to CPU {cpu}: {error}");
        }
    }

    fn wait_for_interrupt(&self) {
        trace::record(Event::Idle);
        timer::before_idling();
        explore::delay(hart::of_this_cpu());
        interrupts::while_waiting(riscv::asm::wfi);
        timer::after_idling();
    }

    fn take_interrupts(&self) {
        crate::stop::if_asked();
        interrupts::enable();
        interrupts::disable();
    }
}

impl Part {
    /// Everything of a switch but the registers: time, counts, the stack that the trap vector checks, and the fence for a stack that
    /// was mapped since this hart last fenced.
    #[inline(always)]
    fn leave(&self, from: ThreadRef, to: ThreadRef, hart: &Hart) {
        let now = time::read64();
        let ran = now.wrapping_sub(self.since.load(Ordering::Relaxed));
        self.since.store(now, Ordering::Relaxed);
        let run_time = &from.counts.run_time;
        run_time.store(run_time.load(Ordering::Relaxed).wrapping_add(ran), Ordering::Relaxed);
        let switches = &to.counts.switches;
        switches.store(switches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let harts = &to.counts.harts;
        harts.store(harts.load(Ordering::Relaxed) | self.bit, Ordering::Relaxed);
        self.previous.store(core::ptr::from_ref::<Thread>(&from).cast_mut(), Ordering::Relaxed);
        self.set_current(to);
        hart.stack_low.store(to.stack_low.load(Ordering::Relaxed), Ordering::Relaxed);
        if self.fenced_in.load(Ordering::Relaxed) < to.mapped_in.load(Ordering::Relaxed) {
            // Before the fence: what is mapped meanwhile is fenced for once more.
            self.fenced_in.store(vm::mappings_so_far(), Ordering::Relaxed);
            vm::fence_this_hart();
        }
    }
}

fn queue(cpu: usize) -> &'static SpinLock<Queue<ThreadRef>> {
    &HARTS[cpu].scheduling.queue
}

/// The guard of a run queue whose lock the hart here holds.
#[inline(always)]
fn held(hart: &'static Hart) -> SpinGuard<'static, Queue<ThreadRef>> {
    // SAFETY: the scheduler calls `with_queue` and `unlock`, and those of the hart here, between `lock` and `unlock` alone, on the same
    // hart: a switch gives the lock to the thread that comes (LOCK-2).
    unsafe { hart.scheduling.queue.assume_held() }
}
