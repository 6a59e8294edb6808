//! The file system as a whole: making it, opening it, and what its operations share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table, file_key};
use spindle_format::{Inode, InodeKind};
use spindle_group::{Change, File, Group, Layout, RequestUnderWay};
use spindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use spindle_sync::level::{DeepRwLock, LeafMutex, LeafRwLock};

use crate::attribute::{Attributes, Owner, Time};
use crate::behind::Behind;
use crate::error::{FsError, FsResult, corrupt, corrupt_inode};
use crate::levels;
use crate::node::{Node, State};
use crate::node_table::NodeTable;
use crate::page_judge::PathJudge;
use crate::redundancy::{Marks, read_marks};
use crate::row::{NEXT_FILE_ID_KEY, TEMPLATES_KEY};
use crate::template::{Template, read_templates, templates_of_profile, write_templates};

/// Nodes kept in memory that nobody refers to: some 20 MiB.
const NODES_COUNT: usize = 1 << 16;

/// File ids that one row reserves. A crash loses what is left of them, which is nothing of 2^64.
const IDS_PER_RESERVATION: u64 = 1024;

/// The cookie of the first entry of a directory; 1 and 2 are "." and "..".
pub(crate) const FIRST_COOKIE: u64 = 3;

/// The files of one group.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) core: Arc<Core>,
}

/// Which ids are next.
#[derive(Debug)]
struct Ids {
    next: u64,
    /// Ids below it may be given without a new row.
    reserved_until: u64,
}

/// What the steps know of changes that came and went.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// As many changes were seen.
    pub(crate) seen_count: u64,
    /// Since when there were no others.
    pub(crate) since_ms: u64,
    /// So many are durable.
    pub(crate) durable_count: u64,
}

/// What the operations and the handles share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) group: Arc<Group>,
    pub(crate) nodes: NodeTable,
    /// Held shared to look names up, alone to change them. All of an operation's checks and its
    /// change lie under it, so that what was checked still holds.
    pub(crate) names: DeepRwLock<(), levels::Names>,
    /// The row of a reservation is applied under it: above the catalog's own locks.
    ids: LeafMutex<Ids>,
    /// Nodes whose rows lag behind, in the order of their ids.
    dirty: LeafMutex<BTreeMap<FileId, Arc<Node>>>,
    /// Directories with a listing in memory and its length, the latest last.
    pub(crate) listed: LeafMutex<VecDeque<(FileId, usize)>>,
    pub(crate) templates: LeafRwLock<Arc<Vec<Template>>>,
    /// What people have said of the redundancy of files and directories.
    pub(crate) marks: LeafRwLock<Arc<Marks>>,
    /// When dirty nodes were last written, on the clock of `FileSystem::step`.
    pub(crate) aged_ms: LeafMutex<Option<u64>>,
    /// Counts what is done, so that `FileSystem::step` sees when nothing is.
    pub(crate) changes_count: AtomicU64,
    pub(crate) quiet: LeafMutex<Quiet>,
    /// The mount is older than this process: the kernel knows nodes that it was told of before.
    /// Until that mount has ended.
    pub(crate) inherits: AtomicBool,
    /// How often a front door was told to forget attributes.
    pub(crate) forgettings_count: AtomicU64,
    /// Files without a name of which only the kernel knows whether they are in use.
    pub(crate) doubtful_orphans: LeafMutex<BTreeSet<FileId>>,
    /// Whether reads verify the pages of databases.
    pub(crate) verifies: AtomicBool,
    /// What is to be written of all files.
    pub(crate) behind: Behind,
}

/// The parts of one operation, which reach one commit together. Memory only: whoever holds it
/// must not read rows or bytes.
pub(crate) struct Operation<'a> {
    core: &'a Core,
    change: Change<'a>,
}

impl FileSystem {
    /// Makes the root directory and the profile's templates in a fresh group, durably.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a profile that is not known, [`FsError::Exists`] where the group
    /// has a root already, or what the group says.
    pub fn create(group: &Arc<Group>, owner: Owner, now: Time) -> FsResult<()> {
        let templates = templates_of_profile(&group.view().profile)?;
        if crate::row::read_inode(group, FileId::ROOT)?.is_some() {
            return Err(FsError::Exists);
        }
        let mut root = new_inode(InodeKind::Directory, 0o755, owner, FileId::ROOT, now)?;
        root.links_count = 2;
        let mut edit = Edit::default();
        edit.put(Table::Inode, file_key(FileId::ROOT), root.encode());
        edit.put(
            Table::Attribute,
            NEXT_FILE_ID_KEY.to_vec(),
            (FileId::ROOT.0 + 1).to_le_bytes().to_vec(),
        );
        edit.put(
            Table::Attribute,
            TEMPLATES_KEY.to_vec(),
            write_templates(&templates).into_bytes(),
        );
        group.apply(&group.change(), edit);
        group.sync()?;
        Ok(())
    }

