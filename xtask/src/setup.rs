//! Puts in place what the machine lacks: by rustup where it can download, on Debian and Ubuntu by their packages, and
//! by building the core library from the sources of a compiler that has them.
//!
//! [`plan::decide`] is the policy, a pure function from [`Facts`] to the next step; this module gathers
//! the facts, shows the step, takes it, and asks again. Nothing is fetched from anywhere that the user's own rustup and
//! package sources do not name.

pub mod core_library;
pub mod packages;
pub mod plan;

use std::io::Write;
use std::process::{Command, Stdio};

use crate::environment::{self, Missing, Need, Survey};
use crate::progress;

use packages::{Packages, Sources};
use plan::{Apt, Decision, Facts, Privilege, Step, System};

/// The variable that, when set to anything but nothing, forbids every command that installs something.
pub const NO_INSTALL: &str = "OS16_NO_INSTALL";

/// Puts `needs` in place, as far as they are missing. Shows each command before it runs.
///
/// # Errors
/// [`Missing`], when something cannot be put in place; its advice says why, and which command would.
pub fn put_in_place(needs: &[Need]) -> Result<(), Missing> {
    let mut history = History::default();
    loop {
        let survey = Survey::new();
        let missing: Vec<Need> = needs.iter().copied().filter(|need| survey.lacks(*need)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let facts = gather(&survey, missing, &history);
        match plan::decide(&facts) {
            Decision::Stop(advice) => {
                return Err(Missing { needs: facts.needs, advice });
            }
            Decision::Take(step) => history.take(step, facts.privilege),
        }
    }
}

/// How `needs` could be put in place on this machine, in words: what [`put_in_place`] says where it may do nothing.
pub fn advice(survey: &Survey, needs: &[Need]) -> String {
    plan::advice(&gather(survey, needs.to_vec(), &History::default()))
}

/// What was tried so far.
#[derive(Debug, Default)]
struct History {
    /// Went well, and must therefore not be asked for again.
    done: Vec<Step>,
    /// Went wrong, or went well and changed nothing.
    failed: Vec<Step>,
    /// Whether the package lists are as new as they can be.
    refreshed: bool,
}

impl History {
    fn take(&mut self, step: Step, privilege: Privilege) {
        if self.done.contains(&step) {
            progress::say(&format!(
                "setup: that went well, and did not help: {}",
                step.show(privilege)
            ));
            self.failed.push(step);
            return;
        }
        progress::say(&format!("setup: {}", step.show(privilege)));
        match execute(&step, privilege) {
            Ok(()) => self.succeeded(step),
            Err(why) => {
                progress::say(&format!("setup: that failed: {why}"));
                self.failed.push(step);
            }
        }
    }

    fn succeeded(&mut self, step: Step) {
        match step {
            Step::UpdateLists => {
                self.refreshed = true;
                // What old lists could not install, new ones may.
                self.failed.retain(|step| !matches!(step, Step::Install { .. }));
            }
            Step::AddSource { .. } => {
                self.refreshed = false;
                self.done.retain(|step| *step != Step::UpdateLists);
            }
            Step::AddTarget { .. }
            | Step::AddComponents { .. }
            | Step::Install { .. }
            | Step::BuildCore { .. } => {}
        }
        self.done.push(step);
    }
}

/// Looks at everything that the decision depends on.
fn gather(survey: &Survey, needs: Vec<Need>, history: &History) -> Facts {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = System::new(std::env::consts::OS, &release);
    Facts {
        rustup: rustup_toolchain(survey),
        with_source: survey
            .compilers
            .iter()
            .find(|compiler| compiler.library_source().is_some())
            .cloned(),
        compiler: survey.compiler().cloned(),
        apt: environment::program("apt-get").map(|_| Apt {
            packages: Packages::of_this_machine(),
            sources: Sources::of_this_machine(),
            refreshed: history.refreshed,
        }),
        privilege: privilege(),
        forbidden: std::env::var_os(NO_INSTALL).is_some_and(|value| !value.is_empty()),
        failed: history.failed.clone(),
        system,
        needs,
    }
}

/// The toolchain of the cargo in use, by its name, when rustup manages it.
fn rustup_toolchain(survey: &Survey) -> Option<String> {
    environment::program("rustup")?;
    let home = std::env::var_os("RUSTUP_HOME").map(std::path::PathBuf::from);
    let toolchains = home
        .or_else(|| Some(std::env::home_dir()?.join(".rustup")))?
        .join("toolchains")
        .canonicalize()
        .ok()?;
    let sysroot = survey.compilers.first()?.sysroot.canonicalize().ok()?;
    let name = sysroot.strip_prefix(toolchains).ok()?;
    Some(name.to_str()?.to_owned())
}

/// What this process may do to the machine without asking anybody.
fn privilege() -> Privilege {
    if rustix::process::geteuid().is_root() {
        return Privilege::Root;
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if sudo.status().is_ok_and(|status| status.success()) {
        Privilege::Sudo
    } else {
        Privilege::None
    }
}

/// Takes one step. The error is what went wrong, in a line or a few.
fn execute(step: &Step, privilege: Privilege) -> Result<(), String> {
    progress::step(&step.purpose(), || match (step, step.words(privilege)) {
        (Step::BuildCore { compiler }, _) => {
            core_library::build(compiler).map_err(|error| error.to_string())
        }
        (Step::AddSource { line, .. }, Some(words)) => run(&words, Some(&format!("{line}\n"))),
        (_, words) => run(&words.unwrap_or_default(), None),
    })
}

/// Runs a command to its end, quietly. What it said is part of the error.
fn run(words: &[String], input: Option<&str>) -> Result<(), String> {
    let (program, arguments) = words.split_first().expect("a command has a program");
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let start = |error| format!("{program} does not start: {error}");
    let mut child = command.spawn().map_err(start)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin
            .write_all(input.as_bytes())
            .map_err(|error| format!("{program} does not read: {error}"))?;
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{}: {}", output.status, gist(&String::from_utf8_lossy(&said))))
}

/// What went wrong, out of all that a program said: its first error, else its last line; cut short where it is long.
fn gist(said: &str) -> String {
    const LONGEST: usize = 200;
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.starts_with("error") || line.starts_with("E: ");
    let line =
        lines.clone().find(is_error).or_else(|| lines.next_back()).unwrap_or("it said nothing");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gist_of_a_failure_is_its_first_error_in_one_line() {
        let said =
            "info: downloading\ninfo: rolling back\nerror: could not download\nerror: other\n";
        assert_eq!(gist(said), "error: could not download");
        assert_eq!(
            gist("Reading lists...\nE: Unable to locate package\n"),
            "E: Unable to locate package"
        );
        assert_eq!(gist("one\n\ntwo\n\n"), "two");
        assert_eq!(gist(""), "it said nothing");
        assert_eq!(gist(&"ä".repeat(300)), format!("{}...", "ä".repeat(200)));
    }

    #[test]
    fn new_lists_give_packages_another_chance_and_a_new_source_gives_lists_another() {
        let mut history = History::default();
        let install = Step::Install { packages: vec!["lld"], suite: None };
        let target = Step::AddTarget { toolchain: "stable".to_owned() };
        history.failed.extend([install, target.clone()]);
        history.succeeded(Step::UpdateLists);
        assert_eq!((history.refreshed, &history.failed), (true, &vec![target]));
        history.succeeded(Step::AddSource { suite: String::new(), line: String::new() });
        assert!(!history.refreshed);
        assert!(!history.done.contains(&Step::UpdateLists));
    }
}
