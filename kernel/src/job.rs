//! The first job: what the command line asks for.

use command_line::{CommandLine, Job};
use machine::Machine;

use crate::console::println;
use crate::{console, crash, exit, hart, sbi, vm};

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
        Job::Test(_) => exit::fail(exit::Failure::Refused, format_args!("this image has no self-tests")),
        Job::Bench(_) => exit::fail(exit::Failure::Refused, format_args!("this image has no benchmarks")),
    }
}

/// Says what was found, runs the quick self-tests, and powers off.
fn demo(machine: &Machine<'_>) -> ! {
    println!("{machine}");
    println!("firmware   {}", sbi::Firmware::ask());
    println!("console    {}", console::description());
    println!("harts up   {}", hart::all().count());
    println!("mapped");
    vm::for_each_mapping(|mapping| {
        println!(
            "  {} .. {:#018x}  {}  {:>9} KiB  to {}",
            mapping.start,
            mapping.start.0 + (mapping.size - 1),
            mapping.rights,
            mapping.size / 1024,
            mapping.physical
        );
    });
    #[cfg(feature = "selftest")]
    crate::selftest::run_quick();
    #[cfg(not(feature = "selftest"))]
    exit::pass(format_args!(""))
}
