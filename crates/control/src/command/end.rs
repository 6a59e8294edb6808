//! Making durable, unmounting and closing groups that are served.

use std::path::{Path, PathBuf};

use crate::api::calls::{DismountGroup, RemoveMount, ShowGroup, SyncGroup};
use crate::api::client::Client;
use crate::api::ending::{ClosedReport, SyncedReport};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::nearness::near_names;
use crate::api::view::{EndingReport, GroupReport};
use crate::command::closing::{refuse_open, refuse_unless_closed};
use crate::command::reach::serving;
use crate::machine::path::absolute;
use crate::machine::process;
use crate::machine::process::CLOSING_MOST;
use crate::machine::settings::Settings;
use crate::machine::sockets;
use crate::serving::keeper::{KeeperClient, KeeperPhase};
use crate::serving::mount;
use crate::serving::served;

/// Makes durable whatever programs have written to a group until now.
///
/// # Errors
/// Where there is no such group, not all of it could be made durable, or a process that cannot be asked
/// from here has it open or did not close it.
pub fn sync_group(settings: &Settings, group: &str) -> ControlResult<SyncedReport> {
    let Some(client) = served::find(settings, group)? else {
        return Ok(SyncedReport {
            group: refuse_open(settings, group)?,
            open: false,
        });
    };
    let synced = client.ask(&SyncGroup {})?;
    Ok(SyncedReport {
        group: synced.group,
        open: true,
    })
}

/// Unmounts everything of a group, closes it, and waits until that is done.
///
/// # Errors
/// Where the group is not open or a mount of it is in use.
pub fn dismount_group(settings: &Settings, group: &str) -> ControlResult<ClosedReport> {
    let client = serving(settings, group)?;
    let ending = client.ask(&DismountGroup {})?;
    wait_for_close(settings, &ending)?;
    Ok(ClosedReport {
        group: ending.group,
        directories: ending.directories,
        closed: true,
    })
}

/// Unmounts a directory, or everything of a group, and waits until what ends has ended.
///
/// # Errors
/// Where nothing is mounted there or it is in use.
pub fn unmount(settings: &Settings, target: &Path) -> ControlResult<ClosedReport> {
    let directory = absolute(target)?;
    // A mount that is held while nobody serves it must not be looked at: that would wait.
    if let Some(report) = give_up_kept(settings, target, &directory)? {
        return Ok(report);
    }
    let mounted = spindle_fuse::mounted_at(&directory);
    // Asked before the processes are: a dead mount has none, and looking at it must not wait.
    if mount::remove_dead(&directory)? {
        let group = mounted.map_or_else(String::new, |mount| mount.source);
        return Ok(left_dead(group, &[directory]));
    }
    let mut silent = Vec::new();
    if let Some(client) = server_of_mount(settings, &directory, &mut silent)? {
        return remove_mounts(settings, &client, vec![directory]);
    }
    let name = target.to_str().unwrap_or_default();
    let Some(client) = served::find(settings, name)? else {
        // It may be a mount of one that was asked in vain.
        if let Some(error) = silent.pop() {
            return Err(error);
        }
        // Where its processes were killed the mount that they left is dead. Where they ended in order
        // they left none, and a dead one is of another group with that name.
        let removed = match sockets::is_left(settings, name) {
            true => mount::remove_dead_of(name)?,
            false => Vec::new(),
        };
        return match removed[..] {
            [] => Err(nothing_mounted(settings, target, &directory)),
            _ => Ok(left_dead(name.to_owned(), &removed)),
        };
    };
    let mounts = client.ask(&ShowGroup {})?.mounts;
    let directories = (mounts.into_iter()).map(|mount| mount.directory.into());
    remove_mounts(settings, &client, directories.collect())
}

/// What is told where only mounts were left that nobody serves.
fn left_dead(group: String, directories: &[PathBuf]) -> ClosedReport {
    ClosedReport {
        group,
        directories: (directories.iter())
            .map(|directory| directory.display().to_string())
            .collect(),
        closed: false,
    }
}

