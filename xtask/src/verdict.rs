//! The [`Verdict`] on a boot: what [`judge`] makes of the serial output and QEMU's exit code.
//!
//! It believes a pass only where everything says so: QEMU ended by itself with code 0, the output ends with a whole
//! line `verdict: pass`, and each test that was asked for reported `ok`, once. The exit code and the last line come to
//! the host on different ways, so where they disagree that is a failure of its own, which names both: it is how a
//! kernel that ran on after its exit write is found out.

use std::collections::HashMap;
use std::fmt;

use crate::qemu::{Exit, Outcome};
use crate::report::{self, Report};

/// What a boot was started for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// The demo: whatever tests it runs must not fail.
    Demo,
    /// Somebody at the monitor, who had it run and say whatever they liked: only the end counts.
    Session,
    /// Self-tests, and no others.
    Tests {
        /// Those that must hold.
        ok: Vec<String>,
        /// Those that must be skipped, because the machine has too few harts for them.
        skipped: Vec<String>,
    },
    /// All self-tests, on a machine that may lack something.
    Suite {
        /// Those that must hold, or be skipped for one of the reasons.
        ok: Vec<String>,
        /// Those that must be skipped.
        skipped: Vec<String>,
        /// The reasons that there are on this machine, in the kernel's words: each must be given.
        reasons: Vec<&'static str>,
    },
    /// That the kernel refuses the machine.
    Refusal {
        /// What the verdict's sentence must contain.
        sentence: &'static str,
    },
    /// A crash with a report.
    Crash {
        /// What the verdict's sentence must contain.
        sentence: String,
        /// Parts of function names that the backtrace must show, in this order.
        frames: Vec<String>,
        /// What must hold of the report; none where it fails itself.
        report: Option<report::Expected>,
    },
    /// No end at all: the host's time-out and its diagnosis.
    Hang {
        /// Parts of function names that the diagnosis must show, in this order.
        frames: Vec<String>,
    },
}

/// How a boot ended, held against what it was started for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it was expected. A boot that was to crash, and did so as described, has passed.
    Passed,
    /// Self-tests failed, and the kernel said so.
    Failed(Vec<Failure>),
    /// The kernel crashed and reported it, with this sentence.
    Crashed(String),
    /// The kernel refused the machine, for this reason.
    Refused(String),
    /// The kernel did not end, and was killed.
    Hung,
    /// Something does not fit together: what, in a sentence each.
    Wrong(Vec<String>),
    /// It was not booted, because this host lacks what that takes.
    NotTried(String),
}

/// A self-test that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The test.
    pub test: String,
    /// What it said.
    pub why: String,
}

/// What a boot said of one self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestResult {
    /// It held.
    Ok,
    /// It failed, for this reason.
    Failed(String),
    /// This machine lacks what it needs: this.
    Skipped(String),
}

/// What is to be read from a boot's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// How it ended.
    pub verdict: Verdict,
    /// What it said of each self-test, in the order in which they ran.
    pub tests: Vec<(String, TestResult)>,
}

impl Verdict {
    /// Whether the boot did what it was started for.
    pub fn passed(&self) -> bool {
        *self == Self::Passed
    }

    /// The exit code of a command that ends with this verdict.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Passed | Self::NotTried(_) => 0,
            Self::Failed(_) | Self::Wrong(_) => 1,
            Self::Crashed(_) => 3,
            Self::Hung => 4,
            Self::Refused(_) => 5,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(formatter, "passed"),
            Self::Failed(failures) => {
                for (index, Failure { test, why }) in failures.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(formatter, "{separator}{test} failed: {why}")?;
                }
                Ok(())
            }
            Self::Crashed(sentence) => write!(formatter, "the kernel crashed: {sentence}"),
            Self::Refused(why) => write!(formatter, "the kernel refused the machine: {why}"),
            Self::Hung => write!(formatter, "the kernel hung and was killed"),
            Self::NotTried(why) => write!(formatter, "not tried: {why}"),
            Self::Wrong(reasons) => write!(formatter, "{}", reasons.join("; ")),
        }
    }
}

