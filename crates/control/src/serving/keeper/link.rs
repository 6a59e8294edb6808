//! The daemon's end of its connection to the keeper.
//!
//! **Invariants.** A keeper that hears nothing for a while, because somebody stopped it, holds up no
//! daemon: no word waits for room in the socket but the last one of a process, which nobody is served
//! by any more. No word is left out but signs of life, and they all arrive in the order in which they
//! were said. Signs of life leave most of the socket to the other words, so that a kill takes none of
//! those along.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use spindle_device::{SharedMemory, engage_undertaker};
use spindle_fuse::{Mount, Negotiated};
use spindle_group::{Event, EventKind, KeptJournal, UnwrittenBlocks};

use super::child::{set_out_of_memory_score, take_own_name};
use super::message::{self, FromDaemon, KeptMount, PROTOCOL_VERSION, Start, ToDaemon};
use super::wire;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::serving::formats::Formats;
use crate::serving::last_word::Closed;

/// Why a group is not closed is told in so many bytes.
const WHY_BYTES_MOST: usize = 16 << 10;

/// What the keeper asks of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Unmount, close and end.
    Stop,
    /// Close and end, and leave the mount.
    HandOver,
    /// The keeper has died: go on alone.
    Alone,
}

/// The connection. All methods may be called from many threads.
#[derive(Debug)]
pub struct KeeperLink {
    socket: OwnedFd,
    start: Start,
    journal: Arc<KeptJournal>,
    descriptors: Mutex<Vec<OwnedFd>>,
    is_alone: AtomicBool,
    /// What the socket had no room for.
    waiting: Mutex<VecDeque<Word>>,
}

/// What is to be said, and what goes along.
#[derive(Debug)]
struct Word {
    message: FromDaemon,
    descriptors: Vec<OwnedFd>,
}

impl Word {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }
}

