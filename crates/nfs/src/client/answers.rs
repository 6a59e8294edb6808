//! What the answers of the server mean for who waits.

use super::session::{Carries, Purpose, Sent};
use super::{Action, Client, ENTRIES_MOST, Event, Held, JobId, Outcome, Work};
use crate::compound::{Limits, Listing, Refused, Results, StateId, Written};
use crate::rpc::reply_accepted;
use crate::status::{ErrorKind, NfsError, Status};
use crate::wire::{Stable, operation};
use crate::xdr::{Reader, Violation};

impl Client {
    /// An answer to a request in a slot.
    pub(super) fn take_answer(
        &mut self,
        path: usize,
        xid: u32,
        mut reader: Reader<'_>,
    ) -> Result<(), Violation> {
        let Some(slot) = self
            .session
            .as_ref()
            .and_then(|session| session.slot_of(xid))
        else {
            return Ok(());
        };
        reply_accepted(&mut reader)?;
        let mut results = Results::new(reader)?;
        let now_ms = self.now_ms;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        let Some(at) = session.sent(slot).map(|sent| sent.at) else {
            return Ok(());
        };
        match results.sequence(&at) {
            Ok(()) => {
                let sent = session.take_done(slot);
                self.take_results(sent, &mut results);
            }
            Err(Refused::Broken(violation)) => return Err(violation),
            Err(Refused::Told(_, status)) if status.is_wait() => session.send_later(slot, now_ms),
            Err(Refused::Told(_, status)) if status.is_session_lost() => {
                session.take_answered(slot);
                self.lose_session();
            }
            Err(Refused::Told(_, Status::CONN_NOT_BOUND_TO_SESSION)) => {
                session.send_later(slot, now_ms);
                self.paths[path].unbind();
            }
            Err(refused @ Refused::Told(_, Status::RETRY_UNCACHED_REP)) => {
                let sent = session.take_done(slot);
                self.refuse(sent, refused);
            }
            Err(refused) => {
                let sent = session.take_undone(slot);
                let may_come_again = sent.as_ref().is_some_and(|sent| sent.copies > 1);
                self.refuse(sent, refused);
                if may_come_again {
                    // The slot's number is free, and what else goes under it could be taken for the
                    // copy that lies on a dead path: with the session, that copy is of no use.
                    self.lose_session();
                }
            }
        }
        Ok(())
    }

    fn take_results(&mut self, sent: Option<Sent>, results: &mut Results<'_>) {
        let Some(sent) = sent else {
            return;
        };
        let taken = match sent.purpose {
            Purpose::Job(id) => self.take_job(id, &sent, results),
            Purpose::Late => self.take_late(&sent, results),
            Purpose::Renew => Ok(()),
            Purpose::Settle => self.take_settled(results),
            Purpose::Reclaim => self.take_reclaim(results),
            Purpose::ReclaimComplete => self.take_reclaim_complete(results),
            Purpose::Open => self.take_open(results),
        };
        if let Err(refused) = taken {
            self.refuse(Some(sent), refused);
        }
    }

    fn take_reclaim(&mut self, results: &mut Results<'_>) -> Result<(), Refused> {
        results.done(operation::PUTFH)?;
        let state = results.open()?;
        if let Some(held) = &mut self.held {
            held.state = state;
            held.registration = self.registration;
        }
        self.attempts = 0;
        self.actions.push_back(Action::Event(Event::Reclaimed));
        Ok(())
    }

    fn take_reclaim_complete(&mut self, results: &mut Results<'_>) -> Result<(), Refused> {
        match results.done(operation::RECLAIM_COMPLETE) {
            Ok(()) | Err(Refused::Told(_, Status::COMPLETE_ALREADY)) => {
                self.reclaimed_in = Some(self.registration);
                self.attempts = 0;
                Ok(())
            }
            other => other,
        }
    }

