//! Points in time as a person types them: so long ago, or a date in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use spindle_control::ControlError;

/// Milliseconds since 1970 of `90s`, `15m`, `2h`, `7d` (so long ago), `2026-11-21` or
/// `2026-11-21 14:05:00` (UTC).
pub fn parse(text: &str) -> Result<u64, ControlError> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    ago_ms(text)
        .map(|ago_ms| now_ms.saturating_sub(ago_ms))
        .or_else(|| date_ms(text))
        .ok_or_else(|| {
            ControlError::invalid(format!(
                "{text:?} is no time: write 90s, 15m, 2h or 7d for so long ago, or 2026-11-21 or \
                 \"2026-11-21 14:05:00\" in UTC"
            ))
        })
}

fn ago_ms(text: &str) -> Option<u64> {
    let (number, unit_ms) = match text.as_bytes().last()? {
        b's' => (text.strip_suffix('s')?, 1000),
        b'm' => (text.strip_suffix('m')?, 60_000),
        b'h' => (text.strip_suffix('h')?, 3_600_000),
        b'd' => (text.strip_suffix('d')?, 86_400_000),
        _ => return None,
    };
    digits(number)?.checked_mul(unit_ms)
}

fn date_ms(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('Z');
    let (date, clock) = text
        .split_once([' ', 'T'])
        .map_or((text, None), |(date, clock)| (date, Some(clock)));
    let parts: Vec<u64> = date.split('-').map(digits).collect::<Option<_>>()?;
    let [year, month, day] = parts[..] else {
        return None;
    };
    let days = days_since_1970(year, month, day)?;
    let seconds = match clock {
        None => 0,
        Some(clock) => {
            let parts: Vec<u64> = clock.split(':').map(digits).collect::<Option<_>>()?;
            match parts[..] {
                [hour, minute] if hour < 24 && minute < 60 => hour * 3600 + minute * 60,
                [hour, minute, second] if hour < 24 && minute < 60 && second < 61 => {
                    hour * 3600 + minute * 60 + second
                }
                _ => return None,
            }
        }
    };
    Some((days * 86_400 + seconds) * 1000)
}

fn digits(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

/// Counted year by year: a log does not reach back far.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let month_days = |month: u64| match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=month_days(month)).contains(&day) {
        return None;
    }
    let years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    Some(years + (1..month).map(month_days).sum::<u64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::{ago_ms, date_ms, parse};

    #[test]
    fn a_time_is_so_long_ago_or_a_date() {
        assert_eq!(ago_ms("90s"), Some(90_000));
        assert_eq!(ago_ms("7d"), Some(604_800_000));
        assert_eq!(date_ms("1970-01-02"), Some(86_400_000));
        assert_eq!(date_ms("2000-02-29 00:00:00"), Some(951_782_400_000));
        assert_eq!(date_ms("2025-01-01T00:00Z"), Some(1_735_689_600_000));
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_would_be_one() {
        for text in [
            "",
            "5",
            "-3h",
            "2025-02-29",
            "2025-13-01",
            "tomorrow",
            "1x",
            "2025-01-01 24:00",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains("15m"), "{text}: {error}");
        }
    }
}
