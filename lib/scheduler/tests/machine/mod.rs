//! A kernel made of a model checker's threads, for the tests that explore the scheduler with one.
//!
//! A kernel thread is a thread of the checker. A hart is a baton: whoever holds it runs on that hart, and in
//! [`switch`](Kernel::switch) it goes from the thread that leaves to the one that comes. All others are parked. What the kernel
//! below the scheduler must do is done in the simplest way that is right, and watched:
//!
//! * A thread's registers are saved before they are loaded, once, and with an order that the checker can prove: they are a cell
//!   that the leaving thread writes, and that the hart which goes on with it writes as well.
//! * A run queue is touched under its lock, and a hart that switches holds its own lock and no other.
//! * A pinned thread runs where it was placed. A thread that runs says that it is on a CPU.
//! * A thread has ended once, and after it left.
//!
//! The crate root gives `checker` (the checker's atomics, cells and threads) and the scheduler's own modules.

use std::sync::atomic::AtomicUsize as Plain;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock};

use crate::atomic::Ordering;
use crate::checker::{self, AtomicBool, Cell};
use crate::{ConditionLock, Kernel, Node, Queue, Scheduler, Thread};

/// Values that no hart has.
const NONE: usize = usize::MAX;

/// A kernel thread.
pub struct Task {
    node: Node,
    /// Whether the registers are saved.
    registers: Cell<bool>,
    /// What `ended` takes away.
    stack: Cell<bool>,
    /// The checker's thread.
    parked: OnceLock<checker::Thread>,
    /// The hart whose baton it holds. Not the checker's: who sets it wakes it, which orders the two.
    cpu: Plain,
    /// How many locks that mask interrupts it holds.
    masks: Plain,
    /// Whether its hart began with it.
    was_first: Plain,
    /// The only hart that it may run on.
    pinned_to: Plain,
    /// Its number.
    index: usize,
}

/// A thread's handle: where its [`Task`] is, in a [`Machine`] that outlives all handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle(*const Task);

// SAFETY: what it points at is `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    pub fn task(&self) -> &Task {
        // SAFETY: handles are made from the tasks of a `Machine`, which every thread of the model holds until it ends.
        unsafe { &*self.0 }
    }
}

impl Thread for Handle {
    fn node(&self) -> &Node {
        &self.task().node
    }

    fn to_word(self) -> usize {
        self.0.expose_provenance()
    }

    fn from_word(word: usize) -> Self {
        assert_ne!(word, 0, "no thread");
        Handle(core::ptr::with_exposed_provenance(word))
    }
}

/// A hart.
struct Hart {
    lock: Spin,
    /// The hart that holds the lock.
    holder: Plain,
    queue: Cell<Queue<Handle>>,
    previous: Cell<Option<Handle>>,
    current: Plain,
    pending: AtomicBool,
    /// Whether it waited for an interrupt in this round of the idle loop.
    has_waited: Plain,
    /// Whether it sleeps, and who wants to know.
    is_asleep: Plain,
    watchers: Mutex<Vec<checker::Thread>>,
}

/// The harts, the threads, and the scheduler that is looked at.
pub struct Machine {
    pub scheduler: Scheduler,
    harts: Vec<Hart>,
    tasks: Vec<Task>,
    /// Set when the test is over: who is parked ends then, and idle threads do.
    is_over: Plain,
    /// How many threads have ended.
    ended: Plain,
    /// How many are to, before the test is over.
    to_end: usize,
    /// Whether a thread may lose its hart wherever interrupts are unmasked.
    pub has_ticks: std::sync::atomic::AtomicBool,
    /// The checker's threads.
    checked: Mutex<Vec<checker::JoinHandle>>,
}

