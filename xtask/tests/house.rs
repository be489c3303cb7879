//! The rules of the house: the source is formatted and passes the lints, each claim has its tests and faults, and the
//! image depends on nothing but its sources and its compiler.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use xtask::environment::{self, Environment, Lints, Version};
use xtask::image::{self, Options, Profile};
use xtask::{claims, progress};

/// The newest compiler whose lints this tree is known to pass. A newer one may have new lints: those are shown, but
/// fail nobody's tests.
const NEWEST_LINTS: Version = Version::new(1, 96, u32::MAX);

#[test]
fn the_source_is_formatted() {
    let (environment, lints) = require();
    let mut command = Command::new(&lints.cargo_fmt);
    command
        .args(["fmt", "--all", "--", "--check", "--files-with-diff"])
        .current_dir(environment::workspace());
    command
        .env("CARGO", &environment.cargo)
        .env("RUSTFMT", lints.cargo_fmt.with_file_name("rustfmt"));
    let output = command.output().expect("the formatter starts");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`cargo fmt` would change these files:\n{said}");
}

#[test]
fn the_hosts_crates_pass_the_lints() {
    let (environment, lints) = require();
    let mut command = Command::new(&lints.cargo_clippy);
    command.args([
        "clippy",
        "--quiet",
        "--locked",
        "--workspace",
        "--exclude",
        "kernel",
        "--all-targets",
    ]);
    command
        .arg("--target-dir")
        .arg(environment::target_dir().join("lints"))
        .args(["--", &strictness(&environment)]);
    command.env("CARGO", &environment.cargo).env("RUSTC", &environment.compiler.rustc);
    let output = command.current_dir(environment::workspace()).output().expect("the lints start");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    show_what_new_lints_say(&environment, &said);
}

#[test]
fn the_kernel_passes_the_lints() {
    let (environment, lints) = require();
    // The largest image, the smallest, and the one with the benchmarks: nothing is unused in any.
    let everything = Options::new(Profile::Checked);
    let nothing = Options { features: Vec::new(), ..Options::new(Profile::Release) };
    let benchmarks = Options { features: vec!["bench".to_owned()], ..nothing.clone() };
    for options in [everything, nothing, benchmarks] {
        let said = image::lint(&environment, &lints, &options, &strictness(&environment));
        show_what_new_lints_say(&environment, &said.unwrap_or_else(|error| panic!("{error}")));
    }
}

#[test]
fn the_image_is_the_same_in_another_folder() {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let source = folder.path().join("a copy of the workspace");
    copy(&environment::workspace(), &source).expect("the workspace can be copied");
    let here = Options::new(Profile::Checked);
    let elsewhere = Options { source, target_dir: folder.path().join("target"), ..here.clone() };
    let [here, elsewhere] = [here, elsewhere].map(|options| {
        let image = image::build(&environment, &options).unwrap_or_else(|error| panic!("{error}"));
        fs::read(image.elf).expect("the image can be read")
    });
    let first_difference = here.iter().zip(&elsewhere).position(|(one, other)| one != other);
    assert_eq!(first_difference, None, "the images differ from this byte on");
    assert_eq!(here.len(), elsewhere.len(), "one image is longer than the other");
}

#[test]
fn the_image_names_no_folder_of_this_machine() {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let image = image::build(&environment, &Options::new(Profile::Checked))
        .unwrap_or_else(|error| panic!("{error}"));
    let bytes = fs::read(image.elf).expect("the image can be read");
    let mut folders = vec![
        environment::workspace(),
        environment::target_dir(),
        environment.compiler.sysroot.join("lib"),
    ];
    folders.extend(std::env::home_dir());
    for folder in folders {
        let name = folder.as_os_str().as_encoded_bytes();
        let found = bytes.windows(name.len()).position(|window| window == name);
        assert_eq!(found, None, "the image names {} at this byte", folder.display());
    }
}

#[test]
fn each_claim_has_its_tests_and_faults() {
    let check = claims::Arguments { check: true };
    let code = claims::run(&check).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(
        code,
        ExitCode::SUCCESS,
        "`cargo run -- claims --check` says what does not fit together"
    );
}

fn require() -> (Environment, Lints) {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let lints =
        environment::require_lints(&environment).unwrap_or_else(|missing| panic!("{missing}"));
    (environment, lints)
}

/// What a lint's finding is: an error, when the lint is one that this tree knows of.
fn strictness(environment: &Environment) -> String {
    let level = if environment.compiler.version <= NEWEST_LINTS {
        "--deny=warnings"
    } else {
        "--cap-lints=warn"
    };
    level.to_owned()
}

fn show_what_new_lints_say(environment: &Environment, said: &str) {
    if !said.trim().is_empty() {
        progress::say(&format!(
            "the lints of {}, which are newer than this tree:\n{said}",
            environment.compiler.description
        ));
    }
}

/// Copies a folder without what git and cargo keep in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in from.read_dir()? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if !path.is_dir() {
            fs::copy(&path, &target)?;
        } else if entry.file_name() != ".git" && !path.join("CACHEDIR.TAG").exists() {
            copy(&path, &target)?;
        }
    }
    Ok(())
}
