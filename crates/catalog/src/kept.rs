//! What is applied and not yet committed, in memory that outlives this process.
//!
//! A killed process loses its memory while the machine, the kernel's mount and the programs that
//! use it live on. They were answered; so the next process must find what no commit had taken
//! yet. The keeper of a mount holds a [`SharedMemory`], and this module writes into it:
//! - a **log** of edits and of extents as they change, cut off by each commit;
//! - a **touch** for each inode whose size or times moved and whose row lags behind;
//! - the **writes under way**, whose copies may differ;
//! - the **requests** whose effect is in the log, so that none is done twice;
//! - the **disks that failed a flush** which nobody was told of yet: asked again they may answer
//!   well, without what they held;
//! - which **appearance** of each disk is served: another one may lack what no flush had covered;
//! - which **state** of the group is in force, for who cannot see half of the disks that vote.
//!
//! **Invariants.** A record is whole or not there: its first word, which no other record ever
//! had, is stored last. Records of one operation count only where its end is in the log too
//! ([`Bracket`]), and one operation at a time writes some. Replaying a log over a catalog that
//! has all or a part of it gives the same catalog, because every record says what is, not what
//! changed. The log is cut only after the commit that has its records; a touch is given up only
//! after the end of the operation that wrote the row.
//!
//! **A full log** ends at the first record that does not fit, until a commit that has all that
//! fell out cuts it. What falls out takes a position all the same, and the log goes on behind the last
//! one; so what hangs on a record that fell out (a request that is done, a touch whose row is written)
//! names the position from which on it counts. Between the commit and the cut a kill can come: the
//! commit says in a row of its own up to which position it has everything
//! ([`KeptJournal::COVERED_KEY`]), and who takes over ends the cut first.
//!
//! A power cut takes this memory; what a sync promised is on the disks. A kill at any point
//! leaves it as it was, each word whole. `docs/decisions/0005-a-daemon-that-dies.md` has the
//! whole.

mod disk_words;
mod header;
mod layout;
mod log;
#[cfg(feature = "loom")]
pub mod models;
mod recovered;
mod standing;
mod unwritten;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spindle_base::{DiskNumber, FileId};
use spindle_format::COPIES_MAX;
use spindle_sync::{Fault, Mutex, is_put_back};

use crate::{Edit, Table};
use disk_words::{DiskWords, Named};
use header::{Header, LogEnd, State};
use layout::{REQUESTS_COUNT, TOUCHES_COUNT, WRITES_COUNT};
use log::{Kind, Log};
pub use recovered::{Recovered, RecoveredExtent, Touch};
use spindle_device::words::SharedMemory;
pub use standing::Standing;
use standing::States;
pub use unwritten::{BlockSlot, LeftBlock, LostBlock, UnwrittenBlocks};

/// A log that fills such a part of its ring asks for a commit: 16 MiB of what ships.
const LONG_PART: u64 = 8;

/// Workers of a mount, each of which serves one request at a time, whose requests are told apart.
pub const WORKERS_MAX: usize = REQUESTS_COUNT;

/// The journal of one group. All methods may be called from many threads.
#[derive(Debug)]
pub struct KeptJournal {
    memory: SharedMemory,
    log: Mutex<Log>,
    free_touches: Mutex<Vec<u32>>,
    /// Given up by operations whose end may have fallen out of the log: taken until a commit.
    settled_touches: Mutex<Vec<u32>>,
    last_bracket: AtomicU32,
    next_write: AtomicU64,
    connection: AtomicU32,
    /// The log ends where it does, as long as this process lives.
    is_at_half: AtomicBool,
    /// This process serves: what it forgets it has told.
    has_begun: AtomicBool,
    disk_words: DiskWords,
    /// Beside the journal: blocks that were answered and are not on the disks yet.
    unwritten: Option<UnwrittenBlocks>,
}

/// A place in the log, or behind its end among what fell out of it: between what a commit has and what
/// came later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u64);

/// A connection of the kernel, which counts its requests from the beginning in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection(u32);

/// What one process's claim of the group is called, unlike every other claim of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim(u64);

