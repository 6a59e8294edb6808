//! A disk that is shorter than its label says has lost what it held.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::Place;

const WHOLE_BYTES: u64 = 64 << 20;

fn set_length(disk: &str, bytes: u64) {
    let file = std::fs::File::options().write(true).open(disk).unwrap();
    file.set_len(bytes).unwrap();
}

fn modes(place: &Place) -> Vec<(String, String)> {
    let shown = place.ask(["group", "show", "data"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    (shown["disks"].as_array().unwrap().iter())
        .map(|disk| (text(&disk["name"]), text(&disk["mode"])))
        .collect()
}

fn is_offline(place: &Place) -> Option<String> {
    let mut modes = modes(place).into_iter();
    modes.find_map(|(name, mode)| (mode == "offline").then_some(name))
}

#[test]
fn a_truncated_disk_is_named() {
    let place = Place::new();
    let disks = ["a", "b"].map(|name| format!("{}:64M", place.disk(name)));
    place.tell([
        "group",
        "create",
        "data",
        "--redundancy",
        "external",
        "--file-disk",
        &disks[0],
        "--file-disk",
        &disks[1],
    ]);
    let disk = place.disk("b");
    set_length(&disk, WHOLE_BYTES / 2);
    let before = place.contents();
    place.refuse(["group", "mount", "data"], 2, &[&disk, "cut off"]);
    let scan = place.ask(["disk", "scan"]);
    assert_eq!(scan["disks"][1]["status"], "unusable");
    assert!(
        scan["disks"][1]["found"]
            .as_str()
            .unwrap()
            .contains("67108864")
    );
    assert!(before == place.contents());
}

#[test]
fn a_disk_that_was_truncated_and_made_longer_again_gets_everything_again() {
    let place = Place::new();
    place.create_group();
    let bytes: Vec<u8> = (0..20_u32 << 20)
        .map(|at| ((at >> 9) ^ at).to_le_bytes()[0])
        .collect();
    let (source, target) = (place.path("source"), place.path("target"));
    std::fs::write(&source, &bytes).unwrap();
    place.tell(["cp", &place.text("source"), "data:/file"]);
    let back = |what: &str| {
        let _ = std::fs::remove_file(&target);
        place.tell(["cp", "data:/file", &place.text("target")]);
        assert!(std::fs::read(&target).unwrap() == bytes, "{what}");
    };

    let is_feature_set = || {
        let shown = place.ask(["group", "upgrade", "data", "--dry-run"]);
        let feature = &shown["features"][0];
        assert_eq!(feature["name"], "lost_contents");
        feature["in_use"].as_bool().unwrap()
    };
    assert!(!is_feature_set(), "an earlier program goes on with it");

    // While the group is open.
    place.tell(["group", "mount", "data"]);
    let disk = place.disk("b");
    set_length(&disk, 2 << 20);
    let name = wait_for(|| is_offline(&place));
    set_length(&disk, WHOLE_BYTES);
    wait_for(|| is_offline(&place).is_none().then_some(()));
    back("cut off while it was open");
    assert!(is_feature_set(), "an earlier program refuses it");
    place.tell(["rebalance", "data", "--wait"]);
    place.tell(["group", "dismount", "data"]);

    // While it is closed: the mount finds it short, the next one does not.
    set_length(&disk, 2 << 20);
    place.tell(["group", "mount", "data"]);
    assert_eq!(is_offline(&place).as_ref(), Some(&name));
    place.tell(["group", "dismount", "data"]);
    set_length(&disk, WHOLE_BYTES);
    place.tell(["group", "mount", "data"]);
    place.run(["disk", "online", "data", &name]);
    assert_eq!(is_offline(&place), None);
    back("cut off while it was closed");
    place.tell(["group", "check", "data"]);
    place.tell(["group", "dismount", "data"]);
}

/// What `found` finds within a minute.
fn wait_for<T>(found: impl Fn() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed().as_secs() < 60, "it never came to pass");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
