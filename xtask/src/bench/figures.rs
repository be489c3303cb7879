//! What is measured: the name of each number, what it says, and the numbers of other kernels and the goals of this one
//! (system.md, section 11).

use crate::size;

/// One number.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// As the kernel and `--json` name it.
    pub name: &'static str,
    /// What is counted.
    pub about: &'static str,
    /// The earlier 16-os, in C.
    pub c: &'static str,
    /// xv6-riscv.
    pub xv6: &'static str,
    /// What it should be.
    pub goal: Option<Goal>,
    /// Whether the baseline holds it: a test fails where it became worse. What grows with the kernel has its goal alone.
    pub held: bool,
}

/// What a number should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// No more than this.
    AtMost(u64),
    /// No less than this.
    AtLeast(u64),
}

impl Goal {
    /// The number that it is about.
    pub fn number(self) -> u64 {
        let (AtMost(number) | AtLeast(number)) = self;
        number
    }
}

use Goal::{AtLeast, AtMost};

/// Every number that has a figure elsewhere or a goal, in the order in which they are shown.
#[rustfmt::skip]
pub const FIGURES: [Figure; 21] = [
    held("switch", "from one context to another, one direction", "34", "35", Some(AtMost(33))),
    held("yield", "from one thread to another through the scheduler", "190", "725", Some(AtMost(110))),
    held("trap", "an ebreak and back, all registers saved", "140", "93, half a frame", Some(AtMost(110))),
    held("timer_interrupt", "a timer interrupt and back, without a switch", "", "", Some(AtMost(140))),
    held("timer_rearm", "setting the next deadline", "339", "", Some(AtMost(6))),
    held("spin_lock", "lock and unlock, uncontended, interrupts on", "", "180", Some(AtMost(24))),
    held("frame_alloc", "a frame from the hart's cache", "105", "202", Some(AtMost(32))),
    held("frame_free", "a frame back to it", "103", "207", Some(AtMost(40))),
    held("frame_alloc_zeroed", "a frame from the hart's cache, cleared", "2,184", "12,506", Some(AtMost(130))),
    held("frame_bulk_pair", "of 4,096 frames allocated, then freed: each, both ways", "", "409", Some(AtMost(60))),
    held("kmalloc_64_pair", "64 bytes from the heap and back", "222", "", Some(AtMost(85))),
    held("wake_to_run", "from waking a thread to its first instruction", "", "20,000", Some(AtMost(220))),
    held("sbi_call", "the firmware's get_spec_version", "291", "", None),
    held("boot_to_first_thread", "from the kernel's entry to the first job", "16.06 million", "415 million", Some(AtMost(250_000))),
    held("page_table_pages", "pages of tables after boot", "71", "", Some(AtMost(14))),
    held("free_frames", "frames free after boot, of 32,768", "32,127", "", Some(AtLeast(32_450))),
    grows("text_bytes", "machine code without benchmarks", "38,606", "25,228", size::CODE_BYTES.goal),
    grows("code_lines", "lines that a reader reads", "3,521", "4,522", size::CODE_LINES.goal),
    held("interrupts_off_max", "the longest time with interrupts off", "", "", Some(AtMost(2_000))),
    held("timer_latency_idle_max", "ticks from a deadline to its handler, idle", "1", "", Some(AtMost(1))),
    held("timer_latency_busy_max", "ticks from a deadline to its handler, busy", "1", "", Some(AtMost(1))),
];

const fn held(
    name: &'static str,
    about: &'static str,
    c: &'static str,
    xv6: &'static str,
    goal: Option<Goal>,
) -> Figure {
    Figure { name, about, c, xv6, goal, held: true }
}

const fn grows(
    name: &'static str,
    about: &'static str,
    c: &'static str,
    xv6: &'static str,
    goal: u64,
) -> Figure {
    Figure { name, about, c, xv6, goal: Some(AtMost(goal)), held: false }
}

/// The figure of a name.
pub fn named(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

impl Figure {
    /// Whether more of it is better.
    pub fn more_is_better(&self) -> bool {
        matches!(self.goal, Some(AtLeast(_)))
    }
}
