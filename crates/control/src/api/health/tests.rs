//! Groups in all sorts of trouble, and what is said of them.

use spindle_base::Redundancy;

use super::{judge, scrub_findings_open};
use crate::api::view::{
    DiskReport, EventReport, GroupReport, GroupState, HealthReport, HealthStatus,
};

const NOW_MS: u64 = 1_000_000_000_000;

fn disk(number: u16, failure_group: &str) -> DiskReport {
    DiskReport {
        number,
        name: format!("D{number}"),
        failure_group: failure_group.to_owned(),
        path: Some(format!("/dev/d{number}")),
        path_lost: None,
        total_bytes: 1 << 30,
        free_bytes: 1 << 29,
        mode: "online".to_owned(),
        state: "normal".to_owned(),
        slow: false,
        repair_time_left_s: None,
        voter: number < 3,
        catalog_replica: number < 3,
        reads_count: 0,
        writes_count: 0,
        read_bytes: 0,
        written_bytes: 0,
        read_errors_count: 0,
        write_errors_count: 0,
    }
}

fn group(redundancy: Redundancy) -> GroupReport {
    let disks: Vec<DiskReport> = (0..4).map(|n| disk(n, &format!("F{n}"))).collect();
    GroupReport {
        name: "data".to_owned(),
        uuid: String::new(),
        state: GroupState::Mounted,
        redundancy,
        profile: "plain".to_owned(),
        sector_size_bytes: 4096,
        block_size_bytes: 4096,
        au_size_bytes: 1 << 20,
        total_bytes: 4 << 30,
        free_bytes: 2 << 30,
        required_mirror_free_bytes: 1 << 30,
        usable_bytes: 1 << 29,
        offline_disks_count: 0,
        epoch: 1,
        extents_count: 1,
        resync_left_bytes: 0,
        catalog_replicas_wanted: 3,
        fenced: None,
        process_id: Some(1),
        keeper_process_id: None,
        mounts: Vec::new(),
        note: None,
        disks,
    }
}

fn event(kind: &str, severity: &str, disk: Option<u16>, ago_ms: u64) -> EventReport {
    EventReport {
        number: 1,
        time_s: 0,
        time_ms: NOW_MS - ago_ms,
        host: "here".to_owned(),
        group: "data".to_owned(),
        severity: severity.to_owned(),
        kind: kind.to_owned(),
        disk,
        disk_name: disk.map(|disk| format!("D{disk}")),
        file: None,
        path: None,
        text: format!("it was {kind}"),
    }
}

/// As a scrub tells of a place of a file.
fn scrubbed(kind: &str, severity: &str, ago_ms: u64) -> EventReport {
    EventReport {
        file: Some(7),
        ..event(kind, severity, None, ago_ms)
    }
}

#[track_caller]
fn expect(report: &HealthReport, status: HealthStatus, kinds: &[&str]) {
    let found: Vec<&str> = (report.findings.iter())
        .map(|finding| finding.kind.as_str())
        .collect();
    assert_eq!(
        (report.status, found.as_slice()),
        (status, kinds),
        "{report:?}"
    );
    for finding in &report.findings {
        assert!(!finding.advice.is_empty(), "{finding:?}");
    }
}

#[test]
fn a_group_that_is_well_is_ok() {
    let report = judge(&group(Redundancy::Normal), &[], NOW_MS);
    expect(&report, HealthStatus::Ok, &[]);
}

#[test]
fn a_lost_disk_is_critical_where_no_copy_is_left_to_spare_and_a_warning_where_one_is() {
    for (redundancy, away, status) in [
        (Redundancy::Normal, 1, HealthStatus::Critical),
        (Redundancy::High, 1, HealthStatus::Warning),
        (Redundancy::High, 2, HealthStatus::Critical),
    ] {
        let mut group = group(redundancy);
        group.catalog_replicas_wanted = 2;
        for disk in group.disks.iter_mut().rev().take(away) {
            disk.mode = "offline".to_owned();
        }
        let kinds = vec!["disk_offline"; away];
        expect(&judge(&group, &[], NOW_MS), status, &kinds);
    }
}

