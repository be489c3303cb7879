//! [`Load`]: work for the host's processors that means nothing, so that QEMU's harts get them late and unevenly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Busy threads at normal priority, until this is dropped. They end with the process however that ends.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    /// Starts `count` busy threads.
    pub fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    let mut rounds = 0_u64;
                    // Relaxed: nothing is published with the flag, and the threads are joined.
                    while !stop.load(Ordering::Relaxed) {
                        rounds = std::hint::black_box(rounds.wrapping_add(1));
                    }
                    rounds
                })
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The threads cannot panic; one that did has stopped all the same.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_load_ends_its_threads() {
        let load = Load::start(2);
        let flag = Arc::downgrade(&load.stop);
        assert_eq!(flag.strong_count(), 3, "the load and its two threads hold the flag");
        drop(load);
        assert_eq!(flag.strong_count(), 0, "a thread outlived the load");
    }
}
