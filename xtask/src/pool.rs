//! Work done by several threads at once, its results in the order of the items.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// How many boots run at once if nothing else is said: one for each of the host's processors.
pub fn default_jobs() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Calls `work` on every item, `jobs` at once, and `done` on this thread with each result as it comes.
///
/// `work` also gets the number of the thread that it runs on, below `jobs`. Once `done` breaks, no more items are begun;
/// what is under way ends, and is not given to `done`.
pub fn as_completed<T: Sync, R: Send>(
    jobs: NonZero<usize>,
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
    mut done: impl FnMut(usize, R) -> ControlFlow<()>,
) {
    let next = AtomicUsize::new(0);
    // Without room in it: a worker begins its next item only when its last result was taken, or learns that nobody
    // takes it any more.
    let (sender, receiver) = mpsc::sync_channel(0);
    std::thread::scope(|scope| {
        for worker in 0..jobs.get().min(items.len()) {
            let (sender, work, next) = (sender.clone(), &work, &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if sender.send((index, work(worker, item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            if done(index, result).is_break() {
                break;
            }
        }
    });
}

/// Like [`as_completed`], but gives the results to `done` in the order of the items, each as soon as those before it
/// have been given.
pub fn in_order<T: Sync, R: Send>(
    jobs: NonZero<usize>,
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
    mut done: impl FnMut(usize, R) -> ControlFlow<()>,
) {
    let mut waiting = std::collections::BTreeMap::new();
    let mut next = 0;
    as_completed(jobs, items, work, |index, result| {
        waiting.insert(index, result);
        while let Some(result) = waiting.remove(&next) {
            done(next, result)?;
            next += 1;
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    const TWO: NonZero<usize> = NonZero::new(2).unwrap();

    #[test]
    fn every_item_is_done_once_and_in_order() {
        let items: Vec<u32> = (0..100).collect();
        let mut results = Vec::new();
        in_order(
            TWO,
            &items,
            |_, item| item * 2,
            |index, result| {
                results.push((index, result));
                ControlFlow::Continue(())
            },
        );
        let expected: Vec<_> = (0..100).map(|item| (item, item as u32 * 2)).collect();
        assert_eq!(results, expected);
    }

    #[test]
    fn a_slow_first_item_delays_what_is_shown_and_not_what_is_done() {
        // Item 0 ends only after item 1 did: both must be under way at once, and 1 still comes second.
        let barrier = Barrier::new(2);
        let finished = Mutex::new(Vec::new());
        let mut shown = Vec::new();
        in_order(
            TWO,
            &[0, 1],
            |_, &item| {
                if item == 0 {
                    barrier.wait();
                }
                finished.lock().unwrap().push(item);
                if item == 1 {
                    barrier.wait();
                }
                item
            },
            |_, item| {
                shown.push(item);
                ControlFlow::Continue(())
            },
        );
        assert_eq!(*finished.lock().unwrap(), [1, 0]);
        assert_eq!(shown, [0, 1]);
    }

    #[test]
    fn after_a_break_each_worker_ends_what_it_is_at() {
        let items: Vec<u32> = (0..1000).collect();
        let begun = AtomicUsize::new(0);
        let mut shown = 0;
        as_completed(
            TWO,
            &items,
            |_, _| begun.fetch_add(1, Ordering::Relaxed),
            |_, _| {
                shown += 1;
                ControlFlow::Break(())
            },
        );
        assert_eq!(shown, 1);
        assert!(begun.into_inner() <= 4, "two each at the most");
    }

    #[test]
    fn a_worker_has_a_number_below_the_number_of_jobs() {
        as_completed(
            TWO,
            &[(); 50],
            |worker, ()| assert!(worker < 2),
            |_, ()| ControlFlow::Continue(()),
        );
    }
}
