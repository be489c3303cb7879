//! The [`Log`]: what the kernel printed of its harts' rings, line by line.
//!
//! ```text
//! trace: begin timebase=10000000 harts=4 dropped=0
//! trace: thread 1 idle of CPU 0
//! trace: 0 483912 switch 1 2
//! trace: dropped 3
//! trace: end
//! ```
//!
//! A line of an event has its CPU, its time in ticks of the timebase, its kind and two numbers, of which a kind that has fewer
//! leaves zeros. The times of a CPU do not fall.

use std::collections::BTreeMap;

/// What a line of a trace begins with. Other lines may stand between.
const PREFIX: &str = "trace: ";

/// What the harts did last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Ticks of the clock in a second.
    pub timebase: u64,
    /// How many harts were up.
    pub harts: u32,
    /// Events that were replaced by newer ones before they could be printed.
    pub dropped: u64,
    /// The threads' names by their ids.
    pub threads: BTreeMap<u32, String>,
    /// The events, each hart's in order.
    pub events: Vec<Event>,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// On which hart, by its CPU number.
    pub cpu: u32,
    /// When, in ticks of the timebase.
    pub time: u64,
    /// What.
    pub kind: Kind,
}

/// What happened. Threads by id, locks by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A thread gave way to another.
    Switch {
        /// The one that ran.
        from: u32,
        /// The one that runs now.
        to: u32,
    },
    /// A thread was woken.
    Wake {
        /// Which.
        thread: u32,
        /// Where it ran last, or is to begin.
        cpu: u32,
    },
    /// An interrupt was taken.
    Interrupt(Interrupt),
    /// It was done with.
    InterruptEnd,
    /// A thread was taken from another hart's queue.
    Steal {
        /// Which.
        thread: u32,
        /// From where.
        from_cpu: u32,
    },
    /// The hart slept until an interrupt.
    Idle,
    /// A lock was held by somebody else.
    LockWait(u64),
    /// It was taken in the end.
    LockTaken(u64),
    /// A thread was made.
    Spawn {
        /// Which.
        thread: u32,
        /// What it is called.
        name: Text,
    },
    /// A thread ended.
    Exit {
        /// Which.
        thread: u32,
        /// What it was called.
        name: Text,
    },
    /// What somebody looked for.
    Point(u32),
}

/// A text in the image: the 48 low bits of its address below its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text(pub u64);

impl Text {
    /// Where it lies.
    pub fn address(self) -> u64 {
        // The kernel's addresses are those of the higher half: the bits that are missing are like the last that is there.
        ((self.0 << 16) as i64 >> 16) as u64
    }

    /// How many bytes it has.
    pub fn bytes(self) -> u64 {
        self.0 >> 48
    }
}

/// Where an interrupt came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Another hart.
    Ipi,
    /// The clock.
    Timer,
    /// A device.
    External,
}

impl Interrupt {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Interrupt::Ipi => "IPI",
            Interrupt::Timer => "timer",
            Interrupt::External => "device",
        }
    }
}

