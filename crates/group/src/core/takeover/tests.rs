//! Takeovers of what a process left that was killed within a change.

use std::sync::Arc;
use std::thread;

use spindle_base::{FileId, Redundancy};
use spindle_catalog::{Edit, KeptJournal, Table, file_key};
use spindle_device::{DiskSlot, Disks, SharedMemory};
use spindle_format::FileRecord;

use crate::Group;
use crate::scene::{
    EXTERNAL, NORMAL, Scene, assert_copies_equal, create, opener, pattern, read, resync,
};

const LENGTH: usize = 64 << 10;

fn open_kept(scene: &Scene, journal: &KeptJournal) -> Group {
    let memory = journal.memory().descriptor().try_clone_to_owned().unwrap();
    let journal = KeptJournal::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap();
    let group = Group::open_kept(
        Arc::clone(&scene.disks) as Arc<dyn Disks>,
        &[DiskSlot(0), DiskSlot(1)],
        &scene.name,
        &opener(),
        &|_| false,
        Some(Arc::new(journal)),
    )
    .unwrap();
    group.begin_journal().unwrap();
    group
}

#[test]
fn what_was_written_within_a_first_change_of_redundancy_is_there_though_a_kill_cuts_the_change_off()
{
    for (seed, before, after) in [
        (1, EXTERNAL, Redundancy::Normal),
        (2, NORMAL, Redundancy::External),
    ] {
        let scene = Scene::mirrored(seed);
        let journal = KeptJournal::create().unwrap();
        let group = open_kept(&scene, &journal);
        let old = create(&group, 10, before);
        group.write(&old, 0, &pattern(10, LENGTH)).unwrap();
        let empty = create(&group, 11, before);
        group.sync().unwrap();
        // Its thread holds the change for good.
        let convert = || {
            let change = group.change();
            for file in [&old, &empty] {
                let mut map = file.map.write(&change);
                map.set_wanted(after.copies());
                file.follow(&map);
                let record = FileRecord {
                    redundancy: after,
                    striping: file.striping,
                    rows_vary: true,
                };
                let mut edit = Edit::default();
                edit.put(Table::File, file_key(file.id), record.encode());
                group.apply(&change, edit);
            }
            std::mem::forget(change);
        };
        let write = || {
            let behind = LENGTH as u64;
            group.write(&old, behind, &pattern(11, 4 << 20)).unwrap();
            group.write(&empty, 0, &pattern(12, LENGTH)).unwrap();
        };
        // The maps are free then, and the change has not ended.
        thread::scope(|scope| scope.spawn(convert).join().unwrap());
        thread::scope(|scope| scope.spawn(write).join().unwrap());
        std::mem::forget((group, old, empty));
        for _ in 0..2 {
            let group = open_kept(&scene, &journal);
            assert_eq!(group.check().unwrap(), Vec::<String>::new());
            let [old, empty] = [10, 11].map(|id| group.file(FileId(id)).unwrap());
            assert_eq!(old.layout().redundancy, before.redundancy, "it was cut off");
            let all = [pattern(10, LENGTH), pattern(11, 4 << 20)].concat();
            assert!(read(&group, &old, 0, all.len()) == all);
            assert!(read(&group, &empty, 0, LENGTH) == pattern(12, LENGTH));
            std::mem::forget((group, old, empty));
        }
        let group = open_kept(&scene, &journal);
        let [old, empty] = [10, 11].map(|id| group.file(FileId(id)).unwrap());
        let wanted = [(old.id, Redundancy::Normal), (empty.id, Redundancy::Normal)];
        group.convert_files(&wanted).unwrap();
        resync(&group);
        for file in [&old, &empty] {
            let is_whole = |extent: &crate::ExtentView| extent.copies.iter().flatten().count() == 2;
            assert!(group.map(file).iter().all(is_whole));
            assert_copies_equal(&scene, &group, file, "after it");
        }
        group.close().unwrap();
    }
}
