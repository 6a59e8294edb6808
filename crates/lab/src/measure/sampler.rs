//! Samples at 1 Hz of every counter there is, raw, into `samples.csv`.
//!
//! A thread of its own reads and writes a row a second; a row that a crash tore is left out by the
//! reader. The database's own views are asked over a connection that does nothing else.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::control_group::ControlGroup;
use super::counters::{DiskCounters, disks, memory_bytes, processes_s, processor, schedule_s};
use super::database::Statistics;
use super::device::Leaf;
use super::load::Meter;
use super::process::Identity;
use crate::quantity::as_float;
use crate::record::Processor;

/// What is read.
pub struct Sources {
    /// The devices.
    pub leaves: Vec<Leaf>,
    /// The memory.
    pub group: Arc<ControlGroup>,
    /// The load.
    pub meter: Meter,
    /// Storage daemons.
    pub servers: Vec<Identity>,
    /// The database.
    pub statistics: Option<Box<dyn Statistics>>,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The devices.
    pub disks: DiskCounters,
    /// The processors.
    pub processor: Processor,
    /// Seconds of the storage daemons.
    pub servers_s: f64,
    /// By the names of [`Statistics`].
    pub database: Vec<(&'static str, f64)>,
}

impl Reading {
    /// A counter of the database.
    #[must_use]
    pub fn database(&self, name: &str) -> f64 {
        self.database
            .iter()
            .find(|(other, _)| *other == name)
            .map_or(0.0, |(_, value)| *value)
    }
}

/// A running sampler; a drop ends it.
pub struct Sampler {
    sources: Arc<Mutex<Sources>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const EVERY: Duration = Duration::from_secs(1);

impl Sampler {
    /// Begins to write to `path`.
    ///
    /// # Errors
    /// Where the file cannot be made.
    pub fn start(sources: Sources, path: &Path) -> Result<Self> {
        let mut file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let sources = Arc::new(Mutex::new(sources));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&sources);
        let asked = Arc::clone(&stop);
        let began = Instant::now();
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                let mut next = began;
                let mut has_heads = false;
                while !asked.load(Ordering::Relaxed) {
                    let row = row(&shared, began);
                    let written = if has_heads {
                        Ok(())
                    } else {
                        has_heads = true;
                        let heads: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
                        writeln!(file, "{}", heads.join(","))
                    };
                    let cells: Vec<String> =
                        row.iter().map(|(_, value)| value.to_string()).collect();
                    if written
                        .and_then(|()| writeln!(file, "{}", cells.join(",")))
                        .is_err()
                    {
                        return;
                    }
                    next += EVERY;
                    while Instant::now() < next && !asked.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
            })?;
        Ok(Self {
            sources,
            stop,
            thread: Some(thread),
        })
    }

    /// Reads everything now.
    #[must_use]
    pub fn read(&self) -> Reading {
        read(&self.sources)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(sources: &Mutex<Sources>) -> Reading {
    let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    let mut processor = processor();
    processor.harness_s = processes_s(&[Identity::own()]);
    Reading {
        disks: disks(&sources.leaves),
        processor,
        servers_s: processes_s(&sources.servers),
        database: sources
            .statistics
            .as_mut()
            .map(|statistics| statistics.read())
            .unwrap_or_default(),
    }
}

fn row(sources: &Mutex<Sources>, began: Instant) -> Vec<(&'static str, f64)> {
    let reading = read(sources);
    let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    let (running_s, runnable_s) = schedule_s();
    let mut row = vec![
        ("seconds", began.elapsed().as_secs_f64()),
        ("operations", as_float(sources.meter.operations())),
        ("device_reads", reading.disks.reads),
        ("device_read_bytes", reading.disks.read_bytes),
        ("device_writes", reading.disks.writes),
        ("device_written_bytes", reading.disks.written_bytes),
        ("device_flushes", reading.disks.flushes),
        ("device_busy_ms", reading.disks.busy_ms),
        ("processor_user_s", reading.processor.user_s),
        ("processor_system_s", reading.processor.system_s),
        ("processor_waiting_s", reading.processor.waiting_s),
        ("processor_stolen_s", reading.processor.stolen_s),
        ("schedule_running_s", running_s),
        ("schedule_runnable_s", runnable_s),
        ("storage_daemon_s", reading.servers_s),
        ("harness_s", reading.processor.harness_s),
        ("memory_bytes", memory_bytes(&sources.group)),
    ];
    row.extend(reading.database);
    row
}
