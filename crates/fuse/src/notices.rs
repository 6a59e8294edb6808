//! Notices that have the kernel drop what it keeps of a file, and answers that wait for them.
//!
//! Of what a program writes past the page cache (`O_DIRECT`, or a file that is opened so here) the
//! kernel drops the pages before it sends the write. Afterwards it does so only where the program
//! waits for it: of an asynchronous write it keeps what a reader has brought there in between, for
//! good. So such a write is answered when the kernel was told to drop the pages once more.
//!
//! It waits for pages that are being read, and nobody can end that wait. So a process of its own
//! ([`process`]) sends the notices, and is started when there is the first.
//!
//! **Invariants.** No worker waits here, and no notice is sent by this process: whatever the kernel
//! waits for is served and answered. An answer waits for its own notice alone, and no longer than
//! [`HELD_MOST`] where there is a process that sends it, and than [`PROCESS_MOST`] where that one is
//! being started; no more than [`ANSWERS_MOST`] wait, so that the kernel has slots left for the reads
//! that their notices wait for. What is answered before its notice is done has it sent all the same.
//! A request whose answer waits counts as being served.

mod process;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use spindle_fs::{Asking, KeptBytes};

use crate::abi::NotifyInodeOut;
use crate::device_transport::send;
use crate::gate::Gate;
use wire::{Asked, Done};

pub use process::send_notices;

/// So many answers wait at most: half of what the kernel has under way without a caller.
const ANSWERS_MOST: usize = 128;
/// So many notices are sent at a time at most.
const NOTICES_MOST: usize = ANSWERS_MOST;
/// How long an answer waits for its notice at most: longer than a read takes, and short enough for
/// whoever has given the kernel fewer slots than answers wait here.
const HELD_MOST: Duration = Duration::from_millis(250);
/// How long an answer waits at most where the process is being started or replaced: no notice of
/// that process holds up a read meanwhile, and on a busy machine its start takes longer than one.
const PROCESS_MOST: Duration = Duration::from_secs(2);
/// How often answers are looked at that wait for too long.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// For so long after the last notice the next one is expected.
const EXPECTED_FOR: Duration = Duration::from_secs(1);
/// After how long a process is started again, counted from the last start: one that did what it was
/// asked for and was killed, and one that cannot be started or does nothing.
const REPLACE_AFTER: Duration = Duration::from_millis(100);
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// So many processes one after the other that did nothing, and no answer waits for the next. One
/// may have been killed before it came to do anything.
const USELESS_MOST: u32 = 2;
/// How long the end waits until the last notices have gone to the process.
const END_MOST: Duration = Duration::from_millis(500);

/// The program that sends notices: it calls [`send_notices`] with its standard input.
#[derive(Debug, Clone)]
pub struct NoticesProgram {
    /// The file.
    pub path: PathBuf,
    /// What it calls itself in lists of processes.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// What the kernel is to drop after a write.
#[derive(Debug)]
pub(crate) struct Dropped {
    pub(crate) notice: NotifyInodeOut,
    /// The whole file afterwards, which this is told then.
    pub(crate) and_all: Option<Forgets>,
}

/// Who is told when the kernel has dropped all of a file, and of which asking.
pub(crate) type Forgets = (Arc<KeptBytes>, Asking);

/// An answer that is to be given.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) descriptor: Arc<OwnedFd>,
    pub(crate) unique: u64,
    pub(crate) data: Vec<u8>,
}

impl Answer {
    fn give(&self) -> Result<(), Errno> {
        send(&self.descriptor, self.unique, 0, &[&self.data])
    }
}

