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
//! - A flush succeeds only where the server's verifier is that of every write that it covers.
//! - After a restart of the server a file is claimed again as it was open. Where the server does not
//!   grant that, nothing is written any more: another host may have the file.
//!
//! A crash of ours loses what no flush had covered; the server ends our hold when a client of the
//! same owner with another verifier comes, or when its lease is over.

mod answers;
mod paths;
mod requests;
mod unflushed;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::compound::{Entry, Handle, SessionId, StateId, Verifier};
use crate::rpc::Credentials;
use crate::status::{ErrorKind, NfsError};

use paths::{CallKind, Path};
use requests::Session;
use unflushed::Unflushed;

/// The most paths to one server.
pub const PATHS_MOST: usize = 4;
/// The most entries of a directory that are listed.
pub const ENTRIES_MOST: usize = 65_536;

/// What a client is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many paths there are, at most [`PATHS_MOST`].
    pub paths: usize,
    /// As whom it calls.
    pub credentials: Credentials,
    /// The same for every client that may take this one's place, and for no other.
    pub owner: Vec<u8>,
    /// Another one each time that it starts: the server then ends what the one before had.
    pub verifier: Verifier,
    /// The directory, from the root of the server's exports.
    pub directory: Vec<String>,
    /// The file in it; none to list the directory only.
    pub file: Option<FileWanted>,
    /// The most that one request carries.
    pub transfer_bytes: u32,
    /// The most requests under way.
    pub slots: u32,
    /// A path that was silent so long with requests out is asked whether it is there.
    pub probe_after_ms: u64,
    /// A path that was silent so long is cut, and its requests go elsewhere.
    pub silent_after_ms: u64,
}

/// The file that is the disk.
#[derive(Debug, Clone)]
pub struct FileWanted {
    /// Its name in the directory.
    pub name: String,
    /// Make it where it is not there.
    pub makes: bool,
}

/// A piece of work.
#[derive(Debug, Clone)]
pub enum Work {
    /// Gives the bytes of a range that lies within the file.
    Read {
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u32,
    },
    /// Writes.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Arc<[u8]>,
        /// Durable before it is answered; else after a later [`Work::Flush`].
        is_durable: bool,
    },
    /// Makes every write durable that was answered before.
    Flush,
    /// Gives the size.
    Size,
    /// Sets the size.
    SetSize(u64),
    /// Lists the directory.
    List,
    /// Ends the hold on the file, and the session. Nothing can be asked afterwards.
    Close,
}

impl Work {
    /// What the protocol calls it.
    #[must_use]
    pub const fn operation(&self) -> &'static str {
        match self {
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::Flush => "COMMIT",
            Self::Size => "GETATTR",
            Self::SetSize(_) => "SETATTR",
            Self::List => "READDIR",
            Self::Close => "CLOSE",
        }
    }
}

/// What work gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// What was read, as long as was asked.
    Data(Vec<u8>),
    /// The size in bytes.
    Size(u64),
    /// The entries of the directory.
    Entries(Vec<Entry>),
}

/// Tells pieces of work apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// What whoever drives a client is to do, in this order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Connect the path; [`Client::connected`] or [`Client::disconnected`] follows.
    Connect(usize),
    /// Send the bytes on the path.
    Send(usize, Arc<Vec<u8>>),
    /// Cut the path at once, so that what it still holds goes nowhere. Nothing follows.
    Reset(usize),
    /// Work is answered.
    Done(JobId, Result<Outcome, NfsError>),
    /// Something happened that concerns the disk as a whole.
    Event(Event),
}

/// What concerns the disk as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server forgot writes that were answered and not flushed: they are to be made again.
    LostWrites,
    /// The session was lost, and another one is made.
    SessionLost,
    /// The file was claimed again after a restart of the server.
    Reclaimed,
    /// The path answers.
    PathUp(usize),
    /// The path was cut, or does not answer.
    PathDown(usize),
    /// Nothing can be done any more: the reason.
    Failed(NfsError),
}

#[derive(Debug)]
struct Job {
    work: Work,
    deadline_ms: u64,
    not_before_ms: u64,
    attempts: u32,
    done_bytes: u32,
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
    held: Option<Held>,
    /// In which registration nothing more is claimed.
    reclaimed_in: Option<u64>,
    bounds: Bounds,
    unflushed: Unflushed,
    owes_loss: bool,
    setup_not_before_ms: u64,
    attempts: u32,
    closing: Option<JobId>,
    failure: Option<NfsError>,
    actions: VecDeque<Action>,
}

impl Client {
    /// A client without connections; the first actions ask for them.
    ///
    /// # Panics
    /// Where the settings name no path or too many, or no slot.
    #[must_use]
    pub fn new(settings: Settings, now_ms: u64) -> Self {
        assert!(
            (1..=PATHS_MOST).contains(&settings.paths),
            "a server has one to four paths"
        );
        assert!(settings.slots > 0, "a session without slots does nothing");
        let paths = (0..settings.paths).map(|_| Path::new(now_ms)).collect();
        let bounds = Bounds {
            read_bytes: settings.transfer_bytes,
            write_bytes: settings.transfer_bytes,
            lease_ms: 30_000,
        };
        let mut client = Self {
            // Where a server keeps answers by our numbers, another start has others.
            xid: u32::from_be_bytes(*settings.verifier.first_chunk().expect("it has eight bytes")),
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
            held: None,
            reclaimed_in: None,
            bounds,
            unflushed: Unflushed::default(),
            owes_loss: false,
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
        let has_lost_writes = matches!(work, Work::Flush) && std::mem::take(&mut self.owes_loss);
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
        let renewal = self.session.as_ref().map(|_| self.renew_at_ms());
        jobs.chain(paths)
            .chain(slots.filter_map(later))
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
            if let Some(session) = &mut self.session {
                session.make_late(id);
            }
            self.waiting.retain(|waiting| *waiting != id);
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            if matches!(job.work, Work::Flush) {
                self.unflushed.put_back(id);
            }
            let error = NfsError::new(job.work.operation(), ErrorKind::TimedOut);
            self.answer(id, Err(error));
        }
    }

    fn answer(&mut self, id: JobId, result: Result<Outcome, NfsError>) {
        if self.jobs.remove(&id).is_some() {
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

    /// The server forgot unflushed writes: every flush that waits says so, or else the next one.
    fn lose_writes(&mut self) {
        self.actions.push_back(Action::Event(Event::LostWrites));
        let mut is_told = false;
        for job in self.jobs.values_mut() {
            if matches!(job.work, Work::Flush) {
                job.has_lost_writes = true;
                is_told = true;
            }
            if let Work::Write {
                is_durable: false, ..
            } = job.work
            {
                // A piece of it may be among what was forgotten: all of it is written again.
                job.done_bytes = 0;
            }
        }
        self.owes_loss |= !is_told;
    }

    /// The session is of no use any more; what was under way is asked again in the next one.
    fn lose_session(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.actions.push_back(Action::Event(Event::SessionLost));
        self.former_session = Some(session.id());
        for id in session.jobs().rev() {
            if self.jobs.contains_key(&id) {
                self.unflushed.put_back(id);
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
            self.call(path, CallKind::Destroy(session, None));
        } else {
            self.end_closing();
        }
    }
}
