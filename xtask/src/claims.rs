//! `claims`: CLAIMS.md, which says for each claim where it is kept, what checks it and which deliberate fault breaks it.
//!
//! It is made from claims.toml, from the tests and crashes in the image, from the headers of mutants/ and from the results
//! that `mutants --save` left. `--check` holds them against each other: a claim that nothing checks is a wish, a test that
//! checks no claim is noise, and a check that nothing ever broke is a guess.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{eprintln, println};
use anyhow::Context;
use serde::Deserialize;

use crate::environment;
use crate::image::Profile;
use crate::lanes::LANES;
use crate::manifest::{Entry, Manifest};
use crate::matrix::Cell;
use crate::mutants::{self, Killer, Mutant, Row, Saved};
use crate::style::BAD;
use crate::test::image_with_manifest;

/// The file with the matrix's machines.
const MACHINES: &str = "xtask/src/matrix/table.rs";

/// Whether to write or to check.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  cargo run -- claims            writes CLAIMS.md
  cargo run -- claims --check    says what does not fit together, and changes nothing")]
pub struct Arguments {
    /// Writes nothing; fails where a claim has no test or no fault, a test no claim, or CLAIMS.md is out of date
    #[arg(long)]
    pub check: bool,
}

/// Writes CLAIMS.md, or checks it. Problems between claims, tests and faults are shown either way.
///
/// # Errors
/// When the machine lacks something, the kernel cannot be built, or claims.toml or a patch is malformed.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let ledger = Ledger::read()?;
    let mut problems: Vec<String> = ledger.problems().iter().map(ToString::to_string).collect();
    let path = environment::workspace().join("CLAIMS.md");
    let text = ledger.render();
    if !arguments.check {
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
        problems.push("CLAIMS.md is out of date: `cargo run -- claims` writes it".to_owned());
    }
    for problem in &problems {
        eprintln!("{BAD}problem{BAD:#}: {problem}");
    }
    println!("{}, {} problems", ledger.counts(), problems.len());
    Ok(ExitCode::from(u8::from(arguments.check && !problems.is_empty())))
}

/// The problems that `--check` would show, CLAIMS.md's age apart.
///
/// # Errors
/// See [`run`].
pub fn problems() -> anyhow::Result<Vec<String>> {
    let problems = Ledger::read()?.problems();
    Ok(problems.iter().map(ToString::to_string).collect())
}

/// One claim of claims.toml.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    number: u32,
    sentence: String,
    /// The files, relative to the workspace, that keep it.
    kept: Vec<PathBuf>,
    /// Tests on the host that check it: `PACKAGE::TEST`, or `PACKAGE:FILE::TEST` for an integration test.
    #[serde(default)]
    host_tests: Vec<String>,
    /// Machines of the matrix that check it.
    #[serde(default)]
    machines: Vec<String>,
}

/// All of claims.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<Claim>,
}

/// Everything that is known about the claims.
#[derive(Debug)]
struct Ledger {
    claims: Vec<Claim>,
    manifest: Manifest,
    mutants: Vec<Mutant>,
    results: Option<Saved>,
    /// The workspace, in which the files named in claims.toml must be.
    workspace: PathBuf,
}

