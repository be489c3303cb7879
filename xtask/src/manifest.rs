//! The [`Manifest`]: which self-tests, deliberate crashes and benchmarks an image holds.
//!
//! The kernel writes a line for each where it is registered, into an ELF section that is not loaded. Reading it takes
//! no boot, so the tests can be listed by name, and what a run reports can be held against what it should have run.
//!
//! A line's fields are separated by tabs:
//!
//! ```text
//! test   NAME  CLAIM  HARTS  FLAGS  FILE:LINE
//! crash  KIND  CLAIM  HARTS  FLAGS  FILE:LINE  SENTENCE  FRAME,FRAME,…
//! bench  NAME  FILE:LINE
//! gauge  NAME  FILE:LINE
//! ```
//!
//! A test's name is its path; what all of them begin with, [`PREFIX`], is left out, here and in the kernel.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use object::{Object, ObjectSection};

/// The name of the ELF section that holds the manifest.
pub const SECTION: &str = ".manifest";

/// The module that all self-tests lie in.
pub const PREFIX: &str = "kernel::selftest::";

/// What an image can be asked to run, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The self-tests.
    pub tests: Vec<Test>,
    /// The deliberate crashes.
    pub crashes: Vec<Crash>,
    /// The benchmarks.
    pub benchmarks: Vec<Benchmark>,
}

/// One self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its name, as in `only=NAME` on the kernel's command line: `frame::double_free_is_an_error`.
    pub name: String,
    /// What is said of tests and crashes alike.
    pub entry: Entry,
}

/// One deliberate crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// Its kind, as in `crash=KIND` on the kernel's command line.
    pub kind: String,
    /// What is said of tests and crashes alike.
    pub entry: Entry,
    /// A text that the verdict's sentence must contain.
    pub sentence: String,
    /// Parts of function names that the report's backtrace must show in this order; others may stand between them.
    pub frames: Vec<String>,
}

/// One benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Benchmark {
    /// Its name, as in `only=NAME` on the kernel's command line.
    pub name: String,
    /// Whether it is a gauge: one number, and no count of instructions.
    pub is_gauge: bool,
    /// Where it is registered.
    pub place: Place,
}

/// What the manifest says of a self-test and of a crash alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The number of the claim that is checked.
    pub claim: u32,
    /// How many harts it needs at the least.
    pub harts: u32,
    /// When and how it is run.
    pub flags: Flags,
    /// Where it is registered.
    pub place: Place,
}

/// The words in a manifest line's field of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `quick`: the demo runs it too.
    pub quick: bool,
    /// `icount`: it counts instructions, so only the deterministic lane can run it.
    pub icount: bool,
    /// `unexplored`: other schedules are not tried with it: it demands one, or can run only once in a boot.
    pub unexplored: bool,
    /// `example`: it is wrong on purpose, in a way that one run passes; it runs only when it is named.
    pub example: bool,
    /// `hang`: the boot must never end. It says its sentence and goes on for ever; the host then stops it, and its
    /// diagnosis from outside must show the frames.
    pub hang: bool,
    /// `fixed`: a crash that says itself on which hart and how it happens, and takes no options.
    pub fixed: bool,
    /// `cut`: a crash that destroys the end of its own backtrace.
    pub cut: bool,
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the workspace.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.file, self.line)
    }
}