impl Claim {
    /// The claim of that number, which is no other claim's.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        // Zero is nobody's.
        Self(number.max(1))
    }
}

/// Numbers the records of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bracket(u32);

/// A place for one inode's touch. Without [`KeptJournal::free_touch`] it stays taken.
#[derive(Debug, PartialEq, Eq)]
pub struct TouchSlot(u32);

/// A write under way; over when it is dropped.
#[derive(Debug)]
pub struct WriteUnderWay<'a> {
    journal: &'a KeptJournal,
    slot: Option<usize>,
}

/// A request of the kernel that must be done once. It is given to the one operation that fulfils
/// it, whose end notes it as done; so nothing else that is done on the way can.
#[derive(Debug)]
pub struct RequestUnderWay<'a> {
    journal: &'a KeptJournal,
    connection: Connection,
    slot: usize,
    unique: u64,
}

impl RequestUnderWay<'_> {
    /// Ends the operation that fulfils the request: all of it counts now, and it is done.
    pub fn end(self, bracket: Bracket) {
        if self.connection != self.journal.connection() {
            // Nobody can ask again; the next connection has a request of that number.
            return self.journal.end(bracket);
        }
        let counts_from = (self.journal).append(Kind::End, Some(bracket), &[self.unique]);
        let noted = layout::request(self.journal.memory.words(), self.slot);
        noted.set_done(self.unique, counts_from.0);
    }
}

impl KeptJournal {
    /// Bytes of memory that a journal needs; they cost nothing until they are used.
    pub const LENGTH_BYTES: u64 = Self::length_bytes(layout::LOG_WORDS * 8);
    /// The row of the catalog's attributes in which a commit of what fell out of the log says how
    /// much of the log it has: the claim of the process, and the position.
    pub const COVERED_KEY: &[u8] = b"journal_covered";
    /// The layout's version. A process that finds another one cannot take over.
    pub const VERSION: u64 = header::VERSION;

    /// Bytes of memory for a journal whose log has so much room, a power of two: less than what ships
    /// has, for tests of a log that is full.
    #[must_use]
    pub const fn length_bytes(log_bytes: u64) -> u64 {
        assert!(log_bytes.is_power_of_two());
        layout::LOG_START as u64 * 8 + log_bytes
    }

    /// The journal in `memory`, as an earlier process left it or empty.
    ///
    /// # Errors
    /// A line that says why the memory holds no journal that this program can read.
    pub fn new(memory: SharedMemory) -> Result<Self, String> {
        Header::of(&memory).check()?;
        let log = Log::open(&memory);
        let taken = |slot: &u32| layout::touch(memory.words(), *slot).is_taken();
        let free_touches = (0..TOUCHES_COUNT)
            .rev()
            .filter(|slot| !taken(slot))
            .collect();
        Ok(Self {
            last_bracket: AtomicU32::new(log.last_bracket),
            log: Mutex::new(log),
            free_touches: Mutex::new(free_touches),
            settled_touches: Mutex::default(),
            next_write: AtomicU64::new(0),
            connection: AtomicU32::new(0),
            is_at_half: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            disk_words: DiskWords::default(),
            unwritten: None,
            memory,
        })
    }

    /// A journal in memory of its own.
    ///
    /// # Errors
    /// Where the kernel gives none.
    pub fn create() -> std::io::Result<Self> {
        let memory = SharedMemory::create("spindle-journal", Self::LENGTH_BYTES)?;
        Self::new(memory).map_err(std::io::Error::other)
    }

    /// With memory beside it for blocks that are to be written.
    #[must_use]
    pub fn with_blocks(self, blocks: UnwrittenBlocks) -> Self {
        Self {
            unwritten: Some(blocks),
            ..self
        }
    }

    /// The blocks that are to be written, where there is memory for them.
    #[must_use]
    pub const fn unwritten(&self) -> Option<&UnwrittenBlocks> {
        self.unwritten.as_ref()
    }

