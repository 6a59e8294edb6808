//! Connections to the server: which are there, which are silent, which are cut.
//!
//! A path is up when it has answered in the session, not when it is connected: a stopped server
//! accepts connections.

use std::sync::Arc;

use super::calls::{Call, CallKind};
use super::{Action, Client, Event, Phase};
use crate::rpc::{PROCEDURE_NULL, RecordReader, begin_call, finish_record, reply_xid};
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

/// One connection.
#[derive(Debug)]
pub struct Path {
    state: PathState,
    reader: RecordReader,
    heard_ms: u64,
    pub(super) call: Option<Call>,
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

    /// Whether it can carry a call.
    pub fn is_free(&self) -> bool {
        self.is_connected() && self.call.is_none()
    }

    /// A call was refused: the next one waits, each time longer.
    pub fn pause(&mut self, now_ms: u64) {
        self.not_before_ms = now_ms + Client::pause_ms(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
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
                let called = self.call.map(|call| call.sent_ms);
                let dropped = called.map(|ms| ms + client.settings.dropped_after_ms);
                silent.into_iter().chain(pause).chain(dropped).min()
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
        if let Some(call) = self.paths[path].call.take_if(|call| call.xid == xid) {
            let taken = self.take_call(path, call.kind, reader);
            if taken.is_err() {
                // What cannot be read answers nothing: the call ends with the path.
                self.paths[path].call = Some(call);
            }
            return taken;
        }
        // An answer to what nobody waits for: it was sent twice, and answered twice.
        self.take_answer(path, xid, reader)
    }

    pub(super) fn raise(&mut self, path: usize) {
        self.paths[path].state = PathState::Up;
        self.paths[path].attempts = 0;
        self.actions.push_back(Action::Event(Event::PathUp(path)));
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
            if self.has_dropped(at) {
                self.reset(at);
                continue;
            }
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

    /// Whether a connected path owes an answer for so long that the server must have dropped the
    /// request. It is never asked again on the same connection: the protocol forbids that.
    fn has_dropped(&self, at: usize) -> bool {
        let path = &self.paths[at];
        let after_ms = self.settings.dropped_after_ms;
        let called = path.call.map(|call| call.sent_ms.saturating_add(after_ms));
        let session = self.session.as_ref();
        let asked = session.and_then(|session| session.dropped_at_ms(at, after_ms));
        let at_ms = called.into_iter().chain(asked).min();
        path.is_connected() && at_ms.is_some_and(|at_ms| at_ms <= self.now_ms)
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
            Some(CallKind::Close(_)) => self.end_closing(),
            Some(CallKind::Bind) | None => {}
            Some(_) => self.phase = Phase::NoSession,
        }
        if let Some(session) = &mut self.session {
            session.path_is_down(at);
        }
    }
}
