//! What is made goes, in whatever way the maker ended.

use std::process::Command;
use std::time::Duration;

use super::*;
use crate::measure::program::{command, run};

fn dead() -> Identity {
    let mut child = Command::new("true").spawn().unwrap();
    let identity = Identity {
        id: child.id(),
        started: 1,
    };
    child.wait().unwrap();
    identity
}

#[test]
fn a_drop_undoes_and_an_empty_journal_is_no_file() {
    let state = tempfile::tempdir().unwrap();
    let made_at = state.path().join("made");
    let journal = Journal::begin(state.path()).unwrap();
    let made = journal.intend(Undo::Directory(made_at.clone())).unwrap();
    fs::create_dir(&made_at).unwrap();
    fs::write(made_at.join("inside"), "text").unwrap();
    drop(made);
    assert!(!made_at.exists());
    drop(journal);
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn the_next_start_undoes_what_a_killed_one_left_in_reverse() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("outer");
    let file = directory.join("inner");
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "text").unwrap();
    let lines = [
        Line::Owner {
            identity: dead(),
            boot: boot(),
        },
        Line::Make {
            entry: 1,
            undo: Undo::Directory(directory.clone()),
        },
        Line::Make {
            entry: 2,
            undo: Undo::File(file),
        },
        Line::Make {
            entry: 3,
            undo: Undo::File(state.path().join("never made")),
        },
    ];
    let mut text: String = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    text.push_str("{\"Make\":{\"entry\":4,\"un");
    fs::write(state.path().join("7-1.journal"), text).unwrap();
    let cleared = clear_left_behind(state.path()).unwrap();
    assert_eq!(cleared.undone.len(), 3);
    assert!(cleared.undone[1].contains("inner"), "{cleared:?}");
    assert!(cleared.left.is_empty());
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn the_journal_of_one_who_lives_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::begin(state.path()).unwrap();
    let kept = state.path().join("kept");
    let made = journal.intend(Undo::File(kept.clone())).unwrap();
    fs::write(&kept, "text").unwrap();
    assert!(clear_left_behind(state.path()).unwrap().undone.is_empty());
    assert!(kept.exists());
    drop(made);
}

#[test]
fn after_a_restart_only_what_outlives_it_is_undone() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("file");
    fs::write(&file, "text").unwrap();
    let own = Identity::own();
    let lines = [
        Line::Owner {
            identity: own,
            boot: "another boot".to_owned(),
        },
        Line::Make {
            entry: 1,
            undo: Undo::File(file.clone()),
        },
        Line::Make {
            entry: 2,
            undo: Undo::Process(own),
        },
    ];
    let text: String = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    fs::write(state.path().join("7-1.journal"), text).unwrap();
    let cleared = clear_left_behind(state.path()).unwrap();
    assert_eq!(cleared.undone.len(), 1);
    assert!(!file.exists());
}

#[test]
fn a_loop_device_that_somebody_looks_at_is_gone_when_it_was_undone() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: loop devices are made by root");
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let file = scene.path().join("disk");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let made = journal.intend(Undo::LoopOver(file.clone())).unwrap();
    let device = run(command("losetup").args(["--find", "--show"]).arg(&file)).unwrap();
    let number = device.trim().trim_start_matches("/dev/");
    let backing = Path::new("/sys/block")
        .join(number)
        .join("loop/backing_file");
    assert!(backing.exists());
    let looks = File::open(device.trim()).unwrap();
    let looker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(looks);
    });
    made.remove().unwrap();
    assert!(!backing.exists());
    looker.join().unwrap();
}
