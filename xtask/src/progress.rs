//! Long steps show where they are: a bar on a terminal, plain lines elsewhere. Both go to stderr, so that what a command
//! gives on stdout can be read by a program.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How many plain lines a long count gives at the most.
const PLAIN_LINES: u64 = 10;

/// A step of known length.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    unit: &'static str,
    total: u64,
    done: u64,
    /// Whether there is a plain line at every tenth.
    plain: bool,
}

impl Progress {
    /// Begins to count `total` things called `unit`, in the plural. Where there is no terminal, a line says so at every
    /// tenth of the way.
    pub fn new(total: u64, unit: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{bar:30} {pos}/{len} {prefix}, {elapsed} gone, {eta} to go {wide_msg}";
            let style =
                ProgressStyle::with_template(template).expect("the template is well-formed");
            let bar = ProgressBar::new(total).with_style(style);
            bar.set_prefix(unit);
            // Without the ticker a long item would leave the clock standing.
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { plain: bar.is_none(), bar, unit, total, done: 0 }
    }

    /// Has no plain lines: each of its things gets a line of output of its own.
    pub fn without_plain_lines(mut self) -> Self {
        self.plain = false;
        self
    }

    /// Counts one more; `message` says how things stand.
    pub fn advance(&mut self, message: &str) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
            bar.inc(1);
        }
        if self.plain && is_worth_a_line(self.done, self.total) {
            let (done, total, unit) = (self.done, self.total, self.unit);
            let separator = if message.is_empty() { "" } else { ": " };
            say(&format!("{done} of {total} {unit}{separator}{message}"));
        }
    }

    /// Runs `print` while the bar is out of the way.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Whether the count passes a tenth of the way with this one.
fn is_worth_a_line(done: u64, total: u64) -> bool {
    let tenth = |count: u64| count * PLAIN_LINES / total.max(1);
    tenth(done) > tenth(done - 1)
}

/// Does one long step of unknown length: says what it is before, and how long it took after.
pub fn step<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let spinner = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed} gone");
        let spinner = ProgressBar::new_spinner()
            .with_style(style.expect("the template is well-formed"))
            .with_message(what.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(100));
        spinner
    });
    if spinner.is_none() {
        say(&format!("{what} ..."));
    }
    let result = work();
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    say(&format!("{what}: {:.1} s", started.elapsed().as_secs_f64()));
    result
}

/// A line on standard error, also where a test's output is captured: whoever waits shall see what for.
pub fn say(line: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(total: u64) -> Vec<u64> {
        (1..=total).filter(|&done| is_worth_a_line(done, total)).collect()
    }

    #[test]
    fn a_long_count_gives_ten_lines_and_the_last_is_its_end() {
        assert_eq!(lines(1000), (1..=10).map(|tenth| tenth * 100).collect::<Vec<_>>());
        assert_eq!(lines(25).len(), 10);
        assert_eq!(lines(25).last(), Some(&25));
    }

    #[test]
    fn a_short_count_gives_a_line_each() {
        assert_eq!(lines(3), [1, 2, 3]);
        assert!(lines(0).is_empty());
    }
}
