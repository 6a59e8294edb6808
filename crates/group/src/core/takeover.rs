//! Taking a group over from a process that was killed while the machine lives.
//!
//! The keeper's journal has what no commit of that process had taken. It is brought into the
//! catalog, durably, before the maps are loaded: so everything after it is an opening like any
//! other. A kill in the midst leaves the journal as it was, and the next process does it again;
//! the rows come out the same.
//!
//! Copies can differ only where a write was under way: only there they are compared. Where the
//! journal cannot tell (more writes than it names, a write that failed on every copy), all dirty
//! regions are, as after a power cut.

mod unflushed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spindle_base::{AuSize, FileId};
use spindle_catalog::{
    Catalog, Claim, Connection, Edit, KeptJournal, Recovered, RecoveredExtent, Sequence, Table,
    Touch, TouchSlot, file_key,
};
use spindle_extent::map::{Extent, Map};
use spindle_extent::schedule::Schedule;
use spindle_extent::space::{Run, Space};
use spindle_format::{
    COPIES_MAX, EXTENTS_PER_ROW, ExtentCopy, ExtentRow, FileRecord, Inode, OpenerRecord,
};
use spindle_sync::atomic::{AtomicBool, Ordering};
use spindle_sync::level::{LeafMutex, Mutex, Unshown};

use crate::core::Core;
use crate::core::disks::DiskTable;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind};
use crate::levels;
use crate::quorum::Membership;
use unflushed::Unflushed;
pub(super) use unflushed::cannot_be_flushed;

/// What the journal calls the claim that this record is of: made of what no heartbeat changes.
/// The host's name may be shorter on the disk, and the boot tells hosts apart.
pub(crate) fn claim_of(record: &OpenerRecord) -> Claim {
    let mut bytes = Vec::new();
    bytes.extend(record.sequence.to_le_bytes());
    bytes.extend(record.boot.0);
    if let Some(origin) = record.origin {
        bytes.extend(origin.machine.0);
        bytes.extend(origin.process_namespace.to_le_bytes());
    }
    bytes.extend(record.process_id.to_le_bytes());
    bytes.extend(record.opened_s.to_le_bytes());
    bytes.push(u8::from(record.open));
    Claim::numbered(fnv_1a(&bytes))
}

/// The same in every version of the program, which a hash of the standard library need not be: a
/// program that is being upgraded may die, and the next version takes over its journal.
fn fnv_1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// What is at hand of a group that is taken over, before it is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) membership: &'a Membership,
    pub(crate) catalog: &'a Catalog,
    pub(crate) disks: &'a DiskTable,
    /// With the maps that the catalog has.
    pub(crate) files: &'a BTreeMap<FileId, Arc<File>>,
    pub(crate) space: &'a Space,
    pub(crate) au_size: AuSize,
}

/// The journal of a group that a keeper holds the mount of.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Nobody had the group between this process and the one whose journal it finds.
    has_predecessor: bool,
    pub(crate) journal: Arc<KeptJournal>,
    /// One operation at a time writes records, so that none counts that followed from another
    /// which was cut off.
    pub(crate) operation: Mutex<(), levels::Operation>,
    /// Requests that earlier processes had done.
    pub(crate) done: LeafMutex<BTreeSet<u64>>,
    /// What was found, until [`Core::begin_journal`].
    pub(crate) recovered: Mutex<Option<Recovered>, levels::Recovered>,
    /// True until the journal begins, where something was found. Read by threads that must not wait
    /// for the lock of `recovered`.
    is_taking_over: AtomicBool,
}

impl Kept {
    /// Ends a cut that a killed process did not come to, then reads what the journal has for the process
    /// of this claim and the catalog does not.
    pub(crate) fn new(
        journal: Arc<KeptJournal>,
        claim: Claim,
        catalog: &Catalog,
    ) -> Result<Self, GroupError> {
        if let Some(covered) = catalog.get(Table::Attribute, KeptJournal::COVERED_KEY)? {
            journal.cut_what_is_covered(&covered);
        }
        let recovered = journal.recover(claim);
        let done = recovered.as_ref().map_or_else(BTreeSet::new, |recovered| {
            recovered.done.iter().copied().collect()
        });
        Ok(Self {
            has_predecessor: journal.is_heir(claim),
            journal,
            operation: Mutex::new(()),
            done: LeafMutex::new(done),
            is_taking_over: AtomicBool::new(recovered.is_some()),
            recovered: Mutex::new(recovered),
        })
    }

