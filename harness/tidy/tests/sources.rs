//! The shape of the source files: length, names, and words that must not be in them.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use spindle_tidy::files_ending_with;

/// Beyond this a file without its tests is split.
const LINES_AT_MOST: usize = 800;

/// Names that say nothing about what is in the file.
const EMPTY_NAMES: [&str; 7] = ["utils", "util", "common", "misc", "helpers", "v2", "stuff"];

/// Whether it belongs to a crate of the workspace.
fn is_ours(path: &str) -> bool {
    let is_apart = path.starts_with("harness/threads/") || path.starts_with("harness/loom/");
    path.starts_with("crates/") || (path.starts_with("harness/") && !is_apart)
}

#[test]
fn a_file_is_a_room_one_can_live_in() {
    for file in files_ending_with(&[".rs"]).unwrap() {
        if file.is_test() {
            continue;
        }
        let count = file.lines_without_tests().count();
        assert!(
            count <= LINES_AT_MOST,
            "{} has {count} lines without its tests, at most {LINES_AT_MOST} are allowed: split it \
             by subject",
            file.path
        );
    }
}

#[test]
fn a_file_is_named_after_what_is_in_it() {
    for file in files_ending_with(&[".rs"]).unwrap() {
        for part in file.path.trim_end_matches(".rs").split('/') {
            let empty = EMPTY_NAMES
                .iter()
                .any(|name| part == *name || part.ends_with(&format!("_{name}")));
            assert!(
                !empty,
                "{}: `{part}` says nothing; name the subject",
                file.path
            );
        }
    }
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    // Put together here, so that this file does not hold them itself.
    let words = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
    ];
    for file in files_ending_with(&[".rs", ".md", ".toml", ".sh"]).unwrap() {
        for (index, line) in file.text.lines().enumerate() {
            for word in &words {
                assert!(
                    !line.contains(word.as_str()),
                    "{}:{}: `{word}`: finish it, or open an issue",
                    file.path,
                    index + 1
                );
            }
        }
    }
}

#[test]
fn unsafe_code_stays_in_device_and_in_one_file_of_fuse() {
    let marks = ["unsafe {", "unsafe impl", "unsafe fn", "allow(unsafe_code"];
    let mut fuse_files = Vec::new();
    for file in files_ending_with(&[".rs"]).unwrap() {
        // This file names the marks; the device crate may use them.
        if file.path.starts_with("crates/device/") || file.path.starts_with("harness/tidy/") {
            continue;
        }
        let Some(mark) = marks.iter().find(|mark| file.text.contains(**mark)) else {
            continue;
        };
        assert!(
            file.path.starts_with("crates/fuse/src/"),
            "{}: `{mark}`: unsafe code belongs to crates/device",
            file.path
        );
        fuse_files.push(file.path);
    }
    assert!(
        fuse_files.len() <= 1,
        "unsafe code of fuse is in one file, not in {fuse_files:?}"
    );
}

#[test]
fn modules_say_what_they_are_for() {
    for file in files_ending_with(&[".rs"]).unwrap() {
        if !is_ours(&file.path) || file.path.ends_with("/tests.rs") {
            continue;
        }
        assert!(
            file.text.starts_with("//!"),
            "{} does not open with `//!`: its purpose, its invariants, what a crash does to it",
            file.path
        );
    }
}

#[test]
fn every_crate_keeps_the_lints_of_the_workspace() {
    for file in files_ending_with(&["Cargo.toml"]).unwrap() {
        if is_ours(&file.path) {
            assert!(
                file.text.contains("[lints]\nworkspace = true"),
                "{} does not take over the lints of the workspace",
                file.path
            );
        }
    }
}

#[test]
fn locks_and_atomics_below_the_front_doors_are_those_that_a_simulator_decides_on() {
    // What lies in memory that another process shares cannot be simulated.
    let shared_memory = ["crates/catalog/src/kept.rs", "crates/catalog/src/kept/"];
    for file in files_ending_with(&[".rs"]).unwrap() {
        let is_concerned = ["group", "extent", "fs", "catalog"]
            .iter()
            .any(|name| file.path.starts_with(&format!("crates/{name}/src/")));
        if !is_concerned || file.is_test() {
            continue;
        }
        let may_share = shared_memory
            .iter()
            .any(|start| file.path.starts_with(start));
        for (number, line) in file.lines_without_tests() {
            let foreign = line.contains("parking_lot")
                || ["Mutex", "RwLock", "Condvar", "mpsc"]
                    .iter()
                    .any(|name| line.contains("std::sync::") && line.contains(name))
                || (line.contains("std::sync::atomic") && !may_share);
            assert!(
                !foreign,
                "{}:{number}: take locks and atomics from `spindle_sync`, so that the simulator of \
                 threads sees them",
                file.path
            );
        }
    }
}
