//! What a thread holds for the scheduler.
//!
//! A [`Node`] is changed with the lock of the queue held that its thread is in, but for `on_cpu`, which says to everybody that the registers are
//! saved.

use core::mem::offset_of;

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A thread, by a handle as small as a word.
pub trait Thread: Copy + Eq {
    /// What it holds for the scheduler.
    fn node(&self) -> &Node;

    /// The handle as a word that is not 0.
    fn to_word(self) -> usize;

    /// The handle again. Called with words from [`to_word`](Thread::to_word) alone, while the thread is in a queue.
    fn from_word(word: usize) -> Self;
}

/// What a thread counts that any hart may run.
pub(crate) const FREE: usize = 1;
/// What a thread counts that must stay on its hart: in a half of its own.
pub(crate) const PINNED: usize = 1 << (usize::BITS / 2);

/// What a thread holds for the scheduler.
pub struct Node {
    /// The next in the queue it is in, as a word; 0 for none. Under that queue's lock.
    pub(crate) next: AtomicUsize,
    /// Whether it runs, or its registers are not all saved yet.
    on_cpu: AtomicBool,
    /// The hart in whose queue it is, on which it runs, ran last, or is to begin.
    home: AtomicUsize,
    /// Whether it must stay there, as what it counts among the threads that a hart has queued: [`PINNED`] or [`FREE`].
    weight: AtomicUsize,
    /// Whether it leaves its hart for the last time.
    ending: AtomicBool,
}

impl Node {
    /// Where the link to the next in a queue lies, in bytes: for debuggers, like the two below.
    pub const NEXT: usize = offset_of!(Node, next);
    /// Where [`home`](Self::home) does.
    pub const HOME: usize = offset_of!(Node, home);
    /// Where it says that it leaves its hart for the last time.
    pub const ENDING: usize = offset_of!(Node, ending);

    /// Of a thread that has not begun.
    pub const fn new() -> Node {
        Node {
            next: AtomicUsize::new(0),
            on_cpu: AtomicBool::new(false),
            home: AtomicUsize::new(0),
            weight: AtomicUsize::new(FREE),
            ending: AtomicBool::new(false),
        }
    }

    /// Lets the thread begin on a hart, and stay there if it is pinned. Before it is first queued.
    pub fn place(&self, cpu: usize, pinned: bool) {
        self.home.store(cpu, Ordering::Relaxed);
        self.weight.store(if pinned { PINNED } else { FREE }, Ordering::Relaxed);
    }

    /// The hart in whose queue it is, on which it runs, ran last, or is to begin.
    pub fn home(&self) -> usize {
        self.home.load(Ordering::Relaxed)
    }

    /// Whether it must stay there.
    pub fn is_pinned(&self) -> bool {
        self.weight() != FREE
    }

    /// What it counts among the threads that a hart has queued.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// Whether it runs, or its registers are not all saved yet.
    pub fn is_on_cpu(&self) -> bool {
        // Acquire pairs with the release in `leave`: who sees it gone sees its registers.
        self.on_cpu.load(Ordering::Acquire)
    }

    /// It is to run on another hart, or on the same. The lock of a queue is held that it is in, or is about to be in.
    pub fn move_to(&self, cpu: usize) {
        self.home.store(cpu, Ordering::Relaxed);
    }

    /// It runs on its [`home`](Self::home) from now on.
    pub fn enter(&self) {
        self.on_cpu.store(true, Ordering::Relaxed);
    }

    /// Whether it leaves its hart for the last time, or has.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// It leaves its hart for the last time. The queue lock of that hart is held: were a tick to come after this, it would queue a
    /// thread that whoever runs next takes apart.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// It has left its hart: its registers are saved.
    pub(crate) fn leave(&self) {
        self.on_cpu.store(false, Ordering::Release);
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}
