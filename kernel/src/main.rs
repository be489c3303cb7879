//! 16-os: a kernel for 64-bit RISC-V that proves what it says about itself.
//!
//! This file is the boot order. DESIGN.md draws the memory map and numbers the invariants that `SAFETY` comments cite.

#![no_std]
#![no_main]
#![cfg_attr(
    not(all(feature = "selftest", feature = "monitor")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "self-tests and monitor look at more than the kernel itself does"
    )
)]

extern crate alloc;

mod backtrace;
#[cfg(feature = "bench")]
mod bench;
mod boot;
mod console;
mod crash;
mod debugger;
mod demo;
mod exit;
mod explore;
mod frame;
mod hart;
mod heap;
mod image;
mod interrupts;
mod irq;
mod job;
#[cfg(feature = "monitor")]
mod monitor;
mod platform;
mod plic;
mod probe;
mod report;
mod sbi;
mod sched;
#[cfg(feature = "selftest")]
mod selftest;
mod stack;
mod stop;
mod switch;
mod symbols;
mod sync;
mod thread;
mod timer;
mod trace;
mod trap;
mod uart;
mod vm;

use command_line::CommandLine;

use console::println;
use exit::Failure;
use hart::CpuNumber;

/// The boot hart's way from the first page table to the first job. The entry (`boot`) has set up this hart, its
/// stack and paging; interrupts are off.
fn kernel_main(device_tree: usize) -> ! {
    console::start_with_firmware();
    symbols::find();
    println!("16-os {} ({})", env!("CARGO_PKG_VERSION"), image::PROFILE);

    let machine = platform::discover(device_tree);
    let line = CommandLine::parse(machine.chosen.bootargs);
    if line.json_reports {
        report::also_as_json();
    }
    if let Some(seed) = line.seed {
        explore::explore(seed);
    }
    if let Some(switches) = line.switches {
        explore::limit(switches);
    }
    if line.trace {
        trace::dump_at_the_end();
    }
    vm::start(machine);
    heap::start(machine);
    platform::map_uart(machine);
    console::move_to_uart();
    irq::start(machine);
    timer::start(machine);
    crash::ask(&line);
    hart::start_others(machine);

    crash::on_entry_stack(CpuNumber(0));
    let first = thread::spawn_on(CpuNumber(0), "main", move || -> () { job::run(machine, &line) });
    if let Err(error) = first {
        exit::fail(Failure::Refused, format_args!("the first thread: {error}"))
    }
    timer::start_here();
    irq::start_here();
    console::begin_interrupts(machine);
    sched::idle()
}