/// Something that does not fit together.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// Two claims of one number, or a number smaller than the one before.
    Order { number: u32 },
    /// A claim that nothing checks.
    NoTest { number: u32 },
    /// A claim that no fault breaks.
    NoFault { number: u32 },
    /// A claim that is kept nowhere, or in a file that is not there.
    NotKept { number: u32, file: Option<PathBuf> },
    /// A test on the host that is not there.
    NoHostTest { number: u32, test: String },
    /// A test, a crash or a fault of a claim that is not there.
    NoClaim { what: String, number: u32 },
    /// A test that no lane can run.
    NoLane { what: String },
    /// A fault whose test is not one of its claim's.
    OtherTest { mutant: String, number: u32, test: String },
    /// A test that is to be explored with a fault, and is not there or cannot be.
    NotExplored { mutant: String, test: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { number } => {
                write!(formatter, "claim {number} comes after one with the same or a larger number")
            }
            Self::NoTest { number } => write!(formatter, "claim {number} has no test"),
            Self::NoFault { number } => {
                write!(formatter, "claim {number} has no fault in mutants/ that breaks it")
            }
            Self::NotKept { number, file: None } => {
                write!(formatter, "claim {number} does not say where it is kept")
            }
            Self::NotKept { number, file: Some(file) } => {
                write!(
                    formatter,
                    "claim {number} is kept in {}, which is not there",
                    file.display()
                )
            }
            Self::NoHostTest { number, test } => {
                write!(formatter, "claim {number} names the host test {test}, which is not there")
            }
            Self::NoClaim { what, number } => {
                write!(formatter, "{what} is for claim {number}, which is not there")
            }
            Self::NoLane { what } => write!(formatter, "{what} fits no lane, so nothing runs it"),
            Self::OtherTest { mutant, number, test } => write!(
                formatter,
                "mutant {mutant} breaks claim {number}, but must be noticed by {test}, which is not one of its tests"
            ),
            Self::NotExplored { mutant, test } => {
                write!(formatter, "mutant {mutant} explores {test}, which is no self-test for that")
            }
        }
    }
}