impl KeeperLink {
    /// Takes the connection from the standard input, where the keeper put it.
    ///
    /// # Errors
    /// Where there is none, or the keeper is one that this program does not understand.
    pub fn take() -> ControlResult<Self> {
        take_own_name();
        let fail = |error| ControlError::io("hear", "the keeper", &error);
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
            .map_err(|error| fail(error.into()))?;
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
        }
        // The end of the socket tells the keeper that all other descriptors are closed. While this
        // process has one thread: no other is to be left with half of a lock in the copy.
        if let Err(error) = engage_undertaker(socket.as_fd()) {
            tracing::warn!(%error, "if this process is killed while a disk hangs, the next one waits for that disk");
        }
        let mut descriptors = Vec::new();
        loop {
            let received = wire::receive::<ToDaemon>(&socket).map_err(fail)?;
            let Some((message, some)) = received else {
                return Err(ControlError::new(
                    ControlErrorKind::Bug,
                    "the keeper ended before it said what to do",
                ));
            };
            match message {
                ToDaemon::Descriptors => descriptors.extend(some),
                ToDaemon::Start { version, start } => {
                    return Self::new(socket, version, start, some, descriptors);
                }
                ToDaemon::Stop | ToDaemon::HandOver => {}
            }
        }
    }

    fn new(
        socket: OwnedFd,
        version: u32,
        start: Start,
        memories: Vec<OwnedFd>,
        descriptors: Vec<OwnedFd>,
    ) -> ControlResult<Self> {
        let bug = |what: String| ControlError::new(ControlErrorKind::Bug, what);
        if version != PROTOCOL_VERSION {
            return Err(bug(format!(
                "the keeper speaks version {version}, this program version {PROTOCOL_VERSION}: unmount and mount again"
            )));
        }
        let mut memories = memories.into_iter();
        let map = |memory: OwnedFd| {
            SharedMemory::from_descriptor(memory)
                .map_err(|error| ControlError::io("map", "the keeper's memory", &error))
        };
        let memory =
            (memories.next()).ok_or_else(|| bug("the keeper gave no journal".to_owned()))?;
        let mut journal = KeptJournal::new(map(memory)?).map_err(bug)?;
        // A keeper of an earlier version has none: writes go to the disks at once then.
        if let Some(memory) = memories.next() {
            let blocks = UnwrittenBlocks::new(map(memory)?).map_err(bug)?;
            journal = journal.with_blocks(blocks);
        }
        if let Some(score) = &start.out_of_memory_score {
            set_out_of_memory_score(score);
        }
        Ok(Self {
            socket,
            start,
            journal: Arc::new(journal),
            descriptors: Mutex::new(descriptors),
            is_alone: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    /// The journal that the keeper holds.
    #[must_use]
    pub const fn journal(&self) -> &Arc<KeptJournal> {
        &self.journal
    }

    /// The keeper's process.
    #[must_use]
    pub fn keeper_process_id(&self) -> Option<u32> {
        (!self.is_alone()).then_some(self.start.keeper_process_id)
    }

    /// How many daemons the keeper started before this one.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.start.generation
    }

    /// The mount that is to be taken over.
    #[must_use]
    pub const fn mount(&self) -> Option<&KeptMount> {
        self.start.mount.as_ref()
    }

    /// Whether the mount that was asked for is over: none is made anew.
    #[must_use]
    pub const fn mount_is_over(&self) -> bool {
        self.start.mount_is_over
    }

    /// Whether this process is only to write what waits and to close the group.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.start.is_last
    }

    /// Whether a daemon before was killed and may hold a disk that hangs.
    #[must_use]
    pub const fn former_lingers(&self) -> bool {
        self.start.former_lingers
    }

    /// The group cannot be opened without such a disk.
    pub fn needs_former(&self) {
        self.send(FromDaemon::NeedsFormer, &[]);
    }

    /// Whether the keeper has died.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Acquire)
    }

    /// The descriptors of the mount that is to be taken over, once.
    #[must_use]
    pub fn take_descriptors(&self) -> (Vec<OwnedFd>, Negotiated) {
        let negotiated = self.mount().map_or(
            Negotiated {
                minor: 0,
                capabilities: 0,
            },
            |mount| Negotiated {
                minor: mount.minor,
                capabilities: mount.capabilities,
            },
        );
        (std::mem::take(&mut self.descriptors.lock()), negotiated)
    }

    /// What happened while nobody served, as events.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let told = self.start.notices.iter().map(|notice| {
            let event = Event::new(EventKind::GroupTakenOver, notice.message.clone());
            event.severity(notice.severity())
        });
        told.collect()
    }

    /// How long nobody has served, where a daemon died.
    #[must_use]
    pub fn pause_ms(&self) -> Option<u64> {
        let died_at_ms = self.start.died_at_ms?;
        Some(message::now_ms().saturating_sub(died_at_ms))
    }

    /// Gives the keeper what it needs to hold `mount`; true where it does from now on.
    pub fn keep(&self, mount: &Mount, direct: bool) -> bool {
        let negotiated = mount.negotiated();
        if !negotiated.has_resend() {
            // The next process could not have the unanswered requests sent again.
            return false;
        }
        let descriptors: Vec<BorrowedFd<'_>> = mount.descriptors().collect();
        let sent = descriptors
            .chunks(wire::DESCRIPTORS_MAX)
            .all(|some| self.send(FromDaemon::Descriptors, some));
        let kept = KeptMount {
            directory: mount.directory().to_owned(),
            direct,
            minor: negotiated.minor,
            capabilities: negotiated.capabilities,
        };
        sent && self.send(FromDaemon::Mounted(kept), &[])
    }

    /// The mount is gone.
    pub fn unmounted(&self) {
        self.send(FromDaemon::Unmounted, &[]);
    }

    /// The group of this identity is open, and its process may show no sign of life for so long.
    pub fn opened(&self, group_uuid: String, watchdog_s: u64) {
        let opened = FromDaemon::Opened {
            group_uuid,
            watchdog_s: Some(watchdog_s),
        };
        self.send(opened, &[]);
    }

    /// The group is served.
    pub fn ready(&self) {
        self.send(FromDaemon::Serves(Formats::own()), &[]);
        self.send(FromDaemon::Ready, &[]);
    }

    /// Background work goes on.
    pub fn alive(&self) {
        let mut waiting = self.waiting.lock();
        // Where the keeper has not heard the last ones it needs no other.
        if self.send_waiting(&mut waiting).is_ok() && wire::has_much_room(&self.socket) {
            let _ = wire::send_now(&self.socket, &FromDaemon::Alive, &[]);
        }
    }

    /// Nothing is to be served any more. Where this process is killed before it has closed the
    /// group, the next one only does that.
    pub fn stopping(&self) {
        self.send(FromDaemon::Stopping, &[]);
    }

    /// The process ends in order.
    pub fn ending(&self) {
        self.send(FromDaemon::Ending, &[]);
    }

    /// The process ends, and this is what became of the group; true where the keeper was told.
    pub fn ended(&self, closed: &Closed) -> bool {
        match closed {
            Ok(()) => self.send_last(FromDaemon::Closed),
            Err(why) => self.not_closed(why, false),
        }
    }

    /// The process ends, because of this.
    pub fn failed(&self, error: &ControlError) {
        self.not_closed(&format!("{error:#}"), is_for_want(error));
    }

    fn not_closed(&self, why: &str, may_pass: bool) -> bool {
        let why = message::shortened(why, WHY_BYTES_MOST);
        self.send_last(FromDaemon::NotClosed { why, may_pass })
    }

    /// The group is closed and the mount left to the next one.
    pub fn handed_over(&self) {
        self.send_last(FromDaemon::HandedOver);
    }

    /// Says it as soon as there is room; false where the keeper never hears it.
    fn send(&self, message: FromDaemon, descriptors: &[BorrowedFd<'_>]) -> bool {
        if self.is_alone() {
            return false;
        }
        let mut waiting = self.waiting.lock();
        let sent = self.send_waiting(&mut waiting);
        let sent = sent.and_then(|()| wire::send_now(&self.socket, &message, descriptors));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let copies = descriptors.iter().map(BorrowedFd::try_clone_to_owned);
                let Ok(descriptors) = copies.collect() else {
                    return false;
                };
                waiting.push_back(Word {
                    message,
                    descriptors,
                });
                true
            }
            sent => sent.is_ok(),
        }
    }

    fn send_waiting(&self, waiting: &mut VecDeque<Word>) -> io::Result<()> {
        while let Some(word) = waiting.front() {
            wire::send_now(&self.socket, &word.message, &word.descriptors())?;
            waiting.pop_front();
        }
        Ok(())
    }

    /// The process ends behind this word: it waits until the keeper has room for all that it was to
    /// hear.
    fn send_last(&self, message: FromDaemon) -> bool {
        if !self.send(message, &[]) {
            return false;
        }
        let mut waiting = self.waiting.lock();
        while let Some(word) = waiting.pop_front() {
            if wire::send(&self.socket, &word.message, &word.descriptors()).is_err() {
                return false;
            }
        }
        true
    }

    /// Waits for the next order.
    #[must_use]
    pub fn order(&self) -> Order {
        loop {
            match wire::receive::<ToDaemon>(&self.socket) {
                Ok(Some((ToDaemon::Stop, _))) => return Order::Stop,
                Ok(Some((ToDaemon::HandOver, _))) => return Order::HandOver,
                Ok(Some(_)) => {}
                // A word of a later version.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                Ok(None) | Err(_) => {
                    self.is_alone.store(true, Ordering::Release);
                    return Order::Alone;
                }
            }
        }
    }
}