    /// Makes durable what is left; the space keeps clear of it from then on. True where anything was
    /// brought in.
    pub(crate) fn replay(&self, scene: &Scene<'_>) -> Result<bool, GroupError> {
        let recovered = self.recovered.lock(Unshown);
        let Some(recovered) = recovered.as_ref() else {
            return Ok(false);
        };
        for edit in &recovered.edits {
            scene.catalog.apply(edit.clone());
        }
        // The data below the marks before the commit, as in every one. Nothing is committed until
        // the space that the journal alone names is marked as used: a catalog that grows would take
        // it.
        let mut unflushed = Unflushed::flush(scene, &self.journal)?;
        unflushed.find_gone(scene)?;
        if recovered.is_empty() && unflushed.is_empty() {
            return Ok(false);
        }
        for touch in &recovered.touches {
            apply_touch(scene.catalog, touch)?;
        }
        apply_extents(scene, &recovered.extents, &mut unflushed)?;
        unflushed.owe(scene, recovered)?;
        scene.catalog.commit(Sequence(u64::MAX))?;
        scene.catalog.settle()?;
        Ok(true)
    }
}

fn damaged(what: String) -> GroupError {
    GroupError::new(GroupErrorKind::Corrupt, what)
}

fn apply_touch(catalog: &Catalog, touch: &Touch) -> Result<(), GroupError> {
    // An inode without a row was removed, or its making was cut off.
    let Some(bytes) = catalog.get(Table::Inode, &file_key(touch.id))? else {
        return Ok(());
    };
    let mut inode = Inode::parse(&bytes)
        .map_err(|error| damaged(format!("inode {}: {error}", touch.id)).because(error))?;
    inode.size_bytes = touch.size_bytes;
    inode.accessed = touch.accessed;
    inode.modified = touch.modified;
    inode.changed = touch.changed;
    let mut edit = Edit::default();
    edit.put(Table::Inode, file_key(touch.id), inode.encode());
    catalog.apply(edit);
    Ok(())
}

/// Brings extents into the rows that hold them; what no flush covered stays beyond the marks.
fn apply_extents(
    scene: &Scene<'_>,
    extents: &BTreeMap<(FileId, u32), RecoveredExtent>,
    unflushed: &mut Unflushed,
) -> Result<(), GroupError> {
    let Scene {
        catalog,
        space,
        au_size,
        ..
    } = *scene;
    let mut rows: BTreeMap<(FileId, u32), Vec<(u32, &RecoveredExtent)>> = BTreeMap::new();
    let per_row = u32::try_from(EXTENTS_PER_ROW).expect("it is 128");
    for ((file, index), extent) in extents {
        let row = rows.entry((*file, index / per_row)).or_default();
        row.push((*index, extent));
    }
    for ((file, number), changed) in rows {
        // Without a record the file was removed by a commit that came last.
        let Some(bytes) = catalog.get(Table::File, &file_key(file))? else {
            continue;
        };
        let record = FileRecord::parse(&bytes)
            .map_err(|error| damaged(format!("file {file}: {error}")).because(error))?;
        let schedule = Schedule::new(record.striping, au_size);
        let mut map = Map::new(schedule, record.redundancy.copies());
        let entries = || {
            let there = changed
                .iter()
                .filter(|(_, extent)| !extent.copies.is_empty());
            there.map(|(_, extent)| extent.copies.len())
        };
        let mut edit = Edit::default();
        if record.rows_vary {
            map.let_rows_vary();
        } else if entries().any(|entries| entries != map.copies()) {
            // Written in the midst of a change of the redundancy that was cut off.
            map.let_rows_vary();
            let record = FileRecord {
                rows_vary: true,
                ..record
            };
            edit.put(Table::File, file_key(file), record.encode());
        }
        // The journal may know extents from before the redundancy was changed, or from after it.
        let most = entries().max().unwrap_or(0).min(COPIES_MAX);
        if most > map.wanted() {
            map.set_wanted(most);
            map.want_fewer(record.redundancy.copies());
        }
        let mut key = file_key(file);
        key.extend_from_slice(&number.to_be_bytes());
        let stored = catalog.get(Table::Extent, &key)?;
        let told = |what: String| damaged(format!("file {file}, row {number}: {what}"));
        if let Some(bytes) = &stored {
            let row =
                ExtentRow::parse(bytes).map_err(|error| told(error.to_string()).because(error))?;
            map.load_row(number, &row, |_, _| Ok(())).map_err(told)?;
        }
        for (index, extent) in changed {
            let stored = map.extent(index).filter(|_| !extent.was_hole);
            let durable_blocks = stored.map_or(0, |stored| stored.mark_blocks);
            let blocks = schedule.envelope(index);
            let mark_blocks = unflushed.mark_of(file, blocks, extent, durable_blocks);
            put_extent(&mut map, index, extent, mark_blocks, space).map_err(told)?;
        }
        match map.encode_row(number) {
            Some(bytes) => edit.put(Table::Extent, key, bytes),
            None => edit.delete(Table::Extent, key),
        }
        catalog.apply(edit);
    }
    Ok(())
}

