//! What a run does while it is measured, each second, where a person watches.
//!
//! It reads what the sampler writes anyway: nothing is asked of the run, and a run in a guest shows
//! the same. The line is written over itself, so that it is for a terminal and never for a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::outlet::put;
use crate::quantity::show_number;
use crate::record::Samples;

const EVERY: Duration = Duration::from_secs(1);

/// Back to the beginning of the line, and nothing behind what is written there.
const OVER_THE_LINE: &str = "\r\x1b[K";

/// Shows until it is dropped.
#[derive(Debug)]
pub struct Live {
    /// Never sent on: it is closed.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// What stands in the line by itself.
    head: String,
}

impl Live {
    /// Of the run in this folder, behind `head`.
    pub fn of(run: PathBuf, head: String) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let shown = head.clone();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Some(pace) = pace(&run) {
                    put(format_args!("{OVER_THE_LINE}{shown}{pace}"));
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
            head,
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked shows nothing more.
            let _ = thread.join();
        }
        put(format_args!("{OVER_THE_LINE}{}", self.head));
    }
}

/// What was done in the last second, as far as the samples go.
fn pace(run: &Path) -> Option<String> {
    let text = fs::read_to_string(run.join("samples.csv")).ok()?;
    told(&Samples::from_csv(&text))
}

fn told(samples: &Samples) -> Option<String> {
    let last = |name: &str| samples.rates(name).last().copied();
    let second = samples.column("seconds")?.last().copied()?;
    // The lab does not see what fio does; its devices do.
    let rate = match last("operations").filter(|(_, rate)| *rate > 0.0) {
        Some((_, rate)) => format!("{} operations/s", show_number(rate)),
        None => {
            let bytes = ["device_read_bytes", "device_written_bytes"];
            let rate: f64 = bytes
                .iter()
                .filter_map(|name| last(name))
                .map(|(_, rate)| rate)
                .sum();
            format!("{} MB/s at the devices", show_number(rate / 1e6))
        }
    };
    Some(format!("{rate} after {second:.0} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_is_shown_by_operations_or_by_what_the_devices_moved() {
        let of = |text: &str| told(&Samples::from_csv(text));
        assert_eq!(of(""), None);
        let head = "seconds,operations,device_read_bytes,device_written_bytes\n";
        let text = format!("{head}0,0,0,0\n1,500,0,0\n2,1700,0,0\n3,19");
        assert_eq!(of(&text).unwrap(), "1,200 operations/s after 2 s");
        let text = format!("{head}0,0,0,0\n1,0,30000000,12000000\n");
        assert_eq!(of(&text).unwrap(), "42.0 MB/s at the devices after 1 s");
    }
}
