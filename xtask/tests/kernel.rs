//! The kernel's own tests, each by name: `cargo test` and `cargo nextest run` list them and run them like any other.
//!
//! `LANE::TEST` is a self-test in a boot of its own, so that one that crashes or hangs fails alone; `LANE::crash::KIND`
//! is a deliberate crash, judged by its report and exit code; `LANE::suite` is all self-tests in one boot. The release
//! build runs its suites and crashes too. The image is built first, if it is not there already; which tests there are is
//! read from it without a boot.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use xtask::cases::{Case, Subject, cases};
use xtask::environment::{self, Environment};
use xtask::image::{Image, Profile};
use xtask::lanes::LANES;
use xtask::size;
use xtask::test::{image_with_manifest, log_directory};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => {
            let conclusion = libtest_mimic::run(&arguments, trials);
            if !arguments.list && arguments.filter.is_none() {
                show_size();
            }
            conclusion.exit_code()
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            // As cargo does for a test that failed.
            ExitCode::from(101)
        }
    }
}

/// Shows where the bytes and the lines are, for whoever reads the log of the whole suite.
fn show_size() {
    if let Err(error) = size::run(&size::Arguments { json: false, check: false }) {
        eprintln!("the size cannot be told: {error:#}");
    }
}

fn trials() -> anyhow::Result<Vec<Trial>> {
    let environment = Arc::new(environment::require()?);
    let mut trials = Vec::new();
    for profile in [Profile::Checked, Profile::Release] {
        let (image, manifest) = image_with_manifest(&environment, profile)?;
        let image = Arc::new(image);
        for case in LANES.iter().flat_map(|lane| cases(&manifest, lane, profile)) {
            // Each test alone is a boot each, and harts that take turns are slow: the checked build is the one that looks closer.
            let costly = matches!(case.subject, Subject::Test { .. }) || case.lane.name == "turns";
            // Of the matrix, those machines that show the most.
            let elsewhere = match case.subject {
                Subject::Machine { cell, .. } => !cell.quick || profile == Profile::Release,
                _ => false,
            };
            if !elsewhere && (profile == Profile::Checked || !costly) {
                trials.push(trial(case, Arc::clone(&environment), Arc::clone(&image)));
            }
        }
    }
    Ok(trials)
}

fn trial(case: Case, environment: Arc<Environment>, image: Arc<Image>) -> Trial {
    Trial::test(case.name(), move || {
        let run = case.run(&environment, &image).map_err(Failed::from)?;
        let log = run.save(&log_directory()).map_err(Failed::from)?;
        if run.passed() { Ok(()) } else { Err(Failed::from(run.report(&log))) }
    })
}
