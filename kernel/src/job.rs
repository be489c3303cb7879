//! The first job: what the command line asks for.
//!
//! [`run`] is the first thread's body. It ends the run in every case, with a verdict.

use command_line::{CommandLine, Job};
use machine::Machine;

use crate::console::{print, println};
use crate::hart::StackKind;
use crate::stack::{self, STACK_BYTES};
use crate::{console, crash, demo, exit, frame, hart, interrupts, sbi, timer, vm};

/// Does what the command line asks for, and ends the run.
pub fn run(machine: &Machine<'_>, line: &CommandLine<'_>) -> ! {
    for problem in &line.problems {
        println!("command line: {problem}");
    }
    if line.more_problems > 0 {
        println!("command line: and {} more problems", line.more_problems);
    }
    #[cfg(feature = "bench")]
    crate::bench::entry::first_job_begins();
    interrupts::measure();
    match line.job {
        Job::Demo => {
            show_and_work(machine);
            exit::pass(format_args!(""))
        }
        #[cfg(feature = "monitor")]
        Job::Monitor => {
            show_and_work(machine);
            crate::monitor::run()
        }
        #[cfg(not(feature = "monitor"))]
        Job::Monitor => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no monitor"))
        }
        Job::Crash(asked) => crash::run(asked),
        #[cfg(feature = "selftest")]
        Job::Test(only) => match &line.seeds {
            Some(seeds) => crate::selftest::explore(only, seeds.clone(), line.places),
            None => crate::selftest::run(only),
        },
        #[cfg(not(feature = "selftest"))]
        Job::Test(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no self-tests"))
        }
        #[cfg(feature = "bench")]
        Job::Bench(asked) => crate::bench::run(asked),
        #[cfg(not(feature = "bench"))]
        Job::Bench(_) => {
            exit::fail(exit::Failure::Refused, format_args!("this image has no benchmarks"))
        }
    }
}

/// Says what was found, runs the quick self-tests and the demo. Ends the run where one of them fails.
fn show_and_work(machine: &Machine<'_>) {
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
    #[cfg(feature = "selftest")]
    let failed = crate::selftest::run_quick();
    #[cfg(not(feature = "selftest"))]
    let failed = 0;
    if failed > 0 {
        exit::fail(exit::Failure::Test, format_args!("{failed} self-tests"))
    }
    if let Err(failure) = demo::run() {
        exit::fail(exit::Failure::Test, format_args!("{failure}"))
    }
}
