//! What the kernel's command line could ask for as well, and the end of the run.

use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

use arguments::{Arguments, Problem};

use super::screen::Screen;
use super::{Command, Stopped};
use crate::crash;
use crate::exit::{self, Failure};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[NAME]",
        help: "runs self-tests, a* for all that begin so; lists",
        run: test,
    },
    Command {
        name: "bench",
        arguments: "[NAME]",
        help: "runs benchmarks, a* for all that begin so; lists",
        run: bench,
    },
    Command {
        name: "crash",
        arguments: "KIND[,OPTION...]",
        help: "crashes on purpose; `crash ?` lists the kinds",
        run: crash_now,
    },
    Command { name: "power", arguments: "off", help: "ends the run, and the machine", run: power },
    Command { name: "reboot", arguments: "", help: "resets the machine", run: reboot },
];

/// Self-tests and benchmarks that failed here: a run with one does not pass.
static FAILED: AtomicUsize = AtomicUsize::new(0);

#[cfg(feature = "selftest")]
fn test<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let word = arguments.optional();
    arguments.end()?;
    let Some(pattern) = word else {
        for name in crate::selftest::names() {
            writeln!(screen, "{name}")?;
        }
        return Ok(());
    };
    match crate::selftest::run_matching(pattern) {
        Some(failed) => _ = FAILED.fetch_add(failed, Ordering::Relaxed),
        None => writeln!(screen, "no test is called '{pattern}'; `test` lists them")?,
    }
    Ok(())
}

#[cfg(not(feature = "selftest"))]
fn test<'a>(_: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    writeln!(screen, "this image has no self-tests")?;
    Ok(())
}

#[cfg(feature = "bench")]
fn bench<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let word = arguments.optional();
    arguments.end()?;
    let Some(pattern) = word else {
        for name in crate::bench::names() {
            writeln!(screen, "{name}")?;
        }
        return Ok(());
    };
    if !crate::bench::names().any(|name| command_line::matches(pattern, name)) {
        writeln!(screen, "no benchmark is called '{pattern}'; `bench` lists them")?;
        return Ok(());
    }
    match crate::bench::measure(command_line::Only::of(pattern)) {
        Ok(failed) => _ = FAILED.fetch_add(failed, Ordering::Relaxed),
        Err(uncounted) => writeln!(screen, "nothing can be measured: {uncounted}")?,
    }
    Ok(())
}

#[cfg(not(feature = "bench"))]
fn bench<'a>(_: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    writeln!(screen, "this image has no benchmarks")?;
    Ok(())
}

fn crash_now<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let words = arguments.take("KIND")?;
    arguments.end()?;
    if words == "?" {
        writeln!(screen, "{}", crash::Names)?;
        return Ok(());
    }
    let expected = "cpu=N, locked, masked or together";
    let asked = command_line::Crash::parse(words).map_err(|found| Problem::Unknown {
        name: "OPTION",
        found,
        expected,
    })?;
    let Err(refusal) = crash::now(asked);
    writeln!(screen, "{refusal}")?;
    Ok(())
}

fn power<'a>(mut arguments: Arguments<'a>, _: &mut Screen) -> Result<(), Stopped<'a>> {
    match arguments.take("off")? {
        "off" => arguments.end()?,
        found => {
            return Err(Problem::Unknown { name: "argument", found, expected: "off" }.into());
        }
    }
    fail_if_tests_failed();
    exit::pass(format_args!(""))
}

fn reboot<'a>(mut arguments: Arguments<'a>, _: &mut Screen) -> Result<(), Stopped<'a>> {
    arguments.end()?;
    fail_if_tests_failed();
    exit::reboot()
}

fn fail_if_tests_failed() {
    let failed = FAILED.load(Ordering::Relaxed);
    if failed > 0 {
        exit::fail(Failure::Test, format_args!("{failed} self-tests or benchmarks in the monitor"))
    }
}
