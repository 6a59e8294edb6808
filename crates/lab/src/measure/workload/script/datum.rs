//! What an expression of a script gives, and how it is turned into another type and into text: by
//! pgbench's rules (`pgbench.c`, `coerceToInt` and its like).

use std::fmt;

/// A value of a script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Datum {
    /// Unknown.
    Null,
    /// A truth value.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Double(f64),
}

/// The limits of a whole number as the nearest doubles; the upper one is none any more.
const INTEGER_FROM: f64 = -9_223_372_036_854_775_808.0;
const INTEGER_BELOW: f64 = 9_223_372_036_854_775_808.0;

impl Datum {
    /// As a whole number: a double is rounded to the nearest, of two to the even one.
    pub fn integer(self) -> Result<i64, String> {
        match self {
            Self::Integer(value) => Ok(value),
            Self::Double(value) => {
                let rounded = value.round_ties_even();
                if (INTEGER_FROM..INTEGER_BELOW).contains(&rounded) {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "it is whole and in range"
                    )]
                    return Ok(rounded as i64);
                }
                Err(format!("{self} is out of the range of whole numbers"))
            }
            Self::Boolean(_) | Self::Null => Err(format!("{self} is no whole number")),
        }
    }

    /// As a number.
    pub fn double(self) -> Result<f64, String> {
        match self {
            Self::Double(value) => Ok(value),
            #[expect(clippy::cast_precision_loss, reason = "as pgbench does")]
            Self::Integer(value) => Ok(value as f64),
            Self::Boolean(_) | Self::Null => Err(format!("{self} is no number")),
        }
    }

    /// As an operand of AND, OR and NOT.
    pub fn boolean(self) -> Result<bool, String> {
        match self {
            Self::Boolean(value) => Ok(value),
            other => Err(format!("{other} is no truth value")),
        }
    }

    /// As a condition, where a number that is not zero is true and what is unknown is not.
    pub fn is_true(self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(value) => value,
            Self::Integer(value) => value != 0,
            Self::Double(value) => value != 0.0,
        }
    }

    /// From the text of a column or of a person; none where it is no such value.
    pub fn of_text(text: &str) -> Option<Self> {
        let small = text.to_lowercase();
        // The beginnings of these words count, as for the database, but `o` could be either.
        let begins = |word: &str, least: usize| small.len() >= least && word.starts_with(&small);
        if small == "null" {
            return Some(Self::Null);
        }
        if begins("true", 1) || begins("yes", 1) || small == "on" {
            return Some(Self::Boolean(true));
        }
        if begins("false", 1) || begins("no", 1) || begins("off", 2) {
            return Some(Self::Boolean(false));
        }
        // Blanks before a number are passed over, and what stands behind it is not.
        let text = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Self::Integer);
        }
        let value: f64 = text.parse().ok()?;
        // Digits that give no finite number are out of its range.
        let is_out_of_range = value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit());
        (!is_out_of_range).then_some(Self::Double(value))
    }
}

/// As it stands in a statement: a double with fifteen digits.
impl fmt::Display for Datum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("NULL"),
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Double(value) => formatter.write_str(&fifteen_digits(*value)),
        }
    }
}

/// As the C library writes `%.15g`.
fn fifteen_digits(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:.14e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| -> String {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..15).contains(&power) {
        let digits = usize::try_from(14 - power).unwrap_or(0);
        return trimmed(&format!("{value:.digits$}"));
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), power.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_the_c_library_does() {
        for (value, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.0 / 3.0, "0.333333333333333"),
            (-2.5e-10, "-2.5e-10"),
            (1e300, "1e+300"),
            (0.1 + 0.2, "0.3"),
        ] {
            assert_eq!(Datum::Double(value).to_string(), text);
        }
    }

    #[test]
    fn texts_are_what_pgbench_takes_them_for() {
        for (text, datum) in [
            ("null", Some(Datum::Null)),
            ("TRUE", Some(Datum::Boolean(true))),
            ("y", Some(Datum::Boolean(true))),
            ("of", Some(Datum::Boolean(false))),
            ("o", None),
            ("-12", Some(Datum::Integer(-12))),
            ("1e3", Some(Datum::Double(1000.0))),
            (" 12", Some(Datum::Integer(12))),
            ("\t\n-12", Some(Datum::Integer(-12))),
            ("  1.5", Some(Datum::Double(1.5))),
            ("12 ", None),
            ("1.5 ", None),
            ("- 1", None),
            (" true", None),
            (" null", None),
            ("9223372036854775808", None),
            ("1e999", None),
            ("", None),
            ("abc", None),
        ] {
            assert_eq!(Datum::of_text(text), datum, "{text}");
        }
    }

    #[test]
    fn a_double_becomes_the_nearest_whole_number_and_of_two_the_even_one() {
        assert_eq!(Datum::Double(2.5).integer(), Ok(2));
        assert_eq!(Datum::Double(3.5).integer(), Ok(4));
        assert_eq!(Datum::Double(-0.6).integer(), Ok(-1));
        assert!(Datum::Double(1e19).integer().is_err());
        assert!(Datum::Double(f64::NAN).integer().is_err());
        assert!(Datum::Boolean(true).integer().is_err());
    }
}
