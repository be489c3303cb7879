//! Work done by several threads at once, its results in the order of the items.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// How many boots run at once if nothing else is said: one for each of the host's processors.
pub fn default_jobs() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Calls `work` on every item, `jobs` at once, and `done` on this thread with each result as it comes.
///
/// `work` also gets the number of the thread that it runs on, below `jobs`.
///
/// # Errors
/// The first of `work`'s. No more items are begun then; what is under way ends, and is not given to `done`.
pub fn as_completed<T: Sync, R: Send, E: Send>(
    jobs: NonZero<usize>,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R, E> + Sync,
    mut done: impl FnMut(usize, R),
) -> Result<(), E> {
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
            done(index, result?);
        }
        Ok(())
    })
}

/// Like [`as_completed`], but gives the results to `done` in the order of the items, each as soon as those before it
/// have been given.
///
/// # Errors
/// The first of `work`'s, in time.
pub fn in_order<T: Sync, R: Send, E: Send>(
    jobs: NonZero<usize>,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R, E> + Sync,
    mut done: impl FnMut(usize, R),
) -> Result<(), E> {
    let mut waiting = std::collections::BTreeMap::new();
    let mut next = 0;
    as_completed(jobs, items, work, |index, result| {
        waiting.insert(index, result);
        while let Some(result) = waiting.remove(&next) {
            done(next, result);
            next += 1;
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use super::*;

    const TWO: NonZero<usize> = NonZero::new(2).unwrap();

    type Never = std::convert::Infallible;

    #[test]
    fn every_item_is_done_once_and_in_order() {
        let items: Vec<u32> = (0..100).collect();
        let mut results = Vec::new();
        let work = |_, item: &u32| Ok::<_, Never>(item * 2);
        in_order(TWO, &items, work, |index, result| results.push((index, result))).unwrap();
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
                Ok::<_, Never>(item)
            },
            |_, item| shown.push(item),
        )
        .unwrap();
        assert_eq!(*finished.lock().unwrap(), [1, 0]);
        assert_eq!(shown, [0, 1]);
    }

    #[test]
    fn after_an_error_each_worker_ends_what_it_is_at() {
        let items: Vec<u32> = (0..1000).collect();
        let begun = AtomicUsize::new(0);
        let work = |_, item: &u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *item == 0 { Err("the first") } else { Ok(()) }
        };
        assert_eq!(as_completed(TWO, &items, work, |_, ()| ()), Err("the first"));
        // The other worker may have got on while the first one's result was on its way.
        assert!(begun.into_inner() < items.len());
    }

    #[test]
    fn a_worker_has_a_number_below_the_number_of_jobs() {
        let work = |worker, (): &()| {
            assert!(worker < 2);
            Ok::<_, Never>(())
        };
        as_completed(TWO, &[(); 50], work, |_, ()| ()).unwrap();
    }
}
