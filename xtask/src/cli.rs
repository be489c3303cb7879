//! The command line: one subcommand a module.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    bench, claims, doctor, environment, explore, gdb, machine, mutants, pictures, run, size, soak,
    style, test, trace,
};

/// 16-os, a small kernel for 64-bit RISC-V: builds, boots and tests it.
#[derive(Debug, Parser)]
#[command(name = "16-os", bin_name = "cargo run --", version)]
#[command(after_help = "Without a command it is `run`: the demo.

Exit codes:
  0  all well
  1  a check failed
  2  the machine lacks something, or the command line is wrong
  3  the kernel crashed
  4  the kernel hung
  5  the kernel refused the machine

Examples:
  cargo run                    boots the demo
  cargo run -- doctor          says what is missing on this machine
  cargo run -- test --help     says how to run the kernel's own tests")]
struct Cli {
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Boots the demo
    Run(run::Arguments),
    /// Says what was found on this machine, what is missing and how to get it
    Doctor(doctor::Arguments),
    /// Runs the kernel's own tests and deliberate crashes, by name
    Test(test::Arguments),
    /// Counts the instructions of the kernel's operations, beside the baseline and other kernels
    Bench(bench::Arguments),
    /// Draws a timeline of every hart: a file for the Perfetto viewer, and a picture
    Trace(trace::Arguments),
    /// Draws README's pictures: the memory map from the live page table, and a timeline
    Pictures(pictures::Arguments),
    /// Boots the same many times, and counts what went wrong
    Soak(soak::Arguments),
    /// Runs the same test under many schedules, each from a seed; replays one that failed
    Explore(explore::Arguments),
    /// Breaks the kernel on purpose, one small patch at a time, and shows which test notices
    Mutants(mutants::Arguments),
    /// Boots the kernel stopped, with gdb attached and symbols loaded
    Gdb(gdb::Arguments),
    /// Says what the kernel would find in a device tree
    Machine(machine::Arguments),
    /// Writes CLAIMS.md: each claim, the tests that check it and the faults that break it
    Claims(claims::Arguments),
    /// Says where the bytes and the lines are
    Size(size::Arguments),
}

/// Does what the command line asks for. Gives the exit code.
pub fn main() -> ExitCode {
    let task = Cli::parse().command.unwrap_or_else(default_task);
    let result = match &task {
        Task::Run(arguments) => run::run(arguments),
        Task::Doctor(arguments) => doctor::run(arguments),
        Task::Test(arguments) => test::run(arguments),
        Task::Bench(arguments) => bench::run(arguments),
        Task::Trace(arguments) => trace::run(arguments),
        Task::Pictures(arguments) => pictures::run(arguments),
        Task::Soak(arguments) => soak::run(arguments),
        Task::Explore(arguments) => explore::run(arguments),
        Task::Mutants(arguments) => mutants::run(arguments),
        Task::Gdb(arguments) => gdb::run(arguments),
        Task::Machine(arguments) => machine::run(arguments),
        Task::Claims(arguments) => claims::run(arguments),
        Task::Size(arguments) => size::run(arguments),
    };
    result.unwrap_or_else(|error| {
        let bad = style::BAD;
        anstream::eprintln!("{bad}error:{bad:#} {error:#}");
        let cannot_begin = error.is::<environment::Missing>() || error.is::<Usage>();
        ExitCode::from(if cannot_begin { 2 } else { 1 })
    })
}

/// The command line asks for something that is not there, and says so in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The task of a command line that names none.
fn default_task() -> Task {
    Cli::parse_from(["cargo run --", "run"]).command.expect("the command line names one")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
        assert!(matches!(default_task(), Task::Run(_)));
    }

    #[test]
    fn each_command_shows_an_example_of_itself() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("cargo run -- {}", command.get_name());
            assert!(help.contains(&example), "the help of `{}` has no example", command.get_name());
        }
    }
}
