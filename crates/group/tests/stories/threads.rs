//! Many threads on one group: nobody waits for ever, nobody reads what nobody wrote.

use std::sync::atomic::{AtomicBool, Ordering};

use spindle_base::Redundancy;

use crate::scene::{FINE, MIB, NORMAL, Scene, assert_sound, create, pattern, read};

#[test]
fn writers_readers_syncs_removals_and_steps_at_once() {
    let scene = Scene::new(1, Redundancy::Normal, &[(0, 96), (0, 96), (1, 96), (1, 96)]);
    let group = scene.open();
    let shared = create(&group, 10, NORMAL);
    let fine = create(&group, 11, FINE);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for thread in 0..4_u64 {
            let (group, shared, fine) = (&group, &shared, &fine);
            workers.push(scope.spawn(move || {
                for round in 0..60_u64 {
                    // Each thread has mebibytes of its own in both files.
                    let at = (round % 8 * 4 + thread) * MIB + round % 3 * 1000;
                    let data = pattern(thread << 32 | round, 150_000);
                    group.write(shared, at, &data).unwrap();
                    assert!(read(group, shared, at, 150_000) == data);
                    group.write(fine, at, &data).unwrap();
                    assert!(read(group, fine, at, 150_000) == data);
                    match round % 5 {
                        0 => group.sync_file(shared, true).unwrap(),
                        1 => group.sync_file(fine, false).unwrap(),
                        2 => group.punch(shared, at, 20_000).unwrap(),
                        _ => {}
                    }
                    let own = create(group, 1000 + thread * 1000 + round, NORMAL);
                    group.write(&own, 0, &data).unwrap();
                    if round % 4 == 0 {
                        group.truncate(&own, 70_000).unwrap();
                        assert!(read(group, &own, 0, 70_000) == data[..70_000]);
                    }
                    group.remove_file(&group.change(), &own).unwrap();
                }
            }));
        }
        let stepper = scope.spawn(|| {
            let mut now_ms = 0;
            while !stop.load(Ordering::Relaxed) {
                now_ms += 700;
                group.step(now_ms).unwrap();
                let _ = group.view();
                std::thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        stepper.join().unwrap();
    });
    assert_sound(&group);
    group.close().unwrap();
    drop(group);
    assert_sound(&scene.open());
}
