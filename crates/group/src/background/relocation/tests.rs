//! Moves across the outage of a disk with a copy.

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::{AlignedBuffer, DiskSlot};

use super::Step;
use crate::background::planner::Move;
use crate::scene::{NORMAL, Scene, assert_copies_equal, assert_sound, create, pattern, resync};

#[test]
fn what_was_read_from_a_source_before_its_outage_was_known_is_not_entered() {
    for seed in 1..6 {
        let scene = Scene::new(seed, Redundancy::Normal, &[(0, 64), (1, 64), (2, 64)]);
        let group = scene.open();
        let file = create(&group, 10, NORMAL);
        group.write(&file, 0, &pattern(seed, 4 << 20)).unwrap();
        group.sync().unwrap();
        resync(&group);
        let (index, extent) = {
            let map = file.map.read();
            let index = map.end_index() - 1;
            (index, map.extent(index).unwrap())
        };
        // The copy with number 0 is read, the other one is to go to the third disk.
        let [source, from] = extent.copies() else {
            panic!("a mirrored file has two copies");
        };
        let used = [source.disk().0, from.disk().0];
        let to = (0..3).map(DiskNumber).find(|disk| !used.contains(&disk.0));
        let moved = Move {
            file: file.id,
            index,
            copy_number: 1,
            from: *from,
            to: to.unwrap(),
            blocks: from.blocks(),
        };
        group.write(&file, 3 << 20, &pattern(99, 1 << 20)).unwrap();
        let mut relocation = group.begin_relocation(&moved).unwrap();
        // The source loses that, and is asked for it before anybody knows.
        let slot = DiskSlot(source.disk().0);
        scene.disks.vanish(slot);
        scene.disks.bring_back(slot);
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        let step = group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap();
        assert!(matches!(step, Step::Copied(_)), "seed {seed}: {step:?}");
        group
            .take_offline(&[source.disk()], "it failed a write")
            .unwrap();
        group.return_disks(&[slot]).unwrap();
        let step = group
            .step_relocation(&mut relocation, 256, &mut buffer)
            .unwrap();
        assert_eq!(step, Step::Abandoned, "seed {seed}");
        resync(&group);
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
        assert_sound(&group);
    }
}
