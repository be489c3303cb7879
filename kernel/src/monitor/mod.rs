//! The monitor: a shell on the console, for looking at a live kernel.
//!
//! [`run`] edits lines by the crate `embedded-cli` (history with the arrows, completion with the tabulator) and looks their first word
//! up among the [`Command`]s, of which each file beside this has a family. A command takes its [`Arguments`], prints to a [`Screen`],
//! and uses the kernel through the interfaces that everybody uses. It holds no lock while it prints: the screen may wait for a key.

mod activity;
mod memory;
mod names;
mod runs;
mod screen;
mod threads;

use core::convert::Infallible;
use core::fmt::{self, Write};
use core::iter::repeat_n;
use core::sync::atomic::{AtomicBool, Ordering};

use arguments::{Arguments, Problem};
use embedded_cli::arguments::Arg;
use embedded_cli::autocomplete::{Autocompletion, Request};
use embedded_cli::cli::{CliBuilder, CliHandle};
use embedded_cli::command::RawCommand;
use embedded_cli::service::{Autocomplete, CommandProcessor, Help, ProcessError};

use crate::console::{self, print, println};
use crate::symbols;
use screen::Screen;

/// Bytes of a line at the most.
const LINE_BYTES: usize = 120;
/// Bytes of the lines that are remembered.
const HISTORY_BYTES: usize = 512;

const PROMPT: &str = "> ";

/// Keys by their bytes.
const CONTROL_C: u8 = 0x03;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// A command of the monitor.
struct Command {
    name: &'static str,
    /// Its arguments, as help shows them.
    arguments: &'static str,
    /// What it does, in a line.
    help: &'static str,
    run: for<'a> fn(Arguments<'a>, &mut Screen) -> Result<(), Stopped<'a>>,
}

const COMMANDS: &[&[Command]] = &[
    HELP,
    threads::COMMANDS,
    memory::COMMANDS,
    activity::COMMANDS,
    names::COMMANDS,
    runs::COMMANDS,
];

const HELP: &[Command] = &[Command {
    name: "help",
    arguments: "[COMMAND]",
    help: "what there is, or how one is used",
    run: help,
}];

fn commands() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().copied().flatten()
}

/// Why a command ended early.
enum Stopped<'a> {
    /// An argument is wrong.
    Argument(Problem<'a>),
    /// It was told to, at the end of a screen.
    Enough,
}

impl<'a> From<Problem<'a>> for Stopped<'a> {
    fn from(problem: Problem<'a>) -> Self {
        Stopped::Argument(problem)
    }
}

impl From<fmt::Error> for Stopped<'_> {
    fn from(_: fmt::Error) -> Self {
        Stopped::Enough
    }
}

/// Reads commands and does them, until one of them ends the run.
pub fn run() -> ! {
    println!(
        "\nmonitor: `help` lists the commands, the tabulator completes them, `power off` ends"
    );
    let builder = CliBuilder::default().writer(Terminal).prompt(PROMPT);
    let builder = builder.command_buffer([0; LINE_BYTES]).history_buffer([0; HISTORY_BYTES]);
    let Ok(mut shell) = builder.build();
    loop {
        match console::read() {
            CONTROL_C => {
                // Whatever is begun ends: the line is cleared by the keys that a person would take, which nobody needs to see.
                Terminal::hide(true);
                let keys = repeat_n(b"\x1b[C", LINE_BYTES).flatten().copied();
                for key in keys.chain(repeat_n(BACKSPACE, LINE_BYTES + 1)) {
                    let Ok(()) = shell.process_byte::<Names, _>(key, &mut Dispatch);
                }
                Terminal::hide(false);
                print!("^C\n{PROMPT}");
            }
            // The editor knows only the other one.
            DELETE => {
                let Ok(()) = shell.process_byte::<Names, _>(BACKSPACE, &mut Dispatch);
            }
            // No command has other characters, and the editor takes bytes for UTF-8 that are none.
            byte if byte.is_ascii() => {
                let Ok(()) = shell.process_byte::<Names, _>(byte, &mut Dispatch);
            }
            _ => {}
        }
    }
}

/// The console, as the editor writes to it.
struct Terminal;

static HIDDEN: AtomicBool = AtomicBool::new(false);

impl Terminal {
    fn hide(hidden: bool) {
        HIDDEN.store(hidden, Ordering::Relaxed);
    }
}

impl embedded_io::ErrorType for Terminal {
    type Error = Infallible;
}

impl embedded_io::Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        if !HIDDEN.load(Ordering::Relaxed) {
            console::write_bytes(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The commands' names, for completion.
struct Names;

impl Autocomplete for Names {
    fn autocomplete(request: Request<'_>, completion: &mut Autocompletion<'_>) {
        if let Request::CommandName(begun) = request {
            // The editor adds `help` by itself.
            let names = commands().map(|command| command.name).filter(|&name| name != "help");
            names
                .filter_map(|name| name.strip_prefix(begun))
                .for_each(|rest| completion.merge_autocompletion(rest));
        }
    }
}

impl Help for Names {}

/// Does what a line says.
struct Dispatch;

impl CommandProcessor<Terminal, Infallible> for Dispatch {
    fn process<'a>(
        &mut self,
        _: &mut CliHandle<'_, Terminal, Infallible>,
        line: RawCommand<'a>,
    ) -> Result<(), ProcessError<'a, Infallible>> {
        let Some(command) = commands().find(|command| command.name == line.name()) else {
            println!("no command is called '{}'; `help` lists them", line.name());
            return Ok(());
        };
        let words = line.args();
        let is_option = |word| !matches!(word, Ok(Arg::Value(_)));
        if words.args().any(is_option) {
            println!("{}: no command has options", command.name);
            return Ok(());
        }
        let words = words.args().filter_map(|word| match word {
            Ok(Arg::Value(word)) => Some(word),
            _ => None,
        });
        let outcome = Arguments::new(words)
            .map_err(Stopped::Argument)
            .and_then(|arguments| (command.run)(arguments, &mut Screen::new()));
        if let Err(Stopped::Argument(problem)) = outcome {
            println!("{}: {problem}", command.name);
            println!("usage: {} {}", command.name, command.arguments);
        }
        Ok(())
    }
}

fn help<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let wanted = arguments.optional();
    arguments.end()?;
    if let Some(found) = wanted {
        let unknown =
            Problem::Unknown { name: "COMMAND", found, expected: "the name of a command" };
        let command = commands().find(|command| command.name == found).ok_or(unknown)?;
        writeln!(screen, "{} {}", command.name, command.arguments)?;
        writeln!(screen, "    {}", command.help)?;
        return Ok(());
    }
    for command in commands() {
        let usage = command.arguments.len();
        let width = 30_usize.saturating_sub(command.name.len() + usage + 1);
        writeln!(screen, "{} {}{:width$}  {}", command.name, command.arguments, "", command.help)?;
    }
    Ok(())
}

/// Takes an address: a number, or the name of a symbol.
fn address<'a>(arguments: &mut Arguments<'a>) -> Result<usize, Problem<'a>> {
    let word = arguments.take("ADDRESS")?;
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        return arguments::number("ADDRESS", word).map(|address| address as usize);
    }
    let expected = "a number or the name of a symbol";
    let unknown = Problem::Unknown { name: "ADDRESS", found: word, expected };
    symbols::by_name(word).map(|symbol| symbol.address as usize).ok_or(unknown)
}
