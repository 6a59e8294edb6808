//! What the owner of a group does with the map: it says where extents lie, and forgets.
//!
//! Nothing is remembered beside the memory: where a row is, the hash says. So a kill leaves nothing that
//! the memory does not say, and a new owner begins by forgetting all of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spindle_device::words::{SharedMemory, Word, check_head, fence};

use super::entry::{Entry, EntryState};
use super::layout::{
    ENTRIES_START, FileKey, MAGIC, Place, ROW_EXTENTS, RowState, STANDING, VERSION, WORDS_COUNT,
    names_of, row_of,
};

/// The map as its owner has it. One thread at a time changes it.
#[derive(Debug)]
pub struct SharedMap {
    memory: Arc<SharedMemory>,
}

/// The number of the disks' standing, which any thread raises at any moment.
#[derive(Debug, Clone)]
pub struct StandingWord {
    memory: Arc<SharedMemory>,
}

impl StandingWord {
    /// The number now.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.memory.words()[STANDING].load(Ordering::Acquire)
    }

    /// The disks are not as clients were told: no read that is under way counts, and no operation that is
    /// announced from now on goes to any disk by itself, until its client was told of this standing.
    /// Writes that were announced before are overtaken behind it ([`crate::Leases::overtake_writes`]),
    /// those that wait for their locks too: they have not looked at the standing yet.
    pub fn raise(&self) {
        self.memory.words()[STANDING].fetch_add(1, Ordering::AcqRel);
        // One of two sees the other: who announces a write stores that and then looks here.
        fence(Ordering::SeqCst);
    }
}