// SAFETY: of the checker's threads one runs at a time, and the checker looks after its cells.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    /// Harts, the idle thread of each (which have its number), and threads that have not begun. When `to_end` of them have ended, or
    /// with [`Here::finish`], the test is over.
    pub fn new(cpus: usize, threads: usize, to_end: usize) -> Arc<Machine> {
        let task = |index| Task {
            node: Node::new(),
            registers: Cell::new(true),
            stack: Cell::new(true),
            parked: OnceLock::new(),
            cpu: Plain::new(NONE),
            // A thread begins with the lock that the thread before it took, an idle thread with interrupts off besides.
            masks: Plain::new(if index < cpus { 2 } else { 1 }),
            was_first: Plain::new(0),
            pinned_to: Plain::new(NONE),
            index,
        };
        let hart = |_| Hart {
            lock: Spin::new(),
            holder: Plain::new(NONE),
            queue: Cell::new(Queue::new()),
            previous: Cell::new(None),
            current: Plain::new(NONE),
            pending: AtomicBool::new(false),
            has_waited: Plain::new(0),
            is_asleep: Plain::new(0),
            watchers: Mutex::new(Vec::new()),
        };
        let machine = Arc::new(Machine {
            scheduler: Scheduler::new(),
            harts: (0..cpus).map(hart).collect(),
            tasks: (0..cpus + threads).map(task).collect(),
            is_over: Plain::new(0),
            ended: Plain::new(0),
            to_end,
            has_ticks: std::sync::atomic::AtomicBool::new(false),
            checked: Mutex::new(Vec::new()),
        });
        machine.touch();
        machine
    }

    /// Uses every atomic once while there is one thread: the checker's are made when they are first used, and must be made before
    /// any other thread uses them.
    fn touch(self: &Arc<Self>) {
        let mut queue = Queue::new();
        for index in 0..self.tasks.len() {
            let thread = self.thread(index);
            thread.node().place(if index < self.harts.len() { index } else { 0 }, false);
            assert!(!thread.node().is_on_cpu() && !thread.node().is_ending());
            queue.push(thread);
            queue.pop();
        }
        for cpu in 0..self.harts.len() {
            let idle = self.be(cpu);
            self.enter(cpu, cpu);
            self.harts[cpu].pending.store(true, Ordering::Relaxed);
            self.harts[cpu].has_waited.store(1, Relaxed);
            self.scheduler.rest(&idle);
            self.thread(cpu).node().leave();
            self.tasks[cpu].cpu.store(NONE, Relaxed);
        }
    }

    /// A thread by its number: first the idle threads, one a hart, then the others.
    pub fn thread(&self, index: usize) -> Handle {
        Handle(&self.tasks[index])
    }

    /// Where a thread begins, before the harts are started.
    pub fn place(&self, index: usize, cpu: usize, is_pinned: bool) {
        self.thread(index).node().place(cpu, is_pinned);
        if is_pinned {
            self.tasks[index].pinned_to.store(cpu, Relaxed);
        }
    }

    /// Makes the checker's thread here a thread of the model.
    pub fn be(self: &Arc<Self>, index: usize) -> Here {
        Here { machine: self.clone(), me: index }
    }

    /// Makes a checker's thread for a thread of the model, that begins when a hart comes to it.
    pub fn begin(self: &Arc<Self>, index: usize, body: impl FnOnce(&Here) + Send + 'static) {
        let here = self.be(index);
        let thread = checker::spawn(move || here.run(body));
        assert!(
            self.tasks[index].parked.set(thread.thread().clone()).is_ok(),
            "a thread begins twice"
        );
        self.checked.lock().unwrap().push(thread);
    }

    /// As [`begin`](Self::begin), with what an idle thread does.
    pub fn begin_idle(self: &Arc<Self>, index: usize) {
        self.begin(index, Here::idle);
    }

    /// As [`begin`](Self::begin) and [`start`](Self::start), with the checker's thread that runs here.
    pub fn become_thread(self: &Arc<Self>, cpu: usize, index: usize, body: impl FnOnce(&Here)) {
        assert!(self.tasks[index].parked.set(checker::current()).is_ok(), "a thread begins twice");
        self.start(cpu, index);
        self.be(index).run(body);
    }

    /// Waits until all threads are over that were made for the model.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.checked.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Lets a hart begin with a thread.
    pub fn start(&self, cpu: usize, index: usize) {
        self.enter(cpu, index);
        self.tasks[index].registers.with(|is_saved| *is_saved = false);
        self.tasks[index].masks.fetch_sub(1, Relaxed);
        self.tasks[index].was_first.store(1, Relaxed);
        if let Some(thread) = self.tasks[index].parked.get() {
            thread.unpark();
        }
    }

    fn enter(&self, cpu: usize, index: usize) {
        self.thread(index).node().move_to(cpu);
        self.thread(index).node().enter();
        self.harts[cpu].current.store(index, Relaxed);
        self.tasks[index].cpu.store(cpu, Relaxed);
    }

    /// How many threads have ended.
    pub fn ended(&self) -> usize {
        self.ended.load(Relaxed)
    }
}

/// The end of a thread's stack, or of all: thrown by the switch that it does not return from.
struct Gone;

/// The kernel as one of its threads sees it.
pub struct Here {
    pub machine: Arc<Machine>,
    me: usize,
}

