//! The first job: what the command line asks for.

use core::fmt;

use command_line::{CommandLine, Job};
use machine::Machine;

use crate::console::println;
use crate::image::Section;
use crate::stack::STACK_BYTES;
use crate::{console, crash, exit, frame, hart, sbi, vm};

/// Does what the command line asks for, and ends the run.
pub fn run(machine: &Machine<'_>) -> ! {
    let line = CommandLine::parse(machine.chosen.bootargs);
    for problem in &line.problems {
        println!("command line: {problem}");
    }
    if line.more_problems > 0 {
        println!("command line: and {} more problems", line.more_problems);
    }
    match line.job {
        Job::Demo => demo(machine),
        Job::Crash(kind) => crash::run(kind),
        #[cfg(feature = "selftest")]
        Job::Test(only) => crate::selftest::run(only),
        #[cfg(not(feature = "selftest"))]
        Job::Test(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no self-tests"))
        }
        Job::Bench(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no benchmarks"))
        }
    }
}

/// Says what was found, runs the quick self-tests, and powers off.
fn demo(machine: &Machine<'_>) -> ! {
    println!("{machine}");
    println!("firmware     {}", sbi::Firmware::ask());
    println!("console      {}", console::description());
    println!("harts up     {}", hart::all().count());
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
    for mapping in vm::view().mappings() {
        let start = mapping.pages.start().value();
        let what = match Section::of(start) {
            _ if hart::stack_at(start).is_some() => continue,
            Some(section) => section.name(),
            None if start >= vm::DEVICES => "a device's registers",
            None => "memory",
        };
        println!(
            "mapped       {start:#018x}  {}  {}  {what}",
            mapping.rights,
            Kibibytes(mapping.pages.size())
        );
    }
    let stacks = 2 * hart::all().count();
    println!("and          {stacks} stacks of {}, with a gap below each", Kibibytes(STACK_BYTES));
    #[cfg(feature = "selftest")]
    crate::selftest::run_quick();
    #[cfg(not(feature = "selftest"))]
    exit::pass(format_args!(""))
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
