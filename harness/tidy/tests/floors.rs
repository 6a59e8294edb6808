//! Within a crate, too, arrows only point down: each folder is a floor, and a floor names and calls
//! only what lies below it.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::collections::{BTreeMap, BTreeSet};

use spindle_tidy::{SourceFile, files_ending_with};

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
    /// The crates that its values come from beside its own. A method that one of their types has too
    /// is told from one of a shared type only by what the value is called.
    below: &'static [&'static str],
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
            "front",
        ],
        ground: &["by_number", "error", "event", "incarnation", "levels"],
        shared: &["Core", "Group"],
        values: &["group", "core"],
        below: &[
            "base", "catalog", "device", "extent", "format", "pages", "sync",
        ],
    },
    House {
        sources: "crates/control/src/",
        floors: &["api", "machine", "opened", "serving", "command"],
        ground: &[],
        shared: &[],
        values: &[],
        below: &[],
    },
];

/// A file of the house: its floor (0 is the ground), where it is, and what of it ships.
struct Room {
    floor: usize,
    path: String,
    /// The modules that it lies in, its own the last.
    modules: Vec<String>,
    /// The lines, each with its number; a chain of calls is one line, however it is broken, and so is
    /// a `use`.
    lines: Vec<(usize, String)>,
}

impl House {
    fn floor_of(&self, name: &str) -> usize {
        let place = self.floors.iter().position(|floor| *floor == name);
        place.map_or(0, |floor| floor + 1)
    }

    /// Whether the name is a floor or stands on the ground.
    fn has(&self, name: &str) -> bool {
        self.floors.contains(&name) || self.ground.contains(&name)
    }

    /// How the head of a floor begins.
    fn place_of(&self, floor: usize) -> String {
        let count = self.floors.len();
        let above = (floor > 1).then(|| format!("above `{}`", self.floors[floor - 2]));
        let below = (floor < count).then(|| format!("below `{}`", self.floors[floor]));
        let between: Vec<String> = above.into_iter().chain(below).collect();
        format!("//! Floor {floor} of {count}, {}: ", between.join(" and "))
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
            for (owner, name) in defined_methods(&room.lines) {
                if owner.is_some_and(|owner| self.is_shared(owner)) {
                    methods
                        .entry(name.to_owned())
                        .or_default()
                        .insert(room.floor);
                }
            }
        }
        methods
    }

    /// The names of methods that other types than the shared ones have, here and in the crates below.
    fn other_methods(&self, rooms: &[Room]) -> BTreeSet<String> {
        let files = files_ending_with(&[".rs"]).unwrap();
        let is_below = |file: &&SourceFile| {
            let below = self.below.iter();
            !file.is_test()
                && below
                    .map(|name| format!("crates/{name}/src/"))
                    .any(|folder| file.path.starts_with(&folder))
        };
        let mut names = BTreeSet::new();
        for file in files.iter().filter(is_below) {
            let lines = whole_chains(file.lines_without_tests());
            names.extend(defined_methods(&lines).map(|(_, name)| name.to_owned()));
        }
        for room in rooms {
            let others = defined_methods(&room.lines)
                .filter(|(owner, _)| !owner.is_some_and(|owner| self.is_shared(owner)));
            names.extend(others.map(|(_, name)| name.to_owned()));
        }
        names
    }

    /// What values of the shared types are called that this line declares.
    fn other_names<'a>(&self, line: &'a str) -> Vec<&'a str> {
        if is_comment(line) {
            return Vec::new();
        }
        let mut names: Vec<&str> = (self.shared.iter())
            .flat_map(|of| values_of(line, of))
            .collect();
        names.extend(
            self.values
                .iter()
                .filter_map(|value| other_name_of(line, value)),
        );
        names
    }

    /// Whether a call is of one of the shared types' methods: by the name of the value or of the type,
    /// or because no other type has such a method.
    fn is_theirs(&self, value: &str, name: &str, others: &BTreeSet<String>) -> bool {
        self.values.contains(&value) || self.is_shared(value) || !others.contains(name)
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

/// Lines with what continues a chain of calls, or a `use`, brought onto the line where it begins.
fn whole_chains<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut whole: Vec<(usize, String)> = Vec::new();
    for (number, line) in lines {
        let line_begins = line.trim_start();
        let continues = line_begins.starts_with('.') && !line_begins.starts_with("..");
        let continues_use =
            |before: &str| used_path(before).is_some() && !before.trim_end().ends_with(';');
        match whole.last_mut() {
            Some((_, before)) if continues || continues_use(before) => before.push_str(line_begins),
            _ => whole.push((number, line.to_owned())),
        }
    }
    whole
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// What stands behind the `use` of this line.
fn used_path(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    line.strip_prefix("use ")
}

/// Whether a `use` leads somewhere by a way that [`Room::names`] does not follow: another name for
/// the top of the crate or of a module above, or a way up within braces.
fn hides_where_it_leads(line: &str) -> bool {
    let Some(path) = used_path(line) else {
        return false;
    };
    let another_name = ["crate", "super", "self"];
    let mut another_name = another_name.iter().map(|name| format!("{name} as "));
    let within = path.split_once('{').map_or("", |(_, within)| within);
    another_name.any(|name| path.contains(&name)) || within.contains("super") || path == "crate;"
}

/// The methods that these lines define, each with its type where that is not a trait's block.
fn defined_methods(lines: &[(usize, String)]) -> impl Iterator<Item = (Option<&str>, &str)> {
    let mut owner = None;
    lines.iter().filter_map(move |(_, line)| {
        if let Some(name) = owner_of_methods(line) {
            owner = Some(name);
        } else if line == "}" {
            owner = None;
        }
        let (before, after) = line.split_once("fn ")?;
        let is_within = before.starts_with("    ") && !before.starts_with("     ");
        (is_within && !is_comment(line)).then(|| {
            let end = after.find(|letter| !is_of_word(letter));
            (owner, &after[..end.unwrap_or(after.len())])
        })
    })
}

/// Whether this line begins a block of methods whose type [`owner_of_methods`] does not find: a head
/// over several lines, or a type by its path.
fn is_head_unread(line: &str) -> bool {
    let head = line.trim_start();
    let Some(rest) = head.strip_prefix("impl") else {
        return false;
    };
    // A macro's own parameter names a type of where it is used.
    if !rest.starts_with([' ', '<']) || rest.starts_with(" $") || head.contains(" for ") {
        return false;
    }
    let rest = owner_of_methods(head).and_then(|owner| head.split_once(owner));
    !rest.is_some_and(|(_, rest)| rest.starts_with([' ', '<']))
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
    let rest = ["struct ", "enum "]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|letter| !is_of_word(letter)).next()
}

