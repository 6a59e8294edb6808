//! Aligned tables of text, and the words for sizes and times in them.

use std::fmt::Write as _;
use std::io::{self, Write};

pub use spindle_base::{signed_size_text as signed_size, size_text as size};

/// On which side a column's values stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a heading.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table; a heading that begins with `>` has its values on the right.
    pub fn new(headings: &[&'static str]) -> Self {
        let columns = headings
            .iter()
            .map(|heading| match heading.strip_prefix('>') {
                Some(heading) => (heading, Side::Right),
                None => (*heading, Side::Left),
            })
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The lines, each ended.
    pub fn lines(&self) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(column, (heading, _))| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.chain([heading.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        let headings: Vec<String> = self.columns.iter().map(|(h, _)| (*h).to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, side)), width) in row.iter().zip(&self.columns).zip(&widths) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                // Writing to a string cannot fail.
                let _ = match side {
                    Side::Left => write!(line, "{cell:<width$}"),
                    Side::Right => write!(line, "{cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Prints it.
    pub fn print(&self) -> io::Result<()> {
        io::stdout().lock().write_all(self.lines().as_bytes())
    }
}

/// A time as a person writes it for `spindle group set`: in the largest unit that it is whole in.
pub fn duration(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60)];
    let whole = units
        .iter()
        .find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    match whole {
        Some((letter, unit)) => format!("{}{letter}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

/// A rate of bytes for a person.
pub fn rate(bytes_per_s: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is not negative, and three figures are shown"
    )]
    let bytes = bytes_per_s.max(0.0).round() as u64;
    size(bytes)
}

/// Hours, minutes and seconds.
pub fn clock(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours}:{minutes:02}:{:02}", seconds % 60)
}

/// Seconds since 1970 as date and time where this machine is, with the distance from UTC: what a
/// person compares with the clock on the wall and the logs beside it. Where the time zone cannot be
/// found it is UTC, which the distance says.
pub fn local_time(seconds: i64) -> String {
    zoned_time(seconds, &jiff::tz::TimeZone::system())
}

fn zoned_time(seconds: i64, zone: &jiff::tz::TimeZone) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(moment) => {
            let moment = moment.to_zoned(zone.clone());
            moment.strftime("%Y-%m-%d %H:%M:%S %z").to_string()
        }
        // Beyond the year 9999 no zone has rules.
        Err(_) => format!("{} +0000", time(seconds)),
    }
}

/// Seconds since 1970 as date and time in UTC.
pub fn time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The date, so many days after 1970-01-01. Years are counted from March within cycles of 400,
/// so that the leap day is the last of a year.
fn date(days: i64) -> (i64, i64, i64) {
    let from_march_0000 = days + 719_468;
    let cycle = from_march_0000.div_euclid(146_097);
    let day_of_cycle = from_march_0000.rem_euclid(146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    (year, month, day)
}

/// Permission bits as `ls -l` shows them.
pub fn permissions(kind: &str, bits: u16) -> String {
    let mut text = String::from(match kind {
        "directory" => "d",
        "symlink" => "l",
        "fifo" => "p",
        "socket" => "s",
        "character_device" => "c",
        "block_device" => "b",
        _ => "-",
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let triple = bits >> shift & 7;
        text.push(if triple & 4 > 0 { 'r' } else { '-' });
        text.push(if triple & 2 > 0 { 'w' } else { '-' });
        text.push(match (triple & 1 > 0, bits & special > 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::{Table, permissions, time, zoned_time};

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time(1_735_689_600), "2025-01-01 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
    }

    #[test]
    fn a_local_time_says_how_far_it_is_from_utc_in_summer_and_in_winter() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (seconds, text) in [
            (1_735_689_600, "2025-01-01 01:00:00 +0100"),
            (1_751_328_000, "2025-07-01 02:00:00 +0200"),
            (-1, "1970-01-01 00:59:59 +0100"),
        ] {
            assert_eq!(zoned_time(seconds, &zone), text);
        }
        assert_eq!(zoned_time(0, &TimeZone::UTC), "1970-01-01 00:00:00 +0000");
        let newfoundland = TimeZone::posix("NST3:30").unwrap();
        assert_eq!(zoned_time(0, &newfoundland), "1969-12-31 20:30:00 -0330");
        assert!(zoned_time(i64::MAX, &zone).ends_with(" +0000"));
    }

    #[test]
    fn columns_stand_under_their_headings() {
        let mut table = Table::new(&["Name", ">Size"]);
        table.row(["a".to_owned(), "10M".to_owned()]);
        table.row(["longer".to_owned(), "1K".to_owned()]);
        assert_eq!(table.lines(), "Name    Size\na        10M\nlonger    1K\n");
    }

    #[test]
    fn permissions_look_as_in_ls() {
        assert_eq!(permissions("directory", 0o755), "drwxr-xr-x");
        assert_eq!(permissions("file", 0o4711), "-rws--x--x");
        assert_eq!(permissions("file", 0o1644), "-rw-r--r-T");
    }
}
