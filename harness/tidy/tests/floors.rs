//! Within a crate, too, arrows only point down: each folder is a floor, and a floor names and calls
//! only what lies below it.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::{BTreeMap, BTreeSet};

use spindle_tidy::files_ending_with;

/// A crate, its floors from the ground up, and the types whose methods the floors share.
struct House {
    sources: &'static str,
    floors: &'static [&'static str],
    shared: &'static [&'static str],
}

/// Files beside the folders are the ground that every floor stands on.
const GROUP: House = House {
    sources: "crates/group/src/",
    floors: &[
        "quorum",
        "region",
        "core",
        "io",
        "background",
        "change",
        "group",
    ],
    shared: &["Core", "Group"],
};

/// A file of the house: its floor (0 is the ground), where it is, and the lines that ship.
struct Room {
    floor: usize,
    path: String,
    lines: Vec<String>,
}

impl House {
    fn floor_of(&self, name: &str) -> usize {
        let place = self.floors.iter().position(|floor| *floor == name);
        place.map_or(0, |floor| floor + 1)
    }

    /// Whether methods of a shared type begin here.
    fn is_shared(&self, line: &str) -> bool {
        let name = line
            .strip_prefix("impl ")
            .and_then(|line| line.strip_suffix(" {"));
        name.is_some_and(|name| self.shared.contains(&name))
    }

    fn rooms(&self) -> Vec<Room> {
        let files = files_ending_with(&[".rs"]).unwrap().into_iter();
        let mut rooms = Vec::new();
        for file in files.filter(|file| !file.is_test()) {
            let Some(inside) = file.path.strip_prefix(self.sources) else {
                continue;
            };
            // The face of the crate hands on what the floors offer.
            if inside == "lib.rs" {
                continue;
            }
            let first = inside.split(['/', '.']).next().unwrap();
            rooms.push(Room {
                floor: self.floor_of(first),
                path: file.path.clone(),
                lines: (file.lines_without_tests())
                    .map(|(_, line)| line.to_owned())
                    .collect(),
            });
        }
        rooms
    }

    /// The methods of the shared types, each with the floors that define one of that name.
    fn methods(&self, rooms: &[Room]) -> BTreeMap<String, BTreeSet<usize>> {
        let mut methods: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for room in rooms {
            let mut is_inside = false;
            for line in &room.lines {
                if self.is_shared(line) {
                    is_inside = true;
                } else if line == "}" {
                    is_inside = false;
                }
                let Some((before, after)) = line.split_once("fn ") else {
                    continue;
                };
                if is_inside && before.starts_with("    ") && !before.starts_with("     ") {
                    let name = after.split(['(', '<']).next().unwrap();
                    methods
                        .entry(name.to_owned())
                        .or_default()
                        .insert(room.floor);
                }
            }
        }
        methods
    }
}

/// What stands behind each place where `mark` is in the line.
fn behind<'a>(line: &'a str, mark: &str) -> Vec<&'a str> {
    let starts = line.match_indices(mark).map(|(at, _)| at + mark.len());
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    starts
        .map(|at| {
            let rest = &line[at..];
            rest.split(|letter| !is_word(letter)).next().unwrap_or("")
        })
        .collect()
}

#[test]
fn a_floor_of_the_group_names_only_what_lies_below_it() {
    for room in GROUP.rooms() {
        for (index, line) in room.lines.iter().enumerate() {
            for name in behind(line, "crate::") {
                let is_module = name.starts_with(|letter: char| letter.is_ascii_lowercase());
                assert!(
                    is_module,
                    "{}:{}: name the floor, not what `lib.rs` hands on",
                    room.path,
                    index + 1
                );
                assert!(
                    GROUP.floor_of(name) <= room.floor,
                    "{}:{}: `crate::{name}` lies above it: move what it needs further down, or \
                     this further up",
                    room.path,
                    index + 1
                );
            }
        }
    }
}

#[test]
fn a_floor_of_the_group_calls_only_what_lies_below_it() {
    let rooms = GROUP.rooms();
    let methods = GROUP.methods(&rooms);
    assert!(methods.len() > 200, "{} methods were found", methods.len());
    // A method of the same name further down would hide a call upward.
    for (name, floors) in &methods {
        assert!(floors.len() == 1, "`{name}` is defined on two floors");
    }
    let core = GROUP.floor_of("core");
    for room in rooms.iter().filter(|room| room.floor >= core) {
        // In a file that has no part of the shared types, `self` is something else.
        let of_self = room.lines.iter().any(|line| GROUP.is_shared(line));
        for (index, line) in room.lines.iter().enumerate() {
            let mut called = behind(line, " group.");
            called.extend(behind(line, "(group."));
            if of_self {
                called.extend(behind(line, "self."));
            }
            for name in called {
                let Some(floors) = methods.get(name) else {
                    continue;
                };
                let is_call = line.contains(&format!(".{name}("));
                assert!(
                    !is_call || floors.iter().all(|floor| *floor <= room.floor),
                    "{}:{}: calls `{name}`, which is defined on a floor above",
                    room.path,
                    index + 1
                );
            }
        }
    }
}
