//! Slots of a session, and what is under way in them.

use std::sync::Arc;

use super::{Client, JobId};
use crate::compound::{SequenceAt, SessionId};

/// How often the time doubles after which a request is taken for dropped.
const DROP_DOUBLINGS_MOST: u32 = 5;

/// Who waits for the answer of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A piece of work.
    Job(JobId),
    /// Nobody any more: it was answered as late.
    Late,
    /// The file is claimed as it was.
    Reclaim,
    /// Nothing more is claimed.
    ReclaimComplete,
    /// The file is opened.
    Open,
    /// What is in the server's memory from before us is made durable.
    Settle,
    /// The lease is kept.
    Renew,
}

/// What a request does to the server's memory, whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    UnstableWrite,
    DurableWrite,
    Commit,
    Other,
}

/// A request that the server has not answered.
#[derive(Debug)]
pub struct Sent {
    pub at: SequenceAt,
    pub purpose: Purpose,
    pub carries: Carries,
    /// How often writes had been lost when it was put together.
    pub losses: u64,
    /// From where in the piece of work on.
    pub done_bytes: usize,
    /// How much was asked for or sent.
    pub length_bytes: u32,
    pub xid: u32,
    pub bytes: Arc<Vec<u8>>,
    /// Where it was sent last, and when; nowhere while it waits for a path.
    pub path: Option<(usize, u64)>,
    pub not_before_ms: u64,
    pub attempts: u32,
    /// How often it was sent without an answer: so many copies of it may be on their way.
    pub copies: u32,
}

#[derive(Debug, Default)]
pub struct Slot {
    /// The number of the last request that the server has done.
    pub done: u32,
    pub sent: Option<Sent>,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    pub(super) id: SessionId,
    pub(super) slots: Vec<Slot>,
    /// When something was last asked, which keeps the lease.
    pub(super) asked_ms: u64,
}

impl Session {
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// What the server has not answered.
    pub fn under_way(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.slots.iter().filter_map(|slot| slot.sent.as_ref())
    }

    pub fn late_count(&self) -> usize {
        let late = |sent: &&Sent| sent.purpose == Purpose::Late;
        self.under_way().filter(late).count()
    }

    /// Nobody waits for this work any more; the slot waits on. Gives what it carries.
    pub fn make_late(&mut self, id: JobId) -> Option<Carries> {
        let mut sent = self.slots.iter_mut().filter_map(|slot| slot.sent.as_mut());
        let sent = sent.find(|sent| sent.purpose == Purpose::Job(id))?;
        sent.purpose = Purpose::Late;
        Some(sent.carries)
    }

    pub fn path_is_down(&mut self, path: usize) {
        let sent = self.slots.iter_mut().filter_map(|slot| slot.sent.as_mut());
        for sent in sent.filter(|sent| sent.path.is_some_and(|(at, _)| at == path)) {
            sent.path = None;
        }
    }

    pub fn waits_until_ms(&self) -> impl Iterator<Item = u64> {
        let waits = self.under_way().filter(|sent| sent.path.is_none());
        waits.map(|sent| sent.not_before_ms)
    }

    /// When a request is taken for dropped by the server that this path leads to.
    pub fn dropped_at_ms(&self, path: usize, dropped_after_ms: u64) -> Option<u64> {
        let sent = self.under_way().filter_map(|sent| {
            let (at, sent_ms) = sent.path?;
            let doublings = sent.copies.saturating_sub(1).min(DROP_DOUBLINGS_MOST);
            (at == path)
                .then(|| sent_ms.saturating_add(dropped_after_ms.saturating_mul(1 << doublings)))
        });
        sent.min()
    }

    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.sent.is_none())
    }

    pub fn has(&self, purpose: Purpose) -> bool {
        self.under_way().any(|sent| sent.purpose == purpose)
    }

    /// The slot of a request that was sent on `path`.
    pub fn slot_of(&self, xid: u32) -> Option<usize> {
        let is_it = |slot: &Slot| slot.sent.as_ref().is_some_and(|sent| sent.xid == xid);
        self.slots.iter().position(is_it)
    }

    pub fn sent(&self, slot: usize) -> Option<&Sent> {
        self.slots[slot].sent.as_ref()
    }

    /// The server has done it: the slot is free for the next one.
    pub fn take_done(&mut self, slot: usize) -> Option<Sent> {
        let slot = &mut self.slots[slot];
        let sent = slot.sent.take()?;
        slot.done = sent.at.sequence;
        Some(sent)
    }

    /// The server has not even looked at it: the slot's number is still free.
    pub fn take_undone(&mut self, slot: usize) -> Option<Sent> {
        self.slots[slot].sent.take()
    }

    /// One copy of it was answered, and not done.
    pub fn take_answered(&mut self, slot: usize) {
        if let Some(sent) = &mut self.slots[slot].sent {
            sent.copies = sent.copies.saturating_sub(1);
        }
    }

    /// One copy of it was answered, and not done: it is sent again, as it is, after a pause.
    pub fn send_later(&mut self, slot: usize, now_ms: u64) {
        self.take_answered(slot);
        if let Some(sent) = &mut self.slots[slot].sent {
            sent.path = None;
            sent.not_before_ms = now_ms + Client::pause_ms(sent.attempts);
            sent.attempts = sent.attempts.saturating_add(1);
        }
    }
}
