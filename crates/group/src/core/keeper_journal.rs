//! The journal that a keeper holds for the mount, over the whole life of an open group.
//!
//! An opening asks it what a killed process left ([`super::takeover`] brings that into the catalog),
//! and begins it anew when it serves. From then on what is applied and not committed is noted in it, so
//! that a kill of this process loses nothing that was answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_catalog::{
    Catalog, Claim, Connection, KeptJournal, Recovered, Table, Touch, TouchSlot,
};
use spindle_format::OpenerRecord;
use spindle_sync::atomic::{AtomicBool, Ordering};
use spindle_sync::level::{LeafMutex, Mutex, Unshown};

use crate::core::Core;
use crate::error::GroupError;
use crate::levels;

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
                file.keep_map(&change, &kept.journal, &self.clients);
            }
        }
        // What came in between.
        self.commit_everything()?;
        self.flush_written()?;
        let claim = claim_of(&self.membership.opener());
        (kept.journal).note_appearances(claim, self.membership.appearances());
        let doubtful = !self.dirty.doubtful().is_empty();
        kept.journal.begin(claim, doubtful);
        self.membership.begin_states(claim);
        // A disk that failed a flush and serves on has failed one of the catalog, which has no
        // replica there any more. All else is flushed: the next flush need not answer for it.
        for disk in self.disks.iter() {
            self.membership.forget_failed_flushes_of(disk.number);
        }
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
