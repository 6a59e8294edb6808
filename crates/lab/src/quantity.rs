//! Sizes and durations as a person writes them: `64 MiB`, `2 GB`, `90 s`, `5 min`.

use std::time::Duration;

const SIZES: [(&str, u64); 10] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("", 1),
];

/// Nobody has more, and sums of several stay far from the end of the numbers.
const SIZE_AT_MOST: u64 = 1 << 50;

/// Bytes.
///
/// # Errors
/// A line that says what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor = SIZES
        .iter()
        .find(|(name, _)| *name == unit.to_uppercase())
        .map(|(_, factor)| *factor)
        .ok_or_else(|| format!("`{unit}` is no unit of size; write it as in `64 MiB`"))?;
    whole(number * as_float(factor))
        .filter(|bytes| *bytes <= SIZE_AT_MOST)
        .ok_or_else(|| format!("`{text}` is more than 1024 TiB"))
}

/// A length of time.
///
/// # Errors
/// A line that says what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "`{text}` is no length of time; write it as in `90 s` or `5 min`"
            ));
        }
    };
    Duration::try_from_secs_f64(number * factor).map_err(|_| format!("`{text}` is too long"))
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let number = text[..end]
        .parse()
        .map_err(|_| format!("`{text}` does not begin with a number"))?;
    Ok((number, text[end..].trim()))
}

/// A count as a float; exact below 2^53, which no count here reaches.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts here stay below 2^53")]
pub fn as_float(count: u64) -> f64 {
    count as f64
}

/// The whole number nearest to `value`, where there is one.
#[must_use]
pub fn whole(value: f64) -> Option<u64> {
    let rounded = value.round();
    if !(0.0..9.0e18).contains(&rounded) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked above"
    )]
    Some(rounded as u64)
}

/// A size for a person: three digits and a binary unit.
#[must_use]
pub fn show_size(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value.abs() < 1024.0 {
            return format!("{} {unit}", show_number(value));
        }
        value /= 1024.0;
    }
    format!("{} TiB", show_number(value))
}

/// A number for a person: as many digits as tell something.
#[must_use]
pub fn show_number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || size >= 100.0 {
        let digits = format!("{size:.0}");
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{grouped}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// A round number of an axis: no digits that say nothing.
#[must_use]
pub fn show_tick(value: f64) -> String {
    let shown = show_number(value);
    if shown.contains('.') {
        let short = shown.trim_end_matches('0').trim_end_matches('.');
        return short.to_owned();
    }
    shown
}

/// Microseconds of an axis.
#[must_use]
pub fn show_microseconds_tick(value: f64) -> String {
    if value >= 1e6 {
        format!("{} s", show_tick(value / 1e6))
    } else if value >= 1e3 {
        format!("{} ms", show_tick(value / 1e3))
    } else {
        format!("{} µs", show_tick(value))
    }
}

/// Microseconds for a person.
#[must_use]
pub fn show_microseconds(value: f64) -> String {
    if value >= 1e6 {
        format!("{} s", show_number(value / 1e6))
    } else if value >= 1e3 {
        format!("{} ms", show_number(value / 1e3))
    } else {
        format!("{} µs", show_number(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_written() {
        assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("2 GB"), Ok(2_000_000_000));
        assert!(parse_size("a lot").is_err());
        assert!(parse_size("2000 TiB").unwrap_err().contains("more than"));
        assert!(parse_size("3 parsecs").unwrap_err().contains("parsecs"));
        assert_eq!(parse_duration("5 min"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("250 ms"), Ok(Duration::from_millis(250)));
        assert!(parse_duration("7").is_err());
    }

    #[test]
    fn figures_show_as_many_digits_as_tell_something() {
        assert_eq!(show_number(1_234_567.8), "1,234,568");
        assert_eq!(show_number(12.345), "12.3");
        assert_eq!(show_tick(2.0), "2");
        assert_eq!(show_tick(2.5), "2.5");
        assert_eq!(show_tick(1000.0), "1,000");
        assert_eq!(show_microseconds_tick(10_000.0), "10 ms");
        assert_eq!(show_size(3.0 * 1024.0 * 1024.0), "3.00 MiB");
        assert_eq!(show_microseconds(1_500.0), "1.50 ms");
    }
}