impl Ledger {
    fn read() -> anyhow::Result<Self> {
        let environment = environment::require()?;
        let (_, manifest) = image_with_manifest(&environment, Profile::Checked)?;
        let workspace = environment::workspace();
        let path = workspace.join("claims.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let claims: Claims = toml::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(Self {
            claims: claims.claim,
            manifest,
            mutants: mutants::read_all()?,
            results: mutants::read_saved(&mutants::results_file())?,
            workspace,
        })
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut last = 0;
        for claim in &self.claims {
            let number = claim.number;
            if number <= last {
                problems.push(Problem::Order { number });
            }
            last = last.max(number);
            problems.extend(self.problems_of(claim));
        }
        let known: BTreeSet<u32> = self.claims.iter().map(|claim| claim.number).collect();
        for (what, entry) in self.entries() {
            if !known.contains(&entry.claim) {
                let number = entry.claim;
                problems.push(Problem::NoClaim { what: what.clone(), number });
            }
            if !LANES.iter().any(|lane| lane.fits(entry)) {
                problems.push(Problem::NoLane { what });
            }
        }
        for mutant in &self.mutants {
            let number = mutant.claim;
            if !known.contains(&number) {
                problems.push(Problem::NoClaim { what: format!("mutant {}", mutant.name), number });
            } else if !self.checks(number, &mutant.killer) {
                problems.push(Problem::OtherTest {
                    mutant: mutant.name.clone(),
                    number,
                    test: mutant.killer.to_string(),
                });
            }
            if let Some(test) = &mutant.explored
                && !self.can_be_explored(test)
            {
                let (mutant, test) = (mutant.name.clone(), test.clone());
                problems.push(Problem::NotExplored { mutant, test });
            }
        }
        problems
    }

    fn problems_of(&self, claim: &Claim) -> Vec<Problem> {
        let number = claim.number;
        let mut problems = Vec::new();
        if claim.kept.is_empty() {
            problems.push(Problem::NotKept { number, file: None });
        }
        for file in &claim.kept {
            if !self.workspace.join(file).exists() {
                let file = Some(file.clone());
                problems.push(Problem::NotKept { number, file });
            }
        }
        for test in &claim.host_tests {
            if !is_host_test(&self.workspace, test) {
                let test = test.clone();
                problems.push(Problem::NoHostTest { number, test });
            }
        }
        for machine in claim.machines.iter().filter(|name| Cell::named(name).is_none()) {
            let test = format!("matrix::{machine}");
            problems.push(Problem::NoHostTest { number, test });
        }
        let is_unchecked = claim.host_tests.is_empty() && claim.machines.is_empty();
        if is_unchecked && self.entries_of(number).next().is_none() {
            problems.push(Problem::NoTest { number });
        }
        if !self.mutants.iter().any(|mutant| mutant.claim == number) {
            problems.push(Problem::NoFault { number });
        }
        problems
    }

    /// The tests and crashes in the image, by the names that mutants and lists use.
    fn entries(&self) -> impl Iterator<Item = (String, &Entry)> {
        let tests = self.manifest.tests.iter().map(|test| (test.name.clone(), &test.entry));
        let crashes = self
            .manifest
            .crashes
            .iter()
            .map(|crash| (format!("crash::{}", crash.kind), &crash.entry));
        tests.chain(crashes)
    }

    fn entries_of(&self, number: u32) -> impl Iterator<Item = (String, &Entry)> {
        self.entries().filter(move |(_, entry)| entry.claim == number)
    }

    fn can_be_explored(&self, name: &str) -> bool {
        self.manifest.tests.iter().any(|test| test.name == name && !test.entry.flags.unexplored)
    }

    /// Whether a mutant's killer is one of the tests of a claim. The build checks whatever claim it is said to.
    fn checks(&self, number: u32, killer: &Killer) -> bool {
        let name = killer.to_string();
        match killer {
            Killer::Build(_) => true,
            Killer::Test(_) | Killer::Crash(_) => {
                let claims = self.claims.iter().filter(|claim| claim.number == number);
                claims.flat_map(|claim| &claim.machines).any(|machine| *machine == name)
                    || self.entries_of(number).any(|(entry, _)| entry == name)
            }
            Killer::Host { package, target, test } => {
                let package = match target {
                    Some(target) => format!("{package}:{target}"),
                    None => package.clone(),
                };
                let name = format!("{package}::{test}");
                let claims = self.claims.iter().filter(|claim| claim.number == number);
                claims.flat_map(|claim| &claim.host_tests).any(|host| *host == name)
            }
        }
    }

    fn counts(&self) -> String {
        let host: usize = self.claims.iter().map(|claim| claim.host_tests.len()).sum();
        format!(
            "{} claims, {} self-tests, {} crashes, {host} host tests, {} faults",
            self.claims.len(),
            self.manifest.tests.len(),
            self.manifest.crashes.len(),
            self.mutants.len(),
        )
    }

    /// The text of CLAIMS.md.
    fn render(&self) -> String {
        let mut text = format!(
            "<!-- Written by `cargo run -- claims`. Change claims.toml, the tests or mutants/ instead. -->\n\n\
             # Claims\n\n\
             What the kernel says of itself, where that is kept, what checks it, and which deliberate fault breaks it: a\n\
             patch in [mutants/](mutants/README.md), with what noticed it last.\n\n\
             {}.\n",
            self.counts()
        );
        if let Some(results) = &self.results {
            let Saved { toolchain, qemu, .. } = results;
            write!(text, "\nFaults tried with {toolchain} and {qemu}.\n")
                .expect("a String takes everything");
        }
        text += "\n| | Claim | Checked by | Broken by |\n|--:|---|---|---|\n";
        for claim in &self.claims {
            text += &self.render_row(claim);
        }
        text
    }

    fn render_row(&self, claim: &Claim) -> String {
        let kept = claim.kept.iter().map(|file| {
            let file = file.display().to_string();
            link(&file, &file)
        });
        let tests =
            self.entries_of(claim.number).map(|(name, entry)| link(&name, &entry.place.file));
        let host = claim.host_tests.iter().map(|test| format!("`{test}` (host)"));
        let machines = claim.machines.iter();
        let machines = machines.map(|name| link(&format!("matrix::{name}"), MACHINES));
        let faults =
            self.mutants.iter().filter(|mutant| mutant.claim == claim.number).map(|mutant| {
                let patch = format!("mutants/{}.patch", mutant.name);
                format!("{}: {}", link(&mutant.name, &patch), self.result(mutant))
            });
        format!(
            "| {} | {}<br>Kept in {}. | {} | {} |\n",
            claim.number,
            claim.sentence.replace('|', "\\|"),
            kept.collect::<Vec<_>>().join(", "),
            lines(tests.chain(host).chain(machines)),
            lines(faults),
        )
    }

    /// What `mutants --save` found last, in a few words.
    fn result(&self, mutant: &Mutant) -> String {
        let rows = self.results.iter().flat_map(|results| &results.table.mutants);
        match rows.into_iter().find(|row| row.name == mutant.name) {
            None => "not tried".to_owned(),
            Some(Row { killed_by: None, .. }) => "**survived**".to_owned(),
            Some(row) => {
                let mut how = Vec::new();
                if let Some(boots) = row.boots {
                    how.push(format!("in boot {boots}"));
                }
                if let Some(boots) = row.parallel_boots {
                    how.push(format!("in boot {boots} with several harts"));
                }
                if let Some(seeds) = row.seeds {
                    how.push(format!("after {seeds} seeds"));
                }
                if row.model_checker == Some(true) {
                    how.push("by the model checker".to_owned());
                }
                if how.is_empty() {
                    how.push("on the host".to_owned());
                }
                format!("noticed {}", how.join(", "))
            }
        }
    }
}

