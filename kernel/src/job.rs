//! The first job: what the command line asks for.

use core::fmt;

use arrayvec::ArrayVec;
use command_line::{CommandLine, Job};
use machine::Machine;

use crate::console::{print, println};
use crate::hart::StackKind;
use crate::image::Section;
use crate::stack::{self, STACK_BYTES};
use crate::vm::Rights;
use crate::{console, crash, exit, frame, hart, interrupts, sbi, timer, vm};

/// Does what the command line asks for, and ends the run.
pub fn run(machine: &Machine<'_>, line: &CommandLine<'_>) -> ! {
    for problem in &line.problems {
        println!("command line: {problem}");
    }
    if line.more_problems > 0 {
        println!("command line: and {} more problems", line.more_problems);
    }
    interrupts::measure();
    match line.job {
        Job::Demo => demo(machine),
        Job::Crash(asked) => crash::run(asked),
        #[cfg(feature = "selftest")]
        Job::Test(only) => crate::selftest::run(only),
        #[cfg(not(feature = "selftest"))]
        Job::Test(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no self-tests"))
        }
        #[cfg(feature = "bench")]
        Job::Bench(only) => crate::bench::run(only),
        #[cfg(not(feature = "bench"))]
        Job::Bench(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no benchmarks"))
        }
    }
}

/// Says what was found, runs the quick self-tests, and powers off.
fn demo(machine: &Machine<'_>) -> ! {
    print!("{machine}");
    println!("firmware     {}", sbi::Firmware::ask());
    println!("console      {}", console::description());
    println!("harts up     {}", hart::all().count());
    println!("ticks        {} Hz, by {}", timer::TICK_HERTZ, timer::description());
    let frames = frame::statistics();
    let cleared = match frame::zero_block() {
        0 => "a word",
        _ => "a cbo.zero",
    };
    let (free, usable) = (frames.free, frames.usable);
    let tables = vm::table_pages();
    println!(
        "frames       {free} of {usable} free, {tables} hold page tables; cleared {cleared} at a time"
    );
    let most = hart::all().map(|hart| stack::most_used(hart.stack(StackKind::Entry))).max();
    println!("stacks       of {STACK_BYTES} bytes each, {} used at the most", most.unwrap_or(0));
    show_map();
    #[cfg(feature = "selftest")]
    crate::selftest::run_quick();
    #[cfg(not(feature = "selftest"))]
    exit::pass(format_args!(""))
}

/// What is mapped, added up by what it is and what may be done there.
fn show_map() {
    let mut sums = ArrayVec::<(usize, &str, Rights, usize), 16>::new();
    for mapping in vm::view().mappings() {
        let (start, size) = (mapping.pages.start().value(), mapping.pages.size());
        let what = match Section::of(start) {
            _ if vm::STACKS.contains(&start) => "stacks, with a gap below each",
            Some(section) => section.name(),
            None if start >= vm::DEVICES => "devices",
            None => "memory",
        };
        let same = sums.iter_mut().find(|sum| (sum.1, sum.2) == (what, mapping.rights));
        match same {
            Some(sum) => sum.3 += size,
            None => sums.push((start, what, mapping.rights, size)),
        }
    }
    for (start, what, rights, size) in sums {
        println!("mapped       from {start:#018x}  {rights}  {}  {what}", Kibibytes(size));
    }
}

/// A size as people read it.
struct Kibibytes(usize);

impl fmt::Display for Kibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) =
            if self.0 < 1 << 20 { (self.0 >> 10, "KiB") } else { (self.0 >> 20, "MiB") };
        write!(f, "{number:>4} {unit}")
    }
}
