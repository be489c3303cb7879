//! Every interleaving of both sides of a ring, and every value that a relaxed load may see: the ring's own source, with the model
//! checker's atomics in place of the machine's.

#![allow(missing_docs, dead_code, reason = "the library's module, of which a test uses a part")]

#[path = "../src/ring.rs"]
mod ring;

mod atomic {
    pub use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
}

use atomic::{AtomicU8, AtomicUsize};
use loom::sync::Arc;
use loom::thread;
use ring::Ring;

fn ring() -> Ring<2> {
    Ring::of(std::array::from_fn(|_| AtomicU8::new(0)), AtomicUsize::new(0), AtomicUsize::new(0))
}

#[test]
fn bytes_come_out_once_and_in_order() {
    loom::model(|| {
        let ring = Arc::new(ring());
        let writer = thread::spawn({
            let ring = ring.clone();
            move || {
                for byte in 1..=3 {
                    while !ring.push(byte) {
                        thread::yield_now();
                    }
                }
            }
        });
        for expected in 1..=3 {
            let byte = loop {
                if let Some(byte) = ring.pop() {
                    break byte;
                }
                thread::yield_now();
            };
            assert_eq!(byte, expected);
        }
        writer.join().unwrap();
        assert_eq!(ring.pop(), None);
    });
}

#[test]
fn a_full_ring_keeps_what_it_has() {
    loom::model(|| {
        let ring = Arc::new(ring());
        let writer = thread::spawn({
            let ring = ring.clone();
            move || (1..=4).filter(|byte| ring.push(*byte)).collect::<Vec<u8>>()
        });
        let mut out: Vec<u8> = ring.pop().into_iter().collect();
        let taken = writer.join().unwrap();
        out.extend(std::iter::from_fn(|| ring.pop()));
        assert_eq!(out, taken);
        assert!(taken.len() >= 2);
    });
}
