//! Builds the kernel's image: cargo, then the symbol table, then the proofs about the finished file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::environment::{self, Environment, TARGET};

/// The two builds from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
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
    /// The kernel crate's features, `checked` apart: the profile sets that one.
    pub features: Vec<String>,
    /// The workspace to build: this one, or a copy of it.
    pub source: PathBuf,
    /// Where cargo puts what it makes; not shared with another `source`.
    pub target_dir: PathBuf,
}

impl Options {
    /// This workspace's kernel with everything a user sees: self-tests, crashes and the monitor.
    pub fn new(profile: Profile) -> Options {
        Options {
            profile,
            features: ["selftest", "monitor"].map(str::to_owned).to_vec(),
            source: environment::workspace(),
            target_dir: environment::target_dir().join("kernel"),
        }
    }
}

/// A finished image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The ELF file that QEMU boots.
    pub elf: PathBuf,
    /// How it was built.
    pub profile: Profile,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo or the compiler refused; the text is what they said.
    #[error("the kernel does not compile\n{0}")]
    Compile(String),
    /// A file or a program could not be used.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

/// Builds the image, or finds that nothing changed.
///
/// # Errors
/// See [`Error`].
pub fn build(environment: &Environment, options: &Options) -> Result<Image, Error> {
    let mut command = cargo(environment, options, "build");
    command.stdout(Stdio::null()).stdin(Stdio::null());
    let output = command.output().map_err(|error| Error::Io(environment.cargo.display().to_string(), error))?;
    if !output.status.success() {
        return Err(Error::Compile(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let elf = options.target_dir.join(TARGET).join(options.profile.name()).join("kernel");
    Ok(Image { elf, profile: options.profile })
}

/// `cargo SUBCOMMAND` for the kernel crate, with nothing of the caller's environment that could change the image.
fn cargo(environment: &Environment, options: &Options, subcommand: &str) -> Command {
    let compiler = &environment.compiler;
    let mut command = Command::new(&environment.cargo);
    forget_cargo_settings(&mut command);
    let mut features = options.features.join(",");
    if options.profile == Profile::Checked {
        features.push_str(",checked");
    }
    command
        .current_dir(&options.source)
        .args([subcommand, "--locked", "--package", "kernel", "--target", TARGET, "--profile", options.profile.name()])
        .args(["--features", &features])
        .arg("--target-dir")
        .arg(&options.target_dir)
        .env("RUSTC", &compiler.rustc)
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        .env("CARGO_ENCODED_RUSTFLAGS", target_flags(environment, &options.source).join("\u{1f}"));
    command
}

/// Flags of the target's compilations; none of build scripts and procedural macros, which run on the host.
fn target_flags(environment: &Environment, source: &Path) -> Vec<String> {
    let compiler = &environment.compiler;
    let mut flags = ["-Cforce-frame-pointers=yes", "-Crelocation-model=static", "-Ccode-model=medium"].map(str::to_owned).to_vec();
    if let Some(sysroot) = &compiler.private_sysroot {
        flags.push(format!("--sysroot={}", sysroot.display()));
    }
    if let Some(linker) = &compiler.linker {
        flags.push(format!("-Clinker={}", linker.display()));
    }
    flags.push(format!("--remap-path-prefix={}/=", source.display()));
    flags
}

/// Takes away what cargo reads from the environment and what cargo set for xtask itself.
pub(crate) fn forget_cargo_settings(command: &mut Command) {
    const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_TERM_"];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let cargos = name.starts_with("CARGO") && !KEPT.iter().any(|kept| name.starts_with(kept));
        if cargos || name.starts_with("RUSTC") || name.starts_with("RUSTDOC") || name == "RUSTFLAGS" {
            command.env_remove(&*name);
        }
    }
}