    /// Opens the files of `group`; removes orphans that a crash left.
    ///
    /// # Errors
    /// What the group says, or that it has no root directory or damaged rows.
    pub fn open(group: Arc<Group>) -> FsResult<Self> {
        Self::open_kept(group, false)
    }

    /// As [`FileSystem::open`], which begins the group's journal where a keeper holds one; with
    /// `inherits` the kernel has a mount that an earlier process served. Files without a name stay then, until [`FileSystem::disinherit`] says that the
    /// kernel does not know them.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn open_kept(group: Arc<Group>, inherits: bool) -> FsResult<Self> {
        Self::open_holding(group, inherits, NODES_COUNT)
    }

    /// As [`FileSystem::open_kept`], with so many nodes in memory that nobody refers to.
    pub(crate) fn open_holding(
        group: Arc<Group>,
        inherits: bool,
        nodes_count: usize,
    ) -> FsResult<Self> {
        let next = match group.get(Table::Attribute, NEXT_FILE_ID_KEY)? {
            Some(bytes) => match <[u8; 8]>::try_from(bytes) {
                Ok(bytes) if u64::from_le_bytes(bytes) > FileId::ROOT.0 => {
                    u64::from_le_bytes(bytes)
                }
                _ => return Err(corrupt("the next file id is no number above 1".to_owned())),
            },
            None => {
                return Err(corrupt(
                    "the group has no files yet: its making was interrupted; destroy it and make \
                     it again"
                        .to_owned(),
                ));
            }
        };
        let templates = read_templates(&group)?;
        let marks = read_marks(&group)?;
        let core = Arc::new(Core {
            nodes: NodeTable::new(Arc::clone(&group), nodes_count),
            group,
            names: DeepRwLock::new(()),
            ids: LeafMutex::new(Ids {
                next,
                reserved_until: next,
            }),
            dirty: LeafMutex::default(),
            listed: LeafMutex::default(),
            templates: LeafRwLock::new(Arc::new(templates)),
            marks: LeafRwLock::new(Arc::new(marks)),
            aged_ms: LeafMutex::new(None),
            changes_count: AtomicU64::new(0),
            quiet: LeafMutex::default(),
            inherits: AtomicBool::new(inherits),
            forgettings_count: AtomicU64::new(0),
            doubtful_orphans: LeafMutex::default(),
            verifies: AtomicBool::new(true),
            behind: Behind::default(),
        });
        core.node(FileId::ROOT)?.check_living_directory()?;
        let lost = core.take_unwritten();
        // Before anything is changed here: what an earlier process left in its journal would come
        // back over it if this one were killed too.
        core.group.begin_journal()?;
        core.forget_lost(lost);
        core.remove_orphans()?;
        core.group.set_page_judge(Arc::new(PathJudge::new(&core)));
        Ok(Self { core })
    }

    /// The group below.
    #[must_use]
    pub fn group(&self) -> &Arc<Group> {
        &self.core.group
    }

    /// The permission bits alone, for somebody who does not tell the kernel of them.
    ///
    /// # Errors
    /// [`FsError::NotFound`], or what the group says.
    pub fn permissions(&self, id: FileId) -> FsResult<u16> {
        let node = self.core.node(id)?;
        let state = node.state.lock();
        if state.removed {
            return Err(FsError::NotFound);
        }
        Ok(state.inode.permissions)
    }

    /// What `stat` shows. Whoever it is may keep it, see [`crate::Handle::forget_attributes`].
    ///
    /// # Errors
    /// [`FsError::NotFound`], or what the group says.
    pub fn attributes(&self, id: FileId) -> FsResult<Attributes> {
        self.core.node(id)?.attributes(&self.core.group)
    }

    /// The templates, in the order in which they are tried.
    #[must_use]
    pub fn templates(&self) -> Vec<Template> {
        self.core.templates.read().as_ref().clone()
    }

    /// Replaces the templates, for files made from now on; durable at the next sync.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name or a pattern that cannot be stored.
    pub fn set_templates(&self, templates: Vec<Template>) -> FsResult<()> {
        templates.iter().try_for_each(Template::check)?;
        let mut edit = Edit::default();
        edit.put(
            Table::Attribute,
            TEMPLATES_KEY.to_vec(),
            write_templates(&templates).into_bytes(),
        );
        // Under the lock, so that memory and rows agree on which of two came last.
        let _names = self.core.names.write();
        self.core.begin().rows(edit);
        *self.core.templates.write() = Arc::new(templates);
        Ok(())
    }
}

