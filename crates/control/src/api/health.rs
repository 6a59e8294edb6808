//! Whether a group is well, and if not, what to do: for monitoring and for people.
//!
//! A pure judgement of the group's listing and of its newest events, so that it is the same for
//! a group that is served and one that is only looked at, in `spindle health`, in the listings
//! and in the metrics. Nothing here writes, and a process that does not answer is a finding.

#[cfg(test)]
mod tests;

use spindle_base::{Redundancy, size_text};

use crate::api::clearing::{WorkState, not_cleared};
use crate::api::view::{
    DiskReport, EventReport, GroupReport, GroupState, HealthFindingReport, HealthReport,
    HealthStatus,
};

/// Kinds of damage that a scrub of the whole group would find again.
const SCRUBBED: [&str; 3] = ["copies_differ", "damage_found", "blocks_unreadable"];
/// A scrub that looked at everything and left nothing wrong.
const ALL_MENDED: &str = "all_copies_right";
/// One place is right again.
const PLACE_MENDED: [&str; 3] = ["block_repaired", "block_moved", "label_repaired"];
/// How far back a write counts that no copy took: its program was told, and no scrub can mend it. What
/// a scrub found counts until it is mended or acknowledged.
const DAMAGE_MS: u64 = 24 * 3600 * 1000;
/// Usable space below this share of all space, in percent, is little.
const LITTLE_PERCENT: i128 = 10;
/// Kinds of events that tell of damage.
const DAMAGE: [&str; 5] = [
    "copies_differ",
    "damage_found",
    "blocks_unreadable",
    "write_failed",
    "flush_failed",
];

/// Events that begin a condition with those that end it, for one disk or for the group.
const CONDITIONS: [(&str, &[&str], &str); 7] = [
    (
        "disk_hangs",
        &["disk_answers", "disk_offline", "group_opened"],
        "look at its path: what needs it waits, since nobody else has what it holds",
    ),
    (
        "keeper_lost",
        &["group_opened"],
        "unmount the group and mount it again when its programs can do without it",
    ),
    (
        "disk_slow",
        &["disk_fast", "disk_offline", "disk_dropped", "group_opened"],
        "watch it in `spindle iostat`, and replace it where that does not end",
    ),
    (
        "label_late",
        &[
            "label_written",
            "disk_offline",
            "disk_dropped",
            "group_opened",
        ],
        "look at the disk: blocks of it take no writes; replace it where that does not end",
    ),
    (
        "rebalance_stopped",
        &["rebalance_ended", "rebalance_started"],
        "remove what it names, then `spindle rebalance` goes on",
    ),
    (
        "restore_stopped",
        &[
            "restore_ended",
            "restore_started",
            "disk_added",
            "disk_online",
        ],
        "it goes on by itself when there is room; until then these extents have a copy less",
    ),
    (
        "background_failed",
        &["group_opened"],
        "look at the disk it names and at the log of the process",
    ),
];

pub(crate) fn silent_finding(text: String) -> HealthFindingReport {
    finding(
        HealthStatus::Critical,
        "no_answer",
        text,
        "look at the log of the process and at the disks below",
    )
}

/// Whether the event tells of damage.
#[must_use]
pub(crate) fn is_damage(event: &EventReport) -> bool {
    DAMAGE.contains(&event.kind.as_str())
}

/// What is to be said of a group that no process serves, as of `now_ms` since 1970.
#[must_use]
pub(crate) fn judge(group: &GroupReport, events: &[EventReport], now_ms: u64) -> HealthReport {
    judge_served(group, events, now_ms, &WorkState::of_none())
}

