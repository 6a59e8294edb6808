//! A disk goes away and comes back while no process serves its group: what it had not made durable
//! may be lost, and no answer of it tells.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount, signal, wait_for_end};
use rustix::process::Signal;
use serde_json::Value;

/// A loop device over an image; detached however the story ends.
struct LoopDevice {
    device: String,
    image: PathBuf,
}

impl LoopDevice {
    /// The device, with a link to it on the search path.
    fn new(place: &Place, name: &str) -> Option<Self> {
        let image = place.path(&format!("{name}.image"));
        std::fs::File::create(&image)
            .unwrap()
            .set_len(96 << 20)
            .unwrap();
        let found = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&image)
            .output()
            .ok()?;
        if !found.status.success() {
            println!("skipped: no loop device here");
            return None;
        }
        let device = String::from_utf8(found.stdout).unwrap().trim().to_owned();
        std::os::unix::fs::symlink(&device, place.disk(name)).unwrap();
        Some(Self { device, image })
    }

    fn detach(&self) {
        let status = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
        assert!(status.unwrap().success());
        let begun = Instant::now();
        while self.is_attached() {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(20), "somebody has it open");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn attach(&self) {
        let status = Command::new("losetup")
            .arg(&self.device)
            .arg(&self.image)
            .status();
        assert!(status.unwrap().success());
    }

    fn is_attached(&self) -> bool {
        let shown = Command::new("losetup").arg(&self.device).output().unwrap();
        shown.status.success()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.is_attached() {
            let _ = Command::new("losetup")
                .args(["--detach", &self.device])
                .status();
        }
    }
}

/// Kills the daemon, and lets something happen before the keeper starts the next one.
fn kill_daemon_and(place: &Place, meanwhile: impl FnOnce()) {
    let (keeper, killed) = (place.keeper_process_id(), place.process_id());
    signal(keeper, Signal::STOP);
    signal(killed, Signal::KILL);
    wait_for_end(killed);
    meanwhile();
    signal(keeper, Signal::CONT);
    let begun = Instant::now();
    loop {
        let shown = place.run(["group", "show", "data", "--json"]);
        let group: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
        if (group["process_id"].as_u64()).is_some_and(|next| next != u64::from(killed)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{shown:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn went_offline(place: &Place) -> Vec<Value> {
    let events = place.ask(["events", "data", "--kind", "disk_offline"]);
    events.as_array().unwrap().clone()
}

#[test]
fn a_disk_that_blinks_while_no_daemon_serves_goes_offline_and_comes_back_with_every_byte() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(devices) = ["a", "b", "c"]
        .into_iter()
        .map(|name| LoopDevice::new(&place, name))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let sides: Vec<String> = ["a", "b", "c"]
        .into_iter()
        .map(|name| format!("{name}={}", place.disk(name)))
        .collect();
    let mut words = vec!["group", "create", "data"];
    for side in &sides {
        words.extend(["--failgroup", side]);
    }
    place.tell(&words);
    place.mount();
    let file = place.mount_point().join("file");
    let first = bytes(1, 4_000_000);
    std::fs::write(&file, &first).unwrap();

    // A kill in which no disk went anywhere takes none offline.
    kill_daemon_and(&place, || {});
    assert_eq!(went_offline(&place), Vec::<Value>::new());
    assert!(std::fs::read(&file).unwrap() == first);

    let second = bytes(2, 4_000_000);
    std::fs::write(&file, &second).unwrap();
    kill_daemon_and(&place, || {
        devices[1].detach();
        devices[1].attach();
    });
    assert!(std::fs::read(&file).unwrap() == second);
    let offline = went_offline(&place);
    assert_eq!(offline.len(), 1, "{offline:?}");
    let text = offline[0].to_string();
    assert!(text.contains("was away for a moment"), "{text}");

    let begun = Instant::now();
    while place.ask(["group", "show", "data"])["offline_disks_count"] != 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it comes back");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(std::fs::read(&file).unwrap() == second);
    place.umount();
    let checked = place.run(["check", "data", "--json"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    drop(devices);
}
