//! What a process finds that follows another one, and how everything comes to rest.

use spindle_base::FileId;
use spindle_fs::{Asked, FileSystem, FsResult, Kind};

use super::owner::{self, Entry, Names, Owner, is_same};
use super::{ENTRIES_MOST, FILE_BLOCKS, Plot, Process, locked};
use crate::history::BLOCK_BYTES;
use crate::story::Subject;

impl Process {
    /// What there is of the owner's names.
    fn found(&self, fs: &FileSystem, owner: u64) -> FsResult<Names> {
        let prefix = format!("{owner}.");
        let mut names = Names::new();
        for (is_shared, directory) in [(false, FileId::ROOT), (true, self.shared)] {
            let mut cookie = 0;
            loop {
                let entries = fs.read_directory(directory, cookie, ENTRIES_MOST)?;
                let Some(last) = entries.last() else { break };
                cookie = last.cookie;
                for entry in &entries {
                    let name = String::from_utf8_lossy(&entry.name);
                    let number = name
                        .strip_prefix(&prefix)
                        .and_then(|rest| rest.parse().ok());
                    let Some(number) = number else { continue };
                    let kind = match entry.kind {
                        Kind::Directory => Entry::Directory,
                        _ => Entry::File(Some(entry.id)),
                    };
                    names.insert((is_shared, number), kind);
                }
            }
        }
        Ok(names)
    }

    /// The owner's names are one of those that they may be; that one is what counts from now on.
    pub(super) fn judge_names(&self, fs: &FileSystem, owner: &mut Owner) {
        let number = owner.number;
        let Some(found) = self.answered("a listing", self.found(fs, number)) else {
            return;
        };
        let wanted = if self.was_killed {
            owner.after_kill()
        } else {
            owner.after_cut()
        };
        if !wanted.iter().any(|names| is_same(names, &found)) {
            self.history().violate(format!(
                "process {} finds of owner {number} {found:?}, which is none of {wanted:?}",
                self.number
            ));
            return;
        }
        for entry in found.values() {
            if let Entry::File(Some(id)) = entry {
                self.history().create_unless_known(*id, 2);
            }
        }
        if !self.was_killed {
            owner.states = vec![found];
            owner.durable = 0;
            owner.under_way = None;
        }
    }

    /// As the kernel does it after a kill.
    pub(super) fn send_again(&self, fs: &FileSystem, owner: &mut Owner) {
        let Some((unique, change)) = owner.under_way.take() else {
            return;
        };
        let is_done = fs.group().is_done(unique);
        self.history().note(|| {
            format!("request {unique} for {change:?} is sent again; known as done: {is_done}")
        });
        let number = usize::try_from(owner.number).expect("few");
        let mut wanted = owner::after(owner.names(), change, None);
        if !is_done {
            let asked = Asked {
                now: self.time(),
                request: Some(self.request(number, unique)),
            };
            let answer = self.kept(fs, self.carry_out(fs, number, change, asked));
            let what = format!("{change:?}, sent again,");
            if self.is_refused(change, &answer) {
                wanted = owner.names().clone();
            } else if self.answered(&what, answer).is_none() {
                return;
            }
        }
        let Some(found) = self.answered("a listing", self.found(fs, owner.number)) else {
            return;
        };
        if !is_same(&wanted, &found) {
            self.history().violate(format!(
                "request {unique} for {change:?} was answered, and the names are {found:?} instead \
                 of {wanted:?}"
            ));
        }
        for entry in found.values() {
            if let Entry::File(Some(id)) = entry {
                self.history().create_unless_known(*id, 2);
            }
        }
        owner.states.push(found);
    }

    pub(super) fn judge_data(&self, fs: &FileSystem, owner: &Owner) {
        for entry in owner.names().values() {
            if let Entry::File(Some(id)) = entry {
                self.judge_file(fs, *id);
            }
        }
    }

    /// The files that threads met on hold what they were told.
    pub(super) fn judge_met(&self, fs: &FileSystem) {
        for met in &self.story.files {
            self.judge_file(fs, met.id);
        }
    }

    fn judge_file(&self, fs: &FileSystem, id: FileId) {
        let Some(handle) = self.answered("an open", fs.open_file(id)) else {
            return;
        };
        let length = usize::try_from(FILE_BLOCKS).expect("few") * BLOCK_BYTES;
        let mut bytes = vec![0; length];
        if let Some(read) = self.answered("a read", fs.read(&handle, 0, &mut bytes)) {
            // What is beyond the end is not said.
            bytes[read..].fill(0);
            self.history().judge_end(id, 0, &bytes, !self.was_killed);
        }
    }

    /// Everything comes to rest.
    pub(super) fn end(&mut self, fs: &FileSystem) {
        self.answered("the last sync", fs.sync());
        let owners = locked(&self.owners);
        let files = owners.iter().flat_map(|owner| owner.names().values());
        (self.story.files).extend(files.filter_map(|entry| match entry {
            Entry::File(Some(id)) => Some(Subject {
                id: *id,
                is_mirrored: true,
            }),
            _ => None,
        }));
        if self.story.bring_to_rest(fs.group()) {
            self.story.judge_copies(fs.group());
        }
        if Plot::of(self.story.seed) == Plot::Full && self.story.goes_on() {
            owners.iter().for_each(|owner| self.empty(fs, owner));
        }
        match self.answered("a check of the files", fs.check()) {
            Some(lines) if lines.is_empty() => {}
            Some(lines) => self.history().violate(format!(
                "the check of the files found: {}",
                lines.join("; ")
            )),
            None => {}
        }
    }
}
