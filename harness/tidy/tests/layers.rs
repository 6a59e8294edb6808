//! An arrow between crates only points down. The layers are those of the table in
//! `docs/architecture.md`; the arrows come from `cargo metadata`.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use spindle_tidy::repository_root;

/// The one arrow within a layer: the daemon hosts the mount.
const WITHIN_A_LAYER: [(&str, &str); 1] = [("control", "fuse")];

/// What must see of Spindle only what a user sees, and what of the workspace it may import.
const OUTSIDERS: [(&str, &[&str]); 3] = [
    ("demo", &["testbed"]),
    ("testbed", &[]),
    ("lab", &["testbed"]),
];

/// The layer of each crate as the architecture page tells it; `None` for what never ships.
fn layers() -> BTreeMap<String, Option<u32>> {
    let page = std::fs::read_to_string(repository_root().join("docs/architecture.md")).unwrap();
    let mut layers = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let layer = match cells[1] {
            "–" => None,
            number => match number.parse() {
                Ok(layer) => Some(layer),
                Err(_) => continue,
            },
        };
        for name in cells[2].split(',') {
            layers.insert(name.trim().trim_matches('`').to_owned(), layer);
        }
    }
    layers
}

/// What `cargo metadata` tells of each crate of the workspace, by its short name.
fn packages() -> BTreeMap<String, serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(repository_root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let named = packages.iter().map(|package| {
        let name = short_name(package["name"].as_str().unwrap()).unwrap();
        (name, package.clone())
    });
    named.collect()
}

fn short_name(name: &str) -> Option<String> {
    name.strip_prefix("spindle-").map(str::to_owned)
}

/// Every crate of the workspace with the crates of the workspace that it imports, tests and
/// build scripts included.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let imported = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies
            .filter_map(|dependency| short_name(dependency["name"].as_str().unwrap()))
            .collect()
    };
    (packages().into_iter())
        .map(|(name, package)| (name, imported(&package)))
        .collect()
}

#[test]
fn what_does_not_ship_is_in_harness() {
    let layers = layers();
    for (name, package) in packages() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let is_in_harness = manifest.contains("/harness/");
        // The lab is a program of its own, beside the layers of the other.
        let ships = layers[&name].is_some() || name == "lab";
        assert!(
            is_in_harness != ships,
            "{name} is at {manifest}: what ships is in crates/, what does not in harness/"
        );
    }
}

#[test]
fn every_crate_has_a_layer_in_the_architecture_page() {
    let layers = layers();
    for name in imports().keys() {
        assert!(
            layers.contains_key(name),
            "crate {name} is missing in the table of docs/architecture.md"
        );
    }
}

#[test]
fn imports_only_point_down() {
    let layers = layers();
    for (importer, imported) in imports() {
        let Some(importer_layer) = layers[&importer] else {
            continue;
        };
        for name in imported {
            let Some(layer) = layers.get(&name).copied().flatten() else {
                panic!("{importer} ships and imports {name}, which does not");
            };
            let allowed = layer < importer_layer
                || WITHIN_A_LAYER.contains(&(importer.as_str(), name.as_str()));
            assert!(
                allowed,
                "{importer} (layer {importer_layer}) imports {name} (layer {layer}): move what \
                 it needs further down"
            );
        }
    }
}

#[test]
fn what_measures_and_shows_sees_only_what_a_user_sees() {
    let imports = imports();
    for (outsider, allowed) in OUTSIDERS {
        for name in imports.get(outsider).into_iter().flatten() {
            assert!(
                allowed.contains(&name.as_str()),
                "{outsider} imports {name}: it must use the binary `spindle` instead"
            );
        }
    }
}

#[test]
fn what_is_simulated_has_no_clock_and_no_chance() {
    let forbidden = [
        ("SystemTime", "the time comes from the caller"),
        ("Instant::now", "the time comes from the caller"),
        ("thread::spawn", "the caller brings the threads"),
        ("thread::sleep", "the simulator cannot wait"),
        ("rand::", "chance comes from the caller's seed"),
        (
            "RandomState",
            "the order of a hash map differs from run to run",
        ),
    ];
    for file in spindle_tidy::files_ending_with(&[".rs"]).unwrap() {
        let is_simulated = ["group", "extent", "catalog", "fs"]
            .iter()
            .any(|name| file.path.starts_with(&format!("crates/{name}/src/")));
        // Loom repeats its own runs, and is alone with them.
        let is_model = file.path.ends_with("/models.rs");
        if !is_simulated || is_model || file.is_test() {
            continue;
        }
        for (number, line) in file.lines_without_tests() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for (word, reason) in forbidden {
                assert!(
                    !line.contains(word),
                    "{}:{number}: `{word}`: {reason}, so that a seed repeats a run",
                    file.path
                );
            }
        }
    }
}
