//! The kernel's crash report as programs read it: the line `report: {…}`, held against what a crash must say.

use serde::Deserialize;

/// What the line begins with.
const LINE: &str = "report: ";

/// A crash report.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// What happened.
    pub sentence: String,
    /// The hart it happened on.
    pub hart: u64,
    /// Its CPU number.
    pub cpu: u32,
    /// A panic or a trap.
    pub kind: Kind,
    /// The trap's cause in words.
    pub cause: Option<String>,
    /// The faulting instruction's place; of a trap.
    pub at: Option<Place>,
    /// Its bytes as a number, where it lies in the kernel's text.
    pub instruction: Option<String>,
    /// All 31 registers by name.
    pub registers: std::collections::BTreeMap<String, String>,
    /// What each hart that is up was doing.
    pub harts: Vec<Hart>,
    /// Locks that were held.
    pub locks: Vec<Lock>,
    /// How the kernel got there, the latest step first.
    pub backtrace: Vec<Step>,
}

/// What kind of crash it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The kernel found that something cannot be.
    Panic,
    /// A trap that nobody expected.
    Trap,
}

/// An address in the code.
#[derive(Debug, Deserialize)]
pub struct Place {
    /// In hexadecimal.
    pub address: String,
    /// The function it lies in, if it lies in one.
    pub symbol: Option<String>,
}

/// One step of a backtrace.
#[derive(Debug, Deserialize)]
pub struct Step {
    /// Where.
    pub at: Place,
    /// How often the same step came again right after.
    pub repeated: usize,
}

/// What one hart was doing.
#[derive(Debug, Deserialize)]
pub struct Hart {
    /// The firmware's name for it.
    pub hart: u64,
    /// Its CPU number.
    pub cpu: u32,
    /// How it came to stand still, in words.
    pub state: String,
}

/// A lock that was held.
#[derive(Debug, Deserialize)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// The CPU that held it; of checked builds.
    pub cpu: Option<u32>,
    /// The line that took it; of checked builds.
    pub taken: Option<String>,
}

/// What must hold of a whole report, beside its sentence and frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The CPU that must have crashed; none where several may.
    pub cpu: Option<u32>,
    /// How many harts are up.
    pub harts: u32,
    /// Whether the console's lock is held.
    pub locked: bool,
    /// Whether every hart must have stopped: where no host's load can keep one from answering.
    pub stopped: bool,
    /// Whether the backtrace must reach the entry.
    pub whole: bool,
}

