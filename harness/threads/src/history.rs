//! What every thread was told, and what may be read then.
//!
//! Each sector of a file is a register. A write has a begin and, where it was answered, an end; so
//! has a sync. A tick separates any two of them. From this follows, with no model of the group:
//! - **A read** may see a write that began before the read ended, unless another one was answered
//!   before the read began and had begun after the first was answered. What an earlier read saw has
//!   happened: a later one does not see what was there before that.
//! - **After a power cut** a sector may show any write, unless another one was answered before a sync
//!   began that was answered with success, and had begun after the first was answered.
//!
//! A write that failed or was never answered may be seen or not, for ever. A sync that failed has
//! told of what had begun before it ended: the answer of a write may have been on its way. No later
//! sync speaks of that again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use spindle_base::FileId;

/// What is written and lost together.
pub const SECTOR_BYTES: usize = 512;
/// What is written at once at least.
pub const BLOCK_BYTES: usize = 4096;

/// Where a write of zeros ends that cuts the file off.
pub const CUT_END_BLOCK: u64 = u64::MAX - 1;

/// A moment between two events.
pub type Tick = u64;

#[derive(Debug, Clone)]
struct Write {
    /// 0 for zeros.
    version: u32,
    first_block: u64,
    end_block: u64,
    begun: Tick,
    /// When it was answered with success.
    done: Option<Tick>,
    /// It was answered with an error.
    has_failed: bool,
}

/// What a read saw of a sector.
#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u32,
    begun: Tick,
    ended: Tick,
}

#[derive(Debug, Clone, Copy)]
struct Sync {
    begun: Tick,
    ended: Tick,
    ok: bool,
}

#[derive(Debug, Default, Clone)]
struct FileHistory {
    copies: usize,
    writes: Vec<Write>,
    syncs: Vec<Sync>,
    /// By block and place in it.
    seen: BTreeMap<(u64, usize), Vec<Seen>>,
}

/// What disks that serve on dropped.
#[derive(Debug, Default, Clone, Copy)]
struct Drops {
    newest: Option<Tick>,
    /// When a sync ended that had begun after it.
    noticed: Option<Tick>,
}

#[derive(Debug, Default, Clone)]
struct State {
    now: Tick,
    files: BTreeMap<FileId, FileHistory>,
    first_outage: Option<Tick>,
    drops: Drops,
    /// When two failures met, so that files of two copies may have lost something too.
    first_second_failure: Option<Tick>,
    second_failures_count: u32,
    /// The group stopped as it has to.
    has_stopped: bool,
    /// What its process says is heard by nobody any more.
    is_forked: bool,
}

/// What a run told, whichever of its processes.
#[derive(Debug, Default)]
struct Told {
    violations: Vec<String>,
    trace: Vec<String>,
    is_traced: bool,
}

/// The common history of all threads of a process. No call has a point in it.
#[derive(Debug, Default)]
pub struct History {
    state: Mutex<State>,
    told: Arc<Mutex<Told>>,
}

/// The bytes of a sector: who wrote it stands in it, over and over.
pub fn fill(memory: &mut [u8], file: FileId, first_block: u64, version: u32) {
    for (index, sector) in memory.chunks_mut(SECTOR_BYTES).enumerate() {
        if version == 0 {
            sector.fill(0);
            continue;
        }
        let block = first_block + (index * SECTOR_BYTES / BLOCK_BYTES) as u64;
        let stamp = stamp(file, block, index % (BLOCK_BYTES / SECTOR_BYTES), version);
        for place in sector.chunks_mut(stamp.len()) {
            place.copy_from_slice(&stamp);
        }
    }
}

fn stamp(file: FileId, block: u64, sector: usize, version: u32) -> [u8; 16] {
    let mut stamp = [0; 16];
    let number = u32::try_from(file.0).unwrap_or(u32::MAX);
    stamp[..4].copy_from_slice(&number.to_le_bytes());
    let place = u32::try_from(block * 8 + sector as u64).unwrap_or(u32::MAX);
    stamp[4..8].copy_from_slice(&place.to_le_bytes());
    stamp[8..12].copy_from_slice(&version.to_le_bytes());
    stamp[12..].copy_from_slice(&(version ^ place ^ 0x5a5a_5a5a).to_le_bytes());
    stamp
}

