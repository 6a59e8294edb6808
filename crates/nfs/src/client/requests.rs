//! Slots of a session, and what is sent in them.

use std::sync::Arc;

use super::{Action, Client, Held, Job, JobId, Phase, Work};
use crate::compound::{Compound, Created, Refused, SequenceAt, SessionId};
use crate::status::{ErrorKind, NfsError};
use crate::wire::Stable;
use crate::xdr::Violation;

/// What a request has beside what it carries, at most: the head, a path, a handle.
const REQUEST_BYTES_BESIDE: u32 = 2048;
/// What a piece of a directory may have.
const LISTING_BYTES: u32 = 32 << 10;
/// The name of what opens the file, among the names of this client.
const OPEN_OWNER: &[u8] = b"disk";

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
    /// The lease is kept.
    Renew,
}

/// A request that the server has not answered.
#[derive(Debug)]
pub struct Sent {
    pub at: SequenceAt,
    pub purpose: Purpose,
    /// From where in the piece of work on.
    pub done_bytes: u32,
    /// How much was asked for or sent.
    pub length_bytes: u32,
    xid: u32,
    bytes: Arc<Vec<u8>>,
    /// Where it was sent last, and when; nowhere while it waits for a path.
    path: Option<(usize, u64)>,
    not_before_ms: u64,
    attempts: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of the last request that the server has done.
    done: u32,
    sent: Option<Sent>,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    slots: Vec<Slot>,
    /// When something was last asked, which keeps the lease.
    asked_ms: u64,
}

impl Session {
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// The work that is under way.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = JobId> {
        let sent = self.slots.iter().filter_map(|slot| slot.sent.as_ref());
        sent.filter_map(|sent| match sent.purpose {
            Purpose::Job(id) => Some(id),
            _ => None,
        })
    }

    pub fn late_count(&self) -> usize {
        let sent = self.slots.iter().filter_map(|slot| slot.sent.as_ref());
        sent.filter(|sent| sent.purpose == Purpose::Late).count()
    }

    /// Nobody waits for this work any more; the slot waits on.
    pub fn make_late(&mut self, id: JobId) {
        let sent = self.slots.iter_mut().filter_map(|slot| slot.sent.as_mut());
        for sent in sent.filter(|sent| sent.purpose == Purpose::Job(id)) {
            sent.purpose = Purpose::Late;
        }
    }

    pub fn path_is_down(&mut self, path: usize) {
        let sent = self.slots.iter_mut().filter_map(|slot| slot.sent.as_mut());
        for sent in sent.filter(|sent| sent.path.is_some_and(|(at, _)| at == path)) {
            sent.path = None;
        }
    }

    pub fn waits_until_ms(&self) -> impl Iterator<Item = u64> {
        let sent = self.slots.iter().filter_map(|slot| slot.sent.as_ref());
        sent.filter(|sent| sent.path.is_none())
            .map(|sent| sent.not_before_ms)
    }

    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.sent.is_none())
    }

    fn has(&self, purpose: Purpose) -> bool {
        let sent = self.slots.iter().filter_map(|slot| slot.sent.as_ref());
        sent.into_iter().any(|sent| sent.purpose == purpose)
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

    /// It is sent again, as it is, after a pause.
    pub fn send_later(&mut self, slot: usize, now_ms: u64) {
        if let Some(sent) = &mut self.slots[slot].sent {
            sent.path = None;
            sent.not_before_ms = now_ms + Client::pause_ms(sent.attempts);
            sent.attempts = sent.attempts.saturating_add(1);
        }
    }
}

impl Client {
    pub(super) fn begin_session(&mut self, created: &Created) -> Result<(), Refused> {
        let most = |bytes: u32| bytes.saturating_sub(REQUEST_BYTES_BESIDE) / 4096 * 4096;
        let read_bytes = most(created.response_bytes).min(self.settings.transfer_bytes);
        let write_bytes = most(created.request_bytes).min(self.settings.transfer_bytes);
        if read_bytes == 0 || write_bytes == 0 || created.slots == 0 {
            return Err(Violation("a session in which no block can be sent").into());
        }
        self.bounds.read_bytes = read_bytes;
        self.bounds.write_bytes = write_bytes;
        let slots = created.slots.min(self.settings.slots);
        self.session = Some(Session {
            id: created.session,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            asked_ms: self.now_ms,
        });
        Ok(())
    }

