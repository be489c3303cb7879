//! `size`: where the bytes and the lines are, beside the C kernel's.

pub mod lines;
pub mod text;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anstream::{eprintln, println};
use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::environment;
use crate::image::{self, Profile};
use crate::style::{MUTED, NOTABLE};

/// The most that this kernel is to have, and what others have (system.md, section 11).
pub(crate) const CODE_LINES: Figure =
    Figure { name: "code lines", goal: 4_500, c: 3_521, xv6: 4_522 };
pub(crate) const CODE_BYTES: Figure =
    Figure { name: "machine code, bytes", goal: 64 * 1024, c: 38_606, xv6: 25_228 };

pub(crate) struct Figure {
    name: &'static str,
    pub(crate) goal: u64,
    c: u64,
    xv6: u64,
}

/// Where the bytes and the lines are.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- size            by module, beside the C kernel's and the goals
  cargo run -- size --check    fails where a goal is missed

The bytes are those of the release build without tests, benchmarks and monitor. A line counts if a token of the
language stands on it; what is compiled only for tests, benchmarks and the monitor stands apart.")]
pub struct Arguments {
    /// Gives the figures as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Ends with exit code 1 where a goal is missed
    #[arg(long)]
    pub check: bool,
}

/// One module of the kernel, one library crate, or one crate that is only linked.
#[derive(Clone, Debug, Serialize)]
pub struct Module {
    /// `kernel::trap`, `symbols`, `core`, ...
    pub name: String,
    /// Its lines; none for code that is not of this repository.
    #[serde(flatten)]
    pub lines: lines::Count,
    /// Bytes of machine code in the image.
    pub text_bytes: u64,
}

/// Every figure.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// Lines that a reader reads: kernel/ and lib/ without tests, benchmarks, monitor.
    pub code_lines: u64,
    /// Bytes of machine code in the release build without tests, benchmarks, monitor.
    pub text_bytes: u64,
    /// By module: the kernel's, the library crates, what is linked besides.
    pub modules: Vec<Module>,
    /// All modules together.
    pub total: lines::Count,
    /// Loaded sections and their sizes in bytes, as they lie in memory.
    pub sections: Vec<(String, u64)>,
    /// Lines of xtask and its tests.
    pub host_lines: usize,
}

/// Counts the lines of the workspace and the bytes of the image at `elf`.
///
/// # Errors
/// When a source or the image cannot be read.
pub fn measure(workspace: &Path, elf: &Path) -> anyhow::Result<Size> {
    let mut lines = lines::by_module(workspace)?;
    let image = std::fs::read(elf).with_context(|| elf.display().to_string())?;
    let mut bytes = text::measure(&image, |module| lines.contains_key(module))?;

    let mut total = lines::Count::default();
    lines.values().for_each(|count| total += *count);
    let own: BTreeSet<String> = lines.keys().cloned().collect();
    let linked: BTreeSet<String> =
        bytes.modules.keys().filter(|it| !own.contains(*it)).cloned().collect();
    // The kernel's modules, then the other crates of this repository, then those that are only linked.
    let (kernel, libraries): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|it| it.starts_with("kernel"));
    let modules = kernel.into_iter().chain(libraries).chain(linked).map(|name| Module {
        lines: lines.remove(&name).unwrap_or_default(),
        text_bytes: bytes.modules.remove(&name).unwrap_or_default(),
        name,
    });
    Ok(Size {
        code_lines: total.code as u64,
        text_bytes: bytes.code,
        modules: modules.collect(),
        total,
        sections: bytes.sections,
        host_lines: lines::of_host(workspace)?,
    })
}

impl Size {
    /// A sentence for each goal that is missed.
    pub fn over_goals(&self) -> Vec<String> {
        [(CODE_LINES, self.code_lines), (CODE_BYTES, self.text_bytes)]
            .into_iter()
            .filter(|(figure, here)| *here > figure.goal)
            .map(|(Figure { name, goal, .. }, here)| {
                format!("{name}: {}, the goal is {}", spaced(here), spaced(goal))
            })
            .collect()
    }

    /// The figures that have a goal, beside those of others.
    pub fn figures(&self) -> Table {
        let mut table = table(&["", "here", "goal", "C kernel", "xv6"]);
        for (figure, here) in [(CODE_LINES, self.code_lines), (CODE_BYTES, self.text_bytes)] {
            let numbers = [here, figure.goal, figure.c, figure.xv6].map(spaced);
            table.add_row([figure.name.to_owned()].into_iter().chain(numbers));
        }
        table
    }

    /// Lines and bytes of each module.
    pub fn by_module(&self) -> Table {
        let mut table = table(&["module", "lines", "apart", "unsafe", "checked", "code bytes"]);
        let row = |name: &str, lines: &lines::Count, bytes: u64| {
            let shown = |number: u64| {
                if number == 0 { String::new() } else { spaced(number) }
            };
            let unsafe_places = lines.unsafe_blocks + lines.unsafe_impls;
            let numbers = [lines.code, lines.apart, unsafe_places, lines.checked_sites];
            let numbers = numbers.map(|it| it as u64).into_iter().chain([bytes]);
            [name.to_owned()].into_iter().chain(numbers.map(shown)).collect::<Vec<_>>()
        };
        for Module { name, lines, text_bytes } in &self.modules {
            table.add_row(row(name, lines, *text_bytes));
        }
        table.add_row(row("all", &self.total, self.text_bytes));
        table
    }

    /// The image's sections.
    pub fn by_section(&self) -> Table {
        let mut table = table(&["section", "bytes"]);
        for (name, bytes) in &self.sections {
            table.add_row([name.clone(), spaced(*bytes)]);
        }
        table
    }
}

/// A table of a name and numbers.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number with its thousands apart: `38,606`.
pub(crate) fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Builds the image that the figures are for, and shows them.
///
/// # Errors
/// When there is no toolchain, the image does not build, or a file cannot be read.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let options = image::Options { features: Vec::new(), ..image::Options::new(Profile::Release) };
    let image = image::build(&environment, &options)?;
    let size = measure(&environment::workspace(), &image.elf)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&size)?);
    } else {
        println!("{}\n\n{}\n\n{}", size.by_module(), size.by_section(), size.figures());
        println!(
            "{MUTED}\napart: tests, benchmarks, monitor. unsafe: blocks and impls. checked: places where that feature decides.\n\
             xtask and its tests: {} lines.{MUTED:#}",
            spaced(size.host_lines as u64)
        );
    }
    let missed = size.over_goals();
    for sentence in &missed {
        eprintln!("{NOTABLE}warning: {sentence}{NOTABLE:#}");
    }
    Ok(if arguments.check && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code_lines: u64, text_bytes: u64) -> Size {
        let (modules, sections) = (Vec::new(), vec![(".text".to_owned(), text_bytes)]);
        Size {
            code_lines,
            text_bytes,
            modules,
            total: lines::Count::default(),
            sections,
            host_lines: 0,
        }
    }

    #[test]
    fn a_goal_is_kept_up_to_its_number_and_missed_beyond() {
        assert!(of(4_500, 65_536).over_goals().is_empty());
        assert_eq!(of(4_501, 0).over_goals(), ["code lines: 4,501, the goal is 4,500"]);
        assert_eq!(of(0, 65_537).over_goals(), ["machine code, bytes: 65,537, the goal is 65,536"]);
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(spaced), ["0", "999", "1,000", "1,234,567"]);
    }
}
