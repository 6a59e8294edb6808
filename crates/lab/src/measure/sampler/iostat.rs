//! Spindle's own counters, as its user sees them: one `spindle iostat --json` that runs beside the
//! load and prints a document a second.
//!
//! The documents hold rates; here they become counters that only grow, like all others. A reading
//! is up to a second old. The command ends with the sampler; after a SIGKILL of ours it ends at its
//! next line, because nobody reads it, or with the mount.

use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::measure::process::Identity;
use crate::measure::program::as_typed;

/// What one disk or file read and wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Its name in the group.
    pub name: String,
    /// Requests.
    pub reads: f64,
    /// Bytes.
    pub read_bytes: f64,
    /// Requests.
    pub writes: f64,
    /// Bytes.
    pub written_bytes: f64,
}

/// Everything that was counted so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// By disk, in the group's order.
    pub disks: Vec<Counted>,
    /// By file: what the mount was asked for, past the page cache.
    pub files: Vec<Counted>,
}

#[derive(Deserialize)]
struct Document {
    interval_s: f64,
    disks: Vec<Rate>,
    files: Vec<Rate>,
}

#[derive(Deserialize)]
struct Rate {
    name: String,
    reads_per_s: f64,
    writes_per_s: f64,
    read_bytes_per_s: f64,
    written_bytes_per_s: f64,
}

impl Counters {
    fn add(&mut self, document: Document) {
        let seconds = document.interval_s;
        add(&mut self.disks, document.disks, seconds);
        add(&mut self.files, document.files, seconds);
    }
}

fn add(counted: &mut Vec<Counted>, rates: Vec<Rate>, seconds: f64) {
    for rate in rates {
        let index = counted
            .iter()
            .position(|known| known.name == rate.name)
            .unwrap_or_else(|| {
                counted.push(Counted {
                    name: rate.name.clone(),
                    reads: 0.0,
                    read_bytes: 0.0,
                    writes: 0.0,
                    written_bytes: 0.0,
                });
                counted.len() - 1
            });
        let known = &mut counted[index];
        known.reads += rate.reads_per_s * seconds;
        known.read_bytes += rate.read_bytes_per_s * seconds;
        known.writes += rate.writes_per_s * seconds;
        known.written_bytes += rate.written_bytes_per_s * seconds;
    }
}

/// What each counted since `before`, in the order of `now`.
#[must_use]
pub fn since(now: &[Counted], before: &[Counted]) -> Vec<Counted> {
    now.iter()
        .map(|now| {
            let zero = Counted {
                name: now.name.clone(),
                reads: 0.0,
                read_bytes: 0.0,
                writes: 0.0,
                written_bytes: 0.0,
            };
            let before = before
                .iter()
                .find(|before| before.name == now.name)
                .unwrap_or(&zero);
            Counted {
                name: now.name.clone(),
                reads: now.reads - before.reads,
                read_bytes: now.read_bytes - before.read_bytes,
                writes: now.writes - before.writes,
                written_bytes: now.written_bytes - before.written_bytes,
            }
        })
        .collect()
}

/// The running command; a drop ends it.
#[derive(Debug)]
pub struct Iostat {
    child: Child,
    counters: Arc<Mutex<Counters>>,
    thread: Option<JoinHandle<()>>,
}

impl Iostat {
    /// Starts it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", as_typed(command)))?;
        let output = child.stdout.take().context("its output was asked for")?;
        let counters = Arc::new(Mutex::new(Counters::default()));
        let shared = Arc::clone(&counters);
        let thread = thread::Builder::new()
            .name("iostat".to_owned())
            .spawn(move || {
                let documents =
                    serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter();
                // The last document may be torn when the command is ended.
                for document in documents.map_while(Result::ok) {
                    shared
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .add(document);
                }
            })?;
        Ok(Self {
            child,
            counters,
            thread: Some(thread),
        })
    }

    /// What was counted up to the last document.
    #[must_use]
    pub fn read(&self) -> Counters {
        self.counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whose processor time is the lab's, not the storage's.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.child.id())
    }
}

impl Drop for Iostat {
    fn drop(&mut self) {
        // It may have ended already, with the mount.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn documents_of_rates_become_counters_and_a_torn_one_is_left_out() {
        let document = r#"{"group": "lab", "interval_s": 2.0,
            "disks": [{"id": 0, "name": "DISK1", "reads_per_s": 5.0, "writes_per_s": 1.0,
                "read_bytes_per_s": 4096.0, "written_bytes_per_s": 0.0,
                "read_latency_us": null, "write_latency_us": 3.5}],
            "files": []}"#;
        let script = format!("echo '{document}{document}'; echo '{{\"group\": '");
        let iostat = Iostat::start(Command::new("sh").args(["-c", &script])).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while iostat
            .read()
            .disks
            .first()
            .is_none_or(|disk| disk.reads < 20.0)
        {
            assert!(Instant::now() < until, "{:?}", iostat.read());
            thread::sleep(Duration::from_millis(5));
        }
        let counters = iostat.read();
        assert_eq!(counters.disks.len(), 1);
        assert!((counters.disks[0].read_bytes - 16384.0).abs() < 1e-9);
        let grown = since(&counters.disks, &[]);
        assert!((grown[0].writes - 4.0).abs() < 1e-9);
        assert!(since(&counters.disks, &counters.disks)[0].reads.abs() < 1e-9);
    }
}
