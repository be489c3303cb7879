//! Threads in a row, linked through themselves.
//!
//! A [`Queue`] owns the links of the threads in it: a thread is in one queue at a time, and queueing needs no memory.

use core::marker::PhantomData;

use crate::Thread;
use crate::atomic::Ordering;

/// A queue: first in, first out. Needs no memory: each thread holds the link to the next, so it can be in one queue at a time.
/// Whoever has it as `&mut` has its lock.
pub struct Queue<T> {
    /// The first and the last as words; 0 for none.
    first: usize,
    last: usize,
    threads: PhantomData<T>,
}

impl<T> Queue<T> {
    /// Where the word for the first lies, in bytes: for debuggers.
    pub const FIRST: usize = core::mem::offset_of!(Queue<T>, first);

    /// Nobody waits.
    pub const fn new() -> Self {
        Queue { first: 0, last: 0, threads: PhantomData }
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.first == 0
    }
}

impl<T: Thread> Queue<T> {
    /// Adds a thread that is in no queue, behind all others.
    pub fn push(&mut self, thread: T) {
        self.insert_before(thread, |_| false);
    }

    /// Adds a thread that is in no queue: before the first for which `later` holds, or behind all. Looks at those before it. The queue
    /// is in that order already: behind a thread for which `later` holds there are only such.
    pub fn insert_before(&mut self, thread: T, later: impl Fn(T) -> bool) {
        let word = thread.to_word();
        let mut before = self.last;
        let mut next = 0;
        // The common case goes to the end, without a walk.
        if self.last != 0 && later(T::from_word(self.last)) {
            before = 0;
            next = self.first;
            while !later(T::from_word(next)) {
                before = next;
                next = link(T::from_word(next));
            }
        }
        set_link(thread, next);
        match before {
            0 => self.first = word,
            before => set_link(T::from_word(before), word),
        }
        if next == 0 {
            self.last = word;
        }
    }

    /// How many wait. Looks at all of them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// All, the first first.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'_, T> {
        let linked = |thread: &T| Some(link(*thread)).filter(|&next| next != 0).map(T::from_word);
        core::iter::successors(self.first(), linked)
    }

    /// The first.
    pub fn first(&self) -> Option<T> {
        (self.first != 0).then(|| T::from_word(self.first))
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<T> {
        let thread = self.first()?;
        self.first = link(thread);
        if self.first == 0 {
            self.last = 0;
        }
        Some(thread)
    }

    /// Takes the one behind the first `count`, or the last if there are not so many.
    pub fn pop_behind(&mut self, count: usize) -> Option<T> {
        if count == 0 {
            return self.pop();
        }
        let left = core::cell::Cell::new(count.min(self.len().saturating_sub(1)));
        self.pop_where(|_| left.replace(left.get().saturating_sub(1)) == 0)
    }

    /// Takes the first for which `wanted` holds. Looks at those before it.
    pub fn pop_where(&mut self, wanted: impl Fn(T) -> bool) -> Option<T> {
        let mut before = 0;
        let mut word = self.first;
        while word != 0 {
            let thread = T::from_word(word);
            let next = link(thread);
            if wanted(thread) {
                match before {
                    0 => self.first = next,
                    before => set_link(T::from_word(before), next),
                }
                if next == 0 {
                    self.last = before;
                }
                return Some(thread);
            }
            before = word;
            word = next;
        }
        None
    }
}

fn link<T: Thread>(thread: T) -> usize {
    // The queue's lock orders these.
    thread.node().next.load(Ordering::Relaxed)
}

fn set_link<T: Thread>(thread: T, next: usize) {
    thread.node().next.store(next, Ordering::Relaxed);
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}
