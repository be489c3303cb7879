//! What several tests of the host's side begin with: a kernel to boot, and xtask to call.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::process::{Command, Output};
use std::sync::OnceLock;

use xtask::environment::{self, Environment};
use xtask::image::{self, Image, Options, Profile};
use xtask::qemu::{Boot, Outcome};

/// What boots are made with.
pub struct Bench {
    pub environment: Environment,
    pub image: Image,
}

/// The environment and the image, found and built once for all tests.
pub fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let environment = environment::require().expect("the tools are there");
        let image =
            image::build(&environment, &Options::new(Profile::Checked)).expect("the image builds");
        Bench { environment, image }
    })
}

/// A boot of that image.
pub fn boot() -> Boot {
    Boot::new(&bench().image.elf)
}

pub fn run(boot: &Boot) -> Outcome {
    boot.run(&bench().environment).expect("QEMU starts")
}

/// Runs xtask with these words.
pub fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output().expect("xtask starts")
}

/// The output of a run that ended with this code.
#[track_caller]
pub fn said(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}\n{complaints}");
    said
}
