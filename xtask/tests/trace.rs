//! Traces of real boots: of harts that give each other work, of a crash, and the same one twice.

mod common;

use std::path::Path;
use std::process::Output;

use common::{said, xtask};
use roxmltree::Document;
use serde_json::Value;

/// Runs `xtask trace` with these words; its files go to `folder`.
fn trace(words: &[&str], folder: &Path) -> Output {
    let folder = folder.to_str().expect("its name is text");
    xtask(&[&["trace"], words, &["--out", folder]].concat())
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The events of a file for Perfetto that are of a category.
fn events(file: &str, category: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).expect("the file is JSON");
    let events = file["traceEvents"].as_array().expect("the file has events").clone();
    events.into_iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn harts_that_are_given_work_show_it() {
    let folder = tempfile::tempdir().unwrap();
    let test = "boot::every_hart_has_the_entry_state";
    let said = said(&trace(&[test, "--smp", "4"], folder.path()), 0);
    let name = test.replace("::", ".");
    assert!(said.contains("on 4 harts") && said.contains(&format!("{name}.svg")), "{said}");

    // Tracks 11 to 13 are the CPUs 1 to 3. Each runs a thread of the test, which CPU 0 makes there and interrupts it for.
    let file = read(folder.path(), &format!("{name}.json"));
    let (interrupts, threads) = (events(&file, "interrupt"), events(&file, "thread"));
    for track in 11..=13 {
        let has = |events: &[Value], name: &str| {
            events.iter().any(|event| {
                event["tid"] == track
                    && event["name"].as_str().unwrap_or_default().starts_with(name)
            })
        };
        assert!(has(&interrupts, "IPI"), "track {track} shows no interrupt");
        assert!(has(&threads, "on one hart"), "track {track} does not show the thread");
    }
    assert!(events(&file, "wake").len() >= 6, "three wakeups have two ends each");

    let picture = read(folder.path(), &format!("{name}.svg"));
    let picture = Document::parse(&picture).expect("the picture is XML");
    let drawn = picture.descendants().filter(|node| node.attribute("class") == Some("slice"));
    let slices =
        ["thread", "interrupt", "sleep", "lock"].map(|category| events(&file, category).len());
    assert_eq!(drawn.count(), slices.iter().sum::<usize>());
}

#[test]
fn a_wait_for_a_lock_shows_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let test = "traces::a_wait_for_a_lock_is_recorded_and_one_that_is_free_is_not";
    said(&trace(&[test], folder.path()), 0);
    let waits = events(&read(folder.path(), &format!("{}.json", test.replace("::", "."))), "lock");
    let names: Vec<&str> = waits.iter().filter_map(|wait| wait["name"].as_str()).collect();
    let contended = names.iter().any(|name| name.ends_with("::CONTENDED"));
    assert!(contended, "no wait is for the test's lock: {names:?}");
}

#[test]
fn a_crash_leaves_a_trace_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = trace(&["crash::panic", "--smp", "2"], folder.path());
    let said = said(&output, 3);
    assert!(said.contains("crash.panic: "), "{said}");
    let file = read(folder.path(), "crash.panic.json");
    let has = |category, track| events(&file, category).iter().any(|event| event["tid"] == track);
    assert!(has("thread", 10), "CPU 0 does not show what it ran");
    assert!(has("sleep", 11), "CPU 1 does not show that it slept");
}

#[test]
fn the_same_boot_gives_the_same_trace() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = folders.each_ref().map(|folder| {
        let test = "traces::an_interrupt_is_recorded_where_rings_are_kept";
        said(&trace(&[test, "--icount"], folder.path()), 0);
        ["json", "svg"]
            .map(|ending| read(folder.path(), &format!("{}.{ending}", test.replace("::", "."))))
    });
    assert_eq!(one, other);
    assert!(events(&one[0], "interrupt").iter().any(|event| event["name"] == "IPI"));
}

#[test]
fn a_test_that_does_not_exist_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = trace(&["no_such_test"], folder.path());
    said(&output, 2);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("`no_such_test`"), "{complaint}");
}
