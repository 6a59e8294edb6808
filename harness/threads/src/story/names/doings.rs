//! What a thread that owns names does.

use std::ffi::OsString;

use spindle_base::FileId;
use spindle_device::SeededRandom;
use spindle_fs::{Asked, AttributeChange, FileSystem, FsResult, Kind, RenameMode};

use super::owner::{Change, Entry, Owner, Place};
use super::{FILE_BLOCKS, Process, USER, locked};
use crate::history::{BLOCK_BYTES, CUT_END_BLOCK, SECTOR_BYTES, fill};

impl Process {
    /// A thread that owns names.
    pub(super) fn own(&self, fs: &FileSystem, owner: usize) {
        let mut random = self.story.random(u64::from(self.number) * 8 + owner as u64);
        for _ in 0..8 + random.below(16) {
            if !self.story.goes_on() {
                return;
            }
            self.make_room(fs);
            match random.below(13) {
                0..=6 => self.change_names(fs, owner, &mut random),
                which @ 7..=10 => {
                    let Some(id) = self.draw_file(owner, &mut random) else {
                        continue;
                    };
                    match which {
                        7..=8 => self.write(fs, id, &mut random),
                        9 => self.sync_file(fs, id, &mut random),
                        _ => self.resize(fs, id, &mut random),
                    }
                }
                _ => self.sync_all(fs),
            }
        }
    }

    fn change_names(&self, fs: &FileSystem, owner: usize, random: &mut SeededRandom) {
        let (change, unique) = {
            let mut owners = locked(&self.owners);
            let change = owners[owner].draw(random);
            (change, owners[owner].begin(change))
        };
        self.history()
            .note(|| format!("owner {owner} asks for {change:?}, request {unique}"));
        let asked = Asked {
            now: self.time(),
            request: Some(self.request(owner, unique)),
        };
        let answer = self.kept(fs, self.carry_out(fs, owner, change, asked));
        if self.is_refused(change, &answer) {
            self.history()
                .note(|| format!("{change:?} of owner {owner} is refused"));
            locked(&self.owners)[owner].refuse();
            return;
        }
        let what = format!("{change:?} of owner {owner}");
        if let Some(made) = self.answered(&what, answer) {
            self.end_change(&mut locked(&self.owners)[owner], change, made);
        }
    }

    fn end_change(&self, owner: &mut Owner, change: Change, made: Option<FileId>) {
        if let Some(id) = made {
            self.history().create(id, 2);
        }
        owner.end(change, made);
        let number = owner.number;
        self.history()
            .note(|| format!("{change:?} of owner {number} was answered"));
    }

    /// Where a name lies, and what it is.
    pub(super) fn name(&self, owner: usize, (is_shared, number): Place) -> (FileId, OsString) {
        let directory = if is_shared { self.shared } else { FileId::ROOT };
        (directory, format!("{owner}.{number}").into())
    }

