//! Schedules of the real kernel: a race that one run passes is found, and had again; and the kernel's own tests bear what is tried.

mod common;

use common::{said, xtask};
use serde_json::Value;

/// A program with a race, in the kernel's self-tests.
const EXAMPLE: &str = "examples::a_buffer_that_loses_a_wakeup";

#[test]
fn a_race_that_one_run_passes_is_found_and_had_again() {
    said(&xtask(&["test", "--exact", EXAMPLE, "--lane", "icount"]), 0);
    let found = said(&xtask(&["explore", EXAMPLE, "--seeds", "1..61"]), 1);
    let command = found.lines().find_map(|line| {
        line.trim().strip_prefix("again   cargo run -- ").filter(|line| line.contains("--replay"))
    });
    let command: Vec<&str> = command.expect("a seed fails alone").split(' ').collect();

    let first = said(&xtask(&command), 3);
    for part in ["(producer)", "(consumer)", "explored: seed ", "last events", "are enough"] {
        assert!(first.contains(part), "`{part}` is missing in\n{first}");
    }
    // To the instruction: the events have their times, and the report has every register.
    assert_eq!(said(&xtask(&command), 3), first);
}

#[test]
fn the_kernel_s_own_tests_pass_under_every_schedule_that_is_tried() {
    for lane in ["icount", "turns"] {
        let output = xtask(&["explore", "--lane", lane, "--seeds", "1..401", "--json"]);
        let summary: Value = serde_json::from_str(&said(&output, 0)).expect("it is JSON");
        assert_eq!((&summary["runs"], &summary["failures"]), (&400.into(), &0.into()), "{summary}");
    }
}

#[test]
fn the_places_that_were_tried_are_shown() {
    let words = ["explore", "sleeping::a_channel_keeps_the_order", "--seeds", "1..5", "--places"];
    let said = said(&xtask(&words), 0);
    let places = said.lines().skip_while(|line| !line.contains("gave way"));
    let channel = places.filter(|line| line.contains("channel")).count();
    assert!(channel > 0, "no place of the channel in\n{said}");
}

#[test]
fn what_cannot_be_explored_is_refused_by_name() {
    for words in [
        &["explore", "no_such_test"][..],
        &["explore", "--seeds", "5..5"],
        &["explore", "--lane", "smp"],
        &["explore", "--replay", "1", "threads::"],
    ] {
        let output = xtask(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty(), "{words:?} says nothing");
    }
}
