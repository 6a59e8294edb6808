//! A figure: what was measured, beside what, and what was asked for.

use anyhow::{Result, ensure};
use serde::Serialize;
use spindle_testbed::figures::median;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The reached value has to be at least the target.
    AtLeast,
    /// At most.
    AtMost,
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// The section's name, as `--only` takes it.
    pub section: &'static str,
    /// What was measured.
    pub name: String,
    /// Each measurement of Spindle, in the order taken.
    pub ours: Vec<f64>,
    /// Each measurement of the rival, interleaved with ours; empty where there is none.
    pub rivals: Vec<f64>,
    /// Who the rival is.
    pub rival: String,
    /// The unit of both.
    pub unit: &'static str,
    /// What is held against the target: the median of the ratios, or of our values.
    pub reached: f64,
    /// What was asked for.
    pub target: f64,
    /// Which way is better.
    pub aim: Aim,
}

impl Figure {
    /// A ratio of pairs that were measured in turn.
    ///
    /// # Errors
    /// Where a measurement is missing or zero: it failed, and must not pass for a figure.
    pub fn ratio(
        section: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        rival: impl Into<String>,
        pairs: &[(f64, f64)],
        target: (Aim, f64),
    ) -> Result<Self> {
        let (name, rival) = (name.into(), rival.into());
        Self::of_pairs(section, name, unit, rival, pairs, target, |(a, b)| a / b)
    }

    /// How much more (or less) ours is than the rival's, in pairs that were measured in turn.
    ///
    /// # Errors
    /// As [`Figure::ratio`].
    pub fn difference(
        section: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        rival: impl Into<String>,
        pairs: &[(f64, f64)],
        target: (Aim, f64),
    ) -> Result<Self> {
        let (name, rival) = (name.into(), rival.into());
        Self::of_pairs(section, name, unit, rival, pairs, target, |(a, b)| a - b)
    }

    fn of_pairs(
        section: &'static str,
        name: String,
        unit: &'static str,
        rival: String,
        pairs: &[(f64, f64)],
        (aim, target): (Aim, f64),
        compare: fn((f64, f64)) -> f64,
    ) -> Result<Self> {
        for &(ours, rivals) in pairs {
            ensure!(
                is_measured(ours) && is_measured(rivals),
                "{name}: measured {ours} against {rivals} {unit}: that is no measurement"
            );
        }
        let compared: Vec<f64> = pairs.iter().copied().map(compare).collect();
        Ok(Self {
            section,
            ours: pairs.iter().map(|pair| pair.0).collect(),
            rivals: pairs.iter().map(|pair| pair.1).collect(),
            rival,
            unit,
            reached: middle(&name, &compared)?,
            name,
            target,
            aim,
        })
    }

    /// A value held against a number.
    ///
    /// # Errors
    /// As [`Figure::ratio`].
    pub fn value(
        section: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        values: &[f64],
        (aim, target): (Aim, f64),
    ) -> Result<Self> {
        let name = name.into();
        ensure!(
            values.iter().all(|value| is_measured(*value)),
            "{name}: measured {values:?} {unit}: that is no measurement"
        );
        Ok(Self {
            section,
            ours: values.to_vec(),
            rivals: Vec::new(),
            rival: String::new(),
            unit,
            reached: middle(&name, values)?,
            name,
            target,
            aim,
        })
    }

    /// What else was measured beside a value, to judge it by; the target stands alone still.
    #[must_use]
    pub fn beside(mut self, what: impl Into<String>, values: &[f64]) -> Self {
        self.rival = what.into();
        self.rivals = values.to_vec();
        self
    }

    /// Whether the target is reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        match self.aim {
            Aim::AtLeast => self.reached >= self.target,
            Aim::AtMost => self.reached <= self.target,
        }
    }

    /// The line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let sign = match self.aim {
            Aim::AtLeast => "≥",
            Aim::AtMost => "≤",
        };
        let verdict = if self.is_reached() {
            "reached"
        } else {
            "SHORT"
        };
        let ours = median(&self.ours).unwrap_or(f64::NAN);
        let rival = match median(&self.rivals) {
            Some(rivals) => format!("{} {}", number(rivals), self.rival),
            None => "-".to_owned(),
        };
        format!(
            "{:9} {:52} {:>11} {:22} {:>10}  {sign} {:<10} {verdict}",
            self.section,
            self.name,
            format!("{} {}", number(ours), self.unit),
            rival,
            number(self.reached),
            number(self.target),
        )
    }
}

/// The heads of the table's columns.
#[must_use]
pub fn heads() -> String {
    format!(
        "{:9} {:52} {:>11} {:22} {:>10}    {:<10}",
        "section", "what", "Spindle", "rival", "reached", "target"
    )
}

fn is_measured(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn middle(name: &str, values: &[f64]) -> Result<f64> {
    median(values).ok_or_else(|| anyhow::anyhow!("{name}: nothing was measured"))
}

/// Three digits that matter.
fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.1}k", value / 1000.0)
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_of_zero_is_an_error_on_either_side() {
        let aim = (Aim::AtLeast, 0.9);
        for pair in [(0.0, 5.0), (5.0, 0.0), (f64::NAN, 5.0)] {
            assert!(Figure::ratio("x", "y", "z", "raw", &[pair], aim).is_err());
        }
        assert!(Figure::ratio("x", "y", "z", "raw", &[], aim).is_err());
        assert!(Figure::value("x", "y", "z", &[0.0], aim).is_err());
    }

    #[test]
    fn what_counts_is_the_middle_of_the_ratios_of_each_pair() {
        let pairs = [(90.0, 100.0), (40.0, 50.0), (300.0, 200.0)];
        let figure = Figure::ratio("x", "y", "z", "raw", &pairs, (Aim::AtLeast, 0.9)).unwrap();
        assert!((figure.reached - 0.9).abs() < 1e-9);
        assert!(figure.is_reached());
    }

    #[test]
    fn at_most_is_reached_from_below() {
        let aim = (Aim::AtMost, 1.5);
        assert!(
            Figure::value("x", "y", "s", &[1.4], aim)
                .unwrap()
                .is_reached()
        );
        assert!(
            !Figure::value("x", "y", "s", &[1.6], aim)
                .unwrap()
                .is_reached()
        );
    }
}
