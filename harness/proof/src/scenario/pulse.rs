//! The machine's own pulse: a block of a plain file beside the disks, written and flushed again
//! and again.
//!
//! While that stands still (another machine has the processor, or the disk below both is busy with
//! somebody else's flush) no client's wait says anything about a daemon that died.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::clients::locked;

/// Between the end of a beat and the next.
const PAUSE: Duration = Duration::from_millis(20);

/// A shorter beat is what a machine at work gives: nothing is allowed for it.
const STILL_LEAST: Duration = Duration::from_millis(250);

/// When a beat was due and when it had been flushed.
type Beat = (Instant, Instant);

/// A thread that beats until it is dropped.
#[derive(Debug)]
pub struct Pulse {
    beats: Arc<Mutex<Vec<Beat>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Beats in that directory.
    pub fn begin(directory: &Path) -> Result<Self> {
        let file = File::create(directory.join("pulse")).context("cannot make the pulse's file")?;
        let (beats, stop) = (Arc::default(), Arc::default());
        let (own, own_stop) = (Arc::clone(&beats), Arc::clone(&stop));
        let thread = std::thread::spawn(move || beat(&file, &own, &own_stop));
        Ok(Self {
            beats,
            stop,
            thread: Some(thread),
        })
    }

    /// How long the machine stood still, at most, in a beat that reaches into that time or is under
    /// way; nothing where it did not.
    pub fn stood_still(&self, from: Instant, until: Instant) -> Result<Duration> {
        let is_beating = (self.thread.as_ref()).is_some_and(|thread| !thread.is_finished());
        ensure!(is_beating, "the pulse's file cannot be written");
        let beats = locked(&self.beats);
        let under_way = beats.last().map(|(_, done)| done.elapsed());
        let longest = longest_of(&beats, from, until).max(under_way.unwrap_or_default());
        Ok(still(longest))
    }
}

fn still(longest: Duration) -> Duration {
    if longest < STILL_LEAST {
        return Duration::ZERO;
    }
    longest
}

fn longest_of(beats: &[Beat], from: Instant, until: Instant) -> Duration {
    let reaches_in = |beat: &&Beat| beat.0 < until && beat.1 > from;
    let durations = beats.iter().filter(reaches_in).map(|beat| beat.1 - beat.0);
    durations.max().unwrap_or_default()
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn beat(file: &File, beats: &Mutex<Vec<Beat>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // The sleep is a part of the beat: it is longer where the processor is away.
        let due = Instant::now() + PAUSE;
        std::thread::sleep(PAUSE);
        let written = file.write_all_at(&[0; 4096], 0);
        if written.and_then(|()| file.sync_data()).is_err() {
            return;
        }
        locked(beats).push((due, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_that_took_long_is_told_where_it_reaches_into_the_time() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let beats = [
            (at(0), at(20)),
            (at(1_000), at(4_000)),
            (at(4_020), at(4_040)),
        ];
        let ms = |from, until| longest_of(&beats, at(from), at(until)).as_millis();
        assert_eq!((ms(3_000, 5_000), ms(500, 1_500)), (3_000, 3_000));
        assert_eq!((ms(4_030, 6_000), ms(0, 900), ms(100, 900)), (20, 20, 0));
    }

    #[test]
    fn a_machine_at_work_is_no_excuse() {
        let of_ms = |ms| still(Duration::from_millis(ms)).as_millis();
        assert_eq!(
            (of_ms(20), of_ms(249), of_ms(250), of_ms(3_000)),
            (0, 0, 250, 3_000)
        );
    }
}
