//! Boots that are not a self-test or a crash: command lines, machines, what a person sees.

mod common;

use std::process::{Command, Stdio};

use common::{bench, boot, run};
use wait_timeout::ChildExt;
use xtask::image::{self, Options, Profile};
use xtask::load::Load;
use xtask::qemu::{Boot, Exit, Outcome};

/// The lines that the kernel itself printed: without the firmware's banner.
fn lines(outcome: &Outcome) -> Vec<&str> {
    outcome.output.lines().skip_while(|line| !line.starts_with("16-os ")).collect()
}

fn code(outcome: &Outcome) -> i32 {
    match &outcome.exit {
        Exit::Code(code) => *code,
        other => panic!("no exit code but {other:?}\n{}", outcome.output),
    }
}

fn has(outcome: &Outcome, text: &str) {
    let output = &outcome.output;
    assert!(
        lines(outcome).iter().any(|line| line.contains(text)),
        "no line says '{text}':\n{output}"
    );
}

#[test]
fn the_demo_fits_a_screen_and_passes() {
    let outcome = run(&Boot { harts: 4, ..boot() });
    let lines = lines(&outcome);
    assert!(lines.len() <= 40, "{} lines:\n{}", lines.len(), outcome.output);
    assert!(lines.last().unwrap().starts_with("verdict: pass"));
    assert_eq!(code(&outcome), 0);
    for said in ["firmware", "harts", "memory", "uart", "worker", "consumer", "stolen", "tally"] {
        has(&outcome, said);
    }
}

#[test]
fn unknown_words_of_the_command_line_are_reported() {
    let outcome =
        run(&Boot { append: "quiet test root=/dev/vda only=boot::*".to_owned(), ..boot() });
    has(&outcome, "command line: unknown word 'quiet' is ignored");
    has(&outcome, "command line: unknown word 'root=/dev/vda' is ignored");
    assert_eq!(code(&outcome), 0);
}

#[test]
fn an_unknown_crash_is_refused_and_the_known_ones_are_listed() {
    let outcome = run(&Boot { append: "crash=boom".to_owned(), ..boot() });
    has(&outcome, "verdict: refused: crash=boom is no kind of crash; there are ");
    has(&outcome, "pagefault");
    assert_eq!(code(&outcome), 5);
}

#[test]
fn crashes_that_need_the_lock_checker_are_refused_where_it_is_not() {
    let options = Options::new(Profile::Release);
    let image = image::build(&bench().environment, &options).expect("the image builds");
    for kind in ["deadlock", "relock", "sleepinlock"] {
        let outcome = run(&Boot { append: format!("crash={kind}"), ..Boot::new(&image.elf) });
        has(
            &outcome,
            &format!(
                "verdict: refused: crash={kind} needs the lock checker, which is not in this build"
            ),
        );
        assert_eq!(code(&outcome), 5);
    }
}

#[test]
fn a_report_lists_the_locks_held_with_the_lines_that_took_them() {
    let outcome = run(&Boot { append: "crash=lockedpanic".to_owned(), ..boot() });
    has(&outcome, "  'console' held by CPU 0, taken at kernel/src/crash/kinds.rs:");
}

#[test]
fn an_unknown_test_is_named_and_fails() {
    let outcome = run(&Boot { append: "test only=boot::no_such_test".to_owned(), ..boot() });
    has(&outcome, "no test is called 'boot::no_such_test'");
    assert_eq!(code(&outcome), 1);
}

#[test]
fn a_hart_beyond_the_tables_is_reported_and_left_out() {
    let outcome = run(&Boot { harts: 9, append: "test".to_owned(), ..boot() });
    has(&outcome, "is left out: the kernel has room for 8 harts");
    // Every hart of the tree should be up, and one is not: that test alone may say so.
    has(&outcome, "verdict: fail: ");
    has(&outcome, " 1 failed, ");
    has(&outcome, "test boot::every_hart_of_the_tree_is_up ... FAILED");
    assert_eq!(code(&outcome), 1);
}