/// A link whose text is code.
fn link(text: &str, target: &str) -> String {
    format!("[`{text}`]({target})")
}

/// The lines of a table's cell.
fn lines(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join("<br>")
}

/// Whether there is a test function of the last name in `PACKAGE::TEST` or `PACKAGE:FILE::TEST`, in the sources of that
/// package or in that file. It is looked for in the text: asking cargo would build every test of the package first.
fn is_host_test(workspace: &Path, test: &str) -> bool {
    let Some((package, path)) = test.split_once("::") else {
        return false;
    };
    let (package, file) = match package.split_once(':') {
        Some((package, file)) => (package, Some(file)),
        None => (package, None),
    };
    let name = path.rsplit("::").next().unwrap_or(path);
    let function = format!("fn {name}(");
    [workspace.join("lib").join(package), workspace.join(package)]
        .iter()
        .flat_map(|root| match file {
            Some(file) => vec![root.join("tests").join(format!("{file}.rs"))],
            None => rust_files(&root.join("src")),
        })
        .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains(&function)))
}

/// All `.rs` files below a directory; none if it is not there.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .flat_map(|path| match path.extension() {
            _ if path.is_dir() => rust_files(&path),
            Some(extension) if extension == "rs" => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Lane;
    use crate::mutants::{Sort, Table};

    fn mutant(name: &str, claim: u32, killer: Killer) -> Mutant {
        Mutant {
            explored: None,
            name: name.to_owned(),
            claim,
            sort: Sort::Plain,
            killer,
            lanes: vec![Lane::named("icount").unwrap()],
            breaks: String::new(),
            patch: PathBuf::new(),
        }
    }

    fn row(name: &str, killed: bool) -> Row {
        Row {
            name: name.to_owned(),
            claim: 1,
            sort: "plain".to_owned(),
            killed_by: killed.then(|| "frame::double".to_owned()),
            boots: killed.then_some(1),
            seeds: None,
            parallel_boots: None,
            model_checker: None,
        }
    }

    /// A workspace with a source, a host test and an integration test.
    fn workspace() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("kernel/src/frame.rs", "");
        write("lib/symbols/src/lookup.rs", "#[test]\nfn exact() {}\n");
        write("lib/machine/tests/trees.rs", "#[test]\nfn virt() {}\n");
        directory
    }

    /// Two claims without a problem.
    fn ledger(workspace: &Path) -> Ledger {
        let claims: Claims = toml::from_str(
            "[[claim]]\nnumber = 1\nsentence = \"A double free is an error.\"\nkept = [\"kernel/src/frame.rs\"]\n\
             [[claim]]\nnumber = 2\nsentence = \"A lookup is exact.\"\nkept = [\"lib/symbols/src/lookup.rs\"]\n\
             host_tests = [\"symbols::lookup::exact\", \"machine:trees::virt\"]\n",
        )
        .unwrap();
        let manifest = Manifest::parse(
            b"test\tframe::double\t1\t1\t-\tkernel/src/frame.rs:1\n\
              crash\tpanic\t1\t1\t-\tkernel/src/frame.rs:9\tx\t-\n",
        )
        .unwrap();
        let lookup = Killer::Host {
            package: "symbols".to_owned(),
            target: None,
            test: "lookup::exact".to_owned(),
        };
        Ledger {
            claims: claims.claim,
            manifest,
            mutants: vec![
                mutant("no_check", 1, Killer::Test("frame::double".to_owned())),
                mutant("off_by_one", 2, lookup),
            ],
            results: None,
            workspace: workspace.to_owned(),
        }
    }

    /// The only problem after a change to a ledger without any.
    #[track_caller]
    fn problem_after(change: impl FnOnce(&mut Ledger)) -> Problem {
        let workspace = workspace();
        let mut ledger = ledger(workspace.path());
        assert_eq!(ledger.problems(), []);
        change(&mut ledger);
        let mut problems = ledger.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0)
    }

    fn add_test(ledger: &mut Ledger, line: &str) {
        let added = Manifest::parse(line.as_bytes()).unwrap();
        ledger.manifest.tests.extend(added.tests);
    }

    #[test]
    fn a_claim_without_a_test_is_a_problem() {
        let problem = problem_after(|ledger| {
            ledger.claims[1].host_tests.clear();
            ledger.mutants[1].killer = Killer::Build("x".to_owned());
        });
        assert_eq!(problem, Problem::NoTest { number: 2 });
    }

    #[test]
    fn a_claim_without_a_fault_is_a_problem() {
        let problem = problem_after(|ledger| drop(ledger.mutants.remove(0)));
        assert_eq!(problem, Problem::NoFault { number: 1 });
    }

    #[test]
    fn a_claim_that_is_kept_nowhere_is_a_problem() {
        let problem = problem_after(|ledger| ledger.claims[0].kept.clear());
        assert_eq!(problem, Problem::NotKept { number: 1, file: None });
        let gone = PathBuf::from("kernel/src/gone.rs");
        let problem = problem_after(|ledger| ledger.claims[0].kept.push(gone.clone()));
        assert_eq!(problem, Problem::NotKept { number: 1, file: Some(gone) });
    }

    #[test]
    fn a_host_test_that_is_not_there_is_a_problem() {
        for name in [
            "symbols::lookup::gone",
            "nothing::exact",
            "machine:gone::virt",
            "machine::virt",
            "exact",
        ] {
            let problem = problem_after(|ledger| ledger.claims[0].host_tests.push(name.to_owned()));
            assert_eq!(problem, Problem::NoHostTest { number: 1, test: name.to_owned() });
        }
    }

    #[test]
    fn a_test_or_a_fault_of_an_unknown_claim_is_a_problem() {
        let problem = problem_after(|ledger| add_test(ledger, "test\tx\t9\t1\t-\tf:1\n"));
        assert_eq!(problem, Problem::NoClaim { what: "x".to_owned(), number: 9 });
        let problem = problem_after(|ledger| {
            let killer = Killer::Test("frame::double".to_owned());
            ledger.mutants.push(mutant("x", 9, killer));
        });
        assert_eq!(problem, Problem::NoClaim { what: "mutant x".to_owned(), number: 9 });
    }

    #[test]
    fn a_test_that_no_lane_can_run_is_a_problem() {
        let problem = problem_after(|ledger| add_test(ledger, "test\tx\t1\t99\t-\tf:1\n"));
        assert_eq!(problem, Problem::NoLane { what: "x".to_owned() });
    }

    #[test]
    fn what_is_explored_with_a_fault_must_be_there() {
        let problem = problem_after(|ledger| {
            let killer = Killer::Crash("panic".to_owned());
            let explored = Some("gone".to_owned());
            ledger.mutants.push(Mutant { explored, ..mutant("x", 1, killer) });
        });
        assert_eq!(
            problem,
            Problem::NotExplored { mutant: "x".to_owned(), test: "gone".to_owned() }
        );
    }

    #[test]
    fn a_fault_must_be_noticed_by_a_test_of_its_claim() {
        for killer in [
            Killer::Test("gone".to_owned()),
            Killer::Crash("gone".to_owned()),
            Killer::Host {
                package: "symbols".to_owned(),
                target: None,
                test: "lookup::exact".to_owned(),
            },
        ] {
            let problem =
                problem_after(|ledger| ledger.mutants.push(mutant("x", 1, killer.clone())));
            let test = killer.to_string();
            assert_eq!(problem, Problem::OtherTest { mutant: "x".to_owned(), number: 1, test });
        }
        let workspace = workspace();
        let mut ledger = ledger(workspace.path());
        ledger.mutants.push(mutant("x", 1, Killer::Crash("panic".to_owned())));
        ledger.mutants.push(mutant("y", 1, Killer::Build("proof".to_owned())));
        assert_eq!(ledger.problems(), []);
    }

    #[test]
    fn numbers_rise() {
        let problem = problem_after(|ledger| {
            let again = ledger.claims[0].clone();
            ledger.claims.push(again);
        });
        assert_eq!(problem, Problem::Order { number: 1 });
    }

    #[test]
    fn an_unknown_field_in_claims_toml_is_an_error() {
        let text = "[[claim]]\nnumber = 1\nsentence = \"x\"\nkept = []\nhost_test = []\n";
        assert!(toml::from_str::<Claims>(text).is_err());
    }

    #[test]
    fn a_row_shows_where_what_and_the_last_result() {
        let workspace = workspace();
        let mut ledger = ledger(workspace.path());
        ledger.results = Some(Saved {
            toolchain: "rustc 1".to_owned(),
            qemu: "QEMU 2".to_owned(),
            table: Table { mutants: vec![row("no_check", true)] },
        });
        let text = ledger.render();
        assert!(
            text.contains(
                "| 1 | A double free is an error.<br>Kept in [`kernel/src/frame.rs`](kernel/src/frame.rs). | \
                 [`frame::double`](kernel/src/frame.rs)<br>[`crash::panic`](kernel/src/frame.rs) | \
                 [`no_check`](mutants/no_check.patch): noticed in boot 1 |\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "`symbols::lookup::exact` (host)<br>`machine:trees::virt` (host) | \
                 [`off_by_one`](mutants/off_by_one.patch): not tried |\n"
            ),
            "{text}"
        );
        assert!(text.contains("Faults tried with rustc 1 and QEMU 2.\n"), "{text}");
        assert!(
            text.contains("2 claims, 1 self-tests, 1 crashes, 2 host tests, 2 faults.\n"),
            "{text}"
        );
    }

    #[test]
    fn a_survivor_stands_out() {
        let workspace = workspace();
        let mut ledger = ledger(workspace.path());
        ledger.results = Some(Saved {
            table: Table { mutants: vec![row("no_check", false)] },
            ..Saved::default()
        });
        assert!(ledger.render().contains("(mutants/no_check.patch): **survived** |\n"));
    }

    #[test]
    fn a_bar_in_a_sentence_does_not_end_its_cell() {
        let workspace = workspace();
        let mut ledger = ledger(workspace.path());
        ledger.claims[0].sentence = "a | b".to_owned();
        assert!(ledger.render().contains("| a \\| b<br>"));
    }
}