    /// When the oldest request was sent that waits for an answer on the path.
    pub(super) fn oldest_sent_ms(&self, path: usize) -> Option<u64> {
        let slots = self.session.iter().flat_map(|session| &session.slots);
        let sent = slots.filter_map(|slot| slot.sent.as_ref()?.path);
        sent.filter(|(at, _)| *at == path).map(|(_, ms)| ms).min()
    }

    pub(super) fn renew_at_ms(&self) -> u64 {
        let asked_ms = self.session.as_ref().map_or(0, |session| session.asked_ms);
        asked_ms + self.bounds.lease_ms / 3
    }

    pub(super) fn renew(&mut self) {
        if self.session.is_some() && self.renew_at_ms() <= self.now_ms {
            self.send(Purpose::Renew, false, 0, |compound| compound);
            if let Some(session) = &mut self.session {
                // Where every slot is taken the lease is kept by what is asked there.
                session.asked_ms = self.now_ms;
            }
        }
    }

    /// Puts a request into a free slot; false where there is none.
    fn send(
        &mut self,
        purpose: Purpose,
        is_cached: bool,
        length_bytes: u32,
        fill: impl FnOnce(Compound) -> Compound,
    ) -> bool {
        let xid = self.next_xid();
        let job = match purpose {
            Purpose::Job(id) => self.jobs.get(&id),
            _ => None,
        };
        let done_bytes = job.map_or(0, |job| job.done_bytes);
        let Some(session) = &mut self.session else {
            return false;
        };
        let Some(slot) = session.free_slot() else {
            return false;
        };
        let number = |count: usize| u32::try_from(count).expect("a session has few slots");
        let at = SequenceAt {
            session: session.id,
            slot: number(slot),
            sequence: session.slots[slot].done.wrapping_add(1),
            highest_slot: number(session.slots.len() - 1),
            is_cached,
        };
        let compound = Compound::new(xid, &self.settings.credentials).sequence(&at);
        session.slots[slot].sent = Some(Sent {
            at,
            purpose,
            done_bytes,
            length_bytes,
            xid,
            bytes: Arc::new(fill(compound).finish()),
            path: None,
            not_before_ms: 0,
            attempts: 0,
        });
        self.send_again();
        true
    }

    /// Sends what waits for a path: for the first time, or again.
    pub(super) fn send_again(&mut self) {
        loop {
            let mut loads = vec![0usize; self.paths.len()];
            let Some(session) = &mut self.session else {
                return;
            };
            for sent in session.slots.iter().filter_map(|slot| slot.sent.as_ref()) {
                if let Some((path, _)) = sent.path {
                    loads[path] += 1;
                }
            }
            let up = (0..loads.len()).filter(|at| self.paths[*at].is_up());
            let Some(path) = up.min_by_key(|at| loads[*at]) else {
                return;
            };
            let now_ms = self.now_ms;
            let mut sent = session
                .slots
                .iter_mut()
                .filter_map(|slot| slot.sent.as_mut());
            let Some(sent) = sent.find(|one| one.path.is_none() && one.not_before_ms <= now_ms)
            else {
                return;
            };
            sent.path = Some((path, now_ms));
            session.asked_ms = now_ms;
            let bytes = Arc::clone(&sent.bytes);
            self.actions.push_back(Action::Send(path, bytes));
        }
    }

    /// The next step to a session in which the file is held.
    pub(super) fn set_up(&mut self) {
        if self.phase != Phase::SettingUp || self.setup_not_before_ms > self.now_ms {
            return;
        }
        let Some(session) = &self.session else {
            return;
        };
        let client = self.client;
        let steps = [Purpose::Reclaim, Purpose::ReclaimComplete, Purpose::Open];
        if steps.into_iter().any(|step| session.has(step)) {
            return;
        }
        let held = self.held.clone();
        let former = held
            .as_ref()
            .filter(|held| held.registration != self.registration);
        let is_reclaimed = self.reclaimed_in == Some(self.registration);
        if let Some(held) = former {
            self.send(Purpose::Reclaim, true, 0, |compound| {
                let claimed = compound.put_handle(&held.handle);
                claimed.open_previous(client, OPEN_OWNER)
            });
        } else if !is_reclaimed {
            self.send(
                Purpose::ReclaimComplete,
                true,
                0,
                Compound::reclaim_complete,
            );
        } else if let Some(file) = self.settings.file.clone()
            && held.is_none()
        {
            let directory = self.settings.directory.clone();
            self.send(Purpose::Open, true, 0, |compound| {
                let walked = compound.walk(&directory);
                let opened = walked.open_name(client, OPEN_OWNER, &file.name, file.makes);
                opened.get_handle().get_limits()
            });
        } else {
            self.phase = Phase::Ready;
        }
    }

