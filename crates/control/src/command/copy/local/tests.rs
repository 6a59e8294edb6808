//! What comes in a file's place after it was looked at: only here can it come at that very moment.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::LocalFiles;
use crate::api::error::ControlErrorKind;
use crate::api::files::{Files, NewEntry};

const NEW: NewEntry = NewEntry {
    permissions: 0o644,
    user: 0,
    group: 0,
    modified: None,
};

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("spindle-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn a_pipe_that_came_in_a_files_place_is_refused_and_not_waited_for() {
    let top = directory("copy-pipe");
    let pipe = top.join("pipe");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    for files in [
        LocalFiles::new(top.clone(), false),
        LocalFiles::new(pipe.clone(), false),
    ] {
        let error = files.read_to(&pipe, &mut Vec::new()).unwrap_err();
        assert!(error.message().contains("fifo"), "{error}");
    }
    std::fs::remove_dir_all(top).unwrap();
}

#[test]
fn a_link_that_came_in_the_place_of_a_source_below_what_was_named_is_not_read() {
    let top = directory("copy-source");
    std::fs::write(top.join("secret"), b"secret").unwrap();
    std::fs::create_dir(top.join("named")).unwrap();
    symlink("../secret", top.join("named/file")).unwrap();
    symlink("..", top.join("named/up")).unwrap();
    let files = LocalFiles::new(top.join("named"), false);
    for path in ["named/file", "named/up/secret"] {
        let mut got = Vec::new();
        assert!(files.read_to(&top.join(path), &mut got).is_err(), "{path}");
        assert!(got.is_empty(), "{path}");
    }
    std::fs::remove_dir_all(top).unwrap();
}

#[test]
fn a_link_that_came_where_the_named_directory_is_to_be_made_is_refused() {
    let top = directory("copy-made");
    std::fs::create_dir(top.join("victim")).unwrap();
    let files = LocalFiles::new(top.join("new"), false);
    let absent = files.stat(&top.join("new")).unwrap_err();
    assert_eq!(absent.kind, ControlErrorKind::NotFound);
    symlink("victim", top.join("new")).unwrap();
    let refused = files.make_directory(&top.join("new"), NEW).unwrap_err();
    assert_eq!(refused.kind, ControlErrorKind::Exists, "{refused}");
    std::fs::remove_dir_all(top).unwrap();
}