impl Here {
    fn run(&self, body: impl FnOnce(&Here)) {
        let act = std::panic::AssertUnwindSafe(|| {
            self.wait_for_hart();
            if self.task().was_first.load(Relaxed) == 0 {
                self.machine.scheduler.arrive(self, ());
            }
            body(self);
        });
        if let Err(problem) = std::panic::catch_unwind(act)
            && !problem.is::<Gone>()
        {
            std::panic::resume_unwind(problem);
        }
    }

    /// What an idle thread does until everything is done.
    pub fn idle(&self) {
        while self.machine.is_over.load(Relaxed) == 0 {
            self.machine.scheduler.rest(self);
        }
    }

    /// The test is over. What else would happen now does not matter.
    pub fn finish(&self) {
        self.machine.is_over.store(1, Relaxed);
        for thread in self.machine.tasks.iter().filter_map(|task| task.parked.get()) {
            thread.unpark();
        }
    }

    /// Parks the checker's thread; ends it if the test is over.
    fn park(&self) {
        if self.machine.is_over.load(Relaxed) == 0 {
            checker::park();
        }
        if self.machine.is_over.load(Relaxed) != 0 {
            std::panic::resume_unwind(Box::new(Gone));
        }
    }

    /// Holds the hart until the test is over.
    pub fn compute_for_ever(&self) -> ! {
        loop {
            self.park();
        }
    }

    /// Holds the hart until another sleeps.
    pub fn compute_until_asleep(&self, cpu: usize) {
        let hart = &self.machine.harts[cpu];
        while hart.is_asleep.load(Relaxed) == 0 {
            hart.watchers.lock().unwrap().push(checker::current());
            self.park();
        }
    }

    /// The hart that it runs on.
    fn cpu(&self) -> usize {
        let cpu = self.task().cpu.load(Relaxed);
        assert_ne!(cpu, NONE, "thread {} runs without a hart", self.me);
        assert_eq!(
            self.machine.harts[cpu].current.load(Relaxed),
            self.me,
            "two threads on hart {cpu}"
        );
        cpu
    }

    fn task(&self) -> &Task {
        &self.machine.tasks[self.me]
    }

    fn hart(&self) -> &Hart {
        &self.machine.harts[self.cpu()]
    }

    /// Wakes a thread by its number.
    pub fn wake(&self, index: usize) {
        self.wake_thread(self.machine.thread(index));
    }

    fn wake_thread(&self, thread: Handle) {
        self.mask();
        self.machine.scheduler.wake(self, thread);
        self.unmask();
    }

    pub fn yield_now(&self) {
        self.machine.scheduler.yield_now(self);
    }

    /// Ends the thread here.
    pub fn exit(&self) -> ! {
        self.machine.scheduler.exit(self);
        panic!("a thread came back from its end");
    }

    /// Holds the hart, as a thread does that computes, until something holds.
    pub fn compute_until(&self, flag: &Flag) {
        while !flag.is_set.fetch_or(false, Ordering::Acquire) {
            flag.waiters.lock().unwrap().push(checker::current());
            self.park();
        }
    }

    fn wait_for_hart(&self) {
        while self.task().cpu.load(Relaxed) == NONE {
            self.park();
        }
    }

    /// Interrupts are masked once more.
    fn mask(&self) {
        // The last moment for a tick.
        if self.task().masks.load(Relaxed) == 0 {
            checker::interrupts_are_on(self);
        }
        self.task().masks.fetch_add(1, Relaxed);
    }

    fn unmask(&self) {
        let masks = self.task().masks.fetch_sub(1, Relaxed);
        assert_ne!(masks, 0, "interrupts are unmasked twice");
        if masks == 1 {
            checker::interrupts_are_on(self);
        }
    }

    /// Takes the interrupts that are pending here, as their handler does while a thread runs.
    pub fn take_interrupts_while_running(&self) {
        self.hart().pending.swap(false, Ordering::AcqRel);
    }

    /// Takes a lock that masks interrupts.
    pub fn take<'here>(&'here self, lock: &'here Spin) -> Guard<'here> {
        self.mask();
        lock.take();
        Guard { here: self, lock }
    }
}

impl Kernel for Here {
    type Thread = Handle;
    type Here = usize;
    type Interrupts = ();

    fn cpus(&self) -> usize {
        self.machine.harts.len()
    }

    fn here(&self) -> usize {
        self.cpu()
    }

    fn cpu(&self, here: usize) -> usize {
        assert_eq!(here, self.cpu(), "thread {} has moved to another hart", self.me);
        here
    }

