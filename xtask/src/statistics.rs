//! What a number of failures in a number of boots says about the rate of failure.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::style::{BAD, GOOD};

/// What `--json` prints of many runs.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// How many.
    pub runs: u64,
    /// Those that did not pass; those that hung are among them.
    pub failures: u64,
    /// Those that did not end.
    pub hangs: u64,
    /// What the rate of failure is below, at 95 %.
    pub rate_upper_95: f64,
    /// The log of each failure.
    pub logs: Vec<PathBuf>,
}

/// What is common to all summaries; how many runs there were, and of what, stands before it.
impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { failures, hangs, rate_upper_95, .. } = self;
        let style = if *failures == 0 { GOOD } else { BAD };
        let among = if *hangs == 0 { String::new() } else { format!(", {hangs} of them hangs") };
        writeln!(formatter, "failures  {style}{failures}{style:#}{among}")?;
        let bound = rate_upper_95 * 100.0;
        writeln!(formatter, "rate      below {bound:.3} % (upper bound at 95 %)")
    }
}

/// The share of experiments in which [`rate_upper`] errs.
pub const RISK: f64 = 0.05;

/// The upper bound of the rate of failure, at 95 %, after `failures` in `runs`: Clopper and Pearson's exact bound,
/// one-sided.
///
/// It is the largest rate at which so few failures or fewer would still be seen in one of 20 such experiments. Without
/// failures it is 1 - 0.05^(1/runs), about 3/runs. With no runs, or nothing but failures, it is 1: nothing is excluded.
///
/// # Panics
/// With more failures than runs.
pub fn rate_upper(failures: u64, runs: u64) -> f64 {
    assert!(failures <= runs, "{failures} failures in {runs} runs");
    if failures == runs {
        return 1.0;
    }
    // The probability of at most `failures` falls as the rate grows, so the bound is found by halving.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if at_most(failures, runs, middle) > RISK {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability of at most `failures` in `runs` at this rate, which lies strictly between 0 and 1.
fn at_most(failures: u64, runs: u64, rate: f64) -> f64 {
    // Each term comes from the one before by a factor; logarithms, because the first can be too small for a float.
    let odds = (rate / (1.0 - rate)).ln();
    let mut logarithm = runs as f64 * (1.0 - rate).ln();
    let mut sum = logarithm.exp();
    for k in 0..failures {
        logarithm += ((runs - k) as f64 / (k + 1) as f64).ln() + odds;
        sum += logarithm.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} where {expected} belongs");
    }

    #[test]
    fn without_failures_the_bound_has_a_closed_form() {
        for runs in [1, 20, 300, 10_000] {
            assert_near(rate_upper(0, runs), 1.0 - RISK.powf(1.0 / runs as f64));
        }
    }

    #[test]
    fn the_bound_agrees_with_published_tables() {
        // One-sided 95 % bounds of the binomial proportion.
        assert_near(rate_upper(1, 10), 0.394_163);
        assert_near(rate_upper(5, 100), 0.102_253);
        assert_near(rate_upper(9, 10), 0.994_884);
    }

    #[test]
    fn nothing_but_failures_excludes_nothing() {
        assert_near(rate_upper(7, 7), 1.0);
        assert_near(rate_upper(0, 0), 1.0);
    }

    #[test]
    fn many_failures_in_very_many_runs_do_not_underflow() {
        let bound = rate_upper(50_000, 100_000);
        assert!((0.5..0.51).contains(&bound), "{bound}");
    }

    #[test]
    fn more_runs_tighten_the_bound_and_more_failures_loosen_it() {
        assert!(rate_upper(0, 100) > rate_upper(0, 200));
        assert!(rate_upper(0, 100) < rate_upper(1, 100));
    }
}