/// A notice that is not done.
#[derive(Debug)]
struct Waiting {
    notice: NotifyInodeOut,
    answer: Option<Answer>,
    forgets: Option<Forgets>,
    /// Who waits for it elsewhere; they are dropped when it is done, and nothing is sent.
    witnesses: Vec<Sender<()>>,
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    socket: Option<Arc<OwnedFd>>,
    next_number: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Those of them that the process does not know of.
    unsent: BTreeSet<u64>,
    answers_count: usize,
    /// The last process could not be started, or the last ones have done nothing: no answer waits for
    /// the next.
    is_failing: bool,
    /// When this process said that it is there.
    begun_at: Option<Instant>,
    /// So many processes, this one included, were started since the last notice was done.
    useless_count: u32,
    is_asleep: bool,
    closed_at: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    gate: Arc<Gate>,
    program: Option<NoticesProgram>,
    device: Arc<OwnedFd>,
    /// The mount as the kernel numbers it, and where it is.
    connection: u64,
    directory: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

/// The notices of one mount.
#[derive(Debug, Clone)]
pub(crate) struct Notices(Arc<Shared>);

/// Who sees to them.
#[derive(Debug)]
pub(crate) struct NoticesThread {
    notices: Notices,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Notices {
    /// Of a mount that nobody has to be told of: it answers at once.
    pub(crate) fn none(device: &Arc<OwnedFd>) -> Self {
        Self::of(&Arc::new(Gate::new(0)), device, "", Path::new(""), None)
    }

    /// Of the mount `device` with this gate; `number` is its device's, as `0:50`.
    pub(crate) fn of(
        gate: &Arc<Gate>,
        device: &Arc<OwnedFd>,
        number: &str,
        directory: &Path,
        program: Option<NoticesProgram>,
    ) -> Self {
        let minor = number.rsplit(':').next();
        Self(Arc::new(Shared {
            gate: Arc::clone(gate),
            program,
            device: Arc::clone(device),
            connection: minor.and_then(|minor| minor.parse().ok()).unwrap_or(0),
            directory: directory.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Starts whoever sees to them.
    pub(crate) fn start(&self) -> std::io::Result<NoticesThread> {
        let shared = Arc::clone(&self.0);
        let thread = (shared.program.is_some())
            .then(|| {
                thread::Builder::new()
                    .name("fuse-notices".to_owned())
                    .spawn(move || shared.work())
            })
            .transpose()?;
        Ok(NoticesThread {
            notices: self.clone(),
            thread: Mutex::new(thread),
        })
    }

    /// Answers when the kernel has dropped that, or at once where too many answers wait.
    ///
    /// # Errors
    /// What the kernel said of the answer, where it was given at once.
    pub(crate) fn answer_after(&self, dropped: Dropped, answer: Answer) -> Result<(), Errno> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        if shared.program.is_none() || state.closed_at.is_some() {
            drop(state);
            return answer.give();
        }
        let (held, at_once) = if state.answers_count < ANSWERS_MOST && !state.is_failing {
            state.answers_count += 1;
            shared.gate.serve_on();
            (Some(answer), None)
        } else {
            (None, Some(answer))
        };
        self.ask(state, dropped, held);
        at_once.map_or(Ok(()), |answer| answer.give())
    }
}

impl Notices {
    /// Has the kernel drop that, soon; whoever wrote it is told of an error at once.
    pub(crate) fn drop_pages(&self, dropped: Dropped) {
        let state = self.0.state.lock();
        if self.0.program.is_some() && state.closed_at.is_none() {
            self.ask(state, dropped, None);
        }
    }

    /// Has the kernel drop all that it keeps of a file, after it has written changed pages, and waits
    /// for that, so long at most, or [`PROCESS_MOST`] where the process is being started. Whether it was
    /// done by then: it is done in any case, where there is a process that does it.
    pub(crate) fn drop_file(&self, node: u64, most: Duration) -> bool {
        let (witness, done) = mpsc::channel();
        let mut state = self.0.state.lock();
        if state.closed_at.is_some() {
            return false;
        }
        let notice = NotifyInodeOut {
            node,
            offset_bytes: 0,
            length_bytes: 0,
        };
        let number = state.ask(notice, None, None);
        if let Some(waiting) = state.waiting.get_mut(&number) {
            waiting.witnesses.push(witness);
        }
        let is_failing = state.is_failing;
        let most = match state.begun_at {
            Some(_) => most,
            None => most.max(PROCESS_MOST),
        };
        if std::mem::take(&mut state.is_asleep) {
            self.0.changed.notify_one();
        }
        drop(state);
        if is_failing {
            return false;
        }
        let is_done = done.recv_timeout(most) == Err(RecvTimeoutError::Disconnected);
        if !is_done {
            self.0.state.lock().note_waited();
        }
        is_done
    }

    /// Whether a process sends the notices of this mount.
    pub(crate) fn has_program(&self) -> bool {
        self.0.program.is_some()
    }

    fn ask(&self, mut state: MutexGuard<'_, State>, dropped: Dropped, held: Option<Answer>) {
        state.ask(dropped.notice, held, None);
        if dropped.and_all.is_some() {
            let all = NotifyInodeOut {
                offset_bytes: 0,
                length_bytes: 0,
                ..dropped.notice
            };
            state.ask(all, None, dropped.and_all);
        }
        if std::mem::take(&mut state.is_asleep) {
            self.0.changed.notify_one();
        }
    }

    /// The mount has ended, or is left.
    pub(crate) fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed_at.get_or_insert_with(Instant::now);
        drop(state);
        self.0.changed.notify_all();
    }
}

impl State {
    /// Has a notice sent, now where that can be; its number.
    fn ask(
        &mut self,
        notice: NotifyInodeOut,
        answer: Option<Answer>,
        forgets: Option<Forgets>,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let waiting = Waiting {
            notice,
            answer,
            forgets,
            witnesses: Vec::new(),
            since: Instant::now(),
        };
        self.waiting.insert(number, waiting);
        self.unsent.insert(number);
        self.send_rest();
        number
    }

    /// Sends what is not sent, the oldest first, as far as that goes.
    fn send_rest(&mut self) {
        let Some(socket) = &self.socket else {
            return;
        };
        while let Some(number) = self.unsent.first().copied() {
            let notice = self.waiting[&number].notice;
            if wire::send_at_once(socket, &Asked { number, notice }).is_err() {
                return;
            }
            self.unsent.remove(&number);
        }
    }

    /// The process is gone: what it has not done is for the next one.
    fn lose_process(&mut self) {
        self.socket = None;
        self.begun_at = None;
        self.is_failing |= self.useless_count >= USELESS_MOST;
        self.unsent = self.waiting.keys().copied().collect();
    }

    /// How long after the last start of a process the next may be.
    const fn start_interval(&self) -> Duration {
        if self.is_failing {
            START_AGAIN_AFTER
        } else {
            REPLACE_AFTER
        }
    }

    /// The answers that have waited for so long since there is a process for them, or for so long
    /// in all; their notices are done later.
    fn overdue(&mut self, held_most: Duration, in_all_most: Duration) -> Vec<Answer> {
        let begun_at = self.begun_at;
        let is_overdue = |since: Instant| {
            let held = begun_at.map(|begun_at| since.max(begun_at).elapsed());
            held.is_some_and(|held| held >= held_most) || since.elapsed() >= in_all_most
        };
        let answers: Vec<Answer> = (self.waiting.values_mut())
            .filter(|waiting| is_overdue(waiting.since))
            .filter_map(|waiting| waiting.answer.take())
            .collect();
        self.answers_count -= answers.len();
        self.merge();
        if !answers.is_empty() {
            self.note_waited();
        }
        answers
    }

    /// Somebody has waited in vain, for a process that may hang in its start: nobody waits for that
    /// one any more.
    const fn note_waited(&mut self) {
        self.is_failing |= self.begun_at.is_none();
    }

    /// Of the notices that could not even be sent, and for which no answer waits, one for each file
    /// stays, so that they do not grow.
    fn merge(&mut self) {
        let mut newest: HashMap<u64, u64> = HashMap::new();
        for number in self.unsent.clone() {
            let waiting = &self.waiting[&number];
            if waiting.answer.is_some() {
                continue;
            }
            let Some(former) = newest.insert(waiting.notice.node, number) else {
                continue;
            };
            self.unsent.remove(&former);
            let former = self.waiting.remove(&former);
            let (forgets, witnesses) = former.map_or((None, Vec::new()), |former| {
                (former.forgets, former.witnesses)
            });
            if let Some((kept, _)) = forgets {
                // What it was to be told is begun again.
                kept.note_kept();
            }
            if let Some(waiting) = self.waiting.get_mut(&number) {
                waiting.witnesses.extend(witnesses);
                waiting.notice.offset_bytes = 0;
                waiting.notice.length_bytes = 0;
            }
        }
    }

    /// Whether there is nothing more to see to.
    fn is_over(&self) -> bool {
        let waited = self.closed_at.map(|closed_at| closed_at.elapsed());
        waited.is_some_and(|waited| {
            self.answers_count == 0 && (self.unsent.is_empty() || waited >= END_MOST)
        })
    }
}

impl Shared {
    /// Sees to the notices until the mount is left.
    fn work(&self) {
        let mut last_use = Instant::now();
        let (mut started_at, mut looked_at) = (None::<Instant>, Instant::now());
        loop {
            let mut state = self.state.lock();
            if !state.waiting.is_empty() {
                last_use = Instant::now();
            } else if last_use.elapsed() > EXPECTED_FOR && state.closed_at.is_none() {
                state.is_asleep = true;
                while state.is_asleep && state.closed_at.is_none() {
                    self.changed.wait(&mut state);
                }
                continue;
            }
            if state.is_over() {
                state.socket = None;
                return;
            }
            let may_start =
                started_at.is_none_or(|started_at| started_at.elapsed() >= state.start_interval());
            if state.socket.is_none() && !state.unsent.is_empty() && may_start {
                drop(state);
                started_at = Some(Instant::now());
                let started = self.start_process();
                state = self.state.lock();
                state.is_failing |= started.is_none();
                state.useless_count += u32::from(started.is_some());
                state.socket = started;
            }
            state.send_rest();
            let socket = state.socket.clone();
            match socket {
                None => {
                    let _ = self.changed.wait_for(&mut state, LOOK_INTERVAL);
                    drop(state);
                }
                Some(socket) => {
                    drop(state);
                    self.hear(&socket);
                }
            }
            if looked_at.elapsed() >= LOOK_INTERVAL {
                self.answer_overdue();
                looked_at = Instant::now();
            }
        }
    }

    fn answer_overdue(&self) {
        let mut state = self.state.lock();
        let (held_most, in_all_most) = if state.is_failing {
            (Duration::ZERO, Duration::ZERO)
        } else if self.gate.is_closed() {
            // Reads that the kernel waits for are for the process that takes over.
            (LOOK_INTERVAL, END_MOST)
        } else {
            (HELD_MOST, PROCESS_MOST)
        };
        let answers = state.overdue(held_most, in_all_most);
        drop(state);
        if !answers.is_empty() {
            tracing::debug!(
                count = answers.len(),
                "writes are answered before the kernel has dropped what it keeps of them"
            );
        }
        for answer in answers {
            self.give(&answer);
        }
    }

    /// Waits for a moment for notices that are done, and answers what waited for them.
    fn hear(&self, socket: &OwnedFd) {
        let mut wait = [PollFd::new(socket, PollFlags::IN)];
        let most = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_INTERVAL.subsec_nanos().into(),
        };
        if !matches!(poll(&mut wait, Some(&most)), Ok(1..)) {
            return;
        }
        loop {
            match wire::receive::<Done>(socket, RecvFlags::DONTWAIT) {
                Ok(Some(Done { number, .. })) if number == wire::IS_THERE => {
                    self.state.lock().begun_at = Some(Instant::now());
                }
                Ok(Some(done)) => self.end(&done),
                Err(Errno::AGAIN) => return,
                Ok(None) | Err(_) => {
                    self.state.lock().lose_process();
                    return;
                }
            }
        }
    }

    fn end(&self, done: &Done) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_failing = false;
            state.useless_count = 0;
            let waiting = state.waiting.remove(&done.number);
            if waiting.as_ref().is_some_and(|one| one.answer.is_some()) {
                state.answers_count -= 1;
            }
            waiting
        };
        let Some(waiting) = waiting else {
            return;
        };
        if let Some((kept, asking)) = waiting.forgets {
            kept.note_forgotten(asking);
        }
        if let Some(answer) = waiting.answer {
            self.give(&answer);
        }
    }

