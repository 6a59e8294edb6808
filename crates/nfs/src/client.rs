//! One file on a server as a disk: the protocol's whole state, without sockets and without a clock.
//!
//! Whoever drives a [`Client`] tells it what happened (a connection is there, bytes came, time went
//! by) and does what it asks for ([`Action`]): so that threads, a ring or a simulator can drive it.
//!
//! **Invariants.**
//! - A request keeps its slot and its sequence number until the server has answered it, on whichever
//!   connection it is sent: what is sent twice is done once, and what a dead connection still holds
//!   cannot be done after a later request of the slot.
//! - A request whose time is over is answered, and stays in its slot as one that is late:
//!   [`Client::late_count`] tells of those, and no write is begun meanwhile.
//! - A flush succeeds only where the server's verifier is that of every write that it covers, and asks
//!   for a `COMMIT` wherever the server may hold what is not durable. A loss is owed to a flush until
//!   one has told it.
//! - After a restart of the server a file is claimed again as it was open. Where the server does not
//!   grant that, nothing is written any more: another host may have the file.
//!
//! A crash of ours loses what no flush had covered; the server ends our hold when a client of the
//! same owner with another verifier comes, or when its lease is over.

mod answers;
mod calls;
mod interface;
mod losses;
mod owner;
mod paths;
mod requests;
mod session;
#[cfg(test)]
mod tests;
mod unflushed;

use std::collections::{BTreeMap, VecDeque};

use crate::compound::{Entry, Handle, SessionId, StateId, Verifier};
use crate::status::{ErrorKind, NfsError};

pub use interface::{
    Action, ENTRIES_MOST, Event, FileWanted, JobId, Outcome, PATHS_MOST, Settings,
    TRANSFER_BYTES_MOST, Work,
};
pub use owner::fnv;

use calls::CallKind;
use paths::Path;
use session::Session;
use unflushed::Unflushed;

#[derive(Debug)]
struct Job {
    work: Work,
    deadline_ms: u64,
    not_before_ms: u64,
    attempts: u32,
    done_bytes: usize,
    read: Vec<u8>,
    entries: Vec<Entry>,
    cookie: u64,
    cookie_verifier: Verifier,
    has_lost_writes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No session, and nobody makes one.
    NoSession,
    /// A path carries what makes one.
    Making,
    /// A session that does not hold the file yet.
    SettingUp,
    /// Work is done.
    Ready,
    /// Never again.
    Ended,
}

#[derive(Debug, Clone)]
struct Held {
    handle: Handle,
    state: StateId,
    /// In which registration of ours the server gave it.
    registration: u64,
    /// What was in the server's memory before us was made durable, or its loss is owed: nothing is
    /// read before, so that no reader acts on what a restart takes back.
    is_settled: bool,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    read_bytes: u32,
    write_bytes: u32,
    lease_ms: u64,
}

/// The protocol's state for one file.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    /// How the server tells us from who comes before and after us.
    owner: Vec<u8>,
    verifier: Verifier,
    now_ms: u64,
    xid: u32,
    next_job: u64,
    jobs: BTreeMap<JobId, Job>,
    waiting: VecDeque<JobId>,
    paths: Vec<Path>,
    phase: Phase,
    session: Option<Session>,
    /// A session that we gave up, and the server may not have.
    former_session: Option<SessionId>,
    /// What the server calls us.
    client: u64,
    /// Counts how often the server did not know us. Its own name for us does not tell: a server that
    /// starts twice within a second may give the same.
    registration: u64,
    /// The server gave us a session once: whoever has our name with another verifier took our place.
    was_registered: bool,
    held: Option<Held>,
    /// In which registration nothing more is claimed.
    reclaimed_in: Option<u64>,
    bounds: Bounds,
    unflushed: Unflushed,
    /// How often writes were lost.
    losses: u64,
    /// No flush has told the last loss yet.
    owes_loss: bool,
    /// A session ended under a COMMIT whose answer nobody has seen.
    has_unknown_commit: bool,
    setup_not_before_ms: u64,
    attempts: u32,
    closing: Option<JobId>,
    failure: Option<NfsError>,
    actions: VecDeque<Action>,
}

impl Client {
    /// A client without connections; the first actions ask for them. The verifier is drawn for each
    /// client: by another one than before the server ends what the client before had, in the same
    /// process, too.
    ///
    /// # Panics
    /// Where the settings name no path or too many, or no slot.
    #[must_use]
    pub fn new(mut settings: Settings, verifier: Verifier, now_ms: u64) -> Self {
        assert!(
            (1..=PATHS_MOST).contains(&settings.paths),
            "a server has one to four paths"
        );
        assert!(settings.slots > 0, "a session without slots does nothing");
        settings.transfer_bytes = settings.transfer_bytes.min(TRANSFER_BYTES_MOST);
        let paths = (0..settings.paths).map(|_| Path::new(now_ms)).collect();
        let bounds = Bounds {
            read_bytes: settings.transfer_bytes,
            write_bytes: settings.transfer_bytes,
            lease_ms: 30_000,
        };
        let mut client = Self {
            // Where a server keeps answers by our numbers, another start has others.
            xid: u32::from_be_bytes(*verifier.first_chunk().expect("it has eight bytes")),
            owner: owner::of(&settings, verifier),
            verifier,
            settings,
            now_ms,
            next_job: 0,
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            paths,
            phase: Phase::NoSession,
            session: None,
            former_session: None,
            client: 0,
            registration: 0,
            was_registered: false,
            held: None,
            reclaimed_in: None,
            bounds,
            unflushed: Unflushed::default(),
            losses: 0,
            owes_loss: false,
            has_unknown_commit: false,
            setup_not_before_ms: now_ms,
            attempts: 0,
            closing: None,
            failure: None,
            actions: VecDeque::new(),
        };
        client.pump();
        client
    }