/// The version that a sector shows, where it is a whole one of this place.
fn version_of(bytes: &[u8], file: FileId, block: u64, sector: usize) -> Option<u32> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
    let expected = stamp(file, block, sector, version);
    bytes
        .chunks(expected.len())
        .all(|place| place == expected)
        .then_some(version)
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The history of the process that follows one that is killed at this moment. Nobody hears what
    /// is told to this one from here on.
    pub fn fork(&self) -> Self {
        let mut state = self.state();
        let mut copy = state.clone();
        state.is_forked = true;
        // What was under way may be sent again, or never, whoever saw it.
        for history in copy.files.values_mut() {
            history.seen.clear();
        }
        Self {
            state: Mutex::new(copy),
            told: Arc::clone(&self.told),
        }
    }

    /// The power failed, and all threads have ended: what was answered and not synced may be there
    /// or not, until it is written again; a later sync speaks only of what came after.
    pub fn power_cut(&self) {
        let now = self.tick();
        let mut state = self.state();
        for history in state.files.values_mut() {
            history.seen.clear();
            let synced: Vec<bool> = (history.writes.iter())
                .map(|write| write.begun == 0 || history.is_synced(write, now))
                .collect();
            for (write, is_synced) in history.writes.iter_mut().zip(synced) {
                if !is_synced {
                    write.done = None;
                }
            }
        }
    }

    /// With every event in words, for one run told at length.
    pub fn trace(&self) {
        self.told().is_traced = true;
    }

    /// A line of the trace, where there is one.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let (now, is_forked) = {
            let state = self.state();
            (state.now, state.is_forked)
        };
        let mut told = self.told();
        if told.is_traced {
            let killed = if is_forked { "(killed) " } else { "" };
            let thread = format!("{:?}", spindle_sync::thread::current().id());
            let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
            let line = format!("{now:5} {thread:>3} {killed}{}", line());
            told.trace.push(line);
        }
    }

    /// A promise was broken.
    pub fn violate(&self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        if !self.state().is_forked {
            self.told().violations.push(what);
        }
    }

    /// What was broken, and the trace.
    pub fn take(&self) -> (Vec<String>, Vec<String>) {
        let mut told = self.told();
        (
            std::mem::take(&mut told.violations),
            std::mem::take(&mut told.trace),
        )
    }

    /// Whether nothing was broken so far.
    pub fn is_clean(&self) -> bool {
        self.told().violations.is_empty()
    }

    /// A moment after everything so far.
    pub fn tick(&self) -> Tick {
        let mut state = self.state();
        state.now += 1;
        state.now
    }

    /// A file of zeros.
    pub fn create(&self, file: FileId, copies: usize) {
        let zeros = Write {
            version: 0,
            first_block: 0,
            end_block: u64::MAX,
            begun: 0,
            done: Some(0),
            has_failed: false,
        };
        let history = FileHistory {
            copies,
            writes: vec![zeros],
            ..FileHistory::default()
        };
        self.state().files.insert(file, history);
    }

    /// As [`History::create`], unless it is there.
    pub fn create_unless_known(&self, file: FileId, copies: usize) {
        if !self.state().files.contains_key(&file) {
            self.create(file, copies);
        }
    }

    /// A disk lost what no flush had covered: what only one copy had may be as it was before. So may
    /// it where a disk goes offline for a write that it cannot do: that it kept its power, and with
    /// it what was written, nobody can know, and the next sync tells that it may be lost.
    pub fn outage(&self) {
        let mut state = self.state();
        state.now += 1;
        let now = state.now;
        state.first_outage.get_or_insert(now);
    }

    /// A disk that serves on dropped what no flush had covered. Until the group has its answer the
    /// copies differ, and nobody can know.
    pub fn drop_by_disk(&self) {
        self.outage();
        let mut state = self.state();
        state.drops = Drops {
            newest: Some(state.now),
            noticed: None,
        };
    }

    /// Everything was flushed by a sync that began then: what disks had dropped is known.
    pub fn notice_drops(&self, begun: Tick) {
        let mut state = self.state();
        let now = state.now;
        let is_after = state.drops.newest.is_some_and(|drop| drop < begun);
        if is_after && state.drops.noticed.is_none() {
            state.drops.noticed = Some(now);
        }
    }

    /// Whether copies may have differed since then because a disk that serves on had dropped
    /// something.
    pub fn may_have_differed_since(&self, since: Tick) -> bool {
        let drops = self.state().drops;
        drops.newest.is_some() && drops.noticed.is_none_or(|noticed| noticed >= since)
    }

    /// A disk lost what no flush had covered while another one was away: as [`History::outage`], for
    /// what two copies had.
    pub fn second_failure(&self) {
        let mut state = self.state();
        state.now += 1;
        let now = state.now;
        state.first_second_failure.get_or_insert(now);
        state.second_failures_count += 1;
    }

    /// How often that was so.
    pub fn second_failures_count(&self) -> u32 {
        self.state().second_failures_count
    }

    /// The group stopped as it has to: its disks have to come back before it goes on.
    pub fn stop(&self) {
        self.state().has_stopped = true;
    }

    /// Whether it did.
    pub fn has_stopped(&self) -> bool {
        self.state().has_stopped
    }

    /// Whether something of the file may be lost that was not synced, which its next sync tells.
    pub fn may_have_lost(&self, file: FileId) -> bool {
        let state = self.state();
        (state.files.get(&file)).is_some_and(|history| state.may_have_lost(history))
    }

    /// A write of `version` begins (0: a hole); its place in the history.
    pub fn begin_write(&self, file: FileId, blocks: (u64, u64), version: u32) -> usize {
        let begun = self.tick();
        self.note(|| format!("write {version} of {file} {blocks:?} begins"));
        let mut state = self.state();
        let writes = &mut state.files.get_mut(&file).expect("it was created").writes;
        writes.push(Write {
            version,
            first_block: blocks.0,
            end_block: blocks.1,
            begun,
            done: None,
            has_failed: false,
        });
        writes.len() - 1
    }

    /// It was answered.
    pub fn end_write(&self, file: FileId, place: usize, ok: bool) {
        let now = self.tick();
        let mut state = self.state();
        let write = &mut state.files.get_mut(&file).expect("it was created").writes[place];
        write.done = ok.then_some(now);
        write.has_failed = !ok;
        let version = write.version;
        drop(state);
        self.note(|| format!("write {version} of {file} ended, ok: {ok}"));
    }

    /// A sync that began at `begun` was answered.
    pub fn end_sync(&self, file: FileId, begun: Tick, ok: bool) {
        let ended = self.tick();
        self.note(|| format!("sync of {file} since {begun} ended, ok: {ok}"));
        let mut state = self.state();
        let syncs = &mut state.files.get_mut(&file).expect("it was created").syncs;
        syncs.push(Sync { begun, ended, ok });
    }

    /// Whether a hole was or may have been made of this block since then, by somebody or by an outage
    /// that took what its only copy had.
    pub fn was_emptied_since(&self, file: FileId, block: u64, since: Tick) -> bool {
        let state = self.state();
        let history = &state.files[&file];
        let may_be_lost = state.may_have_lost(history);
        may_be_lost
            || history.touching(block).any(|write| {
                write.version == 0
                    && write.end_block < u64::MAX
                    && write.done.is_none_or(|done| done > since)
            })
    }

    /// Judges what a read that began at `begun` gave.
    pub fn judge_read(&self, file: FileId, first_block: u64, bytes: &[u8], begun: Tick) {
        let ended = self.tick();
        // Whatever earlier reads saw.
        let may_differ = self.may_have_differed_since(0);
        let mut wrong = None;
        {
            let mut state = self.state();
            // What one copy held and lost with its disk's power may be gone until a sync tells.
            let is_lossy = state.may_have_lost(&state.files[&file]);
            let history = state.files.get_mut(&file).expect("it was created");
            for (block, sector, found) in sectors(file, first_block, bytes) {
                let is_settled = |write: &Write| match is_lossy {
                    false => write.done.is_some_and(|done| done < begun),
                    true => history.is_synced(write, begun),
                };
                let may_be = |seen: &Write| {
                    seen.begun < ended && history.is_newest(seen, block, &is_settled)
                };
                if !history.shows(block, found, may_be) {
                    wrong = Some((block, sector, found, None));
                    break;
                }
                let Some(version) = found.filter(|_| !is_lossy && !may_differ) else {
                    continue;
                };
                let seen = Seen {
                    version,
                    begun,
                    ended,
                };
                if let Some(newer) = history.went_back(block, sector, seen) {
                    wrong = Some((block, sector, found, Some(newer)));
                    break;
                }
                history.seen.entry((block, sector)).or_default().push(seen);
            }
        }
        if let Some((block, sector, found, newer)) = wrong {
            let newer = newer.map_or(String::new(), |newer| {
                format!(", and write {newer} had been read before")
            });
            self.violate(format!(
                "a read of {file} block {block} sector {sector} (ticks {begun} to {ended}) saw {}{newer}",
                words(found)
            ));
        }
    }

    /// Judges what is there after the end of all threads.
    pub fn judge_end(&self, file: FileId, first_block: u64, bytes: &[u8], was_cut: bool) {
        self.judge_sectors(file, sectors(file, first_block, bytes), was_cut);
    }

    /// As [`History::judge_end`], of everything outside of these blocks: nobody holds it, so it reads
    /// as zeros.
    pub fn judge_holes(&self, file: FileId, held: &[(u64, u64)], was_cut: bool) {
        let mut used = Vec::new();
        for write in &self.state().files[&file].writes {
            // Where a cut goes on for ever, and where there were zeros from the first, are zeros.
            if write.end_block < CUT_END_BLOCK {
                let end = usize::try_from(write.end_block).expect("files are small");
                used.resize(used.len().max(end), false);
                used[usize::try_from(write.first_block).expect("small")..end].fill(true);
            }
        }
        for (first, end) in held {
            let place =
                |block: &u64| usize::try_from(*block).map_or(used.len(), |it| it.min(used.len()));
            let (first, end) = (place(first), place(end));
            used[first..end].fill(false);
        }
        let holes = (0..).zip(used).filter(|(_, is_hole)| *is_hole);
        self.judge_sectors(file, holes.map(|(block, _)| (block, 0, Some(0))), was_cut);
    }

    fn judge_sectors(
        &self,
        file: FileId,
        found: impl Iterator<Item = (u64, usize, Option<u32>)>,
        was_cut: bool,
    ) {
        let end = self.tick();
        let mut wrong = None;
        {
            let state = self.state();
            let history = &state.files[&file];
            let is_lossy = was_cut || state.may_have_lost(history);
            let is_settled = |write: &Write| {
                if is_lossy {
                    history.is_synced(write, end)
                } else {
                    write.done.is_some()
                }
            };
            for (block, sector, found) in found {
                // A sector that the cut met may be torn inside of its block, never in itself.
                let may_be = |seen: &Write| history.is_newest(seen, block, &is_settled);
                if !history.shows(block, found, may_be) {
                    wrong = Some((block, sector, found, history.newest_synced(block, end)));
                    break;
                }
            }
        }
        if let Some((block, sector, found, newest)) = wrong {
            self.violate(format!(
                "at the end {file} block {block} sector {sector} shows {}, and write {newest:?} was \
                 synced",
                words(found)
            ));
        }
    }
}

