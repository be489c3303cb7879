//! The [`Load`]: threads and frames that are there while rows are measured, so that it can be seen what grows with them.
//!
//! On the command line it is `with=WHAT,...`: `threads:N` for so many threads, half of them asleep and half blocked; `fill:PERCENT`
//! for so much of memory in use, what is free scattered over all of it; `fill:every_other` for every other frame.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use frames::FrameNumber;

use crate::hart::CpuNumber;
use crate::sync::Channel;
use crate::thread::{self, JoinHandle, SpawnError};
use crate::timer::{self, Instant};
use crate::{frame, interrupts, sched};

/// Where the rows are measured, and so where the threads wait.
const HERE: CpuNumber = CpuNumber(0);

/// For how long threads sleep: longer than all rows take. The clock goes on by itself when nothing is left to run.
const SLEEP: Duration = Duration::from_secs(1_000);

/// What the blocked threads wait for.
static END: Channel<(), 1> = Channel::new();

/// Threads that rest and frames in use, until [`end`](Load::end).
pub struct Load {
    threads: Vec<JoinHandle<()>>,
    blocked: usize,
    frames: Vec<FrameNumber>,
}

/// Which frames are in use.
#[derive(Clone, Copy)]
enum Fill {
    /// Those of the kernel alone.
    Nothing,
    /// So many in a hundred of all that there are.
    Percent(usize),
    /// Those with even numbers.
    EveryOther,
}

/// Why there is no load.
pub enum Unloaded<'a> {
    /// It is not known what this is.
    Unknown(&'a str),
    /// There was no memory for so many threads.
    Thread { number: usize, of: usize, why: SpawnError },
    /// There was no memory for the list of what there is.
    NoMemory,
    /// More frames are in use already.
    Fuller { in_use: usize, wanted: usize },
}

impl From<alloc::collections::TryReserveError> for Unloaded<'_> {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Unloaded::NoMemory
    }
}

impl fmt::Display for Unloaded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unloaded::Unknown(what) => {
                write!(f, "'{what}' is none of threads:N, fill:PERCENT, fill:every_other")
            }
            Unloaded::Thread { number, of, why } => write!(f, "thread {number} of {of}: {why}"),
            Unloaded::NoMemory => f.write_str("there is no memory for the list of what is there"),
            Unloaded::Fuller { in_use, wanted } => {
                write!(f, "{in_use} frames are in use already, and {wanted} are asked for")
            }
        }
    }
}

impl Load {
    /// Makes the load that a command line asks for. Interrupts are on; sleeps.
    ///
    /// # Errors
    /// If the words are not understood, or memory does not suffice. Everything is as before then.
    pub fn new(words: &str) -> Result<Load, Unloaded<'_>> {
        let (mut threads, mut fill) = (0, Fill::Nothing);
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let number = |text: &str| text.parse::<usize>().ok();
            match word.split_once(':') {
                Some(("threads", count)) if number(count).is_some() => {
                    threads = number(count).unwrap_or(0);
                }
                Some(("fill", "every_other")) => fill = Fill::EveryOther,
                Some(("fill", percent)) if number(percent).is_some_and(|number| number <= 100) => {
                    fill = Fill::Percent(number(percent).unwrap_or(0));
                }
                _ => return Err(Unloaded::Unknown(word)),
            }
        }
        let mut load = Load { threads: Vec::new(), blocked: 0, frames: Vec::new() };
        match load.start_threads(threads).and_then(|()| load.fill(fill)) {
            Ok(()) => Ok(load),
            Err(why) => {
                load.end();
                Err(why)
            }
        }
    }

    /// Starts threads on this hart, and comes back when all of them rest.
    fn start_threads(&mut self, count: usize) -> Result<(), Unloaded<'static>> {
        self.threads.try_reserve_exact(count)?;
        let until = Instant::now().after(SLEEP);
        for number in 0..count {
            let is_blocked = number % 2 == 1;
            let thread = if is_blocked {
                thread::spawn_on(HERE, "is blocked", || END.receive())
            } else {
                thread::spawn_on(HERE, "sleeps", move || timer::sleep_until(until))
            };
            let failed = |why| Unloaded::Thread { number: number + 1, of: count, why };
            self.threads.push(thread.map_err(failed)?);
            self.blocked += usize::from(is_blocked);
        }
        while interrupts::mask().hart().scheduling.has_ready() {
            sched::yield_now();
        }
        Ok(())
    }

    /// Takes all frames, and gives back those that are to be free.
    fn fill(&mut self, fill: Fill) -> Result<(), Unloaded<'static>> {
        if matches!(fill, Fill::Nothing) {
            return Ok(());
        }
        self.frames.try_reserve_exact(frame::statistics().free)?;
        // The list itself was allocated after they were counted: there is room for all.
        while let Some(frame) = frame::allocate() {
            self.frames.push(frame);
        }
        match fill {
            Fill::Nothing => {}
            Fill::EveryOther => self.frames.retain(|&frame| {
                let stays = frame.0.is_multiple_of(2);
                if !stays {
                    free(frame);
                }
                stays
            }),
            Fill::Percent(percent) => {
                let usable = frame::statistics().usable;
                let wanted = usable * percent / 100;
                let others = usable - self.frames.len();
                let Some(stay) = wanted.checked_sub(others) else {
                    return Err(Unloaded::Fuller { in_use: others, wanted });
                };
                let mut random = 1_u64;
                while self.frames.len() > stay {
                    // Knuth's generator, of which the upper bits are good: the same frames in every boot.
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let place = (random >> 33) as usize % self.frames.len();
                    free(self.frames.swap_remove(place));
                }
            }
        }
        Ok(())
    }

    /// Gives back the frames and waits until the threads have ended. Sleeps.
    pub fn end(self) {
        self.frames.into_iter().for_each(free);
        (0..self.blocked).for_each(|_| END.send(()));
        self.threads.into_iter().for_each(JoinHandle::join);
    }
}

/// Gives back a frame of the load.
fn free(frame: FrameNumber) {
    frame::free(frame).expect("it was allocated for the load");
}
