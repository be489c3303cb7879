//! Yielding, blocking, waking, stealing and idling.
//!
//! [`Scheduler`] is shared by all harts and owns two words of hints: who idles, and how many wait where. The queues decide. Why no
//! wakeup is lost, the crate's own page says.

use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::node::PINNED;
use crate::{ConditionLock, Kernel, Thread};

/// What all harts know of each other. One for all of them.
pub struct Scheduler {
    /// Which harts idle, and were not told yet of a thread that they may run: bit n is CPU n.
    idle: AtomicUsize,
    /// How many threads are queued on each hart: in the lower half those that another may take, in the upper those that it may not.
    /// Changed under the queue's lock, looked at without.
    queued: [AtomicUsize; Scheduler::MAXIMUM_CPUS],
}

impl Scheduler {
    /// Harts that there is room for.
    pub const MAXIMUM_CPUS: usize = 8;

    /// No hart idles yet, and nothing is queued.
    pub const fn new() -> Self {
        Scheduler {
            idle: AtomicUsize::new(0),
            queued: [const { AtomicUsize::new(0) }; Self::MAXIMUM_CPUS],
        }
    }

    /// Lets the next thread of this hart run, if there is one, and queues the current one behind all others. Returns when that runs
    /// again. May be called with interrupts on or off, with no lock held.
    #[inline]
    pub fn yield_now<K: Kernel>(&self, kernel: &K) {
        let here = kernel.lock_here();
        let from = kernel.current(here);
        let next = kernel.with_queue_here(here, |queue| {
            let next = queue.pop_behind(kernel.passed_over())?;
            queue.push(from);
            Some(next)
        });
        let Some(to) = next else { return kernel.unlock_here(here) };
        if from.node().weight() != to.node().weight() {
            let cpu = kernel.cpu(here);
            self.count(cpu, to, usize::wrapping_sub);
            self.count(cpu, from, usize::wrapping_add);
            if let Some(idle) = self.claim_for(kernel, from, cpu) {
                kernel.interrupt(idle);
            }
        }
        self.switch(kernel, here, from, to);
    }

    /// Blocks the current thread until another wakes it. `condition` is the lock under which the thread was queued where its waker
    /// will find it; it is released once nobody can wake the thread too early. It must be the only lock held.
    pub fn block<K: Kernel, C: ConditionLock>(&self, kernel: &K, condition: C) {
        let here = kernel.lock_here_masked();
        condition.hand_over();
        self.leave(kernel, here);
    }

    /// Ends the current thread. Never returns: nothing queues the thread again.
    pub fn exit<K: Kernel>(&self, kernel: &K) {
        let here = kernel.lock_here();
        kernel.current(here).node().end();
        self.leave(kernel, here);
    }

    /// Switches to the next thread, or to idling. The queue lock here is held.
    #[inline(always)]
    fn leave<K: Kernel>(&self, kernel: &K, here: K::Here) {
        let from = kernel.current(here);
        let to = self.pop(kernel, here).unwrap_or_else(|| kernel.idle_thread(here));
        self.switch(kernel, here, from, to);
    }

    fn pop<K: Kernel>(&self, kernel: &K, here: K::Here) -> Option<K::Thread> {
        let next = kernel.with_queue_here(here, |queue| queue.pop_behind(kernel.passed_over()))?;
        self.count(kernel.cpu(here), next, usize::wrapping_sub);
        Some(next)
    }

    /// Counts a thread that was queued or taken. The queue's lock is held.
    fn count<T: Thread>(&self, cpu: usize, thread: T, change: fn(usize, usize) -> usize) {
        let count = &self.queued[cpu];
        count.store(
            change(count.load(Ordering::Relaxed), thread.node().weight()),
            Ordering::Relaxed,
        );
    }

    #[inline(always)]
    fn switch<K: Kernel>(&self, kernel: &K, here: K::Here, from: K::Thread, to: K::Thread) {
        to.node().enter();
        let interrupts = kernel.switch(here, from, to);
        self.arrive(kernel, interrupts);
    }

    /// What a thread does first when it comes onto a hart, the first time as well: the other half of the switch that brought it
    /// there. Releases the lock that the thread before it took, and lets it have interrupts.
    #[inline(always)]
    pub fn arrive<K: Kernel>(&self, kernel: &K, interrupts: K::Interrupts) {
        let here = kernel.here();
        let previous = kernel.previous(here);
        let is_ending = previous.node().is_ending();
        previous.node().leave();
        kernel.unlock_after_switch(here, interrupts);
        if is_ending {
            kernel.ended(previous);
        }
    }

    /// Makes a thread run that is blocked, or has not begun, and is in no queue. Interrupts are off; locks may be held that come before
    /// those of run queues.
    pub fn wake<K: Kernel>(&self, kernel: &K, thread: K::Thread) {
        let target = self.target(kernel, thread);
        kernel.lock(target);
        thread.node().move_to(target);
        kernel.with_queue(target, |queue| queue.push(thread));
        self.count(target, thread, usize::wrapping_add);
        let idle = self.claim_for(kernel, thread, target);
        // Before the lock is released: a tick that comes then may let others run first, and who was claimed would sleep on.
        if target != kernel.cpu(kernel.here()) {
            kernel.interrupt(target);
        }
        if let Some(idle) = idle
            && idle != target
        {
            kernel.interrupt(idle);
        }
        kernel.unlock(target);
    }

