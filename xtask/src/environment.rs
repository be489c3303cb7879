//! What building and booting the kernel takes: a compiler with a core library for the target, a linker, QEMU with its
//! firmware.
//!
//! [`find`] only looks; [`require`] also lets [`crate::setup`] put in place what is missing. What was found is
//! remembered in the target directory, together with the size and time of each file it depends on, so that a second
//! run starts no program to find it again.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::setup;

/// The target that the kernel is built for.
pub const TARGET: &str = "riscv64imac-unknown-none-elf";

/// The oldest compiler that the kernel is written for.
pub const OLDEST_RUSTC: Version = Version::new(1, 95, 0);

/// The oldest linker that knows the names of RISC-V extensions which today's compilers write into object files.
pub const OLDEST_LLD: Version = Version::new(17, 0, 0);

/// The oldest QEMU that the kernel is tried with.
pub const OLDEST_QEMU: Version = Version::new(7, 2, 0);

/// The oldest QEMU whose firmware offers everything that the kernel can use; older ones work, with fallbacks.
pub const PREFERRED_QEMU: Version = Version::new(8, 2, 0);

/// The firmware that QEMU loads for `-bios default`.
const FIRMWARE: &str = "opensbi-riscv64-generic-fw_dynamic.bin";

/// The names that a gdb which knows RISC-V may have. The last one may know other machines only.
pub const GDBS: [&str; 5] =
    ["gdb-multiarch", "riscv64-unknown-elf-gdb", "riscv64-elf-gdb", "riscv64-linux-gnu-gdb", "gdb"];

/// Counts the changes to how setup builds the core library: another number, another private sysroot.
const RECIPE: u32 = 1;

/// Counts the changes to what is remembered between runs: what another number wrote is not read.
const MEMORY_FORMAT: u32 = 1;

/// A version, as compilers, linkers, emulators and packages give theirs.
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
    /// The version `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// The first word of `text` that begins with two numbers: `rustc 1.96.0 (…)`, `QEMU emulator version 10.0.2 (…)`.
    pub fn within(text: &str) -> Option<Version> {
        text.split_whitespace().find_map(|word| {
            let mut numbers = word.split(|c: char| !c.is_ascii_digit()).map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(Version { major: next()?, minor: next()?, patch: next().unwrap_or(0) })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Everything that building and booting takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The cargo that started xtask.
    pub cargo: PathBuf,
    /// What compiles the kernel.
    pub compiler: Compiler,
    /// Links it, where the compiler has no linker of its own for the target.
    pub linker: Option<PathBuf>,
    /// What runs it.
    pub qemu: Qemu,
}

/// A compiler, and what it has for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// The program itself, not a proxy of rustup.
    pub rustc: PathBuf,
    /// What it says of itself: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub description: String,
    /// Its version.
    pub version: Version,
    /// The triple of the machines it runs on.
    pub host: String,
    /// Where its own libraries lie.
    pub sysroot: PathBuf,
    /// Its core library for [`TARGET`].
    pub core: Core,
}

/// Where a compiler's core library for the kernel's target lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Core {
    /// With the compiler's other libraries: rustup or the distribution put it there.
    Own,
    /// In a sysroot of its own, built by setup from the compiler's sources.
    Private(PathBuf),
    /// Nowhere.
    Absent,
}

/// The emulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    /// `qemu-system-riscv64`.
    pub program: PathBuf,
    /// What it says of itself: `QEMU emulator version 10.0.2 (…)`.
    pub description: String,
    /// Its version.
    pub version: Version,
    /// The firmware it brings; `None` when it would not start for want of it.
    pub firmware: Option<PathBuf>,
}

/// The debugger. Only the command of its name wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gdb {
    /// One of [`GDBS`].
    pub program: PathBuf,
    /// What it says of itself: `GNU gdb (…) 13.1`.
    pub description: String,
}

/// One thing that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A compiler with a core library for [`TARGET`].
    Core,
    /// A linker for it.
    Linker,
    /// QEMU, with firmware.
    Qemu,
    /// The formatter, for the tests of the house's rules.
    Rustfmt,
    /// The lints of the compiler that builds the kernel, for the same tests.
    Clippy,
    /// A gdb that knows RISC-V, for the command of its name and its tests.
    Gdb,
}