/// What the sectors of these blocks show, in words.
pub fn shown(file: FileId, first_block: u64, bytes: &[u8]) -> String {
    let mut all: Vec<String> = sectors(file, first_block, bytes)
        .map(|(_, _, found)| words(found))
        .collect();
    all.dedup();
    all.join(", ")
}

fn words(found: Option<u32>) -> String {
    match found {
        None => "bytes that nobody wrote there".to_owned(),
        Some(0) => "zeros".to_owned(),
        Some(version) => format!("write {version}"),
    }
}

/// Each sector: its block, its place in the block, and the version that it shows.
fn sectors(
    file: FileId,
    first_block: u64,
    bytes: &[u8],
) -> impl Iterator<Item = (u64, usize, Option<u32>)> {
    bytes
        .chunks(SECTOR_BYTES)
        .enumerate()
        .map(move |(index, sector)| {
            let block = first_block + (index * SECTOR_BYTES / BLOCK_BYTES) as u64;
            let place = index % (BLOCK_BYTES / SECTOR_BYTES);
            (block, place, version_of(sector, file, block, place))
        })
}

impl State {
    fn may_have_lost(&self, history: &FileHistory) -> bool {
        match history.copies {
            1 => self.first_outage.is_some(),
            _ => self.first_second_failure.is_some(),
        }
    }
}

