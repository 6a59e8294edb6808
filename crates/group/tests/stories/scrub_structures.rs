//! A scrub looks at the group's own structures too: labels, opener records, group states and the
//! catalog's replicas.

use spindle_base::Redundancy;
use spindle_device::DiskSlot;
use spindle_format::JOURNAL_PLACE;
use spindle_group::{EventKind, FindingKind, Group};

use crate::scene::{NORMAL, Scene, assert_sound, create, pattern, read};
use crate::scrub::scrub;

fn stage() -> (Scene, Group, Vec<u8>) {
    let scene = Scene::new(1, Redundancy::Normal, &[(0, 32), (1, 32), (2, 32)]);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let bytes = pattern(4, 3 << 20);
    group.write(&file, 0, &bytes).unwrap();
    group.sync().unwrap();
    group.take_events();
    (scene, group, bytes)
}

/// What a scrub says of a disk's structures, in its titles.
fn titles(group: &Group, repair: bool) -> Vec<(FindingKind, String)> {
    let view = scrub(group, repair);
    let of = |one: &spindle_group::Finding| (one.kind, one.title.clone());
    view.findings.iter().map(of).collect()
}

fn opens_with_all_disks(scene: &Scene, bytes: &[u8]) {
    scene.crash();
    let group = scene.open();
    assert_eq!(group.view().offline_disks_count, 0);
    let file = group.file(spindle_base::FileId(10)).unwrap();
    assert!(read(&group, &file, 0, bytes.len()) == bytes);
    assert_sound(&group);
}

#[test]
fn a_disk_whose_first_mebibyte_was_overwritten_is_whole_again_after_a_scrub() {
    for number in 0..3 {
        let (scene, group, bytes) = stage();
        let slot = DiskSlot(number);
        scene.disks.overwrite(slot, 0, &vec![0; 1 << 20]);

        let told = titles(&group, false);
        let label = format!("the label of disk D{number}");
        assert_eq!(
            told[0],
            (FindingKind::Repairable, label.clone()),
            "{told:?}"
        );
        assert_eq!(scene.disks.bytes(slot, 0, 4096), [0; 4096], "only told");

        let told = titles(&group, true);
        assert!(told.contains(&(FindingKind::Repaired, label)), "{told:?}");
        let state = format!("the group state of disk D{number}");
        assert!(told.contains(&(FindingKind::Repaired, state)), "{told:?}");
        assert!(told.iter().all(|(kind, _)| *kind == FindingKind::Repaired));
        assert_eq!(titles(&group, true), []);
        // What is committed from now on is on every replica, and what was before is too: the
        // disk is enough together with either of the others.
        group.set_scrub_interval_s(77);
        group.sync().unwrap();
        drop(group);
        let other = DiskSlot((number + 1) % 3);
        let alone = scene.copy(9);
        alone.disks.vanish(other);
        alone.crash();
        let group = alone.try_open().unwrap();
        assert_eq!(group.scrub_interval_s(), 77);
        let file = group.file(spindle_base::FileId(10)).unwrap();
        assert!(read(&group, &file, 0, bytes.len()) == bytes);
        opens_with_all_disks(&scene, &bytes);
    }
}

#[test]
fn one_copy_of_a_label_an_opener_record_and_a_state_are_each_written_again() {
    // A label's first copy, its second, the opener's record, and both slots of the state.
    for (at_kib, what) in [
        (&[0_u64][..], "label"),
        (&[512], "label"),
        (&[64], "opener record"),
        (&[128, 256], "group state"),
    ] {
        let (scene, group, bytes) = stage();
        for at in at_kib {
            scene
                .disks
                .overwrite(DiskSlot(1), at << 10, &pattern(3, 4096));
        }
        let title = format!("the {what} of disk D1");
        assert_eq!(
            titles(&group, false),
            [(FindingKind::Repairable, title.clone())]
        );
        assert_eq!(titles(&group, true), [(FindingKind::Repaired, title)]);
        assert_eq!(titles(&group, true), [], "{what}");
        let events = group.take_events();
        assert!(events.iter().any(|event| event.message.contains(what)));
        drop(group);
        opens_with_all_disks(&scene, &bytes);
    }
}

#[test]
fn a_part_that_no_disk_lets_a_scrub_judge_is_a_finding() {
    let (scene, group, _) = stage();
    let journal = JOURNAL_PLACE..JOURNAL_PLACE + 4096;
    for number in 0..3 {
        (scene.disks).fail_reads(DiskSlot(number), journal.clone(), u64::MAX);
    }
    let told = titles(&group, true);
    assert!(
        told.iter()
            .any(|(kind, title)| *kind == FindingKind::Unreadable && title.contains("journal")),
        "{told:?}"
    );
    let kinds: Vec<EventKind> = group.take_events().iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::DamageFound), "{kinds:?}");
    assert!(!kinds.contains(&EventKind::AllCopiesRight), "{kinds:?}");
}

#[test]
fn the_label_of_another_disk_is_not_overwritten() {
    let (scene, group, _) = stage();
    let other = scene.disks.bytes(DiskSlot(2), 0, 1 << 20);
    scene.disks.overwrite(DiskSlot(1), 0, &other);
    let told = titles(&group, true);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, FindingKind::CopiesDiffer);
    assert!(scene.disks.bytes(DiskSlot(1), 0, 1 << 20) == other);
}
