//! What disks that serve on answer badly: a flush, a durable write, a place.
//!
//! A fault is set for one request, as it is about to be served, and taken back when it was: so it
//! says of which kind of request it is, which the simulated disks do not tell apart.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spindle_device::{DiskSlot, Request, SeededRandom, SimulatedDisks, Work};

use crate::history::History;

/// Flushes that fail.
#[derive(Debug, Clone, Copy)]
pub struct FailedFlushes {
    pub slot: DiskSlot,
    pub count: u32,
    /// Durable writes too, which are a write and a flush.
    pub with_durable_writes: bool,
    /// The disk drops what no flush had covered, and answers the next one well. Else it keeps it.
    pub drops: bool,
    /// What the disk drops may be nowhere else, of mirrored files too.
    pub is_second_failure: bool,
}

/// A place of a disk that cannot be read or written, for a while or for good.
#[derive(Debug, Clone)]
pub struct BadPlace {
    pub slot: DiskSlot,
    pub bytes: Range<u64>,
    /// So many reads of it fail yet.
    pub reads_left: u64,
    /// So many writes of it fail yet.
    pub writes_left: u64,
    /// What is written can be read again.
    pub is_mended_by_writes: bool,
}

/// Disks of which one in so many reads fails.
#[derive(Debug)]
struct Blinking {
    slots: Vec<DiskSlot>,
    one_in: u64,
    random: SeededRandom,
}

#[derive(Debug, Default)]
struct State {
    flushes: Vec<FailedFlushes>,
    places: Vec<BadPlace>,
    blinking: Option<Blinking>,
}

/// See the module. No call has a point in it.
#[derive(Debug)]
pub struct Faults {
    history: Arc<History>,
    state: Mutex<State>,
}

impl Faults {
    /// None yet.
    #[must_use]
    pub fn new(history: Arc<History>) -> Self {
        Self {
            history,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next flushes of the disk fail.
    pub fn fail_flushes(&self, flushes: FailedFlushes) {
        self.history.note(|| format!("{flushes:?} will fail"));
        self.state().flushes.push(flushes);
    }

    /// What has not come of them does not come.
    pub fn spare_flushes(&self, slot: DiskSlot) {
        self.state().flushes.retain(|other| other.slot != slot);
    }

    /// A place goes bad.
    pub fn break_place(&self, place: BadPlace) {
        self.history.note(|| format!("{place:?} is bad"));
        self.state().places.push(place);
    }

    /// All places of the disk are good again.
    pub fn mend_places(&self, slot: DiskSlot) {
        self.history
            .note(|| format!("slot {} has no bad places any more", slot.0));
        self.state().places.retain(|place| place.slot != slot);
    }

    /// Of these disks one in so many reads fails, wherever it is, and the next one may not.
    pub fn blink(&self, slots: &[DiskSlot], one_in: u64, seed: u64) {
        self.history
            .note(|| format!("one in {one_in} reads of {slots:?} fails"));
        self.state().blinking = Some(Blinking {
            slots: slots.to_vec(),
            one_in,
            random: SeededRandom::new(seed),
        });
    }

    /// Reads fail no more for that.
    pub fn stop_blinking(&self) {
        self.history.note(|| "reads fail no more".to_owned());
        self.state().blinking = None;
    }

    /// Sets what this request meets; whether it meets anything.
    pub fn begin(&self, disks: &SimulatedDisks, request: &Request<'_>) -> bool {
        let mut state = self.state();
        if !state.has_any() {
            return false;
        }
        let bytes = request.offset_bytes..request.offset_bytes + request.length_bytes() as u64;
        let flush = match request.work {
            Work::Read(_) | Work::ReadPart(_) => {
                let fails = state.fails_read(request.slot, &bytes);
                if fails {
                    disks.fail_reads(request.slot, bytes, 1);
                }
                return fails;
            }
            Work::Write(_) | Work::WritePart(_) => None,
            Work::Flush => state.flush_of(request.slot, false),
            Work::WriteDurable(_) => state.flush_of(request.slot, true),
        };
        let Some(flush) = flush else {
            let is_write = !matches!(request.work, Work::Flush);
            let fails = is_write && state.fails_write(request.slot, &bytes);
            if fails {
                disks.fail_writes(request.slot, bytes, 1);
            }
            return fails;
        };
        drop(state);
        self.history.drop_by_disk();
        if flush.is_second_failure {
            self.history.second_failure();
        }
        match (flush.drops, &request.work) {
            (true, _) => disks.drop_at_flushes(request.slot, 1),
            (false, Work::Flush) => disks.fail_flushes(request.slot, 1),
            (false, _) => disks.fail_writes(request.slot, 0..u64::MAX, 1),
        }
        true
    }

    /// The request was served.
    pub fn end(&self, disks: &SimulatedDisks, slot: DiskSlot) {
        disks.clear_faults(slot);
    }
}

impl BadPlace {
    fn meets(&self, slot: DiskSlot, bytes: &Range<u64>) -> bool {
        self.slot == slot && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

impl State {
    fn has_any(&self) -> bool {
        !self.flushes.is_empty() || !self.places.is_empty() || self.blinking.is_some()
    }

    fn fails_read(&mut self, slot: DiskSlot, bytes: &Range<u64>) -> bool {
        let meets = |place: &&mut BadPlace| place.meets(slot, bytes) && place.reads_left > 0;
        if let Some(place) = self.places.iter_mut().find(meets) {
            place.reads_left -= 1;
            return true;
        }
        let blinking = self.blinking.as_mut();
        blinking.is_some_and(|blinking| {
            blinking.slots.contains(&slot) && blinking.random.chance(1, blinking.one_in)
        })
    }

    /// Where it does not fail, what it writes is good again.
    fn fails_write(&mut self, slot: DiskSlot, bytes: &Range<u64>) -> bool {
        let meets = |place: &BadPlace| place.meets(slot, bytes);
        let fails = |place: &&mut BadPlace| meets(place) && place.writes_left > 0;
        if let Some(place) = self.places.iter_mut().find(fails) {
            place.writes_left -= 1;
            return true;
        }
        let (mended, mut places): (Vec<BadPlace>, Vec<BadPlace>) =
            (self.places.drain(..)).partition(|place| meets(place) && place.is_mended_by_writes);
        for place in mended {
            let before = place.bytes.start..bytes.start;
            let after = bytes.end..place.bytes.end;
            for left in [before, after].into_iter().filter(|left| !left.is_empty()) {
                places.push(BadPlace {
                    bytes: left,
                    ..place.clone()
                });
            }
        }
        self.places = places;
        false
    }

    fn flush_of(&mut self, slot: DiskSlot, is_durable_write: bool) -> Option<FailedFlushes> {
        let meets = |flush: &FailedFlushes| {
            flush.slot == slot && (flush.with_durable_writes || !is_durable_write)
        };
        let position = self.flushes.iter().position(meets)?;
        let flush = &mut self.flushes[position];
        let met = *flush;
        flush.count -= 1;
        if flush.count == 0 {
            self.flushes.remove(position);
        }
        Some(met)
    }
}
