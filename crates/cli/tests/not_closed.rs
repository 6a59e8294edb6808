//! A close that fails: whoever asked for it is told, with what is lost; and what waits in a group
//! whose disks went and came back is kept by the way that `spindle health` names.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::Write as _;
use std::time::Duration;

use place::{Place, bytes, can_mount, is_mounted, signal, wait_for_end};
use rustix::process::Signal;

/// What a refused close says, beside why.
const LOST: [&str; 2] = [
    "is not closed: ",
    "KiB in 1 files that were written and not synced are lost",
];

/// A mounted group whose disks went while a file was written, and came back.
fn stopped(disks: &[&str], redundancy: &str) -> (Place, Vec<u8>) {
    let (place, contents, ()) = stopped_around(disks, redundancy, |_| (), |_, ()| ());
    (place, contents)
}

/// The same, with something that is done before the disks go, and something before they come back.
fn stopped_around<T>(
    disks: &[&str],
    redundancy: &str,
    before: impl FnOnce(&Place) -> T,
    meanwhile: impl FnOnce(&Place, &T),
) -> (Place, Vec<u8>, T) {
    let place = Place::new();
    let paths: Vec<String> = (disks.iter())
        .map(|disk| format!("{}:64M", place.disk(disk)))
        .collect();
    let mut words = vec!["group", "create", "data", "--redundancy", redundancy];
    for path in &paths {
        words.extend(["--file-disk", path.as_str()]);
    }
    place.tell(words);
    place.mount();
    let made = before(&place);
    let names: Vec<String> = (0..disks.len())
        .map(|number| format!("data_{number:04}"))
        .collect();
    for name in &names {
        place.tell(["fault", "pull", "data", name]);
    }
    let contents = bytes(3, 12_000);
    std::fs::write(place.mount_point().join("gone"), &contents).unwrap();
    while !place.run(["health", "data"]).stdout.contains("had to stop") {
        std::thread::sleep(Duration::from_millis(50));
    }
    meanwhile(&place, &made);
    for name in &names {
        place.tell(["fault", "plug", "data", name]);
    }
    (place, contents, made)
}

#[test]
fn a_dismount_of_a_group_that_cannot_be_closed_says_so_and_what_is_lost() {
    if !can_mount() {
        return;
    }
    let (place, _) = stopped(&["a"], "external");
    place.refuse(["group", "dismount", "data"], 3, &LOST);
    // It is told once, of this end; the next one is another.
    place.mount();
    place.umount();
}

#[test]
fn a_group_that_stopped_is_listed_as_stopped_and_why() {
    if !can_mount() {
        return;
    }
    let (place, _) = stopped(&["a"], "external");
    for words in [vec!["group", "list"], vec!["group", "show", "data"]] {
        let listing = place.tell(words);
        assert!(listing.contains("stopped"), "{listing}");
        assert!(!listing.contains("mounted  "), "{listing}");
        assert!(listing.contains("takes no writes: "), "{listing}");
        assert!(listing.contains("spindle upgrade"), "{listing}");
    }
    place.refuse(["group", "dismount", "data"], 3, &LOST);
}

#[test]
fn a_close_that_failed_where_no_word_can_be_left_is_seen_on_the_disks() {
    if !can_mount() {
        return;
    }
    let (place, _) = stopped(&["a"], "external");
    // As full as a runtime directory can be.
    std::fs::create_dir(place.path("run/data.ended")).unwrap();
    let wanted = ["data is not closed: ", "left no word", "may be lost"];
    place.refuse(["group", "dismount", "data"], 3, &wanted);
    place.mount();
    // Closed it is told as closed, word or not.
    place.umount();
}

#[test]
fn where_neither_a_word_nor_the_disks_can_be_found_it_is_told_that_the_close_is_not_known() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::create_dir(place.path("run/data.ended")).unwrap();
    let mut command = place.command(["group", "dismount", "data", "--disks", "/nowhere/*"]);
    let wanted = ["not known whether data was closed", "may be lost"];
    place::refused(&place::outcome(&mut command), 3, &wanted);
}

#[test]
fn an_unmount_of_a_mirror_both_of_whose_disks_went_says_what_is_lost() {
    if !can_mount() {
        return;
    }
    let (place, _) = stopped(&["a", "b"], "normal");
    place.refuse(["umount", "data"], 3, &LOST);
    place.mount();
    place.umount();
}

#[test]
fn a_held_mount_that_is_given_up_while_its_disks_are_away_says_what_is_lost() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (daemon, point) = (place.process_id(), place.mount_point());
    std::fs::write(point.join("file"), bytes(3, 300_000)).unwrap();
    signal(daemon, Signal::STOP);
    place.take_disks_away();
    signal(daemon, Signal::KILL);
    wait_for_end(daemon);
    let held = |place: &Place| {
        let shown = place.run(["group", "show", "data"]);
        shown.stderr.contains("held by the keeper")
    };
    while !held(&place) {
        std::thread::sleep(Duration::from_millis(100));
    }
    place.refuse(["umount", &point.display().to_string()], 3, &LOST);
    assert!(!is_mounted(&point));
    place.put_disks_back();
    place.mount();
    place.umount();
}