/// An inode with one name and no contents.
pub(crate) fn new_inode(
    kind: InodeKind,
    permissions: u16,
    owner: Owner,
    parent: FileId,
    now: Time,
) -> FsResult<Inode> {
    let now = now.stamp()?;
    Ok(Inode {
        kind,
        permissions: permissions & 0o7777,
        flags: 0,
        user: owner.user,
        group: owner.group,
        links_count: 1,
        device: 0,
        size_bytes: 0,
        parent: Some(parent),
        next_cookie: if kind == InodeKind::Directory {
            FIRST_COOKIE
        } else {
            0
        },
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        target: Vec::new(),
    })
}

impl Core {
    /// The node, from memory or from its rows.
    pub(crate) fn node(&self, id: FileId) -> FsResult<Arc<Node>> {
        let (node, was_parked) = self.get_or_load(id)?;
        if was_parked {
            self.note_unparked(&node);
        }
        Ok(node)
    }

    /// The node, and whether blocks waited for it to be loaded: then it is to be given to
    /// [`Core::note_unparked`].
    pub(crate) fn get_or_load(&self, id: FileId) -> FsResult<(Arc<Node>, bool)> {
        let mut was_parked = false;
        let node = self.nodes.get_or_load(id, || {
            // Under the shard's lock: whoever ends the inheritance looks at its nodes afterwards.
            let inherits = self.inherits.load(Ordering::Acquire);
            let forgettings_count = self.forgettings_count.load(Ordering::SeqCst);
            let node = Node::load(&self.group, id, inherits)?;
            // It may have been here before, and have gone from memory since.
            node.told.note_forgotten(forgettings_count);
            was_parked = self.take_parked(&node);
            Ok(node)
        })?;
        Ok((node, was_parked))
    }

    /// The node that an entry leads to; that it is missing is then a contradiction.
    pub(crate) fn node_of_entry(&self, id: FileId) -> FsResult<Arc<Node>> {
        self.node(id).map_err(|error| match error {
            FsError::NotFound => corrupt_inode(
                id,
                format!("an entry leads to inode {id}, which is missing"),
            ),
            other => other,
        })
    }

    /// The id that the next file gets.
    pub(crate) fn next_id_to_give(&self) -> u64 {
        self.ids.lock().next
    }

    /// Ids up to this one are in use, whatever the row says.
    pub(crate) fn give_ids_above(&self, last: FileId) {
        let mut ids = self.ids.lock();
        ids.next = ids.next.max(last.0.saturating_add(1));
        ids.reserved_until = ids.next;
    }

    /// Begins an operation.
    pub(crate) fn begin(&self) -> Operation<'_> {
        self.begin_for(None)
    }

    /// Begins the operation that fulfils a request.
    pub(crate) fn begin_for<'a>(&'a self, request: Option<RequestUnderWay<'a>>) -> Operation<'a> {
        self.note_change();
        Operation {
            core: self,
            change: self.group.change_for(request),
        }
    }

    /// There is something that is not durable: see [`crate::FileSystem::step`].
    pub(crate) fn note_change(&self) {
        self.changes_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins an operation that only brings rows up to what was counted before.
    pub(crate) fn begin_to_write_back(&self) -> Operation<'_> {
        Operation {
            core: self,
            change: self.group.change(),
        }
    }

    /// Changes a node whose row may lag behind: the journal has a touch of it. Where no place is
    /// left for one the row is written before this returns, in an operation of its own: alone it
    /// would bring the half of an operation with it that another thread is in the midst of. The
    /// caller is in no operation.
    pub(crate) fn change_lagging<E>(
        &self,
        node: &Arc<Node>,
        change: impl FnOnce(&mut State) -> Result<(), E>,
    ) -> Result<(), E> {
        let has_place = {
            let mut state = node.state.lock();
            let was_dirty = state.is_dirty();
            change(&mut state)?;
            self.note_change();
            // Under the lock, so that the node cannot become clean between the change and the note.
            if !was_dirty {
                self.dirty.lock().insert(node.id, Arc::clone(node));
            }
            if self.group.notes_touches() && !state.removed {
                let touch = state.touch_of(node.id);
                self.group.touch(&mut state.touched, &touch)
            } else {
                true
            }
        };
        if !has_place {
            self.begin_to_write_back().write_back(node);
        }
        Ok(())
    }

    /// At most `most` dirty nodes, those of the lowest ids from `from` on.
    pub(crate) fn dirty_from(&self, from: FileId, most: usize) -> Vec<Arc<Node>> {
        let dirty = self.dirty.lock();
        let nodes = dirty.range(from..).take(most);
        nodes.map(|(_, node)| Arc::clone(node)).collect()
    }

    /// Forgets that a node is dirty, because an operation wrote or removed its rows.
    fn note_clean(&self, id: FileId) {
        self.dirty.lock().remove(&id);
    }
}