#[test]
fn a_disk_that_is_away_has_so_long_and_one_that_came_back_is_told_until_it_has_all() {
    let mut group = group(Redundancy::Normal);
    group.resync_left_bytes = 4096;
    let report = judge(&group, &[], NOW_MS);
    expect(&report, HealthStatus::Warning, &["resync"]);
    group.disks[3].mode = "offline".to_owned();
    group.disks[3].repair_time_left_s = Some(3 * 3600 + 61);
    let report = judge(&group, &[], NOW_MS);
    expect(&report, HealthStatus::Critical, &["disk_offline", "resync"]);
    let text = &report.findings[0].text;
    assert!(text.contains("given up in 3 h 1 min"), "{text}");
}

#[test]
fn space_is_warned_of_before_it_goes_below_zero_and_critical_below() {
    let mut group = group(Redundancy::Normal);
    group.usable_bytes = 100 << 20;
    expect(
        &judge(&group, &[], NOW_MS),
        HealthStatus::Warning,
        &["space_low"],
    );
    group.usable_bytes = -1;
    expect(
        &judge(&group, &[], NOW_MS),
        HealthStatus::Critical,
        &["usable_negative"],
    );
}

#[test]
fn a_catalog_on_too_few_disks_and_a_lonely_voter_are_told() {
    let mut group = group(Redundancy::Normal);
    group.disks[2].catalog_replica = false;
    expect(
        &judge(&group, &[], NOW_MS),
        HealthStatus::Warning,
        &["catalog_replica_lost"],
    );
    group.disks[1].catalog_replica = false;
    group.disks[1].voter = false;
    group.disks[2].voter = false;
    expect(
        &judge(&group, &[], NOW_MS),
        HealthStatus::Critical,
        &["catalog_replica_lost", "one_voter"],
    );
}

