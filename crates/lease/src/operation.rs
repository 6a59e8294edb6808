//! What a client does: it announces, works, and ends.

use std::sync::atomic::Ordering;

use spindle_device::words::fence;

use crate::Leases;
use crate::clients::Client;
use crate::layout::{Blocks, ClientNumber, KIND, NOTHING, OVERTAKEN, Record, TORN, WAITS, WRITE};
use crate::locks::{HeldLock, Holder, Places};

/// A place for one operation at a time, of one client. One thread has it.
#[derive(Debug)]
pub struct Operation<'a> {
    leases: &'a Leases,
    client: Client,
    index: usize,
}

/// What a writer does while somebody else has a lock that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It tries again.
    Wait,
    /// It goes another way.
    GiveUp,
    /// It takes the lock away, and a write that is under way by it is torn when it ends. Only the
    /// owner may, which compares those blocks then.
    Overtake,
}

/// Why an announcement was not taken. The slow way, through the mount, is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The blocks are revoked.
    Revoked,
    /// Somebody else writes blocks that share a lock, and the caller waits no longer: who, as far as
    /// the lock says.
    Locked(Option<ClientNumber>),
    /// The owner has overtaken it while it waited for its locks.
    Overtaken,
    /// The last operation of this place has ended torn, and the owner has not compared it yet.
    Torn,
    /// The owner has let this client go, because it took it for dead.
    Gone,
}

impl Leases {
    /// The client's place `index` for an operation.
    ///
    /// # Panics
    /// Where `index` is not below [`crate::OPERATIONS_COUNT`].
    #[must_use]
    pub fn operation(&self, client: Client, index: usize) -> Operation<'_> {
        let _ = self.operation_record(client.number(), index);
        Operation {
            leases: self,
            client,
            index,
        }
    }

    /// Whether blocks of these are revoked now.
    #[must_use]
    pub fn is_revoked(&self, blocks: Blocks) -> bool {
        if self.revoked().load(Ordering::Acquire) == 0 {
            return false;
        }
        let meets = |record: Record<'_>| match record.look() {
            Ok(found) => found.is_some_and(|(_, revoked)| revoked.meets(&blocks)),
            // Somebody revokes at this moment: what, is not worth a second look.
            Err(_) => true,
        };
        let mut records = self.revocations();
        let everything = records.next();
        // Everything last: in a takeover the others end when it is said.
        records.any(meets) || everything.is_some_and(meets)
    }
}

impl<'a> Operation<'a> {
    fn record(&self) -> Record<'a> {
        self.leases
            .operation_record(self.client.number(), self.index)
    }

    const fn holder(&self) -> Holder {
        Holder::new(self.client.number(), self.index)
    }

    /// Announces a write to all copies of these blocks, at most [`crate::locks::WRITE_BLOCKS_MAX`],
    /// and locks them. Where somebody else has a lock, `patience` is asked, with the number of times
    /// that it was.
    ///
    /// # Errors
    /// Why the caller has to go another way.
    ///
    /// # Panics
    /// For more blocks, or blocks of every file; where another one than the owner overtakes.
    pub fn announce_write(
        &mut self,
        blocks: Blocks,
        mut patience: impl FnMut(u32) -> Patience,
    ) -> Result<Announced<'_>, Refused> {
        let places = Places::of(blocks);
        let waiting = self.announce(blocks)?;
        let state = waiting & !KIND | WRITE;
        let mut taken = 0;
        let mut round = 0;
        let refused = loop {
            taken = self.leases.take_locks(&places, self.holder(), taken);
            if Leases::has_all(&places, taken) {
                let word = self.record().state();
                let begun =
                    word.compare_exchange(waiting, state, Ordering::AcqRel, Ordering::Relaxed);
                break begun.err().map(|_| Refused::Overtaken);
            }
            // Who revokes may wait for this announcement, and who has the lock for who revokes.
            if self.is_refused(blocks) {
                break Some(Refused::Revoked);
            }
            let held = self.leases.holder_of(&places, taken);
            match patience(round) {
                Patience::Wait => {}
                Patience::GiveUp => break Some(Refused::Locked(held.map(|held| held.client))),
                Patience::Overtake => taken += usize::from(self.overtake(held)),
            }
            round = round.saturating_add(1);
        };
        if let Some(refused) = refused {
            // Nothing was written, overtaken or not.
            self.record().end(waiting);
            self.leases.give_back_locks(&places, self.holder());
            return Err(refused);
        }
        Ok(Announced {
            operation: self,
            blocks,
            state,
            locked: places,
            is_done: false,
        })
    }

    /// Takes the lock away, then marks what its holder has under way: in this order, because a
    /// holder that ended meanwhile and began anew has announced that before it took the lock again.
    fn overtake(&self, held: Option<HeldLock<'_>>) -> bool {
        assert!(self.is_owner(), "only the owner overtakes");
        let Some(held) = held.filter(|held| held.steal(self.holder())) else {
            // It is free, or somebody else's, who has a turn of patience too.
            return false;
        };
        if let Some(other) = self.leases.under_way_at(held.client, held.operation) {
            other.overtake();
        }
        true
    }

    fn is_owner(&self) -> bool {
        self.client.number() == ClientNumber::OWNER
    }

    /// The owner's own operations keep to its range locks: what is revoked is revoked for others.
    fn is_refused(&self, blocks: Blocks) -> bool {
        !self.is_owner() && self.leases.is_revoked(blocks)
    }

    fn announce(&self, blocks: Blocks) -> Result<u64, Refused> {
        let record = self.record();
        if record.state().load(Ordering::Acquire) & KIND != NOTHING {
            return Err(Refused::Torn);
        }
        let state = record.say(WAITS, blocks);
        // One of two sees the other: who revokes stores that and then looks here.
        fence(Ordering::SeqCst);
        let refused = if !self.leases.is_client(self.client) {
            Refused::Gone
        } else if self.is_refused(blocks) {
            Refused::Revoked
        } else {
            return Ok(state);
        };
        record.end(state);
        Err(refused)
    }
}

/// Blocks that were announced. Its drop ends that: nothing of the operation may be under way any
/// more, on no disk. What was not said to be [done](Self::done) ends torn.
#[derive(Debug)]
#[must_use = "the announcement ends with it"]
pub struct Announced<'a> {
    operation: &'a Operation<'a>,
    blocks: Blocks,
    state: u64,
    locked: Places,
    is_done: bool,
}

impl Announced<'_> {
    /// Of which blocks.
    #[must_use]
    pub const fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// Ends it: every disk has answered well.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let word = self.operation.record().state();
        let ended = self.state & !KIND;
        let torn = ended | TORN;
        let end = if self.is_done { ended } else { torn };
        let found = word.compare_exchange(self.state, end, Ordering::Release, Ordering::Relaxed);
        if found == Err(ended | OVERTAKEN) {
            word.store(torn, Ordering::Release);
        }
        let holder = self.operation.holder();
        (self.operation.leases).give_back_locks(&self.locked, holder);
    }
}
