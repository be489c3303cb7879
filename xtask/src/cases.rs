//! A [`Case`] is something that the kernel is booted for and that passes or fails: a self-test, a deliberate crash or
//! the whole suite, in a lane. `cargo test`, `test`, `soak` and `mutants` all run their boots through it.

use std::fmt::Write as _;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::image::{Image, Profile};
use crate::lanes::{Lane, Scope};
use crate::manifest::{Crash, Manifest, Place, Test};
use crate::matrix::{self, Cell, Expected, NotHere};
use crate::qemu::{Boot, Exit, Outcome};
use crate::report;
use crate::verdict::{Expectation, Judgement, Verdict, judge};

/// What the kernel is booted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// One self-test, alone in its boot.
    Test {
        /// Its name.
        name: String,
        /// Where it is registered.
        place: Place,
    },
    /// One deliberate crash.
    Crash {
        /// Which.
        crash: Crash,
        /// Under which circumstances: options for the kernel's command line, such as `cpu=1,masked`, or none.
        options: &'static str,
    },
    /// One self-test, again for each of these seeds, in one boot.
    Seeds {
        /// Its name.
        name: String,
        /// Where it is registered.
        place: Place,
        /// The seeds.
        seeds: Range<u64>,
        /// More words for the kernel's command line, each after a blank.
        more: String,
    },
    /// These self-tests one after the other in one boot: what one leaves behind, the next meets.
    Suite {
        /// Their names.
        names: Vec<String>,
        /// Where the kernel is asked for everything it has: those that it must skip, for want of harts or of a clock that counts
        /// instructions.
        all_but: Option<Vec<String>>,
    },
    /// The suite on a machine of the matrix.
    Machine {
        /// The machine.
        cell: &'static Cell,
        /// The self-tests that fit it.
        names: Vec<String>,
        /// Those that do not.
        all_but: Vec<String>,
    },
}

/// A subject in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The lane.
    pub lane: &'static Lane,
    /// The build of the kernel.
    pub profile: Profile,
    /// What is booted.
    pub subject: Subject,
}

/// The cases of an image in a lane: each self-test, each crash, and the suite if there is a test at all.
pub fn cases(manifest: &Manifest, lane: &'static Lane, profile: Profile) -> Vec<Case> {
    let (fit, unfit): (Vec<_>, Vec<_>) =
        manifest.tests.iter().partition(|test| lane.fits(&test.entry));
    let names = |tests: &[&Test]| {
        let of_the_suite = tests.iter().filter(|test| !test.entry.flags.example);
        of_the_suite.map(|test| test.name.clone()).collect()
    };
    let suite = (!fit.is_empty())
        .then(|| Subject::Suite { names: names(&fit), all_but: Some(names(&unfit)) });
    let tests = fit
        .into_iter()
        .map(|test| Subject::Test { name: test.name.clone(), place: test.entry.place.clone() });
    let crashes =
        manifest.crashes.iter().filter(|crash| lane.fits(&crash.entry)).flat_map(|crash| {
            let options = crash_options(crash, lane);
            options.iter().map(|options| Subject::Crash { crash: crash.clone(), options })
        });
    let alone: Vec<Subject> = match lane.scope {
        Scope::Everything => tests.chain(crashes).collect(),
        Scope::CrashesAndSuite => crashes.collect(),
        Scope::Suite => Vec::new(),
        Scope::Machines => {
            let machine = |cell| Case { lane, profile, subject: machine(manifest, cell) };
            return matrix::CELLS.iter().map(machine).collect();
        }
    };
    alone.into_iter().chain(suite).map(|subject| Case { lane, profile, subject }).collect()
}

