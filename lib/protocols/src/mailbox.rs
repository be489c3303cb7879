//! A slot for one letter to a hart.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Nobody uses the slot.
const FREE: usize = 0;
/// A sender fills it in.
const FILLING: usize = 1;
/// The receiver may take it.
const POSTED: usize = 2;
/// The receiver reads it.
const TAKING: usize = 3;

/// What is asked: three words, whose meaning is the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    /// The function's address.
    pub function: usize,
    /// Its argument.
    pub argument: usize,
    /// Where to say that it is done.
    pub done: usize,
}

/// One hart's mailbox. Any hart may post; only the owner takes. The slot is free again once the letter is taken, before what it
/// asks is done: a hart that is asked something may be asked more while it waits for another.
pub struct Mailbox {
    state: AtomicUsize,
    function: AtomicUsize,
    argument: AtomicUsize,
    done: AtomicUsize,
}

impl Mailbox {
    /// An empty mailbox.
    pub const fn new() -> Self {
        Mailbox {
            state: AtomicUsize::new(FREE),
            function: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    /// Posts a letter, unless another is still there. The receiver must then be told (by an IPI).
    #[must_use]
    pub fn try_post(&self, letter: Letter) -> bool {
        // Acquire: the last receiver has read what the stores below overwrite.
        if self.state.compare_exchange(FREE, FILLING, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        self.function.store(letter.function, Ordering::Relaxed);
        self.argument.store(letter.argument, Ordering::Relaxed);
        self.done.store(letter.done, Ordering::Relaxed);
        // Release: who sees POSTED sees the letter, and all that the sender wrote before.
        self.state.store(POSTED, Ordering::Release);
        true
    }

    /// Takes the letter out, if there is one. Owner only.
    pub fn take(&self) -> Option<Letter> {
        // Acquire pairs with the sender's release.
        if self
            .state
            .compare_exchange(POSTED, TAKING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        let letter = Letter {
            function: self.function.load(Ordering::Relaxed),
            argument: self.argument.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
        };
        // Release: the loads above come before the next sender's stores.
        self.state.store(FREE, Ordering::Release);
        Some(letter)
    }

    /// Takes a letter back that the receiver has not taken. False: it has, and will do what it asks. A letter is known by
    /// where its sender wants to hear that it is done, which no two have in common at a time.
    #[must_use]
    pub fn retract(&self, letter: Letter) -> bool {
        if self
            .state
            .compare_exchange(POSTED, TAKING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        let is_ours = self.done.load(Ordering::Relaxed) == letter.done;
        self.state.store(if is_ours { FREE } else { POSTED }, Ordering::Release);
        is_ours
    }

    /// Whether no letter is on its way, as far as can be seen now.
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
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

    const LETTER: Letter = Letter { function: 1, argument: 2, done: 3 };
    const OTHER: Letter = Letter { function: 4, argument: 5, done: 6 };

    #[test]
    fn a_letter_is_taken_once() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert_eq!(mailbox.take(), Some(LETTER));
        assert_eq!(mailbox.take(), None);
        assert!(mailbox.is_free());
    }

    #[test]
    fn a_second_letter_waits_until_the_first_is_taken() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert!(!mailbox.try_post(OTHER));
        assert_eq!(mailbox.take(), Some(LETTER));
        assert!(mailbox.try_post(OTHER));
        assert_eq!(mailbox.take(), Some(OTHER));
    }

    #[test]
    fn a_letter_is_retracted_by_its_sender_and_only_before_it_is_taken() {
        let mailbox = Mailbox::new();
        assert!(mailbox.try_post(LETTER));
        assert!(!mailbox.retract(OTHER));
        assert!(mailbox.retract(LETTER));
        assert_eq!(mailbox.take(), None);
        assert!(mailbox.try_post(LETTER));
        mailbox.take().unwrap();
        assert!(!mailbox.retract(LETTER));
    }
}
