//! The arguments of the monitor's commands: a bounded list of words, taken one after the other, each with a name to complain by.
//!
//! ```
//! use arguments::{Arguments, Problem, number};
//!
//! let mut arguments = Arguments::new(["0x40", "12"].into_iter()).unwrap();
//! assert_eq!(number("ADDRESS", arguments.take("ADDRESS").unwrap()), Ok(64));
//! assert_eq!(arguments.end(), Err(Problem::TooMany("12")));
//! ```
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;
use core::ops::RangeInclusive;

use arrayvec::ArrayVec;

/// Words that a command can have.
pub const WORDS: usize = 8;

/// The words after a command's name that were not taken yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    words: ArrayVec<&'a str, WORDS>,
    next: usize,
}

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem<'a> {
    /// One that there must be is not there; carries its name.
    Missing(&'static str),
    /// One more than the command takes.
    TooMany(&'a str),
    /// No number: decimal, or hexadecimal after `0x`.
    NotANumber(&'static str, &'a str),
    /// A number that is not between these two.
    OutOfRange(&'static str, u64, u64, u64),
    /// None of the words that can stand there.
    Unknown {
        /// The argument's name.
        name: &'static str,
        /// What was there.
        found: &'a str,
        /// What could have been.
        expected: &'static str,
    },
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Missing(name) => write!(f, "{name} is missing"),
            Problem::TooMany(word) => write!(f, "'{word}' is one argument too many"),
            Problem::NotANumber(name, word) => {
                write!(f, "{name} is '{word}', no number of 64 bits (12, 0x1f)")
            }
            Problem::OutOfRange(name, value, least, most) => {
                write!(f, "{name} is {value}, not between {least} and {most}")
            }
            Problem::Unknown { name, found, expected } => {
                write!(f, "{name} is '{found}', not {expected}")
            }
        }
    }
}

impl<'a> Arguments<'a> {
    /// The arguments that these words are.
    ///
    /// # Errors
    /// [`Problem::TooMany`] if there are more than [`WORDS`].
    pub fn new(words: impl Iterator<Item = &'a str>) -> Result<Self, Problem<'a>> {
        let mut kept = ArrayVec::new();
        for word in words {
            kept.try_push(word).map_err(|error| Problem::TooMany(error.element()))?;
        }
        Ok(Arguments { words: kept, next: 0 })
    }

    /// Takes the next, if there is one.
    pub fn optional(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).copied();
        self.next += usize::from(word.is_some());
        word
    }

    /// Takes the next.
    ///
    /// # Errors
    /// [`Problem::Missing`] if there is none.
    pub fn take(&mut self, name: &'static str) -> Result<&'a str, Problem<'a>> {
        self.optional().ok_or(Problem::Missing(name))
    }

    /// Takes the next as a number of a range, or `default` if there is none.
    ///
    /// # Errors
    /// If it is no number, or none of the range.
    pub fn number_or(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, Problem<'a>> {
        let value = self.optional().map_or(Ok(default), |word| number(name, word))?;
        let out = Problem::OutOfRange(name, value, *range.start(), *range.end());
        range.contains(&value).then_some(value).ok_or(out)
    }

    /// Says that there must be no more.
    ///
    /// # Errors
    /// [`Problem::TooMany`] with the first that there is.
    pub fn end(&mut self) -> Result<(), Problem<'a>> {
        self.optional().map_or(Ok(()), |word| Err(Problem::TooMany(word)))
    }
}

/// A number: decimal, or hexadecimal after `0x`. Digits may be parted by `_`.
///
/// # Errors
/// [`Problem::NotANumber`].
pub fn number<'a>(name: &'static str, word: &'a str) -> Result<u64, Problem<'a>> {
    let (digits, radix) = word.strip_prefix("0x").map_or((word, 10), |digits| (digits, 16));
    let mut value = None;
    for character in digits.chars().filter(|&character| character != '_') {
        let digit = character.to_digit(radix);
        let shifted = value.unwrap_or(0_u64).checked_mul(radix.into());
        value = shifted.zip(digit).and_then(|(shifted, digit)| shifted.checked_add(digit.into()));
        if value.is_none() {
            break;
        }
    }
    value.ok_or(Problem::NotANumber(name, word))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn arguments<'a>(words: &[&'a str]) -> Arguments<'a> {
        Arguments::new(words.iter().copied()).unwrap()
    }

    #[test]
    fn words_are_taken_in_their_order_and_a_missing_one_is_named() {
        let mut two = arguments(&["one", "two"]);
        assert_eq!((two.take("A"), two.optional()), (Ok("one"), Some("two")));
        assert_eq!(two.end(), Ok(()));
        assert_eq!(two.take("C"), Err(Problem::Missing("C")));
        assert_eq!(arguments(&["x"]).end(), Err(Problem::TooMany("x")));
    }

    #[test]
    fn one_word_more_than_there_is_room_for_is_named() {
        let words: Vec<&str> = ["a"; WORDS].into_iter().chain(["b"]).collect();
        assert_eq!(Arguments::new(words.into_iter()), Err(Problem::TooMany("b")));
    }

    #[test]
    fn a_number_has_a_range_and_a_default() {
        let take = |words: &[&'static str]| arguments(words).number_or("N", 1..=8, 4);
        assert_eq!(take(&[]), Ok(4));
        assert_eq!((take(&["1"]), take(&["8"])), (Ok(1), Ok(8)));
        assert_eq!(take(&["0"]), Err(Problem::OutOfRange("N", 0, 1, 8)));
        assert_eq!(take(&["9"]), Err(Problem::OutOfRange("N", 9, 1, 8)));
        assert_eq!(take(&["nine"]), Err(Problem::NotANumber("N", "nine")));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for word in [
            "",
            "0x",
            "_",
            "0x_",
            "-1",
            "+1",
            "12a",
            "0xg",
            "0X1",
            "1 ",
            "18446744073709551616",
            "0x10000000000000000",
        ] {
            assert_eq!(number("N", word), Err(Problem::NotANumber("N", word)), "{word}");
        }
    }

    #[test]
    fn each_problem_names_what_is_wrong() {
        let texts = [
            (Problem::Missing("ADDRESS"), "ADDRESS is missing"),
            (Problem::TooMany("x"), "'x' is one argument too many"),
            (Problem::NotANumber("N", "x"), "N is 'x', no number of 64 bits (12, 0x1f)"),
            (Problem::OutOfRange("N", 9, 1, 8), "N is 9, not between 1 and 8"),
        ];
        for (problem, text) in texts {
            assert_eq!(format!("{problem}"), text);
        }
    }

    proptest! {
        #[test]
        fn every_number_is_read_as_it_is_written(value: u64) {
            let upper = format!("0x{value:X}");
            for word in [format!("{value}"), format!("{value:#x}"), upper] {
                prop_assert_eq!(number("N", &word), Ok(value));
            }
        }

        #[test]
        fn no_word_makes_it_panic(word in ".{0,24}") {
            let _ = number("N", &word);
        }
    }
}
