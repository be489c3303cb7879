//! Builds the kernel's image: cargo, then the symbol table, then the proofs about the finished file.
//!
//! The image depends on its sources, the compiler and the flags below, and on nothing else: not on where the workspace
//! or the user's home lies, and not on flags that the user gave cargo for other programs. A build of what was built
//! before starts no program.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::environment::{self, Core, Environment, Lints, Mark, TARGET};
use crate::progress;
use crate::{frames, symbols};

/// The unmapped gap below a boot stack. No function may move the stack pointer by more at once, because this target
/// emits no stack probes.
const STACK_GAP_BYTES: u64 = 4096;

/// The pieces of assembly that set the stack pointer to another stack, and cannot be read as moving it by an amount.
const SETS_STACK_POINTER: &[&str] = &[
    "_start",
    "kernel::trap::trap_vector",
    "kernel::boot::enter_other_hart",
    "kernel::switch::switch",
    "kernel::crash::kinds::emergencystack",
    "kernel::crash::kinds::large_frame",
    "kernel::crash::kinds::set_wild_stack_pointer",
];

/// The two builds from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
pub enum Profile {
    /// With the checkers compiled in: for tests and for use.
    Checked,
    /// Without: for benchmarks.
    Release,
}

impl Profile {
    /// Cargo's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Checked => "checked",
            Profile::Release => "release",
        }
    }
}

/// What to build, and from where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which of the two builds.
    pub profile: Profile,
    /// The kernel crate's features, `checked` apart: that one goes with the profile.
    pub features: Vec<String>,
    /// The workspace to build: this one, or a copy of it.
    pub source: PathBuf,
    /// Where cargo puts what it makes; not shared with another `source`.
    pub target_dir: PathBuf,
    /// Say nothing of the build, and nothing of what the compiler warns of: for kernels that are broken on purpose.
    pub quiet: bool,
    /// Compile in pieces, of which a small change needs few again, instead of as one program: the code is not the same. For
    /// kernels that are broken on purpose, one after the other.
    pub in_pieces: bool,
}

impl Options {
    /// This workspace's kernel with everything that a user sees: self-tests, crashes, benchmarks and the monitor.
    pub fn new(profile: Profile) -> Options {
        Options {
            profile,
            features: ["selftest", "bench", "monitor"].map(str::to_owned).to_vec(),
            source: environment::workspace(),
            target_dir: environment::target_dir().join("kernel"),
            quiet: false,
            in_pieces: false,
        }
    }

    /// The features, the profile's own among them.
    fn all_features(&self) -> String {
        let of_profile = (self.profile == Profile::Checked).then_some("checked");
        let features: Vec<&str> =
            of_profile.into_iter().chain(self.features.iter().map(String::as_str)).collect();
        features.join(",")
    }

    /// The finished image: builds of different features do not overwrite each other.
    fn elf(&self) -> PathBuf {
        let words: Vec<&str> = [self.profile.name()]
            .into_iter()
            .chain(self.features.iter().map(String::as_str))
            .collect();
        self.target_dir.join("images").join(words.join("-")).with_extension("elf")
    }
}

/// A finished image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The ELF file that QEMU boots.
    pub elf: PathBuf,
    /// How it was built.
    pub profile: Profile,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo or the compiler refused; the text is all that they said.
    #[error("cargo does not accept the kernel\n{0}")]
    Compile(String),
    /// The image was built and is not as it has to be.
    #[error("{name}: {text}")]
    Proof {
        /// What was to be proved.
        name: &'static str,
        /// What is wrong.
        text: String,
    },
    /// A file or a program could not be used.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl Error {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        |error| Error::Io { path, error }
    }
}

/// Builds the image, or finds that it is there already. What the compiler warns of goes to standard error.
///
/// # Errors
/// See [`Error`]; an older image is then still in place, and the next call builds again.
pub fn build(environment: &Environment, options: &Options) -> Result<Image, Error> {
    let image = Image { elf: options.elf(), profile: options.profile };
    let stamp = image.elf.with_extension("stamp");
    // Tests run in many processes at once, and each asks for the image.
    let _lock = environment::lock(&options.target_dir.join("image.lock"));
    let inputs = Inputs::new(environment, options)?;
    if inputs.made(&image.elf, &stamp) {
        return Ok(image);
    }
    let make = || {
        let warnings = output(&mut cargo(environment, options, &environment.cargo))?;
        if !options.quiet && !warnings.trim().is_empty() {
            progress::say(warnings.trim_end());
        }
        finish(options, &image.elf)
    };
    if options.quiet {
        make()?;
    } else {
        progress::step(&format!("building the kernel ({})", options.profile.name()), make)?;
    }
    inputs.keep(&image.elf, &stamp)?;
    Ok(image)
}

