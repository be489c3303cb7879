//! README's pictures, from boots of the kernel as it is.

use std::fs;
use std::process::Command;

use roxmltree::Document;
use xtask::environment;
use xtask::image::{self, Options, Profile};
use xtask::pictures::{map_boot, memory_map};

#[test]
fn the_memory_map_shows_every_range_of_the_live_page_table() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("pictures").arg("--out").arg(folder.path()).output();
    let output = output.expect("xtask starts");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");

    let picture = |name| fs::read_to_string(folder.path().join(name)).expect("it was drawn");
    let map = picture("memory-map.svg");
    let map = Document::parse(&map).expect("the picture is XML");
    let drawn = map.descendants().filter(|node| node.attribute("class") == Some("range"));
    let drawn: Vec<&str> = drawn.filter_map(|node| node.first_element_child()?.text()).collect();

    // Another boot of the same machine maps the same.
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let image = image::build(&environment, &Options::new(Profile::Checked));
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    let outcome = map_boot(&image.elf, 2).run(&environment).expect("QEMU starts");
    let ranges = memory_map::read(&outcome.output).unwrap_or_else(|error| panic!("{error}"));
    let live: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    assert_eq!(drawn, live);
    for rights in ["R-X", "R--", "RW-"] {
        assert!(ranges.iter().any(|range| range.rights == rights), "nothing is {rights}");
    }

    let timeline = picture("timeline.svg");
    let timeline = Document::parse(&timeline).expect("the picture is XML");
    let of_class =
        |class| timeline.descendants().filter(move |node| node.attribute("class") == Some(class));
    assert!(of_class("slice").count() > 0 && of_class("mark").count() > 0, "it shows nothing");
}
