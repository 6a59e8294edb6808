//! What a client does: it announces, works, and ends.

use std::sync::atomic::Ordering;

use spindle_device::words::fence;

use crate::Leases;
use crate::clients::Client;
use crate::layout::{
    Blocks, ClientNumber, KIND, Mode, NOTHING, OVERTAKEN, READ, Record, TORN, WRITE,
};
use crate::locks::{Holder, Places};

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
    /// It writes all the same, and the other one's write is torn when it ends. Only the owner may,
    /// which compares the blocks then.
    Overtake,
}

/// Why an announcement was not taken. The slow way, through the mount, is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The blocks are revoked.
    Revoked,
    /// Somebody else writes blocks that share a lock, and the caller waits no longer: who, as far as
    /// the lock says.
    Locked(Option<(ClientNumber, usize)>),
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
        self.revoked().load(Ordering::Acquire) != 0
            && self.revocations().any(|record| match record.look() {
                Ok(found) => found.is_some_and(|(_, revoked)| revoked.meets(&blocks)),
                // Somebody revokes at this moment: what, is not worth a second look.
                Err(_) => true,
            })
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

    /// Announces a read of these blocks.
    ///
    /// # Errors
    /// Why the caller has to go another way.
    pub fn announce_read(&mut self, blocks: Blocks) -> Result<Announced<'_>, Refused> {
        let state = self.announce(READ, blocks)?;
        let locked = None;
        Ok(Announced {
            operation: self,
            state,
            locked,
        })
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
        let state = self.announce(WRITE, blocks)?;
        let mut taken = 0;
        for round in 0.. {
            taken = self.leases.take_locks(&places, self.holder(), taken);
            if Leases::has_all(&places, taken) {
                break;
            }
            let held_by = self.leases.holder_of(&places, taken);
            // Who revokes may wait for this announcement, and who has the lock for who revokes.
            let refused = if self.is_refused(blocks) {
                Refused::Revoked
            } else {
                match patience(round) {
                    Patience::Wait => continue,
                    Patience::GiveUp => Refused::Locked(held_by),
                    Patience::Overtake => {
                        self.overtake(held_by);
                        taken += 1;
                        continue;
                    }
                }
            };
            // Nothing was written: overtaken or not, it ends.
            self.leases.give_back_locks(&places, self.holder());
            self.record().end(state);
            return Err(refused);
        }
        Ok(Announced {
            operation: self,
            state,
            locked: Some(places),
        })
    }

    /// Who has ended meanwhile, or ends with its locks still held, has nothing under way.
    fn overtake(&self, held_by: Option<(ClientNumber, usize)>) {
        assert!(self.is_owner(), "only the owner overtakes");
        let Some((client, index)) = held_by else {
            return;
        };
        if let Some(other) = self.leases.under_way_at(client, index) {
            let _ = other.overtake();
        }
    }

    fn is_owner(&self) -> bool {
        self.client.number() == ClientNumber::OWNER
    }

    /// The owner's own operations keep to its range locks: what is revoked is revoked for others.
    fn is_refused(&self, blocks: Blocks) -> bool {
        !self.is_owner() && self.leases.is_revoked(blocks)
    }

    fn announce(&self, kind: u64, blocks: Blocks) -> Result<u64, Refused> {
        let record = self.record();
        if record.state().load(Ordering::Acquire) & KIND != NOTHING {
            return Err(Refused::Torn);
        }
        let state = record.say(kind, blocks);
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
/// more, on no disk.
#[derive(Debug)]
#[must_use = "the announcement ends with it"]
pub struct Announced<'a> {
    operation: &'a Operation<'a>,
    state: u64,
    locked: Option<Places>,
}

impl Announced<'_> {
    /// What was announced.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match &self.locked {
            Some(_) => Mode::Write,
            None => Mode::Read,
        }
    }

    /// Ends it as torn: the write is on some copies and not on others. The owner compares the blocks,
    /// and this place for an operation serves again when it has.
    pub fn end_torn(self) {
        let record = self.operation.record();
        record
            .state()
            .store(self.state & !KIND | TORN, Ordering::Release);
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let record = self.operation.record();
        let ended = self.state & !KIND;
        let end = record.state().compare_exchange(
            self.state,
            ended,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if end == Err(ended | OVERTAKEN) {
            let torn = ended | TORN;
            record.state().store(torn, Ordering::Release);
        }
        if let Some(places) = &self.locked {
            let holder = self.operation.holder();
            self.operation.leases.give_back_locks(places, holder);
        }
    }
}
