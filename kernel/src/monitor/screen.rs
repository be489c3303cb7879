//! Output one screen at a time.

use core::fmt;

use crate::console::{self, print};

/// Lines of a screen.
const LINES: usize = 24;

/// What a command prints to. After a screen it waits for a key: `q` or Ctrl-C ends the command (its next write fails), any
/// other goes on. May sleep.
pub struct Screen {
    /// Lines since the last key.
    lines: usize,
    is_enough: bool,
}

impl Screen {
    /// An empty one.
    pub fn new() -> Screen {
        Screen { lines: 0, is_enough: false }
    }

    fn wait_for_key(&mut self) {
        print!("-- more --");
        self.is_enough = matches!(console::read(), b'q' | b'Q' | super::CONTROL_C);
        print!("\r\x1b[K");
        self.lines = 0;
    }
}

impl fmt::Write for Screen {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive('\n') {
            // The line of the question counts.
            if self.lines == LINES - 1 && !self.is_enough {
                self.wait_for_key();
            }
            if self.is_enough {
                return Err(fmt::Error);
            }
            print!("{piece}");
            self.lines += usize::from(piece.ends_with('\n'));
        }
        Ok(())
    }
}
