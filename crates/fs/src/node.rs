//! A file, directory or other node in memory.
//!
//! `State` is the truth of the inode while the node is in the table; its row in the catalog may
//! lag behind by sizes and times (then the node is in the set of dirty nodes). `content` orders
//! data: whoever reads or writes holds it shared, whoever moves the end down, punches or appends
//! holds it alone, so that a size and the bytes below it always belong together.

use spindle_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use spindle_base::FileId;
use spindle_catalog::{Edit, Sequence, Table, file_key};
use spindle_format::{Inode, InodeKind};
use spindle_group::{File, Group, Touch, TouchSlot};
use spindle_sync::level::{DeepMutex, DeepRwLock};

use crate::activity::Activity;
use crate::attribute::Attributes;
use crate::behind::Unwritten;
use crate::directory::Listing;
use crate::error::{FsError, FsResult, corrupt_inode};
use crate::kept::KeptBytes;
use crate::levels;
use crate::told::ToldAttributes;
use crate::verify::PageWatch;

/// Where a node was last found: the directory, and the name in it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) parent: FileId,
    pub(crate) name: Box<[u8]>,
}

/// What changes about a node.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) inode: Inode,
    /// References that the kernel holds.
    pub(crate) kernel_count: u64,
    /// Open handles.
    pub(crate) handles_count: u64,
    /// The kernel may hold references that it was given by a process before this one.
    pub(crate) inherited: bool,
    /// Where the journal has what the row lacks.
    pub(crate) touched: Option<TouchSlot>,
    /// Its rows are gone; nothing may be done with it any more.
    pub(crate) removed: bool,
    /// It has an orphan row.
    orphan: bool,
    /// Everything from the end of the file on reads as zeros. False after loading: a crash can
    /// leave bytes that were written before the end moved, or that a truncation did not reach.
    pub(crate) clean_beyond_end: bool,
    /// The newest cut of which a power cut may bring blocks back, until it is durable.
    cut_through: Option<Sequence>,
    /// No extended attribute: saves a row read for each question.
    pub(crate) no_extended: bool,
    /// A recent place, which templates look at; hard links have several.
    pub(crate) place: Option<Place>,
    /// Counts changes of the inode.
    pub(crate) version: u64,
    /// The version of the last change that fdatasync must make durable too.
    pub(crate) essential_version: u64,
    /// The version that the last applied edit had.
    written_version: u64,
    /// The version that is known to be durable.
    pub(crate) durable_version: u64,
    /// How far a row reached with what the disks had. No later one says less unless the file was cut:
    /// a sync may have been answered for it.
    reached_bytes: u64,
    /// Those who write out what waits, all of it.
    writing_out: Vec<WritingOut>,
    /// As many have begun.
    writing_out_count: u64,
}

/// Somebody who writes out what waits of a file.
#[derive(Debug)]
struct WritingOut {
    number: u64,
    /// How long the file was at the beginning, or where it was cut the farthest since: what lies
    /// behind that now came later.
    size_bytes: u64,
}

impl State {
    /// Notes a change of the inode; `essential` where fdatasync must take it.
    pub(crate) fn touch(&mut self, essential: bool) {
        self.version += 1;
        if essential {
            self.essential_version = self.version;
        }
    }

    /// The end moves back.
    pub(crate) fn note_cut(&mut self) {
        self.clean_beyond_end = false;
        for writing in &mut self.writing_out {
            writing.size_bytes = writing.size_bytes.min(self.inode.size_bytes);
        }
    }

    /// The end was moved back by what is durable when this is.
    pub(crate) const fn note_cut_through(&mut self, applied: Sequence) {
        self.cut_through = Some(applied);
    }

    /// No power cut brings blocks back that a cut took.
    pub(crate) const fn forget_cut(&mut self) {
        self.cut_through = None;
    }

    /// Whether a power cut may bring blocks back that a cut took, and what is written to them.
    pub(crate) fn has_young_cut(&mut self, group: &Group) -> bool {
        if (self.cut_through).is_some_and(|through| group.is_durable(through)) {
            self.cut_through = None;
        }
        self.cut_through.is_some()
    }

    /// Somebody begins to write out all that waits; for [`State::end_writing_out`].
    pub(crate) fn begin_writing_out(&mut self) -> u64 {
        self.writing_out_count += 1;
        self.writing_out.push(WritingOut {
            number: self.writing_out_count,
            size_bytes: self.inode.size_bytes,
        });
        self.writing_out_count
    }

