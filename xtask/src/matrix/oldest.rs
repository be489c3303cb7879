//! The oldest QEMU and firmware that Debian 12 has: unpacked from its packages, beside whatever is installed.
//!
//! Nothing is installed. Where the machine's own package sources do not have them, or fetching is forbidden, the boots that
//! want them are not tried, and say so.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NotHere, folder, run};
use crate::environment::{self, Qemu, Version};
use crate::setup::NO_INSTALL;

/// The firmware's package and version: OpenSBI 1.1, which has no debug console.
const FIRMWARE: &[(&str, &str)] = &[("opensbi", "1.1")];
/// QEMU's packages and version.
const QEMU: &[(&str, &str)] = &[
    ("qemu-system-misc", "1:7.2"),
    ("qemu-system-common", "1:7.2"),
    ("qemu-system-data", "1:7.2"),
];

/// The oldest firmware, fetched the first time.
///
/// # Errors
/// [`NotHere`] where it cannot be had.
pub fn firmware() -> anyhow::Result<PathBuf> {
    let unpacked = unpacked("firmware", FIRMWARE)?;
    Ok(unpacked.join("usr/lib/riscv64-linux-gnu/opensbi/generic/fw_dynamic.bin"))
}

/// The oldest QEMU, fetched the first time.
///
/// # Errors
/// [`NotHere`] where it cannot be had, or lacks a library.
pub fn qemu() -> anyhow::Result<Qemu> {
    let unpacked = unpacked("qemu", QEMU)?;
    let program = unpacked.join("usr/bin/qemu-system-riscv64");
    let said = run(Command::new(&program).arg("--version"))
        .map_err(|error| NotHere(format!("the oldest QEMU does not start: {error}")))?;
    let description = said.lines().next().unwrap_or_default().to_owned();
    let version = Version::within(&description)
        .ok_or_else(|| NotHere(format!("what is no version: {description}")))?;
    Ok(Qemu { program, description, version, firmware: None })
}

/// The folder with what these packages hold.
fn unpacked(name: &str, packages: &[(&str, &str)]) -> anyhow::Result<PathBuf> {
    let place = folder().join(name);
    std::fs::create_dir_all(folder())?;
    let _lock = environment::lock(&folder().join("oldest.lock"));
    if place.is_dir() {
        return Ok(place);
    }
    if std::env::var_os(NO_INSTALL).is_some_and(|value| !value.is_empty()) {
        return Err(
            NotHere(format!("{NO_INSTALL} is set, and {name} of Debian 12 is not here")).into()
        );
    }
    let fresh = tempfile::tempdir_in(folder())?;
    for (package, version) in packages {
        fetch(package, version, fresh.path())?;
    }
    std::fs::rename(fresh.keep(), &place)?;
    Ok(place)
}

/// Fetches a package in the newest version that begins like this, and unpacks it.
fn fetch(package: &str, version: &str, to: &Path) -> anyhow::Result<()> {
    let not_here = |why: String| NotHere(format!("{package} {version} cannot be had: {why}"));
    let listed = run(Command::new("apt-cache").args(["madison", package]))
        .map_err(|error| not_here(error.to_string()))?;
    let mut versions = listed.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
    let found = versions
        .find(|found| found.starts_with(version))
        .ok_or_else(|| not_here("no package source has it".to_owned()))?;
    let wanted = format!("{package}={found}");
    anstream::eprintln!(
        "fetching {wanted} with apt-get download: for the oldest QEMU and firmware, nothing is installed"
    );
    run(Command::new("apt-get").args(["download", "--quiet", &wanted]).current_dir(to))
        .map_err(|error| not_here(error.to_string()))?;
    for entry in std::fs::read_dir(to)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&file).arg(to))?;
            std::fs::remove_file(file)?;
        }
    }
    Ok(())
}
