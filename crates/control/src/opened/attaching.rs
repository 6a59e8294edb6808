//! Opening the disks of a group: to own them, also where a killed process still has some, or to look.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spindle_device::DiskSlot;
use spindle_format::DiskStatus;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::discovery::FoundGroup;
use crate::machine::engine::Engine;
use crate::machine::held;
use crate::machine::identity::opener_identity;
use crate::machine::probe::Probe;
use crate::machine::process;

/// How long the disks of a killed process are waited for, and how often they are tried.
const ENDING_MOST: Duration = Duration::from_secs(5);

const ENDING_INTERVAL: Duration = Duration::from_millis(20);

/// What a killed process holds of a group whose disk hangs: that disk, as long as the kernel has
/// requests of it.
#[derive(Debug, Default)]
pub(crate) struct Former(AtomicBool);

impl Former {
    /// Whether the group could not be opened without what it holds.
    pub(crate) fn is_needed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn note_needed(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The disks of a group that are open.
type Attached = Vec<(DiskSlot, PathBuf)>;

/// Opens the disks of a group only to look at them.
pub(super) fn attach_to_look(
    engine: &Engine,
    paths: &[&Path],
    found: &FoundGroup<'_>,
) -> ControlResult<Attached> {
    let mut attached = Attached::new();
    for path in paths {
        let slot = engine.attach_to_look(path);
        let slot = slot.map_err(|error| explain(&found.name, error, &found.disks))?;
        attached.push((slot, path.to_path_buf()));
    }
    Ok(attached)
}

/// Opens the disks of a group to write them, where nobody else has them, and no daemon had them a
/// moment ago whose keeper holds what waits for them.
///
/// A disk that stays in use until `io_deadline` is over is left out where a former process lingers that
/// was killed and may have it: whether the group can do without it, its opening finds out.
pub(super) fn attach_to_own(
    engine: &Engine,
    paths: &[&Path],
    found: &FoundGroup<'_>,
    former_lingers: bool,
    io_deadline: Duration,
) -> ControlResult<Attached> {
    let patience = match former_lingers {
        true => io_deadline,
        false => ENDING_MOST,
    };
    let until = Instant::now() + patience;
    let mut attached = Attached::new();
    for path in paths {
        let is_offline = is_offline(path, &found.disks);
        // The number of a killed process may be another one's by now.
        let has_ended = || former_lingers || owner_has_ended(&found.disks);
        let may_wait = || !is_offline && Instant::now() < until && has_ended();
        match own(engine, path, may_wait) {
            Ok(slot) => attached.push((slot, path.to_path_buf())),
            // It is away for the group already; it comes back when it is let go of.
            Err(error) if error.kind == ControlErrorKind::Busy && is_offline => {
                tracing::warn!(
                    error = error.message(),
                    "a disk that is offline is left out"
                );
            }
            Err(error) => {
                if !(former_lingers && error.kind == ControlErrorKind::Busy) {
                    return Err(explain(&found.name, error, &found.disks));
                }
                tracing::error!(
                    error = error.message(),
                    "a disk that hangs with requests of the process before is left out until they end"
                );
            }
        }
    }
    if let Some(path) = paths.first() {
        held::refuse_free(found.uuid, path)?;
    }
    Ok(attached)
}

/// Opens a disk exclusively. A killed process holds its disks until the kernel has finished its
/// last transfers: that is waited for.
fn own(engine: &Engine, path: &Path, may_wait: impl Fn() -> bool) -> ControlResult<DiskSlot> {
    loop {
        match engine.attach_to_own(path) {
            Err(error) if error.kind == ControlErrorKind::Busy && may_wait() => {
                std::thread::sleep(ENDING_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Whether the newest state that the group's other disks hold has this one offline.
fn is_offline(path: &Path, disks: &[&Probe]) -> bool {
    let number = (disks.iter())
        .find(|probe| probe.path == path)
        .and_then(|probe| Some(probe.label()?.number));
    let newest = (disks.iter())
        .filter(|probe| probe.path != path)
        .filter_map(|probe| probe.state())
        .max_by_key(|state| state.epoch);
    let standing = number.and_then(|number| newest?.disk(number));
    standing.is_some_and(|disk| disk.status == DiskStatus::Offline)
}

/// Whether the process that has the group open, by its record, has ended or is about to.
fn owner_has_ended(disks: &[&Probe]) -> bool {
    let (_, own_boot) = opener_identity();
    let newest = disks
        .iter()
        .filter_map(|probe| probe.opener())
        .max_by_key(|opener| opener.sequence);
    let Some(owner) = newest.filter(|owner| owner.open && owner.boot == own_boot) else {
        return false;
    };
    process::is_ending(owner.process_id).unwrap_or(true)
}

/// A disk that is in use means that the group is open: that is the better word.
fn explain(group: &str, error: ControlError, disks: &[&Probe]) -> ControlError {
    if error.kind != ControlErrorKind::Busy {
        return error;
    }
    let by = disks
        .iter()
        .find_map(|probe| probe.opener())
        .filter(|opener| opener.open)
        .map(|opener| format!(", by process {} of {}", opener.process_id, opener.host))
        .unwrap_or_default();
    ControlError::new(
        ControlErrorKind::Busy,
        format!("the group {group} seems to be open already{by}"),
    )
    .because(error)
}