    /// It has ended. Where all is written the disks have had all bytes that had made the file so long,
    /// up to where it was cut since: no block that a late write brings takes that back, not even one
    /// which began when the file was shorter.
    pub(crate) fn end_writing_out(&mut self, number: u64, is_written: bool) {
        let mut under_way = self.writing_out.iter();
        let Some(index) = under_way.position(|writing| writing.number == number) else {
            return;
        };
        let ended = self.writing_out.swap_remove(index);
        if is_written {
            self.reached_bytes = self.reached_bytes.max(ended.size_bytes);
        }
    }

    #[cfg(test)]
    pub(crate) const fn is_nobody_writing_out(&self) -> bool {
        self.writing_out.is_empty()
    }

    /// Whether the row in the catalog lags behind.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.written_version < self.version && !self.removed
    }

    /// Whether nobody can reach it any more.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_unused() && !self.inherited
    }

    /// Whether nobody is known who could reach it.
    pub(crate) const fn is_unused(&self) -> bool {
        self.inode.links_count == 0
            && self.kernel_count == 0
            && self.handles_count == 0
            && !self.removed
    }

    /// What the row may lack, for the journal.
    pub(crate) const fn touch_of(&self, id: FileId) -> Touch {
        Touch {
            id,
            size_bytes: self.inode.size_bytes,
            accessed: self.inode.accessed,
            modified: self.inode.modified,
            changed: self.inode.changed,
        }
    }

    /// The rows that make the catalog agree with this state. The orphan row comes and goes with
    /// the last name, in the same edit. A size reaches no farther than what the disks have of what
    /// made the file longer: a power cut would leave zeros there. The row lags behind then, and the
    /// node stays dirty.
    pub(crate) fn rows(&mut self, id: FileId, unwritten: &Unwritten) -> Edit {
        self.note_reached(unwritten);
        self.rows_up_to(id, self.reached_bytes)
    }

    /// As [`Self::rows`], whatever waits.
    pub(crate) fn whole_rows(&mut self, id: FileId, unwritten: &Unwritten) -> Edit {
        self.note_reached(unwritten);
        self.rows_up_to(id, self.inode.size_bytes)
    }

    /// A write that began when the file was shorter than a row says brings blocks that seem to make it
    /// longer; the disks have had bytes of them.
    fn note_reached(&mut self, unwritten: &Unwritten) {
        let had_bytes = unwritten.grown_from_bytes().unwrap_or(u64::MAX);
        self.reached_bytes = self.inode.size_bytes.min(had_bytes.max(self.reached_bytes));
    }

    fn rows_up_to(&mut self, id: FileId, most_bytes: u64) -> Edit {
        assert!(!self.removed, "a removed node has no rows");
        let mut edit = Edit::default();
        let whole_bytes = self.inode.size_bytes;
        self.inode.size_bytes = most_bytes;
        edit.put(Table::Inode, file_key(id), self.inode.encode());
        self.inode.size_bytes = whole_bytes;
        let orphan = self.inode.links_count == 0;
        if orphan && !self.orphan {
            edit.put(Table::Orphan, file_key(id), Vec::new());
        }
        if self.orphan && !orphan {
            edit.delete(Table::Orphan, file_key(id));
        }
        self.orphan = orphan;
        if most_bytes >= whole_bytes {
            self.written_version = self.version;
        } else {
            // Where a change just came the row may lag for the first time.
            self.written_version = self.written_version.min(self.version - 1);
        }
        edit
    }
}

/// A node of the table.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: FileId,
    pub(crate) kind: InodeKind,
    /// The bytes of a regular file.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) content: DeepRwLock<(), levels::Content>,
    pub(crate) state: DeepMutex<State, levels::NodeState>,
    /// A directory's entries in the order of their cookies, while somebody reads them.
    pub(crate) listing: DeepMutex<Option<Listing>, levels::Listing>,
    /// What it was asked for.
    pub(crate) activity: Activity,
    /// What its pages are, where it is a database's.
    pub(crate) pages: PageWatch,
    /// Its blocks that are in memory and are to be written.
    pub(crate) unwritten: Unwritten,
    /// Whether a front door keeps bytes of it.
    pub(crate) kept: Arc<KeptBytes>,
    /// Whether a front door keeps its attributes.
    pub(crate) told: ToldAttributes,
    used: AtomicBool,
}

impl Node {
    /// A write up to `end` failed: bytes of it may lie beyond the end of the file.
    pub(crate) fn note_failed_write(&self, end: u64) {
        let mut state = self.state.lock();
        if end > state.inode.size_bytes {
            state.clean_beyond_end = false;
        }
    }

    /// A node as its row says; not dirty.
    pub(crate) fn loaded(
        id: FileId,
        inode: Inode,
        file: Option<Arc<File>>,
        inherited: bool,
    ) -> Self {
        let orphan = inode.links_count == 0;
        let node = Self::with_state(id, inode, file, orphan, inherited);
        {
            // Its rows are up to date, but the batch that has them may not be durable yet: it can
            // have been evicted meanwhile. So the first fsync asks for a commit.
            let mut state = node.state.lock();
            state.touch(true);
            state.written_version = state.version;
        }
        node
    }