/// Likewise of one whose process says what it does; what was acknowledged is not told.
#[must_use]
pub(crate) fn judge_served(
    group: &GroupReport,
    events: &[EventReport],
    now_ms: u64,
    work: &WorkState,
) -> HealthReport {
    let mut findings = Vec::new();
    of_state(group, &mut findings);
    if !group.state.is_dark() {
        of_disks(group, &mut findings);
        of_paths(group, &mut findings);
        findings.extend(of_resync(group));
        findings.extend(space_finding(group));
        of_catalog(group, &mut findings);
        of_events(group, &not_cleared(events), now_ms, &mut findings);
    }
    for finding in &mut findings {
        let is_of_disk = finding.disk_name.is_some();
        finding.can_be_cleared = work.lets_clear(&finding.kind, is_of_disk);
        if finding.can_be_cleared {
            let how = format!("`spindle clear {} {}`", group.name, finding.name());
            finding.advice = format!("{}; {how} acknowledges it", finding.advice);
        }
    }
    report(&group.name, findings)
}

pub(crate) fn report(group: &str, mut findings: Vec<HealthFindingReport>) -> HealthReport {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    HealthReport {
        group: group.to_owned(),
        status: findings
            .first()
            .map_or(HealthStatus::Ok, |finding| finding.severity),
        findings,
    }
}

fn finding(severity: HealthStatus, kind: &str, text: String, advice: &str) -> HealthFindingReport {
    HealthFindingReport {
        severity,
        kind: kind.to_owned(),
        disk_name: None,
        text,
        advice: advice.to_owned(),
        can_be_cleared: false,
    }
}

fn of_state(group: &GroupReport, findings: &mut Vec<HealthFindingReport>) {
    match group.state {
        GroupState::Broken => findings.push(finding(
            HealthStatus::Critical,
            "group_broken",
            format!(
                "the group cannot be opened: {}",
                group.note.as_deref().unwrap_or("see `spindle group show`")
            ),
            "bring its disks back; `spindle disk scan` shows what is there",
        )),
        GroupState::Dismounted => findings.push(finding(
            HealthStatus::Warning,
            "group_closed",
            "the group is not open: no program can use it".to_owned(),
            "open it with `spindle mount` or `spindle group mount`",
        )),
        GroupState::Silent => findings.push(silent_finding(group.note.clone().unwrap_or_default())),
        GroupState::Held => findings.push(finding(
            HealthStatus::Critical,
            "group_held",
            format!(
                "no process serves the group: {}",
                group.note.as_deref().unwrap_or_default()
            ),
            "look at its log for what its processes died of; until the next one serves, programs on the mount wait",
        )),
        GroupState::Mounted => {}
    }
    findings.extend(stopped_finding(group));
}

/// What is to be said of a group that had to stop.
#[must_use]
pub fn stopped_finding(group: &GroupReport) -> Option<HealthFindingReport> {
    let why = group.fenced.as_ref()?;
    Some(finding(
        HealthStatus::Critical,
        "group_fenced",
        format!("the group had to stop and takes no writes: {why}"),
        if group.keeper_process_id.is_some() {
            "bring the disks back, then `spindle upgrade GROUP` hands it to a next process, which writes what waits; dismounted, it loses that"
        } else {
            "bring the disks back, then dismount it and mount it again"
        },
    ))
}

fn of_disks(group: &GroupReport, findings: &mut Vec<HealthFindingReport>) {
    let is_away = |disk: &&DiskReport| disk.mode != "online";
    let mut hurt: Vec<&str> = (group.disks.iter().filter(is_away))
        .map(|disk| disk.failure_group.as_str())
        .collect();
    hurt.sort_unstable();
    hurt.dedup();
    let bearable = match group.redundancy {
        Redundancy::External => 0,
        Redundancy::Normal => 1,
        Redundancy::High => 2,
    };
    // Where one more failure can still be borne, it can wait until tomorrow.
    let severity = if hurt.len() < bearable {
        HealthStatus::Warning
    } else {
        HealthStatus::Critical
    };
    for disk in group.disks.iter().filter(is_away) {
        let lost = match bearable.saturating_sub(hurt.len()) {
            0 => "what it holds has no copy to spare",
            _ => "what it holds has a copy less",
        };
        let standing = if disk.state == "absent" {
            "given up and not restored yet".to_owned()
        } else {
            "offline".to_owned()
        };
        let left = disk.repair_time_left_s.map_or_else(String::new, |left_s| {
            format!(
                "; it is given up in {} h {} min",
                left_s / 3600,
                left_s / 60 % 60
            )
        });
        let mut found = finding(
            severity,
            "disk_offline",
            format!(
                "disk {} of failure group {} is {standing}: {lost}{left}",
                disk.name, disk.failure_group
            ),
            &format!(
                "bring it back with `spindle disk online {0} {1}`, or replace it with `spindle disk replace {0} {1} --with PATH`",
                group.name, disk.name
            ),
        );
        found.disk_name = Some(disk.name.clone());
        findings.push(found);
    }
}

