//! An experiment in a guest: user-mode Linux, for contenders that the running kernel cannot have
//! (device-mapper, md, an NFS client).
//!
//! One design for all of it. The host makes the disks, writes an order, starts the guest with our
//! own program as its first process ([`inside`]) and shows what the guest says ([`speech`]). In the
//! guest the very same experiment runs on these disks, with the results in the same folder; so
//! resuming, the plan, failures and the report know nothing of guests. All contenders of an
//! experiment run in the same guest, Spindle among them.
//!
//! Everything that the experiment makes is in the guest and ends with it; the host has the disks'
//! files and one process to undo. A guest that says nothing for some minutes hangs and is ended.
//! A contender that keeps the guest's devices ends that guest; another one goes on with what is left.

pub mod inside;
pub mod kernel;
pub mod machine;
pub mod order;
pub mod speech;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::interrupt;

use self::kernel::Kernel;
use self::machine::{Machine, MachinePlan, Task, is_panic};
use self::order::{DEVICES_AT_MOST, Order, device_name};
pub use self::speech::Greeting;
use self::speech::Word;
use super::device::{self, DeviceSet, fill};
use super::journal::{self, Journal, Made, Undo};
use super::run::{Finished, Listener, count};
use super::{contender, preparation};
use crate::experiment::{DeviceKind, Experiment, Kind};
use crate::quantity::{as_float, show_size};
use crate::record::{Plan, PlannedRun, Run, read_json, write_json};

pub use self::machine::lacks;

/// A guest that says nothing for so long hangs: it speaks every five seconds.
const SILENT_AT_MOST: Duration = Duration::from_secs(180);

/// A kernel that has given up ends by itself; one that does not is ended after this.
const DYING_AT_MOST: Duration = Duration::from_secs(3);

/// A guest that was only started to be seen has spoken by then, on a busy machine, too.
const GREETING_AT_MOST: Duration = Duration::from_secs(60);

const GREETING_MEMORY_BYTES: u64 = 256 << 20;

/// Of the kernel, the lab and its programs, beside the memory of the experiment.
const MEMORY_BESIDE_BYTES: u64 = 768 << 20;

/// A group without a limit gets this much.
const MEMORY_WITHOUT_LIMIT_BYTES: u64 = 1 << 30;

/// Runs an experiment in a guest into `folder`, which is made or continued.
///
/// # Errors
/// A line; what was measured so far stays.
pub fn run(
    text: &str,
    experiment: &Experiment,
    folder: &Path,
    erase: &[PathBuf],
    listener: &mut dyn Listener,
) -> Result<Finished> {
    check(experiment, erase)?;
    claim(folder)?;
    let kernel = Kernel::configured();
    let folder = &fs::canonicalize(folder)?;
    let journal = Journal::begin(&journal::directory())?;
    let directory = fs::canonicalize(&experiment.devices.directory)
        .with_context(|| format!("cannot use {}", experiment.devices.directory.display()))?
        .join(format!("spindle-lab-guest-{}", std::process::id()));
    let _made = journal.intend(Undo::Directory(directory.clone()))?;
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    listener.tell("making the disks of the guest");
    let disks = Disks::make(experiment, &directory, erase, &journal)?;
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let order_path = directory.join("order.json");
    write_json(
        &order_path,
        &Order {
            experiment: text.to_owned(),
            folder: folder.clone(),
            devices: (0..disks.measured_count).filter_map(device_name).collect(),
            work_disk: device_name(disks.measured_count).context("the disks were counted")?,
            modules: kernel.modules(),
            spindle: contender::spindle_program().and_then(|path| fs::canonicalize(path).ok()),
            // Libraries lie beside the directory of the programs.
            programs: experiment
                .database
                .directory
                .as_ref()
                .and_then(|path| Some(path.parent()?.to_owned())),
            facts: facts(experiment, &disks, &kernel),
            failures_stay_since_unix_s: started_unix_s,
        },
    )?;
    let plan = MachinePlan {
        kernel: &kernel,
        directory: &directory,
        disks: &disks.paths,
        memory_bytes: memory_bytes(experiment),
        task: Task::Order(&order_path),
        console: &folder.join(CONSOLE),
    };
    // Each guest that gets stuck has one more failed run behind it than the one before.
    loop {
        interrupt::check()?;
        let began = Instant::now();
        listener.tell("starting the guest");
        let mut machine = Machine::start(&plan, &journal)?;
        let word = listen(&mut machine, folder, listener, began, SILENT_AT_MOST)?;
        machine.end();
        match word {
            Word::Stuck => {
                listener.tell("a contender keeps the devices: the guest is started anew")
            }
            Word::Failed(reason) => {
                if !folder.join("plan.json").exists() {
                    // Nothing was begun, and nothing of it stays.
                    fs::remove_file(folder.join(CONSOLE))?;
                    fs::remove_dir(folder)?;
                }
                bail!("{reason}")
            }
            _ => break,
        }
    }
    let plan: Plan = read_json(&folder.join("plan.json"))?;
    count(folder, &plan)
}

