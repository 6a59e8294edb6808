//! Settings, runtime directories, logs and sockets of other users: not read, not followed, not
//! believed. Each story needs root, who alone can be somebody else here.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use place::{Outcome, Place, outcome, refused};

/// A user that owns nothing else here, and another one.
const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 65533;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: files of another user need root");
    }
    root
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The binary where every user can run it, in a place that every user can reach.
fn open_to_all(place: &Place) -> std::path::PathBuf {
    set_mode(&place.path(""), 0o755);
    set_mode(&place.path("disks"), 0o755);
    let program = place.path("spindle");
    std::fs::copy(env!("CARGO_BIN_EXE_spindle"), &program).unwrap();
    set_mode(&program, 0o755);
    program
}

#[test]
fn root_runs_no_hook_of_a_directory_that_another_user_writes_and_uses_none_of_its_settings() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let trap = place.path("trap");
    std::fs::create_dir_all(trap.join("run")).unwrap();
    let hook = trap.join("hook");
    std::fs::write(
        &hook,
        format!("#!/bin/sh\nid > {}/caught\n", trap.display()),
    )
    .unwrap();
    set_mode(&hook, 0o755);
    let settings = format!(
        "runtime_directory = \"{0}/run\"\n[hooks]\nevent = \"{0}/hook\"\n",
        trap.display()
    );
    std::fs::write(trap.join("spindle.toml"), settings).unwrap();
    for path in ["", "run", "hook", "spindle.toml"] {
        chown(trap.join(path), Some(NOBODY), None).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = place.command(words);
        outcome(command.current_dir(&trap))
    };
    place.create_group();
    let mounted = run(&["group", "mount", "data"]);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    assert!(mounted.stderr.contains("spindle.toml"), "{mounted:?}");
    assert!(mounted.stderr.contains("65534"), "{mounted:?}");
    assert!(place.path("run/data.sock").exists(), "its own directory");
    let closed = run(&["group", "dismount", "data"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert!(!trap.join("caught").exists(), "the hook was run");
    // Nor root's own file that the other has put there.
    chown(trap.join("spindle.toml"), Some(0), Some(0)).unwrap();
    std::fs::write(trap.join("spindle.toml"), "shell = \"rm\"\n").unwrap();
    for (owner, mode, why) in [(NOBODY, 0o755, "65534"), (0, 0o1777, "written by others")] {
        chown(&trap, Some(owner), None).unwrap();
        set_mode(&trap, mode);
        let listed = run(&["group", "list"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        assert!(listed.stderr.contains(why), "{listed:?}");
    }
    // His settings are read in a directory of his own, unless others can write them.
    set_mode(&trap, 0o755);
    refused(&run(&["group", "list"]), 2, &["spindle.toml", "hooks"]);
    set_mode(&trap.join("spindle.toml"), 0o666);
    let listed = run(&["group", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.stderr.contains("written by others"), "{listed:?}");
}

#[test]
fn a_runtime_directory_that_is_a_link_or_that_others_can_write_is_refused() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.create_group();
    std::fs::create_dir(place.path("other")).unwrap();
    let run = |words: &[&str], directory: &str| -> Outcome {
        let mut command = place.command(words);
        outcome(command.env("SPINDLE_RUNTIME_DIR", place.path(directory)))
    };
    set_mode(&place.path("other"), 0o777);
    refused(&run(&["group", "list"], "other"), 2, &["written by others"]);
    set_mode(&place.path("other"), 0o755);
    symlink("other", place.path("link")).unwrap();
    refused(&run(&["group", "mount", "data"], "link"), 2, &["link"]);
    // Root looks after another's groups there, and serves none of its own.
    chown(place.path("other"), Some(NOBODY), None).unwrap();
    assert_eq!(run(&["group", "list"], "other").code, 0);
    refused(&run(&["group", "mount", "data"], "other"), 2, &["65534"]);
    assert_eq!(std::fs::read_dir(place.path("other")).unwrap().count(), 0);
}

#[test]
fn a_link_in_the_place_of_a_log_is_not_written_through() {
    let place = Place::new();
    place.create_group();
    std::fs::create_dir(place.path("run")).unwrap();
    set_mode(&place.path("run"), 0o700);
    std::fs::write(place.path("precious"), b"precious").unwrap();
    symlink(place.path("precious"), place.path("run/data.log")).unwrap();
    place.refuse(["group", "mount", "data"], 3, &["data.log"]);
    let kept = std::fs::read(place.path("precious")).unwrap();
    assert_eq!(kept, b"precious");
}

#[test]
fn a_process_of_another_user_at_the_end_of_a_socket_is_not_believed() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let program = open_to_all(&place);
    for disk in ["a", "b", "c", "d"] {
        chown(place.disk(disk), Some(SOMEBODY), None).unwrap();
    }
    std::fs::create_dir(place.path("run")).unwrap();
    chown(place.path("run"), Some(SOMEBODY), None).unwrap();
    let command = |user: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .current_dir("/")
            .env("SPINDLE_DISKS", place.disk("*"))
            .env("SPINDLE_RUNTIME_DIR", place.path("run"))
            .uid(user)
            .gid(user)
            .args(words);
        command
    };
    let mounted = outcome(&mut command(SOMEBODY, &["group", "mount", "data"]));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    // Now it is nobody's directory, with somebody's process in it.
    chown(place.path("run"), Some(NOBODY), None).unwrap();
    for name in ["data.sock", "data.keeper"] {
        let socket = place.path("run").join(name);
        if socket.exists() {
            chown(socket, Some(NOBODY), None).unwrap();
        }
    }
    let asked = outcome(&mut command(NOBODY, &["group", "show", "data"]));
    chown(place.path("run"), Some(SOMEBODY), None).unwrap();
    for name in ["data.sock", "data.keeper"] {
        let socket = place.path("run").join(name);
        if socket.exists() {
            chown(socket, Some(SOMEBODY), None).unwrap();
        }
    }
    let closed = outcome(&mut command(SOMEBODY, &["group", "dismount", "data"]));
    assert_eq!(closed.code, 0, "{closed:?}");
    refused(&asked, 2, &["65533", "not believed"]);
}
