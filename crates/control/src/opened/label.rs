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

/// For how long a mark that looks dead is watched: a daemon with a disk that hangs renews its own when
/// that disk is given up.
const WATCHED: Duration = Duration::from_secs(HEARTBEAT_LIFE_S);

/// Refuses where another host has the group. Its clock need not be right: a mark that looks too old
/// to be of a living process is looked at again when a heartbeat has to have come, and what renews it
/// lives. `tell` hears of that wait.
///
/// # Errors
/// Where that is so.
pub(crate) fn refuse_if_open_elsewhere(
    settings: &Settings,
    found: &FoundGroup<'_>,
    tell: &dyn Fn(&str),
) -> ControlResult<()> {
    let marks = marks_of_others(found);
    let Some(newest) = marks.iter().max_by_key(|mark| age_key(mark)) else {
        return Ok(());
    };
    let now_s = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0);
    // One that lies ahead says nothing of its age.
    let age_of = |mark: &OpenerRecord| now_s.checked_sub(mark.heartbeat_s);
    let fresh = marks.iter().find_map(|mark| {
        let age_s = age_of(mark).filter(|age_s| *age_s < HEARTBEAT_LIFE_S)?;
        Some((mark, age_s))
    });
    if let Some((fresh, age_s)) = fresh {
        return Err(open_elsewhere(
            found,
            fresh,
            &format!("last sign of life {age_s} s ago"),
        ));
    }
    tell(&format!(
        "host {} had the group last: watching for {HEARTBEAT_LIFE_S} s whether it still has",
        newest.host
    ));
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