/// Whether the machine had too little of something that it may have again a moment later.
fn is_for_want(error: &ControlError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let number = (error.downcast_ref::<io::Error>()).and_then(Errno::from_io_error);
        if matches!(
            number,
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOBUFS)
        ) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn link() -> (KeeperLink, OwnedFd) {
        let (keepers, ours) = wire::pair().unwrap();
        let memory = SharedMemory::create("test", KeptJournal::LENGTH_BYTES).unwrap();
        let memory = memory.descriptor().try_clone_to_owned().unwrap();
        let start = Start::default();
        let link =
            KeeperLink::new(ours, PROTOCOL_VERSION, start, vec![memory], Vec::new()).unwrap();
        (link, keepers)
    }

    /// Does it on a thread of its own, which must not hang.
    fn in_time(link: &Arc<KeeperLink>, what: impl FnOnce(&KeeperLink) + Send + 'static) {
        let (done, is_done) = std::sync::mpsc::channel();
        let link = Arc::clone(link);
        std::thread::spawn(move || {
            what(&link);
            let _ = done.send(());
        });
        let waited = is_done.recv_timeout(Duration::from_secs(20));
        waited.expect("it waits for a keeper that is stopped");
    }

    /// The settings of all `Opened` that there are, and how many descriptors came.
    fn heard(keeper: &OwnedFd, settings: &mut Vec<u64>) -> usize {
        let mut descriptors_count = 0;
        while rustix::io::ioctl_fionread(keeper).is_ok_and(|bytes| bytes > 0) {
            let (message, descriptors) = wire::receive::<FromDaemon>(keeper).unwrap().unwrap();
            descriptors_count += descriptors.len();
            if let FromDaemon::Opened { watchdog_s, .. } = message {
                settings.extend(watchdog_s);
            }
        }
        descriptors_count
    }

    #[test]
    fn a_keeper_that_is_stopped_holds_up_no_daemon_and_misses_nothing_but_signs_of_life() {
        let (link, keeper) = link();
        let link = Arc::new(link);
        in_time(&link, |link| {
            for number in 0..2000 {
                link.alive();
                link.opened(String::new(), number);
            }
            assert!(link.send(FromDaemon::Descriptors, &[link.socket.as_fd()]));
        });
        let mut settings = Vec::new();
        let mut descriptors_count = 0;
        // It goes on, and hears the rest behind the signs of life that follow.
        for _ in 0..2000 {
            descriptors_count += heard(&keeper, &mut settings);
            link.alive();
        }
        assert_eq!(settings, (0..2000).collect::<Vec<_>>());
        assert_eq!(descriptors_count, 1);
    }

    #[test]
    fn what_matters_finds_room_beside_signs_of_life_and_outlives_the_daemon() {
        let (link, keeper) = link();
        let link = Arc::new(link);
        in_time(&link, |link| {
            (0..2000).for_each(|_| link.alive());
            (0..100).for_each(|number| link.opened(String::new(), number));
        });
        drop(link);
        let mut settings = Vec::new();
        heard(&keeper, &mut settings);
        assert_eq!(settings, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_word_of_a_process_waits_for_a_keeper_that_is_stopped() {
        let (link, keeper) = link();
        let link = Arc::new(link);
        in_time(&link, |link| {
            (0..2000).for_each(|number| link.opened(String::new(), number));
            link.ending();
        });
        let ending = {
            let link = Arc::clone(&link);
            std::thread::spawn(move || link.ended(&Err("why ".repeat(100_000))))
        };
        let mut words = Vec::new();
        while !matches!(words.last(), Some(FromDaemon::NotClosed { .. })) {
            words.push(wire::receive::<FromDaemon>(&keeper).unwrap().unwrap().0);
        }
        assert!(ending.join().unwrap());
        assert_eq!(words.len(), 2002);
        assert!(matches!(words[2000], FromDaemon::Ending));
    }

    #[test]
    fn want_of_threads_or_descriptors_may_pass_and_a_disk_that_is_not_there_does_not() {
        let failed = |number: Errno| {
            let error = ControlError::io("start", "the thread serve", &number.into());
            ControlError::invalid("no such group").because(error)
        };
        assert!(is_for_want(&failed(Errno::AGAIN)));
        assert!(is_for_want(&failed(Errno::MFILE)));
        assert!(!is_for_want(&failed(Errno::NXIO)));
    }
}
