//! Starting, reaching and ending the processes that serve groups.
//!
//! The daemon is this same program with the same arguments and `--daemon` behind them. It has a
//! session of its own, its errors go to a log in the runtime directory, and its standard output
//! is a pipe on which it says one line: ready, or why not. Whoever started it waits for that.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::administration::serving;
use crate::client::Client;
use crate::daemon::ReadyReport;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::formats::Formats;
use crate::keeper::{KeeperClient, KeeperPhase};
use crate::mounting::{self, MountRequest};
use crate::query::append;
use crate::runtime_directory;
use crate::settings::Settings;
use crate::sockets;
use crate::view::{EndingReport, GroupReport, MountReport};

/// How long a group may take to close: much may have to be written back.
pub(crate) const CLOSING_MOST: Duration = Duration::from_secs(600);

/// How often a process that is about to end is looked after.
const ENDING_INTERVAL: Duration = Duration::from_millis(10);

/// The one line that a daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstWord {
    Ready(ReadyReport),
    Failed(ControlError),
}

/// Starts the daemon, or with `keeper` the keeper that starts it: `arguments` are those of this
/// process, to which `--daemon` or `--keeper` is added.
///
/// # Errors
/// What kept the daemon from serving.
pub fn start_daemon(
    settings: &Settings,
    group: &str,
    arguments: impl IntoIterator<Item = OsString>,
    keeper: bool,
) -> ControlResult<ReadyReport> {
    let directory = &settings.runtime_directory;
    runtime_directory::make(directory)?;
    let log_path = directory.join(format!("{group}.log"));
    let log = runtime_directory::open_log(&log_path)?;
    let program = std::env::current_exe()
        .map_err(|error| ControlError::io("find", "this program", &error))?;
    let mut child = Command::new(&program)
        .args(arguments)
        .arg(if keeper { "--keeper" } else { "--daemon" })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| ControlError::io("start", program.display(), &error))?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        // A daemon that dies closes the pipe: an empty line then.
        let _ = BufReader::new(pipe).read_line(&mut line);
    }
    match serde_json::from_str(&line) {
        Ok(FirstWord::Ready(report)) => {
            if keeper {
                wait_for_keeper(settings, group)?;
            }
            Ok(report)
        }
        Ok(FirstWord::Failed(error)) => {
            let _ = child.wait();
            Err(error)
        }
        Err(_) => {
            let status = child
                .wait()
                .map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(ControlError::new(
                ControlErrorKind::Bug,
                format!(
                    "the process that was to serve {group} ended before it was ready ({status}); see {}",
                    log_path.display()
                ),
            ))
        }
    }
}

/// Waits until the keeper knows that its daemon serves: the daemon tells both at the same time,
/// and whoever asks the keeper after the command must not hear that it is still starting.
fn wait_for_keeper(settings: &Settings, group: &str) -> ControlResult<()> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        return Ok(());
    };
    match keeper.wait_for_daemon() {
        Ok(status) if status.phase == KeeperPhase::GaveUp => Err(sockets::gave_up(&status)),
        // Somebody has it end already.
        Err(error) if error.kind != ControlErrorKind::Ending => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The daemon's own end of [`start_daemon`].
#[derive(Debug)]
pub struct Starter(());

impl Starter {
    /// Leaves the session of whoever started this process.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn detach() -> ControlResult<Self> {
        rustix::process::setsid()
            .map_err(|error| ControlError::io("leave", "the session", &error.into()))?;
        Ok(Self(()))
    }

    /// The word of a keeper that could not begin.
    #[must_use]
    pub const fn of_keeper() -> Self {
        Self(())
    }

    /// Says that the group is served; the standard output is closed then.
    pub fn ready(self, report: &ReadyReport) {
        self.say(&FirstWord::Ready(report.clone()));
    }

    /// Says why it is not.
    pub fn failed(self, error: &ControlError) {
        self.say(&FirstWord::Failed(error.clone()));
    }

    fn say(self, word: &FirstWord) {
        let mut line = serde_json::to_string(word).unwrap_or_default();
        line.push('\n');
        // The directory that the command was given in must stay free to be unmounted. Every
        // path that is still needed is absolute.
        let _ = std::env::set_current_dir("/");
        // Whoever started this process may be gone; the group is served all the same.
        let _ = std::io::stdout().write_all(line.as_bytes());
        let _ = std::io::stdout().flush();
        if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
    }
}

/// Mounts a group that a process serves already; `None` where there is none.
///
/// # Errors
/// Where the directory cannot be mounted on.
pub fn mount_served(
    settings: &Settings,
    group: &str,
    request: &MountRequest,
) -> ControlResult<Option<MountReport>> {
    let mut path = "/mounts/add".to_owned();
    append(&mut path, "directory", bytes_of(&request.directory));
    append(&mut path, "direct", request.direct.to_string().as_bytes());
    if let Some(count) = request.workers_count {
        append(&mut path, "workers", count.to_string().as_bytes());
    }
    let begun = Instant::now();
    loop {
        if let Some(report) = go_on_kept(settings, group, request)? {
            return Ok(Some(report));
        }
        let Some(client) = sockets::find(settings, group)? else {
            return Ok(None);
        };
        match client.post(&path) {
            // Its last mount has gone a moment ago: it takes no other.
            Err(error) if begun.elapsed() < CLOSING_MOST && is_over(settings, group, &error) => {
                std::thread::sleep(ENDING_INTERVAL);
            }
            answer => return answer.map(Some),
        }
    }
}