/// A disk that is served by its descriptor alone: the next opening will not find it.
fn of_paths(group: &GroupReport, findings: &mut Vec<HealthFindingReport>) {
    for disk in &group.disks {
        let Some(what) = &disk.path_lost else {
            continue;
        };
        let mut found = finding(
            HealthStatus::Critical,
            "disk_path_lost",
            format!(
                "disk {} is used, but {} {what}: it is lost when the group is closed",
                disk.name,
                disk.path.as_deref().unwrap_or("its path")
            ),
            &format!(
                "bring its path back, or drop the disk while it can still be read: `spindle disk drop {} {}`",
                group.name, disk.name
            ),
        );
        found.disk_name = Some(disk.name.clone());
        findings.push(found);
    }
}

fn of_resync(group: &GroupReport) -> Option<HealthFindingReport> {
    (group.resync_left_bytes > 0).then(|| {
        finding(
            HealthStatus::Warning,
            "resync",
            format!(
                "disks that came back still miss {}, and are read around there",
                size_text(group.resync_left_bytes)
            ),
            "wait; `spindle operations` shows how far it is",
        )
    })
}

/// What listings warn of: space that does not suffice to restore redundancy, or soon will not.
#[must_use]
pub fn space_finding(group: &GroupReport) -> Option<HealthFindingReport> {
    let usable = i128::from(group.usable_bytes);
    if group.state.is_dark() || group.total_bytes == 0 {
        return None;
    }
    let advice = "add disks with `spindle disk add`, or remove files";
    if usable < 0 {
        return Some(finding(
            HealthStatus::Critical,
            "usable_negative",
            format!(
                "usable space is below zero: {} more would be needed to restore redundancy after a failure",
                size_text(group.usable_bytes.unsigned_abs())
            ),
            advice,
        ));
    }
    let copies = group.redundancy.copies() as i128;
    if usable * copies * 100 < i128::from(group.total_bytes) * LITTLE_PERCENT {
        return Some(finding(
            HealthStatus::Warning,
            "space_low",
            format!(
                "{} are usable, less than {LITTLE_PERCENT} % of the group; below zero redundancy could not be restored after a failure",
                size_text(group.usable_bytes.unsigned_abs())
            ),
            advice,
        ));
    }
    None
}

fn of_catalog(group: &GroupReport, findings: &mut Vec<HealthFindingReport>) {
    let replicas_count = (group.disks.iter())
        .filter(|disk| disk.catalog_replica && disk.mode == "online")
        .count();
    if replicas_count < group.catalog_replicas_wanted as usize {
        let severity = if replicas_count < 2 {
            HealthStatus::Critical
        } else {
            HealthStatus::Warning
        };
        findings.push(finding(
            severity,
            "catalog_replica_lost",
            format!(
                "the catalog is on {replicas_count} disks of {} that it should be on",
                group.catalog_replicas_wanted
            ),
            "it is copied by itself where a disk has room; else add a disk",
        ));
    }
    let voters_count = group.disks.iter().filter(|disk| disk.voter).count();
    if group.redundancy != Redundancy::External && voters_count == 1 && group.disks.len() > 1 {
        findings.push(finding(
            HealthStatus::Critical,
            "one_voter",
            "only one disk votes: the group stops when it is lost".to_owned(),
            "bring the other disks back, or add disks in another failure group",
        ));
    }
}

