//! The numbers: as the kernel prints them, and as `--json` and the files in results/ have them.
//!
//! The kernel prints a line for each, and they end with its verdict:
//!
//! ```text
//! bench NAME MEAN LEAST MOST
//! gauge NAME VALUE
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::environment::Environment;

/// The numbers of a measurement, and what they were measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// The compiler that built the kernel, as it names itself.
    pub toolchain: String,
    /// The emulator as it names itself, and the firmware, whose instructions are counted too.
    pub qemu: String,
    /// Instructions for each operation.
    pub rows: Vec<Row>,
    /// Other numbers, by name.
    pub gauges: BTreeMap<String, u64>,
}

/// Instructions for one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What the operation is called.
    pub name: String,
    /// In the mean.
    pub instructions: Tenths,
    /// At the least.
    pub min: u64,
    /// At the most.
    pub max: u64,
}

/// A number with one decimal, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenths(pub u64);

/// Why the kernel's output is not what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line begins like a result and goes on otherwise.
    #[error("the kernel's line `{0}` is no result")]
    Malformed(String),
    /// A result that is there twice.
    #[error("the kernel gave two results for {0}")]
    Twice(String),
    /// A result that nobody asked for.
    #[error("the kernel gave a result for {0}, which was not asked for")]
    Unasked(String),
    /// No result for what was asked for.
    #[error("the kernel gave no result for {0}")]
    Absent(String),
}

/// The rows and gauges of a boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
    /// By name.
    pub gauges: BTreeMap<String, u64>,
}

impl Measured {
    /// Reads the output of a boot that was asked for `names`.
    ///
    /// # Errors
    /// Unless each is there once, and nothing else.
    pub fn parse(output: &str, names: &[&str]) -> Result<Measured, Error> {
        let mut measured = Measured::default();
        for line in output.lines().map(str::trim_end) {
            let name = match measured.push(line) {
                None => continue,
                Some(name) => name.ok_or_else(|| Error::Malformed(line.to_owned()))?,
            };
            if !names.contains(&name) {
                return Err(Error::Unasked(name.to_owned()));
            }
        }
        for name in names {
            let rows = measured.rows.iter().filter(|row| row.name == *name).count();
            match rows + usize::from(measured.gauges.contains_key(*name)) {
                0 => return Err(Error::Absent((*name).to_owned())),
                1 => {}
                _ => return Err(Error::Twice((*name).to_owned())),
            }
        }
        Ok(measured)
    }

    /// Takes in a line that is a result. Gives its name; nothing where it is another line, and no name where it is malformed.
    fn push<'a>(&mut self, line: &'a str) -> Option<Option<&'a str>> {
        let words: Vec<&str> = line.split(' ').collect();
        match (words[0], &words[1..]) {
            ("bench", [name, mean, least, most]) => Some(self.push_row(name, [mean, least, most])),
            ("gauge", [name, value]) => Some(self.push_gauge(name, value)),
            ("bench" | "gauge", _) => Some(None),
            _ => None,
        }
    }

    fn push_row<'a>(&mut self, name: &'a str, [mean, least, most]: [&str; 3]) -> Option<&'a str> {
        let instructions = mean.parse().ok()?;
        let (min, max) = (least.parse().ok()?, most.parse().ok()?);
        self.rows.push(Row { name: name.to_owned(), instructions, min, max });
        Some(name)
    }

    fn push_gauge<'a>(&mut self, name: &'a str, value: &str) -> Option<&'a str> {
        let value = value.parse().ok()?;
        // The second of a name is malformed: a map could not hold it.
        self.gauges.insert(name.to_owned(), value).is_none().then_some(name)
    }
}

impl Results {
    /// Results with what they were measured with.
    pub fn new(environment: &Environment, measured: Measured, firmware: Option<&str>) -> Results {
        let Measured { rows, gauges } = measured;
        let qemu = &environment.qemu.description;
        Results {
            toolchain: environment.compiler.description.clone(),
            qemu: firmware.map_or(qemu.clone(), |firmware| format!("{qemu}, {firmware}")),
            rows,
            gauges,
        }
    }

    /// The row of a name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The number of a name: a row's mean, or a gauge.
    pub fn value(&self, name: &str) -> Option<Tenths> {
        let gauge = || self.gauges.get(name).map(|value| Tenths(value * 10));
        self.row(name).map(|row| row.instructions).or_else(gauge)
    }

    /// The names of all rows and gauges.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| &*row.name).chain(self.gauges.keys().map(|name| &**name))
    }
}

