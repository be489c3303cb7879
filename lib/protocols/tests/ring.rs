//! The ring against a deque, one call after the other.

use std::collections::VecDeque;

use proptest::prelude::*;
use protocols::Ring;

proptest! {
    #[test]
    fn it_does_what_a_bounded_deque_does(calls in prop::collection::vec(prop::option::of(any::<u8>()), 0..200)) {
        const ROOM: usize = 8;
        let ring = Ring::<ROOM>::new();
        let mut deque = VecDeque::new();
        for call in calls {
            match call {
                Some(byte) => {
                    let fits = deque.len() < ROOM;
                    prop_assert_eq!(ring.push(byte), fits);
                    if fits {
                        deque.push_back(byte);
                    }
                }
                None => prop_assert_eq!(ring.pop(), deque.pop_front()),
            }
            prop_assert_eq!(ring.len(), deque.len());
            prop_assert_eq!(ring.is_empty(), deque.is_empty());
        }
    }
}