impl FileHistory {
    fn touching(&self, block: u64) -> impl Iterator<Item = &Write> {
        self.writes
            .iter()
            .filter(move |write| (write.first_block..write.end_block).contains(&block))
    }

    /// Whether a write of that version is one that may be seen.
    fn shows(&self, block: u64, found: Option<u32>, may_be: impl Fn(&Write) -> bool) -> bool {
        let Some(version) = found else {
            return false;
        };
        self.touching(block)
            .any(|write| write.version == version && may_be(write))
    }

    /// A version that an earlier read saw and that replaced this one for certain: the write of this one was
    /// answered before the other one began, or a read before that one had seen it.
    fn went_back(&self, block: u64, sector: usize, now: Seen) -> Option<u32> {
        let seen = self.seen.get(&(block, sector))?;
        let others = (seen.iter()).filter(|other| {
            other.version != now.version && other.version != 0 && other.ended < now.begun
        });
        others
            .map(|other| (other.begun, other.version))
            .find_map(|(begun, version)| {
                // A write that failed may be seen or not, for ever.
                let newer = (self.touching(block)).find(|write| write.version == version)?;
                let mut own = (self.touching(block)).filter(|write| write.version == now.version);
                let was_replaced =
                    own.all(|write| write.done.is_some_and(|done| done < newer.begun));
                let was_seen = now.version != 0
                    && (seen.iter())
                        .any(|first| first.version == now.version && first.ended < begun);
                let has_failed = (self.touching(block)).any(|write| {
                    write.has_failed && [version, now.version].contains(&write.version)
                });
                (!has_failed && (was_replaced || was_seen)).then_some(version)
            })
    }