#[test]
fn a_write_that_failed_counts_for_a_day_and_what_a_scrub_found_until_it_is_mended() {
    let group = group(Redundancy::Normal);
    let damage = |ago_ms| [event("write_failed", "critical", None, ago_ms)];
    let report = judge(&group, &damage(3_600_000), NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    let report = judge(&group, &damage(25 * 3_600_000), NOW_MS);
    expect(&report, HealthStatus::Ok, &[]);
    let found = [scrubbed("copies_differ", "critical", 25 * 3_600_000)];
    let report = judge(&group, &found, NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    // A resync tells of both, and may have got it a minute later.
    for disk in [None, Some(1)] {
        let told = |ago_ms| EventReport {
            file: disk.map(|_| 7),
            ..event("blocks_unreadable", "critical", disk, ago_ms)
        };
        let report = judge(&group, &[told(3_600_000)], NOW_MS);
        expect(&report, HealthStatus::Critical, &["damage"]);
        let report = judge(&group, &[told(25 * 3_600_000)], NOW_MS);
        expect(&report, HealthStatus::Ok, &[]);
        assert_eq!(scrub_findings_open(&[told(900)]), 0);
    }
}

#[test]
fn damage_is_over_when_a_scrub_of_everything_left_nothing_wrong() {
    let group = group(Redundancy::Normal);
    let found = event("copies_differ", "critical", None, 900);
    let failed = event("write_failed", "critical", None, 800);
    let mended = event("all_copies_right", "info", None, 700);
    let report = judge(&group, &[found.clone(), mended.clone()], NOW_MS);
    expect(&report, HealthStatus::Ok, &[]);
    let report = judge(&group, &[mended.clone(), found], NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    // What a program was told it could not write no scrub can bring back.
    let report = judge(&group, &[failed, mended], NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
}

#[test]
fn a_lost_keeper_and_a_disk_whose_path_is_lost_are_told() {
    let mut group = group(Redundancy::Normal);
    let lost = event("keeper_lost", "warning", None, 900);
    let opened = event("group_opened", "info", None, 800);
    let report = judge(&group, std::slice::from_ref(&lost), NOW_MS);
    expect(&report, HealthStatus::Warning, &["keeper_lost"]);
    expect(
        &judge(&group, &[lost, opened], NOW_MS),
        HealthStatus::Ok,
        &[],
    );
    group.disks[1].path_lost = Some("was removed".to_owned());
    let report = judge(&group, &[], NOW_MS);
    expect(&report, HealthStatus::Critical, &["disk_path_lost"]);
    assert!(report.findings[0].text.contains("/dev/d1 was removed"));
}

#[test]
fn a_condition_lasts_from_the_event_that_begins_it_to_the_one_that_ends_it() {
    let group = group(Redundancy::Normal);
    let slow = event("disk_slow", "warning", Some(1), 900);
    let other = event("disk_slow", "warning", Some(2), 800);
    let fast = event("disk_fast", "info", Some(1), 700);
    let again = event("group_opened", "info", None, 600);
    let report = judge(&group, &[slow.clone(), other.clone()], NOW_MS);
    expect(&report, HealthStatus::Warning, &["disk_slow", "disk_slow"]);
    let report = judge(&group, &[slow.clone(), other.clone(), fast], NOW_MS);
    expect(&report, HealthStatus::Warning, &["disk_slow"]);
    assert_eq!(report.findings[0].disk_name.as_deref(), Some("D2"));
    expect(
        &judge(&group, &[slow, other, again], NOW_MS),
        HealthStatus::Ok,
        &[],
    );
}

#[test]
fn a_label_that_cannot_be_written_is_a_finding_until_all_of_it_is() {
    let group = group(Redundancy::Normal);
    let late = event("label_late", "warning", Some(1), 900);
    let written = event("label_written", "info", Some(1), 800);
    // One copy was written and another is left, which is told again.
    let left = event("label_late", "warning", Some(1), 799);
    let report = judge(&group, &[late, written.clone(), left.clone()], NOW_MS);
    expect(&report, HealthStatus::Warning, &["label_late"]);
    expect(
        &judge(&group, &[left, written], NOW_MS),
        HealthStatus::Ok,
        &[],
    );
}

#[test]
fn a_group_that_stopped_is_broken_or_closed_is_told_first() {
    let mut stopped = group(Redundancy::Normal);
    stopped.fenced = Some("no voters".to_owned());
    expect(
        &judge(&stopped, &[], NOW_MS),
        HealthStatus::Critical,
        &["group_fenced"],
    );
    let mut broken = group(Redundancy::Normal);
    broken.state = GroupState::Broken;
    broken.usable_bytes = -1;
    expect(
        &judge(&broken, &[], NOW_MS),
        HealthStatus::Critical,
        &["group_broken"],
    );
    let mut closed = group(Redundancy::Normal);
    closed.state = GroupState::Dismounted;
    expect(
        &judge(&closed, &[], NOW_MS),
        HealthStatus::Warning,
        &["group_closed"],
    );
}

#[test]
fn damage_that_was_mended_is_over_and_a_place_counts_once_however_often_it_is_met() {
    let group = group(Redundancy::Normal);
    let of = |kind: &str, text: &str, ago_ms| {
        let mut event = event(kind, "warning", None, ago_ms);
        event.file = Some(7);
        event.text = text.to_owned();
        event
    };
    let found = |place, ago_ms| {
        let text = format!(
            "{place}: the copy on D1 is wrong, and another is right; a scrub with --repair mends it"
        );
        of("damage_found", &text, ago_ms)
    };
    let one = "page 5 (offset 40960) of /pg/a";
    let other = "4096 bytes at 8192 of /pg/b";
    let mut events = vec![
        found(one, 900),
        found(one, 800),
        found(other, 790),
        found(one, 700),
    ];
    let report = judge(&group, &events, NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    let damage = &report.findings[0];
    assert!(damage.text.starts_with("damage in 2 places"), "{damage:?}");
    // The list shows what was counted, and what to do is what helps.
    assert!(damage.advice.contains("--severity warning"), "{damage:?}");
    assert!(damage.advice.contains("--repair"), "{damage:?}");
    let moved = format!("{one}: the copy on D1 is wrong, and another is right; it was moved");
    events.push(of("block_moved", &moved, 600));
    let report = judge(&group, &events, NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    let damage = &report.findings[0];
    assert!(damage.text.starts_with("damage in 1 place "), "{damage:?}");
    let mut of_another_file = of("block_repaired", &format!("{other}: right again"), 500);
    of_another_file.file = Some(8);
    events.push(of_another_file.clone());
    let report = judge(&group, &events, NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    of_another_file.file = Some(7);
    events.push(of_another_file);
    let report = judge(&group, &events, NOW_MS);
    expect(&report, HealthStatus::Ok, &[]);
    // Found again later, it is there again.
    events.push(found(one, 100));
    let report = judge(&group, &events, NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    // What cannot be mended is read where critical events are.
    let report = judge(
        &group,
        &[event("write_failed", "critical", None, 50)],
        NOW_MS,
    );
    let damage = &report.findings[0];
    assert!(damage.advice.contains("--severity critical"), "{damage:?}");
    assert!(!damage.advice.contains("--repair"), "{damage:?}");
}

#[test]
fn background_work_that_fails_because_the_group_stopped_is_no_finding_of_its_own() {
    let failed = [event("background_failed", "critical", None, 1000)];
    let mut group = group(Redundancy::Normal);
    let report = judge(&group, &failed, NOW_MS);
    expect(&report, HealthStatus::Critical, &["background_failed"]);
    group.fenced = Some("no disk can be written".to_owned());
    let report = judge(&group, &failed, NOW_MS);
    expect(&report, HealthStatus::Critical, &["group_fenced"]);
}

#[test]
fn advice_about_a_disk_can_be_typed_as_it_stands() {
    let mut group = group(Redundancy::Normal);
    group.disks[1].mode = "offline".to_owned();
    group.disks[1].voter = false;
    let report = judge(&group, &[], NOW_MS);
    let advice = &report.findings[0].advice;
    assert!(advice.contains("`spindle disk online data D1`"), "{advice}");
}

#[test]
fn what_was_acknowledged_is_told_no_more_and_what_is_found_anew_is() {
    let group = group(Redundancy::Normal);
    let found = event("copies_differ", "critical", None, 900);
    let before = judge(&group, std::slice::from_ref(&found), NOW_MS);
    let damage = &before.findings[0];
    assert!(damage.can_be_cleared);
    assert!(
        damage.advice.contains("`spindle clear data damage`"),
        "{damage:?}"
    );
    let mut cleared = event("finding_cleared", "info", None, 800);
    cleared.number = 2;
    cleared.text = crate::api::clearing::text_of(damage, 1, "root");
    let report = judge(&group, &[found.clone(), cleared.clone()], NOW_MS);
    expect(&report, HealthStatus::Ok, &[]);
    let mut again = found.clone();
    again.number = 3;
    let report = judge(&group, &[found, cleared, again], NOW_MS);
    expect(&report, HealthStatus::Critical, &["damage"]);
    let mut away = group;
    away.disks[3].mode = "offline".to_owned();
    let report = judge(&away, &[], NOW_MS);
    assert!(!report.findings[0].can_be_cleared);
}

#[test]
fn a_finding_of_a_scrub_is_open_until_it_is_mended_or_acknowledged_however_long_ago() {
    let old = |text: &str, number| {
        let mut event = scrubbed("copies_differ", "critical", 40 * 24 * 3_600_000);
        (event.text, event.number) = (text.to_owned(), number);
        event
    };
    let mut events = vec![
        old("one: differ", 1),
        old("two: differ", 2),
        old("two: differ", 3),
    ];
    events.push(event("write_failed", "critical", None, 900));
    assert_eq!(
        scrub_findings_open(&events),
        2,
        "what a program was told is none of a scrub"
    );
    let mut cleared = event("finding_cleared", "info", None, 800);
    cleared.text = "damage up to event 2: acknowledged by root: two".to_owned();
    let mut acknowledged = events.clone();
    acknowledged.push(cleared);
    assert_eq!(scrub_findings_open(&acknowledged), 1, "found anew");
    events.push(event("all_copies_right", "info", None, 700));
    assert_eq!(scrub_findings_open(&events), 0);
}
