//! A channel: values from threads to threads, a bounded number at a time on the way.

use scheduler::Queue;

use super::{SpinGuard, SpinLock};
use crate::sched;
use crate::thread::ThreadRef;

/// A row of at most `N` values. They come out in the order in which they were put in. A full channel keeps its senders waiting, an empty
/// one its receivers.
pub struct Channel<T, const N: usize> {
    state: SpinLock<State<T, N>>,
}

struct State<T, const N: usize> {
    values: [Option<T>; N],
    /// The place of the first value.
    first: usize,
    count: usize,
    senders: Queue<ThreadRef>,
    receivers: Queue<ThreadRef>,
}

impl<T: Send, const N: usize> Channel<T, N> {
    /// An empty channel.
    pub const fn new() -> Self {
        assert!(N > 0, "a channel has room");
        Channel {
            state: SpinLock::new(
                "channel",
                State {
                    values: [const { None }; N],
                    first: 0,
                    count: 0,
                    senders: Queue::new(),
                    receivers: Queue::new(),
                },
            ),
        }
    }

    /// Puts a value in. Sleeps while the channel is full.
    pub fn send(&self, value: T) {
        let mut state = self.state.lock();
        while state.count == N {
            let current = state.masked().hart().current();
            state.senders.push(current);
            sched::block(state);
            state = self.state.lock();
        }
        let place = (state.first + state.count) % N;
        state.values[place] = Some(value);
        state.count += 1;
        if let Some(receiver) = state.receivers.pop() {
            sched::wake_masked(receiver, state.masked());
        }
    }

    /// Takes a value out. Sleeps while the channel is empty.
    pub fn receive(&self) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(value) = take(&mut state) {
                return value;
            }
            let current = state.masked().hart().current();
            state.receivers.push(current);
            sched::block(state);
            state = self.state.lock();
        }
    }

    /// Takes a value out if there is one.
    pub fn try_receive(&self) -> Option<T> {
        take(&mut self.state.lock())
    }

    /// Senders and receivers that wait.
    pub fn waiters(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.senders.len(), state.receivers.len())
    }
}

/// Takes the first value, and wakes who has one more to put in.
fn take<T, const N: usize>(state: &mut SpinGuard<'_, State<T, N>>) -> Option<T> {
    let first = state.first;
    let value = state.values[first].take()?;
    state.first = (first + 1) % N;
    state.count -= 1;
    if let Some(sender) = state.senders.pop() {
        sched::wake_masked(sender, state.masked());
    }
    Some(value)
}
