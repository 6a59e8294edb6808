//! The workspaces of their own (simulator of threads, models, fuzz targets) try the libraries that ship:
//! each has a lock file, and a newer version of a library may promise something else.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::{BTreeMap, BTreeSet};

use spindle_tidy::repository_root;

/// The versions of each package that a lock file names.
fn locked(path: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(repository_root().join(path)).unwrap();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        let value = |key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
        if let Some(found) = value("name = ") {
            name = found;
        } else if let Some(version) = value("version = ") {
            versions.entry(name.clone()).or_default().insert(version);
        }
    }
    versions
}

#[test]
fn what_is_tried_apart_has_the_libraries_that_ship() {
    let shipped = locked("Cargo.lock");
    assert!(shipped.contains_key("redb"));
    for path in [
        "harness/threads/Cargo.lock",
        "harness/loom/Cargo.lock",
        "fuzz/Cargo.lock",
    ] {
        for (name, versions) in locked(path) {
            if let Some(shipped) = shipped.get(&name) {
                assert!(
                    versions.is_subset(shipped),
                    "{path} has {name} {versions:?}, and what ships {shipped:?}: `cargo update \
                     --manifest-path ... -p {name} --precise VERSION`"
                );
            }
        }
    }
}