    /// Gives an answer that has waited.
    fn give(&self, answer: &Answer) {
        match answer.give() {
            // The mount has ended, or the kernel waits no more.
            Ok(()) | Err(Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => tracing::error!(%error, "the kernel refused an answer"),
        }
        self.gate.finish();
    }

    /// Our end of the connection to a new process.
    fn start_process(&self) -> Option<Arc<OwnedFd>> {
        let program = self.program.as_ref()?;
        match self.try_to_start(program) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                tracing::error!(%error, program = %program.path.display(),
                    "readers may see old blocks: there is no process that tells the kernel of them");
                None
            }
        }
    }

    fn try_to_start(&self, program: &NoticesProgram) -> std::io::Result<OwnedFd> {
        use std::os::unix::process::CommandExt;
        let (ours, theirs) = wire::pair()?;
        let directory = self.directory.as_os_str().as_bytes();
        wire::send_first(&ours, self.device.as_fd(), self.connection, directory)?;
        let mut child = Command::new(&program.path)
            .arg0(&program.name)
            .args(&program.arguments)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // Who interrupts this process from a terminal ends it in order, and it that one.
            .process_group(0)
            .spawn()?;
        thread::Builder::new()
            .name("fuse-notices-end".to_owned())
            .spawn(move || {
                // Its end shows at the socket; here it is only taken note of.
                let _ = child.wait();
            })?;
        Ok(ours)
    }
}

impl NoticesThread {
    pub(crate) const fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Nothing is served any more: returns when what waits is answered, and its notices have gone to
    /// the process, which sends them by itself.
    pub(crate) fn finish(&self) {
        self.notices.close();
        if let Some(thread) = self.thread.lock().take() {
            // A panic there was told when it came.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
