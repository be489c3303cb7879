//! `pictures`: README's pictures, from kernels that run: the memory map from the live page table, and a timeline.
//!
//! Nothing in them is drawn by hand, so they are true of the kernel that they were made with.

pub mod memory_map;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::println;
use anyhow::{Context, ensure};

use crate::environment;
use crate::image::Profile;
use crate::qemu::Boot;
use crate::test::image_with_manifest;
use crate::trace;
use crate::verdict::{Expectation, judge};

/// The self-test of the timeline.
const TIMELINE: &str = "threads::threads_spread_over_the_harts";
/// How many harts the timeline shows.
const TIMELINE_HARTS: u32 = 4;

/// Where to put the pictures.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Writes memory-map.svg, which shows every range that the monitor's `map` lists, and timeline.svg.

Examples:
  cargo run -- pictures                      those of README.md, in results/
  cargo run -- pictures --smp 8 --out .      the memory map of a machine with 8 harts, here"
)]
pub struct Arguments {
    /// How many harts the machine of the memory map has
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub smp: u32,
    /// The folder for the files [default: results]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Boots, and draws.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, a boot does not pass, or a file cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let (image, manifest) = image_with_manifest(&environment, Profile::Checked)?;
    let folder = arguments.out.clone().unwrap_or_else(|| environment::workspace().join("results"));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;

    let boot = map_boot(&image.elf, arguments.smp);
    let outcome = boot.run(&environment)?;
    let verdict = judge(&outcome, &Expectation::Session).verdict;
    ensure!(verdict.passed(), "the boot for the memory map: {verdict}\n{}", outcome.output);
    let ranges = memory_map::read(&outcome.output)?;
    let machine = format!("QEMU's {}, {} harts, {}", boot.machine, boot.harts, boot.memory);
    write(&folder.join("memory-map.svg"), &memory_map::draw(&ranges, &machine))?;

    let timeline = trace::picture_of(&environment, &image, &manifest, TIMELINE, TIMELINE_HARTS)?;
    write(&folder.join("timeline.svg"), &timeline)?;
    Ok(ExitCode::SUCCESS)
}

/// A boot in whose monitor somebody asks for the map.
pub fn map_boot(elf: &Path, harts: u32) -> Boot {
    // The first empty line goes to the firmware, the others answer the question at the end of each screen.
    let input = b"\rmap\r\r\r\r\r\r\r\r\rpower off\r".to_vec();
    Boot { harts, append: "monitor".to_owned(), input: Some(input), ..Boot::new(elf) }
}

fn write(path: &Path, picture: &str) -> anyhow::Result<()> {
    std::fs::write(path, picture).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}