impl fmt::Display for Need {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Core => write!(formatter, "a core library for {TARGET}"),
            Need::Linker => write!(
                formatter,
                "a linker for RISC-V (rust-lld, or lld {} or newer)",
                OLDEST_LLD.major
            ),
            Need::Qemu => {
                let Version { major, minor, .. } = OLDEST_QEMU;
                write!(formatter, "qemu-system-riscv64 {major}.{minor} or newer, with its firmware")
            }
            Need::Rustfmt => write!(formatter, "the formatter, rustfmt"),
            Need::Clippy => write!(formatter, "the lints, clippy"),
            Need::Gdb => write!(formatter, "a gdb that knows RISC-V"),
        }
    }
}

/// The machine lacks something. Ends xtask with exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine lacks {}.{advice}", list(needs))]
pub struct Missing {
    /// What is not there.
    pub needs: Vec<Need>,
    /// Why it was not put in place, and how to get it, in lines that each begin with a line break. Empty where nobody
    /// tried.
    pub advice: String,
}

/// `a, b and c`
fn list(needs: &[Need]) -> String {
    let words: Vec<String> = needs.iter().map(Need::to_string).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// All that lies on the machine and could be used, whether or not it is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The cargo that started xtask.
    pub cargo: PathBuf,
    /// The compilers, the preferred one first: cargo's own, then others in PATH. None older than [`OLDEST_RUSTC`].
    pub compilers: Vec<Compiler>,
    /// The newest lld in PATH, or `rust-lld` of one of the compilers.
    pub linker: Option<PathBuf>,
    /// QEMU as found in PATH, perhaps too old.
    pub qemu: Option<Qemu>,
}

impl Survey {
    /// Looks at the machine. Starts each program to ask for its version.
    pub fn new() -> Survey {
        let cargo = cargo();
        let mut compilers: Vec<Compiler> = Vec::new();
        for rustc in own_rustc(&cargo).into_iter().chain(programs("rustc")) {
            let Some(compiler) = Compiler::ask(rustc) else {
                continue;
            };
            let known = compilers.iter().any(|other| other.sysroot == compiler.sysroot);
            if !known && compiler.version >= OLDEST_RUSTC {
                compilers.push(compiler);
            }
        }
        let linker = compilers.iter().find_map(Compiler::own_linker).or_else(newest_lld);
        Survey { cargo, compilers, linker, qemu: Qemu::ask() }
    }

    /// The compiler that builds the kernel: the first that has a core library.
    pub fn compiler(&self) -> Option<&Compiler> {
        self.compilers.iter().find(|compiler| compiler.core != Core::Absent)
    }

    /// The environment, when nothing is missing.
    ///
    /// # Errors
    /// Names everything that is missing.
    pub fn environment(&self) -> Result<Environment, Missing> {
        let compiler = self.compiler();
        let own_linker = compiler.and_then(Compiler::own_linker).is_some();
        let qemu = self
            .qemu
            .as_ref()
            .filter(|qemu| qemu.version >= OLDEST_QEMU && qemu.firmware.is_some());
        let needs = [
            (Need::Core, compiler.is_none()),
            (Need::Linker, self.linker.is_none()),
            (Need::Qemu, qemu.is_none()),
        ];
        let needs: Vec<Need> =
            needs.into_iter().filter_map(|(need, missing)| missing.then_some(need)).collect();
        match (compiler, qemu) {
            (Some(compiler), Some(qemu)) if needs.is_empty() => Ok(Environment {
                cargo: self.cargo.clone(),
                compiler: compiler.clone(),
                linker: if own_linker { None } else { self.linker.clone() },
                qemu: qemu.clone(),
            }),
            _ => Err(Missing { needs, advice: String::new() }),
        }
    }

    /// The formatter.
    pub fn formatter(&self) -> Option<PathBuf> {
        formatter(&self.cargo, self.compiler())
    }

    /// The lints of the compiler that builds the kernel.
    pub fn lints(&self) -> Option<PathBuf> {
        self.compiler()?.companion("cargo-clippy")
    }