/// Has these mounts of one group taken away, and waits where its process ends with them.
fn remove_mounts(
    settings: &Settings,
    client: &Client,
    directories: Vec<PathBuf>,
) -> ControlResult<ClosedReport> {
    let mut report = left_dead(client.group_name().to_owned(), &directories);
    for directory in directories {
        let ending = client.ask(&RemoveMount { directory })?;
        if ending.ending {
            wait_for_close(settings, &ending)?;
            report.closed = true;
        }
        report.group = ending.group;
    }
    Ok(report)
}

/// Waits until a process has ended that closes its group, and its keeper, which knows how it ended.
///
/// # Errors
/// Where that takes too long or the group is not closed.
fn wait_for_close(settings: &Settings, ending: &EndingReport) -> ControlResult<()> {
    let processes: Vec<u32> = [Some(ending.process_id), ending.keeper_process_id]
        .into_iter()
        .flatten()
        .collect();
    for process_id in &processes {
        process::wait_for_end(*process_id, CLOSING_MOST)?;
    }
    refuse_unless_closed(settings, &ending.group, &processes)
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
        && let Some(client) = served::find(settings, &mount.source)?
        && has_it(&client.ask(&ShowGroup {})?)
    {
        return Ok(Some(client));
    }
    let clients = sockets::living(settings);
    let answers = sockets::ask_each(&clients, |client| client.ask_soon(&ShowGroup {}));
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
/// serve: what that came to, where it did.
fn give_up_kept(
    settings: &Settings,
    target: &Path,
    directory: &Path,
) -> ControlResult<Option<ClosedReport>> {
    for keeper in KeeperClient::all(settings) {
        let Ok(status) = keeper.status() else {
            continue;
        };
        let is_meant = status.directory.as_deref() == Some(directory)
            || (target.to_str()).is_some_and(|name| name.eq_ignore_ascii_case(&status.group));
        // Only the one that is meant is waited for while its daemon starts or ends.
        if !is_meant {
            continue;
        }
        let Ok(status) = keeper.wait_for_daemon() else {
            continue;
        };
        if status.phase == KeeperPhase::GaveUp {
            keeper.give_up()?;
            process::wait_for_end(status.keeper_process_id, CLOSING_MOST)?;
            refuse_unless_closed(settings, &status.group, &[status.keeper_process_id])?;
            return Ok(Some(ClosedReport {
                closed: true,
                ..left_dead(status.group, status.directory.as_slice())
            }));
        }
    }
    Ok(None)
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
            let asked = |client: &Client| client.ask_soon(&ShowGroup {});
            let groups: Vec<GroupReport> = (sockets::ask_each(&clients, asked).into_iter())
                .filter_map(Result::ok)
                .collect();
            let mounts = groups.iter().flat_map(|group| &group.mounts);
            let mounts: Vec<&str> = mounts.map(|mount| mount.directory.as_str()).collect();
            let mounted = if mounts.is_empty() {
                "nothing is mounted".to_owned()
            } else {
                format!("mounted are {}", mounts.join(", "))
            };
            let typed = target.to_str().unwrap_or_default();
            let names = groups.iter().map(|group| group.name.as_str());
            let near = near_names(typed, names.chain(mounts.iter().copied()));
            let hint = match near[..] {
                [] => String::new(),
                _ => format!("did you mean {}? ", near.join(" or ")),
            };
            let elsewhere = told_elsewhere(settings, typed);
            format!(
                "{} is neither a mount of a group nor an open group; {hint}{mounted}{elsewhere}",
                target.display()
            )
        }
    };
    ControlError::not_found(there)
}

/// Where the kernel has mounts of a group of this name that no process in the runtime directory serves.
/// None of them is looked at: it may hang, and while it is looked at nobody can unmount it.
fn told_elsewhere(settings: &Settings, group: &str) -> String {
    let is_meant = |mount: &spindle_fuse::KernelMount| {
        mount.kind == "fuse.spindle" && mount.source.eq_ignore_ascii_case(group)
    };
    let mounts = spindle_fuse::all_mounts().into_iter().filter(is_meant);
    let directories: Vec<String> = mounts
        .map(|mount| mount.directory.display().to_string())
        .collect();
    if directories.is_empty() {
        return String::new();
    }
    format!(
        "; a group of that name is mounted on {}, and no process that serves it is to be found in {}: `spindle umount DIR` takes a dead mount away, and SPINDLE_RUNTIME_DIR names the directory of one that lives",
        directories.join(", "),
        settings.runtime_directory.display()
    )
}