    /// Where a thread is queued: where it ran, unless that hart is busy and another idles.
    fn target<K: Kernel>(&self, kernel: &K, thread: K::Thread) -> usize {
        let node = thread.node();
        let home = node.home();
        let idle = self.idle.load(Ordering::Relaxed);
        if idle == 0 || idle & 1 << home != 0 || node.is_pinned() || node.is_on_cpu() {
            return home;
        }
        kernel.pick(idle)
    }

    /// A hart that idles and will look for a thread that was queued on `target`: that one, or another that may take it. It is claimed
    /// after the thread was queued: it looks again before it runs anything, so it finds this thread, or another and this one still
    /// waiting (see `pass_on`).
    fn claim_for<K: Kernel>(&self, kernel: &K, thread: K::Thread, target: usize) -> Option<usize> {
        // Between queueing and looking who idles, as between saying so and looking in `rest`: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::Relaxed) == 0 {
            return None;
        }
        if self.claim(target) {
            return Some(target);
        }
        if thread.node().is_pinned() { None } else { self.claim_any(kernel) }
    }

    /// Tells the next hart that idles if there is more to do, from one that idled and has found something. Without this a hart could
    /// be told of two threads and take one, or be told of one and find another first, and the rest would wait while others sleep.
    fn pass_on<K: Kernel>(&self, kernel: &K) {
        // As in `claim_for`; and what those stored who claimed this hart is seen from here on.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::Relaxed) != 0
            && (0..kernel.cpus()).any(|cpu| self.stealable(cpu))
            && let Some(idle) = self.claim_any(kernel)
        {
            kernel.interrupt(idle);
        }
    }

    /// Whether a hart idles; no longer for others that ask, so that the next thread goes to the next hart.
    fn claim(&self, cpu: usize) -> bool {
        let bit = 1 << cpu;
        self.idle.load(Ordering::Relaxed) & bit != 0
            && self.idle.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Any hart that idles; as [`claim`](Self::claim).
    fn claim_any<K: Kernel>(&self, kernel: &K) -> Option<usize> {
        loop {
            let idle = self.idle.load(Ordering::Relaxed);
            if idle == 0 {
                return None;
            }
            let cpu = kernel.pick(idle);
            if self.claim(cpu) {
                return Some(cpu);
            }
        }
    }

    /// What an idle thread does for ever: runs what there is, and else sleeps until an interrupt. Interrupts are off.
    pub fn idle<K: Kernel>(&self, kernel: &K) -> ! {
        loop {
            self.rest(kernel);
        }
    }

    /// One round of [`idle`](Self::idle).
    pub fn rest<K: Kernel>(&self, kernel: &K) {
        let cpu = kernel.cpu(kernel.here());
        if self.run_something(kernel) {
            return;
        }
        self.idle.fetch_or(1 << cpu, Ordering::Relaxed);
        // See `claim_for`. What others queue here needs no look: they interrupt this hart, and it does not sleep then.
        fence(Ordering::SeqCst);
        if !self.others(kernel, cpu).any(|other| self.stealable(other)) {
            kernel.wait_for_interrupt();
        }
        kernel.take_interrupts();
        self.idle.fetch_and(!(1 << cpu), Ordering::Relaxed);
    }

    /// Whether a hart has a thread queued that another may take.
    fn stealable(&self, cpu: usize) -> bool {
        !self.queued[cpu].load(Ordering::Relaxed).is_multiple_of(PINNED)
    }

    /// Whether a hart has threads queued. One that another hart queues just now may not be seen yet.
    #[inline]
    pub fn has_queued(&self, cpu: usize) -> bool {
        self.queued.get(cpu).is_some_and(|queued| queued.load(Ordering::Relaxed) != 0)
    }

    /// The other harts, the next one first.
    fn others<K: Kernel>(&self, kernel: &K, cpu: usize) -> impl Iterator<Item = usize> + use<K> {
        let cpus = kernel.cpus();
        (1..cpus).map(move |distance| (cpu + distance) % cpus)
    }

    /// Switches from the idle thread to one that is queued here, or on another hart. False if there is none.
    fn run_something<K: Kernel>(&self, kernel: &K) -> bool {
        let here = kernel.lock_here();
        let cpu = kernel.cpu(here);
        let next = self.pop(kernel, here).or_else(|| self.steal(kernel, cpu));
        match next {
            Some(to) => {
                self.pass_on(kernel);
                self.switch(kernel, here, kernel.current(here), to);
            }
            None => kernel.unlock_here(here),
        }
        next.is_some()
    }

    /// Takes a thread from another hart's queue that need not stay there. The queue lock here is held; those of others are tried, not
    /// waited for: two harts that steal from each other must not wait for each other.
    fn steal<K: Kernel>(&self, kernel: &K, cpu: usize) -> Option<K::Thread> {
        for victim in self.others(kernel, cpu).filter(|&other| self.stealable(other)) {
            if !kernel.try_lock(victim) {
                continue;
            }
            let may_move = |thread: K::Thread| !thread.node().is_pinned();
            let stolen = kernel.with_queue(victim, |queue| queue.pop_where(may_move));
            if let Some(stolen) = stolen {
                stolen.node().move_to(cpu);
                self.count(victim, stolen, usize::wrapping_sub);
            }
            kernel.unlock(victim);
            if let Some(thread) = stolen {
                kernel.stolen(thread, victim);
                return stolen;
            }
        }
        None
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}
