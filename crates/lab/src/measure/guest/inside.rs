//! The guest from within: its first process, and the experiment in it.
//!
//! The first process makes the places that a kernel alone does not have, loads modules, starts the
//! experiment as a process of its own, takes in orphans, says every few seconds that it is alive,
//! and at the end switches the guest off. The host's files are the root, read-only; only the folder
//! of the results can be written, and is made durable after each run, because a guest may be killed
//! at any moment. Everything else that is written lies in the guest's memory or on its work disk.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};

use super::order::{FACTS_VARIABLE, Order, ROOM};
use super::speech::{Greeting, Word};
use crate::experiment::{DeviceKind, Experiment};
use crate::measure::program::{command, run as run_program};
use crate::measure::run::{Listener, Manner, run};
use crate::record::{PlannedRun, Run, read_json, write_json};

const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// Kernel parts of the contenders, of Spindle and of loop devices. One that is missing shows as a
/// contender that cannot run.
const MODULES: [&str; 13] = [
    "fuse",
    "ext4",
    "xfs",
    "btrfs",
    "loop",
    "dm-mod",
    "dm-mirror",
    "dm-raid",
    "raid0",
    "raid1",
    "raid10",
    "nfsv3",
    "nfsv4",
];

/// Where programs write although nobody told them to: these are in the guest's memory. What is
/// needed of the host's files below them is shown all the same.
const HIDDEN_PLACES: [&str; 4] = ["/var/lib/nfs", "/var/log", "/tmp", "/var/tmp"];

/// An address beyond the host's own: a name service that sees none but 127.0.0.1 takes it that
/// there is no network, and refuses numbers, too. It is one of those for documentation.
const ADDRESS: &str = "192.0.2.1/32";

/// The first process of the guest. It does not return.
pub fn first_process(order: &Path) -> ExitCode {
    say_and_switch_off(begin(order))
}

/// The first process of a guest that is only to be seen. It does not return.
pub fn greet(modules: &Path) -> ExitCode {
    say_and_switch_off(greeting(modules).map(|greeting| Some(Word::Here(greeting))))
}

fn say_and_switch_off(word: Result<Option<Word>>) -> ExitCode {
    if let Some(word) = word.unwrap_or_else(|error| Some(Word::Failed(format!("{error:#}")))) {
        say(&word);
    }
    rustix::fs::sync();
    // The console is a pipe: what is in it reaches the host although nobody runs here any more.
    let switched_off = reboot(RebootCommand::PowerOff);
    eprintln!("the guest cannot be switched off: {switched_off:?}");
    ExitCode::from(2)
}

fn greeting(modules: &Path) -> Result<Greeting> {
    attach("proc", "/proc", "proc", None)?;
    attach("sysfs", "/sys", "sysfs", None)?;
    attach("tmpfs", "/run", "tmpfs", Some(c"mode=755"))?;
    fs::create_dir_all(Path::new(ROOM).join("lib/modules"))?;
    Ok(Greeting {
        lacking_modules: load_modules(modules)?,
        release: release()?,
    })
}

/// Gives what the experiment did not say itself.
fn begin(order_path: &Path) -> Result<Option<Word>> {
    let order: Order = read_json(order_path)?;
    make_places(&order)?;
    thread::Builder::new().name("alive".to_owned()).spawn(|| {
        loop {
            say(&Word::Alive);
            thread::sleep(ALIVE_EVERY);
        }
    })?;
    load_modules(&order.modules)?;
    // Servers on this host alone; without it only the network's contenders cannot run.
    let _ = run_program(command("ip").args(["link", "set", "dev", "lo", "up"]));
    let _ = run_program(command("ip").args(["address", "add", ADDRESS, "dev", "lo"]));
    mount_work_disk(&order.work_disk)?;
    // The host's is hidden by now.
    let copy = Path::new(ROOM).join("order.json");
    write_json(&copy, &order)?;
    let mut work = Command::new(std::env::current_exe()?);
    work.arg("guest-work").arg(copy).current_dir("/");
    work.envs(variables(&order)?);
    let child = work.spawn().context("the experiment cannot be started")?;
    loop {
        // Whoever loses its parent becomes ours, and is let go of here.
        let Some((id, status)) = wait(WaitOptions::empty())? else {
            continue;
        };
        if u32::try_from(id.as_raw_pid()) == Ok(child.id()) {
            if status.exited() && status.exit_status() == Some(0) {
                return Ok(None);
            }
            bail!("the experiment ended without a word: {status:?}");
        }
    }
}

