//! The event log over closes, crashes and storms.

use spindle_device::DiskSlot;
use spindle_group::{Event, EventKind, Group, Severity};

use crate::scene::{NORMAL, Scene, create, pattern};

fn kinds(group: &Group) -> Vec<String> {
    let events = group.kept_events(0, Severity::Info).unwrap();
    events.into_iter().map(|event| event.record.kind).collect()
}

#[test]
fn an_orderly_close_loses_no_event_and_the_log_travels_with_the_disks() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    group.event(Event::new(EventKind::GroupOpened, "opened"));
    group.keep_events(5_000, "here", false);
    group.event(Event::new(EventKind::GroupClosed, "closed"));
    let kept = group.keep_events(6_000, "here", true);
    assert_eq!(kept.len(), 1);
    group.close().unwrap();
    drop(group);
    let scene = scene.copy(2);
    let group = scene.open();
    assert_eq!(kinds(&group), ["group_opened", "group_closed"]);
    let later = group.kept_events(kept[0].number - 1, Severity::Info);
    assert_eq!(later.unwrap(), kept, "only what came after is asked for");
    group.event(Event::new(EventKind::GroupOpened, "opened again"));
    let again = group.keep_events(7_000, "there", false);
    assert!(again[0].number > kept[0].number, "numbers go on");
    assert_eq!(again[0].record.host, "there");
}

#[test]
fn a_critical_event_survives_a_crash_right_after_the_next_step() {
    let scene = Scene::mirrored(3);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    scene.disks.vanish(DiskSlot(1));
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    let kept = group.keep_events(1_000, "here", false);
    assert_eq!(kept[0].record.kind, "disk_offline");
    assert_eq!(kept[0].record.severity, Severity::Critical);
    assert_eq!(kept[0].record.disk.unwrap().0, 1);
    assert!(group.step(0).unwrap(), "committed at once, young as it is");
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(kinds(&group)[0], "disk_offline");
}

#[test]
fn a_crash_loses_at_most_the_events_since_the_last_commit() {
    let scene = Scene::mirrored(4);
    let group = scene.open();
    group.event(Event::new(EventKind::DiskRenamed, "kept"));
    group.keep_events(1_000, "here", false);
    group.sync().unwrap();
    group.event(Event::new(EventKind::DiskRenamed, "lost"));
    group.keep_events(2_000, "here", false);
    drop(group);
    scene.crash();
    let group = scene.open();
    assert_eq!(kinds(&group), ["disk_renamed"]);
}

#[test]
fn only_what_is_severe_enough_is_shown() {
    let scene = Scene::mirrored(5);
    let group = scene.open();
    group.event(Event::new(EventKind::DiskAdded, "info"));
    group.event(Event::new(EventKind::DiskSlow, "warning"));
    group.event(Event::new(EventKind::DamageFound, "critical"));
    group.keep_events(1_000, "here", false);
    let count = |least| group.kept_events(0, least).unwrap().len();
    assert_eq!(count(Severity::Info), 3);
    assert_eq!(count(Severity::Warning), 2);
    assert_eq!(count(Severity::Critical), 1);
}