    /// Whether the machine lacks `need`.
    pub fn lacks(&self, need: Need) -> bool {
        match need {
            Need::Core | Need::Linker | Need::Qemu => {
                self.environment().is_err_and(|missing| missing.needs.contains(&need))
            }
            Need::Rustfmt => self.formatter().is_none(),
            Need::Clippy => self.lints().is_none(),
            Need::Gdb => Gdb::find().is_none(),
        }
    }
}

impl Default for Survey {
    fn default() -> Survey {
        Survey::new()
    }
}

impl Compiler {
    /// Asks a compiler about itself. `None` when it does not run.
    fn ask(rustc: PathBuf) -> Option<Compiler> {
        let about = output_of(Command::new(&rustc).arg("-vV"))?;
        let sysroot =
            PathBuf::from(output_of(Command::new(&rustc).args(["--print", "sysroot"]))?.trim());
        let description = about.lines().next()?.to_owned();
        let mut compiler = Compiler {
            version: Version::within(&description)?,
            host: about.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned(),
            core: if has_core(&sysroot) { Core::Own } else { Core::Absent },
            rustc,
            description,
            sysroot,
        };
        if compiler.core == Core::Absent
            && let Some(private) = compiler.private_sysroot().filter(|private| has_core(private))
        {
            compiler.core = Core::Private(private);
        }
        Some(compiler)
    }

    /// Where setup puts the core library that it builds for this compiler. `None` on a machine without a home.
    pub fn private_sysroot(&self) -> Option<PathBuf> {
        // The whole description: a core library serves the one build of the compiler that made it.
        let words: Vec<&str> = self
            .description
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .filter(|word| !word.is_empty())
            .collect();
        Some(cache_dir()?.join(format!("{}-recipe-{RECIPE}", words.join("-"))))
    }

    /// The sources of its core library, when they are there.
    pub fn library_source(&self) -> Option<PathBuf> {
        let source = self.sysroot.join("lib/rustlib/src/rust/library");
        source.join("core/src/lib.rs").is_file().then_some(source)
    }

    /// The linker it brings and uses by itself for [`TARGET`].
    pub fn own_linker(&self) -> Option<PathBuf> {
        let linker = self.sysroot.join("lib/rustlib").join(&self.host).join("bin/rust-lld");
        linker.is_file().then_some(linker)
    }

    /// A program that belongs to it: `cargo-clippy`, `cargo-fmt`.
    pub fn companion(&self, name: &str) -> Option<PathBuf> {
        let program = self.rustc.with_file_name(name);
        program.is_file().then_some(program)
    }
}

impl Qemu {
    /// Asks the QEMU in PATH about itself. `None` when there is none that runs.
    fn ask() -> Option<Qemu> {
        let program = program("qemu-system-riscv64")?;
        let description =
            output_of(Command::new(&program).arg("--version"))?.lines().next()?.to_owned();
        let folders = output_of(Command::new(&program).args(["-L", "help"])).unwrap_or_default();
        let firmware = folders
            .lines()
            .map(|folder| Path::new(folder).join(FIRMWARE))
            .find(|file| file.is_file());
        Some(Qemu { version: Version::within(&description)?, program, description, firmware })
    }
}

impl Gdb {
    /// The first of [`GDBS`] in PATH that knows RISC-V.
    pub fn find() -> Option<Gdb> {
        GDBS.into_iter().filter_map(program).find_map(Gdb::ask)
    }

    /// Asks a gdb about itself. `None` when it does not run, or knows other machines only.
    fn ask(program: PathBuf) -> Option<Gdb> {
        let set = "set architecture riscv:rv64";
        // One that does not know it complains, and goes on.
        let answer = output_of(Command::new(&program).args(["-nx", "-batch", "-ex", set]))?;
        if !answer.contains("riscv:rv64") {
            return None;
        }
        let about = output_of(Command::new(&program).args(["-nx", "--version"]))?;
        Some(Gdb { description: about.lines().next()?.to_owned(), program })
    }
}

/// Looks for everything. Changes nothing but what is remembered in the target directory.
///
/// # Errors
/// Names everything that is missing.
pub fn find() -> Result<Environment, Missing> {
    let memory = target_dir().join("environment.json");
    if let Some(environment) = Memory::recall(&memory) {
        return Ok(environment);
    }
    let environment = Survey::new().environment()?;
    Memory::of(&environment).keep(&memory);
    Ok(environment)
}