/// The suite on a machine.
fn machine(manifest: &Manifest, cell: &'static Cell) -> Subject {
    let fits = |test: &&Test| test.entry.harts <= cell.up && !test.entry.flags.icount;
    let of_the_suite = manifest.tests.iter().filter(|test| !test.entry.flags.example);
    let (fit, unfit): (Vec<_>, Vec<_>) = of_the_suite.partition(fits);
    let names = |tests: &[&Test]| tests.iter().map(|test| test.name.clone()).collect();
    Subject::Machine { cell, names: names(&fit), all_but: names(&unfit) }
}

/// The circumstances under which a crash is tried in a lane. What they are about is other harts, so one hart needs none.
fn crash_options(crash: &Crash, lane: &Lane) -> &'static [&'static str] {
    if lane.harts == 1 || crash.entry.flags.fixed {
        &[""]
    } else {
        &["", "locked", "cpu=1", "cpu=1,masked", "cpu=1,together"]
    }
}

impl Case {
    /// Its name: `icount::frame::double_free_is_an_error`, `smp::crash::panic`, `tcg::suite`; with `release::` before
    /// it for that build.
    pub fn name(&self) -> String {
        let build = match self.profile {
            Profile::Checked => String::new(),
            Profile::Release => "release::".to_owned(),
        };
        format!("{build}{}::{}", self.lane.name, self.subject.name())
    }

    /// The boot that runs it.
    pub fn boot(&self, image: &Path) -> Boot {
        match &self.subject {
            Subject::Machine { cell, .. } => cell.boot(image, &self.subject.command_line()),
            subject => self.lane.boot(image, &subject.command_line()),
        }
    }

    /// What that boot must give.
    pub fn expectation(&self) -> Expectation {
        match &self.subject {
            Subject::Test { name, .. } => {
                Expectation::Tests { ok: vec![name.clone()], skipped: Vec::new() }
            }
            Subject::Seeds { name, seeds, .. } => Expectation::Tests {
                ok: seeds.clone().map(|seed| format!("{name}@{seed}")).collect(),
                skipped: Vec::new(),
            },
            Subject::Machine { cell, names, all_but } => match cell.expected {
                Expected::Suite(reasons) => Expectation::Suite {
                    ok: names.clone(),
                    skipped: all_but.clone(),
                    reasons: reasons.to_vec(),
                },
                Expected::Refusal(sentence) => Expectation::Refusal { sentence },
            },
            Subject::Suite { names, all_but } => Expectation::Tests {
                ok: names.clone(),
                skipped: all_but.clone().unwrap_or_default(),
            },
            Subject::Crash { crash, .. } if crash.entry.flags.hang => {
                Expectation::Hang { frames: crash.frames.clone() }
            }
            Subject::Crash { crash, options } => Expectation::Crash {
                sentence: crash.sentence.clone(),
                frames: crash.frames.clone(),
                report: (!crash.frames.is_empty()).then(|| self.expected_report(crash, options)),
            },
        }
    }

    fn expected_report(&self, crash: &Crash, options: &str) -> report::Expected {
        let flags = &crash.entry.flags;
        let cpu = if options.contains("cpu=1") { 1 } else { 0 };
        let several = flags.fixed || options.contains("together");
        report::Expected {
            cpu: (!several).then_some(cpu),
            harts: self.lane.harts,
            locked: options == "locked" || crash.kind == "lockedpanic",
            stopped: self.lane.icount && !flags.fixed,
            whole: !flags.cut,
        }
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        let build = match self.profile {
            Profile::Checked => "",
            Profile::Release => " --profile release",
        };
        let lane = self.lane.name;
        if let Subject::Seeds { name, seeds, .. } = &self.subject {
            let Range { start, end } = seeds;
            return match end - start {
                1 => format!("cargo run -- explore --lane {lane} --replay {start} {name}"),
                _ => format!("cargo run -- explore --lane {lane} --seeds {start}..{end} {name}"),
            };
        }
        let subject = self.subject.name();
        format!("cargo run -- test --exact {subject} --lane {lane}{build}")
    }