    fn current(&self, _: usize) -> Handle {
        self.machine.thread(self.me)
    }

    fn idle_thread(&self, _: usize) -> Handle {
        self.machine.thread(self.cpu())
    }

    fn lock_here(&self) -> usize {
        self.mask();
        self.lock_here_masked()
    }

    fn lock_here_masked(&self) -> usize {
        let cpu = self.cpu();
        self.lock(cpu);
        cpu
    }

    fn unlock_here(&self, here: usize) {
        self.unlock(here);
        self.unmask();
    }

    fn lock(&self, cpu: usize) {
        assert_ne!(self.task().masks.load(Relaxed), 0, "a queue is locked with interrupts on");
        self.machine.harts[cpu].lock.take();
        self.machine.harts[cpu].holder.store(self.cpu(), Relaxed);
    }

    fn try_lock(&self, cpu: usize) -> bool {
        let is_taken = self.machine.harts[cpu].lock.try_take();
        if is_taken {
            self.machine.harts[cpu].holder.store(self.cpu(), Relaxed);
        }
        is_taken
    }

    fn unlock(&self, cpu: usize) {
        let holder = self.machine.harts[cpu].holder.swap(NONE, Relaxed);
        assert_eq!(
            holder,
            self.cpu(),
            "the lock of hart {cpu} is released by another than its holder"
        );
        self.machine.harts[cpu].lock.release();
    }

    fn with_queue<R>(&self, cpu: usize, act: impl FnOnce(&mut Queue<Handle>) -> R) -> R {
        let hart = &self.machine.harts[cpu];
        assert_eq!(hart.holder.load(Relaxed), self.cpu(), "the queue of hart {cpu} is not locked");
        hart.queue.with(|queue| {
            let result = act(queue);
            checker::look_at(queue);
            result
        })
    }

    fn with_queue_here<R>(&self, here: usize, act: impl FnOnce(&mut Queue<Handle>) -> R) -> R {
        assert_eq!(here, self.cpu(), "thread {} has moved to another hart", self.me);
        self.with_queue(here, act)
    }

    fn switch(&self, cpu: usize, from: Handle, to: Handle) {
        assert_eq!(cpu, self.cpu(), "thread {} has moved to another hart", self.me);
        let (from, to) = (from.task(), to.task());
        assert_eq!(from.index, self.me, "a thread leaves for another");
        assert_ne!(from.index, to.index, "a thread is its own successor");
        assert!(from.node.is_on_cpu(), "thread {} runs, and is not said to", from.index);
        for (other, hart) in self.machine.harts.iter().enumerate() {
            let is_held = hart.holder.load(Relaxed) == cpu;
            assert_eq!(
                is_held,
                other == cpu,
                "a hart switches with its own lock held, and no other"
            );
        }
        let pinned_to = to.pinned_to.load(Relaxed);
        assert!(pinned_to == NONE || pinned_to == cpu, "a pinned thread was moved");
        from.registers.with(|is_saved| {
            assert!(!*is_saved, "thread {} was not running", from.index);
            *is_saved = true;
        });
        to.registers.with(|is_saved| {
            assert!(*is_saved, "thread {} goes on before it has left", to.index);
            *is_saved = false;
        });
        to.stack.with(|is_there| assert!(*is_there, "thread {} goes on after its end", to.index));
        assert_eq!(to.node.home(), cpu, "thread {} runs where it is not at home", to.index);
        from.cpu.store(NONE, Relaxed);
        self.machine.harts[cpu].previous.with(|previous| *previous = Some(Handle(from)));
        self.machine.harts[cpu].current.store(to.index, Relaxed);
        assert_eq!(to.cpu.swap(cpu, Relaxed), NONE, "thread {} runs on two harts", to.index);
        if let Some(thread) = to.parked.get() {
            thread.unpark();
        }
        if from.node.is_ending() {
            std::panic::resume_unwind(Box::new(Gone));
        }
        self.wait_for_hart();
    }

    fn unlock_after_switch(&self, here: usize, (): ()) {
        self.unlock_here(here);
    }

    fn previous(&self, _: usize) -> Handle {
        self.hart().previous.with(|previous| previous.expect("the hart came from a thread"))
    }

    fn ended(&self, thread: Handle) {
        let task = thread.task();
        task.registers.with(|is_saved| assert!(*is_saved, "a thread has ended, and not left"));
        assert!(!thread.node().is_on_cpu(), "a thread has ended, and is not said to have left");
        task.stack.with(|is_there| {
            assert!(*is_there, "thread {} has ended twice", task.index);
            *is_there = false;
        });
        let ended = self.machine.ended.fetch_add(1, Relaxed) + 1;
        if ended == self.machine.to_end {
            self.finish();
        }
    }

