//! The command line: one subcommand a module.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{environment, run};

/// 16-os, a small kernel for 64-bit RISC-V: builds, boots and tests it.
#[derive(Parser)]
#[command(name = "cargo run --")]
struct Cli {
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Subcommand)]
enum Task {
    /// Boots the demo.
    Run(run::Arguments),
}

/// Does what the command line asks for. Gives the exit code.
pub fn main() -> ExitCode {
    let task = Cli::parse()
        .command
        .unwrap_or(Task::Run(run::Arguments::default()));
    let result = match task {
        Task::Run(arguments) => run::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        if error.is::<environment::Missing>() {
            ExitCode::from(2)
        } else {
            ExitCode::from(1)
        }
    })
}
