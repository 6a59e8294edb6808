//! What volatile caches of disks would lose: of each block that was written and that no flush has
//! covered, what it held before.
//!
//! Each write is preceded by a read of what it replaces, so this is for tests. Who writes a block
//! holds a lock over it: two writes of one block at once are not told apart.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use spindle_base::BLOCK_SIZE_BYTES;

use crate::request::{DiskSlot, Operation, Request, Work};
use crate::{AlignedBuffer, Disks, SeededRandom};

const BLOCK_BYTES: usize = 4096;
const _: () = assert!(BLOCK_BYTES as u64 == BLOCK_SIZE_BYTES);
/// Blocks of all disks that are kept at most, 512 MiB; what is written beyond is not lost.
const BLOCKS_MOST: usize = 128 << 10;
/// How long a pull waits for requests that are under way; what hangs longer is not lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// A disk's slot and the number of a block there.
type Place = (DiskSlot, u64);

#[derive(Debug)]
pub(super) struct VolatileCaches {
    state: Mutex<State>,
    /// A batch has ended.
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    blocks: BTreeMap<Place, Kept>,
    /// Batches that have ended.
    ended_count: u64,
    /// Requests under way.
    under_way: BTreeMap<DiskSlot, u64>,
    random: SeededRandom,
}

/// A block that no flush has covered.
#[derive(Debug, Default)]
struct Kept {
    /// None while it is being read.
    before: Option<Box<[u8]>>,
    writers_count: u32,
    /// Batches that had ended when the last write was answered.
    answered_at: u64,
}

/// A batch that is on its way to the disks.
#[derive(Debug)]
pub(super) struct Batch {
    /// Batches that had ended when it began: its flushes cover what they wrote.
    begun_at: u64,
    /// By number of the request: what it writes.
    writes: Vec<(usize, Vec<Place>)>,
    slots: Vec<DiskSlot>,
}

fn places(request: &Request<'_>) -> impl Iterator<Item = Place> + use<> {
    let slot = request.slot;
    let first = request.offset_bytes / BLOCK_SIZE_BYTES;
    let end = (request.offset_bytes + request.length_bytes() as u64).div_ceil(BLOCK_SIZE_BYTES);
    (first..end).map(move |block| (slot, block))
}

impl VolatileCaches {
    /// What is lost is drawn from the seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new(State {
                blocks: BTreeMap::new(),
                ended_count: 0,
                under_way: BTreeMap::new(),
                random: SeededRandom::new(seed),
            }),
            ended: Condvar::new(),
        }
    }

    /// Before a batch goes out: reads what it will replace.
    pub(super) fn begin(&self, disks: &impl Disks, requests: &[Request<'_>]) -> Batch {
        let mut batch = Batch {
            begun_at: 0,
            writes: Vec::new(),
            slots: requests.iter().map(|request| request.slot).collect(),
        };
        let mut fresh: Vec<Place> = Vec::new();
        {
            let mut state = self.state.lock();
            batch.begun_at = state.ended_count;
            for slot in &batch.slots {
                *state.under_way.entry(*slot).or_default() += 1;
            }
            for (number, request) in requests.iter().enumerate() {
                if request.work.written().is_none() {
                    continue;
                }
                let mut written = Vec::new();
                for place in places(request) {
                    if state.blocks.len() >= BLOCKS_MOST && !state.blocks.contains_key(&place) {
                        continue;
                    }
                    let kept = state.blocks.entry(place).or_insert_with(|| {
                        fresh.push(place);
                        Kept::default()
                    });
                    kept.writers_count += 1;
                    written.push(place);
                }
                batch.writes.push((number, written));
            }
        }
        for run in fresh.chunk_by(|one, next| one.0 == next.0 && one.1 + 1 == next.1) {
            self.read_before(disks, run);
        }
        batch
    }

    fn read_before(&self, disks: &impl Disks, run: &[Place]) {
        let (slot, first) = run[0];
        let mut memory = AlignedBuffer::zeroed(run.len() * BLOCK_BYTES);
        let offset = first * BLOCK_SIZE_BYTES;
        let mut read = [Request::new(slot, offset, Work::Read(&mut memory))];
        disks.run(&mut read);
        let [Request { result, .. }] = read;
        if result.is_err() {
            // What cannot be read is not put back.
            return;
        }
        let mut state = self.state.lock();
        for (place, bytes) in run.iter().zip(memory.chunks_exact(BLOCK_BYTES)) {
            if let Some(kept) = state.blocks.get_mut(place) {
                kept.before = Some(bytes.into());
            }
        }
    }

    /// After it: what it made durable is kept no more.
    pub(super) fn end(&self, batch: Batch, requests: &[Request<'_>]) {
        let mut state = self.state.lock();
        state.ended_count += 1;
        let now = state.ended_count;
        for (number, written) in batch.writes {
            let request = &requests[number];
            let is_durable =
                request.work.operation() == Operation::WriteDurable && request.result.is_ok();
            for place in written {
                let Some(kept) = state.blocks.get_mut(&place) else {
                    continue;
                };
                kept.writers_count -= 1;
                kept.answered_at = now;
                if is_durable && kept.writers_count == 0 {
                    state.blocks.remove(&place);
                }
            }
        }
        for request in requests {
            if request.work.operation() == Operation::Flush && request.result.is_ok() {
                let slot = request.slot;
                state.blocks.retain(|place, kept| {
                    place.0 != slot || kept.writers_count > 0 || kept.answered_at > batch.begun_at
                });
            }
        }
        for slot in batch.slots {
            if let Some(count) = state.under_way.get_mut(&slot) {
                *count -= 1;
            }
        }
        self.ended.notify_all();
    }

    /// The disk takes no more requests: none, all or some of what no flush had covered is lost.
    pub(super) fn lose(&self, disks: &impl Disks, slot: DiskSlot) {
        let mut state = self.state.lock();
        self.ended.wait_while_for(
            &mut state,
            |state| state.under_way.get(&slot).is_some_and(|count| *count > 0),
            PATIENCE,
        );
        let (lost_in_four, mut lost) = (2 * state.random.below(3), Vec::new());
        let places: Vec<Place> = (state.blocks.range((slot, 0)..=(slot, u64::MAX)))
            .map(|(place, _)| *place)
            .collect();
        for place in places {
            let is_lost = state.random.below(4) < lost_in_four;
            if let Some(kept) = state.blocks.remove(&place)
                && let Some(before) = kept.before
                && kept.writers_count == 0
                && is_lost
            {
                lost.push((place.1, before));
            }
        }
        drop(state);
        for (block, before) in lost {
            let mut memory = AlignedBuffer::zeroed(BLOCK_BYTES);
            memory.copy_from_slice(&before);
            let offset = block * BLOCK_SIZE_BYTES;
            disks.run(&mut [Request::new(slot, offset, Work::Write(&memory))]);
        }
    }
}