    /// A node that is new: nothing of it is in the catalog, its contents are empty.
    pub(crate) fn fresh(id: FileId, inode: Inode, file: Option<Arc<File>>) -> Self {
        let node = Self::with_state(id, inode, file, false, false);
        {
            let mut state = node.state.lock();
            state.clean_beyond_end = true;
            state.no_extended = true;
            state.touch(true);
        }
        node
    }

    fn with_state(
        id: FileId,
        inode: Inode,
        file: Option<Arc<File>>,
        orphan: bool,
        inherited: bool,
    ) -> Self {
        Self {
            id,
            kind: inode.kind,
            file,
            content: DeepRwLock::new(()),
            state: DeepMutex::new(State {
                reached_bytes: inode.size_bytes,
                writing_out: Vec::new(),
                writing_out_count: 0,
                inode,
                kernel_count: 0,
                handles_count: 0,
                inherited,
                touched: None,
                removed: false,
                orphan,
                clean_beyond_end: false,
                cut_through: None,
                no_extended: false,
                place: None,
                version: 0,
                essential_version: 0,
                written_version: 0,
                durable_version: 0,
            }),
            listing: DeepMutex::new(None),
            activity: Activity::default(),
            pages: PageWatch::default(),
            unwritten: Unwritten::default(),
            kept: Arc::new(KeptBytes::new()),
            told: ToldAttributes::new(inherited),
            used: AtomicBool::new(true),
        }
    }

    /// The bytes below, or what a call on something else answers.
    pub(crate) fn file(&self) -> FsResult<&Arc<File>> {
        match (&self.file, self.kind) {
            (Some(file), _) => Ok(file),
            (None, InodeKind::Directory) => Err(FsError::IsADirectory),
            (None, _) => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// Answers with an error unless this is a directory that still has a name.
    pub(crate) fn check_directory(&self) -> FsResult<()> {
        if self.kind != InodeKind::Directory {
            return Err(FsError::NotADirectory);
        }
        Ok(())
    }

    /// Answers with an error where this is no directory, or one that was removed while open.
    pub(crate) fn check_living_directory(&self) -> FsResult<()> {
        self.check_directory()?;
        if self.state.lock().inode.links_count == 0 {
            return Err(FsError::NotFound);
        }
        Ok(())
    }

    /// What `stat` shows, for somebody who may keep it.
    pub(crate) fn attributes(&self, group: &Group) -> FsResult<Attributes> {
        self.told.note();
        let mut attributes = {
            let state = self.state.lock();
            if state.removed {
                return Err(FsError::NotFound);
            }
            let inode = &state.inode;
            Attributes {
                id: self.id,
                kind: inode.kind.into(),
                permissions: inode.permissions,
                links_count: inode.links_count,
                user: inode.user,
                group: inode.group,
                size_bytes: inode.size_bytes,
                allocated_bytes: 0,
                device: inode.device,
                accessed: inode.accessed.into(),
                modified: inode.modified.into(),
                changed: inode.changed.into(),
                created: inode.created.into(),
            }
        };
        if let Some(file) = &self.file {
            attributes.allocated_bytes = group.allocated_bytes(file);
        }
        Ok(attributes)
    }

    /// Notes a use, for the table's second chance.
    pub(crate) fn note_use(&self) {
        // A plain store each time would move the cache line between processors for nothing.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last question.
    pub(crate) fn take_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether it is needed in memory: by somebody outside the table, or because nothing else knows
    /// that it was cut a moment ago.
    pub(crate) fn is_pinned(&self, group: &Group) -> bool {
        let mut state = self.state.lock();
        state.kernel_count > 0
            || state.handles_count > 0
            || state.is_dirty()
            || state.has_young_cut(group)
    }

    /// Reads a node's rows; `inherited` where the kernel may know it from a process before.
    pub(crate) fn load(group: &Group, id: FileId, inherited: bool) -> FsResult<Self> {
        let Some(inode) = crate::row::read_inode(group, id)? else {
            return Err(FsError::NotFound);
        };
        let file = group.file(id);
        if (inode.kind == InodeKind::Regular) != file.is_some() {
            return Err(corrupt_inode(
                id,
                format!(
                    "inode {id} is of kind {:?}, and the group has {} layout record for it",
                    inode.kind,
                    if file.is_some() { "a" } else { "no" }
                ),
            ));
        }
        Ok(Self::loaded(id, inode, file, inherited))
    }
}
