//! One region: its row, who writes to it, what was written lately, and what disks missed of it.

mod announced;

use smallvec::SmallVec;
use spindle_base::{DiskNumber, FileId};
use spindle_catalog::{Edit, Sequence, Table};
use spindle_format::{DirtyRecord, StaleDisk};

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

fn open_record(disks: &[DiskNumber]) -> DirtyRecord {
    let stale = |disk: &DiskNumber| StaleDisk {
        disk: *disk,
        runs: Vec::new(),
    };
    DirtyRecord {
        open: true,
        stale: disks.iter().map(stale).collect(),
    }
}

/// The row as the newest edit put it.
#[derive(Debug)]
struct Row {
    sequence: Sequence,
    open: bool,
    disks: SmallVec<[DiskNumber; 2]>,
}

/// The blocks that one disk missed; never none.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) disk: DiskNumber,
    pub(crate) blocks: BlockSet,
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
    /// A closed row lists other blocks than are stale.
    is_outdated: bool,
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
            blocks: if record.open {
                BlockSet::Everything
            } else {
                BlockSet::of(&stale.runs)
            },
        };
        Self {
            row: Some(Row {
                sequence: Sequence(0),
                open: record.open,
                disks: record.stale.iter().map(|stale| stale.disk).collect(),
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

    /// Gives the open row to `apply` unless it is there and names every stale disk; the edit
    /// that put it.
    pub(crate) fn open(
        &mut self,
        key: RegionKey,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) -> Sequence {
        if let Some(row) = &self.row
            && row.open
            && self.to_be_named().all(|disk| row.disks.contains(&disk))
        {
            return row.sequence;
        }
        let disks: SmallVec<[DiskNumber; 2]> = self.to_be_named().collect();
        let mut edit = Edit::default();
        edit.put(
            Table::DirtyRegion,
            row_key(key),
            open_record(&disks).encode(),
        );
        let sequence = apply(edit);
        self.row = Some(Row {
            sequence,
            open: true,
            disks,
        });
        sequence
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
                disks: record.stale.iter().map(|stale| stale.disk).collect(),
            });
            self.is_outdated = false;
        }
        false
    }

    /// Whether a closed row lists other blocks than are stale.
    pub(crate) const fn is_outdated(&self) -> bool {
        self.is_outdated
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
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        let is_closed = self.row.as_ref().is_some_and(|row| !row.open);
        if is_closed && self.is_outdated {
            self.open(key, apply);
            return;
        }
        let mut edit = Edit::default();
        self.forget_caught_up(key, &mut edit);
        if !edit.is_empty() {
            apply(edit);
        }
    }

    /// An open row ceases to name disks that are not stale any more.
    pub(crate) fn forget_caught_up(&mut self, key: RegionKey, edit: &mut Edit) {
        let to_be_named: SmallVec<[DiskNumber; 2]> = self.to_be_named().collect();
        let Some(row) = self.row.as_mut().filter(|row| row.open) else {
            return;
        };
        let named = row.disks.len();
        row.disks.retain(|disk| to_be_named.contains(disk));
        if row.disks.len() < named {
            // Its sequence stays: whichever of the two is durable, it is open.
            let record = open_record(&row.disks);
            edit.put(Table::DirtyRegion, row_key(key), record.encode());
        }
    }

    pub(crate) fn stale_of(&self, disk: DiskNumber) -> Option<&BlockSet> {
        let place = (self.stale).binary_search_by_key(&disk, |stale| stale.disk);
        Some(&self.stale[place.ok()?].blocks)
    }

    /// Whether the disk is stale here, or the row says so.
    pub(super) fn names(&self, disk: DiskNumber) -> bool {
        self.stale_of(disk).is_some()
            || (self.row.as_ref()).is_some_and(|row| row.disks.contains(&disk))
    }

    /// A bad place on the disk is written again, from copies on disks that have all of the region. Where
    /// another one lacks something of it nobody is under suspicion.
    pub(crate) fn suspect(&mut self, mender: u64, disk: DiskNumber) {
        if self.stale.iter().all(|stale| stale.disk == disk) {
            self.suspects.push((mender, disk));
        }
    }

    /// Whether a bad place is written again on another disk.
    pub(crate) fn suspects_beside(&self, disk: DiskNumber) -> bool {
        self.suspects.iter().any(|(_, other)| *other != disk)
    }

    /// A disk goes: what it has there alone, or shares with the one under suspicion, has to count when
    /// it is back, and until then what the other shares with others.
    pub(crate) fn end_suspicions(
        &mut self,
        key: RegionKey,
        apply: &mut dyn FnMut(Edit) -> Sequence,
    ) {
        if !self.suspects.is_empty() {
            self.suspects.clear();
            self.name_only_stale(key, apply);
        }
    }

    pub(crate) fn end_suspicion(&mut self, mender: u64) {
        self.suspects.retain(|(other, _)| *other != mender);
    }

    /// The disk missed these blocks.
    pub(crate) fn miss(&mut self, disk: DiskNumber, first: u32, end: u32) {
        self.announced.take_out_of(disk, first, end);
        self.add_stale(disk, |blocks| blocks.insert(first, end));
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
                let blocks = BlockSet::default();
                self.stale.insert(place, Stale { disk, blocks });
                place
            }
        };
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