/// Whether this is the answer of a process that is about to end, or of none because it has ended.
fn is_over(settings: &Settings, group: &str, error: &ControlError) -> bool {
    match error.kind {
        ControlErrorKind::Ending => true,
        ControlErrorKind::Io | ControlErrorKind::NotFound => {
            sockets::find_daemon(settings, group).is_ok_and(|client| client.is_none())
        }
        _ => false,
    }
}

/// Starts the next process of a mount that is held and that the last ones could not serve.
fn go_on_kept(
    settings: &Settings,
    group: &str,
    request: &MountRequest,
) -> ControlResult<Option<MountReport>> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        return Ok(None);
    };
    let status = match keeper.status() {
        Err(error) if error.kind == ControlErrorKind::Ending => return Ok(None),
        status => status?,
    };
    if status.phase != KeeperPhase::GaveUp || status.directory.as_ref() != Some(&request.directory)
    {
        return Ok(None);
    }
    let status = keeper.go_on()?;
    if status.phase == KeeperPhase::GaveUp {
        return Err(sockets::gave_up(&status));
    }
    let Some(client) = sockets::find(settings, group)? else {
        return Ok(None);
    };
    let report: GroupReport = client.get("/group")?;
    Ok(report.mounts.into_iter().next())
}

/// Hands a served group over to the program at `binary`, or to this very program; its version.
/// Programs that use the mount wait meanwhile and notice nothing else.
///
/// # Errors
/// Where the group has no keeper, the program cannot serve what the running one does, or fails
/// to: the running one goes on then.
pub fn upgrade(settings: &Settings, group: &str, binary: Option<&Path>) -> ControlResult<String> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        let client = serving(settings, group)?;
        let report: GroupReport = client.get("/group")?;
        return Err(ControlError::invalid(format!(
            "the group {} is served by process {} without a keeper: unmount it and mount it again",
            report.name,
            report.process_id.unwrap_or(0)
        )));
    };
    let binary = match binary {
        Some(path) => absolute(path)?,
        None => std::env::current_exe()
            .map_err(|error| ControlError::io("find", "this program", &error))?,
    };
    // Held open: what is started in the end is the file that was asked, whatever is installed at
    // its path meanwhile.
    let file = std::fs::File::open(&binary)
        .map_err(|error| ControlError::io("open", binary.display(), &error))?;
    let next = formats_of(&file, &binary)?;
    let status = keeper.wait_for_daemon()?;
    if let Some(running) = &status.formats {
        running.check_successor(&next)?;
    }
    keeper.upgrade(&binary, &file, &next.version)
}

/// Asks a program what it reads and writes.
fn formats_of(file: &std::fs::File, binary: &Path) -> ControlResult<Formats> {
    let fail = |error| ControlError::io("start", binary.display(), &error);
    // A script is opened a second time, by its interpreter, which must find the descriptor.
    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())
        .map_err(|error| fail(error.into()))?;
    let held = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let output = Command::new(held)
        .arg("formats")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| ControlError::io("start", binary.display(), &error))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        ControlError::invalid(format!(
            "{} is no program that can take a group over: it does not answer `formats`; the running one goes on",
            binary.display()
        ))
    })
}

/// The directory as every process names it; what is wrong with it is told later by whoever
/// mounts there.
///
/// # Errors
/// Where the working directory is gone.
pub fn absolute(directory: &Path) -> ControlResult<PathBuf> {
    if let Ok(real) = directory.canonicalize() {
        return Ok(real);
    }
    std::path::absolute(directory)
        .map_err(|error| ControlError::io("find", directory.display(), &error))
}

/// Makes durable whatever programs have written to a group until now. Whether it was open: one
/// that is not has nothing left to be written.
///
/// # Errors
/// Where there is no such group, or not all of it could be made durable.
pub fn sync_group(settings: &Settings, group: &str) -> ControlResult<bool> {
    let Some(client) = sockets::find(settings, group)? else {
        crate::discovery::Discovery::look(settings)?.group(group)?;
        return Ok(false);
    };
    client.post::<EndingReport>("/group/sync").map(|_| true)
}

/// Unmounts everything of a group, closes it, and waits until that is done.
///
/// # Errors
/// Where the group is not open or a mount of it is in use.
pub fn dismount_group(settings: &Settings, group: &str) -> ControlResult<()> {
    let client = serving(settings, group)?;
    let ending: EndingReport = client.post("/group/dismount")?;
    sockets::wait_for_end(ending.process_id, CLOSING_MOST)
}

