//! The benchmarks: the same numbers in every boot, under the documented names, and none beyond what the baseline allows.

use std::process::{Command, Output};
use std::sync::OnceLock;

use xtask::bench::{self, Failed, Measurement, budget, figures};
use xtask::environment::{self, Environment};
use xtask::image::{self, Image, Options, Profile};
use xtask::manifest::Manifest;
use xtask::progress;
use xtask::qemu::{Boot, Exit, Outcome};

/// The names that `bench --json` has (cli.md).
const DOCUMENTED: [&str; 21] = [
    "switch",
    "yield",
    "trap",
    "timer_interrupt",
    "timer_rearm",
    "spin_lock",
    "frame_alloc",
    "frame_free",
    "frame_alloc_zeroed",
    "frame_bulk_pair",
    "kmalloc_64_pair",
    "wake_to_run",
    "sbi_call",
    "boot_to_first_thread",
    "page_table_pages",
    "free_frames",
    "text_bytes",
    "code_lines",
    "interrupts_off_max",
    "timer_latency_idle_max",
    "timer_latency_busy_max",
];

struct Ready {
    environment: Environment,
    image: Image,
    measurement: Measurement,
}

/// The image and one whole measurement, made once for all tests.
fn ready() -> &'static Ready {
    static READY: OnceLock<Ready> = OnceLock::new();
    READY.get_or_init(|| {
        let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
        let image = bench::image(&environment).unwrap_or_else(|error| panic!("{error}"));
        let measurement =
            bench::measure(&environment, "").unwrap_or_else(|error| panic!("{error:#}"));
        Ready { environment, image, measurement }
    })
}

fn xtask(words: &[&str]) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(words).output().expect("xtask starts")
}

fn boot(boot: &Boot) -> Outcome {
    boot.run(&ready().environment).expect("QEMU starts")
}

/// A boot must end with this code and this last line.
fn ends(outcome: &Outcome, code: i32, verdict: &str) {
    assert_eq!(outcome.exit, Exit::Code(code), "{}", outcome.output);
    let last = outcome.output.lines().last().unwrap_or_default();
    assert!(last.starts_with(verdict), "the last line is `{last}`, not `{verdict}...`");
}

#[test]
fn two_boots_give_the_same_output_to_the_last_byte() {
    let Ready { environment, image, measurement } = ready();
    let again = bench::boot(environment, image, &[]).unwrap_or_else(|error| panic!("{error:#}"));
    let differs = |(one, other): &(&str, &str)| one != other;
    let difference = measurement.log.lines().zip(again.lines()).find(differs);
    assert_eq!(difference, None, "the first lines that differ");
    assert_eq!(again, measurement.log);
}

#[test]
fn every_name_is_documented() {
    for name in DOCUMENTED {
        assert!(figures::named(name).is_some(), "{name} has no figure");
    }
    let manifest = Manifest::read(&ready().image.elf).unwrap_or_else(|error| panic!("{error}"));
    for benchmark in &manifest.benchmarks {
        let name = &benchmark.name;
        let figure = figures::named(name);
        assert!(
            figure.is_some(),
            "{name} ({}) has no figure that says what it is",
            benchmark.place
        );
    }
}

#[test]
fn json_has_the_documented_keys_and_every_number_of_the_image() {
    let output = xtask(&["bench", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let keys = |json: &serde_json::Value| -> Vec<String> {
        json.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(&json), ["gauges", "qemu", "rows", "toolchain"]);
    assert!(json["toolchain"].as_str().is_some_and(|words| words.starts_with("rustc ")));
    assert!(json["qemu"].as_str().is_some_and(|words| words.starts_with("QEMU ")));

    let rows = json["rows"].as_array().expect("a list");
    for row in rows {
        assert_eq!(keys(row), ["instructions", "max", "min", "name"]);
        let number = |key: &str| row[key].as_f64().expect("a number");
        let [min, mean, max] = ["min", "instructions", "max"].map(number);
        assert!(min <= mean && mean <= max && mean > 0.0, "{row}");
    }
    let names = rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned());
    let mut names: Vec<String> = names.chain(keys(&json["gauges"])).collect();
    names.sort();
    let manifest = Manifest::read(&ready().image.elf).unwrap_or_else(|error| panic!("{error}"));
    let of_host = ["code_lines", "text_bytes", "interrupts_off_max"];
    let mut expected = of_host.map(str::to_owned).to_vec();
    expected.extend(manifest.benchmarks.into_iter().map(|benchmark| benchmark.name));
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn no_count_grew_beyond_what_the_baseline_allows() {
    let now = &ready().measurement.results;
    let baseline = budget::baseline(&environment::workspace())
        .unwrap_or_else(|error| panic!("{error:#}"))
        .expect("results/baseline.json is there: `cargo run -- bench --save` writes it");
    let breaches = budget::breaches(now, &baseline);
    let sentences: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    let other_versions = budget::versions(now, &baseline);
    if other_versions.is_empty() {
        assert!(
            breaches.is_empty(),
            "beyond the baseline:\n{}\n`cargo run -- bench ROW --profile` shows where a row's instructions are; `cargo run -- bench` shows \
             all, and with `--save` accepts them",
            sentences.join("\n")
        );
    }
    for sentence in other_versions.into_iter().chain(sentences) {
        progress::say(&format!("instruction counts are not judged: {sentence}"));
    }
}

#[test]
fn a_filter_measures_only_what_has_it_in_its_name() {
    let measurement = bench::measure(&ready().environment, "frame_alloc")
        .unwrap_or_else(|error| panic!("{error:#}"));
    let mut names: Vec<&str> = measurement.results.names().collect();
    names.sort_unstable();
    assert_eq!(names, ["frame_alloc", "frame_alloc_zeroed"]);
    let of_host = bench::measure(&ready().environment, "code_lines")
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert!(of_host.results.names().eq(["code_lines"]) && of_host.log.is_empty());
}

#[test]
fn a_name_that_is_none_is_a_wrong_command_line_and_a_failed_boot() {
    let output = xtask(&["bench", "no_such_row"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no benchmark has `no_such_row` in its name"), "{said}");

    let Ready { environment, image, .. } = ready();
    let error =
        bench::boot(environment, image, &["no_such_row"]).expect_err("there is no such row");
    let failed = error.downcast::<Failed>().expect("the boot failed");
    assert_eq!(failed.verdict.exit_code(), 1);
    assert!(failed.output.contains("no benchmark is called 'no_such_row'"), "{failed}");
}

#[test]
fn nothing_is_measured_where_instructions_are_not_counted() {
    let outcome = boot(&Boot { append: "bench".to_owned(), ..Boot::new(&ready().image.elf) });
    ends(&outcome, 5, "verdict: refused: nothing can be measured: rdinstret counts something else");
}

#[test]
fn an_image_without_benchmarks_refuses_them() {
    let bare = Options { features: Vec::new(), ..Options::new(Profile::Release) };
    let image = image::build(&ready().environment, &bare).unwrap_or_else(|error| panic!("{error}"));
    let outcome = boot(&Boot { append: "bench".to_owned(), ..Boot::new(&image.elf) });
    ends(&outcome, 5, "verdict: refused: this image has no benchmarks");
}