    /// The memory, to be kept by another process.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn header(&self) -> Header<'_> {
        Header::of(&self.memory)
    }

    /// Notes that a process is about to claim the group, where the claim `before` is the newest
    /// that the disks know of. Where that is of the process whose journal this is, or of one that
    /// died while it took over, the process is its heir. To be called before the claim reaches a
    /// disk: whoever dies in between has changed nothing, and whoever dies after it is known.
    pub fn note_claim(&self, before: Claim, next: Claim) {
        let header = self.header();
        // Between two heirs nobody else had the group: each was noted when the disks named the
        // one before it.
        if header.is_heir(before) {
            header.add_heir(before, next);
        }
    }

    /// The process of that claim let go of the group, because somebody else was taking it: it is an
    /// heir no more, and who finds its claim on the disks none either.
    pub fn forget_claim(&self, claim: Claim) {
        self.header().remove_heir(claim);
    }

    /// What a commit that ends here says of itself while something has fallen out of the log: that it
    /// has all until then, which a kill may leave uncut. Replayed over the rows of what fell out,
    /// older records would bring back what those have changed since, and so would touches.
    pub(crate) fn covered(&self, place: Place) -> Option<Edit> {
        if !self.has_ended() || self.is_at_half() {
            return None;
        }
        let covered = format!("{} {}", self.header().claim().0, place.0);
        let mut edit = Edit::default();
        edit.put(
            Table::Attribute,
            Self::COVERED_KEY.to_vec(),
            covered.into_bytes(),
        );
        Some(edit)
    }

    /// Ends the cut that a killed process did not come to: its last commit said this of itself.
    /// Of a process that had another journal, or began this one anew, it says nothing.
    pub fn cut_what_is_covered(&self, covered: &[u8]) {
        let mut words = std::str::from_utf8(covered).unwrap_or_default().split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (Some(claim), Some(place)) = (number(), number()) else {
            return;
        };
        let mut log = self.log.lock();
        if self.header().claim() == Claim(claim) {
            log.cut(&self.memory, place);
        }
    }

    /// What there is to take over, where the process of that claim is an heir.
    pub fn recover(&self, claim: Claim) -> Option<Recovered> {
        let header = self.header();
        let is_left = matches!(header.state(), State::Live | State::Taken);
        (is_left && header.is_heir(claim)).then(|| self.left())
    }

    /// What there would be to take over if this process were killed now.
    #[must_use]
    pub fn left(&self) -> Recovered {
        recovered::read(self)
    }

    /// All that earlier processes left in the log and the touches is durable: no process after
    /// this one needs it. `done` are the requests that they had done.
    pub fn take(&self, done: &BTreeSet<u64>) {
        self.take_in_steps(done, &mut || {});
    }

    /// `killed` is called wherever a kill would leave something else behind.
    fn take_in_steps(&self, done: &BTreeSet<u64>, killed: &mut dyn FnMut()) {
        self.set_done(done);
        killed();
        // In one word for both: a log without its touches would bring old sizes back, and so
        // would touches without the log, which has newer rows.
        self.header().set_taken();
        killed();
        self.cut_all();
        killed();
        self.forget_touches();
        killed();
        // The errors that are owed for them are rows by now.
        self.disk_words.lock(&self.memory).clear_failed();
        killed();
    }

    /// Everything applied until now is durable or in the log: from here on a kill loses nothing.
    /// `claim` is this process's own; `compare_everything` where some copies were never compared.
    pub fn begin(&self, claim: Claim, compare_everything: bool) {
        self.begin_in_steps(claim, compare_everything, &mut || {});
    }

    fn begin_in_steps(&self, claim: Claim, compare_everything: bool, killed: &mut dyn FnMut()) {
        // Before the writes under way are forgotten that say what must be compared.
        self.header().set_compare_everything(compare_everything);
        killed();
        // Nothing of an earlier process is under way any more.
        for slot in 0..WRITES_COUNT {
            layout::write(self.memory.words(), slot).clear();
        }
        killed();
        self.header().begin(claim);
        self.has_begun.store(true, Ordering::SeqCst);
        killed();
    }

    fn set_done(&self, done: &BTreeSet<u64>) {
        let words = self.memory.words();
        // The newest of each worker may wait for its answer yet, however many others have done since.
        let newest: BTreeSet<u64> = (0..REQUESTS_COUNT)
            .filter_map(|slot| layout::request(words, slot).done(u64::MAX))
            .filter(|unique| done.contains(unique))
            .collect();
        let others = done.iter().rev().filter(|unique| !newest.contains(unique));
        layout::write_done(words, newest.iter().chain(others).copied());
        for slot in 0..REQUESTS_COUNT {
            layout::request(self.memory.words(), slot).clear();
        }
    }

    /// The newest connection.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection(self.connection.load(Ordering::SeqCst))
    }

    /// Begins a connection: nothing of an earlier one is noted as done any more.
    pub fn begin_connection(&self) -> Connection {
        self.connection.fetch_add(1, Ordering::SeqCst);
        self.connection()
    }

    /// Forgets the requests that are done, but for those that the log still names.
    pub fn forget_requests(&self) {
        self.set_done(&BTreeSet::new());
    }

    /// The touches of an earlier process are rows by now, durably.
    fn forget_touches(&self) {
        for slot in 0..TOUCHES_COUNT {
            let touch = layout::touch(self.memory.words(), slot);
            if touch.is_taken() {
                touch.clear();
            }
        }
        self.settled_touches.lock().clear();
        *self.free_touches.lock() = (0..TOUCHES_COUNT).rev().collect();
    }

    /// The group is closed: there is nothing to take over but the mount.
    pub fn close(&self) {
        self.header().close();
    }

    /// Whether the process of that claim is the one whose journal this is: it served, or does.
    #[must_use]
    pub fn is_of(&self, claim: Claim) -> bool {
        let header = self.header();
        header.state() != State::Empty && header.claim() == claim
    }

    /// Whether the process of that claim follows, with nobody between, on the one whose journal this
    /// is: it was killed, or closed the group.
    #[must_use]
    pub fn is_heir(&self, claim: Claim) -> bool {
        let header = self.header();
        header.state() != State::Empty && header.is_heir(claim)
    }

    /// Whether so much is in the log that a commit should come soon.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.log.lock().length_words(&self.memory) > layout::log_words(&self.memory) / LONG_PART
    }

    /// Whether there is so much in the log that a commit must come before more does.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.log.lock().length_words(&self.memory) > layout::log_words(&self.memory) / 2
    }

    /// Half an operation was applied, and its other half never will be. The log ends here: what
    /// comes after may follow from the half. The process must end; whoever is answered by it from
    /// now on is told a failure.
    pub fn end_at_half(&self) {
        let _log = self.log.lock();
        self.is_at_half.store(true, Ordering::SeqCst);
        self.header().end_log(LogEnd::AtHalf);
    }

    /// Whether half an operation was left in this process's memory.
    #[must_use]
    pub fn is_at_half(&self) -> bool {
        self.is_at_half.load(Ordering::SeqCst)
    }

    /// Whether something that was applied fell out of the log, and no commit has it yet.
    #[must_use]
    pub fn is_overflowed(&self) -> bool {
        self.header().log_end() == LogEnd::Overflowed
    }

    /// Whether nothing more goes into the log, because something fell out or half an operation was
    /// left: what is applied must be committed before anybody is answered, because a kill would lose
    /// it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.header().log_end() != LogEnd::Open
    }

    /// Copies may differ in places that no write under way names: a takeover compares all.
    pub fn compare_everything(&self) {
        self.header().set_compare_everything(true);
    }

    /// The disk failed a flush: whoever takes over takes what it held for lost, however well it
    /// answers then.
    pub fn note_failed_flush(&self, disk: DiskNumber) {
        self.disk_words.lock(&self.memory).add_failed(disk);
    }

    /// Whether the disk failed a flush of this process or of an earlier one, and nobody was told.
    #[must_use]
    pub fn has_failed_flush(&self, disk: DiskNumber) -> bool {
        Named::in_memory(&self.memory).has_failed(disk)
    }

    /// Which appearance of each disk the process of this claim serves, which is about to begin. A disk
    /// that appeared anew since an earlier process had it is noted as one that failed a flush: it may
    /// have dropped what no flush had covered.
    pub fn note_appearances(
        &self,
        claim: Claim,
        appearances: impl Iterator<Item = (DiskNumber, Option<u64>)>,
    ) {
        (self.disk_words.lock(&self.memory)).set_appearances(claim, appearances);
    }

    /// As [`Self::note_appearances`], of a disk that comes while this process serves; none of one that
    /// the group forgets.
    pub fn note_appearance(&self, disk: DiskNumber, appearance: Option<u64>) {
        (self.disk_words.lock(&self.memory)).set_appearance(disk, appearance);
    }

    /// Whether a killed process served another appearance of the disk than this one.
    #[must_use]
    pub fn served_another(&self, disk: DiskNumber, appearance: u64) -> bool {
        Named::in_memory(&self.memory).served_another(disk, appearance)
    }

    /// A state of this epoch is about to be sent to disks.
    pub fn try_epoch(&self, epoch: u64) {
        States::in_memory(&self.memory).try_epoch(epoch);
    }

    /// The state of this epoch is relied on: to be called before anybody does.
    pub fn rely_on_epoch(&self, epoch: u64) {
        States::in_memory(&self.memory).rely_on_epoch(epoch);
    }

    /// Whether no disk that serves lacks anything that another one has: to be called before one does.
    pub fn note_all_is_equal(&self, is_equal: bool) {
        States::in_memory(&self.memory).set_all_is_equal(is_equal);
    }

    /// What was noted of states is of the process of this claim, which has begun.
    pub fn begin_states(&self, claim: Claim) {
        States::in_memory(&self.memory).begin(claim);
    }

    /// The group's states, as the process knew them whose journal this is, or one that followed it with
    /// nobody between; `None` where that one did not say.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        let standing = States::in_memory(&self.memory).standing()?;
        let has_failed = Named::in_memory(&self.memory).have_any_failed();
        Some(Standing {
            all_is_equal: standing.all_is_equal && !has_failed,
            ..standing
        })
    }

    /// Every file concerned owes the error, or the disk is offline. A process that does not serve
    /// yet does not know the files of the one before: there it stays noted. Where the log is full the
    /// rows of what is owed fell out of it: it stays noted until a commit has them.
    pub fn forget_failed_flush(&self, disk: DiskNumber) {
        let mut words = self.disk_words.lock(&self.memory);
        if !self.has_begun.load(Ordering::SeqCst) {
            return;
        }
        if self.has_ended() {
            words.remove_failed_later(disk);
        } else {
            words.remove_failed(disk);
        }
    }

    /// Begins an operation. The caller sees to it that only one is open at a time.
    #[must_use]
    pub fn bracket(&self) -> Bracket {
        // Zero is for records that belong to no operation. No number comes again before all others
        // have: what is left of an earlier operation in the log must not count as one that has ended.
        let next = |last| last % log::BRACKET_MASK + 1;
        let (order, last) = (Ordering::Relaxed, &self.last_bracket);
        let last = last.fetch_update(order, order, |last| Some(next(last)));
        Bracket(next(last.expect("there is always a next number")))
    }

    /// Ends an operation that fulfils no request: all of it counts now.
    pub fn end(&self, bracket: Bracket) {
        self.append(Kind::End, Some(bracket), &[0]);
    }

    /// The request `unique` of that connection, served by worker `slot`.
    #[must_use]
    pub fn request(&self, connection: Connection, slot: usize, unique: u64) -> RequestUnderWay<'_> {
        let slot = slot % REQUESTS_COUNT;
        if connection == self.connection() {
            let noted = layout::request(self.memory.words(), slot);
            noted.clear();
            if is_put_back(Fault::RequestDoneEarly) {
                noted.set_done(unique, 0);
            }
        }
        RequestUnderWay {
            journal: self,
            connection,
            slot,
            unique,
        }
    }

    /// Notes an edit; the caller holds the lock that orders edits.
    pub(crate) fn edit(&self, bracket: Option<Bracket>, edit: &Edit) {
        self.append(Kind::Edit, bracket, &log::encode_edit(edit));
    }

    /// Notes an extent as it is now; no copies where it is a hole.
    ///
    /// # Panics
    /// Where it has more than [`COPIES_MAX`] copies.
    pub fn extent(&self, file: FileId, index: u32, mark_blocks: u32, copies: &[u64]) {
        let mut words = [0_u64; 2 + COPIES_MAX];
        words[0] = file.0;
        words[1] = u64::from(index) | u64::from(mark_blocks) << 32;
        words[2..2 + copies.len()].copy_from_slice(copies);
        self.append(Kind::Extent, None, &words[..2 + copies.len()]);
    }

    /// Appends a record. From the place that is returned on it counts: the log has it, or a commit has
    /// what it says, where the log reaches so far.
    fn append(&self, kind: Kind, bracket: Option<Bracket>, payload: &[u64]) -> Place {
        let number = bracket.map_or(0, |bracket| bracket.0);
        let mut log = self.log.lock();
        // What comes after a gap must not count: it may follow from what fell into it.
        if self.has_ended() || !log.append(&self.memory, kind, number, payload) {
            log.note_fallen_out();
            self.header().end_log(LogEnd::Overflowed);
        }
        Place(log.place())
    }

    /// Where the last record ends that is in the log.
    pub(crate) fn end_position(&self) -> u64 {
        self.log.lock().end()
    }

    /// Every record is committed.
    fn cut_all(&self) {
        self.cut(self.place());
    }

    /// Behind all that was noted until now.
    pub(crate) fn place(&self) -> Place {
        Place(self.log.lock().place())
    }

    /// Everything that was noted before `place` is committed, what found no room included.
    pub(crate) fn cut(&self, place: Place) {
        let mut log = self.log.lock();
        if !self.has_ended() || place.0 < log.place() || self.is_at_half() {
            let position = place.0.min(log.end());
            return log.cut(&self.memory, position);
        }
        log.cut(&self.memory, place.0);
        self.header().open_log();
        for slot in self.settled_touches.lock().drain(..) {
            self.give_back(slot);
        }
        // Behind the word that says that nothing is missing: whoever forgets one now does it at once.
        self.disk_words.lock(&self.memory).remove_told();
    }

    /// Notes what an inode's row lacks. `slot` is the inode's place, taken where it has none.
    /// False where there is no place left: the row itself must be written then. The caller holds
    /// the inode's lock.
    #[must_use]
    pub fn touch(&self, slot: &mut Option<TouchSlot>, touch: &Touch) -> bool {
        if slot.is_none() {
            *slot = self.free_touches.lock().pop().map(TouchSlot);
        }
        let Some(TouchSlot(number)) = slot else {
            return false;
        };
        layout::touch(self.memory.words(), *number).put(self.place().0, touch);
        true
    }

    /// Gives a touch up, after the end of the operation that wrote the row.
    pub fn free_touch(&self, slot: TouchSlot) {
        let log = self.log.lock();
        if self.has_ended() {
            // The row may have fallen out: until a commit has it, the touch is all there is.
            let touch = layout::touch(self.memory.words(), slot.0);
            touch.count_until(log.place());
            self.settled_touches.lock().push(slot.0);
        } else {
            drop(log);
            self.give_back(slot.0);
        }
    }

    fn give_back(&self, slot: u32) {
        layout::touch(self.memory.words(), slot).clear();
        self.free_touches.lock().push(slot);
    }

    /// Blocks `[first, end)` of a mirrored file are about to be written; until the answer is
    /// dropped their copies may differ.
    #[must_use]
    pub fn write(&self, file: FileId, first: u64, end: u64) -> WriteUnderWay<'_> {
        let start = self.next_write.fetch_add(1, Ordering::Relaxed);
        let words = self.memory.words();
        let slots = (0..WRITES_COUNT as u64).map(|step| (start + step) % WRITES_COUNT as u64);
        let slot = slots
            .filter_map(|slot| usize::try_from(slot).ok())
            .find(|slot| layout::write(words, *slot).begin(file.0, first, end));
        if slot.is_none() {
            self.compare_everything();
        }
        WriteUnderWay {
            journal: self,
            slot,
        }
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            layout::write(self.journal.memory.words(), slot).clear();
        }
    }
}

#[cfg(test)]
mod tests;
