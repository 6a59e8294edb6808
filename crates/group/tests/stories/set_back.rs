//! A disk that is set back to an older image while it serves, and that the group cannot do without yet.

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;
use spindle_group::EventKind;

use crate::scene::{MIB, NORMAL, Scene, create, pattern};

const SET_BACK: DiskNumber = DiskNumber(1);
const AWAY: DiskNumber = DiskNumber(2);

/// Where another copy serves, nobody is given what the image shows, and no write of a part of a block
/// takes the rest of it from there.
#[test]
fn what_another_disk_has_is_not_read_from_a_disk_that_was_set_back() {
    let scene = Scene::new(5, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
    let group = scene.open();
    let file = create(&group, 1, NORMAL);
    let length = 24 << 20;
    group.write(&file, 0, &pattern(1, length)).unwrap();
    group.sync_file(&file, true).unwrap();
    let image = scene.disks.image(DiskSlot(SET_BACK.0));
    scene.disks.vanish(DiskSlot(AWAY.0));
    let mut new = pattern(2, length);
    group.write(&file, 0, &new).unwrap();
    group.sync_file(&file, true).unwrap();
    for now_s in 1..4 {
        group.heartbeat(now_s).unwrap();
    }
    scene.disks.put_back(DiskSlot(SET_BACK.0), &image);
    group.heartbeat(4).unwrap();
    let is_told = (group.take_events().iter())
        .any(|event| event.kind == EventKind::DamageFound && event.message.contains("set back"));
    assert!(is_told, "the disk is told and serves on");
    let on = |extent: &spindle_group::ExtentView, wanted: DiskNumber| {
        (extent.copies.iter().flatten()).any(|(disk, _)| *disk == wanted)
    };
    let map = group.map(&group.file(FileId(1)).unwrap());
    let good: Vec<_> = (map.iter())
        .filter(|extent| on(extent, SET_BACK) && !on(extent, AWAY))
        .filter(|extent| extent.length_bytes == MIB)
        .collect();
    assert!(good.len() > 3, "{map:?}");
    for extent in good {
        let at = usize::try_from(extent.offset_bytes).unwrap();
        for block in (at..at + (64 << 10)).step_by(4096) {
            let mut read = vec![0; 4096];
            group.read(&file, block as u64, &mut read).unwrap();
            assert!(read == new[block..block + 4096], "block at {block} is old");
            group.write(&file, block as u64 + 100, &[7; 50]).unwrap();
            new[block + 100..block + 150].fill(7);
            group.read(&file, block as u64, &mut read).unwrap();
            assert!(
                read == new[block..block + 4096],
                "block at {block} is old in part"
            );
        }
    }
}