/// What the console showed, in the folder of the results: it marks them as those of a guest, too.
pub const CONSOLE: &str = "console.log";

/// What can be told before anything is made.
fn check(experiment: &Experiment, erase: &[PathBuf]) -> Result<()> {
    if let Some(reason) = lacks() {
        bail!("no guest can be had here: {reason}");
    }
    ensure!(
        !experiment
            .workloads
            .iter()
            .any(|workload| workload.kind == Kind::Script),
        "scripts do not run in a guest yet: run this without --guest"
    );
    preparation::check_workloads(experiment)?;
    let devices = &experiment.devices;
    let count = usize::try_from(devices.count)?;
    ensure!(
        count < DEVICES_AT_MOST,
        "a guest has at most {} devices, the experiment wants {count}",
        DEVICES_AT_MOST - 1
    );
    for name in &experiment.contenders {
        let contender = preparation::found(experiment, name)?;
        let needed = contender.device_bytes_at_least();
        ensure!(
            devices.kind == DeviceKind::Block || devices.size_bytes >= needed,
            "`{name}` needs devices of at least {}",
            show_size(as_float(needed))
        );
    }
    device::check(devices, erase)
}

/// A folder holds runs of guests or of the host itself, never both.
fn claim(folder: &Path) -> Result<()> {
    ensure!(
        folder.join("plan.json").exists()
            || !folder.exists()
            || fs::read_dir(folder)?
                .all(|entry| entry.is_ok_and(|entry| entry.file_name() == CONSOLE)),
        "{} is not empty and holds no experiment",
        folder.display()
    );
    ensure!(
        !folder.join("plan.json").exists() || folder.join(CONSOLE).exists(),
        "the runs in {} were not those of a guest; go on without --guest, or give another folder by --output",
        folder.display()
    );
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Hears the guest out.
fn listen(
    machine: &mut Machine,
    folder: &Path,
    listener: &mut dyn Listener,
    began: Instant,
    silent_at_most: Duration,
) -> Result<Word> {
    let mut heard = Instant::now();
    let mut has_begun = false;
    let mut panicked = None;
    loop {
        interrupt::check()?;
        let is_dead = panicked.is_some_and(|at: Instant| at.elapsed() > DYING_AT_MOST);
        let line = match machine.lines().recv_timeout(Duration::from_millis(100)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if is_dead => {
                machine.end();
                return Err(dead(machine, has_begun, began));
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() < silent_at_most => continue,
            Err(RecvTimeoutError::Timeout) => {
                machine.end();
                bail!(
                    "the guest hangs: it has said nothing for {} s, and was ended\nthe end of its console:\n{}",
                    silent_at_most.as_secs(),
                    machine.console_tail()
                )
            }
            Err(RecvTimeoutError::Disconnected) => return Err(dead(machine, has_begun, began)),
        };
        if is_panic(&line) {
            panicked.get_or_insert_with(Instant::now);
        }
        heard = Instant::now();
        match Word::from_line(&line) {
            None => {}
            Some(Word::Alive) if has_begun => {}
            Some(Word::Alive) => {
                has_begun = true;
                listener.tell(&format!(
                    "the guest runs after {:.1} s",
                    began.elapsed().as_secs_f64()
                ));
            }
            Some(Word::Tell(line)) => listener.tell(&line),
            Some(Word::Begin {
                run,
                title,
                index,
                of,
            }) => listener.begin(&run, &title, index, of),
            Some(Word::End {
                folder: run,
                left_s,
            }) => {
                let run: Run = read_json(&folder.join("runs").join(run).join("run.json"))?;
                listener.end(
                    &run,
                    left_s.and_then(|left| Duration::try_from_secs_f64(left).ok()),
                );
            }
            Some(word @ (Word::Here(_) | Word::Done | Word::Stuck | Word::Failed(_))) => {
                return Ok(word);
            }
        }
    }
}

/// Of a guest that is no more although it has not said how it went.
fn dead(machine: &Machine, has_begun: bool, began: Instant) -> anyhow::Error {
    let after = began.elapsed().as_secs_f64();
    let when = if has_begun {
        format!("after {after:.1} s")
    } else {
        format!("it died at its start, after {after:.1} s")
    };
    anyhow::anyhow!(
        "the guest ended without a word, {when}: {}\nthe end of its console:\n{}",
        machine.reason(),
        machine.console_tail()
    )
}

/// Starts a guest only to see that it starts, and which kernel it has.
///
/// # Errors
/// Why it does not start, in the first line.
pub fn greet(kernel: &Kernel) -> Result<Greeting> {
    let journal = Journal::begin(&journal::directory())?;
    let directory =
        std::env::temp_dir().join(format!("spindle-lab-greeting-{}", std::process::id()));
    let _made = journal.intend(Undo::Directory(directory.clone()))?;
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let plan = MachinePlan {
        kernel,
        directory: &directory,
        disks: &[],
        memory_bytes: GREETING_MEMORY_BYTES,
        task: Task::Greeting,
        console: &directory.join(CONSOLE),
    };
    let began = Instant::now();
    let mut machine = Machine::start(&plan, &journal)?;
    let silent = &mut Silent;
    match listen(&mut machine, &directory, silent, began, GREETING_AT_MOST)? {
        Word::Here(greeting) => Ok(greeting),
        Word::Failed(reason) => bail!("{reason}"),
        other => bail!("it said {other:?} instead of a greeting"),
    }
}

/// Nobody who would be told anything.
struct Silent;

impl Listener for Silent {
    fn tell(&mut self, _line: &str) {}
    fn begin(&mut self, _run: &PlannedRun, _title: &str, _index: usize, _of: usize) {}
    fn end(&mut self, _run: &Run, _left: Option<Duration>) {}
}

/// The disks of the guest: those that are measured, then the one for work.
struct Disks {
    paths: Vec<PathBuf>,
    measured_count: usize,
    _devices: Option<DeviceSet>,
    _work: Made,
}

impl Disks {
    fn make(
        experiment: &Experiment,
        directory: &Path,
        erase: &[PathBuf],
        journal: &Journal,
    ) -> Result<Self> {
        let devices = &experiment.devices;
        let mut paths = Vec::new();
        let mut set = None;
        if devices.kind == DeviceKind::Loop {
            // The guest's own driver takes the place of the loop device.
            for index in 0..devices.count {
                let file = directory.join(format!("disk-{index}"));
                fill(&file, devices.size_bytes)?;
                paths.push(file);
            }
        } else {
            let made = DeviceSet::make(journal, devices, erase)?;
            paths.extend(made.leaves.iter().map(|leaf| leaf.path.clone()));
            set = Some(made);
        }
        let measured_count = paths.len();
        let work = directory.join("work-disk");
        let made = journal.intend(Undo::File(work.clone()))?;
        // Sparse: it takes what is written, and is there for the largest that might be.
        File::create_new(&work)
            .and_then(|file| file.set_len(work_bytes(experiment)))
            .with_context(|| format!("cannot make {}", work.display()))?;
        paths.push(work);
        Ok(Self {
            paths,
            measured_count,
            _devices: set,
            _work: made,
        })
    }
}

/// Golden images are as large as the data with its indexes, one a workload, and grow beside it.
fn work_bytes(experiment: &Experiment) -> u64 {
    let data: u64 = experiment
        .workloads
        .iter()
        .map(|workload| workload.size_bytes)
        .sum();
    data * 3 + (4 << 30)
}

fn memory_bytes(experiment: &Experiment) -> u64 {
    experiment
        .database
        .memory_bytes
        .unwrap_or(MEMORY_WITHOUT_LIMIT_BYTES)
        + MEMORY_BESIDE_BYTES
}

/// What a reader must know of the guest, beyond what it can tell itself.
fn facts(experiment: &Experiment, disks: &Disks, kernel: &Kernel) -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown".to_owned(), |(_, name)| name.to_owned());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact(
            "guest",
            "user-mode Linux, one processor, a process switch is dear: what the processor limits is not comparable to the host".to_owned(),
        ),
        fact("guest's kernel", kernel.to_string()),
        fact(
            "guest's disks",
            format!(
                "{} {} of the host through its page cache; only a stated bandwidth or rate makes disks of them",
                disks.measured_count,
                if experiment.devices.kind == DeviceKind::Loop { "files" } else { "devices" }
            ),
        ),
        fact("host's kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        fact("host's processor", processor),
    ]
}

#[cfg(test)]
mod tests;