/// Runs the lints over the kernel crate as `options` would build it, with `level` to say what a finding is:
/// `--deny=warnings`. Gives what they said.
///
/// # Errors
/// [`Error::Compile`] with the findings, when one is an error.
pub fn lint(
    environment: &Environment,
    lints: &Lints,
    options: &Options,
    level: &str,
) -> Result<String, Error> {
    let mut command = cargo(environment, options, &lints.cargo_clippy);
    command.env("CARGO", &environment.cargo).args(["--", level]);
    output(&mut command)
}

/// Makes the finished image out of what cargo built, and proves it sound before it is put in place.
fn finish(options: &Options, elf: &Path) -> Result<(), Error> {
    let built = options.target_dir.join(TARGET).join(options.profile.name()).join("kernel");
    let folder = elf.parent().expect("an image lies in a folder");
    fs::create_dir_all(folder).map_err(Error::of(folder))?;
    let unproved = elf.with_extension("unproved");
    let proof = |name, text: String| Error::Proof { name, text };
    symbols::insert(&built, &unproved)
        .map_err(|error| proof("the symbol table", error.to_string()))?;
    frames::check(&unproved, STACK_GAP_BYTES, SETS_STACK_POINTER)
        .map_err(|error| proof("the stack frames", error.to_string()))?;
    fs::rename(&unproved, elf).map_err(Error::of(elf))
}

/// Runs cargo to its end. Gives what it said on standard error, which is [`Error::Compile`] when it failed.
fn output(command: &mut Command) -> Result<String, Error> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().map_err(Error::of(&program))?;
    let said = without_known_warning(&String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(said) } else { Err(Error::Compile(said)) }
}

