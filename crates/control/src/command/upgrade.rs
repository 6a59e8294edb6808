//! Handing a served group over to another program.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::api::calls::{ListExports, ShowGroup};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::command::reach::serving;
use crate::machine::path::absolute;
use crate::machine::settings::Settings;
use crate::serving::formats::Formats;
use crate::serving::keeper::KeeperClient;
use crate::serving::served;

/// What an upgrade came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeReport {
    /// The group.
    pub group: String,
    /// The version of the program that serves it now.
    pub version: String,
    /// Its process; `null` where it has ended since.
    pub process_id: Option<u32>,
}

/// Hands a served group over to the program at `binary`, or to this very program; what serves
/// it now.
/// Programs that use the mount wait meanwhile and notice nothing else.
///
/// # Errors
/// Where the group has no keeper, the program cannot serve what the running one does, or fails
/// to: the running one goes on then.
pub fn upgrade(
    settings: &Settings,
    group: &str,
    binary: Option<&Path>,
) -> ControlResult<UpgradeReport> {
    let Some(keeper) = KeeperClient::find(settings, group) else {
        let client = serving(settings, group)?;
        let report = client.ask(&ShowGroup {})?;
        return Err(ControlError::invalid(format!(
            "the group {} is served by process {} without a keeper: unmount it and mount it again",
            report.name,
            report.process_id.unwrap_or(0)
        )));
    };
    refuse_with_clients(settings, group)?;
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
    let version = keeper.upgrade(&binary, &file, &next.version)?;
    // Done it is, whatever becomes of the process in this moment.
    let served = served::find(settings, group).ok().flatten();
    let report = served.and_then(|client| client.ask(&ShowGroup {}).ok());
    Ok(UpgradeReport {
        group: report
            .as_ref()
            .map_or(status.group, |report| report.name.clone()),
        version,
        process_id: report.and_then(|report| report.process_id),
    })
}

/// The next process exports the same, but clients that are connected would be cut off.
fn refuse_with_clients(settings: &Settings, group: &str) -> ControlResult<()> {
    let served = served::find(settings, group).ok().flatten();
    // A process that knows no exports has none.
    let exports = served.and_then(|client| client.ask(&ListExports {}).ok());
    let exports = exports.unwrap_or_default();
    match exports.iter().find(|export| export.connections_count > 0) {
        None => Ok(()),
        Some(export) => Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "clients of {0} are connected at {1} and would be cut off: disconnect them, or `spindle volume unexport {0} --force` first",
                export.name, export.socket
            ),
        )),
    }
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
