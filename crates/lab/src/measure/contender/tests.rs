//! Every contender that this machine can make is made, used and gone.

use std::fs;

use super::*;
use crate::experiment::{DeviceKind, Devices};
use crate::measure::device::DeviceSet;
use crate::measure::place::mounts;

#[test]
fn every_contender_of_this_machine_is_made_used_and_removed() {
    if let Some(reason) = lacks_root() {
        println!("skipped: {reason}");
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let devices = Devices {
        kind: DeviceKind::Loop,
        count: 4,
        size_bytes: 320 << 20,
        directory: scene.path().to_owned(),
        names: Vec::new(),
        bandwidth: None,
        requests: None,
    };
    let set = DeviceSet::make(&journal, &devices, &[]).unwrap();
    let group_name = format!("spindle-lab-contenders-{}", std::process::id());
    let group = ControlGroup::make(&journal, &group_name, None).unwrap();
    let mut made = 0;
    for contender in all() {
        let name = contender.name();
        if let Some(reason) = contender.lacks() {
            println!("not run: {name}: {reason}");
            continue;
        }
        let scratch = scene.path().join(&name);
        fs::create_dir(&scratch).unwrap();
        let site = Site {
            journal: &journal,
            leaves: &set.leaves,
            group: &group,
            scratch: &scratch,
            log: &scratch.join("log"),
            profile: "postgresql",
            options: &Options::new(),
            watch: &Watch::new(Duration::from_secs(600)),
        };
        let standing = contender
            .make(&site)
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        if let Place::Directory(place) = &standing.place {
            let file = place.join("a file");
            fs::write(&file, "text").unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "text", "{name}");
        }
        assert!(standing.layout.devices >= 1, "{name}");
        // What a report tells names no directory of this machine.
        let made_by = standing.layout.made_by.join("\n");
        let here = scratch.display().to_string();
        assert!(!made_by.contains(&here), "{name}: {made_by}");
        standing
            .remove()
            .unwrap_or_else(|error| panic!("{name}: {error:#}"));
        fs::remove_dir_all(&scratch).unwrap();
        made += 1;
    }
    assert!(made >= 2, "only {made} contenders");
    drop(group);
    drop(set);
    let left: Vec<_> = mounts()
        .unwrap()
        .into_iter()
        .filter(|(place, _)| place.starts_with(scene.path()))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    drop(journal);
    assert_eq!(fs::read_dir(scene.path().join("state")).unwrap().count(), 0);
}

#[test]
fn a_directory_is_used_without_touching_what_is_in_it() {
    let scene = tempfile::tempdir().unwrap();
    let target = scene.path().join("theirs");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("precious"), "text").unwrap();
    let contender = find(&format!("directory:{}", target.display())).unwrap();
    assert_eq!(contender.lacks(), None);
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let Ok(group) = ControlGroup::make(&journal, "spindle-lab-directory-test", None) else {
        println!("skipped: no cgroup may be made here");
        return;
    };
    let site = Site {
        journal: &journal,
        leaves: &[],
        group: &group,
        scratch: scene.path(),
        log: &scene.path().join("log"),
        profile: "postgresql",
        options: &Options::new(),
        watch: &Watch::new(Duration::from_secs(600)),
    };
    let standing = contender.make(&site).unwrap();
    let Place::Directory(place) = standing.place.clone() else {
        panic!("a directory is a directory");
    };
    fs::write(place.join("ours"), "text").unwrap();
    standing.remove().unwrap();
    let left: Vec<_> = fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["precious"]);
}

#[test]
fn a_directory_that_is_not_there_is_a_reason_not_to_run() {
    let contender = find("directory:/no/such/place").unwrap();
    assert!(contender.lacks().unwrap().contains("is no directory"));
    assert!(find("directory:here").is_err());
}
