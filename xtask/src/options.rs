//! What a person may say of a boot, the same for each command that boots once.

use std::path::Path;

use crate::image::Profile;
use crate::qemu::Boot;

/// Options of a boot.
#[derive(Clone, Debug, clap::Args)]
pub struct BootOptions {
    /// How many harts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub smp: u32,
    /// How much memory
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub memory: String,
    /// Words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub append: String,
    /// Let time pass with the instructions: the same boot is then the same run
    #[arg(long)]
    pub icount: bool,
    /// QEMU's CPU, with its options [default: the machine's own]
    #[arg(long, value_name = "C")]
    pub cpu: Option<String>,
    /// Which build of the kernel
    #[arg(long, value_enum, default_value_t = Profile::Checked)]
    pub profile: Profile,
}

impl BootOptions {
    /// The boot of an image that they say.
    pub fn boot(&self, elf: &Path) -> Boot {
        Boot {
            cpu: self.cpu.clone(),
            harts: self.smp,
            memory: self.memory.clone(),
            append: self.append.clone(),
            icount: self.icount,
            ..Boot::new(elf)
        }
    }
}