    /// Whether it is a crash that the kernel reports.
    pub fn ends_in_a_report(&self) -> bool {
        matches!(&self.subject, Subject::Crash { crash, .. } if !crash.entry.flags.hang)
    }

    /// What the kernel says just before it hangs on purpose; none if it must come to an end.
    fn endless_from(&self) -> Option<&str> {
        match &self.subject {
            Subject::Crash { crash, .. } if crash.entry.flags.hang => Some(&crash.sentence),
            _ => None,
        }
    }

    /// Boots it once and judges how that ended.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run(&self, environment: &Environment, image: &Image) -> anyhow::Result<Run> {
        self.run_boot(environment, self.boot(&image.elf))
    }

    /// Like [`run`](Self::run), with a boot that was changed in a way that changes nothing of what it must give.
    ///
    /// # Errors
    /// When QEMU cannot be started.
    pub fn run_boot(&self, environment: &Environment, boot: Boot) -> anyhow::Result<Run> {
        if let Subject::Machine { cell, .. } = &self.subject {
            return self.run_on(cell, environment, boot);
        }
        let outcome = match self.endless_from() {
            None => boot.run(environment)?,
            // Waiting for the time-out would show no more than stopping it there.
            Some(text) => boot.run_watched(environment, until_said(text))?,
        };
        let judgement = judge(&outcome, &self.expectation());
        Ok(Run { case: self.clone(), boot, outcome, judgement })
    }

    /// Boots on a machine of the matrix, with a tree and tools of its own.
    fn run_on(&self, cell: &Cell, environment: &Environment, boot: Boot) -> anyhow::Result<Run> {
        let (environment, firmware) = match cell.prepare(environment) {
            Ok(prepared) => prepared,
            Err(error) if error.is::<NotHere>() => {
                let judgement =
                    Judgement { verdict: Verdict::NotTried(error.to_string()), tests: Vec::new() };
                return Ok(Run { case: self.clone(), boot, outcome: Outcome::none(), judgement });
            }
            Err(error) => return Err(error),
        };
        let boot = Boot { firmware, ..boot };
        let outcome = boot.run(&environment)?;
        let judgement = judge(&outcome, &self.expectation());
        Ok(Run { case: self.clone(), boot, outcome, judgement })
    }
}

impl Subject {
    /// Its name in a list: `frame::double_free_is_an_error`, `crash::panic`, `suite`.
    pub fn name(&self) -> String {
        match self {
            Self::Test { name, .. } => name.clone(),
            Self::Seeds { name, seeds, .. } => format!("{name}@{}..{}", seeds.start, seeds.end),
            Self::Crash { crash, options: "" } => format!("crash::{}", crash.kind),
            Self::Crash { crash, options } => format!("crash::{},{options}", crash.kind),
            Self::Suite { .. } => "suite".to_owned(),
            Self::Machine { cell, .. } => cell.name.to_owned(),
        }
    }

    /// The kernel's command line that asks for it.
    pub fn command_line(&self) -> String {
        match self {
            Self::Test { name, .. } => format!("test only={name}"),
            Self::Seeds { name, seeds, more, .. } => {
                format!("test only={name} seeds={}..{}{more}", seeds.start, seeds.end)
            }
            Self::Suite { all_but: Some(_), .. } | Self::Machine { .. } => "test".to_owned(),
            Self::Suite { names, .. } => format!("test only={}", names.join(",")),
            Self::Crash { crash, options: "" } => format!("crash={} report=json", crash.kind),
            Self::Crash { crash, options } => {
                format!("crash={},{options} report=json", crash.kind)
            }
        }
    }

    fn place(&self) -> Option<&Place> {
        match self {
            Self::Test { place, .. } | Self::Seeds { place, .. } => Some(place),
            Self::Crash { crash, .. } => Some(&crash.entry.place),
            Self::Suite { .. } | Self::Machine { .. } => None,
        }
    }

