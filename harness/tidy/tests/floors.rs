//! Within a crate, too, arrows only point down: each folder is a floor, and a floor names and calls
//! only what lies below it.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::{BTreeMap, BTreeSet};

use spindle_tidy::files_ending_with;

/// A crate whose inside has an order.
struct House {
    sources: &'static str,
    /// The floors from the ground up: each a folder, with a head file beside it that says what it is.
    floors: &'static [&'static str],
    /// Files beside the folders, which every floor stands on.
    ground: &'static [&'static str],
    /// Types that several floors give methods to. The methods of any other stand where it does, so
    /// that who names the type names the floor of what it calls.
    shared: &'static [&'static str],
    /// What values of the shared types are called.
    values: &'static [&'static str],
}

const HOUSES: [House; 2] = [
    House {
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
        ground: &["by_number", "error", "event", "incarnation", "levels"],
        shared: &["Core", "Group"],
        values: &["group", "core"],
    },
    House {
        sources: "crates/control/src/",
        floors: &["api", "machine", "opened", "serving", "command"],
        ground: &[],
        shared: &[],
        values: &[],
    },
];

/// A file of the house: its floor (0 is the ground), where it is, and what of it ships.
struct Room {
    floor: usize,
    path: String,
    /// The modules that it lies in, its own the last.
    modules: Vec<String>,
    /// The lines, each with its number; a chain of calls is one line, however it is broken.
    lines: Vec<(usize, String)>,
}

impl House {
    fn floor_of(&self, name: &str) -> usize {
        let place = self.floors.iter().position(|floor| *floor == name);
        place.map_or(0, |floor| floor + 1)
    }

    fn is_shared(&self, name: &str) -> bool {
        self.shared.contains(&name)
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
            let modules: Vec<String> = (inside.trim_end_matches(".rs").split('/'))
                .map(str::to_owned)
                .collect();
            rooms.push(Room {
                floor: self.floor_of(&modules[0]),
                path: file.path.clone(),
                modules,
                lines: whole_chains(file.lines_without_tests()),
            });
        }
        assert!(!rooms.is_empty(), "{} has no sources", self.sources);
        rooms
    }

    /// The methods of the shared types, each with the floors that define one of that name.
    fn methods(&self, rooms: &[Room]) -> BTreeMap<String, BTreeSet<usize>> {
        let mut methods: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for room in rooms {
            let mut is_inside = false;
            for (_, line) in &room.lines {
                if let Some(name) = owner_of_methods(line) {
                    is_inside = self.is_shared(name);
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

impl Room {
    /// The modules that paths of this line begin with, seen from the top of the crate.
    fn names<'a>(&self, line: &'a str) -> Vec<&'a str> {
        let mut names = behind(line, "crate::");
        // As many steps up as the file lies deep lead to the top as well.
        let up = "super::".repeat(self.modules.len());
        names.extend(behind(line, &up));
        names
    }
}

/// Lines with what continues a chain of calls brought onto the line where the chain begins.
fn whole_chains<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut whole: Vec<(usize, String)> = Vec::new();
    for (number, line) in lines {
        let continues = line.trim_start().starts_with('.') && !line.trim_start().starts_with("..");
        match whole.last_mut().filter(|_| continues) {
            Some((_, chain)) => chain.push_str(line.trim_start()),
            None => whole.push((number, line.to_owned())),
        }
    }
    whole
}

/// The type whose own methods begin on this line.
fn owner_of_methods(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?.strip_suffix('{')?;
    // Generic parameters of the block: `impl<'a> Tree<'a> {`.
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let is_of_trait = rest.contains(" for ");
    let name = rest.split(|letter| !is_of_word(letter)).next()?;
    (!is_of_trait && !name.is_empty()).then_some(name)
}

/// The type that this line defines.
fn defined_type(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) => rest.split_once(' ')?.1,
        None => line,
    };
    let rest = ["struct ", "enum ", "type "]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|letter| !is_of_word(letter)).next()
}

/// The calls of a line: what is called, and the last word of what it is called on.
fn calls(line: &str) -> Vec<(&str, &str)> {
    let mut calls = Vec::new();
    for (at, _) in line.match_indices('.') {
        let rest = &line[at + 1..];
        let end = rest.find(|letter| !is_of_word(letter));
        let Some((name, '(')) =
            end.and_then(|end| Some((&rest[..end], rest[end..].chars().next()?)))
        else {
            continue;
        };
        // `self.group().name(` is called on `group`, `(&group).name(` as well.
        let before = line[..at].trim_end_matches("()").trim_end_matches(')');
        let start = before
            .rfind(|letter| !is_of_word(letter))
            .map_or(0, |before| before + 1);
        calls.push((&before[start..], name));
    }
    calls
}

const fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// What stands behind each place where `mark` is in the line.
fn behind<'a>(line: &'a str, mark: &str) -> Vec<&'a str> {
    let starts = line.match_indices(mark).map(|(at, _)| at + mark.len());
    starts
        .map(|at| {
            let rest = &line[at..];
            rest.split(|letter| !is_of_word(letter))
                .next()
                .unwrap_or("")
        })
        .collect()
}

#[test]
fn a_floor_is_a_folder_with_a_head_that_says_what_it_is() {
    for house in &HOUSES {
        let rooms = house.rooms();
        for floor in house.floors {
            let is_head = |room: &&Room| room.modules == [*floor];
            let head = rooms.iter().find(is_head);
            let head = head.unwrap_or_else(|| panic!("{}{floor}.rs is missing", house.sources));
            let says = head
                .lines
                .first()
                .is_some_and(|(_, line)| line.starts_with("//! "));
            assert!(says, "{}: begin with what this floor is", head.path);
        }
        for room in rooms.iter().filter(|room| room.floor == 0) {
            assert!(
                house.ground.contains(&room.modules[0].as_str()),
                "{}: on which floor does it stand? The ground is {:?}",
                room.path,
                house.ground
            );
        }
    }
}

#[test]
fn a_floor_names_only_what_lies_below_it() {
    for house in &HOUSES {
        for room in house.rooms() {
            for (number, line) in &room.lines {
                for name in room.names(line) {
                    let is_module = name.starts_with(|letter: char| letter.is_ascii_lowercase());
                    assert!(
                        is_module,
                        "{}:{number}: name the floor, not what `lib.rs` hands on",
                        room.path,
                    );
                    assert!(
                        house.floor_of(name) <= room.floor,
                        "{}:{number}: `{name}` lies above it: move what it needs further down, or \
                         this further up",
                        room.path,
                    );
                }
            }
        }
    }
}

#[test]
fn the_methods_of_a_type_stand_on_its_floor() {
    for house in &HOUSES {
        let rooms = house.rooms();
        let mut floors: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for room in &rooms {
            for (_, line) in &room.lines {
                if let Some(name) = defined_type(line) {
                    floors.entry(name).or_default().insert(room.floor);
                }
            }
        }
        for room in &rooms {
            for (number, line) in &room.lines {
                let Some(name) = owner_of_methods(line).filter(|name| !house.is_shared(name))
                else {
                    continue;
                };
                assert!(
                    floors
                        .get(name)
                        .is_none_or(|floors| floors.contains(&room.floor)),
                    "{}:{number}: `{name}` stands on another floor: make this a function, or give \
                     it a type of its own",
                    room.path,
                );
            }
        }
    }
}

#[test]
fn a_floor_calls_only_what_lies_below_it() {
    for house in HOUSES.iter().filter(|house| !house.shared.is_empty()) {
        let rooms = house.rooms();
        let methods = house.methods(&rooms);
        assert!(methods.len() > 200, "{} methods were found", methods.len());
        // A method of the same name further down would hide a call upward.
        for (name, floors) in &methods {
            assert!(floors.len() == 1, "`{name}` is defined on two floors");
        }
        let is_of_shared = |(_, line): &(usize, String)| {
            owner_of_methods(line).is_some_and(|name| house.is_shared(name))
        };
        let lowest = rooms
            .iter()
            .filter(|room| room.lines.iter().any(is_of_shared));
        let lowest = lowest.map(|room| room.floor).min().unwrap();
        for room in rooms.iter().filter(|room| room.floor >= lowest) {
            // In a file that has no part of the shared types, `self` is something else.
            let of_self = room.lines.iter().any(is_of_shared);
            for (number, line) in &room.lines {
                for (value, name) in calls(line) {
                    let is_theirs = house.values.contains(&value) || (of_self && value == "self");
                    let Some(floors) = methods.get(name).filter(|_| is_theirs) else {
                        continue;
                    };
                    assert!(
                        floors.iter().all(|floor| *floor <= room.floor),
                        "{}:{number}: calls `{name}`, which is defined on a floor above",
                        room.path,
                    );
                }
            }
        }
    }
}

#[test]
fn a_call_upward_is_seen_however_it_is_written() {
    let lines = [
        (7, "        self.group()"),
        (8, "            .change_disks(&changes)"),
        (9, "            .map(|disks| disks.len())"),
    ];
    let whole = whole_chains(lines.into_iter());
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].0, 7);
    assert!(calls(&whole[0].1).contains(&("group", "change_disks")));
    assert_eq!(calls("(&group).work(now)"), [("group", "work")]);
    let room = |modules: &[&str]| Room {
        floor: 1,
        path: String::new(),
        modules: modules.iter().map(|name| (*name).to_owned()).collect(),
        lines: Vec::new(),
    };
    assert_eq!(room(&["core"]).names("use super::group::Group;"), ["group"]);
    let deep = room(&["core", "disks"]);
    assert_eq!(deep.names("use super::super::group::Group;"), ["group"]);
    assert!(deep.names("use super::Core;").is_empty());
}
