//! Builds core, alloc and compiler_builtins for the kernel's target, from the sources that a distribution packs with
//! its compiler, into a sysroot of their own in the user's cache directory.
//!
//! It takes cargo's `-Zbuild-std` to do so, which a stable compiler allows to those who set `RUSTC_BOOTSTRAP`: the
//! same switch that the compiler's own build uses for its own library. The kernel is built without it. Nothing is
//! fetched: the crates that the library depends on are packed with its sources. The libraries' bytes do not depend on
//! where they were built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{self, Compiler, TARGET};
use crate::image;

/// The crates that make up the sysroot.
const LIBRARIES: [&str; 3] = ["core", "alloc", "compiler_builtins"];

/// Why there is no core library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The compiler came without the library's sources.
    #[error("no sources of the core library beside {}", .0.display())]
    NoSource(PathBuf),
    /// The user has no home and thus no cache directory.
    #[error("no home directory to keep the core library in")]
    NoHome,
    /// A file could not be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Cargo or the compiler refused.
    #[error("cargo: {0}")]
    Cargo(String),
    /// The build went well, but did not make this library.
    #[error("cargo made no library {0}")]
    NoLibrary(&'static str),
}

/// The build's arguments for cargo, in `folder`, with the sources of the compiler.
fn arguments(source: &Path, folder: &Path) -> Vec<String> {
    let mut arguments = ["build", "--quiet", "--release", "--offline", "-Zbuild-std=core,alloc"]
        .map(str::to_owned)
        .to_vec();
    arguments.push("-Zbuild-std-features=compiler-builtins-mem".to_owned());
    arguments.extend(["--target".to_owned(), TARGET.to_owned()]);
    arguments.extend(["--target-dir".to_owned(), folder.join("target").display().to_string()]);
    arguments.extend(["--config".to_owned(), "source.crates-io.replace-with='library'".to_owned()]);
    let vendor = source.join("vendor");
    arguments.extend([
        "--config".to_owned(),
        format!("source.library.directory='{}'", vendor.display()),
    ]);
    arguments
}

/// Builds the library for `compiler` and puts it where [`Compiler::private_sysroot`] says.
///
/// # Errors
/// See [`Error`]; whatever was there before is then unchanged.
pub fn build(compiler: &Compiler) -> Result<(), Error> {
    build_in(compiler, &compiler.private_sysroot().ok_or(Error::NoHome)?)
}

/// Builds the library for `compiler` and makes it the folder `sysroot`.
///
/// # Errors
/// See [`Error`]; whatever was there before is then unchanged.
pub fn build_in(compiler: &Compiler, sysroot: &Path) -> Result<(), Error> {
    let source =
        compiler.library_source().ok_or_else(|| Error::NoSource(compiler.rustc.clone()))?;
    let cache = sysroot.parent().expect("the sysroot is a folder in the cache");
    let of = |path: &Path| {
        let path = path.to_owned();
        |error| Error::File { path, error }
    };
    fs::create_dir_all(cache).map_err(of(cache))?;
    // In the cache too, so that the finished sysroot is renamed and never copied: it is there whole, or not at all.
    let folder =
        tempfile::Builder::new().prefix("building-").tempdir_in(cache).map_err(of(cache))?;
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).map_err(of(&file))
    };
    write(
        "Cargo.toml",
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[workspace]\n",
    )?;
    write("lib.rs", "#![no_std]\n")?;

    let flags = [
        // Without frame pointers a backtrace would skip the function that panicked.
        "-Cforce-frame-pointers=yes".to_owned(),
        // The kernel is optimised as a whole, with its libraries.
        "-Cembed-bitcode=yes".to_owned(),
        format!("--remap-path-prefix={}=/rust/library", source.display()),
        format!("--remap-path-prefix={}=/rust/build", folder.path().display()),
    ];
    let mut command = Command::new(environment::cargo());
    image::forget_cargo_settings(&mut command);
    command
        .current_dir(folder.path())
        .args(arguments(&source, folder.path()))
        .env("RUSTC", &compiler.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let output = command.output().map_err(of(Path::new(command.get_program())))?;
    if !output.status.success() {
        return Err(Error::Cargo(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }

    let finished = folder.path().join("sysroot");
    let libraries = environment::target_libraries(&finished);
    fs::create_dir_all(&libraries).map_err(of(&libraries))?;
    let built = folder.path().join("target").join(TARGET).join("release/deps");
    let files: Vec<PathBuf> =
        built.read_dir().map_err(of(&built))?.flatten().map(|entry| entry.path()).collect();
    for library in LIBRARIES {
        let prefix = format!("lib{library}-");
        let is_it = |file: &&PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".rlib")
        };
        let file = files.iter().find(is_it).ok_or(Error::NoLibrary(library))?;
        let name = file.file_name().expect("a file of a folder has a name");
        fs::rename(file, libraries.join(name)).map_err(of(file))?;
    }
    match fs::rename(&finished, sysroot) {
        // Another process was faster, with the same bytes.
        Err(_) if sysroot.is_dir() => Ok(()),
        result => result.map_err(of(sysroot)),
    }
}