fn put_extent(
    map: &mut Map,
    index: u32,
    extent: &RecoveredExtent,
    mark_blocks: u32,
    space: &Space,
) -> Result<(), String> {
    map.remove(index);
    if extent.copies.is_empty() {
        return Ok(());
    }
    if extent.copies.len() > map.copies()
        || u64::from(extent.mark_blocks) > map.schedule().length_blocks(index)
    {
        return Err(format!("the journal's extent {index} cannot be"));
    }
    let copies: Vec<ExtentCopy> = (extent.copies.iter())
        .map(|bits| ExtentCopy::from_bits(*bits))
        .collect();
    map.put_back(index, &Extent::new(&copies, mark_blocks));
    for copy in copies.iter().filter(|copy| copy.is_present()) {
        // Most are marked already, because the catalog's rows name them; whether two extents
        // claim one run is seen when the rows are loaded.
        let _ = space.mark_used(Run {
            disk: copy.disk(),
            start_block: copy.start_block(),
            class: copy.class(),
        });
    }
    Ok(())
}

impl Core {
    /// The journal, where a keeper holds the group's mount.
    pub fn journal(&self) -> Option<&Arc<KeptJournal>> {
        self.kept.as_ref().map(|kept| &kept.journal)
    }

    /// Whether this is the request of an earlier process whose effect is there: it need only be
    /// answered.
    pub fn is_done(&self, unique: u64) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.done.lock().contains(&unique))
    }

    /// Begins a new mount. The kernel counts its requests from the beginning, so what was done for
    /// an earlier one must not be taken for what this one asks again after a kill. To be called
    /// before the kernel can ask.
    ///
    /// # Errors
    /// As [`Core::sync`].
    pub fn begin_connection(&self) -> Result<Option<Connection>, GroupError> {
        let Some(kept) = &self.kept else {
            return Ok(None);
        };
        let connection = kept.journal.begin_connection();
        // The log names them too, until a commit cuts it; whoever still served the earlier mount
        // when this one began ends before that commit, or notes nothing.
        self.commit_everything()?;
        kept.done.lock().clear();
        kept.journal.forget_requests();
        Ok(Some(connection))
    }

    /// The connection of the mount that is there, where a keeper holds one.
    pub fn connection(&self) -> Option<Connection> {
        self.kept.as_ref().map(|kept| kept.journal.connection())
    }

    /// From here on a kill of this process loses nothing that was answered, where a keeper holds
    /// the journal. To be called once, when opening is over and before anything is changed: until
    /// then a kill leaves the journal to the next process, which brings it over what it finds.
    ///
    /// # Errors
    /// As [`Core::sync`].
    pub fn begin_journal(&self) -> Result<(), GroupError> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        // Before the journal hears of commits: they would cut its log, and leave its touches.
        self.commit_everything()?;
        kept.journal.take(&kept.done.lock());
        self.catalog.set_journal(Arc::clone(&kept.journal));
        {
            let change = self.change_inside();
            for file in self.all_files() {
                file.keep_map(&change, &kept.journal);
            }
        }
        // What came in between.
        self.commit_everything()?;
        let claim = claim_of(&self.membership.opener());
        (kept.journal).note_appearances(claim, self.membership.appearances());
        let doubtful = !self.dirty.doubtful().is_empty();
        kept.journal.begin(claim, doubtful);
        *kept.recovered.lock(Unshown) = None;
        kept.is_taking_over.store(false, Ordering::Release);
        Ok(())
    }

    /// Notes sizes and times that an inode's row lacks; false where the row must be written. The
    /// caller holds the inode's lock.
    pub fn touch(&self, slot: &mut Option<TouchSlot>, touch: &Touch) -> bool {
        self.kept
            .as_ref()
            .is_none_or(|kept| kept.journal.touch(slot, touch))
    }

    /// Whether this opening takes over from a process that was killed, or from one that closed the
    /// group to hand it over: programs on the mount outlive both.
    pub fn takes_over(&self) -> bool {
        (self.kept.as_ref()).is_some_and(|kept| kept.has_predecessor)
    }

    /// Whether a kill now would leave the next process the journal of the one before this.
    pub(super) fn is_taking_over(&self) -> bool {
        (self.kept.as_ref()).is_some_and(|kept| kept.is_taking_over.load(Ordering::Acquire))
    }

    /// Commits what fell out of the journal, if anything did: a kill would lose it. To be called before
    /// anybody is answered, and before memory lets go of what hangs on it.
    ///
    /// # Errors
    /// As [`Core::sync`]; then nobody may be answered.
    pub fn keep_what_fell_out(&self) -> Result<(), GroupError> {
        if (self.journal()).is_some_and(|journal| journal.has_ended()) {
            self.make_durable()?;
        }
        Ok(())
    }

    /// Whether touches are noted at all.
    pub const fn notes_touches(&self) -> bool {
        self.kept.is_some()
    }
}

#[cfg(test)]
mod tests;
