//! Starting, reaching and ending the processes that serve groups.
//!
//! The daemon is this same program with the same arguments and `--daemon` behind them. It has a
//! session of its own, its errors go to a log in the runtime directory, and its standard output
//! is a pipe on which it says one line: ready, or why not. Whoever started it waits for that.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::administration::serving;
use crate::daemon::ReadyReport;
use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::mounting::{self, MountRequest};
use crate::query::append;
use crate::settings::Settings;
use crate::sockets;
use crate::view::{EndingReport, GroupReport, MountReport};

/// How long a group may take to close: much may have to be written back.
const CLOSING_MOST: Duration = Duration::from_secs(600);

/// The one line that a daemon says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstWord {
    Ready(ReadyReport),
    Failed(ControlError),
}

/// Starts the daemon: `arguments` are those of this process, to which `--daemon` is added.
///
/// # Errors
/// What kept the daemon from serving.
pub fn start_daemon(
    settings: &Settings,
    group: &str,
    arguments: impl IntoIterator<Item = OsString>,
) -> ControlResult<ReadyReport> {
    let directory = &settings.runtime_directory;
    crate::daemon::make_runtime_directory(directory)?;
    let log_path = directory.join(format!("{group}.log"));
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .map_err(|error| ControlError::io("open the log", log_path.display(), &error))?;
    let program = std::env::current_exe()
        .map_err(|error| ControlError::io("find", "this program", &error))?;
    let mut child = Command::new(&program)
        .args(arguments)
        .arg("--daemon")
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
        Ok(FirstWord::Ready(report)) => Ok(report),
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
    let Some(client) = sockets::find(settings, group)? else {
        return Ok(None);
    };
    let mut path = "/mounts/add".to_owned();
    append(&mut path, "directory", bytes_of(&request.directory));
    append(&mut path, "direct", request.direct.to_string().as_bytes());
    if let Some(count) = request.workers_count {
        append(&mut path, "workers", count.to_string().as_bytes());
    }
    client.post(&path).map(Some)
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
    // Asked before the processes are: a dead mount has none, and looking at it must not wait.
    if mounting::remove_dead(&directory)? {
        return Ok(false);
    }
    let wanted = directory.display().to_string();
    for client in sockets::living(settings) {
        let report: GroupReport = client.get("/group")?;
        if !report.mounts.iter().any(|mount| mount.directory == wanted) {
            continue;
        }
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
        return Err(nothing_mounted(settings, target, &directory));
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

fn nothing_mounted(settings: &Settings, target: &Path, directory: &Path) -> ControlError {
    let there = match mounting::mounted_at(directory) {
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
            let mounts: Vec<String> = sockets::living(settings)
                .iter()
                .filter_map(|client| client.get::<GroupReport>("/group").ok())
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
