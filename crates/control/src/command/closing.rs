//! Whether a group is closed whose processes have ended: by the word that they left, and where they
//! left none by what its disks say.

use std::sync::mpsc;
use std::time::Duration;

use spindle_format::OpenerRecord;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::discovery::{Discovery, FoundGroup};
use crate::machine::held::Holder;
use crate::machine::identity::opener_identity;
use crate::machine::process;
use crate::machine::settings::Settings;
use crate::serving::last_word;

/// How long the disks may take to say it: one may hang, and the command must not hang with it.
const LOOK_MOST: Duration = Duration::from_secs(10);

/// Refuses unless the group is known to be closed, now that these processes have ended, which were
/// to close it.
///
/// # Errors
/// Where it is not closed: why, and what is lost. Where nobody can say: what to do.
pub(super) fn refuse_unless_closed(
    settings: &Settings,
    group: &str,
    process_ids: &[u32],
) -> ControlResult<()> {
    let not_closed = |why: String| {
        let message = format!("{group} is not closed: {why}");
        Err(ControlError::new(ControlErrorKind::Io, message))
    };
    match last_word::of(settings, group, process_ids) {
        Some(Ok(())) => Ok(()),
        Some(Err(why)) => not_closed(why),
        None => match look(settings, group) {
            Ok(owner) if !owner.open => Ok(()),
            Ok(owner) if has_ended(&owner) => not_closed(format!(
                "process {} ended before it had closed it, and left no word; `spindle mount` opens it again with what was synced, and what was not may be lost",
                owner.process_id
            )),
            Ok(owner) => Err(not_known(
                group,
                &format!(
                    "process {} of {} has it open by now",
                    owner.process_id, owner.host
                ),
            )),
            Err(error) => Err(not_known(group, &error.message())),
        },
    }
}

/// Refuses a group that nobody serves who could be asked, and that is not closed all the same: a
/// keeper holds it, a process with another runtime directory or on another host has it, or the last
/// one that had it was killed. Else the group's name, as it is written on its disks.
///
/// # Errors
/// Where that is so, and where there is no such group.
pub(super) fn refuse_open(settings: &Settings, group: &str) -> ControlResult<String> {
    let discovery = Discovery::look(settings)?;
    let found = discovery.group(group)?;
    let busy = |message| Err(ControlError::new(ControlErrorKind::Busy, message));
    let disk = found.disks.first().map(|probe| probe.path.as_path());
    let holder = disk.map_or(Ok(None), |disk| Holder::find(found.uuid, disk))?;
    match (holder, newest_owner(&found)) {
        (Some(holder), _) if holder.stands_alone() => {
            busy(holder.told()).map_err(ControlError::of_environment)
        }
        (_, Ok(owner)) if owner.open && has_ended(&owner) => Err(ControlError::new(
            ControlErrorKind::Io,
            format!(
                "{group} is not open and was not closed: process {} ended before, and what was written and not synced by then may be lost; `spindle mount` opens it again",
                owner.process_id
            ),
        )),
        (_, Ok(owner)) if owner.open => busy(format!(
            "{group} is open by process {} of {}, which is not to be found in {}: ask it there, or set SPINDLE_RUNTIME_DIR to its runtime directory",
            owner.process_id,
            owner.host,
            settings.runtime_directory.display()
        )),
        (_, Ok(_)) => Ok(found.name.clone()),
        (_, Err(error)) => Err(error),
    }
}

/// The newest record of who has or had the group open, among the disks that can be read.
fn look(settings: &Settings, group: &str) -> ControlResult<OpenerRecord> {
    let (sender, receiver) = mpsc::channel();
    let (looked, wanted) = (settings.clone(), group.to_owned());
    std::thread::spawn(move || {
        // Whoever asked may have waited for long enough.
        let found = |discovery: Discovery| newest_owner(&discovery.group(&wanted)?);
        let _ = sender.send(Discovery::look(&looked).and_then(found));
    });
    receiver.recv_timeout(LOOK_MOST).unwrap_or_else(|_| {
        Err(ControlError::new(
            ControlErrorKind::Io,
            format!("its disks did not answer within {} s", LOOK_MOST.as_secs()),
        ))
    })
}

fn newest_owner(found: &FoundGroup<'_>) -> ControlResult<OpenerRecord> {
    let owners = found.disks.iter().filter_map(|probe| probe.opener());
    let newest =
        (owners.filter(|owner| owner.group_uuid == found.uuid)).max_by_key(|owner| owner.sequence);
    newest.cloned().ok_or_else(|| {
        ControlError::new(
            ControlErrorKind::Corrupt,
            "none of its disks says who had it open".to_owned(),
        )
    })
}

/// Whether the process of this record was one of this machine, and is gone.
fn has_ended(owner: &OpenerRecord) -> bool {
    let (_, own_boot) = opener_identity();
    owner.boot == own_boot && process::is_ending(owner.process_id).unwrap_or(true)
}

fn not_known(group: &str, why: &str) -> ControlError {
    ControlError::new(
        ControlErrorKind::Io,
        format!(
            "it is not known whether {group} was closed: the process that was to close it left no word, and {why}; see its log: what was written and not synced may be lost"
        ),
    )
}
