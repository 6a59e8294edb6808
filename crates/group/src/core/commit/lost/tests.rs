//! Disks that fail a flush and serve on: what is lost by that, and what is not.

use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId, Redundancy};
use spindle_device::DiskSlot;

use crate::scene::{EXTERNAL, Scene, create, pattern, read};

const WAIT_MOST: Duration = Duration::from_secs(30);

#[test]
fn what_is_written_and_synced_while_an_earlier_failed_flush_is_being_told_is_not_told_as_lost() {
    let scene = Scene::new(1, Redundancy::External, &[(0, 64)]);
    let group = scene.open();
    let [lost, kept] = [10, 11].map(|id| create(&group, id, EXTERNAL));
    for file in [&lost, &kept] {
        group.write(file, 0, &pattern(1, 4096)).unwrap();
    }
    group.sync().unwrap();
    group.write(&lost, 0, &pattern(2, 4096)).unwrap();
    let life = || group.disks.get(DiskNumber(0)).unwrap().life();
    let before = life();
    scene.disks.drop_at_flushes(DiskSlot(0), 1);
    thread::scope(|scope| {
        // Whoever tells the failure waits for this map.
        let held = lost.map.read();
        let telling = scope.spawn(|| group.sync_file(&lost, false));
        let begun = Instant::now();
        while life() == before {
            assert!(begun.elapsed() < WAIT_MOST, "the disk begins anew");
            thread::yield_now();
        }
        let syncing = scope.spawn(|| {
            group.write(&kept, 0, &pattern(3, 4096)).unwrap();
            group.sync_file(&kept, false)
        });
        let begun = Instant::now();
        while !syncing.is_finished() && begun.elapsed() < Duration::from_secs(2) {
            thread::yield_now();
        }
        assert!(!telling.is_finished(), "the failure is being told");
        drop(held);
        syncing.join().unwrap().unwrap();
        telling.join().unwrap().unwrap_err();
    });
    group.sync_file(&lost, false).unwrap();
    group.sync().unwrap();
    scene.disks.crash();
    drop((lost, kept, group));
    scene.disks.restart();
    let group = scene.open();
    let kept = group.file(FileId(11)).unwrap();
    assert!(read(&group, &kept, 0, 4096) == pattern(3, 4096));
}
