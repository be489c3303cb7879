//! `run`: builds the kernel and boots its demo.

use std::io::Write;
use std::process::ExitCode;

use crate::environment;
use crate::image::{self, Profile};
use crate::qemu::{Boot, Exit};

/// How to boot.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How many harts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub smp: u32,
    /// How much memory
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub memory: String,
    /// Words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub append: String,
    /// Count instructions instead of time: the same boot is the same run
    #[arg(long)]
    pub icount: bool,
    /// QEMU's machine
    #[arg(long, value_name = "M", default_value = "virt")]
    pub machine: String,
    /// QEMU's CPU
    #[arg(long, value_name = "C")]
    pub cpu: Option<String>,
    /// Which build
    #[arg(long, value_enum, default_value_t = Profile::Checked)]
    pub profile: Profile,
    /// One more argument for QEMU; may be given again
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub qemu_arg: Vec<String>,
}

impl Default for Arguments {
    fn default() -> Arguments {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            arguments: Arguments,
        }
        <Only as clap::Parser>::parse_from([""]).arguments
    }
}

/// Builds and boots. The exit code is the kernel's.
///
/// # Errors
/// When the machine lacks something or the kernel cannot be built.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let image = image::build(&environment, &image::Options::new(arguments.profile))?;
    let boot = Boot {
        machine: arguments.machine.clone(),
        cpu: arguments.cpu.clone(),
        harts: arguments.smp,
        memory: arguments.memory.clone(),
        append: arguments.append.clone(),
        icount: arguments.icount,
        extra: arguments.qemu_arg.clone(),
        ..Boot::new(&image.elf)
    };
    let outcome = boot.run_watched(&environment, |piece| {
        let _ = std::io::stdout().write_all(piece);
    })?;
    Ok(match outcome.exit {
        Exit::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Exit::Signal(_) => ExitCode::from(1),
        Exit::TimedOut { diagnosis } => {
            eprintln!("{diagnosis}");
            ExitCode::from(4)
        }
    })
}