    /// Whether no settled write has replaced this one for certain.
    fn is_newest(&self, seen: &Write, block: u64, is_settled: &dyn Fn(&Write) -> bool) -> bool {
        let Some(done) = seen.done else {
            return true;
        };
        !self
            .touching(block)
            .any(|other| other.begun > done && is_settled(other))
    }

    /// Whether a sync answered before `before` speaks of this write.
    fn is_synced(&self, write: &Write, before: Tick) -> bool {
        let Some(done) = write.done else {
            return false;
        };
        self.syncs.iter().any(|sync| {
            let told_of_loss =
                |other: &Sync| !other.ok && other.ended > write.begun && other.begun < sync.ended;
            sync.ok
                && sync.begun > done
                && sync.ended < before
                && !self.syncs.iter().any(told_of_loss)
        })
    }

    fn newest_synced(&self, block: u64, before: Tick) -> Option<u32> {
        self.touching(block)
            .filter(|write| self.is_synced(write, before))
            .max_by_key(|write| write.begun)
            .map(|write| write.version)
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, FileId, History, fill};

    const FILE: FileId = FileId(1);

    fn reads(history: &History, version: u32) {
        let mut bytes = vec![0; BLOCK_BYTES];
        fill(&mut bytes, FILE, 0, version);
        let begun = history.tick();
        history.judge_read(FILE, 0, &bytes, begun);
    }

    #[test]
    fn a_write_under_way_that_was_read_is_not_gone_for_the_next_reader() {
        let history = History::default();
        history.create(FILE, 2);
        let first = history.begin_write(FILE, (0, 1), 1);
        reads(&history, 0);
        reads(&history, 1);
        assert!(history.is_clean());
        reads(&history, 0);
        assert!(!history.is_clean());
        history.end_write(FILE, first, true);
    }

    #[test]
    fn two_writes_beside_each_other_are_not_read_in_turns() {
        let history = History::default();
        history.create(FILE, 2);
        let writes = [1, 2].map(|version| history.begin_write(FILE, (0, 1), version));
        for version in [1, 2] {
            reads(&history, version);
        }
        for write in writes {
            history.end_write(FILE, write, true);
        }
        assert!(history.is_clean());
        reads(&history, 1);
        assert!(!history.is_clean());
    }

    #[test]
    fn a_write_that_failed_may_be_read_in_turns_with_what_was_before() {
        let history = History::default();
        history.create(FILE, 2);
        let write = history.begin_write(FILE, (0, 1), 1);
        reads(&history, 1);
        history.end_write(FILE, write, false);
        for version in [0, 1, 0] {
            reads(&history, version);
        }
        assert!(history.is_clean());
    }
}