#[test]
fn sifive_s_own_uart_is_driven_at_its_interrupts() {
    let outcome = run(&Boot {
        machine: "sifive_u".to_owned(),
        harts: 2,
        append: "monitor".to_owned(),
        input: Some(b"\rinterrupts\rpower off\r".to_vec()),
        ends_itself: false,
        ..boot()
    });
    has(&outcome, "SiFive, interrupt 4 of interrupt-controller@c000000");
    has(&outcome, "console      UART, at its interrupts");
    has(&outcome, "verdict: pass");
    assert_eq!(outcome.exit, Exit::AtVerdict);
}

#[test]
fn a_machine_without_a_controller_goes_on_with_a_polled_console() {
    let machine = "virt,aia=aplic".to_owned();
    let boot = Boot { machine, harts: 2, ..boot() };
    let outcome = run(&boot);
    has(&outcome, "no interrupts from devices: the tree has no controller that is driven");
    has(&outcome, "console      UART, polled");
    assert_eq!(code(&outcome), 0);
    // What is typed is read there too.
    let input = Some(b"\rwalk 0x1000\rpower off\r".to_vec());
    let outcome = run(&Boot { append: "monitor".to_owned(), input, ..boot });
    has(&outcome, "0x1000 is not mapped");
    has(&outcome, "verdict: pass");
    assert_eq!(code(&outcome), 0);
}

#[test]
fn every_self_test_passes_without_a_controller() {
    let machine = "virt,aia=aplic".to_owned();
    let outcome = run(&Boot { machine, harts: 2, append: "test".to_owned(), ..boot() });
    has(&outcome, "verdict: pass: ");
    assert_eq!(code(&outcome), 0);
}

#[test]
fn a_host_that_reads_nothing_gets_the_exit_code_all_the_same() {
    // The UART takes nothing any more when the pipe is full.
    let line = Boot { append: "crash=flood".to_owned(), ..boot() }.command_line();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {line}")]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut qemu = command.spawn().expect("there is a shell");
    let status = qemu.wait_timeout(Boot::TIMEOUT).expect("it is a child");
    // A hang is killed.
    let _ = qemu.kill();
    assert_eq!(status.and_then(|status| status.code()), Some(3));
}

#[test]
fn a_crash_report_follows_what_was_printed_before_it() {
    let outcome = run(&Boot { append: "crash=unsentpanic".to_owned(), ..boot() });
    let lines = lines(&outcome);
    let begin = lines.iter().position(|line| *line == "unsent 000").expect("it is printed");
    let unsent: Vec<String> = (0..100).map(|number| format!("unsent {number:03}")).collect();
    assert_eq!(lines[begin..begin + 100], unsent);
    let next = lines[begin + 100..].iter().find(|line| !line.is_empty());
    assert!(next.is_some_and(|line| line.starts_with("crash on ")), "{}", outcome.output);
    assert_eq!(code(&outcome), 3);
}

#[test]
fn harts_that_answer_are_shown_where_they_stopped_and_one_that_does_not_is_listed() {
    let harts = 3;
    let outcome = run(&Boot { harts, append: "crash=deafhart".to_owned(), ..boot() });
    has(&outcome, "hart 0 (CPU 0) reports this");
    has(&outcome, "hart 1 (CPU 1) not answering");
    has(&outcome, "hart 2 (CPU 2) waiting at 0x");
    assert_eq!(code(&outcome), 3);
}

#[test]
fn of_two_crashes_one_is_reported_and_the_other_hart_is_shown() {
    let append = "crash=panic,cpu=1,together".to_owned();
    let outcome = run(&Boot { harts: 2, append, ..boot() });
    let reports = lines(&outcome).iter().filter(|line| line.starts_with("crash on ")).count();
    assert_eq!(reports, 1, "{}", outcome.output);
    let others = ["crashed too at", "stopped at", "waiting at", "not answering"];
    assert!(others.iter().any(|other| outcome.output.contains(other)), "{}", outcome.output);
    assert_eq!(code(&outcome), 3);
}

#[test]
fn a_crash_s_exit_code_is_the_crash_s_on_a_busy_host_every_time() {
    let _load = Load::start(4);
    let boot = Boot { append: "crash=panic".to_owned(), ..boot() };
    let codes: Vec<i32> = (0..40).map(|_| code(&run(&boot))).collect();
    assert_eq!(codes, [3; 40]);
}