fn variables(order: &Order) -> Result<BTreeMap<String, String>> {
    let state = format!("{ROOM}/state");
    let mut variables: BTreeMap<String, String> = [
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("HOME", "/root"),
        ("LANG", "C"),
        ("SPINDLE_LAB_STATE", state.as_str()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if let Some(spindle) = &order.spindle {
        variables.insert("SPINDLE_BINARY".to_owned(), spindle.display().to_string());
    }
    variables.insert(
        FACTS_VARIABLE.to_owned(),
        serde_json::to_string(&order.facts)?,
    );
    Ok(variables)
}

fn attach(source: &str, target: &str, kind: &str, data: Option<&CStr>) -> Result<()> {
    match mount(source, target, kind, MountFlags::empty(), data) {
        // The kernel may have mounted its own places already.
        Err(Errno::BUSY) if source == kind => Ok(()),
        other => other.with_context(|| format!("cannot mount {kind} at {target}")),
    }
}

/// Shows a directory of the host's at its own place, where something hides it or as writable.
fn show(path: &Path, flags: MountFlags) -> Result<()> {
    let name = path.to_str().context("a path has a plain name")?;
    fs::create_dir_all(path).with_context(|| format!("cannot make {name}"))?;
    mount("none", name, "hostfs", flags, Some(&*CString::new(name)?))
        .with_context(|| format!("cannot show {name}"))
}

fn make_places(order: &Order) -> Result<()> {
    attach("proc", "/proc", "proc", None)?;
    attach("sysfs", "/sys", "sysfs", None)?;
    attach("devtmpfs", "/dev", "devtmpfs", None)?;
    for place in ["/dev/pts", "/dev/shm"] {
        fs::create_dir_all(place)?;
    }
    attach("devpts", "/dev/pts", "devpts", None)?;
    attach("tmpfs", "/dev/shm", "tmpfs", None)?;
    attach("tmpfs", "/run", "tmpfs", Some(c"mode=755"))?;
    attach("cgroup2", "/sys/fs/cgroup", "cgroup2", None)?;
    for place in ["state", "work", "lib/modules"] {
        fs::create_dir_all(Path::new(ROOM).join(place))?;
    }
    for place in ["/run/lock", "/run/lvm"] {
        fs::create_dir_all(place)?;
    }
    let own = std::env::current_exe()?;
    let mut shown: Vec<&Path> = own.parent().into_iter().collect();
    shown.extend(order.spindle.as_deref().and_then(Path::parent));
    shown.extend(order.programs.as_deref());
    shown.push(&order.modules);
    shown.dedup();
    for place in HIDDEN_PLACES {
        if Path::new(place).is_dir() {
            attach("none", place, "tmpfs", Some(c"mode=1777"))?;
            for path in shown.iter().filter(|path| path.starts_with(place)) {
                show(path, MountFlags::RDONLY)?;
            }
        }
    }
    show(&order.folder, MountFlags::empty())
}

/// The kernel finds its modules where a `modprobe` of ours looks, so that nothing of the host's is
/// changed or needed. Gives those that cannot be loaded.
fn load_modules(modules: &Path) -> Result<Vec<String>> {
    let release = release()?;
    let place = Path::new(ROOM).join("lib/modules").join(&release);
    symlink(modules.join(&release), place)?;
    let helper = Path::new(ROOM).join("modprobe");
    let program = command("modprobe");
    fs::write(
        &helper,
        format!(
            "#!/bin/sh\nexec {} --dirname {ROOM} \"$@\"\n",
            Path::new(program.get_program()).display()
        ),
    )?;
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
    fs::write(
        "/proc/sys/kernel/modprobe",
        helper.to_string_lossy().as_bytes(),
    )?;
    let mut lacking = Vec::new();
    for module in MODULES {
        if let Err(error) = run_program(Command::new(&helper).args(["--quiet", module])) {
            eprintln!("no module {module}: {error:#}");
            lacking.push(module.to_owned());
        }
    }
    Ok(lacking)
}

fn release() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(text.trim().to_owned())
}

fn mount_work_disk(disk: &Path) -> Result<()> {
    let mut make = command("mkfs.ext4");
    make.args(["-q", "-F", "-O", "^has_journal"]);
    run_program(make.arg(disk))?;
    let disk = disk.to_string_lossy();
    attach(&disk, &work_place().to_string_lossy(), "ext4", None)
}

fn work_place() -> PathBuf {
    Path::new(ROOM).join("work")
}

fn say(word: &Word) {
    // One write a line: the console does not mix these.
    let mut console = std::io::stdout().lock();
    let _ = console.write_all(word.to_line().as_bytes());
    let _ = console.flush();
}

/// The experiment of an order, in the guest.
///
/// # Errors
/// Never where it could be told to the host.
pub fn work(order: &Path) -> Result<()> {
    let word = match work_to_the_end(order) {
        Ok(word) => word,
        Err(error) => Word::Failed(format!("{error:#}")),
    };
    say(&word);
    Ok(())
}

fn work_to_the_end(order: &Path) -> Result<Word> {
    let order: Order = read_json(order)?;
    let mut experiment =
        Experiment::parse(&order.experiment).map_err(|mistake| anyhow!("{mistake}"))?;
    let devices = &mut experiment.devices;
    let devices_are_the_labs = devices.kind != DeviceKind::Block;
    devices.kind = DeviceKind::Block;
    devices.count = u32::try_from(order.devices.len())?;
    devices.names.clone_from(&order.devices);
    devices.directory = work_place();
    // The host looked at its own devices; what a guest before this one left on them is ours.
    let erase = order.devices.clone();
    let mut relay = Relay {
        folder: File::open(&order.folder)?,
    };
    let manner = Manner {
        failures_stay_since_unix_s: Some(order.failures_stay_since_unix_s),
        ends_when_stuck: true,
        devices_are_the_labs,
    };
    let finished = run(
        &order.experiment,
        &experiment,
        &order.folder,
        &erase,
        &manner,
        &mut relay,
    )?;
    Ok(if finished.is_stuck {
        Word::Stuck
    } else {
        Word::Done
    })
}

/// Says to the host what would be shown here.
struct Relay {
    folder: File,
}

impl Listener for Relay {
    fn tell(&mut self, line: &str) {
        say(&Word::Tell(line.to_owned()));
    }

    fn begin(&mut self, run: &PlannedRun, title: &str, index: usize, of: usize) {
        say(&Word::Begin {
            run: run.clone(),
            title: title.to_owned(),
            index,
            of,
        });
    }

    fn end(&mut self, run: &Run, left: Option<Duration>) {
        // The host reads the record now, and the guest may be killed at any moment.
        let _ = rustix::fs::syncfs(&self.folder);
        say(&Word::End {
            folder: run.planned.folder(),
            left_s: left.map(|left| left.as_secs_f64()),
        });
    }
}

/// Whether this process runs in a guest of the lab's.
#[must_use]
pub fn is_guest() -> bool {
    std::env::var_os(FACTS_VARIABLE).is_some()
}

/// The facts on the guest, where this is one.
#[must_use]
pub fn facts() -> Vec<(String, String)> {
    std::env::var(FACTS_VARIABLE)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}
