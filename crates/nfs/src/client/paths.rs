//! Connections to the server, and the calls that belong to a connection and to no slot.
//!
//! A path is up when it has answered in the session, not when it is connected: a stopped server
//! accepts connections.

use std::sync::Arc;

use super::{Action, Client, Event, Phase};
use crate::compound::{Compound, Refused, Results, SessionId};
use crate::rpc::{
    PROCEDURE_NULL, RecordReader, begin_call, finish_record, reply_accepted, reply_xid,
};
use crate::status::{ErrorKind, NfsError, Status};
use crate::wire::{EXCHANGED_CONFIRMED, operation};
use crate::xdr::{Reader, Violation};

/// What a record may have beside what was asked for.
const RECORD_BYTES_BESIDE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    Down {
        retry_at_ms: u64,
    },
    Connecting {
        since_ms: u64,
    },
    /// Connected, and not known to answer in the session.
    Connected,
    Up,
}

/// A call outside the slots; a path carries one at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    Exchange,
    /// Ends a session. With the client's id and the next sequence, another one is made after that.
    Destroy(SessionId, Option<(u64, u32)>),
    Create(u64, u32),
    Bind,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    xid: u32,
    kind: CallKind,
    sent_ms: u64,
}

/// One connection.
#[derive(Debug)]
pub struct Path {
    state: PathState,
    reader: RecordReader,
    heard_ms: u64,
    call: Option<Call>,
    probe: Option<u32>,
    not_before_ms: u64,
    attempts: u32,
}

impl Path {
    pub fn new(now_ms: u64) -> Self {
        Self {
            state: PathState::Down {
                retry_at_ms: now_ms,
            },
            reader: RecordReader::default(),
            heard_ms: now_ms,
            call: None,
            probe: None,
            not_before_ms: now_ms,
            attempts: 0,
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == PathState::Up
    }

    fn is_connected(&self) -> bool {
        matches!(self.state, PathState::Connected | PathState::Up)
    }

    /// There is another session, or none.
    pub fn unbind(&mut self) {
        if self.state == PathState::Up {
            self.state = PathState::Connected;
        }
        if self.call.is_some_and(|call| call.kind == CallKind::Bind) {
            self.call = None;
        }
    }

    fn waits_since_ms(&self, oldest_sent_ms: Option<u64>) -> Option<u64> {
        let called_ms = self.call.map(|call| call.sent_ms);
        let oldest_ms = called_ms.into_iter().chain(oldest_sent_ms).min()?;
        Some(oldest_ms.max(self.heard_ms))
    }

    /// When something is to be done with it.
    pub fn wake_at_ms(&self, oldest_sent_ms: Option<u64>, client: &Client) -> Option<u64> {
        match self.state {
            PathState::Down { retry_at_ms } => Some(retry_at_ms),
            PathState::Connecting { since_ms } => Some(since_ms + client.settings.silent_after_ms),
            PathState::Connected | PathState::Up => {
                let silent = self.waits_since_ms(oldest_sent_ms).map(|since_ms| {
                    let settings = &client.settings;
                    match self.probe {
                        None => since_ms + settings.probe_after_ms.min(settings.silent_after_ms),
                        Some(_) => since_ms + settings.silent_after_ms,
                    }
                });
                let later = self.not_before_ms > client.now_ms;
                let pause = later.then_some(self.not_before_ms);
                silent.into_iter().chain(pause).min()
            }
        }
    }
}

impl Client {
    /// The path has a connection.
    pub fn connected(&mut self, path: usize, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let now_ms = self.now_ms;
        let path = &mut self.paths[path];
        if matches!(path.state, PathState::Connecting { .. }) {
            path.state = PathState::Connected;
            path.reader = RecordReader::default();
            path.heard_ms = now_ms;
        }
        self.pump();
    }

    /// The path has lost its connection, or did not get one.
    pub fn disconnected(&mut self, path: usize, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        if !matches!(self.paths[path].state, PathState::Down { .. }) {
            self.take_down(path);
        }
        self.pump();
    }

