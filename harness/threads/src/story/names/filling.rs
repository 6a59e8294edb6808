//! A catalog that is full: what would make it larger may be refused, and nothing else may.

use spindle_base::FileId;
use spindle_fs::{FileSystem, FsError, FsResult, Kind};
use spindle_group::GroupErrorKind;

use super::owner::{Change, Entry, Owner};
use super::{Plot, Process, USER};

/// Values that fill it, the largest first: where one finds no room, the next one may.
const VALUES_BYTES: [usize; 3] = [60_000, 4_000, 1];
/// Attributes of one file.
const ATTRIBUTES_MOST: usize = 16;

const fn is_no_space(error: &FsError) -> bool {
    matches!(error, FsError::Group(error) if matches!(error.kind, GroupErrorKind::NoSpace))
}

/// Whether the change may be refused where there is no room.
const fn may_be_refused(change: Change) -> bool {
    matches!(
        change,
        Change::Create(_) | Change::MakeDirectory(_) | Change::Rename(..)
    )
}

impl Process {
    /// Fills the catalog of the new group with attributes, and takes a few of them away.
    pub(super) fn fill(&self, fs: &FileSystem) {
        let mut random = self.story.random(50);
        let mut made = Vec::new();
        for bytes in VALUES_BYTES {
            'full: for file in 0.. {
                let name = format!("filling.{bytes}.{file}");
                let root = FileId::ROOT;
                let node = fs.make_node(
                    root,
                    name.as_ref(),
                    Kind::Regular,
                    0o644,
                    0,
                    USER,
                    self.time(),
                );
                let Some(node) = self.unless_full("a new file", node) else {
                    break;
                };
                for number in 0..ATTRIBUTES_MOST {
                    let name = format!("user.{number}");
                    let value = vec![1; bytes];
                    let set = fs.set_extended_attribute(
                        node.id,
                        name.as_ref(),
                        &value,
                        false,
                        false,
                        self.time(),
                    );
                    if self.unless_full("an attribute", set).is_none() {
                        break 'full;
                    }
                    made.push((node.id, name));
                }
            }
        }
        // The last ones are the smallest. In some runs there is a little more room.
        if random.chance(1, 4) {
            let (any, last) = (random.index(made.len()), made.len() - 1);
            made.swap(any, last);
        }
        for _ in 0..random.below(4) {
            let Some((id, name)) = made.pop() else { break };
            let removed = fs.remove_extended_attribute(id, name.as_ref(), self.time());
            self.answered("the removal of an attribute", removed);
        }
        self.history()
            .note(|| format!("{} attributes fill the catalog", made.len()));
    }

    /// As [`Process::answered`], of what may be refused for want of room.
    pub(super) fn unless_full<T>(&self, what: &str, answer: FsResult<T>) -> Option<T> {
        match answer {
            Err(error) if Plot::of(self.story.seed) == Plot::Full && is_no_space(&error) => {
                self.history()
                    .note(|| format!("{what} is refused: {error}"));
                None
            }
            answer => self.answered(what, answer),
        }
    }

    /// Whether a change was refused that may be: then nothing of it is done.
    pub(super) fn is_refused<T>(&self, change: Change, answer: &FsResult<T>) -> bool {
        Plot::of(self.story.seed) == Plot::Full
            && may_be_refused(change)
            && answer.as_ref().is_err_and(is_no_space)
    }

    /// However full the catalog is, all that an owner made can be removed.
    pub(super) fn empty(&self, fs: &FileSystem, owner: &Owner) {
        let number = usize::try_from(owner.number).expect("few");
        for (place, entry) in owner.names() {
            let (parent, name) = self.name(number, *place);
            let removed = match entry {
                Entry::Directory => fs.remove_directory(parent, &name, self.time()),
                Entry::File(_) => fs.unlink(parent, &name, self.time()),
            };
            self.answered("a removal", removed);
        }
        self.answered("a sync of all", fs.sync());
    }
}