/// Looks for everything, and puts in place what is missing: see [`setup::put_in_place`].
///
/// # Errors
/// [`Missing`] with advice, when something cannot be put in place.
pub fn require() -> Result<Environment, Missing> {
    if let Ok(environment) = find() {
        return Ok(environment);
    }
    // Tests run in many processes at once, and the first run may be theirs.
    let _lock = lock(&target_dir().join("setup.lock"));
    match find() {
        Ok(environment) => Ok(environment),
        Err(missing) => {
            setup::put_in_place(&missing.needs)?;
            find()
        }
    }
}

/// Looks for gdb, and puts it in place where it is missing.
///
/// # Errors
/// [`Missing`] with advice, when it cannot be put in place.
pub fn require_gdb() -> Result<Gdb, Missing> {
    if let Some(gdb) = Gdb::find() {
        return Ok(gdb);
    }
    let _lock = lock(&target_dir().join("setup.lock"));
    let needs = vec![Need::Gdb];
    setup::put_in_place(&needs)?;
    Gdb::find().ok_or(Missing { needs, advice: String::new() })
}

/// The programs that hold the house's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lints {
    /// `cargo-fmt`.
    pub cargo_fmt: PathBuf,
    /// `cargo-clippy` of the compiler that builds the kernel: another's could not read its core library.
    pub cargo_clippy: PathBuf,
}

/// Looks for the formatter and the lints, and puts in place what is missing.
///
/// # Errors
/// [`Missing`] with advice, when something cannot be put in place.
pub fn require_lints(environment: &Environment) -> Result<Lints, Missing> {
    let Environment { cargo, compiler, .. } = environment;
    let look = || {
        Some(Lints {
            cargo_fmt: formatter(cargo, Some(compiler))?,
            cargo_clippy: compiler.companion("cargo-clippy")?,
        })
    };
    if let Some(lints) = look() {
        return Ok(lints);
    }
    let _lock = lock(&target_dir().join("setup.lock"));
    let needs = vec![Need::Rustfmt, Need::Clippy];
    setup::put_in_place(&needs)?;
    look().ok_or(Missing { needs, advice: String::new() })
}

/// The formatter: any will do, cargo's own first.
fn formatter(cargo: &Path, compiler: Option<&Compiler>) -> Option<PathBuf> {
    let beside_cargo = Some(cargo.with_file_name("cargo-fmt")).filter(|program| program.is_file());
    beside_cargo.or_else(|| compiler?.companion("cargo-fmt"))
}

/// The workspace that this xtask belongs to.
pub fn workspace() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = manifest
        .filter(|path| path.ends_with("xtask"))
        .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    xtask.parent().expect("xtask is a folder of the workspace").to_owned()
}

/// Cargo's target directory that this xtask was built into: the nearest folder above the program with cargo's mark.
pub fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let marked = program.ancestors().skip(1).find(|path| path.join("CACHEDIR.TAG").is_file());
    marked.map_or_else(|| workspace().join("target"), Path::to_owned)
}

/// The place of a program in PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    programs(name).into_iter().next()
}

/// Every place of a program in PATH.
fn programs(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.filter(|file| file.is_file()).collect()
}

/// Holds a lock among all processes of this user that ask for the same file, until the value is dropped. `None` where
/// the file cannot be made or locked: the caller's work is then safe but may be done twice.
pub(crate) fn lock(path: &Path) -> Option<File> {
    fs::create_dir_all(path.parent()?).ok()?;
    let file = File::create(path).ok()?;
    file.lock().ok()?;
    Some(file)
}

/// What a program prints, when it runs and ends well.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cargo that started this program, or the one in PATH.
pub(crate) fn cargo() -> PathBuf {
    let given = std::env::var_os("CARGO").map(PathBuf::from);
    given.or_else(|| program("cargo")).unwrap_or_else(|| PathBuf::from("cargo"))
}

/// The compiler that cargo uses when nobody says another: the one beside it, else the one in PATH.
fn own_rustc(cargo: &Path) -> Option<PathBuf> {
    let beside = cargo.with_file_name("rustc");
    if beside.is_file() { Some(beside) } else { program("rustc") }
}

