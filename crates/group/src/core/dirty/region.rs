//! One region: its row, who writes to it, what was written lately, and what disks missed of it.

mod announced;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence, Table};
use spindle_format::{BlockRun, DirtyRecord, StaleDisk};

use crate::core::dirty::block_set::BlockSet;
use crate::core::dirty::copied::{CopiedBlocks, HasFlushed};
use crate::core::disks::Target;
use announced::Announcements;

/// A file and the number of a region of it.
pub type RegionKey = (FileId, u32);

pub(crate) fn row_key((file, region): RegionKey) -> Vec<u8> {
    let mut key = file.0.to_be_bytes().to_vec();
    key.extend_from_slice(&region.to_be_bytes());
    key
}

/// What an open row says of a disk that is stale.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenRows {
    /// That all of the region is stale there.
    #[default]
    NameDisks,
    /// Which blocks are. Where it is the only one, and writes are announced that it misses, the row would
    /// have to be put for each of them, and calls all of the region stale.
    ListBlocks,
}

/// Where there are more runs on the only stale disk an open row calls all of the region stale there.
const LISTED_RUNS_MOST: usize = 128;

/// The row as the newest edit put it.
#[derive(Debug)]
struct Row {
    sequence: Sequence,
    open: bool,
    disks: SmallVec<[Named; 2]>,
}

/// A disk in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    disk: DiskNumber,
    /// No blocks are listed: all of the region is stale there.
    everything: bool,
    /// What is said of it by every row from the edit on that writers wait for.
    assured: Assured,
}

/// A row that was put anew without being waited for may say more than the one before it: a writer relies
/// on what both say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Assured {
    Nothing,
    /// Those blocks that are stale.
    Blocks,
    Everything,
}

impl Named {
    fn all_of(record: &DirtyRecord) -> SmallVec<[Self; 2]> {
        let named = |stale: &StaleDisk| {
            let everything = stale.runs.is_empty();
            Self {
                disk: stale.disk,
                everything,
                assured: match everything {
                    true => Assured::Everything,
                    false => Assured::Blocks,
                },
            }
        };
        record.stale.iter().map(named).collect()
    }
}

/// The blocks that one disk missed; never none.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) disk: DiskNumber,
    pub(crate) blocks: BlockSet,
    /// Writes are announced that it misses.
    grows: bool,
}

/// Writes are counted in two generations. What the older one wrote is known to be on every disk
/// when none of it is under way any more and a flush followed; then the younger takes its place.
#[derive(Debug, Default)]
struct Generation {
    /// Those who copy are among them.
    writers_count: u32,
    written: BlockSet,
    copied: CopiedBlocks,
    regained: SmallVec<[Regained; 1]>,
}

/// What a disk lacked before, and has got since: until a flush has covered it, the disk loses that
/// again when it goes, and shows what it had before it.
#[derive(Debug)]
struct Regained {
    newest: Target,
    blocks: BlockSet,
}

/// Where there are more, the two oldest of a disk become one that the flush of the younger covers.
const REGAINED_MOST: usize = 8;

