//! Names of addresses, and addresses of names.

use core::fmt::Write;

use arguments::{Arguments, number};

use super::screen::Screen;
use super::{Command, Stopped};
use crate::report::Place;
use crate::symbols;

pub const COMMANDS: &[Command] = &[Command {
    name: "symbol",
    arguments: "NAME | ADDRESS",
    help: "symbols by a part of their name; what lies there",
    run: symbol,
}];

fn symbol<'a>(mut arguments: Arguments<'a>, screen: &mut Screen) -> Result<(), Stopped<'a>> {
    let word = arguments.take("NAME")?;
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        let address = number("ADDRESS", word)? as usize;
        arguments.end()?;
        writeln!(screen, "{address:#x} is {}", Place(address))?;
        return Ok(());
    }
    arguments.end()?;
    let mut count = 0;
    for symbol in symbols::all().filter(|symbol| symbol.name.contains(word)) {
        writeln!(screen, "{:#018x} {:>7} bytes  {}", symbol.address, symbol.size, symbol.name)?;
        count += 1;
    }
    if count == 0 {
        writeln!(screen, "no symbol's name contains '{word}'")?;
    }
    Ok(())
}