    /// Bytes came on the path.
    pub fn received(&mut self, path: usize, mut bytes: &[u8], now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let most_bytes = self.settings.transfer_bytes as usize + RECORD_BYTES_BESIDE;
        while self.paths[path].is_connected() {
            let taken = self.paths[path].reader.take(&mut bytes, most_bytes);
            let taken = taken.and_then(|record| match record {
                Some(record) => self.take_record(path, &record).map(|()| true),
                None => Ok(false),
            });
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => self.reset(path),
            }
        }
        self.pump();
    }

    fn take_record(&mut self, path: usize, record: &[u8]) -> Result<(), Violation> {
        let mut reader = Reader::new(record);
        let xid = reply_xid(&mut reader)?;
        self.paths[path].heard_ms = self.now_ms;
        if self.paths[path].probe == Some(xid) {
            self.paths[path].probe = None;
            return Ok(());
        }
        if let Some(call) = self.paths[path].call.filter(|call| call.xid == xid) {
            self.paths[path].call = None;
            return self.take_call(path, call.kind, reader);
        }
        // An answer to what nobody waits for: it was sent twice, and answered twice.
        self.take_answer(path, xid, reader)
    }

    fn take_call(
        &mut self,
        path: usize,
        kind: CallKind,
        mut reader: Reader<'_>,
    ) -> Result<(), Violation> {
        if let Err(violation) = reply_accepted(&mut reader) {
            if kind == CallKind::Exchange {
                self.fail(NfsError::new("EXCHANGE_ID", ErrorKind::Access));
                return Ok(());
            }
            return Err(violation);
        }
        let mut results = Results::new(reader)?;
        let taken = match kind {
            CallKind::Exchange => self.take_exchange(path, &mut results),
            CallKind::Destroy(_, next) => self.take_destroy(path, next, &mut results),
            CallKind::Create(..) => self.take_create(path, &mut results),
            CallKind::Bind => results.done(operation::BIND_CONN_TO_SESSION).map(|()| {
                self.raise(path);
            }),
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
                let path = &mut self.paths[path];
                path.not_before_ms = self.now_ms + Self::pause_ms(path.attempts);
                path.attempts = path.attempts.saturating_add(1);
            }
            return;
        }
        let is_passing = status.is_wait()
            || status.is_session_lost()
            || matches!(status, Status::CLIENTID_BUSY | Status::SERVERFAULT);
        if is_passing {
            self.phase = Phase::NoSession;
            self.wait_with_setup();
        } else {
            self.fail(NfsError::told(operation::name(number), status));
        }
    }

    fn take_exchange(&mut self, path: usize, results: &mut Results<'_>) -> Result<(), Refused> {
        let exchanged = results.exchange_id()?;
        let is_known = exchanged.flags & EXCHANGED_CONFIRMED != 0;
        if !is_known || exchanged.client != self.client {
            self.registration += 1;
            self.client = exchanged.client;
        }
        let next = (exchanged.client, exchanged.sequence);
        // What a session still has under way must not be done beside what follows.
        self.former_session = self.former_session.filter(|_| is_known);
        match self.former_session {
            Some(former) => self.call(path, CallKind::Destroy(former, Some(next))),
            None => self.call(path, CallKind::Create(next.0, next.1)),
        }
        Ok(())
    }

    fn take_destroy(
        &mut self,
        path: usize,
        next: Option<(u64, u32)>,
        results: &mut Results<'_>,
    ) -> Result<(), Refused> {
        let done = results.done(operation::DESTROY_SESSION);
        let Some((client, sequence)) = next else {
            self.end_closing();
            return Ok(());
        };
        match done {
            Ok(()) | Err(Refused::Told(_, Status::BADSESSION)) => {
                self.former_session = None;
                self.call(path, CallKind::Create(client, sequence));
                Ok(())
            }
            other => other,
        }
    }

    fn take_create(&mut self, path: usize, results: &mut Results<'_>) -> Result<(), Refused> {
        let created = results.create_session()?;
        self.begin_session(&created)?;
        self.phase = Phase::SettingUp;
        self.raise(path);
        Ok(())
    }

    fn raise(&mut self, path: usize) {
        self.paths[path].state = PathState::Up;
        self.paths[path].attempts = 0;
        self.actions.push_back(Action::Event(Event::PathUp(path)));
    }

    pub(super) fn call(&mut self, path: usize, kind: CallKind) {
        let xid = self.next_xid();
        let compound = Compound::new(xid, &self.settings.credentials);
        let compound = match kind {
            CallKind::Exchange => {
                compound.exchange_id(&self.settings.owner, self.settings.verifier)
            }
            CallKind::Destroy(session, _) => compound.destroy_session(session),
            CallKind::Create(client, sequence) => {
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

    pub(super) fn connect_paths(&mut self) {
        for (at, path) in self.paths.iter_mut().enumerate() {
            if matches!(path.state, PathState::Down { retry_at_ms } if retry_at_ms <= self.now_ms) {
                path.state = PathState::Connecting {
                    since_ms: self.now_ms,
                };
                self.actions.push_back(Action::Connect(at));
            }
        }
    }

    pub(super) fn make_session(&mut self) {
        if self.phase != Phase::NoSession || self.setup_not_before_ms > self.now_ms {
            return;
        }
        let mut paths = self.paths.iter();
        let free = paths.position(|path| path.is_connected() && path.call.is_none());
        if let Some(path) = free {
            self.phase = Phase::Making;
            self.call(path, CallKind::Exchange);
        }
    }

    pub(super) fn bind_paths(&mut self) {
        if self.session.is_none() {
            return;
        }
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            let is_free = path.state == PathState::Connected && path.call.is_none();
            if is_free && path.not_before_ms <= self.now_ms {
                self.call(at, CallKind::Bind);
            }
        }
    }

    /// Probes and cuts paths that are silent.
    pub(super) fn look_at_paths(&mut self) {
        for at in 0..self.paths.len() {
            let oldest_ms = self.oldest_sent_ms(at);
            let path = &self.paths[at];
            let since_ms = match path.state {
                PathState::Down { .. } => continue,
                PathState::Connecting { since_ms } => Some(since_ms),
                PathState::Connected | PathState::Up => path.waits_since_ms(oldest_ms),
            };
            let Some(since_ms) = since_ms else {
                continue;
            };
            let silent_ms = self.now_ms.saturating_sub(since_ms);
            if silent_ms >= self.settings.silent_after_ms {
                self.reset(at);
            } else if silent_ms >= self.settings.probe_after_ms
                && path.is_connected()
                && path.probe.is_none()
            {
                let xid = self.next_xid();
                let mut bytes = begin_call(xid, PROCEDURE_NULL, &self.settings.credentials);
                finish_record(&mut bytes);
                self.paths[at].probe = Some(xid);
                self.actions.push_back(Action::Send(at, Arc::new(bytes)));
            }
        }
    }

    /// Cuts a path and tries it again later.
    pub(super) fn reset(&mut self, path: usize) {
        self.actions.push_back(Action::Reset(path));
        self.take_down(path);
    }

    /// Cuts a path for good.
    pub(super) fn cut(&mut self, path: usize) {
        if !matches!(self.paths[path].state, PathState::Down { .. }) {
            self.actions.push_back(Action::Reset(path));
        }
        self.paths[path].state = PathState::Down {
            retry_at_ms: u64::MAX,
        };
        self.paths[path].call = None;
    }

    /// What the path carried is sent on another one, or on this one when it is there again.
    fn take_down(&mut self, at: usize) {
        let path = &mut self.paths[at];
        let pause_ms = Self::pause_ms(path.attempts);
        path.attempts = path.attempts.saturating_add(1);
        path.state = PathState::Down {
            retry_at_ms: self.now_ms + pause_ms,
        };
        path.probe = None;
        let call = path.call.take();
        self.actions.push_back(Action::Event(Event::PathDown(at)));
        match call.map(|call| call.kind) {
            Some(CallKind::Destroy(_, None)) => self.end_closing(),
            Some(CallKind::Exchange | CallKind::Create(..) | CallKind::Destroy(..)) => {
                self.phase = Phase::NoSession;
            }
            Some(CallKind::Bind) | None => {}
        }
        if let Some(session) = &mut self.session {
            session.path_is_down(at);
        }
    }
}
