//! What the owner does before it touches blocks as nobody else may.

use std::sync::atomic::Ordering;

use spindle_device::words::fence;

use crate::Leases;
use crate::clients::UnderWay;
use crate::layout::{Blocks, ClientNumber, KIND, NOTHING, Record};

/// The kind of a record that revokes.
const REVOKES: u64 = 1;

/// Nobody may announce these blocks until it is dropped.
#[derive(Debug)]
#[must_use = "the revocation ends with it"]
pub struct Revocation<'a> {
    leases: &'a Leases,
    record: Record<'a>,
    state: u64,
    blocks: Blocks,
}

impl Leases {
    /// Revokes blocks: who announces them from now on is refused. Who did before is found by
    /// [`Revocation::under_way`]. `None` where as much is revoked as can be: try again later.
    ///
    /// Only the owner calls this, one thread at a time.
    #[must_use]
    pub fn revoke(&self, blocks: Blocks) -> Option<Revocation<'_>> {
        let is_free =
            |record: &Record<'_>| record.state().load(Ordering::Acquire) & KIND == NOTHING;
        let record = self.revocations().skip(1).find(is_free)?;
        self.revoked().fetch_add(1, Ordering::AcqRel);
        let state = record.say(REVOKES, blocks);
        // One of two sees the other: who announces stores that and then looks here.
        fence(Ordering::SeqCst);
        Some(Revocation {
            leases: self,
            record,
            state,
            blocks,
        })
    }

    /// The owner has died, and this process is the next one: everything is revoked until the answer is
    /// dropped, and what the dead one had revoked is not any more. What it had begun to let go of is.
    ///
    /// One thread calls this, before any other call of the owner.
    ///
    /// # Panics
    /// Never: everything has a place of its own.
    pub fn take_over(&self) -> Revocation<'_> {
        let mut records = self.revocations();
        let first = records.next().expect("there are places");
        self.revoked().fetch_add(1, Ordering::AcqRel);
        let state = match first.look() {
            // An owner that died in a takeover has left it.
            Ok(Some((state, Blocks::ALL))) => state,
            _ => {
                first.end(first.state().load(Ordering::Acquire));
                first.say(REVOKES, Blocks::ALL)
            }
        };
        fence(Ordering::SeqCst);
        // At no moment nothing is revoked: the others end when everything is.
        for record in records {
            record.end(record.state().load(Ordering::Acquire));
        }
        self.revoked().store(1, Ordering::Release);
        self.sweep();
        Revocation {
            leases: self,
            record: first,
            state,
            blocks: Blocks::ALL,
        }
    }
}

impl Revocation<'_> {
    /// Operations of clients that were announced before, meet the blocks, and have not ended. With
    /// none the blocks are the caller's alone. Torn ones count: copies may differ there.
    #[must_use]
    pub fn under_way(&self) -> Vec<UnderWay<'_>> {
        (ClientNumber::all_others())
            .flat_map(|client| self.leases.under_way_of(client))
            .filter(|operation| operation.blocks().meets(&self.blocks))
            .collect()
    }

    /// As [`Self::under_way`], of those that write or wrote.
    #[must_use]
    pub fn writes_under_way(&self) -> Vec<UnderWay<'_>> {
        let mut found = self.under_way();
        found.retain(|operation| operation.mode().may_leave_copies_unequal());
        found
    }
}

impl Drop for Revocation<'_> {
    fn drop(&mut self) {
        self.record.end(self.state);
        self.leases.revoked().fetch_sub(1, Ordering::AcqRel);
    }
}
