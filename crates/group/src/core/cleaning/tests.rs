//! Rounds of cleaning beside each other.

use std::time::Duration;

use spindle_base::DiskNumber;
use spindle_device::{DiskSlot, Request, Work};

use crate::scene::{NORMAL, Scene, assert_copies_equal, create, pattern, resync};
use crate::waiting_disks::{OneBatchWaits, has_write};

fn flushes_second(batch: &[Request<'_>]) -> bool {
    let is_flush =
        |request: &Request<'_>| request.slot == DiskSlot(1) && matches!(request.work, Work::Flush);
    batch.iter().any(is_flush)
}

#[test]
fn what_one_round_did_not_flush_another_that_began_later_does_not_forget() {
    for seed in 1..5 {
        let scene = Scene::mirrored(seed);
        let disks = OneBatchWaits::of(&scene);
        let group = disks.open(&scene, 2);
        let file = create(&group, 10, NORMAL);
        let other = create(&group, 11, NORMAL);
        group.write(&file, 0, &pattern(seed, 4 << 20)).unwrap();
        group.sync().unwrap();
        resync(&group);
        std::thread::scope(|scope| {
            let group = &group;
            let (write_came, write_goes) = disks.wait(true, has_write);
            let file = &file;
            let writer = scope.spawn(move || {
                group.write(file, 2 << 20, &pattern(99, 1 << 20)).unwrap();
            });
            write_came.recv().unwrap();
            // The writer is of the older generation from here on.
            group.clean_round().unwrap();
            group.write(&other, 0, &pattern(7, 1 << 20)).unwrap();
            let (one_flushed, one_goes) = disks.wait(false, flushes_second);
            let one = scope.spawn(move || group.clean_round().unwrap());
            one_flushed.recv().unwrap();
            // Its bytes reach the disks after that flush.
            write_goes.send(()).unwrap();
            writer.join().unwrap();
            // Another round begins, as `disk offline` asks for one.
            let (another_came, another_goes) = disks.wait(true, flushes_second);
            let another = scope.spawn(move || group.clean_round());
            std::thread::sleep(Duration::from_millis(300));
            one_goes.send(()).unwrap();
            one.join().unwrap();
            let has_come = another_came.recv_timeout(Duration::from_secs(2));
            scene.disks.vanish(DiskSlot(1));
            scene.disks.bring_back(DiskSlot(1));
            group.take_offline(&[DiskNumber(1)], "it blinks").unwrap();
            if has_come.is_ok() {
                another_goes.send(()).unwrap();
            }
            drop(another_goes);
            let _ = another.join().unwrap();
        });
        group.return_disks(&[DiskSlot(1)]).unwrap();
        resync(&group);
        assert_copies_equal(&scene, &group, &file, &format!("seed {seed}"));
    }
}
