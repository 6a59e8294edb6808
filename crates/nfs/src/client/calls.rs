//! The calls that belong to a connection and to no slot: who we are, and which session is ours.
//!
//! A client that had a session once says so when it registers again, and is refused where another one
//! has its name by now. Only a server that does not know it at all is told of it anew: so a client that
//! was paused does not end what its successor has.

use std::sync::Arc;

use super::{Action, Client, Phase};
use crate::compound::{Compound, Refused, Results, SessionId};
use crate::rpc::reply_accepted;
use crate::status::{ErrorKind, NfsError, Status};
use crate::wire::{EXCHANGED_CONFIRMED, operation};
use crate::xdr::{Reader, Violation};

/// What the next `CREATE_SESSION` says: the client's name and the sequence.
pub type Next = (u64, u32);

/// A call outside the slots; a path carries one at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Registers; one that updates is refused where the server does not know us or knows another.
    Exchange {
        is_update: bool,
    },
    /// Ends a session before another one is made. Some servers take that only from a connection that
    /// is bound to it.
    Destroy {
        former: SessionId,
        next: Next,
        is_bound: bool,
    },
    BindFormer(SessionId, Next),
    Create(Next),
    Bind,
    /// Ends the session, and nothing follows.
    Close(SessionId),
}

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub xid: u32,
    pub kind: CallKind,
    pub sent_ms: u64,
}

impl Client {
    pub(super) fn make_session(&mut self) {
        if self.phase != Phase::NoSession || self.setup_not_before_ms > self.now_ms {
            return;
        }
        let mut paths = self.paths.iter();
        if let Some(path) = paths.position(super::Path::is_free) {
            self.phase = Phase::Making;
            let is_update = self.was_registered;
            self.call(path, CallKind::Exchange { is_update });
        }
    }

    pub(super) fn call(&mut self, path: usize, kind: CallKind) {
        let xid = self.next_xid();
        let compound = Compound::new(xid, &self.settings.credentials);
        let compound = match kind {
            CallKind::Exchange { is_update } => {
                compound.exchange_id(&self.owner, self.verifier, is_update)
            }
            CallKind::Destroy { former, .. } => compound.destroy_session(former),
            CallKind::Close(session) => compound.destroy_session(session),
            CallKind::BindFormer(session, _) => compound.bind(session),
            CallKind::Create((client, sequence)) => {
                let most_bytes = self.settings.transfer_bytes.saturating_add(4096);
                compound.create_session(client, sequence, self.settings.slots, most_bytes)
            }
            CallKind::Bind => {
                let session = self.session.as_ref().map(super::Session::id);
                compound.bind(session.expect("a path is bound to a session that is there"))
            }
        };
        self.paths[path].call = Some(Call {
            xid,
            kind,
            sent_ms: self.now_ms,
        });
        let bytes = Arc::new(compound.finish());
        self.actions.push_back(Action::Send(path, bytes));
    }

    /// The answer of a call. Where it cannot be read the path is cut, which ends the call.
    pub(super) fn take_call(
        &mut self,
        path: usize,
        kind: CallKind,
        mut reader: Reader<'_>,
    ) -> Result<(), Violation> {
        if let Err(violation) = reply_accepted(&mut reader) {
            if matches!(kind, CallKind::Exchange { .. }) && !self.was_registered {
                self.fail(NfsError::new("EXCHANGE_ID", ErrorKind::Access));
                return Ok(());
            }
            // A server that took us once, and does not now, may be about to start.
            return Err(violation);
        }
        let mut results = Results::new(reader)?;
        let taken = match kind {
            CallKind::Exchange { is_update } => self.take_exchange(path, is_update, &mut results),
            CallKind::Destroy { next, is_bound, .. } => {
                let done = results.done(operation::DESTROY_SESSION);
                self.take_destroy(path, next, is_bound, done)
            }
            CallKind::BindFormer(former, next) => {
                let done = results.done(operation::BIND_CONN_TO_SESSION);
                self.take_bind_former(path, former, next, done)
            }
            CallKind::Create(_) => self.take_create(path, &mut results),
            CallKind::Bind => results.done(operation::BIND_CONN_TO_SESSION).map(|()| {
                self.raise(path);
            }),
            CallKind::Close(_) => {
                // Whatever the server says: it ends the session when the lease is over.
                self.end_closing();
                Ok(())
            }
        };
        match taken {
            Ok(()) => Ok(()),
            Err(Refused::Broken(violation)) => Err(violation),
            Err(Refused::Told(number, status)) => {
                self.take_call_refusal(path, kind, number, status);
                Ok(())
            }
        }
    }

