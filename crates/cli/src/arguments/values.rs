//! Values that are typed, and what is said of one that is none.

use std::net::SocketAddr;
use std::str::FromStr;

use spindle_control::FileDisk;

const SECONDS_LEAST: f64 = 0.01;
/// Of a page that reads the log of events.
const PAGE_SECONDS_LEAST: f64 = 0.1;
const SECONDS_MOST: f64 = 86_400.0;

fn parsed<T: FromStr>(text: &str, wanted: &str) -> Result<T, String> {
    text.parse().map_err(|_| wanted.to_owned())
}

/// A power of background work; the group says whether there is such a one.
pub(super) fn parse_power(text: &str) -> Result<u16, String> {
    parsed(text, "write a number from 0 to 1024")
}

/// Seconds between two refreshes.
pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    seconds_from(SECONDS_LEAST, text)
}

/// Seconds between two refreshes of `spindle status`.
pub(super) fn parse_page_seconds(text: &str) -> Result<f64, String> {
    seconds_from(PAGE_SECONDS_LEAST, text)
}

fn seconds_from(least: f64, text: &str) -> Result<f64, String> {
    let wanted = format!("write seconds from {least} to {SECONDS_MOST}, which is a day");
    let seconds: f64 = parsed(text, &wanted)?;
    let is_one = (least..=SECONDS_MOST).contains(&seconds);
    is_one.then_some(seconds).ok_or(wanted)
}

/// So many of something.
pub(super) fn parse_count<T: FromStr>(text: &str) -> Result<T, String> {
    parsed(text, "write a whole number, such as 10")
}

/// Where to listen.
pub(super) fn parse_socket(text: &str) -> Result<SocketAddr, String> {
    parsed(text, "write ADDRESS:PORT, such as 127.0.0.1:9464")
}

/// A size of a disk or of a volume.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let file_disk: Result<FileDisk, _> = format!("size:{text}").parse();
    file_disk
        .map(|disk| disk.size_bytes)
        .map_err(|_| "write a size such as 200G, in whole blocks of 4K".to_owned())
}
