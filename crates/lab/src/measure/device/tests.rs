//! Devices are what was asked for, held to what was asked for, and gone afterwards.

use std::process::Command;
use std::time::Instant;

use super::*;
use crate::measure::control_group::ControlGroup;

fn asked(kind: DeviceKind, directory: &Path) -> Devices {
    Devices {
        kind,
        count: 1,
        size_bytes: 128 << 20,
        directory: directory.to_owned(),
        names: Vec::new(),
        bandwidth: None,
        requests: None,
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: devices are made by root");
    }
    is_root
}

#[test]
fn a_spindle_is_held_to_its_bandwidth_also_for_pages_written_back() {
    if !is_root() {
        return;
    }
    if let Some(reason) = crate::measure::control_group::lacks_limits() {
        println!("skipped: {reason}");
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let set = DeviceSet::make(&journal, &asked(DeviceKind::Loop, scene.path()), &[]).unwrap();
    let path = set.leaves[0].path.display().to_string();
    let name = format!("spindle-lab-test-{}", std::process::id());
    let group = ControlGroup::make(&journal, &name, None).unwrap();
    let limits = group
        .limit(&journal, &set.leaves, Some(32_000_000), None)
        .unwrap();
    for words in [
        [&format!("if={path}"), "of=/dev/null", "iflag=direct"],
        ["if=/dev/zero", &format!("of={path}"), "conv=fdatasync"],
    ] {
        let mut copy = Command::new("dd");
        copy.args(words).args(["bs=1M", "count=32"]);
        let began = Instant::now();
        run(&mut group.wrap(&copy)).unwrap();
        // 33.5 MB at 32 MB/s take a second.
        let seconds = began.elapsed().as_secs_f64();
        assert!((0.7..30.0).contains(&seconds), "{words:?}: {seconds} s");
    }
    drop(limits);
    drop(group);
    drop(set);
    // By its file: another test may have the device of that number already.
    let attached = run(&mut command("losetup")).unwrap();
    let file = scene.path().display().to_string();
    assert!(!attached.contains(&file), "{attached}");
}

#[test]
fn a_zram_device_is_made_and_removed() {
    if !is_root() {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let devices = asked(DeviceKind::Zram, scene.path());
    if let Err(error) = check(&devices, &[]) {
        println!("skipped: no zram: {error}");
        return;
    }
    let journal = Journal::begin(scene.path()).unwrap();
    let set = DeviceSet::make(&journal, &devices, &[]).unwrap();
    let path = set.leaves[0].path.clone();
    assert_eq!(set.leaves[0].size_bytes, 128 << 20);
    drop(set);
    assert!(!path.exists());
}

#[test]
fn a_device_that_holds_something_is_refused_until_its_name_is_given() {
    if !is_root() {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let set = DeviceSet::make(&journal, &asked(DeviceKind::Loop, scene.path()), &[]).unwrap();
    let device = set.leaves[0].path.clone();
    let mut wanted = asked(DeviceKind::Block, scene.path());
    wanted.names = vec![device.clone()];
    run(command("mkfs.ext4").args(["-q", "-F"]).arg(&device)).unwrap();
    let refusal = check(&wanted, &[]).unwrap_err().to_string();
    assert!(
        refusal.contains("is not empty") && refusal.contains("ext4"),
        "{refusal}"
    );
    assert!(check(&wanted, std::slice::from_ref(&device)).is_ok());
    let stray = check(&wanted, &[PathBuf::from("/dev/null")]).unwrap_err();
    assert!(stray.to_string().contains("does not name it"), "{stray}");
    let point = scene.path().join("mount");
    fs::create_dir(&point).unwrap();
    let mount = journal.intend(Undo::Mount(point.clone())).unwrap();
    run(command("mount").arg(&device).arg(&point)).unwrap();
    let refusal = check(&wanted, std::slice::from_ref(&device))
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("is in use"), "{refusal}");
    mount.remove().unwrap();

    // What was put on it while it was the lab's goes with the set: it is as empty as can be.
    let erased = std::slice::from_ref(&device);
    let named = DeviceSet::make(&journal, &wanted, erased).unwrap();
    assert_eq!(named.leaves[0].path, device);
    drop(named);
    assert!(check(&wanted, &[]).is_ok(), "{:?}", check(&wanted, &[]));
}

#[test]
fn a_size_that_does_not_fit_is_told_before_anything_is_made() {
    if !is_root() {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let mut devices = asked(DeviceKind::Loop, scene.path());
    devices.size_bytes = 1 << 50;
    let refusal = check(&devices, &[]).unwrap_err().to_string();
    assert!(refusal.contains("free"), "{refusal}");
    assert_eq!(fs::read_dir(scene.path()).unwrap().count(), 0);
}