/// The firmware's name and version, from its banner: `OpenSBI v1.5`.
pub fn firmware(output: &str) -> Option<&str> {
    output.lines().map(str::trim).find(|line| line.starts_with("OpenSBI v"))
}

impl FromStr for Tenths {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Tenths, Self::Err> {
        let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
        // One digit and no sign: two would be something else than tenths.
        let tenth = if tenth.len() == 1 { tenth.parse::<u8>() } else { "".parse() }?;
        let whole: u32 = whole.parse()?;
        Ok(Tenths(u64::from(whole) * 10 + u64::from(tenth)))
    }
}

impl fmt::Display for Tenths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = crate::size::spaced(self.0 / 10);
        match self.0 % 10 {
            0 => write!(formatter, "{whole}"),
            tenth => write!(formatter, "{whole}.{tenth}"),
        }
    }
}

impl Serialize for Tenths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(10) {
            serializer.serialize_u64(self.0 / 10)
        } else {
            // The nearest number to a decimal prints as that decimal.
            serializer.serialize_f64(self.0 as f64 / 10.0)
        }
    }
}

impl<'de> Deserialize<'de> for Tenths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tenths, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !(0.0..1e15).contains(&number) {
            let message = format!("{number} is no number of instructions");
            return Err(serde::de::Error::custom(message));
        }
        Ok(Tenths((number * 10.0).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "OpenSBI v1.5\n16-os 0.1.0 (release)\nbench trap 397.0 397 397\r\n\
                          bench frame_alloc 21.3 19 40\ngauge free_frames 32451\nverdict: pass\n";
    const NAMES: [&str; 3] = ["trap", "free_frames", "frame_alloc"];

    fn parse(output: &str) -> Result<Measured, Error> {
        Measured::parse(output, &NAMES)
    }

    #[test]
    fn rows_and_gauges_are_read_from_the_output() {
        let measured = parse(OUTPUT).unwrap();
        let row = |name: &str, instructions, min, max| Row {
            name: name.to_owned(),
            instructions: Tenths(instructions),
            min,
            max,
        };
        assert_eq!(measured.rows, [row("trap", 3970, 397, 397), row("frame_alloc", 213, 19, 40)]);
        assert_eq!(measured.gauges, BTreeMap::from([("free_frames".to_owned(), 32_451)]));
        assert_eq!(firmware(OUTPUT), Some("OpenSBI v1.5"));
    }

    #[test]
    fn what_is_not_as_asked_for_is_an_error_that_names_it() {
        let malformed = |line: &str| Error::Malformed(line.to_owned());
        for (from, to, error) in [
            ("397.0", "397.01", malformed("bench trap 397.01 397 397")),
            ("397.0", "-1", malformed("bench trap -1 397 397")),
            ("397.0 ", "", malformed("bench trap 397 397")),
            ("32451", "", malformed("gauge free_frames")),
            ("verdict", "gauge free_frames 1\nverdict", malformed("gauge free_frames 1")),
            ("verdict", "bench trap 1 1 1\nverdict", Error::Twice("trap".to_owned())),
            ("trap", "trip", Error::Unasked("trip".to_owned())),
            ("bench trap", "benchmark trap", Error::Absent("trap".to_owned())),
        ] {
            assert_eq!(parse(&OUTPUT.replace(from, to)), Err(error), "{from} became {to}");
        }
    }

    #[test]
    fn tenths_are_exact_on_their_way_through_json() {
        for tenths in [0, 1, 213, 3970, 12_345_678, 160_610_001].map(Tenths) {
            let json = serde_json::to_string(&tenths).unwrap();
            assert_eq!(serde_json::from_str::<Tenths>(&json).unwrap(), tenths, "{json}");
        }
        assert_eq!(serde_json::to_string(&Tenths(3970)).unwrap(), "397");
        assert_eq!(serde_json::to_string(&Tenths(213)).unwrap(), "21.3");
        assert!(serde_json::from_str::<Tenths>("-1").is_err());
    }

    #[test]
    fn json_has_the_keys_that_are_documented() {
        let Measured { rows, gauges } = parse(OUTPUT).unwrap();
        let results = Results { toolchain: "rustc".into(), qemu: "QEMU".into(), rows, gauges };
        let json = serde_json::to_value(results).unwrap();
        let keys = |json: &serde_json::Value| -> Vec<String> {
            json.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&json), ["gauges", "qemu", "rows", "toolchain"]);
        assert_eq!(keys(&json["rows"][0]), ["instructions", "max", "min", "name"]);
    }
}
