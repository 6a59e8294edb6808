//! Whether a group is served, and by whom: its daemon, or a keeper that is starting the next one.

use std::path::Path;

use spindle_base::GroupName;

use crate::api::calls::ShowGroup;
use crate::api::client::Client;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::settings::Settings;
use crate::machine::sockets::find_daemon;
use crate::serving::keeper::{KeeperClient, KeeperPhase, KeeperStatus};

/// Refuses where a process serves the group already.
///
/// # Errors
/// Where that is so.
pub fn refuse_if_served(settings: &Settings, group: &GroupName) -> ControlResult<()> {
    match find(settings, group.as_str())? {
        Some(client) => Err(is_served(&client)),
        None => Ok(()),
    }
}

/// What is told to who would open a group that this process serves.
pub(super) fn is_served(client: &Client) -> ControlError {
    let report = match client.ask(&ShowGroup {}) {
        Ok(report) => report,
        Err(error) => return error,
    };
    ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the group {} is open already, by process {}: `spindle mount {} DIR` mounts it there, `spindle group dismount {}` closes it",
            report.name,
            report.process_id.unwrap_or(0),
            report.name,
            report.name
        ),
    )
}

/// The process that serves `group`, `None` where there is none. Names of groups are unique
/// whatever their case, so it does not matter here either. Where a keeper is starting the next
/// process, it is waited for: nobody else may open the group meanwhile.
///
/// # Errors
/// Where there is one that cannot be reached, such as another user's, or the keeper gave up.
pub(crate) fn find(settings: &Settings, group: &str) -> ControlResult<Option<Client>> {
    loop {
        if let Some(client) = find_daemon(settings, group)? {
            return Ok(Some(client));
        }
        let Some(keeper) = KeeperClient::find(settings, group) else {
            return Ok(None);
        };
        match keeper.wait_for_daemon() {
            Ok(status) if status.phase == KeeperPhase::GaveUp => return Err(gave_up(&status)),
            // One that served and died at once: the keeper is about to notice.
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            // The keeper ended meanwhile; another may have begun.
            Err(error) if error.kind == ControlErrorKind::Ending => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a command is told while nobody serves a mount that is held.
pub(crate) fn gave_up(status: &KeeperStatus) -> ControlError {
    let place = status.directory.as_deref().unwrap_or(Path::new("DIR"));
    ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the processes that served {0} died {1} times{4}, and its mount is held by the keeper {2}: `spindle mount {0} {3}` starts the next one, `spindle umount {3}` gives the mount up",
            status.group,
            status.deaths_count,
            status.keeper_process_id,
            place.display(),
            last_death(status)
        ),
    )
    .of_environment()
}

fn last_death(status: &KeeperStatus) -> String {
    let told = |why| format!(", the last one of this: {why}");
    status.last_death.as_deref().map_or_else(String::new, told)
}

/// What who asked for the next process of a held mount is told where that died too.
pub(crate) fn gave_up_again(status: &KeeperStatus) -> ControlError {
    let place = status.directory.as_deref().unwrap_or(Path::new("DIR"));
    ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the next process for {} died too ({}), and its mount is still held by the keeper {}: mend that and give the same command again, or give the mount up with `spindle umount {}`",
            status.group,
            status.last_death.as_deref().unwrap_or("see the log"),
            status.keeper_process_id,
            place.display()
        ),
    )
    .of_environment()
}