/// The kernel's own words on how it ended: the line that begins with `verdict: `.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed<'a> {
    Pass(Option<&'a str>),
    Fail(Option<&'a str>),
    Crash(&'a str),
    Refused(&'a str),
}

impl<'a> Claimed<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let words = line.strip_prefix("verdict: ")?;
        match words.split_once(": ") {
            None if words == "pass" => Some(Self::Pass(None)),
            Some(("pass", counts)) => Some(Self::Pass(Some(counts))),
            None if words == "fail" => Some(Self::Fail(None)),
            Some(("fail", counts)) => Some(Self::Fail(Some(counts))),
            Some(("crash", sentence)) => Some(Self::Crash(sentence)),
            Some(("refused", why)) => Some(Self::Refused(why)),
            _ => None,
        }
    }

    /// The exit code that belongs to it.
    fn code(self) -> i32 {
        match self {
            Self::Pass(_) => 0,
            Self::Fail(_) => 1,
            Self::Crash(_) => 3,
            Self::Refused(_) => 5,
        }
    }
}

/// Judges how a boot ended.
pub fn judge(outcome: &Outcome, expectation: &Expectation) -> Judgement {
    let output = Output::read(&outcome.output);
    let verdict = match &outcome.exit {
        Exit::TimedOut { diagnosis } => output.judge_hang(diagnosis, expectation),
        Exit::Signal(signal) => Verdict::Wrong(vec![format!("QEMU was ended by signal {signal}")]),
        Exit::Code(code) => output.judge_end(Some(*code), expectation),
        Exit::AtVerdict => output.judge_end(None, expectation),
    };
    Judgement {
        verdict,
        tests: output.tests.into_iter().map(|(name, result)| (name.to_owned(), result)).collect(),
    }
}

/// The output of a boot, taken apart.
struct Output<'a> {
    lines: Vec<&'a str>,
    tests: Vec<(&'a str, TestResult)>,
    /// What is wrong with the form of the output, whatever it says.
    complaints: Vec<String>,
}

impl<'a> Output<'a> {
    fn read(text: &'a str) -> Self {
        // The firmware's console may put a carriage return before each line feed.
        let lines: Vec<&str> = text.split('\n').map(|line| line.trim_end_matches('\r')).collect();
        let mut tests = Vec::new();
        let mut complaints = Vec::new();
        for line in lines.iter().filter(|line| line.starts_with("test ")) {
            match parse_test_line(line) {
                Some(test) => tests.push(test),
                None => complaints.push(format!("the line `{line}` is no test's result")),
            }
        }
        let mut seen = HashMap::new();
        for (name, _) in &tests {
            *seen.entry(*name).or_insert(0) += 1;
        }
        for (name, _) in &tests {
            if let Some(count @ 2..) = seen.remove(name) {
                complaints.push(format!("{name} was reported {count} times"));
            }
        }
        Self { lines, tests, complaints }
    }

    /// The verdict line, which must be the last, whole, and the only one.
    fn claimed(&self) -> Result<(Claimed<'a>, &'a str), String> {
        let Some((&rest, whole)) = self.lines.split_last() else {
            return Err("there is no output".to_owned());
        };
        if !rest.is_empty() {
            return Err(format!("the output breaks off within the line `{rest}`"));
        }
        let Some(&last) = whole.last() else {
            return Err("there is no output".to_owned());
        };
        let Some(claimed) = Claimed::parse(last) else {
            return Err(format!("the last line is no verdict: `{last}`"));
        };
        let count = whole.iter().filter(|line| line.starts_with("verdict: ")).count();
        if count > 1 {
            return Err(format!("there are {count} verdicts"));
        }
        Ok((claimed, last))
    }

    fn judge_hang(&self, diagnosis: &str, expectation: &Expectation) -> Verdict {
        let Expectation::Hang { frames } = expectation else {
            return Verdict::Hung;
        };
        match missing_frame(frames, diagnosis.lines()) {
            None => Verdict::Passed,
            Some(frame) => Verdict::Wrong(vec![format!(
                "it hung as it should, but the diagnosis lacks the frame `{frame}` where it belongs"
            )]),
        }
    }

    /// Of a boot that came to its end: with this exit code, or without one on a machine that has none to give.
    fn judge_end(&self, code: Option<i32>, expectation: &Expectation) -> Verdict {
        let (claimed, line) = match self.claimed() {
            Ok(claimed) => claimed,
            Err(complaint) => {
                let code = code.map_or("none".to_owned(), describe);
                let complaint = format!("{complaint} (exit code {code})");
                return Verdict::Wrong([vec![complaint], self.complaints.clone()].concat());
            }
        };
        if let Some(code) = code
            && code != claimed.code()
        {
            let complaint = format!(
                "the exit code is {}, but the last line `{line}` goes with {}",
                describe(code),
                describe(claimed.code()),
            );
            return Verdict::Wrong([vec![complaint], self.complaints.clone()].concat());
        }
        match (claimed, expectation) {
            (Claimed::Crash(sentence), Expectation::Crash { .. }) => {
                self.judge_crash(sentence, expectation)
            }
            (Claimed::Refused(why), Expectation::Refusal { sentence })
                if why.contains(sentence) =>
            {
                Verdict::Passed
            }
            (Claimed::Crash(sentence), _) => Verdict::Crashed(sentence.to_owned()),
            (Claimed::Pass(_), Expectation::Session) => Verdict::Passed,
            (Claimed::Fail(_), Expectation::Session) => Verdict::Failed(Vec::new()),
            (Claimed::Refused(why), _) => Verdict::Refused(why.to_owned()),
            (
                Claimed::Pass(_) | Claimed::Fail(_),
                Expectation::Crash { .. } | Expectation::Hang { .. },
            ) => Verdict::Wrong(vec![format!(
                "it should not have come to an end of its own, but said `{line}`"
            )]),
            (Claimed::Pass(_) | Claimed::Fail(_), Expectation::Refusal { .. }) => Verdict::Wrong(
                vec![format!("it should have refused the machine, but said `{line}`")],
            ),
            (Claimed::Pass(counts) | Claimed::Fail(counts), _) => {
                let failed = matches!(claimed, Claimed::Fail(_));
                self.judge_tests(failed, counts, expectation)
            }
        }
    }

    fn judge_crash(&self, found: &str, expectation: &Expectation) -> Verdict {
        let Expectation::Crash { sentence, frames, report } = expectation else {
            unreachable!("the caller matched it");
        };
        let mut complaints = self.complaints.clone();
        if !found.contains(sentence) {
            complaints.push(format!("it crashed with `{found}`, where `{sentence}` belongs"));
        }
        let backtrace = self
            .lines
            .iter()
            .skip_while(|line| !line.trim_start().starts_with("backtrace"))
            .copied();
        if let Some(frame) = missing_frame(frames, backtrace) {
            complaints.push(format!(
                "the backtrace lacks the frame `{frame}` where it belongs (all of them: {})",
                frames.join(", ")
            ));
        }
        if let Some(expected) = report {
            match Report::find(&self.lines) {
                Ok(report) => complaints.extend(report.complaints(
                    expected,
                    found,
                    frames.first().map(String::as_str),
                )),
                Err(complaint) => complaints.push(complaint),
            }
        }
        if complaints.is_empty() { Verdict::Passed } else { Verdict::Wrong(complaints) }
    }

    fn judge_tests(
        &self,
        said_to_fail: bool,
        counts: Option<&str>,
        expectation: &Expectation,
    ) -> Verdict {
        let mut complaints = self.complaints.clone();
        let mut failures = Vec::new();
        let (mut passed, mut skipped) = (0_usize, 0_usize);
        for (name, result) in &self.tests {
            match result {
                TestResult::Ok => passed += 1,
                TestResult::Skipped(_) => skipped += 1,
                TestResult::Failed(why) => {
                    failures.push(Failure { test: (*name).to_owned(), why: why.clone() })
                }
            }
        }
        let asked = match expectation {
            Expectation::Tests { ok, skipped } => Some((ok, skipped, &[][..])),
            Expectation::Suite { ok, skipped, reasons } => Some((ok, skipped, &reasons[..])),
            _ => None,
        };
        if let Some((ok, skipped, reasons)) = asked {
            // A run may end with the first failure.
            for name in ok.iter().chain(skipped).filter(|_| failures.is_empty()) {
                if !self.tests.iter().any(|(found, _)| found == name) {
                    complaints.push(format!("{name} was asked for and not reported"));
                }
            }
            for (found, result) in &self.tests {
                let must_be_skipped = skipped.iter().any(|name| name == found);
                match result {
                    _ if !must_be_skipped && !ok.iter().any(|name| name == found) => {
                        complaints.push(format!("{found} was reported and not asked for"));
                    }
                    TestResult::Skipped(why) if reasons.contains(&why.as_str()) => {}
                    TestResult::Skipped(why) if !must_be_skipped => complaints.push(format!(
                        "{found} was skipped, on a machine that has what it needs: {why}"
                    )),
                    TestResult::Ok if must_be_skipped => complaints
                        .push(format!("{found} says `ok`, on a machine with too few harts for it")),
                    _ => {}
                }
            }
            for reason in reasons {
                let given = |(_, result): &(_, TestResult)| matches!(result, TestResult::Skipped(why) if why == reason);
                if !self.tests.iter().any(given) {
                    complaints.push(format!("no test was skipped because {reason}"));
                }
            }
            if counts.is_none() {
                complaints.push("the verdict does not count the tests".to_owned());
            }
        }
        let counted = format!("{passed} passed, {} failed, {skipped} skipped", failures.len());
        if let Some(counts) = counts
            && counts != counted
        {
            complaints
                .push(format!("the verdict counts `{counts}`, the lines before it `{counted}`"));
        }
        if said_to_fail == failures.is_empty() {
            complaints.push(format!(
                "the verdict says that {}, the lines before it `{counted}`",
                if said_to_fail { "a test failed" } else { "all passed" }
            ));
        }
        if !complaints.is_empty() {
            Verdict::Wrong(complaints)
        } else if !failures.is_empty() {
            Verdict::Failed(failures)
        } else {
            Verdict::Passed
        }
    }
}

/// An exit code and what it stands for.
fn describe(code: i32) -> String {
    let meaning = match code {
        0 => "pass",
        1 => "a test failed",
        3 => "crash",
        5 => "machine refused",
        _ => return format!("{code} (which the kernel never uses)"),
    };
    format!("{code} ({meaning})")
}

/// Reads `test NAME ... ok`, `test NAME ... FAILED: why` or `test NAME ... skipped: why`.
fn parse_test_line(line: &str) -> Option<(&str, TestResult)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    if name.is_empty() || name.contains(' ') {
        return None;
    }
    let result = match result.split_once(": ") {
        None if result == "ok" => TestResult::Ok,
        Some(("FAILED", why)) => TestResult::Failed(why.to_owned()),
        Some(("skipped", why)) => TestResult::Skipped(why.to_owned()),
        _ => return None,
    };
    Some((name, result))
}

