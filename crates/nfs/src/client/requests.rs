//! What is sent in the slots of a session.

use std::sync::Arc;

use super::session::{Carries, Purpose, Sent, Session, Slot};
use super::{Action, Client, Held, Job, JobId, Phase, Work};
use crate::compound::{Access, Compound, Created, Refused, SequenceAt};
use crate::status::{ErrorKind, NfsError};
use crate::wire::Stable;
use crate::xdr::Violation;

/// What a request has beside what it carries, at most: the head, a path, a handle.
const REQUEST_BYTES_BESIDE: u32 = 2048;
/// What a piece of a directory may have.
const LISTING_BYTES: u32 = 32 << 10;
/// The name of what opens the file, among the names of this client.
const OPEN_OWNER: &[u8] = b"disk";

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
            self.send(Purpose::Renew, Carries::Other, false, 0, |compound| {
                compound
            });
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
        carries: Carries,
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
            carries,
            losses: self.losses,
            done_bytes,
            length_bytes,
            xid,
            bytes: Arc::new(fill(compound).finish()),
            path: None,
            not_before_ms: 0,
            attempts: 0,
            copies: 0,
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
            sent.copies += 1;
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
        let steps = [
            Purpose::Reclaim,
            Purpose::ReclaimComplete,
            Purpose::Open,
            Purpose::Settle,
        ];
        if steps.into_iter().any(|step| session.has(step)) {
            return;
        }
        let held = self.held.clone();
        let file = self.settings.file.clone();
        let access = file.as_ref().map_or(Access::Own, |file| file.access);
        let former = held
            .as_ref()
            .filter(|held| held.registration != self.registration);
        let is_reclaimed = self.reclaimed_in == Some(self.registration);
        if let Some(held) = former {
            self.send(Purpose::Reclaim, Carries::Other, true, 0, |compound| {
                let claimed = compound.put_handle(&held.handle);
                claimed.open_previous(client, OPEN_OWNER, access)
            });
        } else if !is_reclaimed {
            let purpose = Purpose::ReclaimComplete;
            self.send(purpose, Carries::Other, true, 0, Compound::reclaim_complete);
        } else if let Some(file) = file
            && held.is_none()
        {
            let directory = self.settings.directory.clone();
            self.send(Purpose::Open, Carries::Other, true, 0, |compound| {
                let walked = compound.walk(&directory);
                let opened = walked.open_name((client, OPEN_OWNER), &file.name, file.makes, access);
                opened.get_handle().get_limits()
            });
        } else if let Some(held) = held.filter(|held| !held.is_settled) {
            let is_sent = self.send(Purpose::Settle, Carries::Commit, true, 0, |compound| {
                compound.put_handle(&held.handle).commit()
            });
            if is_sent {
                self.unflushed.begin();
            }
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
        let (done_bytes, has_lost_writes) = (job.done_bytes, job.has_lost_writes);
        match work {
            Work::List => self.begin_listing(id),
            Work::Flush if has_lost_writes => {
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

    fn begin_on_file(&mut self, id: JobId, work: Work, held: &Held, done_bytes: usize) {
        let purpose = Purpose::Job(id);
        let state = held.state;
        let begin = |compound: Compound| compound.put_handle(&held.handle);
        let from = |offset_bytes: u64| offset_bytes.saturating_add(done_bytes as u64);
        match work {
            Work::Read {
                offset_bytes,
                length_bytes,
            } => {
                let left_bytes = (length_bytes as usize).saturating_sub(done_bytes);
                let left_bytes = u32::try_from(left_bytes).unwrap_or(length_bytes);
                let length = left_bytes.min(self.bounds.read_bytes);
                self.send(purpose, Carries::Other, false, length, |compound| {
                    begin(compound).read(state, from(offset_bytes), length)
                });
            }
            Work::Write {
                offset_bytes,
                data,
                is_durable,
            } => {
                let rest = &data[done_bytes..];
                let piece = &rest[..rest.len().min(self.bounds.write_bytes as usize)];
                let length = u32::try_from(piece.len()).expect("a piece is within its bound");
                let (stable, carries) = if is_durable {
                    (Stable::FileSync, Carries::DurableWrite)
                } else {
                    (Stable::Unstable, Carries::UnstableWrite)
                };
                self.send(purpose, carries, true, length, |compound| {
                    begin(compound).write(state, from(offset_bytes), stable, piece)
                });
            }
            Work::Flush => {
                let commit = |compound| begin(compound).commit();
                if self.send(purpose, Carries::Commit, true, 0, commit) {
                    self.unflushed.begin();
                }
            }
            Work::Size => {
                let ask = |compound| begin(compound).get_limits();
                self.send(purpose, Carries::Other, false, 0, ask);
            }
            Work::SetSize(size_bytes) => {
                let set = |compound| begin(compound).set_size(state, size_bytes);
                self.send(purpose, Carries::Other, true, 0, set);
            }
            Work::Close => {
                let close = |compound| begin(compound).close(state);
                self.send(purpose, Carries::Other, true, 0, close);
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
        let purpose = Purpose::Job(id);
        self.send(purpose, Carries::Other, false, most_bytes, |compound| {
            compound
                .walk(&directory)
                .read_directory(cookie, verifier, most_bytes)
        });
    }
}
