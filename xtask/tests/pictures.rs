//! README's pictures, from boots of the kernel as it is.

mod common;

use std::fs;

use common::{bench, run, said, xtask};
use roxmltree::Document;
use xtask::pictures::{map_boot, memory_map};

#[test]
fn the_memory_map_shows_every_range_of_the_live_page_table() {
    let folder = tempfile::tempdir().expect("there is room");
    let out = folder.path().to_str().expect("its name is text");
    said(&xtask(&["pictures", "--out", out]), 0);

    let picture = |name| fs::read_to_string(folder.path().join(name)).expect("it was drawn");
    let map = picture("memory-map.svg");
    let map = Document::parse(&map).expect("the picture is XML");
    let drawn = map.descendants().filter(|node| node.attribute("class") == Some("range"));
    let drawn: Vec<&str> = drawn.filter_map(|node| node.first_element_child()?.text()).collect();

    // Another boot of the same machine maps the same.
    let outcome = run(&map_boot(&bench().image.elf, 2));
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