/// Why an image's manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image is not there.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The image.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is no ELF image.
    #[error("{}: not an ELF image: {error}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Why.
        error: object::Error,
    },
    /// The image has no section of the name [`SECTION`]: it was built without self-tests.
    #[error("{}: no section {SECTION}: built without self-tests?", path.display())]
    NoSection {
        /// The image.
        path: PathBuf,
    },
    /// A line is not as the format has it.
    #[error("{SECTION}, line {number} `{}`: {problem}", line.escape_debug())]
    Malformed {
        /// The line's number, counted from 1.
        number: usize,
        /// The line.
        line: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What can be wrong with a line of the manifest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A byte sequence that is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// The first field is none of `test`, `crash`, `bench` and `gauge`.
    #[error("begins with `{0}`, none of `test`, `crash`, `bench` and `gauge`")]
    UnknownSort(String),
    /// A field too few or too many.
    #[error("{found} fields where {expected} belong")]
    FieldCount {
        /// How many the sort of line has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A field that must not be empty is.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A field that should be a positive number is none.
    #[error("the {field} `{found}` is no positive number")]
    NotNumber {
        /// Which field.
        field: &'static str,
        /// What stands there.
        found: String,
    },
    /// A word in the field of flags that means nothing.
    #[error("unknown flag `{0}`")]
    UnknownFlag(String),
    /// The last field is not `FILE:LINE`.
    #[error("the place `{0}` is not FILE:LINE")]
    NotPlace(String),
    /// Two tests, two crashes or two benchmarks of one name.
    #[error("a second {sort} of the name `{name}`")]
    Duplicate {
        /// `test`, `crash` or `benchmark`.
        sort: &'static str,
        /// The name.
        name: String,
    },
    /// A comma or a blank in a name, which the kernel's command line could not carry.
    #[error("the name `{0}` holds a character that separates words")]
    Separator(String),
}

impl Manifest {
    /// Reads the manifest of the image at `path`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let data = std::fs::read(path)
            .map_err(|error| Error::Unreadable { path: path.to_owned(), error })?;
        let not_elf = |error| Error::NotElf { path: path.to_owned(), error };
        let elf = object::File::parse(&*data).map_err(not_elf)?;
        let section = elf
            .section_by_name(SECTION)
            .ok_or_else(|| Error::NoSection { path: path.to_owned() })?;
        Self::parse(section.data().map_err(not_elf)?)
    }

    /// Reads a manifest from the bytes of its section. The linker may have put zero bytes between the lines to align
    /// them.
    pub fn parse(section: &[u8]) -> Result<Self, Error> {
        let mut manifest = Self::default();
        let mut names = HashSet::new();
        let lines =
            section.split(|&byte| byte == b'\n' || byte == 0).filter(|line| !line.is_empty());
        for (index, bytes) in lines.enumerate() {
            let malformed = |problem| Error::Malformed {
                number: index + 1,
                line: String::from_utf8_lossy(bytes).into_owned(),
                problem,
            };
            let line = str::from_utf8(bytes).map_err(|_| malformed(Problem::NotText))?;
            let (sort, name) = manifest.push(line).map_err(malformed)?;
            if !names.insert((sort, name.clone())) {
                return Err(malformed(Problem::Duplicate { sort, name }));
            }
        }
        manifest.tests.sort_by(|a, b| a.name.cmp(&b.name));
        manifest.crashes.sort_by(|a, b| a.kind.cmp(&b.kind));
        manifest.benchmarks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(manifest)
    }

    /// Adds what one line describes, and says what it was.
    fn push(&mut self, line: &str) -> Result<(&'static str, String), Problem> {
        let fields: Vec<&str> = line.split('\t').collect();
        let expect = |expected| {
            if fields.len() == expected {
                Ok(())
            } else {
                Err(Problem::FieldCount { expected, found: fields.len() })
            }
        };
        match fields[0] {
            "test" => {
                expect(6)?;
                let path = fields[1];
                let name = name(path.strip_prefix(PREFIX).unwrap_or(path), "name")?;
                let entry = Entry::parse(&fields[2..6])?;
                self.tests.push(Test { name: name.clone(), entry });
                Ok(("test", name))
            }
            "crash" => {
                expect(8)?;
                let kind = name(fields[1], "kind")?;
                self.crashes.push(Crash {
                    kind: kind.clone(),
                    entry: Entry::parse(&fields[2..6])?,
                    sentence: filled(fields[6], "sentence")?.to_owned(),
                    frames: words(fields[7]).map(str::to_owned).collect(),
                });
                Ok(("crash", kind))
            }
            sort @ ("bench" | "gauge") => {
                expect(3)?;
                let name = name(fields[1], "name")?;
                let (is_gauge, place) = (sort == "gauge", fields[2].parse()?);
                self.benchmarks.push(Benchmark { name: name.clone(), is_gauge, place });
                Ok(("benchmark", name))
            }
            other => Err(Problem::UnknownSort(other.to_owned())),
        }
    }
}

