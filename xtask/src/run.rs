//! `run`: builds the kernel and boots its demo.
//!
//! The exit code is the kernel's, but only where its last line agrees with it: see [`verdict`](crate::verdict).

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use command_line::{CommandLine, Job};

use crate::environment;
use crate::firmware::Fold;
use crate::image;
use crate::options::BootOptions;
use crate::qemu::{self, Boot, Exit, Outcome};
use crate::style;
use crate::verdict::{Expectation, Verdict, judge};

/// What QEMU prints when the user leaves it with Ctrl-A X.
const LEFT: &str = "QEMU: Terminated";

/// How long the kernel's first line is waited for before the firmware's banner is shown: a firmware that hangs is to be seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The exit code of a command line that QEMU does not take.
const WRONG_COMMAND_LINE: u8 = 2;

/// How to boot.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "On a terminal the monitor follows the demo, and Ctrl-A X leaves QEMU.

Examples:
  cargo run                                    the demo, on one hart with 128 MiB
  cargo run -- run --smp 4 --memory 1G         on a larger machine
  cargo run -- run --append test --icount      the self-tests, the same run each time
  cargo run -- run --cpu rv64,sstc=off         on a hart without the Sstc extension
  cargo run -- run --qemu-arg=-d --qemu-arg=int    with QEMU's log of interrupts")]
pub struct Arguments {
    /// What to boot
    #[command(flatten)]
    pub boot: BootOptions,
    /// QEMU's machine, with its options
    #[arg(long, value_name = "M", default_value = "virt")]
    pub machine: String,
    /// Show the firmware's banner too
    #[arg(long)]
    pub firmware: bool,
    /// One more argument for QEMU; may be given again
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub qemu_arg: Vec<String>,
}

/// Builds and boots. On a terminal the console is the user's, and nothing limits the time; elsewhere nothing is typed,
/// and a boot that does not end is killed.
///
/// # Errors
/// When the machine lacks something, or the kernel cannot be built.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let environment = environment::require()?;
    let image = image::build(&environment, &image::Options::new(arguments.boot.profile))?;
    let interactive = std::io::stdin().is_terminal();
    let boot = Boot {
        machine: arguments.machine.clone(),
        append: appended(&arguments.boot.append, interactive),
        extra: arguments.qemu_arg.clone(),
        ends_itself: qemu::ends_itself(&arguments.machine),
        ..arguments.boot.boot(&image.elf)
    };
    let fold = Mutex::new(Fold::new(!arguments.firmware));
    // Held while it is shown: the order stays.
    let show = |what: &dyn Fn(&mut Fold) -> Vec<u8>| {
        let mut fold = fold.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stdout = std::io::stdout().lock();
        // Nobody looks any more: the boot goes on to its verdict all the same.
        let _ = stdout.write_all(&what(&mut fold)).and_then(|()| stdout.flush());
    };
    let outcome = thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                show(&Fold::open);
            }
        });
        let outcome = if interactive {
            boot.run_on_terminal(&environment, |piece| show(&|fold| fold.pass(piece)))
        } else {
            boot.run_watched(&environment, |piece| {
                show(&|fold| fold.pass(piece));
                ControlFlow::Continue(())
            })
        };
        drop(ended);
        outcome
    })?;
    show(&Fold::open);
    let at_the_monitor = interactive && CommandLine::parse(&boot.append).job == Job::Monitor;
    let expected = if at_the_monitor { Expectation::Session } else { Expectation::Demo };
    Ok(ExitCode::from(conclude(&outcome, interactive, &expected)))
}

/// The kernel's command line: the user's words. The monitor follows the demo where somebody can type.
fn appended(words: &str, interactive: bool) -> String {
    if interactive && CommandLine::parse(words).job == Job::Demo {
        format!("{words} monitor").trim_start().to_owned()
    } else {
        words.to_owned()
    }
}

/// The exit code, after saying what it is for where the console did not say so.
fn conclude(outcome: &Outcome, interactive: bool, expected: &Expectation) -> u8 {
    let complaint = outcome.messages.trim_end();
    if !complaint.is_empty() {
        anstream::eprintln!("{complaint}");
    }
    if outcome.output.is_empty() && !complaint.is_empty() && outcome.exit == Exit::Code(1) {
        return WRONG_COMMAND_LINE;
    }
    if interactive && outcome.exit == Exit::Code(0) && outcome.output.trim_end().ends_with(LEFT) {
        return 0;
    }
    if let Exit::TimedOut { diagnosis } = &outcome.exit {
        anstream::eprintln!("{diagnosis}");
    }
    let verdict = judge(outcome, expected).verdict;
    if matches!(verdict, Verdict::Wrong(_) | Verdict::Hung) {
        let bad = style::BAD;
        anstream::eprintln!("{bad}{verdict}{bad:#}");
    }
    verdict.exit_code()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(output: &str, messages: &str, exit: Exit) -> Outcome {
        let (output, messages) = (output.to_owned(), messages.to_owned());
        Outcome { output, messages, exit, duration: Duration::ZERO }
    }

    #[test]
    fn the_monitor_follows_the_demo_on_a_terminal_and_nothing_else() {
        assert_eq!(appended("", true), "monitor");
        assert_eq!(appended("report=json", true), "report=json monitor");
        for (words, interactive) in
            [("", false), ("test", true), ("monitor", true), ("crash=panic", true)]
        {
            assert_eq!(appended(words, interactive), words);
        }
    }

    #[test]
    fn the_exit_code_is_the_kernels() {
        for (verdict, code, expected) in [
            ("verdict: pass\n", 0, 0),
            ("verdict: crash: a page fault\n", 3, 3),
            ("verdict: refused: too little memory\n", 5, 5),
        ] {
            assert_eq!(
                conclude(&outcome(verdict, "", Exit::Code(code)), false, &Expectation::Demo),
                expected,
                "{verdict}"
            );
        }
    }

    #[test]
    fn a_pass_needs_both_the_line_and_the_code() {
        for (said, code) in
            [("hello\n", 0), ("verdict: pass\n", 3), ("verdict: crash: a page fault\n", 0), ("", 0)]
        {
            assert_eq!(
                conclude(&outcome(said, "", Exit::Code(code)), false, &Expectation::Demo),
                1,
                "{said:?} and {code}"
            );
        }
    }

    #[test]
    fn leaving_is_no_failure_on_a_terminal_only() {
        let left = outcome("> \nQEMU: Terminated\n\r", "", Exit::Code(0));
        assert_eq!(conclude(&left, true, &Expectation::Session), 0);
        assert_eq!(conclude(&left, false, &Expectation::Demo), 1);
    }

    #[test]
    fn a_hang_and_a_machine_that_qemu_does_not_have_have_codes_of_their_own() {
        let hung = Exit::TimedOut { diagnosis: "hart 0 at idle".to_owned() };
        assert_eq!(conclude(&outcome("hello\n", "", hung), false, &Expectation::Demo), 4);
        let refused = outcome("", "qemu-system-riscv64: unsupported machine type\n", Exit::Code(1));
        assert_eq!(conclude(&refused, false, &Expectation::Demo), 2);
    }
}
