//! A slot for one letter to a hart.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Nobody uses the slot.
const FREE: usize = 0;
/// A sender fills it in.
const FILLING: usize = 1;
/// The receiver may read it.
const POSTED: usize = 2;
/// The receiver does what it says.
const TAKEN: usize = 3;
/// The receiver is done; the sender has not seen it yet.
const DONE: usize = 4;

/// What is asked: two words, whose meaning is the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    /// The function's address.
    pub function: usize,
    /// Its argument.
    pub argument: usize,
}

/// One hart's mailbox. Any hart may post; only the owner takes. A sender owns the slot from [`try_post`](Mailbox::try_post)
/// until [`collect`](Mailbox::collect) says that it was done.
pub struct Mailbox {
    state: AtomicUsize,
    function: AtomicUsize,
    argument: AtomicUsize,
}

impl Mailbox {
    /// An empty mailbox.
    pub const fn new() -> Self {
        Mailbox { state: AtomicUsize::new(FREE), function: AtomicUsize::new(0), argument: AtomicUsize::new(0) }
    }

    /// Posts a letter, unless another sender's is still there. The receiver must then be told (by an IPI).
    pub fn try_post(&self, letter: Letter) -> bool {
        // Acquire: what the last sender and receiver did with the slot is over.
        if self.state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.function.store(letter.function, Ordering::Relaxed);
        self.argument.store(letter.argument, Ordering::Relaxed);
        // Release: who sees POSTED sees the letter, and all that the sender wrote before.
        self.state.store(POSTED, Ordering::Release);
        true
    }

    /// Takes the letter out, if there is one. Owner only; it must call [`finish`](Mailbox::finish) after doing what is asked.
    pub fn take(&self) -> Option<Letter> {
        if self.state.compare_exchange(POSTED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        Some(Letter {
            function: self.function.load(Ordering::Relaxed),
            argument: self.argument.load(Ordering::Relaxed),
        })
    }

    /// Says that the letter's request is done. Owner only, after [`take`](Mailbox::take).
    pub fn finish(&self) {
        // Release: who sees DONE sees what the request did.
        self.state.store(DONE, Ordering::Release);
    }

    /// Whether the posted request is done; if so, the slot is free again. Only for the sender whose letter it is.
    pub fn collect(&self) -> bool {
        if self.state.load(Ordering::Acquire) != DONE {
            return false;
        }
        self.state.store(FREE, Ordering::Release);
        true
    }

    /// Takes a letter back that the receiver has not taken. False: it has, and the sender must wait for it. Only for the sender
    /// whose letter it is.
    #[must_use]
    pub fn retract(&self) -> bool {
        self.state.compare_exchange(POSTED, FREE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether no letter is on its way, as far as can be seen now.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }
}

impl Default for Mailbox {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: Letter = Letter { function: 1, argument: 2 };

    #[test]
    fn a_letter_is_taken_once() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert_eq!(mailbox.take(), Some(LETTER));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn a_letter_is_retracted_only_before_it_is_taken() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert!(mailbox.retract());
        assert_eq!(mailbox.take(), None);
        assert!(mailbox.try_post(LETTER));
        mailbox.take().unwrap();
        assert!(!mailbox.retract());
    }

    #[test]
    fn a_second_sender_waits_until_the_first_has_collected() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert!(!mailbox.try_post(LETTER));
        mailbox.take().unwrap();
        assert!(!mailbox.collect());
        mailbox.finish();
        assert!(!mailbox.try_post(LETTER), "the first sender has not seen that it is done");
        assert!(mailbox.collect());
        assert!(mailbox.is_free());
        assert!(mailbox.try_post(LETTER));
    }
}
