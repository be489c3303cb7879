//! Queues against the standard library's deque: any calls in any order leave the same threads in the same places.

use std::collections::VecDeque;

use proptest::prelude::*;
use scheduler::{Node, Queue, Thread};

/// What a thread holds. One test uses them: a node is in one queue at a time.
static NODES: [Node; 8] = [const { Node::new() }; 8];

/// A thread by its number. Two have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbered(usize);

impl Numbered {
    fn key(self) -> usize {
        self.0 / 2
    }
}

impl Thread for Numbered {
    fn node(&self) -> &Node {
        &NODES[self.0]
    }

    fn to_word(self) -> usize {
        self.0 + 1
    }

    fn from_word(word: usize) -> Self {
        Numbered(word - 1)
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// Adds a thread, if it is in no queue.
    Add(usize),
    Pop,
    /// Takes the one behind so many.
    PopBehind(usize),
    /// Takes the first with a key.
    PopWhere(usize),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (0..NODES.len()).prop_map(Call::Add),
        1 => Just(Call::Pop),
        1 => (0..4_usize).prop_map(Call::PopBehind),
        1 => (0..NODES.len() / 2).prop_map(Call::PopWhere),
    ]
}

/// The threads of a queue, in order. It is left as it was.
fn contents(queue: &mut Queue<Numbered>) -> Vec<Numbered> {
    let seen = std::cell::RefCell::new(Vec::new());
    let none = queue.pop_where(|thread| {
        assert!(seen.borrow().len() < NODES.len(), "the queue has no end");
        seen.borrow_mut().push(thread);
        false
    });
    assert_eq!(none, None);
    seen.into_inner()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// First in, first out; or sorted by key, and among equals first in, first out.
    #[test]
    fn it_does_what_a_deque_does(is_sorted: bool, calls in prop::collection::vec(call(), 0..60)) {
        let mut queue = Queue::new();
        let mut deque: VecDeque<Numbered> = VecDeque::new();
        for call in calls {
            match call {
                Call::Add(number) if deque.contains(&Numbered(number)) => (),
                Call::Add(number) => {
                    let thread = Numbered(number);
                    let is_later = |other: Numbered| is_sorted && other.key() > thread.key();
                    let place = deque.iter().position(|&other| is_later(other));
                    deque.insert(place.unwrap_or(deque.len()), thread);
                    match is_sorted {
                        true => queue.insert_before(thread, is_later),
                        false => queue.push(thread),
                    }
                }
                Call::Pop => prop_assert_eq!(queue.pop(), deque.pop_front()),
                Call::PopBehind(count) => {
                    let place = count.min(deque.len().saturating_sub(1));
                    prop_assert_eq!(queue.pop_behind(count), deque.remove(place));
                }
                Call::PopWhere(key) => {
                    let place = deque.iter().position(|thread| thread.key() == key);
                    let expected = place.and_then(|place| deque.remove(place));
                    prop_assert_eq!(queue.pop_where(|thread| thread.key() == key), expected);
                }
            }
            prop_assert_eq!(queue.first(), deque.front().copied());
            prop_assert_eq!(queue.len(), deque.len());
            prop_assert_eq!(queue.is_empty(), deque.is_empty());
            prop_assert_eq!(contents(&mut queue), Vec::from(deque.clone()));
        }
        // The last link is the queue's own: what is added goes behind it.
        while let Some(thread) = deque.pop_front() {
            prop_assert_eq!(queue.pop(), Some(thread));
        }
        prop_assert_eq!(queue.pop(), None);
    }
}