/// The first of `frames` that no line shows after the lines that show those before it.
fn missing_frame<'a, 'b>(
    frames: &'a [String],
    mut lines: impl Iterator<Item = &'b str>,
) -> Option<&'a str> {
    frames.iter().find(|frame| !lines.any(|line| line.contains(frame.as_str()))).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(output: &str, exit: Exit) -> Outcome {
        Outcome {
            output: output.to_owned(),
            exit,
            messages: String::new(),
            duration: Duration::ZERO,
        }
    }

    fn verdict(output: &str, code: i32, expectation: &Expectation) -> Verdict {
        judge(&outcome(output, Exit::Code(code)), expectation).verdict
    }

    fn tests(names: &[&str]) -> Expectation {
        Expectation::Tests {
            ok: names.iter().map(|&name| name.to_owned()).collect(),
            skipped: Vec::new(),
        }
    }

    fn crash() -> Expectation {
        Expectation::Crash {
            sentence: "load page fault".to_owned(),
            frames: vec!["touch".to_owned(), "first_thread".to_owned()],
            report: None,
        }
    }

    /// Asserts that the verdict is `Wrong` and that one of its reasons contains `part`.
    #[track_caller]
    fn assert_wrong(verdict: &Verdict, part: &str) {
        match verdict {
            Verdict::Wrong(reasons) if reasons.iter().any(|reason| reason.contains(part)) => {}
            other => panic!("expected a complaint with `{part}`, got {other:?}"),
        }
    }

    const ONE_OK: &str = "hello\ntest a::b ... ok\nverdict: pass: 1 passed, 0 failed, 0 skipped\n";
    const CRASH: &str = "dying\nbacktrace:\n  0 kernel::touch+0x4\n  1 core::panic\n  \
                         2 kernel::first_thread+0x10\nverdict: crash: load page fault at 0x8\n";

    #[test]
    fn a_pass_is_code_0_and_the_verdict_and_every_test_ok() {
        let judgement = judge(&outcome(ONE_OK, Exit::Code(0)), &tests(&["a::b"]));
        assert_eq!(judgement.verdict, Verdict::Passed);
        assert_eq!(judgement.tests, [("a::b".to_owned(), TestResult::Ok)]);
    }

    #[test]
    fn a_machine_lacks_what_its_row_says_and_nothing_else() {
        let suite = |reasons: &[&'static str]| Expectation::Suite {
            ok: vec!["a::b".to_owned(), "a::c".to_owned()],
            skipped: Vec::new(),
            reasons: reasons.to_vec(),
        };
        let output = "test a::b ... ok\ntest a::c ... skipped: no UART\n\
                      verdict: pass: 1 passed, 0 failed, 1 skipped\n";
        assert_eq!(verdict(output, 0, &suite(&["no UART"])), Verdict::Passed);
        for (reasons, complaint) in [
            (&["no UART", "no clock"][..], "no test was skipped because no clock"),
            (&[], "a::c was skipped, on a machine that has what it needs: no UART"),
        ] {
            let wrong = Verdict::Wrong(vec![complaint.to_owned()]);
            assert_eq!(verdict(output, 0, &suite(reasons)), wrong);
        }
    }

    #[test]
    fn a_refusal_that_was_expected_passes_for_its_reason_only() {
        let expected = Expectation::Refusal { sentence: "no memory" };
        assert_eq!(verdict("verdict: refused: no memory at all\n", 5, &expected), Verdict::Passed);
        let other = Verdict::Refused("no hart".to_owned());
        assert_eq!(verdict("verdict: refused: no hart\n", 5, &expected), other);
        assert!(!verdict("verdict: refused: no memory\n", 0, &expected).passed());
        assert!(!verdict("verdict: pass: 0 passed, 0 failed, 0 skipped\n", 0, &expected).passed());
    }

    #[test]
    fn without_an_exit_code_the_verdict_alone_decides() {
        let outcome = |text| outcome(text, Exit::AtVerdict);
        assert!(judge(&outcome("verdict: pass\n"), &Expectation::Demo).verdict.passed());
        let crashed = judge(&outcome("verdict: crash: bang\n"), &Expectation::Demo).verdict;
        assert_eq!(crashed, Verdict::Crashed("bang".to_owned()));
    }

    #[test]
    fn carriage_returns_of_the_firmware_change_nothing() {
        let output = ONE_OK.replace('\n', "\r\n");
        assert_eq!(verdict(&output, 0, &tests(&["a::b"])), Verdict::Passed);
    }

    #[test]
    fn the_demo_passes_with_and_without_tests() {
        assert_eq!(verdict("hello\nverdict: pass\n", 0, &Expectation::Demo), Verdict::Passed);
        assert_eq!(verdict(ONE_OK, 0, &Expectation::Demo), Verdict::Passed);
    }

    #[test]
    fn of_a_session_only_the_end_counts() {
        let said = "test [NAME]   runs self-tests\ntest a::b ... FAILED: x\ntest a::b ... ok\n";
        let session =
            |end: &str, code| verdict(&format!("{said}{end}"), code, &Expectation::Session);
        assert_eq!(session("verdict: pass\n", 0), Verdict::Passed);
        assert_eq!(session("verdict: fail: 1 self-tests\n", 1), Verdict::Failed(Vec::new()));
        assert_wrong(&session("verdict: pass\n", 1), "the exit code is 1");
        assert_wrong(&session("", 0), "no verdict");
    }

    #[test]
    fn a_code_that_disagrees_with_the_last_line_names_both() {
        for code in [1, 2, 3, 5, 127] {
            assert_wrong(
                &verdict(ONE_OK, code, &tests(&["a::b"])),
                &format!("the exit code is {code} "),
            );
        }
        // The race after the exit write, as it shows: the report says crash and the code says pass.
        let late = verdict(CRASH, 0, &crash());
        assert_wrong(&late, "the exit code is 0 (pass)");
        assert_wrong(&late, "verdict: crash: load page fault at 0x8");
    }

    #[test]
    fn an_output_without_a_verdict_is_no_pass() {
        assert_wrong(&verdict("test a::b ... ok\n", 0, &tests(&["a::b"])), "no verdict");
        assert_wrong(&verdict("", 0, &Expectation::Demo), "no output");
        assert_wrong(&verdict("\n", 0, &Expectation::Demo), "no verdict");
    }

    #[test]
    fn a_truncated_output_is_no_pass() {
        for end in 1..ONE_OK.len() {
            let verdict = verdict(&ONE_OK[..end], 0, &tests(&["a::b"]));
            assert!(!verdict.passed(), "cut at {end}: {verdict}");
        }
    }

    #[test]
    fn output_after_the_verdict_is_no_pass() {
        assert_wrong(
            &verdict(&format!("{ONE_OK}more\n"), 0, &tests(&["a::b"])),
            "no verdict: `more`",
        );
    }

    #[test]
    fn two_verdicts_are_no_pass() {
        let output = format!("verdict: pass\n{ONE_OK}");
        assert_wrong(&verdict(&output, 0, &tests(&["a::b"])), "2 verdicts");
    }

    #[test]
    fn a_test_that_was_asked_for_must_be_reported() {
        assert_wrong(
            &verdict(ONE_OK, 0, &tests(&["a::b", "a::c"])),
            "a::c was asked for and not reported",
        );
    }

    #[test]
    fn a_test_that_was_not_asked_for_must_not_be_reported() {
        assert_wrong(&verdict(ONE_OK, 0, &tests(&[])), "a::b was reported and not asked for");
    }

    #[test]
    fn a_test_must_be_reported_once() {
        let output = "test a::b ... ok\ntest a::b ... ok\n\
                      verdict: pass: 2 passed, 0 failed, 0 skipped\n";
        assert_wrong(&verdict(output, 0, &tests(&["a::b"])), "a::b was reported 2 times");
    }

    #[test]
    fn a_garbled_test_line_is_no_pass() {
        for line in ["test a::b ... o", "test a::b ok", "test a b ... ok", "test "] {
            let output = format!("{line}\n{ONE_OK}");
            assert_wrong(&verdict(&output, 0, &tests(&["a::b"])), "is no test's result");
        }
    }

    #[test]
    fn counts_that_disagree_with_the_lines_are_no_pass() {
        let output = ONE_OK.replace("1 passed", "2 passed");
        assert_wrong(&verdict(&output, 0, &tests(&["a::b"])), "counts");
        let output = ONE_OK.replace(": 1 passed, 0 failed, 0 skipped", "");
        assert_wrong(&verdict(&output, 0, &tests(&["a::b"])), "does not count the tests");
    }

    #[test]
    fn a_pass_with_a_failed_line_is_wrong() {
        let output = "test a::b ... FAILED: x\nverdict: pass: 0 passed, 1 failed, 0 skipped\n";
        assert_wrong(&verdict(output, 0, &tests(&["a::b"])), "all passed");
        let output = "test a::b ... FAILED: x\nverdict: pass\n";
        assert_wrong(&verdict(output, 0, &Expectation::Demo), "all passed");
    }

    #[test]
    fn a_failed_test_is_a_failure_with_its_reason() {
        let output = "test a::b ... FAILED: 1 frame leaked: 0x80400000\n\
                      test a::c ... ok\nverdict: fail: 1 passed, 1 failed, 0 skipped\n";
        let verdict = verdict(output, 1, &tests(&["a::b", "a::c"]));
        assert_eq!(
            verdict,
            Verdict::Failed(vec![Failure {
                test: "a::b".to_owned(),
                why: "1 frame leaked: 0x80400000".to_owned(),
            }])
        );
        assert_eq!(verdict.exit_code(), 1);
    }

    #[test]
    fn a_fail_without_a_failed_line_is_wrong() {
        let output = ONE_OK.replace("pass:", "fail:");
        assert_wrong(&verdict(&output, 1, &tests(&["a::b"])), "a test failed");
    }

    #[test]
    fn a_test_that_is_skipped_without_need_is_no_pass() {
        let output =
            "test a::b ... skipped: too few\nverdict: pass: 0 passed, 0 failed, 1 skipped\n";
        assert_wrong(
            &verdict(output, 0, &tests(&["a::b"])),
            "a::b was skipped, on a machine that has what it needs: too few",
        );
    }

    #[test]
    fn a_test_that_must_be_skipped_must_be() {
        let expected = Expectation::Tests { ok: Vec::new(), skipped: vec!["a::b".to_owned()] };
        let output =
            "test a::b ... skipped: too few\nverdict: pass: 0 passed, 0 failed, 1 skipped\n";
        assert_eq!(verdict(output, 0, &expected), Verdict::Passed);
        assert_wrong(&verdict(ONE_OK, 0, &expected), "too few harts for it");
        let output = "verdict: pass: 0 passed, 0 failed, 0 skipped\n";
        assert_wrong(&verdict(output, 0, &expected), "not reported");
    }

    #[test]
    fn a_crash_during_a_test_is_a_crash() {
        let verdict = verdict(CRASH, 3, &tests(&["a::b"]));
        assert_eq!(verdict, Verdict::Crashed("load page fault at 0x8".to_owned()));
        assert_eq!(verdict.exit_code(), 3);
    }

    #[test]
    fn a_refused_machine_is_named() {
        let verdict = verdict("verdict: refused: no memory\n", 5, &tests(&["a::b"]));
        assert_eq!(verdict, Verdict::Refused("no memory".to_owned()));
        assert_eq!(verdict.exit_code(), 5);
    }

    #[test]
    fn a_time_out_is_a_hang_even_after_a_verdict() {
        let exit = Exit::TimedOut { diagnosis: String::new() };
        let verdict = judge(&outcome(ONE_OK, exit), &tests(&["a::b"])).verdict;
        assert_eq!(verdict, Verdict::Hung);
        assert_eq!(verdict.exit_code(), 4);
    }

    #[test]
    fn a_signal_is_no_pass() {
        let verdict = judge(&outcome(ONE_OK, Exit::Signal(11)), &tests(&["a::b"])).verdict;
        assert_wrong(&verdict, "signal 11");
    }

    #[test]
    fn a_crash_as_described_passes() {
        assert_eq!(verdict(CRASH, 3, &crash()), Verdict::Passed);
    }

    #[test]
    fn a_crash_whose_report_lacks_what_programs_read_is_wrong() {
        let Expectation::Crash { sentence, frames, .. } = crash() else { unreachable!() };
        let report = Some(report::Expected {
            cpu: None,
            harts: 1,
            locked: false,
            stopped: true,
            whole: true,
        });
        let expectation = Expectation::Crash { sentence, frames, report };
        assert_wrong(&verdict(CRASH, 3, &expectation), "no report for programs");
    }

    #[test]
    fn a_crash_with_another_sentence_is_wrong() {
        let output = CRASH.replace("load page fault at", "store page fault at");
        assert_wrong(&verdict(&output, 3, &crash()), "where `load page fault` belongs");
    }

    #[test]
    fn a_crash_whose_backtrace_lacks_a_frame_is_wrong() {
        let output = CRASH.replace("touch", "other");
        assert_wrong(&verdict(&output, 3, &crash()), "lacks the frame `touch`");
    }

    #[test]
    fn a_crash_whose_frames_stand_in_another_order_is_wrong() {
        let output = CRASH
            .replace("touch", "T")
            .replace("first_thread", "touch")
            .replace("T+", "first_thread+");
        assert_wrong(&verdict(&output, 3, &crash()), "lacks the frame");
    }

    #[test]
    fn frames_count_only_within_the_backtrace() {
        let output = CRASH.replace("dying", "touch").replace("kernel::touch", "x");
        assert_wrong(&verdict(&output, 3, &crash()), "lacks the frame `touch`");
    }

    #[test]
    fn a_crash_boot_that_passes_is_wrong() {
        assert_wrong(&verdict("verdict: pass\n", 0, &crash()), "should not have come to an end");
    }

    #[test]
    fn a_hang_that_was_asked_for_needs_its_frames_in_the_diagnosis() {
        let hang = Expectation::Hang { frames: vec!["spin_forever".to_owned()] };
        let timed_out = |diagnosis: &str| {
            let exit = Exit::TimedOut { diagnosis: diagnosis.to_owned() };
            judge(&outcome("hello\n", exit), &hang).verdict
        };
        assert_eq!(timed_out("hart 0\n kernel::spin_forever\n"), Verdict::Passed);
        assert_wrong(&timed_out("hart 0\n"), "lacks the frame `spin_forever`");
        assert_wrong(&verdict("verdict: pass\n", 0, &hang), "should not have come to an end");
    }
}
