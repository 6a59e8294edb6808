//! Samples at 1 Hz of every counter there is, raw, into `samples.csv`, and what the database's
//! sessions wait for into `waits.csv`.
//!
//! A thread of its own reads and writes a row a second; a row that a crash tore is left out by the
//! reader. The database's own views are asked over a connection that does nothing else. Sessions are
//! sampled, not counted: one that is seen waiting stands for a second of waiting, as in an active
//! session history, so that a run of a minute tells what took a tenth of the time and not what took
//! a thousandth.

pub mod iostat;
mod neighbours;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::iostat::{Counters, Iostat};
use self::neighbours::{Neighbours, Own, Seen};
use super::control_group::ControlGroup;
use super::counters::{
    Transfers, devices, load_average, memory_bytes, pressure_s, processes_s, processor, schedule_s,
    total, transfers,
};
use super::database::Statistics;
use super::device::Leaf;
use super::load::Meter;
use super::process::Identity;
use super::throttle::{Served, served};
use crate::quantity::as_float;
use crate::record::{DeviceActivity, Processor, WaitEvent, Waits};

/// What is read.
pub struct Sources {
    /// The devices.
    pub leaves: Vec<Leaf>,
    /// The memory, and the processes whose requests reach the file system.
    pub group: Arc<ControlGroup>,
    /// The load.
    pub meter: Meter,
    /// Storage daemons.
    pub servers: Vec<Identity>,
    /// The database.
    pub statistics: Option<Box<dyn Statistics>>,
    /// What prints the storage's own counters, where it has any.
    pub iostat: Option<Command>,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// When, in seconds since the sampler began.
    pub at_s: f64,
    /// Each leaf device.
    pub devices: Vec<DeviceActivity>,
    /// What the block control group let through to each.
    pub served: Vec<Option<Served>>,
    /// The processors.
    pub processor: Processor,
    /// Seconds of the storage daemons.
    pub servers_s: f64,
    /// Seconds of everything else in the group: the database.
    pub members_s: f64,
    /// What the database, or the lab's own fio, asked of files.
    pub transfers: Transfers,
    /// By the names of [`Statistics`].
    pub database: Vec<(&'static str, f64)>,
    /// The storage's own counters.
    pub storage: Option<Counters>,
    /// Every session seen so far.
    pub waits: Waits,
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
    shared: Arc<Mutex<Shared>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and [`Sampler::read`] both use.
struct Shared {
    began: Instant,
    sources: Sources,
    iostat: Option<Iostat>,
    waits: Waits,
    neighbours: Neighbours,
    seen: Seen,
}

const EVERY: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);

impl Sampler {
    /// Begins to write `samples.csv` and, where there is a database, `waits.csv` into `folder`.
    ///
    /// # Errors
    /// Where a file cannot be made, or the storage's counters cannot be asked for.
    pub fn start(mut sources: Sources, folder: &Path) -> Result<Self> {
        let create = |name: &str| {
            let path = folder.join(name);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        let mut writer = Writer {
            samples: create("samples.csv")?,
            waits: match sources.statistics {
                Some(_) => Some(create("waits.csv")?),
                None => None,
            },
            has_heads: false,
        };
        let iostat = sources.iostat.as_mut().map(Iostat::start).transpose()?;
        let shared = Arc::new(Mutex::new(Shared {
            began: Instant::now(),
            sources,
            iostat,
            waits: Waits::default(),
            neighbours: Neighbours::default(),
            seen: Seen::default(),
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn({
            let (shared, asked) = (Arc::clone(&shared), Arc::clone(&stop));
            move || {
                let mut next = Instant::now();
                while !asked.load(Ordering::Relaxed) {
                    let row = row(&shared);
                    if writer.write(&row).is_err() {
                        return;
                    }
                    // What was missed on a busy machine stays so: rows one after the other would
                    // keep the lock from whoever reads an end of the measured time.
                    next = (next + EVERY).max(Instant::now() + SHORTEST_PAUSE);
                    while Instant::now() < next && !asked.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        })?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Reads everything now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        read(&mut shared)
    }
}

/// A document of the storage's counters comes within this time.
const DOCUMENT_WITHIN: Duration = Duration::from_millis(1200);

impl Sampler {
    /// Reads everything now that the load has ended, and waits for what the storage counted of it up
    /// to its end: its last document may be a second old.
    #[must_use]
    pub fn read_ended(&self) -> Reading {
        let mut reading = self.read();
        if reading.storage.is_some() {
            thread::sleep(DOCUMENT_WITHIN);
            reading.storage = self.read().storage;
        }
        reading
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

fn read(shared: &mut Shared) -> Reading {
    let at_s = shared.began.elapsed().as_secs_f64();
    let sources = &mut shared.sources;
    let mut processor = processor();
    let mut own = vec![Identity::own()];
    own.extend(shared.iostat.as_ref().and_then(Iostat::identity));
    processor.harness_s = processes_s(&own);
    let members = sources.group.members();
    let owners = Own {
        group: &sources.group,
        members: &members,
        servers: &sources.servers,
        lab: &own,
    };
    shared.seen = shared.neighbours.look(&owners, &mut processor);
    let members: Vec<u32> = members
        .into_iter()
        .filter(|id| !sources.servers.iter().any(|server| server.id == *id))
        .collect();
    let identities: Vec<Identity> = members.iter().filter_map(|id| Identity::of(*id)).collect();
    // Below a database fio does the asking, whose transfers are ours once it has ended.
    let callers = match sources.statistics {
        Some(_) => members,
        None => vec![std::process::id()],
    };
    Reading {
        at_s,
        devices: devices(&sources.leaves),
        served: served(&sources.group, &sources.leaves),
        processor,
        servers_s: processes_s(&sources.servers),
        members_s: processes_s(&identities),
        transfers: transfers(callers),
        database: sources
            .statistics
            .as_mut()
            .map(|statistics| statistics.read())
            .unwrap_or_default(),
        storage: shared.iostat.as_ref().map(Iostat::read),
        waits: shared.waits.clone(),
    }
}

/// One second: the counters, and who waited for what.
struct Row {
    seconds: f64,
    cells: Vec<(String, f64)>,
    sessions: Vec<(String, String, u64)>,
}

fn row(shared: &Mutex<Shared>) -> Row {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let sessions = shared
        .sources
        .statistics
        .as_mut()
        .map(|statistics| statistics.sessions())
        .unwrap_or_default();
    if shared.sources.statistics.is_some() {
        count(&mut shared.waits, &sessions);
    }
    let reading = read(&mut shared);
    let (running_s, runnable_s) = schedule_s();
    let seconds = shared.began.elapsed().as_secs_f64();
    let all = total(&reading.devices);
    let mut cells: Vec<(String, f64)> = [
        ("seconds", seconds),
        ("operations", as_float(shared.sources.meter.operations())),
        ("device_reads", all.reads),
        ("device_read_bytes", all.read_bytes),
        ("device_writes", all.writes),
        ("device_written_bytes", all.written_bytes),
        ("device_flushes", all.flushes),
        ("device_busy_ms", all.busy_ms),
        ("device_queue_ms", all.queue_ms),
        ("processor_user_s", reading.processor.user_s),
        ("processor_system_s", reading.processor.system_s),
        ("processor_waiting_s", reading.processor.waiting_s),
        ("processor_stolen_s", reading.processor.stolen_s),
        ("schedule_running_s", running_s),
        ("schedule_runnable_s", runnable_s),
        ("storage_daemon_s", reading.servers_s),
        ("members_s", reading.members_s),
        ("own_processor_s", reading.processor.own_s.unwrap_or(0.0)),
        (
            "kernel_threads_s",
            reading.processor.kernel_s.unwrap_or(0.0),
        ),
        ("neighbours_s", reading.processor.others_s.unwrap_or(0.0)),
        ("neighbours_blocked", f64::from(shared.seen.blocked)),
        ("load_average", load_average()),
        ("harness_s", reading.processor.harness_s),
        ("memory_bytes", memory_bytes(&shared.sources.group)),
        ("asked_read_bytes", reading.transfers.asked_read_bytes),
        ("asked_written_bytes", reading.transfers.asked_written_bytes),
        ("fetched_bytes", reading.transfers.fetched_bytes),
        ("stored_bytes", reading.transfers.stored_bytes),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    for resource in ["cpu", "io", "memory"] {
        if let Some(waited_s) = pressure_s(resource) {
            let name = match resource {
                "cpu" => "processor",
                "io" => "disk",
                other => other,
            };
            cells.push((format!("pressure_{name}_s"), waited_s));
        }
    }
    cells.extend(device_cells(&reading));
    if let Some(storage) = &reading.storage {
        cells.extend(storage_cells(storage, shared.sources.leaves.len()));
    }
    if shared.sources.statistics.is_some() {
        cells.extend(session_cells(&sessions));
    }
    cells.extend(
        reading
            .database
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value)),
    );
    Row {
        seconds,
        cells,
        sessions,
    }
}

fn device_cells(reading: &Reading) -> Vec<(String, f64)> {
    let mut cells = Vec::new();
    for (index, device) in reading.devices.iter().enumerate() {
        let name = |what: &str| format!("device{}_{what}", index + 1);
        cells.push((name("read_bytes"), device.read_bytes));
        cells.push((name("written_bytes"), device.written_bytes));
        cells.push((name("busy_ms"), device.busy_ms));
    }
    cells
}

/// The first document comes after a second: the columns must be there before.
fn storage_cells(storage: &Counters, disk_count: usize) -> Vec<(String, f64)> {
    let mut cells = Vec::new();
    for index in 0..disk_count {
        let disk = storage.disks.get(index);
        let name = |what: &str| format!("spindle_disk{}_{what}", index + 1);
        let of = |value: fn(&iostat::Counted) -> f64| disk.map_or(0.0, value);
        cells.push((name("reads"), of(|disk| disk.reads)));
        cells.push((name("read_bytes"), of(|disk| disk.read_bytes)));
        cells.push((name("writes"), of(|disk| disk.writes)));
        cells.push((name("written_bytes"), of(|disk| disk.written_bytes)));
    }
    let sum = |of: fn(&iostat::Counted) -> f64| -> f64 { storage.files.iter().map(of).sum() };
    cells.push(("spindle_read_bytes".to_owned(), sum(|file| file.read_bytes)));
    cells.push((
        "spindle_written_bytes".to_owned(),
        sum(|file| file.written_bytes),
    ));
    cells
}

fn session_cells(sessions: &[(String, String, u64)]) -> Vec<(String, f64)> {
    let count = |is_it: &dyn Fn(&str) -> bool| -> f64 {
        let seen = sessions.iter().filter(|(class, _, _)| is_it(class));
        as_float(seen.map(|(_, _, count)| count).sum())
    };
    let mut cells: Vec<(String, f64)> = SESSION_COLUMNS
        .iter()
        .map(|(name, classes)| {
            let seen = count(&|class| classes.contains(&class));
            ((*name).to_owned(), seen)
        })
        .collect();
    cells.push(("sessions_active".to_owned(), count(&|_| true)));
    cells
}

/// Sessions by class of wait; what is in none of these is in `sessions_active` only.
const SESSION_COLUMNS: [(&str, &[&str]); 3] = [
    ("sessions_on_processor", &["CPU"]),
    ("sessions_on_storage", &["IO"]),
    ("sessions_on_locks", &["Lock", "LWLock", "BufferPin"]),
];

fn count(waits: &mut Waits, sessions: &[(String, String, u64)]) {
    waits.samples += 1;
    for (class, event, count) in sessions {
        let known = waits
            .events
            .iter_mut()
            .find(|known| known.class == *class && known.event == *event);
        match known {
            Some(known) => known.sessions += count,
            None => waits.events.push(WaitEvent {
                class: class.clone(),
                event: event.clone(),
                sessions: *count,
            }),
        }
    }
}

/// What was seen since `before`.
#[must_use]
pub fn waits_since(now: &Waits, before: &Waits) -> Waits {
    let events = now
        .events
        .iter()
        .map(|event| {
            let earlier = before
                .events
                .iter()
                .find(|other| other.class == event.class && other.event == event.event)
                .map_or(0, |other| other.sessions);
            WaitEvent {
                sessions: event.sessions - earlier,
                ..event.clone()
            }
        })
        .filter(|event| event.sessions > 0)
        .collect();
    Waits {
        samples: now.samples - before.samples,
        events,
    }
}

struct Writer {
    samples: File,
    waits: Option<File>,
    has_heads: bool,
}

impl Writer {
    fn write(&mut self, row: &Row) -> std::io::Result<()> {
        if !self.has_heads {
            self.has_heads = true;
            let heads: Vec<&str> = row.cells.iter().map(|(name, _)| name.as_str()).collect();
            writeln!(self.samples, "{}", heads.join(","))?;
            if let Some(waits) = &mut self.waits {
                writeln!(waits, "seconds,class,event,sessions")?;
            }
        }
        let cells: Vec<String> = row
            .cells
            .iter()
            .map(|(_, value)| value.to_string())
            .collect();
        writeln!(self.samples, "{}", cells.join(","))?;
        if let Some(waits) = &mut self.waits {
            for (class, event, sessions) in &row.sessions {
                writeln!(waits, "{:.3},{class},{event},{sessions}", row.seconds)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::journal::Journal;

    const ANSWER: Duration = Duration::from_millis(1200);

    /// A database that takes longer to answer than there is between two rows.
    struct Slow;

    impl Statistics for Slow {
        fn read(&mut self) -> Vec<(&'static str, f64)> {
            thread::sleep(ANSWER);
            vec![("database_commits", 1.0)]
        }
    }

    #[test]
    fn rows_that_come_late_leave_a_pause_for_who_reads_an_end_of_the_measured_time() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root makes control groups");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::begin(place.path()).unwrap();
        let name = format!("spindle-lab-sampler-test-{}", std::process::id());
        let sources = Sources {
            leaves: Vec::new(),
            group: Arc::new(ControlGroup::make(&journal, &name, None).unwrap()),
            meter: Meter::default(),
            servers: Vec::new(),
            statistics: Some(Box::new(Slow)),
            iostat: None,
        };
        let sampler = Sampler::start(sources, place.path()).unwrap();
        thread::sleep(Duration::from_secs(6));
        drop(sampler);
        let text = std::fs::read_to_string(place.path().join("samples.csv")).unwrap();
        let seconds: Vec<f64> = (text.lines().skip(1))
            .map(|line| line.split(',').next().unwrap().parse().unwrap())
            .collect();
        assert!(seconds.len() >= 3, "{text}");
        for pair in seconds.windows(2) {
            let pause_s = pair[1] - pair[0] - ANSWER.as_secs_f64();
            assert!(pause_s >= 0.45, "{seconds:?}");
        }
    }

    #[test]
    fn sessions_add_up_over_the_samples_between_two_readings() {
        let seen = |event: &str, count| ("IO".to_owned(), event.to_owned(), count);
        let mut waits = Waits::default();
        count(&mut waits, &[seen("WALSync", 3), seen("DataFileRead", 1)]);
        let before = waits.clone();
        count(&mut waits, &[seen("WALSync", 2)]);
        count(&mut waits, &[]);
        let between = waits_since(&waits, &before);
        assert_eq!(between.samples, 2);
        assert_eq!(between.events.len(), 1);
        assert_eq!(between.events[0].sessions, 2);
    }
}