    /// What a new file has as its number.
    pub(super) fn carry_out<'a>(
        &self,
        fs: &'a FileSystem,
        owner: usize,
        change: Change,
        asked: Asked<'a>,
    ) -> FsResult<Option<FileId>> {
        let at = |place| self.name(owner, place);
        match change {
            Change::Create(place) => {
                let (parent, name) = at(place);
                let made = fs.make_node(parent, &name, Kind::Regular, 0o644, 0, USER, asked)?;
                Ok(Some(made.id))
            }
            Change::MakeDirectory(place) => {
                let (parent, name) = at(place);
                (fs.make_directory(parent, &name, 0o755, USER, asked)).map(|_| None)
            }
            Change::Unlink(place) => {
                let (parent, name) = at(place);
                fs.unlink(parent, &name, asked).map(|()| None)
            }
            Change::RemoveDirectory(place) => {
                let (parent, name) = at(place);
                fs.remove_directory(parent, &name, asked).map(|()| None)
            }
            Change::Rename(from, to) => {
                let ((parent, name), (to_parent, to_name)) = (at(from), at(to));
                let mode = RenameMode::Replace;
                fs.rename(parent, &name, to_parent, &to_name, mode, asked)
                    .map(|()| None)
            }
        }
    }

    /// One of the owner's files.
    fn draw_file(&self, owner: usize, random: &mut SeededRandom) -> Option<FileId> {
        let owners = locked(&self.owners);
        let files: Vec<FileId> = (owners[owner].names().values())
            .filter_map(|entry| match entry {
                Entry::File(id) => *id,
                Entry::Directory => None,
            })
            .collect();
        (!files.is_empty()).then(|| files[random.index(files.len())])
    }

    pub(super) fn write(&self, fs: &FileSystem, id: FileId, random: &mut SeededRandom) {
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let first = random.below(FILE_BLOCKS);
        let end = (first + 1 + random.below(3)).min(FILE_BLOCKS);
        let version = self.story.version();
        let mut data = vec![0; usize::try_from(end - first).expect("few") * BLOCK_BYTES];
        fill(&mut data, id, first, version);
        let place = self.history().begin_write(id, (first, end), version);
        let at = first * BLOCK_BYTES as u64;
        let answer = if random.chance(1, 3) {
            fs.write(&handle, at, &data, false, self.time())
        } else {
            // A part of a block takes the rest of it from memory or from the disks. A kill may come
            // between the two, which must not cut what is judged.
            let (front, rest) =
                data.split_at(random.index(BLOCK_BYTES / SECTOR_BYTES) * SECTOR_BYTES);
            let behind = |at, part: &[u8]| fs.write_behind(&handle, at, part.into(), self.time());
            behind(at, front).and_then(|()| behind(at + front.len() as u64, rest))
        };
        let answer = self.kept(fs, answer);
        let ok = self.unless_full("a write", answer).is_some();
        self.history().end_write(id, place, ok);
    }

    /// Cuts a file off, lets it grow by zeros, or gives it space behind its end.
    pub(super) fn resize(&self, fs: &FileSystem, id: FileId, random: &mut SeededRandom) {
        let first = random.below(FILE_BLOCKS);
        let at = first * BLOCK_BYTES as u64;
        if random.chance(1, 4) {
            let Some(handle) = self.answered("an open", fs.open_file(id)) else {
                return;
            };
            self.history()
                .note(|| format!("space for {id} from {first}"));
            let blocks = (1 + random.below(3)) * BLOCK_BYTES as u64;
            let answer = fs.allocate(&handle, at, blocks, 0, self.time());
            self.unless_full("an allocation", self.kept(fs, answer));
            return;
        }
        let change = AttributeChange {
            size_bytes: Some(at),
            ..AttributeChange::default()
        };
        let place = self.history().begin_write(id, (first, CUT_END_BLOCK), 0);
        let answer = self.kept(fs, fs.set_attributes(id, &change, self.time()));
        let ok = self.answered("a truncation", answer).is_some();
        self.history().end_write(id, place, ok);
    }

    pub(super) fn sync_file(&self, fs: &FileSystem, id: FileId, random: &mut SeededRandom) {
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let begun = self.history().tick();
        let answer = fs.sync_file(&handle, random.chance(1, 2));
        let ok = self.answered("a sync", answer).is_some();
        self.history().end_sync(id, begun, ok);
    }

    /// As fsync of a directory does it.
    pub(super) fn sync_all(&self, fs: &FileSystem) {
        let begun = self.history().tick();
        let (standing, files): (Vec<usize>, Vec<FileId>) = {
            let owners = locked(&self.owners);
            let standing = owners.iter().map(|owner| owner.states.len() - 1);
            let entries = owners.iter().flat_map(|owner| owner.names().values());
            let files = entries.filter_map(|entry| match entry {
                Entry::File(id) => *id,
                Entry::Directory => None,
            });
            let met = self.story.files.iter().map(|met| met.id);
            (standing.collect(), files.chain(met).collect())
        };
        if self.answered("a sync of all", fs.sync()).is_none() {
            return;
        }
        for id in files {
            self.history().end_sync(id, begun, true);
        }
        for (owner, standing) in locked(&self.owners).iter_mut().zip(standing) {
            owner.durable = owner.durable.max(standing);
        }
    }
}
