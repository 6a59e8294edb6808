//! The catalog's journal, on every disk that holds a replica: the same bytes on each, in AU 0.
//!
//! A write goes to all replicas in one batch of durable writes; one that fails leaves the group
//! state, durably, before the call returns, so a later start finds every acknowledged record on
//! each replica that counts. What a record is, and which ones count, is the catalog's business.

use spindle_base::DiskNumber;
use spindle_catalog::{CatalogError, JournalCopy, Journals};
use spindle_device::{AlignedBuffer, DiskSlot};
use spindle_format::{JOURNAL_BYTES, JOURNAL_PLACE};

use crate::event::{Event, EventKind};
use crate::region::map::ReplicaMap;
use crate::region::{ReplicatedRegion, failed};

/// What was written to the journals since they began at their start the last time: all records
/// that count, and no disk has to be believed about them. What the region's gate guards.
#[derive(Debug, Default)]
pub(super) struct WrittenJournal(Vec<u8>);

impl WrittenJournal {
    /// The bytes are on every replica that counts. A write that failed was never noted: whoever
    /// began it begins at the start again.
    fn note(&mut self, offset_bytes: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset_bytes).expect("a journal is smaller than memory");
        assert!(
            offset == 0 || offset == self.0.len(),
            "records follow one another"
        );
        self.0.truncate(offset);
        self.0.extend_from_slice(bytes);
    }

    /// A journal with these records in place of what it has there.
    pub(super) fn lay_over(&self, journal: &mut [u8]) {
        journal[..self.0.len()].copy_from_slice(&self.0);
    }

    /// Whether the journal has them.
    pub(super) fn is_in(&self, journal: &[u8]) -> bool {
        journal.starts_with(&self.0)
    }
}

impl ReplicatedRegion {
    /// The journal as each replica holds it; nothing after a clean stop, which emptied it.
    pub(super) fn journals(&self) -> Journals {
        let map = self.map();
        let copies = (map.replicas.iter())
            .filter(|_| !self.membership.was_clean())
            .map(|replica| self.journal_of(replica.slot))
            .collect();
        Journals {
            copies,
            ends_where_unread: self.membership.was_forced(),
        }
    }

    /// Tells that a forced opening ends the journal at a block where a record may be.
    pub(super) fn tell_cut(&self, block: usize) {
        let message = format!(
            "catalog: block {block} of its journal and what belongs to it can be read on no disk, \
             and the group was opened by force: what commits were there are lost, and all after them"
        );
        (self.membership).event(Event::new(EventKind::DamageFound, message));
    }

    /// Tells that this opening takes for torn by a crash what a replica may have whole that it does not
    /// see: where it was acknowledged, and has rotted on those that are seen, it is lost.
    pub(super) fn tell_lost(&self, what_is: &str) {
        let lost = self.membership.lost_replicas();
        let titles: Vec<String> = (lost.iter())
            .map(|disk| self.membership.disk_title(*disk))
            .collect();
        let (disks, have) = match &titles[..] {
            [] => return,
            [one] => (format!("disk {one}"), "has"),
            _ => (format!("disks {}", titles.join(", ")), "have"),
        };
        let message = format!(
            "catalog: {what_is} whole on no disk that is here, and was dropped as what a crash had cut \
             short. {disks}, which this opening went on without, {have} a copy of the catalog too: if \
             it is whole there, what was synced last before the crash is lost here; look for it"
        );
        (self.membership).event(Event::new(EventKind::DamageFound, message));
    }

    pub(super) fn journal_of(&self, slot: DiskSlot) -> JournalCopy {
        let mut bytes = AlignedBuffer::zeroed(JOURNAL_BYTES);
        let read = self.read_blocks(slot, JOURNAL_PLACE, &mut bytes);
        JournalCopy {
            bytes: bytes.to_vec(),
            read,
        }
    }

    /// Writes to every replica's journal; all have it durably, or are replicas no more.
    pub(super) fn write_journals(
        &self,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), CatalogError> {
        let mut written = self.gate.lock();
        self.refuse_stopped()?;
        self.drop_offline();
        let map = self.map();
        if map.replicas.is_empty() {
            return Err(failed("written", "no disk that holds it is online"));
        }
        let place = JOURNAL_PLACE + offset_bytes;
        let writes = (map.replicas.iter())
            .map(|replica| (replica.disk, replica.slot, place, bytes))
            .collect();
        let failed = self.membership.run_durable_writes(writes);
        let unable: Vec<(DiskNumber, String)> = (failed.into_iter())
            .map(|(disk, error)| (disk, error.to_string()))
            .collect();
        self.go_on_without(&unable)?;
        written.note(offset_bytes, bytes);
        Ok(())
    }

    /// Gives a new replica the journal, before the group state names it.
    pub(super) fn copy_journal(
        &self,
        written: &WrittenJournal,
        added: &ReplicaMap,
    ) -> Result<(), CatalogError> {
        // Zeros behind it: what it holds there may be of its time as a replica before.
        let mut bytes = AlignedBuffer::zeroed(JOURNAL_BYTES);
        written.lay_over(&mut bytes);
        let unable = self.write_and_flush(&[(added.disk, added.slot, JOURNAL_PLACE, &bytes)]);
        match unable.first() {
            None => Ok(()),
            Some((_, why)) => {
                let why = why.clone();
                self.go_on_without(&unable)?;
                Err(failed("written", why))
            }
        }
    }
}