impl Generation {
    fn regain(&mut self, newest: Target, blocks: BlockSet) {
        let disk = newest.life.disk;
        let mut own = (self.regained.iter_mut()).filter(|other| other.newest.life.disk == disk);
        let (Some(first), Some(second)) = (own.next(), own.next()) else {
            self.regained.push(Regained { newest, blocks });
            return;
        };
        if own.count() + 2 >= REGAINED_MOST {
            second.blocks.insert_all(&first.blocks);
            // Numbers rise through all incarnations of a disk; who tells first need not have the lower.
            if first.newest.number > second.newest.number {
                second.newest = first.newest;
            }
            first.newest = newest;
            first.blocks = blocks;
            // The oldest stand first.
            let moved = (self.regained.iter()).position(|other| other.newest == newest);
            self.regained[moved.expect("just now")..].rotate_left(1);
        } else {
            self.regained.push(Regained { newest, blocks });
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Region {
    row: Option<Row>,
    /// By disk, ascending.
    pub(crate) stale: SmallVec<[Stale; 1]>,
    generations: [Generation; 2],
    /// Which of the two new writes join.
    young: u8,
    /// The older generation had come to its end when the round began.
    old_has_ended: bool,
    pub(crate) quiet_rounds: u8,
    /// Found open at opening and not compared yet, or a write failed on every copy: only the
    /// comparison of an opening makes the copies equal.
    pub(crate) doubtful: bool,
    /// Reads that could not take a copy because it is stale.
    pub(crate) wanted: u64,
    /// A row that lists blocks lists some that are not stale any more.
    is_outdated: bool,
    /// A row that lists blocks lacks some that are stale.
    is_short: bool,
    announced: Announcements,
    /// Disks on which a bad place is written again, by the number of who does it: what they give there
    /// nobody knows before he has ended, and a row names them.
    suspects: SmallVec<[(u64, DiskNumber); 1]>,
}

impl Region {
    /// A region as a row of the catalog tells of it.
    pub(crate) fn of(record: &DirtyRecord) -> Self {
        let stale = |stale: &StaleDisk| Stale {
            disk: stale.disk,
            blocks: match stale.runs.is_empty() {
                true => BlockSet::Everything,
                false => BlockSet::of(&stale.runs),
            },
            grows: false,
        };
        Self {
            row: Some(Row {
                sequence: Sequence(0),
                open: record.open,
                disks: Named::all_of(record),
            }),
            stale: record.stale.iter().map(stale).collect(),
            doubtful: record.open,
            ..Self::default()
        }
    }

    /// Nothing is stale on other disks; the row follows with the rounds.
    pub(crate) fn keep_stale(&mut self, is_member: &dyn Fn(DiskNumber) -> bool) {
        let named = self.stale.len();
        self.stale.retain(|stale| is_member(stale.disk));
        self.is_outdated |= self.stale.len() < named;
    }

    /// Gives the open row to `apply` unless it is there and says of every stale disk all that it
    /// missed; the edit that put it.
    pub(crate) fn open(
        &mut self,
        key: RegionKey,
        rows: OpenRows,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        if let Some(row) = &self.row
            && row.open
            && !self.is_short
        {
            let says_all = |disk: DiskNumber| {
                let needed = match self.is_whole(disk) {
                    true => Assured::Everything,
                    false => Assured::Blocks,
                };
                let mut named = row.disks.iter().filter(|named| named.disk == disk);
                named.any(|named| named.assured >= needed)
            };
            if self.to_be_named().all(says_all) {
                return row.sequence;
            }
        }
        let mut edit = Edit::default();
        let disks = self.put_open(key, rows, &mut edit);
        let sequence = apply(edit);
        self.row = Some(Row {
            sequence,
            open: true,
            disks,
        });
        sequence
    }

    /// Puts the open row as it is to be; the disks in it.
    fn put_open(
        &mut self,
        key: RegionKey,
        rows: OpenRows,
        edit: &mut Edit,
    ) -> SmallVec<[Named; 2]> {
        let record = DirtyRecord {
            open: true,
            stale: (self.to_be_named())
                .map(|disk| StaleDisk {
                    disk,
                    runs: self.listed_runs(disk, rows),
                })
                .collect(),
        };
        edit.put(Table::DirtyRegion, row_key(key), record.encode());
        self.is_short = false;
        self.is_outdated = false;
        Named::all_of(&record)
    }

    /// What an open row lists of a disk; nothing where all of the region is to be stale there.
    fn listed_runs(&self, disk: DiskNumber, rows: OpenRows) -> Vec<BlockRun> {
        let stale = self.stale_of(disk).filter(|_| !self.is_whole(disk));
        match (rows, stale) {
            (OpenRows::ListBlocks, Some(blocks)) => {
                let runs = blocks.runs();
                if self.is_only_stale() && runs.len() > LISTED_RUNS_MOST {
                    Vec::new()
                } else {
                    runs
                }
            }
            _ => Vec::new(),
        }
    }

    /// Where disks lack different blocks, each may have the only good copies of what another one lacks:
    /// a row lists them, however often it has to be put.
    fn is_only_stale(&self) -> bool {
        self.stale.len() < 2
    }

    /// Whether an open row is to call any of these blocks stale on the disk.
    pub(crate) fn lists(&self, disk: DiskNumber, (first, end): (u32, u32), rows: OpenRows) -> bool {
        (self.stale_of(disk)).is_some_and(|blocks| {
            blocks.touches(first, end) || self.listed_runs(disk, rows).is_empty()
        })
    }

    /// Whether an open row is to call all of the region stale on the disk.
    fn is_whole(&self, disk: DiskNumber) -> bool {
        let Some(stale) = self.stale.iter().find(|stale| stale.disk == disk) else {
            return true;
        };
        self.is_only_stale() && (stale.grows || self.is_suspect(disk))
    }

    /// What is stale is all that is, until a write is announced that a disk misses: a row may list it.
    pub(crate) fn stop_growing(&mut self) {
        for stale in &mut self.stale {
            stale.grows = false;
        }
    }

    /// The disks that an open row names: those that are stale. One under suspicion only where no other
    /// is stale: a row that names both would leave no copy after a crash.
    fn to_be_named(&self) -> impl Iterator<Item = DiskNumber> + '_ {
        let suspect = self.suspects.first().filter(|_| self.stale.is_empty());
        let stale = self.stale.iter().map(|stale| stale.disk);
        stale.chain(suspect.map(|(_, disk)| *disk))
    }

    /// Puts the exact row, or takes the row away where no disk is stale; whether the region may
    /// be forgotten.
    pub(crate) fn close(&mut self, key: RegionKey, edit: &mut Edit) -> bool {
        if self.stale.is_empty() {
            if self.row.take().is_some() {
                edit.delete(Table::DirtyRegion, row_key(key));
            }
            return true;
        }
        let is_exact = self.row.as_ref().is_some_and(|row| !row.open) && !self.is_outdated;
        if !is_exact {
            let record = DirtyRecord {
                open: false,
                stale: (self.stale.iter())
                    .map(|stale| StaleDisk {
                        disk: stale.disk,
                        runs: stale.blocks.runs(),
                    })
                    .collect(),
            };
            edit.put(Table::DirtyRegion, row_key(key), record.encode());
            self.row = Some(Row {
                // Nobody waits for a closed row.
                sequence: Sequence(0),
                open: false,
                disks: Named::all_of(&record),
            });
            self.is_outdated = false;
            self.is_short = false;
        }
        false
    }

    /// Whether a row that lists blocks lists other ones than are stale.
    pub(crate) const fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// A write brought disks what they lacked: the row ceases to list it where another disk lacks
    /// something as well, and perhaps this. A sync has to wait for that edit.
    pub(crate) fn list_less(&mut self, key: RegionKey, rows: OpenRows, edit: &mut Edit) {
        let row = self.row.as_ref().filter(|row| row.open);
        if self.is_outdated && row.is_some_and(|row| row.disks.len() > 1) {
            self.forget_caught_up(key, rows, edit);
        }
    }

    /// Whether blocks are stale that an open row, which lists blocks, lacks.
    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// As [`Self::close`], whoever copies, for a file of one copy: there is none that could be made equal
    /// to it, and a row that lists blocks tells which of them are lost. An open row stays.
    pub(crate) fn list(&mut self, key: RegionKey, edit: &mut Edit) {
        let is_open = self.row.as_ref().is_some_and(|row| row.open);
        if !is_open && !self.doubtful {
            self.is_outdated = true;
            self.close(key, edit);
        }
    }

    /// The row ceases to name what is not stale any more. A closed one lists blocks: it is put as an
    /// open one, which names the stale disks alone. So a power cut finds a copy good that has
    /// everything, and is perhaps the only one by then. A kill comes before what was copied there is
    /// flushed: it finds the region doubtful, and a disk that loses it has missed it. The rounds,
    /// which flush first, close the row again.
    pub(crate) fn name_only_stale(
        &mut self,
        key: RegionKey,
        rows: OpenRows,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let is_closed = self.row.as_ref().is_some_and(|row| !row.open);
        if is_closed && self.is_outdated {
            self.open(key, rows, apply);
            return;
        }
        let mut edit = Edit::default();
        self.forget_caught_up(key, rows, &mut edit);
        if !edit.is_empty() {
            apply(edit);
        }
    }

    /// An open row ceases to name disks that are not stale any more, and to list blocks that are not;
    /// of a disk of which it calls all of the region stale it lists the blocks, where it may.
    pub(crate) fn forget_caught_up(&mut self, key: RegionKey, rows: OpenRows, edit: &mut Edit) {
        let Some(row) = self.row.as_ref().filter(|row| row.open) else {
            return;
        };
        let says_too_much = |named: &Named| {
            !self.to_be_named().any(|disk| disk == named.disk)
                || match named.everything {
                    true => !self.listed_runs(named.disk, rows).is_empty(),
                    false => self.is_outdated,
                }
        };
        if row.disks.iter().any(says_too_much) {
            let mut disks = self.put_open(key, rows, edit);
            if let Some(row) = &mut self.row {
                // Its sequence stays: whichever of the two is durable, it is open.
                for named in &mut disks {
                    let former = row.disks.iter().find(|former| former.disk == named.disk);
                    let former = former.map_or(Assured::Nothing, |former| former.assured);
                    named.assured = named.assured.min(former);
                }
                row.disks = disks;
            }
        }
    }

    pub(crate) fn stale_of(&self, disk: DiskNumber) -> Option<&BlockSet> {
        let place = (self.stale).binary_search_by_key(&disk, |stale| stale.disk);
        Some(&self.stale[place.ok()?].blocks)
    }

    /// Whether a bad place on the disk is being written again here.
    pub(super) fn is_suspect(&self, disk: DiskNumber) -> bool {
        self.suspects.iter().any(|(_, suspect)| *suspect == disk)
    }

    /// A bad place on the disk is written again, from copies on disks that have all of the region. Where
    /// another one lacks something of it nobody is under suspicion.
    pub(crate) fn suspect(&mut self, mender: u64, disk: DiskNumber) {
        if self.stale.iter().all(|stale| stale.disk == disk) {
            self.suspects.push((mender, disk));
        }
    }

    /// A disk goes: what it has there alone, or shares with the one under suspicion, has to count when
    /// it is back, and until then what the other shares with others.
    pub(crate) fn end_suspicions(
        &mut self,
        key: RegionKey,
        rows: OpenRows,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        if !self.suspects.is_empty() {
            self.suspects.clear();
            self.name_only_stale(key, rows, apply);
        }
    }

    pub(crate) fn end_suspicion(&mut self, mender: u64) {
        self.suspects.retain(|(other, _)| *other != mender);
    }

    /// A write to these blocks is announced that the disk misses.
    fn grow(&mut self, disk: DiskNumber, first: u32, end: u32) {
        self.add_run(disk, first, end);
        if let Some(stale) = self.stale.iter_mut().find(|stale| stale.disk == disk) {
            stale.grows = true;
        }
    }

    /// The disk missed these blocks.
    pub(crate) fn miss(&mut self, disk: DiskNumber, first: u32, end: u32) {
        self.announced.take_out_of(disk, first, end);
        self.add_run(disk, first, end);
    }

    fn add_run(&mut self, disk: DiskNumber, first: u32, end: u32) {
        let is_known = (self.stale_of(disk))
            .is_some_and(|blocks| blocks.contains(first) && blocks.same_until(first, end) == end);
        if !is_known {
            self.add_stale(disk, |blocks| blocks.insert(first, end));
        }
    }

    /// As [`Self::miss`].
    pub(crate) fn miss_all(&mut self, disk: DiskNumber, missed: &BlockSet) {
        let mut from = 0;
        while let Some((first, end)) = missed.run_from(from) {
            self.announced.take_out_of(disk, first, end);
            from = end;
        }
        self.add_stale(disk, |blocks| blocks.insert_all(missed));
    }

    fn add_stale(&mut self, disk: DiskNumber, blocks: impl FnOnce(&mut BlockSet)) {
        let place = match (self.stale).binary_search_by_key(&disk, |stale| stale.disk) {
            Ok(place) => place,
            Err(place) => {
                let new = Stale {
                    disk,
                    blocks: BlockSet::default(),
                    grows: false,
                };
                self.stale.insert(place, new);
                place
            }
        };
        let lists = |named: &Named| named.disk == disk && !named.everything;
        let row = self.row.as_ref().filter(|row| row.open);
        self.is_short |= row.is_some_and(|row| row.disks.iter().any(lists));
        blocks(&mut self.stale[place].blocks);
        assert!(
            !self.stale[place].blocks.is_empty(),
            "a disk that is named missed something"
        );
    }

    /// The disk has these blocks as the others do, once a flush has covered `newest`.
    pub(crate) fn regain(&mut self, newest: Target, first: u32, end: u32) {
        let regained = (self.stale_of(newest.life.disk))
            .filter(|blocks| blocks.touches(first, end))
            .map(|blocks| blocks.within(first, end));
        self.catch_up(newest.life.disk, first, end);
        if let Some(regained) = regained {
            self.generations[usize::from(self.young)].regain(newest, regained);
        }
    }

    /// The disk has these blocks as the others do.
    pub(crate) fn catch_up(&mut self, disk: DiskNumber, first: u32, end: u32) {
        let place = (self.stale).binary_search_by_key(&disk, |stale| stale.disk);
        let Ok(place) = place else {
            return;
        };
        self.announced.take_out_of(disk, first, end);
        let blocks = &mut self.stale[place].blocks;
        if blocks.touches(first, end) {
            blocks.remove(first, end);
            self.is_outdated = true;
        }
        if self.stale[place].blocks.is_empty() {
            self.stale.remove(place);
        }
    }

    /// What the disk has got since a flush, of what it lacked before or had no copy of.
    pub(crate) fn got_lately(&self, disk: DiskNumber, has_flushed: HasFlushed<'_>) -> BlockSet {
        let mut got = self.copied_lately(disk, has_flushed);
        let regained = self.generations.iter().flat_map(|lately| &lately.regained);
        let of_disk = regained.filter(|regained| regained.newest.life.disk == disk);
        for regained in of_disk.filter(|regained| !has_flushed(regained.newest)) {
            got.insert_all(&regained.blocks);
        }
        got
    }

    /// What was written lately: a disk that fails now may lack it.
    pub(crate) fn written_lately(&self) -> BlockSet {
        let mut written = self.generations[0].written.clone();
        written.insert_all(&self.generations[1].written);
        written
    }

    /// A write joins the younger generation, which it is told.
    pub(crate) fn begin_write(&mut self) -> u8 {
        self.generations[usize::from(self.young)].writers_count += 1;
        self.quiet_rounds = 0;
        self.young
    }

    pub(crate) fn note_written(&mut self, first: u32, end: u32) {
        self.announced.take_out(first, end);
        let young = usize::from(self.young);
        self.generations[young].written.insert(first, end);
    }

    pub(crate) const fn end_write(&mut self, generation: u8) {
        let writers = &mut self.generations[generation as usize].writers_count;
        *writers = writers.saturating_sub(1);
    }

    /// A copy to the disk joins the younger generation, which it is told.
    pub(crate) fn begin_copy(
        &mut self,
        disk: DiskNumber,
        blocks: (u32, u32),
        has_flushed: HasFlushed<'_>,
    ) -> u8 {
        let young = self.begin_write();
        (self.generations[usize::from(young)].copied).begin(disk, blocks, has_flushed);
        young
    }

    pub(crate) fn end_copy(&mut self, generation: u8, newest: Target) {
        self.end_write(generation);
        self.generations[usize::from(generation)].copied.end(newest);
    }

    /// What was copied to the disk alone: it may lack that when it fails now.
    pub(crate) fn copied_lately(&self, disk: DiskNumber, has_flushed: HasFlushed<'_>) -> BlockSet {
        let mut copied = BlockSet::default();
        for generation in &self.generations {
            generation.copied.add_to(&mut copied, disk, has_flushed);
        }
        copied
    }

    pub(crate) const fn has_writers(&self) -> bool {
        self.generations[0].writers_count + self.generations[1].writers_count > 0
    }

    pub(crate) const fn begin_round(&mut self) {
        self.old_has_ended = self.generations[1 - self.young as usize].writers_count == 0;
    }

    /// A flush of every disk lies between the beginning of the round and here.
    pub(crate) fn end_round(&mut self) {
        if std::mem::take(&mut self.old_has_ended) {
            self.young = 1 - self.young;
            let young = &mut self.generations[usize::from(self.young)];
            young.written = BlockSet::Nothing;
            young.copied = CopiedBlocks::default();
            young.regained.clear();
        }
    }
}
