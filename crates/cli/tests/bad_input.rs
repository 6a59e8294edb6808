//! Disks that come back wrong, groups that are cut in two, and senseless arguments: one clear
//! line each, the documented exit code, and nothing changed. (What `disk` refuses is in
//! `disk_changes.rs`.)
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes};

fn move_disks(place: &Place, names: &[&str], away: bool) {
    for name in names {
        let (here, there) = (place.disk(name), place.path(name));
        if away {
            std::fs::rename(here, there).unwrap();
        } else {
            std::fs::rename(there, here).unwrap();
        }
    }
}

#[test]
fn two_halves_that_each_lack_a_majority_are_both_refused_and_open_together() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"contents").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    for half in [["a", "b"], ["c", "d"]] {
        move_disks(&place, &half, true);
        let before = place.contents();
        let line = place.refuse(["group", "mount", "data"], 3, &["data", "--force"]);
        assert!(line.contains("majority"), "{line}");
        place.refuse(["cp", "file", "data:/other"], 3, &["data"]);
        assert!(before == place.contents(), "nothing was written");
        let health = place.run(["health", "data"]);
        assert_eq!(health.code, 2, "{health:?}");
        assert!(health.stdout.contains("cannot be opened"), "{health:?}");
        move_disks(&place, &half, false);
    }
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "data:/file", "out"]);
    assert_eq!(std::fs::read(place.path("out")).unwrap(), b"contents");
}

#[test]
fn a_disk_that_comes_back_after_it_was_dropped_is_passed_over() {
    let place = Place::new();
    place.create_group();
    let spare = format!("left={}:64M", place.disk("e"));
    place.tell(["disk", "add", "data", "--failgroup", &spare]);
    let names = place.ask(["group", "show", "data"]);
    let name = names["disks"][4]["name"].as_str().unwrap().to_owned();
    std::fs::copy(place.disk("e"), place.path("e-before")).unwrap();
    place.tell(["disk", "drop", "data", &name]);
    let count = || {
        let group = place.ask(["group", "show", "data"]);
        group["disks"].as_array().unwrap().len()
    };
    if count() != 4 {
        println!("skipped: the disk is not empty yet");
        return;
    }
    // An image from before: its label says that it is a member.
    std::fs::rename(place.path("e-before"), place.disk("e")).unwrap();
    std::fs::write(place.path("file"), bytes(1, 1 << 20)).unwrap();
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "file", "data:/file"]);
    assert_eq!(count(), 4);
    let told = place.ask(["events", "data", "--kind", "disk_passed_over"]);
    let text = told[0]["text"].as_str().unwrap();
    assert!(text.contains("does not know it"), "{text}");
    let again = place.disk("e");
    place.refuse(["disk", "add", "data", "--disk", &again], 2, &[&again]);
    place.tell(["group", "dismount", "data"]);
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}

#[test]
fn a_disk_from_an_older_epoch_is_left_out_by_name_and_the_others_mount() {
    let place = Place::new();
    place.create_group();
    let (old, new) = (bytes(1, 1 << 20), bytes(2, 1 << 20));
    std::fs::write(place.path("file"), &old).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    std::fs::copy(place.disk("b"), place.path("b-before")).unwrap();
    std::fs::write(place.path("file"), &new).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    std::fs::rename(place.path("b-before"), place.disk("b")).unwrap();
    let before = std::fs::read(place.disk("b")).unwrap();
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "data:/file", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == new);
    let told = place.ask(["events", "data", "--kind", "disk_passed_over"]);
    let text = told[0]["text"].as_str().unwrap();
    assert!(text.contains("older image"), "{text}");
    let view = place.ask(["group", "show", "data"]);
    assert_eq!(view["disks"][1]["mode"], "offline");
    place.refuse(["disk", "online", "data", "data_0001"], 2, &["data_0001"]);
    let after = std::fs::read(place.disk("b")).unwrap();
    assert!(before == after, "nothing was written to it");
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn arguments_that_are_none_are_told_in_one_line() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let before = place.ask(["group", "show", "data"]);
    for (words, wanted) in [
        (vec!["events", "data", "--since", "1x"], "15m"),
        (vec!["events", "no/name"], "name"),
        (
            vec!["group", "set", "data", "scrub_intervall=7d"],
            "scrub_interval",
        ),
        (vec!["group", "set", "data", "scrub_interval=soon"], "7d"),
        (vec!["disk", "offline", "data", "data_0009"], "did you mean"),
        (vec!["fault", "pull", "data", "data_0009"], "did you mean"),
        (
            vec!["group", "mount", "data", "--metrics", "127.0.0.1:1"],
            "open already",
        ),
    ] {
        place.refuse(&words, 2, &[wanted]);
    }
    for words in [
        vec!["scrub", "data", "--power", "1025"],
        vec!["scrub", "data", "--power", "-1"],
        vec!["group", "mount", "data", "--metrics", "9464"],
        vec!["group", "mount", "data", "--metrics-public"],
    ] {
        let outcome = place.run(&words);
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stdout.is_empty(), "{outcome:?}");
    }
    let after = place.ask(["group", "show", "data"]);
    assert_eq!(before["epoch"], after["epoch"]);
}

#[test]
fn a_terminal_gets_the_one_line_and_nothing_beside_it() {
    let place = Place::new();
    let tried = std::process::Command::new("script")
        .arg("--version")
        .output();
    if tried.is_err() {
        println!("skipped: script is not installed");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_spindle");
    let mut command = std::process::Command::new("script");
    command
        .args(["-qec", &format!("{binary} group show nothing"), "/dev/null"])
        .current_dir(place.path(""))
        .env("SPINDLE_DISKS", place.disk("*"))
        .env("SPINDLE_RUNTIME_DIR", place.path("run"))
        .stdin(std::process::Stdio::null());
    let told = place::outcome(&mut command);
    assert_eq!(told.code, 2, "{told:?}");
    assert_eq!(told.stdout.lines().count(), 1, "{told:?}");
    assert!(
        told.stdout.starts_with("spindle: there is no group"),
        "{told:?}"
    );
}

#[test]
fn a_failure_has_its_kind_and_each_cause_once_in_json_and_one_line_without() {
    let place = Place::new();
    place.create_group();
    let words = ["file", "set", "data:/missing", "--redundancy", "external"];
    let line = place.refuse(words, 2, &[]);
    assert_eq!(line, "spindle: data:/missing: no such file or directory\n");
    let outcome = place.run(words.iter().chain(&["--json"]));
    assert_eq!(outcome.code, 2, "{outcome:?}");
    let error: serde_json::Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_eq!(
        error,
        serde_json::json!({
            "class": "caller",
            "kind": "not_found",
            "message": "data:/missing: no such file or directory",
            "context": {
                "operation": null, "subject": "data:/missing",
                "file": null, "extent": null, "offset_bytes": null, "disk": null,
            },
            "causes": ["no such file or directory"],
        })
    );
    // The same where the process that serves the group refuses it.
    place.tell(["group", "mount", "data"]);
    assert_eq!(place.refuse(words, 2, &[]), line);
    let served = place.run(words.iter().chain(&["--json"]));
    assert_eq!(served.stderr, outcome.stderr);
    place.tell(["group", "dismount", "data"]);
}