/// Takes out what rustc says of each crate for our flag `+relax`: that another compiler may take it otherwise. It asks the linker to shorten
/// calls and changes no program; what the linker made is proved.
fn without_known_warning(said: &str) -> String {
    const KNOWN: &str = "warning: unstable feature specified for `-Ctarget-feature`: `relax`";
    let paragraphs = said.split("\n\n").filter(|paragraph| !paragraph.starts_with(KNOWN));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Cargo, or clippy in cargo's place, for the kernel crate, with nothing of the caller's environment that could change
/// the image.
fn cargo(environment: &Environment, options: &Options, program: &Path) -> Command {
    let subcommand = if program == environment.cargo { "build" } else { "clippy" };
    let mut command = Command::new(program);
    forget_cargo_settings(&mut command);
    command
        .current_dir(&options.source)
        .args([subcommand, "--quiet", "--locked", "--package", "kernel", "--target", TARGET])
        .args(["--profile", options.profile.name(), "--features", &options.all_features()])
        .arg("--target-dir")
        .arg(&options.target_dir)
        .env("RUSTC", &environment.compiler.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", target_flags(environment, &options.source).join("\u{1f}"));
    if options.in_pieces {
        for (setting, value) in [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("INCREMENTAL", "true")] {
            let profile = options.profile.name().to_uppercase();
            command.env(format!("CARGO_PROFILE_{profile}_{setting}"), value);
        }
    }
    command
}

/// Has a child not see how cargo was set up for this process, and for other programs by the user.
pub(crate) fn forget_cargo_settings(command: &mut Command) {
    const KEPT: [&str; 5] =
        ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_TERM_"];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_cargo = text.starts_with("CARGO") && !KEPT.iter().any(|kept| text.starts_with(kept));
        let of_rustc =
            text.starts_with("RUSTC") || text.starts_with("RUSTDOC") || text == "RUSTFLAGS";
        if of_cargo || of_rustc {
            command.env_remove(&name);
        }
    }
    // A wrapper from the user's configuration file would stand between cargo and the compiler that is named to it.
    command.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
}

/// The flags of what is compiled for the target. Build scripts and procedural macros, which run on the host, get none.
fn target_flags(environment: &Environment, source: &Path) -> Vec<String> {
    let Environment { compiler, linker, .. } = environment;
    let mut flags = vec![
        // Backtraces follow them.
        "-Cforce-frame-pointers=yes".to_owned(),
        // The kernel runs where it is linked, and that is in the topmost 2 GiB: addresses are relative to the pc.
        "-Crelocation-model=static".to_owned(),
        "-Ccode-model=medium".to_owned(),
        // A call of what is near is then one instruction, as with every other compiler for RISC-V, whose default this is.
        "-Ctarget-feature=+relax".to_owned(),
        // Backtraces then name the types that a generic function was made for.
        "-Csymbol-mangling-version=v0".to_owned(),
    ];
    if let Core::Private(sysroot) = &compiler.core {
        flags.push(format!("--sysroot={}", sysroot.display()));
    }
    if let Some(linker) = linker {
        flags.extend([
            format!("-Clinker={}", linker.display()),
            "-Clinker-flavor=ld.lld".to_owned(),
        ]);
    }
    // No path of this machine in the image. The last prefix that fits is the one that counts.
    for (folder, name) in renamed_folders(environment, source) {
        flags.push(format!("--remap-path-prefix={}={name}", folder.display()));
    }
    flags
}

/// The folders of this machine that sources lie in, and what the image calls them.
pub(crate) fn renamed_folders(
    environment: &Environment,
    source: &Path,
) -> Vec<(PathBuf, &'static str)> {
    let mut folders = Vec::new();
    if let Some(home) = cargo_home() {
        // A folder for each registry, called after the mirror that the user has it from.
        let registries = home.join("registry/src").read_dir().into_iter().flatten().flatten();
        let registries: Vec<_> = registries.map(|registry| (registry.path(), "/crates")).collect();
        folders.push((home, "/cargo"));
        folders.extend(registries);
    }
    folders.push((environment.compiler.sysroot.join("lib/rustlib/src/rust"), "/rust"));
    folders.push((source.to_owned(), "/16-os"));
    folders
}

fn cargo_home() -> Option<PathBuf> {
    let given = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    given.or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// Everything that an image is made from. Equal inputs give equal images.
#[derive(Serialize)]
struct Inputs<'a> {
    environment: &'a Environment,
    profile: Profile,
    features: String,
    flags: Vec<String>,
    files: BTreeMap<PathBuf, Option<Mark>>,
}

impl Inputs<'_> {
    fn new<'a>(environment: &'a Environment, options: &Options) -> Result<Inputs<'a>, Error> {
        let mut files = BTreeMap::new();
        for name in ["Cargo.toml", "Cargo.lock", ".cargo", "kernel", "lib"] {
            collect(&options.source.join(name), &mut files)?;
        }
        // This program makes a part of the image, too.
        for name in ["image.rs", "symbols.rs", "symbols", "frames.rs"] {
            collect(&environment::workspace().join("xtask/src").join(name), &mut files)?;
        }
        Ok(Inputs {
            environment,
            profile: options.profile,
            features: options.all_features(),
            flags: target_flags(environment, &options.source),
            files,
        })
    }

    /// The inputs and the image that was made from them, as text.
    fn text(&self, elf: &Path) -> Option<String> {
        let made = Mark::of(elf)?;
        serde_json::to_string(&(self, made)).ok()
    }

    /// Whether the image is there and was made from these inputs.
    fn made(&self, elf: &Path, stamp: &Path) -> bool {
        self.text(elf)
            .is_some_and(|text| fs::read_to_string(stamp).is_ok_and(|stamped| stamped == text))
    }

    fn keep(&self, elf: &Path, stamp: &Path) -> Result<(), Error> {
        fs::write(stamp, self.text(elf).unwrap_or_default()).map_err(Error::of(stamp))
    }
}

/// Adds a file, or every file of a folder.
fn collect(path: &Path, files: &mut BTreeMap<PathBuf, Option<Mark>>) -> Result<(), Error> {
    if !path.is_dir() {
        files.insert(path.to_owned(), Mark::of(path));
        return Ok(());
    }
    for entry in path.read_dir().map_err(Error::of(path))? {
        collect(&entry.map_err(Error::of(path))?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_warning_is_taken_out() {
        let known = "warning: unstable feature specified for `-Ctarget-feature`: `relax`\n  |\n  = note: it is";
        let other = "warning: unused variable\n --> kernel/src/main.rs";
        let said = |parts: &[&str]| parts.join("\n\n");
        assert_eq!(without_known_warning(&said(&[known, other, known, ""])), said(&[other, ""]));
        assert_eq!(without_known_warning(other), other);
    }
}