    fn take_settled(&mut self, results: &mut Results<'_>) -> Result<(), Refused> {
        results.done(operation::PUTFH)?;
        let verifier = results.commit()?;
        self.take_committed(verifier);
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_settled = true;
        }
    }

    fn take_open(&mut self, results: &mut Results<'_>) -> Result<(), Refused> {
        results.walk(self.settings.directory.len())?;
        let state: StateId = results.open()?;
        let handle = results.get_handle()?;
        let limits = results.get_limits()?;
        self.learn(&limits);
        self.held = Some(Held {
            handle,
            state,
            registration: self.registration,
            is_settled: false,
        });
        Ok(())
    }

    fn learn(&mut self, limits: &Limits) {
        let within = |told: Option<u64>, own: u32| {
            let told = told.and_then(|bytes| u32::try_from(bytes).ok());
            // A server that takes less than a block at once is asked for blocks, and answers in part.
            told.map_or(own, |told| own.min(told.max(4096)))
        };
        self.bounds.read_bytes = within(limits.read_bytes, self.bounds.read_bytes);
        self.bounds.write_bytes = within(limits.write_bytes, self.bounds.write_bytes);
        if let Some(lease_s) = limits.lease_s {
            self.bounds.lease_ms = u64::from(lease_s.clamp(1, 3600)) * 1000;
        }
    }

    /// The request was not done, or its answer is of no use.
    fn refuse(&mut self, sent: Option<Sent>, refused: Refused) {
        let Some(sent) = sent else {
            return;
        };
        match sent.carries {
            Carries::Commit => self.refuse_commit(refused),
            Carries::UnstableWrite => self.refuse_write(false, refused),
            Carries::DurableWrite => self.refuse_write(true, refused),
            Carries::Other => {}
        }
        match sent.purpose {
            Purpose::Job(id) => self.refuse_job(id, refused),
            Purpose::Late | Purpose::Renew => {}
            Purpose::Reclaim | Purpose::ReclaimComplete | Purpose::Open | Purpose::Settle => {
                self.refuse_setup(sent.purpose, refused);
            }
        }
    }

    fn refuse_setup(&mut self, purpose: Purpose, refused: Refused) {
        match refused {
            Refused::Told(_, status) if status.is_wait() => self.wait_with_setup(),
            // A fault of its own says nothing of who holds the file.
            Refused::Told(_, Status::SERVERFAULT) if purpose != Purpose::Settle => {
                self.wait_with_setup();
            }
            Refused::Told(_, status) if status.is_session_lost() => self.lose_session(),
            // The loss is owed. The disk is there all the same.
            _ if purpose == Purpose::Settle => self.settle(),
            Refused::Told(_, Status::RETRY_UNCACHED_REP) => {}
            Refused::Told(number, status) if purpose == Purpose::Reclaim => {
                let kind = match status.kind() {
                    // Of the file or of the export, as after a start that has not come to its end: it
                    // says nothing of another host.
                    kind @ (ErrorKind::Gone | ErrorKind::NotFound | ErrorKind::Access) => kind,
                    // We do not hold the file, and another host may.
                    _ => ErrorKind::Fenced,
                };
                self.fail(NfsError {
                    operation: operation::name(number),
                    kind,
                    status: Some(status),
                });
            }
            refused => self.fail(refused.error("OPEN")),
        }
    }

    fn refuse_job(&mut self, id: JobId, refused: Refused) {
        let now_ms = self.now_ms;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match refused {
            Refused::Told(_, status) if status.is_wait() => {
                job.not_before_ms = now_ms + Self::pause_ms(job.attempts);
                job.attempts = job.attempts.saturating_add(1);
                self.waiting.push_back(id);
            }
            Refused::Told(_, status) if status.is_session_lost() => {
                self.waiting.push_front(id);
                self.lose_session();
            }
            Refused::Told(_, status)
                if matches!(job.work, Work::Flush) && status.kind() != ErrorKind::Fenced =>
            {
                self.answer_refused_flush(id, refused);
            }
            Refused::Broken(_) if matches!(job.work, Work::Flush) => {
                self.answer_refused_flush(id, refused);
            }
            Refused::Told(_, Status::RETRY_UNCACHED_REP) => self.waiting.push_front(id),
            refused => {
                let error = refused.error(job.work.operation());
                if matches!(job.work, Work::Close) && error.kind == ErrorKind::Fenced {
                    // It was closed before, and the answer was lost together with the session.
                    self.held = None;
                    self.begin_closing(id);
                } else if error.kind == ErrorKind::Fenced {
                    self.fail(error);
                } else {
                    self.answer(id, Err(error));
                }
            }
        }
    }

    fn take_job(
        &mut self,
        id: JobId,
        sent: &Sent,
        results: &mut Results<'_>,
    ) -> Result<(), Refused> {
        let Some(job) = self.jobs.get(&id) else {
            return Ok(());
        };
        let work = job.work.clone();
        if matches!(work, Work::List) {
            results.walk(self.settings.directory.len())?;
            let listing = results.read_directory()?;
            return self.take_listing(id, listing);
        }
        results.done(operation::PUTFH)?;
        match work {
            Work::Read { length_bytes, .. } => {
                let (data, is_end) = results.read(sent.length_bytes)?;
                self.take_read(id, data, is_end, length_bytes)?;
            }
            Work::Write {
                data, is_durable, ..
            } => {
                let written = results.write(sent.length_bytes)?;
                check_written(&written, sent, is_durable)?;
                self.take_written(id, &written, sent, data.len());
            }
            Work::Flush => {
                let verifier = results.commit()?;
                self.take_committed(verifier);
                let is_lost = self.jobs.get(&id).is_some_and(|job| job.has_lost_writes);
                let lost = NfsError::new("COMMIT", ErrorKind::LostWrites);
                self.answer(
                    id,
                    if is_lost {
                        Err(lost)
                    } else {
                        Ok(Outcome::Done)
                    },
                );
            }
            Work::Size => {
                let limits = results.get_limits()?;
                self.answer(id, Ok(Outcome::Size(limits.size_bytes)));
            }
            Work::SetSize(_) => {
                results.done(operation::SETATTR)?;
                self.answer(id, Ok(Outcome::Done));
            }
            Work::Close => {
                results.done(operation::CLOSE)?;
                self.held = None;
                self.begin_closing(id);
            }
            Work::List => {}
        }
        self.attempts = 0;
        Ok(())
    }

    fn take_read(
        &mut self,
        id: JobId,
        data: &[u8],
        is_end: bool,
        length_bytes: u32,
    ) -> Result<(), Refused> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        job.read
            .reserve_exact((length_bytes as usize).saturating_sub(job.done_bytes));
        job.read.extend_from_slice(data);
        job.done_bytes += data.len();
        if job.done_bytes == length_bytes as usize {
            let data = std::mem::take(&mut job.read);
            self.answer(id, Ok(Outcome::Data(data)));
        } else if is_end {
            // The file was cut short under us.
            self.answer(id, Err(NfsError::new("READ", ErrorKind::Gone)));
        } else if data.is_empty() {
            return Err(Violation("a read of nothing within the file").into());
        } else {
            self.waiting.push_front(id);
        }
        Ok(())
    }

    /// So much more of the data was written.
    pub(super) fn take_written(
        &mut self,
        id: JobId,
        written: &Written,
        sent: &Sent,
        length_bytes: usize,
    ) {
        if sent.carries == Carries::UnstableWrite && sent.losses != self.losses {
            // It was under way when writes were lost, and may be one of them: it is written again.
            self.unflushed.doubt();
            self.waiting.push_front(id);
            return;
        }
        if written.stable == Stable::Unstable && !self.unflushed.written(written.verifier) {
            self.lose_writes();
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.done_bytes != sent.done_bytes {
            // What was written before this piece was forgotten meanwhile: it begins anew.
            self.waiting.push_front(id);
            return;
        }
        job.done_bytes += written.count_bytes as usize;
        if job.done_bytes == length_bytes {
            self.answer(id, Ok(Outcome::Done));
        } else {
            self.waiting.push_front(id);
        }
    }

    fn take_listing(&mut self, id: JobId, listing: Listing) -> Result<(), Refused> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        if listing.entries.is_empty() && !listing.is_end {
            return Err(Violation("a piece of a directory without an entry").into());
        }
        job.entries.extend(listing.entries);
        job.cookie = listing.cookie;
        job.cookie_verifier = listing.verifier;
        if job.entries.len() > ENTRIES_MOST {
            self.answer(id, Err(NfsError::new("READDIR", ErrorKind::Refused)));
        } else if listing.is_end {
            let entries = std::mem::take(&mut job.entries);
            self.answer(id, Ok(Outcome::Entries(entries)));
        } else {
            self.waiting.push_front(id);
        }
        Ok(())
    }
}

/// Whether an answer to a write is one.
pub(super) fn check_written(
    written: &Written,
    sent: &Sent,
    is_durable: bool,
) -> Result<(), Violation> {
    if is_durable && written.stable != Stable::FileSync {
        return Err(Violation("a durable write that is none"));
    }
    if written.count_bytes == 0 && sent.length_bytes > 0 {
        return Err(Violation("a write of nothing without an error"));
    }
    Ok(())
}
