//! Bytes on their way from one side to another, in order.

use crate::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A row of at most `N` bytes, without a lock: one side puts bytes in, another takes them out, at the same time. Of two that put in
/// at once, or take out at once, a byte may be lost or doubled; nothing worse.
pub struct Ring<const N: usize> {
    bytes: [AtomicU8; N],
    /// Bytes put in so far. Its place is this number, counted around.
    written: AtomicUsize,
    /// Bytes taken out so far; never more than were put in, and at most `N` fewer.
    read: AtomicUsize,
}

impl<const N: usize> Ring<N> {
    /// An empty ring of these atomics, all of which are zero.
    pub const fn of(bytes: [AtomicU8; N], written: AtomicUsize, read: AtomicUsize) -> Self {
        assert!(N.is_power_of_two(), "counters that wrap around must go on at the right place");
        Ring { bytes, written, read }
    }

    /// Puts a byte in. False: the ring is full, and nothing has changed. By one side alone.
    #[must_use]
    pub fn push(&self, byte: u8) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        // Acquire pairs with the release in `pop`: the byte that was here has been taken out before it is replaced.
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) == N {
            return false;
        }
        self.bytes[written % N].store(byte, Ordering::Relaxed);
        // Release: who sees the byte counted sees the byte.
        self.written.store(written.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest byte out. By one side alone.
    pub fn pop(&self) -> Option<u8> {
        let read = self.read.load(Ordering::Relaxed);
        // Acquire pairs with the release in `push`.
        if self.written.load(Ordering::Acquire) == read {
            return None;
        }
        let byte = self.bytes[read % N].load(Ordering::Relaxed);
        // Release: the place is free when the byte has been read.
        self.read.store(read.wrapping_add(1), Ordering::Release);
        Some(byte)
    }

    /// Bytes in it; may be out of date by the time it is read.
    pub fn len(&self) -> usize {
        // In this order: bytes that are put in between make it more, never less than none.
        let read = self.read.load(Ordering::Acquire);
        self.written.load(Ordering::Acquire).wrapping_sub(read).min(N)
    }

    /// Whether there is none in it; may be out of date by the time it is read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