/// Unmounts a directory, or everything of a group, and waits until what ends has ended.
/// Whether the group is closed now.
///
/// # Errors
/// Where nothing is mounted there or it is in use.
pub fn unmount(settings: &Settings, target: &Path) -> ControlResult<bool> {
    let directory = absolute(target)?;
    // A mount that is held while nobody serves it must not be looked at: that would wait.
    if give_up_kept(settings, target, &directory)? {
        return Ok(true);
    }
    // Asked before the processes are: a dead mount has none, and looking at it must not wait.
    if mounting::remove_dead(&directory)? {
        return Ok(false);
    }
    let mut silent = Vec::new();
    if let Some(client) = server_of_mount(settings, &directory, &mut silent)? {
        let mut path = "/mounts/remove".to_owned();
        append(&mut path, "directory", bytes_of(&directory));
        let ending: EndingReport = client.post(&path)?;
        if ending.ending {
            sockets::wait_for_end(ending.process_id, CLOSING_MOST)?;
        }
        return Ok(ending.ending);
    }
    let name = target.to_str().unwrap_or_default();
    let Some(client) = sockets::find(settings, name)? else {
        // It may be a mount of one that was asked in vain.
        return Err(match silent.pop() {
            Some(error) => error,
            None => nothing_mounted(settings, target, &directory),
        });
    };
    let report: GroupReport = client.get("/group")?;
    let mut ended = false;
    for mount in report.mounts {
        let mut path = "/mounts/remove".to_owned();
        append(&mut path, "directory", mount.directory.as_bytes());
        let ending: EndingReport = client.post(&path)?;
        if ending.ending {
            sockets::wait_for_end(ending.process_id, CLOSING_MOST)?;
            ended = true;
        }
    }
    Ok(ended)
}

/// The process that serves the mount at `directory`. The kernel's list names its group, and only
/// where that group's process knows nothing of it the others are asked, all at the same time.
fn server_of_mount(
    settings: &Settings,
    directory: &Path,
    silent: &mut Vec<ControlError>,
) -> ControlResult<Option<Client>> {
    let wanted = directory.display().to_string();
    let has_it = |report: &GroupReport| report.mounts.iter().any(|it| it.directory == wanted);
    let named = spindle_fuse::mounted_at(directory).filter(|mount| mount.kind == "fuse.spindle");
    if let Some(mount) = named
        && let Some(client) = sockets::find(settings, &mount.source)?
        && has_it(&client.get("/group")?)
    {
        return Ok(Some(client));
    }
    let clients = sockets::living(settings);
    let answers = sockets::ask_each(&clients, |client| client.get_soon::<GroupReport>("/group"));
    for (client, answer) in clients.into_iter().zip(answers) {
        match answer {
            Ok(report) if has_it(&report) => return Ok(Some(client)),
            Err(error) if error.kind == ControlErrorKind::Silent => silent.push(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

/// Waits for the process that serves a kept mount, or has the keeper give up one that nobody can
/// serve. Whether it did.
fn give_up_kept(settings: &Settings, target: &Path, directory: &Path) -> ControlResult<bool> {
    for keeper in KeeperClient::all(settings) {
        let Ok(status) = keeper.status() else {
            continue;
        };
        let is_meant = status.directory.as_deref() == Some(directory)
            || target.to_str() == Some(status.group.as_str());
        // Only the one that is meant is waited for while its daemon starts or ends.
        if !is_meant {
            continue;
        }
        let Ok(status) = keeper.wait_for_daemon() else {
            continue;
        };
        if status.phase == KeeperPhase::GaveUp {
            keeper.give_up()?;
            sockets::wait_for_end(status.keeper_process_id, CLOSING_MOST)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn nothing_mounted(settings: &Settings, target: &Path, directory: &Path) -> ControlError {
    let there = match spindle_fuse::mounted_at(directory) {
        Some(mount) if mount.kind == "fuse.spindle" => format!(
            "{} is a mount of the group {} whose process does not answer in {}: set SPINDLE_RUNTIME_DIR to its runtime directory",
            directory.display(),
            mount.source,
            settings.runtime_directory.display()
        ),
        Some(mount) => format!(
            "{} is a mount of {}, no group",
            directory.display(),
            mount.kind
        ),
        None => {
            let clients = sockets::living(settings);
            let asked = |client: &Client| client.get_soon::<GroupReport>("/group");
            let mounts: Vec<String> = (sockets::ask_each(&clients, asked).into_iter())
                .filter_map(Result::ok)
                .flat_map(|report| report.mounts)
                .map(|mount| mount.directory)
                .collect();
            let mounted = if mounts.is_empty() {
                "nothing is mounted".to_owned()
            } else {
                format!("mounted are {}", mounts.join(", "))
            };
            format!(
                "{} is neither a mount of a group nor an open group; {mounted}",
                target.display()
            )
        }
    };
    ControlError::not_found(there)
}

fn bytes_of(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}