impl Operation<'_> {
    /// Adds rows of no node.
    pub(crate) fn rows(&self, edit: Edit) {
        if !edit.is_empty() {
            self.core.group.apply(&self.change, edit);
        }
    }

    /// Changes a node and adds its rows, dirty fields included. The rows are applied under the
    /// state's lock: a later change of the same node cannot be overtaken by this one.
    pub(crate) fn update<T>(
        &self,
        node: &Node,
        essential: bool,
        change: impl FnOnce(&mut State) -> T,
    ) -> T {
        let updated: Result<T, Infallible> =
            self.try_update(node, essential, |state| Ok(change(state)));
        match updated {
            Ok(result) => result,
            Err(never) => match never {},
        }
    }

    /// As `update`, for a change that may refuse; it must have changed nothing then.
    pub(crate) fn try_update<T, E>(
        &self,
        node: &Node,
        essential: bool,
        change: impl FnOnce(&mut State) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = node.state.lock();
        let was_dirty = state.is_dirty();
        let result = change(&mut state)?;
        state.touch(essential);
        if was_dirty {
            self.apply_rows(node, &mut state);
            if !state.is_dirty() {
                self.core.note_clean(node.id);
            }
        } else {
            let edit = state.whole_rows(node.id, &node.unwritten);
            self.core.group.apply(&self.change, edit);
            self.change.settle(&mut state.touched);
        }
        Ok(result)
    }

    /// Adds the rows of a node where they lag behind.
    pub(crate) fn write_back(&self, node: &Node) {
        let mut state = node.state.lock();
        if state.is_dirty() {
            self.apply_rows(node, &mut state);
            if !state.is_dirty() {
                self.core.note_clean(node.id);
            }
        }
    }

    /// Adds the rows of a node, and gives up its touch where they say all. Where they do not the touch is
    /// noted anew: it counts beside rows that are older than it.
    fn apply_rows(&self, node: &Node, state: &mut State) {
        let edit = state.rows(node.id, &node.unwritten);
        self.core.group.apply(&self.change, edit);
        if state.is_dirty() {
            let touch = state.touch_of(node.id);
            if self.core.group.touch(&mut state.touched, &touch) {
                return;
            }
            let edit = state.whole_rows(node.id, &node.unwritten);
            self.core.group.apply(&self.change, edit);
        }
        self.change.settle(&mut state.touched);
    }

    /// Removes all that there is of a node that nobody can reach; `edit` has its rows. Where the
    /// group refuses, nothing is changed: the orphan row leads the next opening to it.
    pub(crate) fn remove(&self, node: &Node, edit: Edit) -> FsResult<()> {
        if let Some(file) = &node.file {
            self.core.group.remove_file(&self.change, file)?;
        }
        self.core.group.apply(&self.change, edit);
        self.change.settle(&mut node.state.lock().touched);
        self.core.note_clean(node.id);
        Ok(())
    }

    /// A new, empty group file.
    pub(crate) fn create_file(&self, id: FileId, layout: Layout) -> FsResult<Arc<File>> {
        Ok(self.core.group.create_file(&self.change, id, layout)?)
    }

    /// An id that no file of the group ever had. The reservation is in this operation's commit
    /// or an earlier one, so that no crash gives the id twice.
    pub(crate) fn next_id(&self) -> FileId {
        let mut ids = self.core.ids.lock();
        if ids.next == ids.reserved_until {
            ids.reserved_until += IDS_PER_RESERVATION;
            let mut edit = Edit::default();
            edit.put(
                Table::Attribute,
                NEXT_FILE_ID_KEY.to_vec(),
                ids.reserved_until.to_le_bytes().to_vec(),
            );
            self.core.group.apply(&self.change, edit);
        }
        let id = FileId(ids.next);
        ids.next += 1;
        id
    }
}
