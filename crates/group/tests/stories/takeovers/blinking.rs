//! Disks that vanish for a moment while a takeover makes copies equal.

use std::sync::Arc;

use spindle_base::FileId;
use spindle_device::{DiskSlot, Disks};
use spindle_group::KeptJournal;

use super::owed::KilledBefore;
use super::{open_kept_at_last, take_over};
use crate::scene::{NORMAL, Scene, assert_copies_equal, create, pattern, resync};

/// A file of two synced writes, and a third one that the disk alone has when its process is killed; what
/// the keeper holds then.
pub(super) fn killed_with_a_write_on_one_copy(scene: &Scene, has_it: DiskSlot) -> KeptJournal {
    let (disks, group) = KilledBefore::open(scene);
    let file = create(&group, 10, NORMAL);
    for seed in [1, 2] {
        group.write(&file, 0, &pattern(seed, 1 << 20)).unwrap();
        group.sync().unwrap();
    }
    disks.kill_after_write_to(has_it);
    group.write(&file, 0, &pattern(3, 4096)).unwrap_err();
    std::mem::forget((group, file));
    disks.kept()
}

/// A process is killed when one copy has a write and the other one has not; the disk without it vanishes
/// at any moment of the takeover, and comes back. Nobody asks for that write again.
#[test]
fn a_copy_that_a_takeover_made_equal_stays_equal_though_its_disk_blinks() {
    for has_it in [0, 1] {
        let scene = Scene::mirrored(41);
        let kept = killed_with_a_write_on_one_copy(&scene, DiskSlot(has_it));
        blink_everywhere(&scene, &kept, DiskSlot(1 - has_it));
    }
}

fn blink_everywhere(killed: &Scene, kept: &KeptJournal, slot: DiskSlot) {
    for requests in 1.. {
        let scene = killed.copy(requests);
        let journal = super::copy_of(kept.memory());
        scene.disks.vanish_after(slot, requests);
        let taken = take_over(&scene, &journal, Arc::clone(&scene.disks) as Arc<dyn Disks>);
        let taken = taken.and_then(|group| group.begin_journal().map(|()| group));
        let has_vanished = scene.disks.is_vanished(slot);
        scene.disks.bring_back(slot);
        let group = match taken {
            Ok(group) => group,
            Err(_) => open_kept_at_last(&scene, &journal),
        };
        // It may serve, or be away.
        let _ = group.return_disks(&[slot]);
        resync(&group);
        let file = group.file(FileId(10)).unwrap();
        let what = format!("{} vanished after {requests} requests", slot.0);
        assert_copies_equal(&scene, &group, &file, &what);
        if !has_vanished {
            assert!(requests > 20, "{requests} requests");
            break;
        }
    }
}
