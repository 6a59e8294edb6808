//! Disks that are cut off, and whole again.

use spindle_base::Redundancy;
use spindle_device::DiskSlot;

use crate::scene::{MIB, NORMAL, Scene, assert_sound, create, pattern, read, resync};

#[test]
fn what_no_other_disk_has_of_one_that_was_cut_off_is_kept_before_its_end() {
    let disks = [(0, 64), (0, 64), (1, 64), (1, 64)];
    let scene = Scene::new(3, Redundancy::Normal, &disks);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    let length = 4 << 20;
    group.write(&file, 0, &pattern(1, length)).unwrap();
    group.sync().unwrap();
    let extent = group.map(&file).remove(0);
    let [cut, partner] = [0, 1].map(|copy| {
        let (disk, _) = extent.copies[copy].unwrap();
        DiskSlot(disk.0)
    });
    // The partner misses a part of what the other one has.
    scene.disks.vanish(partner);
    let mut model = pattern(1, length);
    let newer = pattern(2, 64 << 10);
    model[..newer.len()].copy_from_slice(&newer);
    group.write(&file, 0, &newer).unwrap();
    // Until nothing of it counts as written lately, which a disk that goes may lose.
    resync(&group);
    scene.disks.resize(cut, 63 * MIB);
    group.heartbeat(20).unwrap();
    scene.disks.resize(cut, 64 * MIB);
    assert_eq!(group.return_disks(&[cut]).unwrap().len(), 1);
    scene.disks.bring_back(partner);
    assert_eq!(group.return_disks(&[partner]).unwrap().len(), 1);
    resync(&group);
    assert!(read(&group, &file, 0, length) == model);
    assert_sound(&group);
}