    /// Takes on a piece of work, which is answered by `deadline_ms` at the latest.
    pub fn submit(&mut self, work: Work, deadline_ms: u64, now_ms: u64) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let has_lost_writes = matches!(work, Work::Flush) && self.owes_loss;
        let job = Job {
            work,
            deadline_ms,
            not_before_ms: 0,
            attempts: 0,
            done_bytes: 0,
            read: Vec::new(),
            entries: Vec::new(),
            cookie: 0,
            cookie_verifier: [0; 8],
            has_lost_writes,
        };
        self.jobs.insert(id, job);
        self.waiting.push_back(id);
        self.tick(now_ms);
        id
    }

    /// Time went by.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.pass_deadlines();
        self.look_at_paths();
        self.pump();
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// How many requests were answered as late and may still be done by the server.
    #[must_use]
    pub fn late_count(&self) -> usize {
        self.session.as_ref().map_or(0, Session::late_count)
    }

    /// Whether nothing can be done any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether the file is held and work is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// When to call [`Client::tick`] at the latest, where nothing else happens.
    #[must_use]
    pub fn wake_at_ms(&self) -> u64 {
        let jobs = self.jobs.values().map(|job| {
            if job.not_before_ms > self.now_ms {
                job.deadline_ms.min(job.not_before_ms)
            } else {
                job.deadline_ms
            }
        });
        let later = |at_ms: u64| (at_ms > self.now_ms).then_some(at_ms);
        let paths = self.paths.iter().enumerate();
        let paths = paths.filter_map(|(at, path)| path.wake_at_ms(self.oldest_sent_ms(at), self));
        let slots = self.session.iter().flat_map(Session::waits_until_ms);
        let after_ms = self.settings.dropped_after_ms;
        let dropped = self.session.iter().flat_map(|session| {
            let paths = 0..self.paths.len();
            paths.filter_map(|path| session.dropped_at_ms(path, after_ms))
        });
        let renewal = self.session.as_ref().map(|_| self.renew_at_ms());
        jobs.chain(paths)
            .chain(slots.filter_map(later))
            .chain(dropped)
            .chain(later(self.setup_not_before_ms))
            .chain(renewal)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Lets what can be begun begin.
    fn pump(&mut self) {
        if self.phase == Phase::Ended {
            self.fail_all();
            return;
        }
        self.connect_paths();
        self.make_session();
        self.bind_paths();
        self.set_up();
        self.send_again();
        self.begin_jobs();
        self.renew();
    }

    fn pass_deadlines(&mut self) {
        let now_ms = self.now_ms;
        let late = self
            .jobs
            .iter()
            .filter(|(_, job)| job.deadline_ms <= now_ms);
        let late: Vec<JobId> = late.map(|(id, _)| *id).collect();
        for id in late {
            if self.closing == Some(id) {
                self.end_closing();
                continue;
            }
            self.make_late(id);
            self.waiting.retain(|waiting| *waiting != id);
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            let error = NfsError::new(job.work.operation(), ErrorKind::TimedOut);
            self.answer(id, Err(error));
        }
    }

    fn answer(&mut self, id: JobId, result: Result<Outcome, NfsError>) {
        if self.jobs.remove(&id).is_some() {
            if matches!(&result, Err(error) if error.kind == ErrorKind::LostWrites) {
                self.owes_loss = false;
            }
            self.actions.push_back(Action::Done(id, result));
        }
    }

    /// Nothing can be done any more.
    fn fail(&mut self, error: NfsError) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        self.failure = Some(error);
        self.session = None;
        if error.kind != ErrorKind::Closed {
            self.actions.push_back(Action::Event(Event::Failed(error)));
        }
        for at in 0..self.paths.len() {
            self.cut(at);
        }
        self.fail_all();
    }

    fn fail_all(&mut self) {
        let error = self.failure.expect("what has ended says why");
        self.waiting.clear();
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.answer(id, Err(error));
        }
    }

    fn end_closing(&mut self) {
        if let Some(id) = self.closing.take() {
            self.answer(id, Ok(Outcome::Done));
            self.fail(NfsError::new("CLOSE", ErrorKind::Closed));
        }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// How long to wait before the next try, growing to a second.
    const fn pause_ms(attempts: u32) -> u64 {
        let doublings = if attempts < 7 { attempts } else { 7 };
        10 << doublings
    }

    fn wait_with_setup(&mut self) {
        self.setup_not_before_ms = self.now_ms + Self::pause_ms(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
    }

    fn begin_closing(&mut self, id: JobId) {
        self.closing = Some(id);
        let session = self.session.as_ref().map(Session::id);
        let path = self.paths.iter().position(Path::is_up);
        if let (Some(session), Some(path)) = (session, path) {
            self.call(path, CallKind::Close(session));
        } else {
            self.end_closing();
        }
    }
}
