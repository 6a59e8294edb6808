//! Workers that share a scrub.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use spindle_base::{DiskNumber, FileId};

use crate::background::scrub::{ScrubScope, ScrubState, ScrubStep, ScrubWish};
use crate::scene::{NORMAL, Scene, create, pattern};

#[test]
fn a_scrub_does_not_end_before_what_its_last_stretch_left_out_is_noted() {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 64 << 10)).unwrap();
    group.sync().unwrap();
    let state = || group.scrub_view().unwrap().state;
    let wish = ScrubWish {
        scope: ScrubScope::Files(vec![FileId(10)]),
        title: "a file".to_owned(),
        repair: false,
        power: 4,
        distrust: None,
    };
    group.take_offline(&[DiskNumber(1)], "it is gone").unwrap();
    group.start_scrub(wish).unwrap();
    let run = group.scrubs.state.lock().current.clone().unwrap();
    thread::scope(|scope| {
        // Whoever notes what was left out waits for this.
        let (begin, begun_to_hold) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let titles = &run.titles;
        scope.spawn(move || {
            let _held = titles.lock();
            begin.send(()).unwrap();
            let _ = ended.recv();
        });
        begun_to_hold.recv().unwrap();
        let worker = scope.spawn(|| group.scrub_unit(1));
        let begun = Instant::now();
        while run.done_bytes.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it never read");
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        // The other worker finds nothing left.
        assert_eq!(group.scrub_unit(1).unwrap(), ScrubStep::Idle);
        assert_ne!(state(), ScrubState::Done);
        drop(end);
        worker.join().unwrap().unwrap();
    });
    assert_ne!(state(), ScrubState::Done);
    let left_out = group.scrub_view().unwrap().left_out;
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert_eq!(left_out[0].length_bytes, 64 << 10);
}