/// The place that a scrub's event tells of: its file, its disk, and where in it, which stands before
/// what is wrong there. A colon in the file's name cuts off what follows the offset only.
fn place_of(event: &EventReport) -> (Option<u64>, Option<u16>, &str) {
    let place = event.text.split(": ").next().unwrap_or_default();
    (event.file, event.disk, place)
}

/// Whether a scrub told it, which names a file or a disk: what a resync, a read or an opening could not
/// get it tells of both, or of none, and that may have ended without a word.
fn is_of_scrub(event: &EventReport) -> bool {
    SCRUBBED.contains(&event.kind.as_str()) && event.file.is_some() != event.disk.is_some()
}

/// The events of damage that nothing has mended since, one for each place that a scrub can find
/// again, the newest last.
fn damage_left<'a>(events: &[&'a EventReport], now_ms: u64) -> Vec<&'a EventReport> {
    let mut left: Vec<&EventReport> = Vec::new();
    for event in events.iter().copied() {
        let kind = event.kind.as_str();
        let is_scrubbed = |event: &EventReport| SCRUBBED.contains(&event.kind.as_str());
        if kind == ALL_MENDED {
            left.retain(|old| !is_scrubbed(old));
        } else if PLACE_MENDED.contains(&kind) || is_scrubbed(event) {
            left.retain(|old| !is_scrubbed(old) || place_of(old) != place_of(event));
        }
        let is_recent = event.time_ms + DAMAGE_MS >= now_ms;
        if is_of_scrub(event) || is_damage(event) && is_recent {
            left.push(event);
        }
    }
    left
}

/// How many places scrubs found wrong that nothing has mended and nobody acknowledged since, as far as
/// the log names them.
#[must_use]
pub(crate) fn scrub_findings_open(events: &[EventReport]) -> u64 {
    let left = damage_left(&not_cleared(events), u64::MAX);
    left.iter().filter(|event| is_of_scrub(event)).count() as u64
}

fn damage_finding(events: &[&EventReport], now_ms: u64) -> Option<HealthFindingReport> {
    let damage = damage_left(events, now_ms);
    let last = damage.last()?;
    let places = match damage.len() {
        1 => "1 place".to_owned(),
        count => format!("{count} places"),
    };
    // A scrub told them as warnings: another copy is right.
    let is_repairable = |event: &&EventReport| event.severity != "critical";
    let repairable_count = damage
        .iter()
        .copied()
        .filter(|event| is_repairable(event))
        .count();
    let advice = if repairable_count == damage.len() {
        "`spindle scrub GROUP --repair` mends it; see `spindle events --severity warning`"
    } else if repairable_count > 0 {
        "see `spindle events --severity warning`; `spindle scrub GROUP --repair` mends what it says it does, and the other files that it names are to be restored from a backup"
    } else {
        "see `spindle events --severity critical`, and restore the files it names from a backup"
    };
    let text = format!(
        "damage in {places} that nothing repaired; the last: {}",
        last.text
    );
    Some(finding(HealthStatus::Critical, "damage", text, advice))
}

fn of_events(
    group: &GroupReport,
    events: &[&EventReport],
    now_ms: u64,
    findings: &mut Vec<HealthFindingReport>,
) {
    findings.extend(damage_finding(events, now_ms));
    for (begins, ends, advice) in CONDITIONS {
        if begins == "background_failed" && group.fenced.is_some() {
            // It fails because the group stopped, and that is told.
            continue;
        }
        let mut begun: Vec<&EventReport> = Vec::new();
        for event in events.iter().copied() {
            if event.kind == begins {
                begun.retain(|old| old.disk != event.disk);
                begun.push(event);
            } else if ends.contains(&event.kind.as_str()) {
                begun.retain(|old| event.disk.is_some() && old.disk != event.disk);
            }
        }
        for event in begun {
            let severity = if event.severity == "critical" {
                HealthStatus::Critical
            } else {
                HealthStatus::Warning
            };
            let mut found = finding(severity, begins, event.text.clone(), advice);
            found.disk_name.clone_from(&event.disk_name);
            findings.push(found);
        }
    }
}