    /// Puts work into slots, as long as there are any.
    pub(super) fn begin_jobs(&mut self) {
        if self.phase != Phase::Ready {
            return;
        }
        let mut later = Vec::new();
        while self
            .session
            .as_ref()
            .is_some_and(|session| session.free_slot().is_some())
        {
            let Some(id) = self.waiting.pop_front() else {
                break;
            };
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            let is_flush = matches!(job.work, Work::Flush);
            // One that was given up may still be done: what is written after it has to come after it.
            let is_write = matches!(job.work, Work::Write { .. });
            let must_wait = job.not_before_ms > self.now_ms
                || (is_write && self.late_count() > 0)
                || (is_flush && !job.has_lost_writes && self.unflushed.is_flushing());
            if must_wait {
                later.push(id);
                continue;
            }
            self.begin_job(id);
            if self.phase != Phase::Ready {
                break;
            }
        }
        for id in later.into_iter().rev() {
            self.waiting.push_front(id);
        }
    }

    fn begin_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let work = job.work.clone();
        let done_bytes = job.done_bytes;
        match work {
            Work::List => self.begin_listing(id),
            Work::Flush if job.has_lost_writes => {
                self.answer(id, Err(NfsError::new("COMMIT", ErrorKind::LostWrites)));
            }
            Work::Flush if self.unflushed.is_empty() => self.answer(id, Ok(super::Outcome::Done)),
            work => match self.held.clone() {
                Some(held) => self.begin_on_file(id, work, &held, done_bytes),
                None if matches!(work, Work::Close) => self.begin_closing(id),
                None => {
                    let error = NfsError::new(work.operation(), ErrorKind::NotFound);
                    self.answer(id, Err(error));
                }
            },
        }
    }

    fn begin_on_file(&mut self, id: JobId, work: Work, held: &Held, done_bytes: u32) {
        let purpose = Purpose::Job(id);
        let state = held.state;
        let begin = |compound: Compound| compound.put_handle(&held.handle);
        let from = |offset_bytes: u64| offset_bytes.saturating_add(u64::from(done_bytes));
        match work {
            Work::Read {
                offset_bytes,
                length_bytes,
            } => {
                let length = (length_bytes - done_bytes).min(self.bounds.read_bytes);
                self.send(purpose, false, length, |compound| {
                    begin(compound).read(state, from(offset_bytes), length)
                });
            }
            Work::Write {
                offset_bytes,
                data,
                is_durable,
            } => {
                let rest = &data[done_bytes as usize..];
                let piece = &rest[..rest.len().min(self.bounds.write_bytes as usize)];
                let length = u32::try_from(piece.len()).expect("a piece is within its bound");
                let stable = if is_durable {
                    Stable::FileSync
                } else {
                    Stable::Unstable
                };
                self.send(purpose, true, length, |compound| {
                    begin(compound).write(state, from(offset_bytes), stable, piece)
                });
            }
            Work::Flush => {
                if self.send(purpose, true, 0, |compound| begin(compound).commit()) {
                    self.unflushed.begin(id);
                }
            }
            Work::Size => {
                self.send(purpose, false, 0, |compound| begin(compound).get_limits());
            }
            Work::SetSize(size_bytes) => {
                self.send(purpose, true, 0, |compound| {
                    begin(compound).set_size(state, size_bytes)
                });
            }
            Work::Close => {
                self.send(purpose, true, 0, |compound| begin(compound).close(state));
            }
            Work::List => {}
        }
    }

    fn begin_listing(&mut self, id: JobId) {
        let Some(Job {
            cookie,
            cookie_verifier,
            ..
        }) = self.jobs.get(&id)
        else {
            return;
        };
        let (cookie, verifier) = (*cookie, *cookie_verifier);
        let directory = self.settings.directory.clone();
        let most_bytes = LISTING_BYTES.min(self.bounds.read_bytes);
        self.send(Purpose::Job(id), false, most_bytes, |compound| {
            compound
                .walk(&directory)
                .read_directory(cookie, verifier, most_bytes)
        });
    }
}
