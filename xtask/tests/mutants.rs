//! The deliberate faults, each by name: a fault passes when its test notices it.
//!
//! `plain::NAME` takes one boot. `race::NAME` takes boots until the test fails, up to a bound; `cargo run -- mutants` has
//! more patience. Each is built in a private copy of the workspace under the target directory.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use xtask::environment;
use xtask::mutants::{self, Laboratory, Mutant};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials(&arguments) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("error: {error:#}");
            // As cargo does for a test that failed.
            ExitCode::from(101)
        }
    }
}

fn trials(arguments: &Arguments) -> anyhow::Result<Vec<Trial>> {
    let mutants = mutants::read_all()?;
    if arguments.list {
        // Naming them needs no tools and no copy.
        return Ok(mutants.iter().map(|mutant| Trial::test(name(mutant), || Ok(()))).collect());
    }
    let laboratory = Arc::new(Laboratory::open(environment::require()?)?);
    Ok(mutants
        .into_iter()
        .map(|mutant| {
            let laboratory = Arc::clone(&laboratory);
            Trial::test(name(&mutant), move || {
                let finding = laboratory
                    .examine(&mutant)
                    .map_err(|error| Failed::from(format!("{error:#}")))?;
                if finding.killed() {
                    Ok(())
                } else {
                    let again = format!("again     cargo run -- mutants {}", mutant.name);
                    Err(Failed::from(format!(
                        "{}\n{again}",
                        anstream::adapter::strip_str(&finding.to_string())
                    )))
                }
            })
        })
        .collect())
}

fn name(mutant: &Mutant) -> String {
    format!("{}::{}", mutant.sort.name(), mutant.name)
}