    fn take_call_refusal(&mut self, path: usize, kind: CallKind, number: u32, status: Status) {
        if kind == CallKind::Bind {
            if status.is_session_lost() {
                self.lose_session();
            } else {
                self.paths[path].pause(self.now_ms);
            }
            return;
        }
        let is_passing = status.is_wait()
            || status.is_session_lost()
            || matches!(status, Status::CLIENTID_BUSY | Status::SERVERFAULT);
        // Another client has our name, or the server cannot do what is asked: no time changes that.
        let is_final = matches!(
            status,
            Status::NOT_SAME
                | Status::PERM
                | Status::CLID_INUSE
                | Status::INVAL
                | Status::NOTSUPP
                | Status::MINOR_VERS_MISMATCH
        );
        if is_passing || (self.was_registered && !is_final) {
            self.phase = Phase::NoSession;
            self.wait_with_setup();
        } else {
            self.fail(NfsError::told(operation::name(number), status));
        }
    }

    fn take_exchange(
        &mut self,
        path: usize,
        is_update: bool,
        results: &mut Results<'_>,
    ) -> Result<(), Refused> {
        let exchanged = match results.exchange_id() {
            Err(Refused::Told(_, Status::NOENT)) if is_update => {
                self.call(path, CallKind::Exchange { is_update: false });
                return Ok(());
            }
            exchanged => exchanged?,
        };
        let is_confirmed = exchanged.flags & EXCHANGED_CONFIRMED != 0;
        let is_known = is_confirmed && exchanged.client == self.client;
        if !is_known {
            self.registration += 1;
            self.client = exchanged.client;
        }
        self.judge_registration(is_known);
        let next = (exchanged.client, exchanged.sequence);
        // What a session still has under way must not be done beside what follows.
        self.former_session = self.former_session.filter(|_| is_confirmed);
        match self.former_session {
            Some(former) => {
                let is_bound = false;
                let kind = CallKind::Destroy {
                    former,
                    next,
                    is_bound,
                };
                self.call(path, kind);
            }
            None => self.call(path, CallKind::Create(next)),
        }
        Ok(())
    }

    fn take_destroy(
        &mut self,
        path: usize,
        next: Next,
        is_bound: bool,
        done: Result<(), Refused>,
    ) -> Result<(), Refused> {
        match (done, self.former_session) {
            (Err(Refused::Told(_, Status::CONN_NOT_BOUND_TO_SESSION)), Some(former))
                if !is_bound =>
            {
                self.call(path, CallKind::BindFormer(former, next));
                Ok(())
            }
            (Ok(()) | Err(Refused::Told(_, Status::BADSESSION)), _) => {
                self.former_session = None;
                self.call(path, CallKind::Create(next));
                Ok(())
            }
            (refused, _) => refused,
        }
    }

    fn take_bind_former(
        &mut self,
        path: usize,
        former: SessionId,
        next: Next,
        done: Result<(), Refused>,
    ) -> Result<(), Refused> {
        match done {
            Err(Refused::Told(_, Status::BADSESSION)) => {
                self.take_destroy(path, next, true, Ok(()))
            }
            done => {
                done?;
                let is_bound = true;
                let kind = CallKind::Destroy {
                    former,
                    next,
                    is_bound,
                };
                self.call(path, kind);
                Ok(())
            }
        }
    }

    fn take_create(&mut self, path: usize, results: &mut Results<'_>) -> Result<(), Refused> {
        let created = results.create_session()?;
        self.begin_session(&created)?;
        self.was_registered = true;
        self.phase = Phase::SettingUp;
        self.raise(path);
        Ok(())
    }
}
