//! Changes to the labels of disks whose group need not be possible to open.

use spindle_device::{DiskSlot, Request, Work};
use spindle_format::{LABEL_COPIES, LabelStatus};
use spindle_group::newest_mark;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::discovery::FoundGroup;
use crate::machine::engine::Engine;
use crate::machine::identity::opener_identity;
use crate::machine::probe::Probe;

/// A heartbeat older than this is no sign of life: daemons renew theirs every two seconds.
const HEARTBEAT_LIFE_S: u64 = 30;

/// Refuses where another host renewed its mark on the group lately.
///
/// # Errors
/// Where that is so.
pub(crate) fn refuse_if_open_elsewhere(found: &FoundGroup<'_>) -> ControlResult<()> {
    let (_, own_boot) = opener_identity();
    let now_s = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0);
    // One that takes the group may have an intent yet, which is newer than every record.
    let looks = (found.disks.iter()).filter_map(|probe| probe.structures());
    let other = (found.disks.iter())
        .filter_map(|probe| probe.opener())
        .chain(newest_mark(looks))
        .filter(|opener| opener.group_uuid == found.uuid && opener.open)
        .find(|opener| {
            opener.boot != own_boot && now_s.saturating_sub(opener.heartbeat_s) < HEARTBEAT_LIFE_S
        });
    match other {
        None => Ok(()),
        Some(opener) => Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "the group {} is open on host {} (process {}, last sign of life {} s ago): close it there first",
                found.name,
                opener.host,
                opener.process_id,
                now_s.saturating_sub(opener.heartbeat_s)
            ),
        )),
    }
}

/// Marks disks as former members: one copy of each label, flushed, then the next, so that a
/// crash between leaves a label that can be read.
///
/// # Errors
/// Where a disk refuses; the disks before it are former members then.
pub(crate) fn make_former(engine: &Engine, slots: &[(DiskSlot, &Probe)]) -> ControlResult<()> {
    for copy in 0..LABEL_COPIES {
        for (slot, probe) in slots {
            let (Some(label), Some(place)) = (probe.label(), probe.label_place(copy)) else {
                continue;
            };
            let mut former = label.clone();
            former.sequence += 1;
            former.status = LabelStatus::Former;
            let bytes = former.encode(place);
            run_one(engine, Request::new(*slot, place, Work::Write(&bytes)))?;
            run_one(engine, Request::new(*slot, 0, Work::Flush))?;
        }
    }
    Ok(())
}

fn run_one(engine: &Engine, request: Request<'_>) -> ControlResult<()> {
    let mut batch = [request];
    engine.disks().run(&mut batch);
    let [request] = batch;
    request.result.map_err(ControlError::from)
}
