//! What must not grow does not: the same tables twice, with more threads and with memory nearly full.

use xtask::bench;
use xtask::bench::growth::{self, Grows, ROWS, Series, State};
use xtask::bench::results::Measured;
use xtask::environment::{self, Environment};
use xtask::image::Image;

fn ready() -> (Environment, Image) {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let image = bench::image(&environment).unwrap_or_else(|error| panic!("{error}"));
    (environment, image)
}

fn measured(ready: &(Environment, Image), state: &State) -> Measured {
    let (environment, image) = ready;
    let (measured, _) = growth::measure(environment, image, state, &ROWS)
        .unwrap_or_else(|error| panic!("{}: {error:#}", state.label));
    measured
}

/// Measures two states, the second one twice, and fails where that gives two tables, or where something grew for which there is no
/// reason.
fn grows_for_a_reason(grows: Grows, least: State, most: State) {
    let ready = ready();
    let states = [least, most].map(|state| (state.label.clone(), measured(&ready, &state), state));
    let [_, (_, first, state)] = &states;
    assert_eq!(&measured(&ready, state), first, "two boots gave two tables");
    let states = states.map(|(label, measured, _)| (label, measured)).into();
    let changes = Series { grows, states }.changes();
    let wrong: Vec<_> = changes.iter().filter(|change| change.why.is_none()).collect();
    assert!(wrong.is_empty(), "these grow, and there is no reason for so much: {wrong:#?}");
}

#[test]
fn no_row_grows_with_the_threads_that_rest() {
    let none = State::new("no threads", "128M", "");
    let many = State::new("500 threads", "128M", "threads:500");
    grows_for_a_reason(Grows::Threads, none, many);
}

#[test]
fn no_row_grows_with_memory_that_is_in_use_but_for_a_reason() {
    let empty = State::new("as booted", "2G", "");
    let full = State::new("99 %", "2G", "fill:99");
    grows_for_a_reason(Grows::Fill, empty, full);
}

#[test]
fn no_row_grows_with_the_harts_that_idle_but_for_a_reason() {
    let alone = State::new("1", "128M", "");
    let three = State { harts: 3, ..State::new("3", "128M", "") };
    grows_for_a_reason(Grows::Harts, alone, three);
}

#[test]
fn a_load_that_memory_does_not_suffice_for_is_refused_in_a_sentence() {
    let (environment, image) = ready();
    for (with, sentence) in [
        ("threads:10000", "there is no memory for the thread's stack"),
        ("fill:0", "frames are in use already, and 0 are asked for"),
        ("fill:101", "'fill:101' is none of threads:N, fill:PERCENT, fill:every_other"),
    ] {
        let state = State::new(with, "32M", with);
        let error = growth::measure(&environment, &image, &state, &["trap"])
            .expect_err("there is no such load");
        let failed = error.downcast::<bench::Failed>().expect("the boot failed");
        assert_eq!(failed.verdict.exit_code(), 5, "{failed}");
        let refusal = "verdict: refused: there is no such load: ";
        let last = failed.output.lines().last().unwrap_or_default();
        assert!(last.starts_with(refusal) && last.ends_with(sentence), "{failed}");
    }
}
