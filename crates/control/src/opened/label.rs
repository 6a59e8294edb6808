//! Changes to the labels of disks whose group need not be possible to open.

use std::time::Duration;

use spindle_device::{DiskSlot, Request, Work};
use spindle_format::{LABEL_COPIES, LabelStatus, OpenerRecord};
use spindle_group::newest_mark;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::discovery::{Discovery, FoundGroup};
use crate::machine::engine::Engine;
use crate::machine::identity::opener_identity;
use crate::machine::probe::Probe;
use crate::machine::settings::Settings;

/// A heartbeat older than this is no sign of life: daemons renew theirs every two seconds.
const HEARTBEAT_LIFE_S: u64 = 30;

/// For how long a mark that looks dead is watched: two heartbeats and a slow disk.
const WATCHED: Duration = Duration::from_secs(5);

/// Refuses where another host has the group. Its clock need not be right: a mark that looks too old
/// to be of a living process is looked at again after five seconds, and what renews it lives.
///
/// # Errors
/// Where that is so.
pub(crate) fn refuse_if_open_elsewhere(
    settings: &Settings,
    found: &FoundGroup<'_>,
) -> ControlResult<()> {
    let marks = marks_of_others(found);
    let Some(newest) = marks.iter().max_by_key(|mark| age_key(mark)) else {
        return Ok(());
    };
    let now_s = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0);
    if let Some(fresh) =
        (marks.iter()).find(|mark| now_s.saturating_sub(mark.heartbeat_s) < HEARTBEAT_LIFE_S)
    {
        let age_s = now_s.saturating_sub(fresh.heartbeat_s);
        return Err(open_elsewhere(
            found,
            fresh,
            &format!("last sign of life {age_s} s ago"),
        ));
    }
    std::thread::sleep(WATCHED);
    let discovery = Discovery::look(settings)?;
    let later = marks_of_others(&discovery.group(found.name.as_str())?);
    if later == marks {
        return Ok(());
    }
    let renewed = (later.iter().max_by_key(|mark| age_key(mark))).unwrap_or(newest);
    Err(open_elsewhere(
        found,
        renewed,
        "its mark was renewed a moment ago, though by another clock",
    ))
}

const fn age_key(mark: &OpenerRecord) -> (u64, u64) {
    (mark.sequence, mark.heartbeats_count)
}

/// What other hosts wrote on the disks of a group that they have, or are about to take.
fn marks_of_others(found: &FoundGroup<'_>) -> Vec<OpenerRecord> {
    let (_, own_boot) = opener_identity();
    let looks = (found.disks.iter()).filter_map(|probe| probe.structures());
    // One that takes the group may have an intent yet, which is newer than every record.
    (found.disks.iter())
        .filter_map(|probe| probe.opener())
        .chain(newest_mark(looks))
        .filter(|opener| opener.group_uuid == found.uuid && opener.open)
        .filter(|opener| opener.boot != own_boot)
        .cloned()
        .collect()
}

fn open_elsewhere(found: &FoundGroup<'_>, mark: &OpenerRecord, why: &str) -> ControlError {
    ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "the group {} is open on host {} (process {}, {why}): close it there first",
            found.name, mark.host, mark.process_id,
        ),
    )
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