impl Report {
    /// The report in an output, of which there must be one.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn find(lines: &[&str]) -> Result<Report, String> {
        let mut reports = lines.iter().filter_map(|line| line.strip_prefix(LINE));
        let Some(text) = reports.next() else {
            return Err("there is no report for programs".to_owned());
        };
        if reports.next().is_some() {
            return Err("there are two reports".to_owned());
        }
        serde_json::from_str(text).map_err(|error| format!("the report is no JSON: {error}"))
    }

    /// What is wrong with it, in a sentence each. `sentence` is the verdict's, `top` the function that must come first.
    pub fn complaints(
        &self,
        expected: &Expected,
        sentence: &str,
        top: Option<&str>,
    ) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut demand = |holds: bool, otherwise: String| {
            if !holds {
                complaints.push(otherwise);
            }
        };
        demand(
            self.sentence == sentence,
            format!("the report says `{}`, the verdict `{sentence}`", self.sentence),
        );
        if let Some(cpu) = expected.cpu {
            demand(self.cpu == cpu, format!("CPU {} reports, where {cpu} should", self.cpu));
        }
        demand(self.registers.len() == 31, format!("it has {} registers", self.registers.len()));
        let cpus: Vec<u32> = self.harts.iter().map(|hart| hart.cpu).collect();
        demand(
            cpus == (0..expected.harts).collect::<Vec<_>>(),
            format!("it lists the CPUs {cpus:?}, where {} are up", expected.harts),
        );
        let reporting: Vec<u64> = self
            .harts
            .iter()
            .filter(|hart| hart.state == "reports this")
            .map(|hart| hart.hart)
            .collect();
        demand(
            reporting == [self.hart],
            format!("the harts {reporting:?} are said to report, where {} does", self.hart),
        );
        demand(
            !expected.locked || self.locks.iter().any(|lock| lock.name == "console"),
            "the console's lock is held, and the report does not say so".to_owned(),
        );
        let deaf: Vec<u64> = self
            .harts
            .iter()
            .filter(|hart| hart.state == "not answering")
            .map(|hart| hart.hart)
            .collect();
        demand(
            !expected.stopped || deaf.is_empty(),
            format!("the harts {deaf:?} did not answer, though nothing kept them"),
        );
        let is_zero = |name: &str| self.registers.get(name).is_none_or(|value| value == "0x0");
        let zeros: Vec<_> = ["sp", "tp"].into_iter().filter(|name| is_zero(name)).collect();
        demand(zeros.is_empty(), format!("the registers {zeros:?} are zero"));
        if let (Kind::Trap, Some(top)) = (self.kind, top) {
            let first = self.backtrace.iter().find_map(|step| step.at.symbol.as_deref());
            demand(
                first.is_some_and(|first| first.contains(top)),
                format!("the backtrace begins in {first:?}, where `{top}` belongs"),
            );
            // What could not be fetched cannot be shown.
            let fetched =
                !self.cause.as_ref().is_some_and(|cause| cause.starts_with("instruction"));
            demand(
                fetched == self.instruction.is_some(),
                format!("it shows the instruction {:?} of a {:?}", self.instruction, self.cause),
            );
        }
        if expected.whole {
            let last = self.backtrace.last().and_then(|step| step.at.symbol.as_deref());
            let begins = |last: &str| last.contains("hart_main") || last.contains("thread_main");
            demand(
                last.is_some_and(begins),
                format!(
                    "the backtrace ends in {last:?}, where no hart enters and no thread begins"
                ),
            );
        }
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "report: {\"sentence\":\"bang\",\"hart\":1,\"cpu\":0,\"kind\":\"trap\",\"cause\":\"load page fault\",\"at\":{\"address\":\"0x2\",\
        \"symbol\":\"touch\",\"offset\":2},\"instruction\":\"0x9002\",\"registers\":{},\"harts\":[{\"hart\":1,\"cpu\":0,\
        \"state\":\"reports this\"}],\"locks\":[],\"backtrace\":[{\"at\":{\"address\":\"0x2\",\"symbol\":\"touch\",\"offset\":2},\
        \"repeated\":0},{\"at\":{\"address\":\"0x4\",\"symbol\":\"boot_hart_main\",\"offset\":1},\"repeated\":0}]}";

    fn expected() -> Expected {
        Expected { cpu: Some(0), harts: 1, locked: false, stopped: true, whole: true }
    }

    fn whole() -> Report {
        let mut report = Report::find(&["hello", LINE]).unwrap();
        let others = (1..30).map(|number| format!("a{number}"));
        let names = others.chain(["sp".to_owned(), "tp".to_owned()]);
        report.registers = names.map(|name| (name, "0x8".to_owned())).collect();
        report
    }

    #[test]
    fn a_whole_report_is_not_complained_of() {
        assert_eq!(whole().complaints(&expected(), "bang", Some("touch")), [""; 0]);
    }

    #[test]
    fn one_report_is_asked_for() {
        assert!(Report::find(&["hello"]).unwrap_err().contains("no report"));
        assert!(Report::find(&[LINE, LINE]).unwrap_err().contains("two reports"));
        assert!(Report::find(&[&LINE[..90]]).unwrap_err().contains("no JSON"));
    }

    #[test]
    fn each_thing_that_is_wrong_is_named() {
        let one = |change: fn(&mut Report, &mut Expected), part: &str| {
            let (mut report, mut expected) = (whole(), expected());
            change(&mut report, &mut expected);
            let complaints = report.complaints(&expected, "bang", Some("touch"));
            assert_eq!(complaints.len(), 1, "{complaints:?}");
            assert!(complaints[0].contains(part), "{complaints:?}");
        };
        one(|report, _| report.sentence.clear(), "the verdict `bang`");
        one(|_, expected| expected.cpu = Some(1), "CPU 0 reports, where 1 should");
        one(|report, _| drop(report.registers.pop_first()), "30 registers");
        let clear = |report: &mut Report, _: &mut Expected| {
            report.registers.insert("sp".to_owned(), "0x0".to_owned());
        };
        one(clear, "[\"sp\"] are zero");
        let deafen = |report: &mut Report, expected: &mut Expected| {
            expected.harts = 2;
            report.harts.push(Hart { hart: 0, cpu: 1, state: "not answering".to_owned() });
        };
        one(deafen, "the harts [0] did not answer");
        one(|_, expected| expected.harts = 2, "the CPUs [0], where 2 are up");
        one(|report, _| report.harts[0].state.clear(), "the harts []");
        one(|_, expected| expected.locked = true, "the console's lock");
        one(|report, _| report.instruction = None, "shows the instruction None");
        one(|report, _| drop(report.backtrace.remove(0)), "begins in Some(\"boot_hart_main\")");
        one(|report, _| drop(report.backtrace.pop()), "ends in Some(\"touch\")");
    }
}