impl Entry {
    /// Reads the four fields CLAIM, HARTS, FLAGS and FILE:LINE.
    fn parse(fields: &[&str]) -> Result<Self, Problem> {
        Ok(Self {
            claim: number(fields[0], "claim")?,
            harts: number(fields[1], "number of harts")?,
            flags: fields[2].parse()?,
            place: fields[3].parse()?,
        })
    }
}

impl FromStr for Flags {
    type Err = Problem;

    fn from_str(field: &str) -> Result<Self, Problem> {
        let mut flags = Self::default();
        for word in words(filled(field, "field of flags (`-` for none)")?) {
            match word {
                "quick" => flags.quick = true,
                "icount" => flags.icount = true,
                "example" => flags.example = true,
                "unexplored" => flags.unexplored = true,
                "hang" => flags.hang = true,
                "fixed" => flags.fixed = true,
                "cut" => flags.cut = true,
                other => return Err(Problem::UnknownFlag(other.to_owned())),
            }
        }
        Ok(flags)
    }
}

impl FromStr for Place {
    type Err = Problem;

    fn from_str(field: &str) -> Result<Self, Problem> {
        let (file, line) = field
            .rsplit_once(':')
            .filter(|(file, _)| !file.is_empty())
            .ok_or_else(|| Problem::NotPlace(field.to_owned()))?;
        Ok(Self {
            file: file.to_owned(),
            line: number(line, "line").map_err(|_| Problem::NotPlace(field.to_owned()))?,
        })
    }
}

/// The words of a comma-separated field, in which a lone `-` stands for none.
fn words(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').filter(|word| !matches!(*word, "" | "-"))
}

fn filled<'a>(field: &'a str, what: &'static str) -> Result<&'a str, Problem> {
    if field.is_empty() { Err(Problem::Empty(what)) } else { Ok(field) }
}

fn name(field: &str, what: &'static str) -> Result<String, Problem> {
    let name = filled(field, what)?;
    if name.contains([',', ' ', '*', '=']) {
        return Err(Problem::Separator(name.to_owned()));
    }
    Ok(name.to_owned())
}