    fn interrupt(&self, cpu: usize) {
        // A swap, so that what earlier senders stored is seen too.
        self.machine.harts[cpu].pending.swap(true, Ordering::Release);
        if let Some(thread) = self.machine.tasks[cpu].parked.get() {
            thread.unpark();
        }
    }

    fn wait_for_interrupt(&self) {
        assert_ne!(self.task().masks.load(Relaxed), 0, "a hart sleeps with interrupts on");
        let hart = self.hart();
        hart.has_waited.store(1, Relaxed);
        while !hart.pending.load(Ordering::Acquire) && !checker::wakes_for_no_reason() {
            hart.is_asleep.store(1, Relaxed);
            let watchers = std::mem::take(&mut *hart.watchers.lock().unwrap());
            watchers.iter().for_each(checker::Thread::unpark);
            self.park();
        }
        hart.is_asleep.store(0, Relaxed);
    }

    fn take_interrupts(&self) {
        // A round without waiting is one of a loop that waits for another hart.
        if self.hart().has_waited.swap(0, Relaxed) == 0 {
            checker::give_way();
        }
        self.hart().pending.swap(false, Ordering::AcqRel);
    }
}

/// A spin lock that another thread than the one which took it may release. Every access is a read and a write: who parks must not
/// do so for a value that was overwritten.
pub struct Spin {
    is_taken: AtomicBool,
    /// Who spins. Parked instead, so that the checker does not explore each turn.
    waiters: Mutex<Vec<checker::Thread>>,
}

impl Spin {
    pub fn new() -> Spin {
        Spin { is_taken: AtomicBool::new(false), waiters: Mutex::new(Vec::new()) }
    }

    fn try_take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    fn take(&self) {
        while !self.try_take() {
            self.waiters.lock().unwrap().push(checker::current());
            checker::park();
        }
    }

    fn release(&self) {
        self.is_taken.swap(false, Ordering::Release);
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap());
        waiters.iter().for_each(checker::Thread::unpark);
    }
}

/// A lock that a thread holds.
pub struct Guard<'here> {
    here: &'here Here,
    lock: &'here Spin,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.lock.release();
        self.here.unmask();
    }
}

impl ConditionLock for Guard<'_> {
    fn hand_over(self) {
        self.lock.release();
        std::mem::forget(self);
    }
}

/// Something that happens once, and that a thread computes until.
pub struct Flag {
    is_set: AtomicBool,
    waiters: Mutex<Vec<checker::Thread>>,
}

impl Flag {
    pub fn new() -> Flag {
        Flag { is_set: AtomicBool::new(false), waiters: Mutex::new(Vec::new()) }
    }

    pub fn set(&self) {
        self.is_set.swap(true, Ordering::Release);
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap());
        waiters.iter().for_each(checker::Thread::unpark);
    }
}

/// A condition under a lock, and the threads that wait for it: what a kernel's semaphores, mutexes and joins are made of.
pub struct Condition<T> {
    lock: Spin,
    state: Cell<(T, Queue<Handle>)>,
}

impl<T> Condition<T> {
    pub fn new(state: T) -> Condition<T> {
        Condition { lock: Spin::new(), state: Cell::new((state, Queue::new())) }
    }

    /// Waits until `take` gives something.
    pub fn wait_for<R>(&self, here: &Here, mut take: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let guard = here.take(&self.lock);
            let taken = self.state.with(|(state, waiters)| {
                let taken = take(state);
                if taken.is_none() {
                    waiters.push(here.current(here.cpu()));
                }
                taken
            });
            match taken {
                Some(taken) => return taken,
                None => here.machine.scheduler.block(here, guard),
            }
        }
    }

    /// Looks at the state when all is over.
    pub fn look(&self, look: impl FnOnce(&mut T)) {
        self.state.with(|(state, _)| look(state));
    }

    /// Changes the state and wakes one who waits, if there is one. Lets go of the lock first, as a waiter may be woken then.
    pub fn change(&self, here: &Here, change: impl FnOnce(&mut T)) {
        let guard = here.take(&self.lock);
        let waiter = self.state.with(|(state, waiters)| {
            change(state);
            waiters.pop()
        });
        drop(guard);
        if let Some(waiter) = waiter {
            here.wake_thread(waiter);
        }
    }
}