    /// What must happen, in words.
    fn expected(&self) -> String {
        match self {
            Self::Test { name, .. } => {
                format!(
                    "the line `test {name} ... ok`, a last line `verdict: pass: ...`, exit code 0"
                )
            }
            Self::Seeds { name, seeds, .. } => format!(
                "the line `test {name}@SEED ... ok` for each seed of {}..{}, exit code 0",
                seeds.start, seeds.end
            ),
            Self::Suite { names, .. } => format!(
                "each of {} tests reported `ok` once, a last line `verdict: pass: ...`, exit code 0",
                names.len()
            ),
            Self::Machine { cell, .. } => match cell.expected {
                Expected::Suite(reasons) => format!(
                    "each test `ok`, or skipped for one of these reasons: {}; a last line `verdict: pass: ...`",
                    reasons.join(", ")
                ),
                Expected::Refusal(sentence) => {
                    format!("a last line `verdict: refused: ...` with `{sentence}`, exit code 5")
                }
            },
            Self::Crash { crash, .. } if crash.entry.flags.hang => format!(
                "no end after it says `{}`, and in the host's diagnosis the frames {}",
                crash.sentence,
                crash.frames.join(", ")
            ),
            Self::Crash { crash, .. } => format!(
                "a last line `verdict: crash: ...` with `{}`, a backtrace with {}, exit code 3",
                crash.sentence,
                if crash.frames.is_empty() {
                    "any frames".to_owned()
                } else {
                    crash.frames.join(", then ")
                }
            ),
        }
    }
}

/// A boot of a case, and how it ended.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was run.
    pub case: Case,
    /// With what.
    pub boot: Boot,
    /// What it gave.
    pub outcome: Outcome,
    /// What that means.
    pub judgement: Judgement,
}

impl Run {
    /// Whether it did what it should.
    pub fn passed(&self) -> bool {
        self.judgement.verdict.passed()
    }

    /// How QEMU ended, in words.
    pub fn exit(&self) -> String {
        match &self.outcome.exit {
            Exit::Code(code) => format!("code {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
            Exit::TimedOut { .. } => "hung".to_owned(),
            Exit::AtVerdict => "ended when the verdict was out".to_owned(),
        }
    }

    /// What the kernel said, without the firmware's banner.
    pub fn output(&self) -> String {
        without_banner(&self.outcome.output).replace('\r', "")
    }

    /// Everything that is known about it: for a log file.
    pub fn log(&self) -> String {
        let mut log = format!(
            "case:    {}\nresult:  {}\nexit:    {}\nboot:    {}\n",
            self.case.name(),
            self.judgement.verdict,
            self.exit(),
            self.boot.command_line(),
        );
        self.write_output(&self.outcome.output, &mut log);
        log
    }

    /// What a person needs who sees it fail: what was wrong, what belonged there, how to see it again, and the output.
    pub fn report(&self, log: &Path) -> String {
        let subject = &self.case.subject;
        let result = match &self.judgement.verdict {
            Verdict::Wrong(reasons) => reasons.join("\n          "),
            verdict => verdict.to_string(),
        };
        let mut report = format!("result    {result}\nexpected  {}\n", subject.expected());
        let mut field = |name: &str, value: &str| {
            writeln!(report, "{name:8}  {value}").expect("a String takes everything");
        };
        if let Some(place) = subject.place() {
            field("written", &format!("in {place}"));
        }
        field("again", &self.case.command());
        field("QEMU", &self.boot.command_line());
        field("log", &log.display().to_string());
        self.write_output(without_banner(&self.outcome.output), &mut report);
        report
    }

    fn write_output(&self, serial: &str, text: &mut String) {
        let mut part = |title: &str, content: &str| {
            let content = content.replace('\r', "");
            let content = content.trim_end_matches('\n');
            if !content.is_empty() {
                writeln!(text, "--- {title} ---\n{content}").expect("a String takes everything");
            }
        };
        part("serial output", serial);
        if let Exit::TimedOut { diagnosis } = &self.outcome.exit {
            part("where every hart was when it was killed", diagnosis);
        }
        part("QEMU's own messages", &self.outcome.messages);
    }

    /// Writes the log into `directory`, under the case's name. Gives the file's path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, directory: &Path) -> std::io::Result<PathBuf> {
        self.save_as(directory, &self.case.name().replace("::", "."))
    }

