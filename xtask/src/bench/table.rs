//! The numbers as people read them.

use std::fmt::Write as _;

use comfy_table::{Cell, Color, Table};

use super::figures::{self, FIGURES, Figure, Goal};
use super::results::{Results, Tenths};
use crate::size;
use crate::style::MUTED;

/// A table of everything that was measured: now, in the baseline, elsewhere.
pub fn of(now: &Results, baseline: Option<&Results>) -> Table {
    let header = ["", "now", "range", "baseline", "change", "C kernel", "xv6", "goal", "missed by"];
    let mut table = size::table(&header);
    for name in in_order(now) {
        let Some(value) = now.value(name) else { continue };
        let then = baseline.and_then(|baseline| baseline.value(name));
        table.add_row(row(now, name, value, then));
    }
    table
}

/// The names of what was measured, as the figures are ordered; those without a figure last.
fn in_order(now: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = now.names().collect();
    let place = |name: &str| FIGURES.iter().position(|figure| figure.name == name);
    names.sort_by_key(|name| place(name).unwrap_or(usize::MAX));
    names
}

fn row(now: &Results, name: &str, value: Tenths, then: Option<Tenths>) -> Vec<Cell> {
    let figure = figures::named(name);
    let goal = figure.and_then(|figure| figure.goal);
    let missed = goal.and_then(|goal| missed_by(value, goal));
    let number = match (goal, missed) {
        (None, _) => Cell::new(value),
        (_, None) => Cell::new(value).fg(Color::Green),
        (_, Some(_)) => Cell::new(value).fg(Color::Red),
    };
    let range = now.row(name).filter(|row| row.min != row.max);
    let range = range.map(|row| format!("{} to {}", size::spaced(row.min), size::spaced(row.max)));
    let more_is_better = figure.is_some_and(Figure::more_is_better);
    vec![
        Cell::new(name),
        number,
        Cell::new(range.unwrap_or_default()),
        Cell::new(then.map(|then| then.to_string()).unwrap_or_default()),
        then.map_or_else(|| Cell::new(""), |then| change(value, then, more_is_better)),
        Cell::new(figure.map_or("", |figure| figure.c)),
        Cell::new(figure.map_or("", |figure| figure.xv6)),
        Cell::new(goal.map(|goal| size::spaced(goal.number())).unwrap_or_default()),
        Cell::new(missed.map(|by| by.to_string()).unwrap_or_default()),
    ]
}

/// A change in per cent; nothing where there is none.
fn change(now: Tenths, then: Tenths, more_is_better: bool) -> Cell {
    if now == then {
        return Cell::new("");
    }
    let percent = (now.0 as f64 - then.0 as f64) * 100.0 / then.0.max(1) as f64;
    let color = if (now > then) == more_is_better { Color::Green } else { Color::Yellow };
    // As many digits as it takes to show that there is a change.
    let digits = if percent.abs() < 0.1 { 3 } else { 1 };
    Cell::new(format!("{percent:+.digits$} %")).fg(color)
}

/// How far a number is from its goal; nothing where it is kept.
fn missed_by(value: Tenths, goal: Goal) -> Option<Tenths> {
    let distance = match goal {
        Goal::AtMost(goal) => value.0.checked_sub(goal * 10),
        Goal::AtLeast(goal) => (goal * 10).checked_sub(value.0),
    };
    distance.filter(|distance| *distance > 0).map(Tenths)
}

/// What the rows of the table mean.
pub fn legend(now: &Results) -> String {
    let mut text = String::new();
    for name in in_order(now) {
        if let Some(figure) = figures::named(name) {
            // A String takes whatever is written to it.
            let _ = writeln!(text, "{MUTED}{name:24}{}{MUTED:#}", figure.about);
        }
    }
    let Results { toolchain, qemu, .. } = now;
    let _ = write!(text, "{MUTED}{toolchain}; {qemu}{MUTED:#}");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::results::Row;

    fn results(trap: u64) -> Results {
        let row = |name: &str, tenths| Row {
            name: name.to_owned(),
            instructions: Tenths(tenths),
            min: 1,
            max: 1_000,
        };
        Results {
            toolchain: "rustc".to_owned(),
            qemu: "QEMU".to_owned(),
            rows: vec![row("mystery", 10), row("trap", trap)],
            gauges: BTreeMap::from([("free_frames".to_owned(), 32_400)]),
        }
    }

    fn lines(now: &Results, baseline: Option<&Results>) -> Vec<String> {
        let table = of(now, baseline);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        table.to_string().lines().skip(1).map(words).collect()
    }

    #[test]
    fn a_row_has_the_number_its_change_and_what_it_is_measured_by() {
        assert_eq!(
            lines(&results(1_205), Some(&results(1_000))),
            [
                "trap 120.5 1 to 1,000 100 +20.5 % 140 93, half a frame 110 10.5",
                "free_frames 32,400 32,400 32,127 32,450 50",
                "mystery 1 1 to 1,000 1",
            ]
        );
    }

    #[test]
    fn a_small_change_does_not_look_like_none() {
        let line = &lines(&results(10_005), Some(&results(10_000)))[0];
        assert!(line.contains(" 1,000 +0.050 % "), "{line}");
    }

    #[test]
    fn without_a_baseline_there_is_no_change() {
        assert_eq!(lines(&results(1_100), None)[0], "trap 110 1 to 1,000 140 93, half a frame 110");
    }

    #[test]
    fn the_legend_says_what_is_known_of_each() {
        let legend = legend(&results(1));
        assert!(legend.contains("an ebreak and back") && !legend.contains("mystery"), "{legend}");
    }
}
