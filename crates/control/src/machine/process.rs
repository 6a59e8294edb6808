//! Other processes of this machine: whether one is ending, waiting until it has ended, and who uses
//! a mount.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// Whether the process has ended as a program, and its last threads are on their way out or wait for
/// a disk in the kernel; `None` where there is no such process.
pub(crate) fn is_ending(process_id: u32) -> Option<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The state follows the name, which may hold anything but ends with the last bracket.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.starts_with(['Z', 'X']))
}

/// A process that uses what is mounted at a directory.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) process_id: u32,
    pub(crate) name: String,
    pub(crate) how: String,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} ({}, {})",
            self.process_id, self.name, self.how
        )
    }
}

/// The processes that use what is mounted at `directory`, as far as this one may see. Only the
/// kernel's own links are read: nothing is asked of the mount.
pub(crate) fn users_of(directory: &Path) -> Vec<User> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut users: Vec<User> = ids
        .filter(|id| *id != std::process::id())
        .filter_map(|process_id| {
            let name = std::fs::read_to_string(format!("/proc/{process_id}/comm"));
            Some(User {
                process_id,
                how: how_used(process_id, directory)?,
                name: name.unwrap_or_default().trim().to_owned(),
            })
        })
        .collect();
    users.sort_by_key(|user| user.process_id);
    users
}

fn how_used(process_id: u32, directory: &Path) -> Option<String> {
    let below = |link: &str| {
        let path = std::fs::read_link(format!("/proc/{process_id}/{link}")).ok()?;
        path.starts_with(directory).then_some(path)
    };
    if below("cwd").is_some() || below("root").is_some() {
        return Some("in the directory".to_owned());
    }
    if let Some(path) = below("exe") {
        return Some(format!("runs {}", path.display()));
    }
    let open = |kind: &str| {
        let entries = std::fs::read_dir(format!("/proc/{process_id}/{kind}")).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .into_iter()
            .find_map(|name| below(&format!("{kind}/{name}")))
    };
    if let Some(path) = open("fd") {
        return Some(format!("has {} open", path.display()));
    }
    let path = open("map_files")?;
    Some(format!("has {} mapped", path.display()))
}

/// How long the threads of a process that has ended are waited for. It let go of its disks before,
/// but for one that hangs.
const LINGER_MOST: Duration = Duration::from_secs(1);

const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the process has ended: then its disks are free, but for one that hangs.
///
/// # Errors
/// Where it takes longer than `most`.
pub(crate) fn wait_for_end(process_id: u32, most: Duration) -> ControlResult<()> {
    let process = i32::try_from(process_id)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .and_then(|pid| {
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
        });
    let Some(process) = process else {
        return Ok(());
    };
    let begun = Instant::now();
    let mut ending_since: Option<Instant> = None;
    let timeout = rustix::event::Timespec::try_from(LOOK_INTERVAL).ok();
    loop {
        let mut wait = [rustix::event::PollFd::new(
            &process,
            rustix::event::PollFlags::IN,
        )];
        match rustix::event::poll(&mut wait, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(ControlError::io("wait for", process_id, &error.into())),
        }
        if is_ending(process_id) == Some(true) {
            let since = ending_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LINGER_MOST {
                return Ok(());
            }
        }
        if begun.elapsed() >= most {
            return Err(ControlError::new(
                ControlErrorKind::Io,
                format!(
                    "process {process_id} is still closing the group after {} s; see its log",
                    most.as_secs()
                ),
            ));
        }
    }
}

/// How long a group may take to close: much may have to be written back.
pub(crate) const CLOSING_MOST: Duration = Duration::from_secs(600);