    /// Writes the log into `directory` as `NAME.log`. Gives the file's path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_as(&self, directory: &Path, name: &str) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join(format!("{name}.log"));
        std::fs::write(&path, self.log())?;
        Ok(path)
    }
}

/// A boot's watcher that has seen enough once `text` was said.
fn until_said(text: &str) -> impl FnMut(&[u8]) -> ControlFlow<()> {
    let mut said = Vec::new();
    move |piece| {
        said.extend_from_slice(piece);
        // The text can come in pieces.
        if said.windows(text.len()).any(|window| window == text.as_bytes()) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The output from the kernel's own first line on, if it came so far: what the firmware says before is long, and the same
/// each time.
fn without_banner(output: &str) -> &str {
    let start = output.find("\n16-os ").map_or(0, |end| end + 1);
    &output[start..]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn manifest() -> Manifest {
        Manifest::parse(
            b"test\ta::b\t1\t1\t-\tkernel/src/a.rs:1\n\
              test\ta::exact\t1\t1\ticount\tkernel/src/a.rs:2\n\
              test\ta::harts\t2\t4\t-\tkernel/src/a.rs:3\n\
              crash\tpanic\t3\t1\t-\tkernel/src/c.rs:1\tpanicked\touter,inner\n",
        )
        .unwrap()
    }

    fn lane(name: &str) -> &'static Lane {
        Lane::named(name).unwrap()
    }

    fn names(lane_name: &str) -> Vec<String> {
        let cases = cases(&manifest(), lane(lane_name), Profile::Checked);
        cases.iter().map(Case::name).collect()
    }

    fn case(lane_name: &str, subject: &str) -> Case {
        cases(&manifest(), lane(lane_name), Profile::Checked)
            .into_iter()
            .find(|case| case.subject.name() == subject)
            .unwrap()
    }

    fn run(subject: &str, output: &str, exit: Exit) -> Run {
        let case = case("tcg", subject);
        let outcome = Outcome {
            output: output.to_owned(),
            messages: String::new(),
            exit,
            duration: Duration::ZERO,
        };
        Run {
            boot: case.boot(Path::new("kernel")),
            judgement: judge(&outcome, &case.expectation()),
            case,
            outcome,
        }
    }

    #[test]
    fn every_lane_lists_what_fits_it() {
        assert_eq!(
            names("icount"),
            ["icount::a::b", "icount::a::exact", "icount::crash::panic", "icount::suite"]
        );
        assert_eq!(names("tcg"), ["tcg::a::b", "tcg::crash::panic", "tcg::suite"]);
        assert_eq!(
            names("smp"),
            [
                "smp::a::b",
                "smp::a::harts",
                "smp::crash::panic",
                "smp::crash::panic,locked",
                "smp::crash::panic,cpu=1",
                "smp::crash::panic,cpu=1,masked",
                "smp::crash::panic,cpu=1,together",
                "smp::suite"
            ]
        );
    }

    #[test]
    fn the_release_build_is_named() {
        let cases = cases(&manifest(), lane("tcg"), Profile::Release);
        assert_eq!(cases[0].name(), "release::tcg::a::b");
    }

    #[test]
    fn an_image_without_tests_has_no_suite() {
        assert!(cases(&Manifest::default(), lane("tcg"), Profile::Checked).is_empty());
    }

    fn expected(case: &Case) -> (Vec<String>, Vec<String>) {
        match case.expectation() {
            Expectation::Tests { ok, skipped } => (ok, skipped),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_kernel_is_asked_for_exactly_what_is_expected() {
        let append = |lane, subject| case(lane, subject).boot(Path::new("kernel")).append;
        assert_eq!(append("tcg", "a::b"), "test only=a::b");
        assert_eq!(append("tcg", "crash::panic"), "crash=panic report=json");
        assert_eq!(expected(&case("tcg", "a::b")), (vec!["a::b".to_owned()], vec![]));
    }

    #[test]
    fn a_suite_asks_for_everything_and_the_kernel_skips_what_it_must() {
        let suite = case("icount", "suite");
        assert_eq!(suite.boot(Path::new("kernel")).append, "test");
        let ok = vec!["a::b".to_owned(), "a::exact".to_owned()];
        assert_eq!(expected(&suite), (ok, vec!["a::harts".to_owned()]));
        let suite = case("smp", "suite");
        assert_eq!(suite.boot(Path::new("kernel")).append, "test");
        let ok = vec!["a::b".to_owned(), "a::harts".to_owned()];
        assert_eq!(expected(&suite), (ok, vec!["a::exact".to_owned()]));
    }

    #[test]
    fn a_failures_report_says_what_where_and_how_to_see_it_again() {
        let run = run("a::b", "hello\r\nverdict: pass\r\n", Exit::Code(3));
        assert!(!run.passed());
        let report = run.report(Path::new("target/logs/x.log"));
        for part in [
            "the exit code is 3 (crash)",
            "expected  the line `test a::b ... ok`",
            "in kernel/src/a.rs:1",
            "cargo run -- test --exact a::b --lane tcg\n",
            "qemu-system-riscv64 ",
            "target/logs/x.log",
            "--- serial output ---\nhello\nverdict: pass\n",
        ] {
            assert!(report.contains(part), "`{part}` is missing in:\n{report}");
        }
    }

    #[test]
    fn a_report_leaves_out_what_the_firmware_says_and_the_log_keeps_it() {
        let output = "OpenSBI v1.5\n\n16-os 0.1.0\nverdict: pass\n";
        let run = run("a::b", output, Exit::Code(3));
        let report = run.report(Path::new("x"));
        assert!(report.contains("--- serial output ---\n16-os 0.1.0\n"), "{report}");
        assert!(run.log().contains("OpenSBI v1.5\n"));
        // A kernel that did not come so far: then the firmware's words are all there is.
        assert_eq!(without_banner("OpenSBI v1.5\n"), "OpenSBI v1.5\n");
    }

    #[test]
    fn a_hangs_log_has_the_diagnosis() {
        let exit = Exit::TimedOut { diagnosis: "CPU 0 is at".to_owned() };
        let run = run("a::b", "", exit);
        assert!(run.log().contains("\nexit:    hung\n"), "{}", run.log());
        assert!(run.log().contains("was killed ---\nCPU 0 is at\n"));
    }

    #[test]
    fn a_boot_that_must_hang_is_watched_until_it_says_so() {
        let mut watch = until_said("never ends");
        assert_eq!(watch(b"this boot nev"), ControlFlow::Continue(()));
        assert_eq!(watch(b"er end"), ControlFlow::Continue(()));
        assert_eq!(watch(b"s\n"), ControlFlow::Break(()));
        let mut hang = case("tcg", "crash::panic");
        assert_eq!(hang.endless_from(), None);
        if let Subject::Crash { crash, .. } = &mut hang.subject {
            crash.entry.flags.hang = true;
        }
        assert_eq!(hang.endless_from(), Some("panicked"));
    }

    #[test]
    fn a_log_is_saved_under_the_cases_name() {
        let directory = tempfile::tempdir().unwrap();
        let run = run("crash::panic", "", Exit::Code(0));
        let path = run.save(&directory.path().join("logs")).unwrap();
        assert!(path.ends_with("logs/tcg.crash.panic.log"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), run.log());
    }
}
