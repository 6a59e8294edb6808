//! Making things durable, and the aged flush.
//!
//! Of a file, fdatasync takes what is needed to read its data back (size, map, existence),
//! fsync takes the times and owners too. Both commit the whole batch, because a commit keeps the
//! order of edits; so a new file's name is durable with its first fsync.

use spindle_base::FileId;
use spindle_group::{ToldBefore, Wish};
use spindle_sync::atomic::Ordering;

use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::system::{Core, FileSystem};

/// Sizes and times that data writes moved become edits after at most this long.
const DIRTY_NODES_AGE_MS: u64 = 1000;

/// After so long without any change everything is made durable. Linux sends no `SYNCFS` to a FUSE
/// mount, so sync(2) and syncfs(2) end when the kernel has written its cache back to us; what they
/// mean is done here, soon after.
const QUIET_MS: u64 = 300;

/// Nodes written under one change, so that a commit never waits long for it.
const NODES_PER_OPERATION: usize = 256;

impl FileSystem {
    /// fsync (`data_only` false) or fdatasync.
    ///
    /// # Errors
    /// What the group says; an error of an earlier write is told here too.
    pub fn sync_file(&self, handle: &Handle, data_only: bool) -> FsResult<()> {
        let node = &handle.node;
        let Some(file) = &node.file else {
            return self.make_durable();
        };
        let told_before = self.core.group.told_of(file);
        // Before what waits is written: sizes that come meanwhile may reach beyond it.
        let (version, metadata) = {
            let state = node.state.lock();
            let wanted = if data_only {
                state.essential_version
            } else {
                state.version
            };
            (state.version, wanted > state.durable_version)
        };
        // What fails is told by the group too: each failure once, to somebody.
        let written = self.core.write_out_all(node);
        if metadata {
            self.core.begin_to_write_back().write_back(node);
        }
        let group = &self.core.group;
        let synced = group.sync_file_since(file, metadata, told_before);
        // The error that the file owes is kept until it is answered.
        synced?;
        written?;
        if metadata {
            let mut state = node.state.lock();
            state.durable_version = state.durable_version.max(version);
        }
        Ok(())
    }

    /// What a sync of everything found lost of the file, where it was told to somebody else. Makes nothing
    /// durable.
    ///
    /// # Errors
    /// What was lost.
    pub fn tell_lost(&self, handle: &Handle) -> FsResult<()> {
        match &handle.node.file {
            Some(file) => Ok(self.core.group.tell_owed_of(file)?),
            None => Ok(()),
        }
    }

    /// syncfs: makes everything durable.
    ///
    /// # Errors
    /// What the group says.
    pub fn sync(&self) -> FsResult<()> {
        self.sync_since(self.told())
    }

    /// What was told of losses until now, for [`Self::sync_since`].
    pub fn told(&self) -> ToldBefore {
        self.core.group.told()
    }

    /// As [`Self::sync`], for one that began earlier: what another sync was told since is told to this
    /// one too.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_since(&self, told_before: ToldBefore) -> FsResult<()> {
        let written = self.core.write_out_everything();
        self.core.write_dirty_nodes();
        let synced = self.core.group.sync_since(told_before);
        written?;
        synced?;
        Ok(())
    }

    /// fsync of a directory, and for nobody in particular: makes all names durable, and what else a
    /// kill would lose. What waits to be written stays where a kill leaves it, and what disks lost
    /// is left to be told to whoever asks for a sync.
    ///
    /// # Errors
    /// What the group says.
    pub fn make_durable(&self) -> FsResult<()> {
        self.core.write_dirty_nodes();
        self.core.group.make_durable()?;
        Ok(())
    }

    /// One small piece of lazy work: writes back aged sizes and times, makes everything durable
    /// when nothing has changed for a while, then the group's own step.
    /// `now_ms` is any monotonic clock. True where more is to do at once.
    ///
    /// # Errors
    /// What the group says.
    pub fn step(&self, now_ms: u64) -> FsResult<bool> {
        self.core.behind.note_time(now_ms);
        let aged = {
            let mut last_ms = self.core.aged_ms.lock();
            let aged =
                last_ms.is_none_or(|last_ms| now_ms.saturating_sub(last_ms) >= DIRTY_NODES_AGE_MS);
            if aged {
                *last_ms = Some(now_ms);
            }
            aged
        };
        if aged {
            self.core.write_dirty_nodes();
        }
        let Some(seen_count) = self.core.changes_to_make_durable(now_ms) else {
            return Ok(self.core.group.step(now_ms)?);
        };
        // Sooner than by their age: there is time now.
        if self.unwritten_bytes() > 0 && !self.core.behind.is_stuck() {
            self.core.behind.hurry();
            return Ok(self.core.group.step(now_ms)?);
        }
        self.core.release_memory();
        if let Err(error) = self.make_durable() {
            // Tried again at the next step, before which the group does what else it has to.
            self.core.group.step(now_ms)?;
            return Err(error);
        }
        self.core.quiet.lock().durable_count = seen_count;
        self.core.group.look_for_room()?;
        Ok(true)
    }

    /// Makes everything durable and closes the group. Handles must be gone; later calls fail.
    ///
    /// # Errors
    /// What the group says.
    pub fn close(&self) -> FsResult<()> {
        self.close_for_heir()?.map_or(Ok(()), Err)
    }

    /// The same where another process follows with the same memory: blocks that no disk takes are left
    /// there for it. Why not all could be written, where that is so.
    ///
    /// # Errors
    /// What the group says, which is not closed then.
    pub fn close_for_heir(&self) -> FsResult<Option<FsError>> {
        // One file that cannot be written keeps nothing else from the disks.
        let written = self.core.write_out_everything();
        self.core.write_dirty_nodes();
        self.core.group.close()?;
        Ok(written.err())
    }
}

impl Core {
    /// How many changes were seen, where some of them are not durable and none has come for a while.
    fn changes_to_make_durable(&self, now_ms: u64) -> Option<u64> {
        let count = self.changes_count.load(Ordering::Relaxed);
        let mut quiet = self.quiet.lock();
        if count != quiet.seen_count {
            quiet.seen_count = count;
            quiet.since_ms = now_ms;
            return None;
        }
        let is_due =
            count != quiet.durable_count && now_ms.saturating_sub(quiet.since_ms) >= QUIET_MS;
        is_due.then_some(count)
    }

    /// Turns what the nodes hold back into edits. At return the edits of all nodes that were
    /// dirty at the call are applied, also of those that another thread writes back just now:
    /// a node leaves the set only when its edit is applied.
    pub(crate) fn write_dirty_nodes(&self) {
        let mut from = FileId(0);
        loop {
            let nodes = self.dirty_from(from, NODES_PER_OPERATION);
            let Some(last) = nodes.last() else { return };
            from = FileId(last.id.0 + 1);
            // What they change is there already. Where no room can be made the commit says so.
            let _ = self.group.make_room(Wish::Less);
            let operation = self.begin_to_write_back();
            for node in &nodes {
                operation.write_back(node);
            }
        }
    }
}
