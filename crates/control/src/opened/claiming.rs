//! Opening a group that other hosts see too: one may be opening it in the same moment, and one that
//! looks while it is opened, which takes minutes after a power cut, must see that somebody lives.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use spindle_group::{CLAIM_PAUSE_MS, Group, GroupError, GroupErrorKind, Pulse, Watch};

use crate::machine::clock::now;
use crate::machine::identity::{moment, new_uuid};

/// How often a group is tried that was let go of because another host was opening it.
const TRIES_MOST: u32 = 3;

/// How often a sign of life is given.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Opens the group, and again after a while where it was let go of: by then another host has it, or
/// nobody, and then the one whose record stands on the disks gets it.
pub(super) fn until_settled(
    mut open: impl FnMut() -> Result<Group, GroupError>,
) -> Result<Group, GroupError> {
    let mut tries_count = 0;
    loop {
        tries_count += 1;
        match open() {
            Err(error) if error.kind == GroupErrorKind::Contended => {
                // After the last one too: whoever starts this process again may do so at once.
                std::thread::sleep(pause());
                if tries_count == TRIES_MOST {
                    return Err(error);
                }
                tracing::warn!(%error, "the group is tried again");
            }
            answer => return answer,
        }
    }
}

/// Of a length of its own, so that two hosts do not meet again and again.
fn pause() -> Duration {
    let more_ms = new_uuid().map_or(0, |random| u64::from(random.0[0]) * 4);
    Duration::from_millis(CLAIM_PAUSE_MS + more_ms)
}

/// What a process is watched with that may sleep.
pub(super) fn watch() -> Watch {
    Watch {
        clock: Box::new(moment),
        apart: Box::new(apart),
    }
}

/// Does something on a thread of its own, however long it takes.
fn apart(work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("owner-record".to_owned());
    thread.spawn(work).map(drop)
}

/// Signs of life of an opening, on a thread of its own, until it is dropped. A beat that is under way
/// then is not waited for, because a disk may hang.
#[derive(Debug, Default)]
pub(super) struct Beating(Mutex<Option<Sender<()>>>);

impl Beating {
    /// Begins with a claim; what was begun with an earlier one ends.
    pub(super) fn begin(&self, pulse: Pulse) {
        self.begin_every(BEAT_INTERVAL, move || {
            pulse.beat(u64::try_from(now().seconds).unwrap_or(0))
        });
    }

    /// `beat` says whether there is something to be said any more.
    fn begin_every(&self, interval: Duration, beat: impl Fn() -> bool + Send + 'static) {
        let (sender, ended) = channel();
        let work = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) && beat() {}
        };
        let thread = std::thread::Builder::new().name("opening-beat".to_owned());
        match thread.spawn(work) {
            Ok(_) => *self.0.lock() = Some(sender),
            Err(error) => tracing::warn!(%error, "no thread to give signs of life on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use super::Beating;

    fn count_of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    fn wait_until(what: impl Fn() -> bool) {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_opening_gives_signs_of_life_until_it_is_over_and_no_longer() {
        let counter = Arc::new(AtomicU64::new(0));
        let beating = Beating::default();
        let beats = Arc::clone(&counter);
        beating.begin_every(Duration::from_millis(2), move || {
            beats.fetch_add(1, Ordering::Relaxed) < u64::MAX
        });
        wait_until(|| count_of(&counter) >= 3);
        drop(beating);
        // The thread has ended when it has let go of its counter.
        wait_until(|| Arc::strong_count(&counter) == 1);
    }

    #[test]
    fn an_opening_that_another_host_has_ended_gives_no_more_signs_of_life() {
        let counter = Arc::new(AtomicU64::new(0));
        let beating = Beating::default();
        let beats = Arc::clone(&counter);
        beating.begin_every(Duration::from_millis(2), move || {
            beats.fetch_add(1, Ordering::Relaxed) < 1
        });
        wait_until(|| Arc::strong_count(&counter) == 1);
        assert_eq!(count_of(&counter), 2);
    }
}