/// What the values of this type are called that the line declares.
fn values_of<'a>(line: &'a str, of: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    for (at, _) in line.match_indices(of) {
        if line[at + of.len()..].starts_with(is_of_word) {
            continue;
        }
        let mut before = &line[..at];
        loop {
            let shorter = ["&", "mut ", "Arc<", "Option<"]
                .iter()
                .find_map(|mark| before.strip_suffix(mark))
                // A lifetime, or a part of the type's path.
                .or_else(|| {
                    let (start, name) = before.strip_suffix(' ')?.rsplit_once('\'')?;
                    name.chars().all(is_of_word).then_some(start)
                })
                .or_else(|| {
                    let path = before.strip_suffix("::")?;
                    let module = last_word(path);
                    // `Scope::Group` is another type's.
                    let is_module = module.starts_with(|letter: char| letter.is_ascii_lowercase());
                    is_module.then(|| &path[..path.len() - module.len()])
                });
            match shorter {
                Some(shorter) => before = shorter,
                None => break,
            }
        }
        if let Some(before) = before.strip_suffix(": ") {
            values.push(last_word(before));
        }
    }
    values
}

/// The name that `let` gives to what is called `value`.
fn other_name_of<'a>(line: &'a str, value: &str) -> Option<&'a str> {
    let (name, is) = line.trim_start().strip_prefix("let ")?.split_once(" = ")?;
    let is = is.trim_end_matches(';').trim_end_matches(".clone()");
    let is = is.strip_prefix("Arc::clone(").unwrap_or(is);
    let is = is.trim_end_matches(['(', ')']).trim_start_matches('&');
    let is = is.strip_prefix("self.").unwrap_or(is);
    (is == value).then_some(name.trim_start_matches("mut "))
}

fn last_word(text: &str) -> &str {
    let start = text.rfind(|letter| !is_of_word(letter));
    &text[start.map_or(0, |before| before + 1)..]
}

