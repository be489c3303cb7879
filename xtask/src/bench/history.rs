//! The history of the figures: each baseline that was saved, a line of results/history.jsonl, and results/history.svg, which shows
//! them.

use std::fs;
use std::path::Path;

use anstream::eprintln;
use anyhow::Context;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::chart::{self, Chart};
use super::figures::FIGURES;
use super::results::Results;

const LINES: &str = "results/history.jsonl";
const PICTURE: &str = "results/history.svg";
/// Charts in a row of the picture.
const COLUMNS: usize = 4;

/// A baseline, and when it was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The time in UTC, to the minute: `2026-12-01 10:23`.
    pub saved: String,
    /// The figures, and what they were measured with.
    #[serde(flatten)]
    pub results: Results,
}

/// Reads the history, the oldest first.
///
/// # Errors
/// When it cannot be read, or a line is malformed.
pub fn read(workspace: &Path) -> anyhow::Result<Vec<Saved>> {
    let path = workspace.join(LINES);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let line = |(number, line)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}, line {}", path.display(), number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// Adds figures that are saved now, if they are others than those saved last, and draws the picture anew.
///
/// # Errors
/// When a file cannot be read or written, or is malformed.
pub fn add(workspace: &Path, results: &Results) -> anyhow::Result<()> {
    let mut history = read(workspace)?;
    if history.last().is_none_or(|last| last.results != *results) {
        let saved = Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string();
        history.push(Saved { saved, results: results.clone() });
        let lines: Result<Vec<String>, _> = history.iter().map(serde_json::to_string).collect();
        write(workspace, LINES, &(lines?.join("\n") + "\n"))?;
    }
    write(workspace, PICTURE, &picture(&history))
}

/// Draws the picture anew.
///
/// # Errors
/// When a file cannot be read or written, or is malformed.
pub fn redraw(workspace: &Path) -> anyhow::Result<()> {
    write(workspace, PICTURE, &picture(&read(workspace)?))
}

pub(super) fn write(workspace: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = workspace.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    eprintln!("written to {}", path.display());
    Ok(())
}

/// A chart for each figure, over all baselines.
pub fn picture(history: &[Saved]) -> String {
    let labels: Vec<String> = history.iter().map(|saved| saved.saved.clone()).collect();
    let chart = |name: &str, goal| Chart {
        title: name.to_owned(),
        labels: labels.clone(),
        values: history.iter().map(|saved| saved.results.value(name)).collect(),
        goal,
    };
    let charts: Vec<Chart> = FIGURES
        .iter()
        .map(|figure| chart(figure.name, figure.goal.map(|goal| goal.number())))
        .filter(|chart| chart.values.iter().any(Option::is_some))
        .collect();
    let subtitle = "Each saved baseline from left to right; the dashed line is the goal.";
    chart::draw("Guest instructions, and other figures", subtitle, COLUMNS, &charts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::results::{Row, Tenths};
    use crate::environment;

    fn results(tenths: u64) -> Results {
        Results {
            toolchain: "rustc".to_owned(),
            qemu: "QEMU".to_owned(),
            rows: vec![Row {
                name: "trap".to_owned(),
                instructions: Tenths(tenths),
                min: 1,
                max: 9,
            }],
            gauges: BTreeMap::from([("free_frames".to_owned(), 7)]),
        }
    }

    #[test]
    fn what_is_saved_is_added_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("results")).unwrap();
        fs::write(folder.path().join(LINES), "").unwrap();
        for tenths in [1_073, 1_073, 1_080] {
            add(folder.path(), &results(tenths)).unwrap();
        }
        let history = read(folder.path()).unwrap();
        let read: Vec<&Results> = history.iter().map(|saved| &saved.results).collect();
        assert_eq!(read, [&results(1_073), &results(1_080)]);
        assert_eq!(fs::read_to_string(folder.path().join(PICTURE)).unwrap(), picture(&history));
    }

    #[test]
    fn the_picture_shows_the_history_that_lies_beside_it() {
        let workspace = environment::workspace();
        let history = read(&workspace).unwrap_or_else(|error| panic!("{error:#}"));
        assert!(!history.is_empty());
        let drawn = fs::read_to_string(workspace.join(PICTURE)).unwrap();
        assert!(drawn == picture(&history), "`cargo run -- bench --history` draws it anew");
    }
}
