//! What one thread knows of the names that only it changes.

use std::collections::BTreeMap;

use spindle_base::FileId;
use spindle_device::SeededRandom;

/// Names of each owner in each of the two directories.
const NAMES_COUNT: u64 = 3;

/// Whether it lies in the directory that all share, else in the root; and which of the names.
pub type Place = (bool, u64);

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// An empty directory.
    Directory,
    /// A file; its number, where that was told.
    File(Option<FileId>),
}

/// All names of one owner at a moment.
pub type Names = BTreeMap<Place, Entry>;

/// A change of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Create(Place),
    MakeDirectory(Place),
    Unlink(Place),
    RemoveDirectory(Place),
    Rename(Place, Place),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Owner {
    /// Which thread.
    pub number: u64,
    /// After each change that was answered, the first before all.
    pub states: Vec<Names>,
    /// The oldest of them that a power cut may leave.
    pub durable: usize,
    /// A change that was not answered yet, and the number of its request.
    pub under_way: Option<(u64, Change)>,
    requests_count: u64,
}

impl Owner {
    /// One without any name.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            states: vec![Names::new()],
            durable: 0,
            under_way: None,
            requests_count: 0,
        }
    }

    /// As it stands.
    pub fn names(&self) -> &Names {
        self.states.last().expect("there is a first one")
    }

    /// A change that can be made.
    pub fn draw(&self, random: &mut SeededRandom) -> Change {
        loop {
            let mut place = || (random.chance(1, 2), random.below(NAMES_COUNT));
            let (from, to) = (place(), place());
            let names = self.names();
            let change = match (names.get(&from), names.get(&to)) {
                (None, _) if random.chance(1, 4) => Change::MakeDirectory(from),
                (None, _) => Change::Create(from),
                (Some(Entry::Directory), _) if random.chance(1, 2) => Change::RemoveDirectory(from),
                (Some(Entry::File(_)), _) if random.chance(1, 2) => Change::Unlink(from),
                (Some(Entry::File(_)), Some(Entry::File(_)))
                | (Some(Entry::Directory), Some(Entry::Directory))
                | (Some(_), None)
                    if from != to =>
                {
                    Change::Rename(from, to)
                }
                _ => continue,
            };
            return change;
        }
    }

    /// The number of the request for it.
    pub fn begin(&mut self, change: Change) -> u64 {
        self.requests_count += 1;
        let unique = self.number * 1000 + self.requests_count;
        self.under_way = Some((unique, change));
        unique
    }

    /// It was answered; a new file has this number.
    pub fn end(&mut self, change: Change, made: Option<FileId>) {
        self.under_way = None;
        self.states.push(after(self.names(), change, made));
    }

    /// It was refused: nothing of it is done.
    pub fn refuse(&mut self) {
        self.under_way = None;
    }

    /// The changes that may be found after a kill.
    pub fn after_kill(&self) -> Vec<Names> {
        let now = self.names();
        let then = self.under_way.map(|(_, change)| after(now, change, None));
        std::iter::once(now.clone()).chain(then).collect()
    }

    /// Those that may be found after a power cut.
    pub fn after_cut(&self) -> Vec<Names> {
        let mut all = self.states[self.durable..].to_vec();
        all.extend(self.after_kill().into_iter().skip(1));
        all
    }
}

/// The names after a change.
pub fn after(names: &Names, change: Change, made: Option<FileId>) -> Names {
    let mut names = names.clone();
    match change {
        Change::Create(place) => {
            names.insert(place, Entry::File(made));
        }
        Change::MakeDirectory(place) => {
            names.insert(place, Entry::Directory);
        }
        Change::Unlink(place) | Change::RemoveDirectory(place) => {
            names.remove(&place);
        }
        Change::Rename(from, to) => {
            if let Some(entry) = names.remove(&from) {
                names.insert(to, entry);
            }
        }
    }
    names
}

/// Whether what was found is what is wanted; a file of unknown number may have any.
pub fn is_same(wanted: &Names, found: &Names) -> bool {
    wanted.len() == found.len()
        && wanted
            .iter()
            .all(|(place, entry)| match (entry, found.get(place)) {
                (Entry::File(None), Some(Entry::File(_))) => true,
                (entry, found) => Some(entry) == found,
            })
}