/// The calls of a line: what is called, and the last word of what it is called on, which may be a
/// type.
fn calls(line: &str) -> Vec<(&str, &str)> {
    let mut calls = Vec::new();
    if is_comment(line) {
        return calls;
    }
    // A method that is handed over is called as well: `.map(Group::name)`.
    for (at, _) in line.match_indices("::") {
        let rest = &line[at + 2..];
        let end = rest.find(|letter| !is_of_word(letter));
        // `<Group>::name` is one of `Group`.
        let owner = last_word(line[..at].trim_end_matches('>'));
        if owner.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            calls.push((owner, &rest[..end.unwrap_or(rest.len())]));
        }
    }
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
        calls.push((last_word(before), name));
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
            let place = house.place_of(head.floor);
            let says = head
                .lines
                .first()
                .is_some_and(|(_, line)| line.starts_with(&place));
            assert!(says, "{}: begin with `{place}`", head.path);
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
                assert!(
                    !hides_where_it_leads(line),
                    "{}:{number}: write each path from the top of the crate",
                    room.path,
                );
                for name in room.names(line) {
                    assert!(
                        house.has(name),
                        "{}:{number}: `{name}` is neither a floor nor the ground: name the floor, \
                         not what `lib.rs` hands on",
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
                // What is defined within something else is found by nobody either.
                let within = owner_of_methods(line.trim_start())
                    .is_some_and(|owner| line.starts_with(' ') && house.is_shared(owner));
                assert!(
                    !is_head_unread(line) && !within,
                    "{}:{number}: begin the block on one line, at its beginning, with the bare name \
                     of the type",
                    room.path,
                );
                let Some(name) = owner_of_methods(line).filter(|name| !house.is_shared(name))
                else {
                    continue;
                };
                assert!(
                    floors
                        .get(name)
                        .is_some_and(|floors| floors.contains(&room.floor)),
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
        let others = house.other_methods(&rooms);
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
                for named in house.other_names(line) {
                    assert!(
                        house.values.contains(&named),
                        "{}:{number}: call `{named}` one of {:?}, so that its calls are seen",
                        room.path,
                        house.values
                    );
                }
                for (value, name) in calls(line) {
                    let is_theirs = house.is_theirs(value, name, &others)
                        || (of_self && matches!(value, "self" | "Self"));
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
    // By its type, called or handed over.
    let of_type = ("Group", "change_disks");
    assert!(calls("Group::change_disks(group, &changes)").contains(&of_type));
    assert!(calls("changes.map(crate::background::Group::change_disks)").contains(&of_type));
    assert!(calls("<Group>::change_disks(group, &changes)").contains(&of_type));
    assert_eq!(calls("    /// As [`Group::change_disks`]"), []);
    // By a value of another name: no other type has such a method, and the name is refused.
    let house = &HOUSES[0];
    let others = BTreeSet::from(["view".to_owned()]);
    assert!(house.is_theirs("g", "change_disks", &others));
    assert!(!house.is_theirs("scrub", "view", &others));
    for line in [
        "fn judge(g: &Group, now_s: u64) {",
        "    g: &'a Arc<crate::background::Group>,",
        "        let g = group;",
        "        let mut g = Arc::clone(&self.group);",
        "        let g = self.group();",
    ] {
        assert_eq!(house.other_names(line), ["g"], "{line}");
    }
    assert_eq!(house.other_names("fn judge(group: &Group) {"), ["group"]);
    assert!(house.other_names("    groups: Vec<GroupView>,").is_empty());
    assert!(house.other_names("    scope: Scope::Group,").is_empty());
    assert!(house.other_names("    /// let g = group").is_empty());
    let room = |modules: &[&str]| Room {
        floor: 1,
        path: String::new(),
        modules: modules.iter().map(|name| (*name).to_owned()).collect(),
        lines: Vec::new(),
    };
    assert_eq!(room(&["core"]).names("use super::front::Group;"), ["front"]);
    let deep = room(&["core", "disks"]);
    assert_eq!(deep.names("use super::super::front::Group;"), ["front"]);
    assert!(deep.names("use super::Core;").is_empty());
    // Within a module of the file one step more leads to the top.
    let up = "        use super::super::super::front::Group;";
    assert_eq!(deep.names(up), ["super"]);
    // What `lib.rs` hands on is no floor, be it a type or a function.
    for name in ["super", "Group", "change_disks", ""] {
        assert!(!house.has(name), "{name}");
    }
    assert!(house.has("core") && house.has("event"));
    for line in [
        "use crate as top;",
        "use super::super as top;",
        "pub(crate) use super::{super::front::Group, Core};",
        "use super::super::{self as top};",
    ] {
        assert!(hides_where_it_leads(line), "{line}");
    }
    assert!(!hides_where_it_leads("use super::{Core, File};"));
    let lines = [
        (1, "use super::{"),
        (2, "    super::front::Group,"),
        (3, "};"),
        (4, "fn f() {}"),
    ];
    let whole = whole_chains(lines.into_iter());
    assert_eq!(whole.len(), 2);
    assert!(hides_where_it_leads(&whole[0].1));
}

#[test]
fn a_block_of_methods_is_read_or_refused() {
    for line in [
        "impl crate::core::Core {",
        "impl<T> Group",
        "impl<T: Fn() -> u8> Group {",
    ] {
        assert!(is_head_unread(line), "{line}");
    }
    for line in [
        "impl Group {",
        "impl<'a> Tree<'a> {",
        "impl<T: Into<Vec<u8>>> Tree<T> {",
        "impl std::ops::Deref for Group {",
        "impl Eq for GroupError {}",
        "implements(now)",
        "        impl EventKind {",
        "        impl $name {",
    ] {
        assert!(!is_head_unread(line), "{line}");
    }
}