fn number(field: &str, what: &'static str) -> Result<u32, Problem> {
    match field.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Problem::NotNumber { field: what, found: field.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "test\tframe::b\t3\t1\tquick,icount\tkernel/src/frame.rs:12\n";
    const CRASH: &str = "crash\tpanic\t4\t1\t-\tkernel/src/crash.rs:7\tpanicked\tlevel_one,main\n";

    fn problem(text: &str) -> (usize, Problem) {
        match Manifest::parse(text.as_bytes()) {
            Err(Error::Malformed { number, problem, .. }) => (number, problem),
            other => panic!("expected a malformed line, got {other:?}"),
        }
    }

    #[test]
    fn a_test_and_a_crash_are_read_field_by_field() {
        let manifest = Manifest::parse(format!("{TEST}{CRASH}").as_bytes()).unwrap();
        let test = &manifest.tests[0];
        assert_eq!(test.name, "frame::b");
        assert_eq!(test.entry.claim, 3);
        assert_eq!(test.entry.harts, 1);
        assert!(test.entry.flags.quick && test.entry.flags.icount && !test.entry.flags.hang);
        assert_eq!(test.entry.place.to_string(), "kernel/src/frame.rs:12");
        let crash = &manifest.crashes[0];
        assert_eq!(crash.kind, "panic");
        assert_eq!(crash.entry.flags, Flags::default());
        assert_eq!(crash.sentence, "panicked");
        assert_eq!(crash.frames, ["level_one", "main"]);
    }

    #[test]
    fn the_module_of_all_tests_is_no_part_of_a_name() {
        let text = TEST.replace("frame::b", "kernel::selftest::frame::b");
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.tests[0].name, "frame::b");
    }

    #[test]
    fn tests_are_sorted_whatever_order_the_linker_chose() {
        let text = format!("{TEST}{}", TEST.replace("frame::b", "frame::a"));
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        let names: Vec<_> = manifest.tests.iter().map(|test| &test.name).collect();
        assert_eq!(names, ["frame::a", "frame::b"]);
    }

    #[test]
    fn zero_bytes_between_lines_are_padding() {
        let text = format!("{TEST}\0\0\0{CRASH}\0");
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!((manifest.tests.len(), manifest.crashes.len()), (1, 1));
    }

    #[test]
    fn a_crash_may_expect_no_frame() {
        let text = CRASH.replace("level_one,main", "-");
        assert!(Manifest::parse(text.as_bytes()).unwrap().crashes[0].frames.is_empty());
    }

    #[test]
    fn two_tests_of_one_name_are_an_error_that_names_the_second() {
        assert_eq!(
            problem(&format!("{TEST}{CRASH}{TEST}")),
            (3, Problem::Duplicate { sort: "test", name: "frame::b".into() })
        );
    }

    #[test]
    fn rows_and_gauges_are_benchmarks_of_different_names() {
        let text = "gauge\tfree\tkernel/src/bench/gauges.rs:6\nbench\tfast\tf:1\n";
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        let found = manifest.benchmarks.iter().map(|it| (&*it.name, it.is_gauge));
        assert_eq!(found.collect::<Vec<_>>(), [("fast", false), ("free", true)]);
        assert_eq!(manifest.benchmarks[1].place.to_string(), "kernel/src/bench/gauges.rs:6");
        assert_eq!(
            problem(&format!("{text}bench\tfree\tf:1\n")),
            (3, Problem::Duplicate { sort: "benchmark", name: "free".into() })
        );
    }

    #[test]
    fn a_test_and_a_crash_may_share_a_name() {
        let text = format!("{TEST}{}", CRASH.replace("panic\t", "frame::b\t"));
        assert!(Manifest::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn every_way_a_line_can_be_wrong_is_an_error_of_its_own() {
        let cases = [
            ("tests\tx", Problem::UnknownSort("tests".into())),
            ("bench\tx", Problem::FieldCount { expected: 3, found: 2 }),
            ("gauge\tx y\tf:1", Problem::Separator("x y".into())),
            ("bench\tx\tf:0", Problem::NotPlace("f:0".into())),
            ("test\tx\t1\t1\t-", Problem::FieldCount { expected: 6, found: 5 }),
            ("crash\tx\t1\t1\t-\tf:1\ts", Problem::FieldCount { expected: 8, found: 7 }),
            ("test\t\t1\t1\t-\tf:1", Problem::Empty("name")),
            ("test\ta,b\t1\t1\t-\tf:1", Problem::Separator("a,b".into())),
            (
                "test\tx\tseven\t1\t-\tf:1",
                Problem::NotNumber { field: "claim", found: "seven".into() },
            ),
            (
                "test\tx\t1\t0\t-\tf:1",
                Problem::NotNumber { field: "number of harts", found: "0".into() },
            ),
            ("test\tx\t1\t1\tslow\tf:1", Problem::UnknownFlag("slow".into())),
            ("test\tx\t1\t1\t-\tf", Problem::NotPlace("f".into())),
            ("test\tx\t1\t1\t-\tf:0", Problem::NotPlace("f:0".into())),
            ("crash\tx\t1\t1\t-\tf:1\t\tmain", Problem::Empty("sentence")),
        ];
        for (line, expected) in cases {
            assert_eq!(problem(&format!("{TEST}{line}\n")), (2, expected), "{line}");
        }
    }

    #[test]
    fn a_malformed_line_is_shown_in_the_message() {
        let message = Manifest::parse(b"test\tx\n").unwrap_err().to_string();
        assert_eq!(message, ".manifest, line 1 `test\\tx`: 2 fields where 6 belong");
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_an_error() {
        assert!(matches!(
            Manifest::parse(b"test\t\xff\n"),
            Err(Error::Malformed { problem: Problem::NotText, .. })
        ));
    }

    #[test]
    fn a_file_that_is_no_elf_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        std::fs::write(&path, "hello").unwrap();
        let message = Manifest::read(&path).unwrap_err().to_string();
        assert!(message.contains("kernel: not an ELF image"), "{message}");
    }
}
