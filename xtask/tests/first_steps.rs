//! The first steps of CONTRIBUTING.md, to the letter: what it says to write is written into a copy of the sources, which is built and
//! booted, and what the kernel says must be what the page shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::environment;
use xtask::image::{self, Options, Profile};
use xtask::mutants::tree::{Sources, Workshop};
use xtask::pool;
use xtask::qemu::Boot;

const PAGE: &str = "CONTRIBUTING.md";
const CHAPTER: &str = "## First steps";

/// Lines of code that a step may take.
const MOST_LINES: usize = 10;

/// What stands for any text in a line that the kernel says.
const ANYTHING: &str = "…";

/// A step: what to write, and what the kernel then says. Lines that begin with the monitor's prompt are typed.
#[derive(Debug, Default)]
struct Step {
    name: String,
    edits: Vec<Edit>,
    said: Vec<String>,
}

/// Lines to write: a new file, or below a line of one that is there.
#[derive(Debug)]
struct Edit {
    file: PathBuf,
    below: Option<String>,
    lines: Vec<String>,
}

impl Edit {
    /// What a sentence with code in it asks for: its first piece of code that is a path is the file, the next one the line.
    fn asked_for(sentence: &str, lines: Vec<String>) -> Edit {
        let mut code = sentence.split('`').skip(1).step_by(2).map(str::to_owned);
        let file = code.find(|word| word.ends_with(".rs"));
        let file = file.unwrap_or_else(|| panic!("no file is named before {lines:#?}: {sentence}"));
        Edit { file: file.into(), below: code.next(), lines }
    }

    /// Whether this is what there is to write, and not only where it is named.
    fn is_code(&self) -> bool {
        self.below.is_none() || self.lines.len() > 1
    }

    fn code_lines(&self) -> usize {
        let counts = |line: &&String| {
            !line.trim().is_empty() && !["//", "use "].iter().any(|it| line.starts_with(it))
        };
        self.lines.iter().filter(counts).count()
    }

    fn apply(&self, tree: &Path) {
        let path = tree.join(&self.file);
        let Some(below) = &self.below else {
            assert!(!path.exists(), "{} is there already", self.file.display());
            fs::write(&path, self.lines.join("\n") + "\n").expect("there is room");
            return;
        };
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", self.file.display()));
        let mut lines: Vec<&str> = text.lines().collect();
        let places: Vec<usize> =
            (0..lines.len()).filter(|&place| lines[place].trim() == below).collect();
        let [place] = places[..] else {
            panic!("`{below}` is {} times in {}", places.len(), self.file.display())
        };
        lines.splice(place + 1..place + 1, self.lines.iter().map(String::as_str));
        fs::write(&path, lines.join("\n") + "\n").expect("there is room");
    }
}

/// Reads the chapter.
fn steps(page: &str) -> Vec<Step> {
    let (_, chapter) = page.split_once(CHAPTER).expect("the page has the chapter");
    let chapter = chapter.split("\n## ").next().unwrap_or(chapter);
    let mut steps: Vec<Step> = Vec::new();
    let mut sentence = String::new();
    let mut lines = chapter.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("### ") {
            steps.push(Step { name: name.to_owned(), ..Step::default() });
            sentence.clear();
        } else if let Some(language) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| *line != "```").map(str::to_owned);
            let block: Vec<String> = block.collect();
            let step = steps.last_mut().expect("a block belongs to a step");
            match language {
                "rust" => step.edits.push(Edit::asked_for(&sentence, block)),
                _ => step.said.extend(block),
            }
            sentence.clear();
        } else {
            sentence += line;
        }
    }
    steps
}

/// Whether a line of the kernel's is the one that the page shows.
fn is_shown(said: &str, shown: &str) -> bool {
    match shown.split_once(ANYTHING) {
        Some((start, end)) => said.starts_with(start) && said.ends_with(end),
        None => said == shown,
    }
}

#[test]
fn each_first_step_is_ten_lines_and_says_what_the_page_shows() {
    let environment = environment::require().unwrap_or_else(|missing| panic!("{missing}"));
    let workspace = environment::workspace();
    let page = fs::read_to_string(workspace.join(PAGE)).expect("the page is there");
    let steps = steps(&page);
    assert_eq!(steps.len(), 4, "{steps:#?}");

    // Where deliberate faults are built: what both need is built once.
    let folder = environment::target_dir().join("mutants");
    let workshop = Workshop::take(&folder, pool::default_jobs().get()).expect("there is room");
    let sources = Sources::read(&workspace).expect("the sources can be read");
    workshop.restore(&sources).expect("there is room");
    for step in &steps {
        assert!(!step.said.is_empty(), "{} shows nothing", step.name);
        let code = step.edits.iter().filter(|edit| edit.is_code());
        let count: usize = code.map(Edit::code_lines).sum();
        assert!((1..=MOST_LINES).contains(&count), "{} takes {count} lines", step.name);
        step.edits.iter().for_each(|edit| edit.apply(&workshop.tree()));
    }

    let lints =
        environment::require_lints(&environment).unwrap_or_else(|missing| panic!("{missing}"));
    let mut format = Command::new(&lints.cargo_fmt);
    format.args(["fmt", "--package", "kernel", "--", "--check"]).current_dir(workshop.tree());
    format
        .env("CARGO", &environment.cargo)
        .env("RUSTFMT", lints.cargo_fmt.with_file_name("rustfmt"));
    let formatted = format.output().expect("the formatter starts");
    let said = String::from_utf8_lossy(&formatted.stdout);
    assert!(formatted.status.success(), "`cargo fmt` would change the page's code:\n{said}");

    let options = Options {
        source: workshop.tree(),
        target_dir: workshop.kernel_target(),
        quiet: true,
        in_pieces: true,
        ..Options::new(Profile::Checked)
    };
    let image = image::build(&environment, &options).unwrap_or_else(|error| panic!("{error}"));
    let shown: Vec<&String> = steps.iter().flat_map(|step| &step.said).collect();
    let typed = shown.iter().filter_map(|line| line.strip_prefix("> "));
    let typed: String = typed.chain(["power off"]).map(|line| format!("{line}\r")).collect();
    let boot = Boot {
        append: "monitor".to_owned(),
        input: Some(format!("\r{typed}").into_bytes()),
        ..Boot::new(&image.elf)
    };
    let outcome = boot.run(&environment).expect("QEMU starts");
    let output = &outcome.output;
    for step in &steps {
        // Of the demo, or of the monitor after it: in any order to each other, in the page's order within a step.
        let mut rest = output.lines().map(str::trim_end);
        for shown in &step.said {
            let there = rest.any(|said| is_shown(said, shown));
            assert!(there, "{}: the kernel does not say `{shown}`:\n{output}", step.name);
        }
    }
    assert!(output.trim_end().ends_with("verdict: pass"), "{output}");
}
