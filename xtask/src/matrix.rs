//! The machines of the lane `matrix`: each is a row of a table, and each boots the whole suite, or is refused as it must be.
//!
//! A row says what QEMU is told, how the tree is changed before the kernel sees it, and what is expected. What a machine
//! lacks it must say itself: a test may be skipped only for one of the reasons in the row, in the kernel's own words, and
//! each of them must be given by at least one test.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use dtoolkit::fdt::Fdt;
use dtoolkit::model::DeviceTree;

use crate::environment::{self, Environment};
use crate::machine;
use crate::qemu::Boot;

pub mod edits;
pub mod oldest;
mod table;

pub use table::CELLS;

/// A machine, and what is expected of the kernel there.
#[derive(Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its name in lists: `matrix::NAME`.
    pub name: &'static str,
    /// What it is there to show.
    pub about: &'static str,
    /// QEMU's machine, with its options.
    pub machine: &'static str,
    /// QEMU's CPU, with its options; none for the machine's own.
    pub cpu: Option<&'static str>,
    /// How many harts QEMU is asked for.
    pub harts: u32,
    /// How many of them the kernel can use.
    pub up: u32,
    /// How much memory, in QEMU's notation.
    pub memory: &'static str,
    /// More words for the kernel's command line.
    pub words: &'static str,
    /// More arguments for QEMU.
    pub extra: &'static [&'static str],
    /// Which QEMU and firmware.
    pub tools: Tools,
    /// What is changed in the tree that QEMU makes.
    pub edit: Option<Edit>,
    /// Whether the machine can end QEMU; if not, QEMU is ended when the verdict is out.
    pub ends_itself: bool,
    /// What must come of it.
    pub expected: Expected,
    /// Whether `cargo test` boots it.
    pub quick: bool,
}

/// A change of a tree, by its name.
#[derive(Clone, Copy)]
pub struct Edit(pub &'static str, pub fn(&mut DeviceTree));

impl fmt::Debug for Edit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl PartialEq for Edit {
    fn eq(&self, other: &Edit) -> bool {
        self.0 == other.0
    }
}

impl Eq for Edit {}

/// Stands for the kernel's ELF file among the arguments: a file of a few MiB that is there.
pub const IMAGE: &str = "IMAGE";

/// Which QEMU and which firmware a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// Those that everything is run with.
    Own,
    /// The oldest firmware there is, under the usual QEMU.
    OldestFirmware,
    /// The oldest QEMU there is, with the firmware of its time.
    Oldest,
}

/// What must come of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The suite passes. Tests are skipped for these reasons only, and for each of them at least one.
    Suite(&'static [&'static str]),
    /// The kernel refuses the machine, and its sentence has this in it.
    Refusal(&'static str),
}

/// Why a machine's boot cannot be tried here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotHere(pub String);

impl Cell {
    /// The machine of the name `name`.
    pub fn named(name: &str) -> Option<&'static Cell> {
        CELLS.iter().find(|machine| machine.name == name)
    }

    /// The boot of `image` on it, with this kernel command line.
    pub fn boot(&self, image: &Path, append: &str) -> Boot {
        let mut extra: Vec<String> = self
            .extra
            .iter()
            .map(|&word| word.replace(IMAGE, &image.display().to_string()))
            .collect();
        if self.edit.is_some() {
            extra.extend(["-dtb".to_owned(), self.tree_file().display().to_string()]);
        }
        Boot {
            machine: self.machine.to_owned(),
            cpu: self.cpu.map(str::to_owned),
            harts: self.harts,
            memory: self.memory.to_owned(),
            append: format!("{append} {}", self.words).trim_end().to_owned(),
            extra,
            ends_itself: self.ends_itself,
            ..Boot::new(image)
        }
    }

    /// Makes what its boot needs: the changed tree, and other tools. Gives the environment to boot in, and the firmware if it
    /// is not QEMU's own.
    ///
    /// # Errors
    /// [`NotHere`] where this host cannot have it; anything else is a fault.
    pub fn prepare(
        &self,
        environment: &Environment,
    ) -> anyhow::Result<(Environment, Option<PathBuf>)> {
        let (environment, firmware) = match self.tools {
            Tools::Own => (environment.clone(), None),
            Tools::OldestFirmware => (environment.clone(), Some(oldest::firmware()?)),
            Tools::Oldest => {
                let qemu = oldest::qemu()?;
                (Environment { qemu, ..environment.clone() }, Some(oldest::firmware()?))
            }
        };
        if let Some(edit) = self.edit {
            let blob = self.tree(&environment, edit)?;
            let file = self.tree_file();
            let folder = file.parent().expect("a file lies in a folder");
            std::fs::create_dir_all(folder)?;
            // Two processes may want it at once: each sees a whole one.
            let mut fresh = tempfile::NamedTempFile::new_in(folder)?;
            std::io::Write::write_all(&mut fresh, &blob)?;
            fresh.persist(&file)?;
        }
        Ok((environment, firmware))
    }

    /// The tree that QEMU makes, changed.
    fn tree(&self, environment: &Environment, edit: Edit) -> anyhow::Result<Vec<u8>> {
        let harts = self.harts.to_string();
        let mut arguments = vec!["-smp", &harts, "-m", self.memory];
        arguments.extend(self.cpu.iter().flat_map(|cpu| ["-cpu", cpu]));
        let files = ["-initrd", "-semihosting-config", "-serial"];
        let pairs = self.extra.chunks(2).filter(|pair| !files.contains(&pair[0]));
        arguments.extend(pairs.flatten());
        let blob = machine::dump(&environment.qemu, self.machine, &arguments)?;
        let fdt = Fdt::new(&blob);
        let fdt = fdt.map_err(|error| anyhow::anyhow!("QEMU's tree cannot be read: {error}"))?;
        let mut tree = DeviceTree::from_fdt(&fdt);
        edit.1(&mut tree);
        Ok(tree.to_dtb())
    }

    fn tree_file(&self) -> PathBuf {
        folder().join(format!("{}.dtb", self.name))
    }
}

/// Where trees and old tools lie.
fn folder() -> PathBuf {
    environment::target_dir().join("matrix")
}

/// Runs a program to its end, and gives what it says.
fn run(command: &mut std::process::Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_a_name_of_its_own_and_says_what_it_is_for() {
        for (place, cell) in CELLS.iter().enumerate() {
            let same = CELLS.iter().skip(place + 1).any(|other| other.name == cell.name);
            assert!(!same && !cell.name.is_empty(), "{}", cell.name);
            assert!(!cell.about.is_empty() && cell.up <= cell.harts, "{}", cell.name);
        }
    }

    #[test]
    fn what_cargo_test_boots_needs_nothing_that_may_not_be_here() {
        let quick = CELLS.iter().filter(|cell| cell.quick);
        assert!(quick.clone().all(|cell| cell.tools == Tools::Own));
        assert!((10..20).contains(&quick.count()));
    }

    #[test]
    fn a_machine_s_boot_is_what_its_row_says() {
        let cell = Cell::named("initrd").expect("it is in the table");
        let boot = cell.boot(Path::new("/kernel"), "test");
        assert_eq!(boot.extra, ["-initrd", "/kernel"]);
        assert!(boot.append.starts_with("test x") && boot.ends_itself);
        let bare =
            Cell::named("bare").expect("it is in the table").boot(Path::new("/kernel"), "test");
        assert!(!bare.ends_itself && bare.extra.contains(&"-dtb".to_owned()));
    }
}