/// A row found no place, or the machine has no memory for it: the extent is not in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl SharedMap {
    /// How much memory it needs at most: what no row is in costs nothing.
    pub const LENGTH_BYTES: u64 = WORDS_COUNT as u64 * 8;

    /// The map in this memory, which is new or a former owner's: then [`Self::reset`] comes first.
    ///
    /// # Errors
    /// What it is instead, for a message.
    pub fn new(memory: SharedMemory) -> Result<Self, String> {
        let words_count = memory.words().len();
        if words_count < WORDS_COUNT {
            return Err(format!(
                "the memory of the map has {words_count} words, and {WORDS_COUNT} are needed"
            ));
        }
        check_head(memory.words(), MAGIC, VERSION, "the map")?;
        Ok(Self {
            memory: Arc::new(memory),
        })
    }

    /// A new one, empty.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn create() -> std::io::Result<Self> {
        let memory = SharedMemory::create("spindle-map", Self::LENGTH_BYTES)?;
        // The heads of the rows are looked at at random: a page that is not there kills nobody.
        memory.reserve(0, ENTRIES_START)?;
        Self::new(memory).map_err(std::io::Error::other)
    }

    /// To be given to other processes: to clients for reading alone.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn word(&self, word: usize) -> &Word {
        &self.memory.words()[word]
    }

    fn row_state(&self, place: Place) -> RowState {
        RowState(self.word(place.head()[0]).load(Ordering::Relaxed))
    }

    fn names(&self, place: Place) -> [u64; 3] {
        let [_, file, incarnation, row] = place.head();
        [file, incarnation, row].map(|word| self.word(word).load(Ordering::Relaxed))
    }

    fn place_of(&self, file: FileKey, row: u32) -> Option<Place> {
        let mut places = Place::all_of(file, row);
        places.find(|place| {
            self.row_state(*place).is_there() && self.names(*place) == names_of(file, row)
        })
    }

    /// Says this of extent `index` of the file from now on.
    ///
    /// Where it says less than before, or other copies, no read that is under way counts. Where the extent
    /// may be written, its blocks are revoked then, and no write is under way there (for one more copy, too,
    /// which a write would miss); or their lock is held, and a write of the mount waits in the memory.
    ///
    /// Nothing that makes the places another one's, or their bytes other ones, is done before the return.
    ///
    /// # Errors
    /// There is no room: then nothing was said of the extent before either, and it goes through the
    /// mount.
    pub fn set(&mut self, file: FileKey, index: u32, entry: &Entry) -> Result<(), NoRoom> {
        let (row, at) = row_of(index);
        let place = match self.place_of(file, row) {
            Some(place) => place,
            None if *entry == Entry::NOTHING => return Ok(()),
            None => self.begin_row(file, row)?,
        };
        let (state, copies) = place.entry(at);
        let (state, copies) = (self.word(state), copies.map(|word| self.word(word)));
        let before = EntryState(state.load(Ordering::Relaxed));
        let words = copies.map(|word| word.load(Ordering::Relaxed));
        let version = before.version();
        if words == entry.words()
            && before
                .with_copies(words)
                .is_some_and(|it| entry.adds_to(&it))
        {
            state.store(entry.state(version).0, Ordering::Release);
            return Ok(());
        }
        let version = version.wrapping_add(1);
        state.store(Entry::NOTHING.state(version).0, Ordering::Relaxed);
        // Who sees one of the other copies sees the state change.
        fence(Ordering::Release);
        for (word, value) in copies.iter().zip(entry.words()) {
            word.store(value, Ordering::Relaxed);
        }
        state.store(entry.state(version).0, Ordering::Release);
        // What the caller does to the places comes behind it.
        fence(Ordering::Release);
        Ok(())
    }

    /// Nothing may be done with the extent from now on, until the next [`Self::set`]: no read that is under
    /// way counts, not even where the same is said again then.
    pub fn close(&mut self, file: FileKey, index: u32) {
        let (row, at) = row_of(index);
        if let Some(place) = self.place_of(file, row) {
            let state = self.word(place.entry(at).0);
            let version = EntryState(state.load(Ordering::Relaxed)).version();
            let closed = Entry::NOTHING.state(version.wrapping_add(1));
            state.store(closed.0, Ordering::Relaxed);
            // What the caller does to the places comes behind it.
            fence(Ordering::Release);
        }
    }

    /// Gives the row a place, with nothing in it.
    fn begin_row(&self, file: FileKey, row: u32) -> Result<Place, NoRoom> {
        let is_free = |place: &Place| !self.row_state(*place).is_there();
        let place = Place::all_of(file, row).find(is_free).ok_or(NoRoom)?;
        let (first, end) = place.entries();
        self.memory.reserve(first, end).map_err(|_| NoRoom)?;
        // Who sees something of this row sees that the one before is gone.
        fence(Ordering::Release);
        for at in 0..ROW_EXTENTS {
            let (state, _) = place.entry(at);
            self.word(state).store(0, Ordering::Relaxed);
        }
        let [state, names @ ..] = place.head();
        for (word, value) in names.into_iter().zip(names_of(file, row)) {
            self.word(word).store(value, Ordering::Relaxed);
        }
        let next = self.row_state(place).next();
        self.word(state).store(next.0, Ordering::Release);
        Ok(place)
    }

    /// Forgets the file, in each of its incarnations. All its blocks are revoked, and nothing is under
    /// way there. The room is another file's at once: who still looks at it finds that out.
    pub fn withdraw(&mut self, file: spindle_base::FileId) {
        for place in Place::all() {
            if self.row_state(place).is_there() && self.names(place)[0] == file.0 {
                self.end_row(place);
                let (first, end) = place.entries();
                self.memory.release(first, end);
            }
        }
        // What the caller does to the places comes behind it.
        fence(Ordering::Release);
    }

    fn end_row(&self, place: Place) {
        let gone = self.row_state(place).gone();
        self.word(place.head()[0]).store(gone.0, Ordering::Relaxed);
    }

    /// Forgets everything: this process is a new owner, which says anew what is so, and lets clients ask
    /// which disks there are, as it may know better. Everything is revoked ([`crate::Leases::take_over`]),
    /// and no write is under way.
    pub fn reset(&mut self) {
        self.forget_all();
        self.standing().raise();
    }

    /// Forgets all rows. Everything is revoked, and no write is under way.
    pub fn forget_all(&mut self) {
        for place in Place::all() {
            self.end_row(place);
        }
        self.memory.release(ENTRIES_START, WORDS_COUNT);
        // What the caller does to the places comes behind it.
        fence(Ordering::Release);
    }

    /// The number of the disks' standing: told to a client together with the disks' descriptors. When it
    /// is raised, the entries are changed before clients are told.
    #[must_use]
    pub fn standing(&self) -> StandingWord {
        StandingWord {
            memory: Arc::clone(&self.memory),
        }
    }
}
