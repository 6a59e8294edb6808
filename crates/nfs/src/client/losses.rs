//! Writes that the server has lost, or may have: who is told, and what is written again.

use super::answers::check_written;
use super::session::{Carries, Purpose, Sent, Session};
use super::{Action, Client, Event, JobId, Phase, Work};
use crate::compound::{Refused, Results, Verifier};
use crate::status::{ErrorKind, NfsError, Status};
use crate::wire::operation;

impl Client {
    /// The server lost unflushed writes. It is owed until a flush has told it: those that wait, or the
    /// next one where they end otherwise.
    pub(super) fn lose_writes(&mut self) {
        self.actions.push_back(Action::Event(Event::LostWrites));
        self.losses += 1;
        self.owes_loss = true;
        for job in self.jobs.values_mut() {
            match job.work {
                Work::Flush => job.has_lost_writes = true,
                // A piece of it may be among what was lost: all of it is written again.
                Work::Write {
                    is_durable: false, ..
                } => job.done_bytes = 0,
                _ => {}
            }
        }
    }

    /// Nobody waits for this work any more; its slot waits on. From now until it is answered the server
    /// may do it at any moment, and a reader may see it: each flush asks for a COMMIT.
    pub(super) fn make_late(&mut self, id: JobId) {
        let carries = self.session.as_mut().and_then(|one| one.make_late(id));
        if carries == Some(Carries::UnstableWrite) {
            self.unflushed.doubt();
        }
    }

    /// The server has answered what was given up.
    pub(super) fn take_late(
        &mut self,
        sent: &Sent,
        results: &mut Results<'_>,
    ) -> Result<(), Refused> {
        match sent.carries {
            Carries::Commit => {
                results.done(operation::PUTFH)?;
                let verifier = results.commit()?;
                self.take_committed(verifier);
            }
            Carries::DurableWrite => {
                results.done(operation::PUTFH)?;
                let written = results.write(sent.length_bytes)?;
                check_written(&written, sent, true)?;
            }
            // It has been in doubt since it was given up.
            Carries::UnstableWrite | Carries::Other => {}
        }
        Ok(())
    }

    pub(super) fn take_committed(&mut self, verifier: Verifier) {
        if !self.unflushed.flushed(verifier) {
            self.unflushed.lose();
            self.lose_writes();
        }
        let mut under_way = self.session.iter().flat_map(Session::under_way);
        let is_late =
            |sent: &Sent| sent.purpose == Purpose::Late && sent.carries == Carries::UnstableWrite;
        if under_way.any(is_late) {
            drop(under_way);
            self.unflushed.doubt();
        }
    }

    /// A COMMIT was not done. But where the server asks for patience, it may have taken what it could
    /// not write for written, so that the next COMMIT succeeds and says nothing.
    pub(super) fn refuse_commit(&mut self, refused: Refused) {
        self.unflushed.put_back();
        match refused {
            Refused::Told(_, status) if status.is_wait() => {}
            Refused::Told(_, status) if status.is_session_lost() => self.has_unknown_commit = true,
            _ => {
                self.unflushed.lose();
                self.lose_writes();
            }
        }
    }

    /// A write was not done, or nobody knows.
    pub(super) fn refuse_write(&mut self, is_durable: bool, refused: Refused) {
        let status = match refused {
            Refused::Told(_, status) => Some(status),
            Refused::Broken(_) => None,
        };
        let is_ambiguous = status == Some(Status::RETRY_UNCACHED_REP);
        let has_failed = status.is_some_and(|status| {
            matches!(status.kind(), ErrorKind::Io | ErrorKind::Refused) && !status.is_wait()
        });
        if is_durable && has_failed && !is_ambiguous && !self.unflushed.is_empty() {
            // The server has flushed for it, and its error may be that of any write of the file; a
            // server's kernel tells such an error once.
            self.unflushed.lose();
            self.lose_writes();
        } else if !status.is_some_and(Status::is_wait) {
            self.unflushed.doubt();
        }
    }

    /// The server knows us as the client that had the former session; or it does not, as after a
    /// restart or when the lease is over.
    pub(super) fn judge_registration(&mut self, is_known: bool) {
        let has_unknown_commit = std::mem::take(&mut self.has_unknown_commit);
        let is_served = self.held.as_ref().is_some_and(|held| held.is_settled);
        if is_known && has_unknown_commit {
            // That COMMIT may have failed, and the next one would not tell.
            self.unflushed.lose();
            self.lose_writes();
        } else if !is_known && is_served && !self.unflushed.is_empty() {
            // Whatever its verifier says: a server may keep that over a restart.
            self.unflushed.forget();
            self.lose_writes();
        }
    }

    /// The session is of no use any more; what was under way is asked again in the next one.
    pub(super) fn lose_session(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.actions.push_back(Action::Event(Event::SessionLost));
        self.former_session = Some(session.id());
        for sent in session.under_way() {
            match sent.carries {
                Carries::UnstableWrite => self.unflushed.doubt(),
                Carries::Commit => {
                    self.has_unknown_commit |= sent.copies > 0;
                    self.unflushed.put_back();
                }
                Carries::DurableWrite | Carries::Other => {}
            }
        }
        for sent in session.under_way().rev() {
            if let Purpose::Job(id) = sent.purpose
                && self.jobs.contains_key(&id)
            {
                self.waiting.push_front(id);
            }
        }
        self.phase = Phase::NoSession;
        // A server that ends each session at once is not asked without a pause.
        self.wait_with_setup();
        for path in &mut self.paths {
            path.unbind();
        }
    }

    /// A flush whose COMMIT the server refused is told the loss, and what the server said.
    pub(super) fn answer_refused_flush(&mut self, id: JobId, refused: Refused) {
        let status = match refused {
            Refused::Told(_, status) => Some(status),
            Refused::Broken(_) => None,
        };
        let error = NfsError {
            operation: "COMMIT",
            kind: ErrorKind::LostWrites,
            status,
        };
        self.answer(id, Err(error));
    }
}