/// Where this project keeps what it made and can make again: the user's cache directory.
fn cache_dir() -> Option<PathBuf> {
    let given =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(given.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("16-os"))
}

/// The folder of a sysroot with the libraries for [`TARGET`].
pub(crate) fn target_libraries(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib").join(TARGET).join("lib")
}

/// Whether a sysroot holds a core library for [`TARGET`].
fn has_core(sysroot: &Path) -> bool {
    let Ok(entries) = target_libraries(sysroot).read_dir() else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcore-") && name.ends_with(".rlib")
    })
}

/// The newest lld in PATH that is new enough; distributions name them `ld.lld-19`.
fn newest_lld() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found: Vec<(Version, PathBuf)> = Vec::new();
    for entry in
        std::env::split_paths(&path).filter_map(|folder| folder.read_dir().ok()).flatten().flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if (name == "ld.lld" || name.starts_with("ld.lld-") || name == "rust-lld")
            && let Some(text) =
                output_of(Command::new(entry.path()).args(["-flavor", "gnu", "--version"]))
            && let Some(version) = Version::within(&text).filter(|version| *version >= OLDEST_LLD)
        {
            found.push((version, entry.path()));
        }
    }
    found.into_iter().max().map(|(_, linker)| linker)
}

/// What an lld says of itself. `rust-lld` has to be told which linker it is to be.
pub(crate) fn lld_version(linker: &Path) -> Option<String> {
    let text = output_of(Command::new(linker).args(["-flavor", "gnu", "--version"]))?;
    Some(text.lines().next()?.to_owned())
}

/// What [`find`] remembers, and what must be unchanged for it to hold.
#[derive(Serialize, Deserialize)]
struct Memory {
    format: u32,
    /// Where the programs lie, as PATH and cargo say: another answer is another environment.
    programs: Vec<Option<PathBuf>>,
    /// The files that the environment depends on, as they were.
    files: Vec<(PathBuf, Option<Mark>)>,
    environment: Environment,
}

/// A file as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    length: u64,
    modified: SystemTime,
}

impl Mark {
    /// The file as it is; `None` when it is not there.
    pub(crate) fn of(path: &Path) -> Option<Mark> {
        let metadata = fs::metadata(path).ok()?;
        Some(Mark { length: metadata.len(), modified: metadata.modified().ok()? })
    }
}

impl Memory {
    fn of(environment: &Environment) -> Memory {
        let Environment { cargo, compiler, linker, qemu } = environment;
        let sysroot = match &compiler.core {
            Core::Private(sysroot) => sysroot,
            Core::Own | Core::Absent => &compiler.sysroot,
        };
        let mut files = vec![
            cargo.clone(),
            compiler.rustc.clone(),
            target_libraries(sysroot),
            qemu.program.clone(),
        ];
        files.extend(compiler.own_linker());
        files.extend(linker.clone());
        files.extend(qemu.firmware.clone());
        let marked = |file: PathBuf| (Mark::of(&file), file);
        let files = files.into_iter().map(marked).map(|(mark, file)| (file, mark)).collect();
        Memory {
            format: MEMORY_FORMAT,
            programs: Memory::programs(),
            files,
            environment: environment.clone(),
        }
    }

    fn programs() -> Vec<Option<PathBuf>> {
        let cargo = cargo();
        vec![own_rustc(&cargo), Some(cargo), program("qemu-system-riscv64")]
    }

    /// What was remembered, when it still holds. Anything that cannot be read is nothing remembered.
    fn recall(path: &Path) -> Option<Environment> {
        let memory: Memory = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
        let unchanged =
            memory.files.iter().all(|(file, mark)| mark.is_some() && Mark::of(file) == *mark);
        let holds =
            memory.format == MEMORY_FORMAT && memory.programs == Memory::programs() && unchanged;
        holds.then_some(memory.environment)
    }

    /// Remembers. Where that fails the next run looks again, which is slower and not wrong.
    fn keep(&self, path: &Path) {
        let Ok(text) = serde_json::to_string(self) else {
            return;
        };
        let Some(folder) = path.parent() else { return };
        if let Ok(mut file) = tempfile::NamedTempFile::new_in(folder)
            && std::io::Write::write_all(&mut file, text.as_bytes()).is_ok()
        {
            let _ = file.persist(path);
        }
    }
}