#[test]
fn what_waits_in_a_group_that_stopped_is_kept_by_the_way_that_health_names() {
    if !can_mount() {
        return;
    }
    let (place, contents) = stopped(&["a"], "external");
    let health = place.run(["health", "data"]);
    assert_eq!(health.code, 2, "{health:?}");
    assert!(
        health.stdout.contains("`spindle upgrade GROUP`"),
        "{health:?}"
    );
    // Whoever would bring the disk back is told the same: to mount again would lose what waits.
    for words in [["disk", "online"], ["disk", "offline"]] {
        let words = words.into_iter().chain(["data", "data_0000"]);
        let refused = place.run(words);
        assert!(refused.code > 0, "{refused:?}");
        assert!(
            refused.stderr.contains("`spindle upgrade GROUP` hands"),
            "{refused:?}"
        );
        assert!(!refused.stderr.contains("mount it again"), "{refused:?}");
    }
    place.tell(["upgrade", "data"]);
    // What the next process owes is told with the path of the file, and once.
    let synced = place.run(["sync", "data"]);
    assert!(!synced.stderr.contains("file "), "{synced:?}");
    if synced.code > 0 {
        place::refused(&synced, 3, &["written to data:/gone", "may be lost"]);
        place.tell(["sync", "data"]);
    }
    place.umount();
    place.mount();
    let found = std::fs::read(place.mount_point().join("gone")).unwrap();
    assert!(found == contents, "{} bytes are there", found.len());
    place.umount();
}

#[test]
fn a_cut_that_a_stopped_group_refuses_takes_nothing_of_what_was_answered() {
    if !can_mount() {
        return;
    }
    let (place, contents) = stopped(&["a"], "external");
    let gone = place.mount_point().join("gone");
    std::fs::File::create(&gone).unwrap_err();
    place.tell(["upgrade", "data"]);
    place.umount();
    place.mount();
    let found = std::fs::read(&gone).unwrap();
    assert!(found == contents, "{} bytes are there", found.len());
    place.umount();
}

#[test]
fn a_name_that_a_stopped_group_refuses_to_move_leads_where_it_led_before() {
    if !can_mount() {
        return;
    }
    let name = |place: &Place, name: &str| place.mount_point().join(name);
    let make = |place: &Place| {
        for (text, contents) in [("conf", "old"), ("conf.new", "new")] {
            std::fs::write(name(place, text), contents).unwrap();
        }
        rustix::fs::syncfs(std::fs::File::open(place.mount_point()).unwrap()).unwrap();
        std::fs::File::open(name(place, "conf"))
            .and_then(|file| file.sync_all())
            .unwrap();
    };
    let refused = |place: &Place, (): &()| {
        // Longer than a reading of the owner record is relied on.
        std::thread::sleep(Duration::from_secs(3));
        std::fs::rename(name(place, "conf.new"), name(place, "conf")).unwrap_err();
        std::fs::remove_file(name(place, "conf.new")).unwrap_err();
    };
    let (place, _, ()) = stopped_around(&["a"], "external", make, refused);
    place.tell(["upgrade", "data"]);
    {
        let mut conf = std::fs::File::create(name(&place, "conf")).unwrap();
        conf.write_all(b"newest").unwrap();
        // What the disk may have lost as it went is told once.
        let _ = conf.sync_all();
        conf.sync_all().unwrap();
    }
    place.umount();
    place.mount();
    assert_eq!(std::fs::read(name(&place, "conf")).unwrap(), b"newest");
    assert_eq!(std::fs::read(name(&place, "conf.new")).unwrap(), b"new");
    place.umount();
}

#[test]
fn what_was_told_while_no_disk_took_anything_is_in_the_log_after_the_next_mount() {
    if !can_mount() {
        return;
    }
    let (place, _) = stopped(&["a", "b"], "normal");
    let told = place.ask(["events", "data", "--severity", "critical"]);
    let told: Vec<_> = (told.as_array().unwrap().iter())
        .map(|event| {
            (
                event["kind"].clone(),
                event["time_ms"].clone(),
                event["text"].clone(),
            )
        })
        .collect();
    assert!(
        told.iter().any(|event| event.0 == "group_fenced"),
        "{told:?}"
    );
    place.refuse(["group", "dismount", "data"], 3, &LOST);
    place.mount();
    for _ in 0..2 {
        let after = place.ask(["events", "data"]);
        let after = after.as_array().unwrap();
        for event in &told {
            // Two threads may have told the same within a millisecond.
            let told_count = told.iter().filter(|other| *other == event).count();
            let (kind, time_ms, text) = event;
            let same = |event: &&serde_json::Value| {
                event["kind"] == *kind && event["time_ms"] == *time_ms && event["text"] == *text
            };
            let found = after.iter().filter(same).count();
            assert_eq!(found, told_count, "{kind} {text}: {after:?}");
        }
        assert!(
            after
                .iter()
                .any(|event| event["kind"] == "group_not_closed"),
            "{after:?}"
        );
        // Once, however often it is mounted.
        place.umount();
        place.mount();
    }
    let after = place.ask(["events", "data", "--kind", "group_not_closed"]);
    assert_eq!(after.as_array().unwrap().len(), 1, "{after}");
    place.umount();
}

#[test]
fn a_group_whose_keeper_and_process_were_killed_is_told_as_not_closed_by_the_next_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    signal(keeper, Signal::KILL);
    signal(daemon, Signal::KILL);
    wait_for_end(keeper);
    wait_for_end(daemon);
    let _ = rustix::mount::unmount(place.mount_point(), rustix::mount::UnmountFlags::DETACH);
    place.mount();
    let told = place.tell(["events", "data", "--kind", "group_not_closed"]);
    assert!(told.contains(&format!("process {daemon}")), "{told}");
    place.umount();
    place.mount();
    let again = place.tell(["events", "data", "--kind", "group_not_closed"]);
    assert_eq!(again.lines().count(), 1, "{again}");
    place.umount();
}
