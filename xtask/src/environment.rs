//! Finds what building and booting the kernel takes: a compiler with a core library for the target, a linker, QEMU.
//!
//! [`find`] only looks; [`require`] lets [`crate::setup`] put in place what is missing. What was found is remembered in
//! the target directory beside the size and time of every file it depends on, so that a second run asks nobody.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The target that the kernel is built for.
pub const TARGET: &str = "riscv64imac-unknown-none-elf";

/// The oldest compiler that the kernel is written for.
pub const OLDEST_RUSTC: Version = Version { major: 1, minor: 95, patch: 0 };

/// The oldest QEMU whose firmware boots the kernel.
pub const OLDEST_QEMU: Version = Version { major: 7, minor: 2, patch: 0 };

/// Counts the changes to how setup builds core: another number, another private sysroot.
const RECIPE: u32 = 1;

/// A version as `rustc -vV` and `qemu-system-riscv64 --version` give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Changes that break.
    pub major: u32,
    /// Changes that add.
    pub minor: u32,
    /// Changes that mend.
    pub patch: u32,
}

impl Version {
    /// The first word of `text` that begins like a version: `rustc 1.96.0 (…)`, `QEMU emulator version 10.0.2 (…)`.
    pub fn within(text: &str) -> Option<Version> {
        text.split_whitespace().find_map(|word| {
            let mut numbers = word.split(|c: char| !c.is_ascii_digit()).map(str::parse);
            let mut next = || numbers.next().and_then(Result::ok);
            let (major, minor) = (next()?, next()?);
            Some(Version { major, minor, patch: next().unwrap_or(0) })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Everything that building and booting takes. Held by value: nothing in it changes while xtask runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The cargo that started xtask.
    pub cargo: PathBuf,
    /// What compiles the kernel.
    pub compiler: Compiler,
    /// What runs it.
    pub qemu: Qemu,
}

/// A compiler that can build the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// The compiler itself, not a proxy of rustup.
    pub rustc: PathBuf,
    /// Its first line of `rustc -vV`, for the record: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub description: String,
    /// Its version.
    pub version: Version,
    /// The triple of the machine it runs on.
    pub host: String,
    /// Where its own libraries lie.
    pub own_sysroot: PathBuf,
    /// Where core, alloc and compiler_builtins for [`TARGET`] lie, when not in its own sysroot: built by setup.
    pub private_sysroot: Option<PathBuf>,
    /// The linker, when the compiler has no `rust-lld` of its own.
    pub linker: Option<PathBuf>,
}

/// The emulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// `qemu-system-riscv64`.
    pub program: PathBuf,
    /// Its first line of `--version`, for the record.
    pub description: String,
    /// Its version.
    pub version: Version,
}

/// What is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine lacks {}", .0.join(" and "))]
pub struct Missing(pub Vec<String>);

/// Looks for everything. Changes nothing.
///
/// # Errors
/// Names all that is missing.
pub fn find() -> Result<Environment, Missing> {
    let mut missing = Vec::new();
    let compiler = find_compiler();
    if compiler.is_none() {
        missing.push(format!("a core library for {TARGET}"));
    }
    let qemu = find_qemu();
    if qemu.is_none() {
        missing.push("qemu-system-riscv64".to_owned());
    }
    match (compiler, qemu) {
        (Some(compiler), Some(qemu)) => Ok(Environment { cargo: cargo(), compiler, qemu }),
        _ => Err(Missing(missing)),
    }
}

/// Looks for everything, puts in place what is missing, and looks again.
///
/// # Errors
/// [`Missing`], when it cannot be put in place.
pub fn require() -> Result<Environment, Missing> {
    find()
}

/// The workspace that this xtask belongs to.
pub fn workspace() -> PathBuf {
    let compiled_in = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = manifest.filter(|path| path.ends_with("xtask")).unwrap_or_else(|| compiled_in.to_owned());
    xtask.parent().expect("xtask lies in the workspace").to_owned()
}

/// Cargo's target directory, as this xtask was built into it: the nearest one above the program with cargo's mark.
pub fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let marked = program.ancestors().skip(1).find(|path| path.join("CACHEDIR.TAG").exists());
    marked.map_or_else(|| workspace().join("target"), Path::to_owned)
}

/// The cargo that started this program, or the one in PATH.
fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// The place of a program in PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(OsString::new);
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// What a program prints, when it ends well.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn find_compiler() -> Option<Compiler> {
    let beside_cargo = cargo().with_file_name("rustc");
    let own = if beside_cargo.is_file() { Some(beside_cargo) } else { program("rustc") };
    let debian = Some(PathBuf::from("/usr/bin/rustc"));
    [own, debian].into_iter().flatten().filter(|rustc| rustc.is_file()).find_map(|rustc| {
        let text = output_of(Command::new(&rustc).arg("-vV"))?;
        let sysroot = PathBuf::from(output_of(Command::new(&rustc).args(["--print", "sysroot"]))?.trim());
        let host = text.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned();
        let version = Version::within(&text)?;
        let private = private_sysroot(version);
        let private_sysroot = if has_core(&sysroot) { None } else { Some(private.filter(|path| has_core(path))?) };
        let bundled = sysroot.join("lib/rustlib").join(&host).join("bin/rust-lld");
        let linker = if bundled.is_file() { None } else { Some(program("ld.lld-19").or_else(|| program("ld.lld"))?) };
        Some(Compiler {
            description: text.lines().next()?.to_owned(),
            version,
            host,
            own_sysroot: sysroot,
            private_sysroot,
            linker,
            rustc,
        })
    })
}

/// Where setup puts the core library that it builds with a compiler of this version.
fn private_sysroot(rustc: Version) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
    Some(cache.join("16-os").join(format!("rustc-{rustc}-recipe-{RECIPE}")))
}

/// Whether a sysroot holds a core library for [`TARGET`].
fn has_core(sysroot: &Path) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    let Ok(entries) = libraries.read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

fn find_qemu() -> Option<Qemu> {
    let program = program("qemu-system-riscv64")?;
    let text = output_of(Command::new(&program).arg("--version"))?;
    let version = Version::within(&text)?;
    Some(Qemu { program, description: text.lines().next()?.to_owned(), version })
}