/// Why an output's trace cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("the kernel printed no trace")]
    Missing,
    /// It breaks off.
    #[error("the trace that begins in line {begin} of the output has no end")]
    NoEnd {
        /// The line that begins it, counted from 1.
        begin: usize,
    },
    /// A line is not as the format has it.
    #[error("line {number} of the output, `{}`: {problem}", line.escape_debug())]
    Malformed {
        /// The line's number, counted from 1.
        number: usize,
        /// The line.
        line: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What can be wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It stands before the beginning, or after the end.
    #[error("it stands outside of the trace")]
    Outside,
    /// A trace begins within a trace, or after one.
    #[error("there is a trace already")]
    Second,
    /// Too few words or too many.
    #[error("{found} words where {expected} belong")]
    WordCount {
        /// How many belong there.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// Something else than `NAME=NUMBER`.
    #[error("`{found}` where `{name}=NUMBER` belongs")]
    Field {
        /// The field.
        name: &'static str,
        /// What stands there.
        found: String,
    },
    /// No number, or one that is too large.
    #[error("the {what} `{found}` is no number that fits")]
    Number {
        /// What it is to be.
        what: &'static str,
        /// What stands there.
        found: String,
    },
    /// A clock that stands.
    #[error("the timebase is 0")]
    NoTimebase,
    /// A kind that there is not.
    #[error("no event is of the kind `{0}`")]
    UnknownKind(String),
    /// Something where zero belongs.
    #[error("the kind `{kind}` leaves the argument `{found}` zero")]
    UselessArgument {
        /// The kind.
        kind: String,
        /// What stands there.
        found: u64,
    },
    /// An event before the one that the line before tells.
    #[error("the time of CPU {cpu} goes back from {before}")]
    TimeGoesBack {
        /// The hart.
        cpu: u32,
        /// The time in its line before.
        before: u64,
    },
    /// A thread with two names.
    #[error("thread {0} has a name already")]
    SecondName(u32),
}

impl Log {
    /// Finds the trace in a boot's output.
    ///
    /// # Errors
    /// When there is none, or it is malformed.
    pub fn parse(output: &str) -> Result<Log, Error> {
        let mut reader = Reader::default();
        for (index, line) in output.lines().enumerate() {
            // The firmware's console may put a carriage return before each line feed.
            let Some(rest) = line.trim_end_matches('\r').strip_prefix(PREFIX) else { continue };
            let number = index + 1;
            let malformed = |problem| Error::Malformed { number, line: line.to_owned(), problem };
            reader.read(number, rest).map_err(malformed)?;
        }
        match reader.place {
            Place::Before => Err(Error::Missing),
            Place::Within(begin) => Err(Error::NoEnd { begin }),
            Place::After => Ok(reader.log),
        }
    }
}

#[derive(Default)]
struct Reader {
    log: Log,
    place: Place,
    /// The time of each CPU's last event.
    times: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Before,
    /// With the number of the line that begins the trace.
    Within(usize),
    After,
}

impl Reader {
    fn read(&mut self, number: usize, line: &str) -> Result<(), Problem> {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first == "begin" {
            if self.place != Place::Before {
                return Err(Problem::Second);
            }
            self.place = Place::Within(number);
            return self.begin(rest);
        }
        if !matches!(self.place, Place::Within(_)) {
            return Err(Problem::Outside);
        }
        match first {
            "end" => {
                let [] = words(rest)?;
                self.place = Place::After;
                Ok(())
            }
            "dropped" => {
                let [more] = words(rest)?;
                self.log.dropped = self.log.dropped.saturating_add(parse("count", more)?);
                Ok(())
            }
            "thread" => {
                let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
                let id = parse("thread", id)?;
                match self.log.threads.insert(id, name.to_owned()) {
                    Some(_) => Err(Problem::SecondName(id)),
                    None => Ok(()),
                }
            }
            _ => self.event(line),
        }
    }

    fn begin(&mut self, rest: &str) -> Result<(), Problem> {
        let [timebase, harts, dropped] = words(rest)?;
        self.log.timebase = field("timebase", timebase)?;
        self.log.harts = field("harts", harts)?;
        self.log.dropped = field("dropped", dropped)?;
        if self.log.timebase == 0 { Err(Problem::NoTimebase) } else { Ok(()) }
    }

    fn event(&mut self, line: &str) -> Result<(), Problem> {
        let [cpu, time, kind, first, second] = words(line)?;
        let cpu = parse("CPU", cpu)?;
        let time = parse("time", time)?;
        let kind = kind_of(kind, first, second)?;
        if let Some(before) = self.times.insert(cpu, time).filter(|&before| before > time) {
            return Err(Problem::TimeGoesBack { cpu, before });
        }
        self.log.events.push(Event { cpu, time, kind });
        Ok(())
    }
}

fn kind_of(kind: &str, first: &str, second: &str) -> Result<Kind, Problem> {
    let unused = |word| match parse("argument", word)? {
        0 => Ok(()),
        found => Err(Problem::UselessArgument { kind: kind.to_owned(), found }),
    };
    let none = |event| unused(first).and(unused(second)).map(|()| event);
    let lock = |event: fn(u64) -> Kind| {
        unused(first)?;
        Ok(event(parse("lock", second)?))
    };
    match kind {
        "switch" => {
            Ok(Kind::Switch { from: parse("thread", first)?, to: parse("thread", second)? })
        }
        "wake" => Ok(Kind::Wake { thread: parse("thread", first)?, cpu: parse("CPU", second)? }),
        "ipi" => none(Kind::Interrupt(Interrupt::Ipi)),
        "timer" => none(Kind::Interrupt(Interrupt::Timer)),
        "external" => none(Kind::Interrupt(Interrupt::External)),
        "interrupt-end" => none(Kind::InterruptEnd),
        "steal" => {
            Ok(Kind::Steal { thread: parse("thread", first)?, from_cpu: parse("CPU", second)? })
        }
        "idle" => none(Kind::Idle),
        "lock-wait" => lock(Kind::LockWait),
        "lock-taken" => lock(Kind::LockTaken),
        "spawn" | "exit" => {
            let (thread, name) = (parse("thread", first)?, Text(parse("name", second)?));
            Ok(match kind {
                "spawn" => Kind::Spawn { thread, name },
                _ => Kind::Exit { thread, name },
            })
        }
        "point" => {
            unused(second)?;
            Ok(Kind::Point(parse("point", first)?))
        }
        _ => Err(Problem::UnknownKind(kind.to_owned())),
    }
}

/// The words of a line, which must be so many.
fn words<const COUNT: usize>(line: &str) -> Result<[&str; COUNT], Problem> {
    let found: Vec<&str> = line.split_ascii_whitespace().collect();
    let count = found.len();
    found.try_into().map_err(|_| Problem::WordCount { expected: COUNT, found: count })
}

fn parse<T: std::str::FromStr>(what: &'static str, word: &str) -> Result<T, Problem> {
    word.parse().map_err(|_| Problem::Number { what, found: word.to_owned() })
}

fn field<T: std::str::FromStr>(name: &'static str, word: &str) -> Result<T, Problem> {
    match word.split_once('=') {
        Some((found, value)) if found == name => parse(name, value),
        _ => Err(Problem::Field { name, found: word.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "trace: begin timebase=10000000 harts=2 dropped=7\n";

    /// The problem in the second line of a trace that has these lines after its first.
    fn problem(lines: &str) -> Problem {
        match Log::parse(&format!("{BEGIN}{lines}\ntrace: end\n")) {
            Err(Error::Malformed { number: 2, problem, .. }) => problem,
            other => panic!("`{lines}` gives {other:?}"),
        }
    }

    #[test]
    fn a_trace_is_found_among_other_lines() {
        let output = format!(
            "16-os\r\n{BEGIN}trace: thread 1 idle of CPU 0\r\ntrace: thread 2 \ntest a ... ok\n\
             trace: 0 10 switch 1 2\ntrace: 1 5 ipi 0 0\ntrace: 1 5 interrupt-end 0 0\ntrace: dropped 3\ntrace: end\nverdict: pass\n"
        );
        let log = Log::parse(&output).unwrap();
        assert_eq!((log.timebase, log.harts, log.dropped), (10_000_000, 2, 10));
        assert_eq!(log.threads[&1], "idle of CPU 0");
        assert_eq!(log.threads[&2], "");
        assert_eq!(
            log.events,
            [
                Event { cpu: 0, time: 10, kind: Kind::Switch { from: 1, to: 2 } },
                Event { cpu: 1, time: 5, kind: Kind::Interrupt(Interrupt::Ipi) },
                Event { cpu: 1, time: 5, kind: Kind::InterruptEnd },
            ]
        );
    }

    #[test]
    fn every_kind_is_read() {
        for (line, kind) in [
            ("wake 4 1", Kind::Wake { thread: 4, cpu: 1 }),
            ("timer 0 0", Kind::Interrupt(Interrupt::Timer)),
            ("external 0 0", Kind::Interrupt(Interrupt::External)),
            ("steal 4 1", Kind::Steal { thread: 4, from_cpu: 1 }),
            ("idle 0 0", Kind::Idle),
            ("lock-wait 0 18446744071564517376", Kind::LockWait(0xffff_ffff_8025_6000)),
            ("lock-taken 0 9", Kind::LockTaken(9)),
            ("spawn 4 9", Kind::Spawn { thread: 4, name: Text(9) }),
            ("exit 4 9", Kind::Exit { thread: 4, name: Text(9) }),
            ("point 4 0", Kind::Point(4)),
        ] {
            let log = Log::parse(&format!("{BEGIN}trace: 0 1 {line}\ntrace: end\n")).unwrap();
            assert_eq!(log.events, [Event { cpu: 0, time: 1, kind }]);
        }
    }

    #[test]
    fn a_malformed_line_is_an_error_that_says_what_is_wrong() {
        let number = |what, found: &str| Problem::Number { what, found: found.to_owned() };
        for (line, expected) in [
            ("trace: 0 1 jump 0 0", Problem::UnknownKind("jump".to_owned())),
            ("trace: 0 1 idle 0", Problem::WordCount { expected: 5, found: 4 }),
            ("trace: ", Problem::WordCount { expected: 5, found: 0 }),
            ("trace: x 1 idle 0 0", number("CPU", "x")),
            ("trace: 0 -1 idle 0 0", number("time", "-1")),
            ("trace: 0 1 switch 1 4294967296", number("thread", "4294967296")),
            ("trace: 0 1 idle 0 3", Problem::UselessArgument { kind: "idle".to_owned(), found: 3 }),
            (
                "trace: 0 1 lock-wait 3 0",
                Problem::UselessArgument { kind: "lock-wait".to_owned(), found: 3 },
            ),
            ("trace: thread main", number("thread", "main")),
            ("trace: dropped many", number("count", "many")),
            ("trace: end now", Problem::WordCount { expected: 0, found: 1 }),
            ("trace: begin timebase=1 harts=1 dropped=0", Problem::Second),
        ] {
            assert_eq!(problem(line), expected, "{line}");
        }
    }

    #[test]
    fn a_text_is_an_address_and_a_length() {
        let text = Text(6 << 48 | 0xffff_8025_6000);
        assert_eq!((text.address(), text.bytes()), (0xffff_ffff_8025_6000, 6));
    }

    #[test]
    fn the_error_names_the_line() {
        let error = Log::parse(&format!("hello\n{BEGIN}trace: 0 1 jump 0 0\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 3 of the output, `trace: 0 1 jump 0 0`: no event is of the kind `jump`"
        );
    }

    #[test]
    fn the_first_line_has_all_that_the_others_need() {
        for (line, expected) in [
            ("timebase=0 harts=1 dropped=0", Problem::NoTimebase),
            ("timebase=1 harts=1", Problem::WordCount { expected: 3, found: 2 }),
            (
                "timebase=1 dropped=0 harts=1",
                Problem::Field { name: "harts", found: "dropped=0".to_owned() },
            ),
            (
                "timebase=fast harts=1 dropped=0",
                Problem::Number { what: "timebase", found: "fast".to_owned() },
            ),
        ] {
            match Log::parse(&format!("trace: begin {line}\ntrace: end\n")) {
                Err(Error::Malformed { number: 1, problem, .. }) => assert_eq!(problem, expected),
                other => panic!("`{line}` gives {other:?}"),
            }
        }
    }

    #[test]
    fn the_times_of_a_cpu_do_not_fall() {
        let lines =
            format!("{BEGIN}trace: 0 5 idle 0 0\ntrace: 1 3 idle 0 0\ntrace: 0 4 idle 0 0\n");
        match Log::parse(&lines) {
            Err(Error::Malformed { number: 4, problem, .. }) => {
                assert_eq!(problem, Problem::TimeGoesBack { cpu: 0, before: 5 });
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_trace_that_is_missing_or_breaks_off_is_an_error() {
        assert_eq!(Log::parse("verdict: pass\n"), Err(Error::Missing));
        assert_eq!(Log::parse(&format!("\n{BEGIN}")), Err(Error::NoEnd { begin: 2 }));
        let outside = Log::parse("trace: end\n");
        assert!(matches!(outside, Err(Error::Malformed { problem: Problem::Outside, .. })));
        let two_names = format!("{BEGIN}trace: thread 1 a\ntrace: thread 1 b\n");
        let two_names = Log::parse(&two_names);
        assert!(matches!(two_names, Err(Error::Malformed { problem: Problem::SecondName(1), .. })));
    }
}
