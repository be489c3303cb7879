//! The deliberate faults, each by name: a fault passes when its test notices it.
//!
//! `plain::NAME` takes one boot. `race::NAME` takes boots until the test fails, up to a bound, and is ignored unless asked for
//! with `-- --ignored`; `cargo run -- mutants` has more patience. Each is built in a private copy of the workspace under the target directory.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use xtask::environment;
use xtask::mutants::{self, Laboratory, Mutant, Sort};

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
        return Ok(mutants.iter().map(|mutant| trial(mutant, || Ok(()))).collect());
    }
    let laboratory = Arc::new(Laboratory::open(environment::require()?)?);
    Ok(mutants
        .into_iter()
        .map(|mutant| {
            let laboratory = Arc::clone(&laboratory);
            let examined = mutant.clone();
            trial(&mutant, move || {
                let mutant = examined;
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

/// Races show by chance, so whether they are noticed within a bound is a rate and no verdict: they run when asked for.
fn trial(mutant: &Mutant, examine: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    let name = format!("{}::{}", mutant.sort.name(), mutant.name);
    Trial::test(name, examine).with_ignored_flag(mutant.sort == Sort::Race)
}
