//! Errors that a file owes its next sync.
//!
//! They are in memory, as what they speak of was: after a power cut nobody waits for a sync any
//! more. But programs on a mount that a keeper holds outlive a daemon that is killed, and their next
//! sync must not pass for good. So the error is a row of the catalog too, `owed.FILE`, which the
//! kept journal has from the moment on at which it is owed. Only who takes over reads it,
//! from one that was killed or that handed over; any other opening takes it away.
//!
//! What a killed process had written and no flush covered, and its disk is gone or fails the flush
//! of whoever takes over, is owed by many files at once, see `core/takeover/unflushed.rs`: of them a
//! row tells more than one, see `owed/together.rs`.
//!
//! A daemon that is killed after a sync told the error may not have answered it: the kernel asks the
//! next one again, which has to tell it once more. So the row goes with a later sync, and not before
//! the errors of those that told it are gone, which whoever answers keeps until then.
//!
//! Syncs of one file may run at once, and each was asked for what is lost. So whichever of them takes
//! the error, all that had begun by then tell it.

pub(in crate::core) mod together;

use std::sync::{Arc, Weak};

use spindle_base::FileId;
use spindle_catalog::{Edit, Table};
use spindle_sync::atomic::Ordering;
use spindle_sync::level::LeafGuard;

use crate::core::Core;
use crate::core::file::File;
use crate::error::{GroupError, GroupErrorKind, Subject, Telling};

const KEY_START: &str = "owed.";
/// The exclusive end of the range of keys.
const KEYS_END: &[u8] = b"owed/";
/// No turn of the membership: a sync of everything looks at what is owed.
const NEVER_LOOKED: u64 = u64::MAX;
/// Rows that are read at once.
const ROWS_MOST: usize = 256;

fn key(file: FileId) -> Vec<u8> {
    format!("{KEY_START}{}", file.0).into_bytes()
}

/// As a line of text, which a dump of the catalog shows as it is.
fn encode(hides_a_loss: bool, message: &str) -> Vec<u8> {
    format!("{} {message}", u8::from(hides_a_loss)).into_bytes()
}

/// The file that a row speaks of, whether reads beyond its marks are refused, and the error.
fn parse(key: &[u8], value: &[u8]) -> Option<(FileId, bool, String)> {
    let id = std::str::from_utf8(key).ok()?.strip_prefix(KEY_START)?;
    let (hides, message) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((FileId(id.parse().ok()?), hides == "1", message.to_owned()))
}

fn owed_error(message: &str, subject: Subject) -> GroupError {
    GroupError::new(GroupErrorKind::Io, message).about(subject)
}

/// What a file owes its next sync.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// The newest error.
    message: String,
    /// What it speaks of; after a takeover the file alone.
    subject: Subject,
    /// No sync has told it.
    is_untold: bool,
    /// How often a sync told one.
    told_count: u64,
    /// The syncs that tell it and are not answered yet have it.
    telling: Weak<Telling>,
    /// The catalog has a row of it.
    has_row: bool,
    /// The same of a row that tells of other files too.
    has_row_together: bool,
}

impl Owed {
    /// The error that no sync has told.
    pub(crate) fn untold(&self) -> Option<GroupError> {
        self.is_untold.then(|| self.error())
    }

    fn error(&self) -> GroupError {
        owed_error(&self.message, self.subject)
    }

    fn owe(&mut self, message: String, subject: Subject) {
        self.message = message;
        self.subject = subject;
        self.is_untold = true;
    }
}

/// What syncs of a file, or of the group, had told when one began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldBefore(u64);

impl Core {
    /// For a sync of the file that begins: before whoever asked for it, or it itself, looks at what is
    /// to be made durable.
    pub fn told_of(&self, file: &File) -> ToldBefore {
        ToldBefore(file.owed.lock().told_count)
    }

    /// As [`Self::told_of`], for a sync of everything.
    pub fn told(&self) -> ToldBefore {
        ToldBefore(self.told_count.load(Ordering::Acquire))
    }

    /// Tells what the file owes, as a sync of it does that finds nothing to be written: after a sync of
    /// everything, whose error perhaps somebody else was told.
    ///
    /// # Errors
    /// What the file owes.
    pub fn tell_owed_of(&self, file: &File) -> Result<(), GroupError> {
        self.take_owed(file, self.told_of(file)).map_or(Ok(()), Err)
    }

    /// A sync tells something.
    pub(super) fn note_told(&self) {
        self.told_count.fetch_add(1, Ordering::AcqRel);
    }

    /// The next sync of the file answers with this error.
    pub fn owe(&self, file: &File, message: &str) {
        self.owe_error(file, &owed_error(message, Subject::of_file(file.id)));
    }

    /// As [`Self::owe`], with more than the file that it speaks of.
    pub(crate) fn owe_error(&self, file: &File, error: &GroupError) {
        self.owe_for(file, error, false);
    }

    /// As [`Self::owe_error`]; where it `hides` a loss, reads beyond the marks are refused until then.
    pub(super) fn owe_for(&self, file: &File, error: &GroupError, hides: bool) {
        self.owe_within(file, &mut file.owed.lock(), error, hides);
    }

    fn owe_within(&self, file: &File, owed: &mut Owed, error: &GroupError, hides: bool) {
        // Told and shown together: whoever tells it lets zeros be read.
        if hides {
            file.hides_a_loss.store(true, Ordering::Release);
        }
        owed.owe(error.report(), error.subject.in_file(file.id));
        if self.kept.is_none() || file.is_removed() {
            return;
        }
        let mut edit = Edit::default();
        let hides = file.hides_a_loss.load(Ordering::Acquire);
        edit.put(Table::Attribute, key(file.id), encode(hides, &owed.message));
        owed.has_row = true;
        // Under the lock, so that nobody takes it away for an error that was told before.
        self.catalog.apply(edit);
    }

    /// The error that a sync of the file answers, where it has no other: one that the file owes, or
    /// that another sync has told since it began.
    pub(super) fn take_owed(&self, file: &File, before: ToldBefore) -> Option<GroupError> {
        let mut owed = file.owed.lock();
        if owed.is_untold || owed.told_count != before.0 {
            return Some(self.tell_owed(file, &mut owed));
        }
        if owed.telling.strong_count() > 0 {
            return None;
        }
        let mut edit = Edit::default();
        self.forget_owed(file, &mut owed, &mut edit);
        let leaves_together = std::mem::take(&mut owed.has_row_together);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        drop(owed);
        if leaves_together {
            let mut edit = Edit::default();
            let _rows = self.leave_owed_together(file.id, &mut edit);
            if !edit.is_empty() {
                self.catalog.apply(edit);
            }
        }
        None
    }

    /// The error that a sync of the file answers which found one itself; what is owed says more. It is
    /// owed as any other until it is answered.
    pub(super) fn tell_found(&self, file: &File, found: GroupError) -> GroupError {
        let mut owed = file.owed.lock();
        if !owed.is_untold {
            self.owe_within(file, &mut owed, &found, false);
        }
        let telling = self.begin_telling(file, &mut owed);
        (found.saying(owed.message.clone()).about(owed.subject)).telling(telling)
    }

    fn tell_owed(&self, file: &File, owed: &mut Owed) -> GroupError {
        let telling = self.begin_telling(file, owed);
        owed.error().telling(telling)
    }

    /// What the error of a sync that tells what is owed has with it.
    fn begin_telling(&self, file: &File, owed: &mut Owed) -> Arc<Telling> {
        if std::mem::take(&mut owed.is_untold) {
            owed.told_count += 1;
            self.note_told();
            file.hides_a_loss.store(false, Ordering::Release);
        }
        let telling = owed.telling.upgrade().unwrap_or_default();
        owed.telling = Arc::downgrade(&telling);
        telling
    }

    /// Takes the file's own row away.
    pub(in crate::core) fn forget_owed(&self, file: &File, owed: &mut Owed, edit: &mut Edit) {
        if self.kept.is_some() && std::mem::take(&mut owed.has_row) {
            edit.delete(Table::Attribute, key(file.id));
        }
    }

    /// At an opening: takes up what a killed process owed, where this one takes over from it.
    pub(crate) fn take_up_owed(&self) -> Result<(), GroupError> {
        let takes_over = self.takes_over();
        self.take_up_owed_together(takes_over)?;
        let mut from = KEY_START.as_bytes().to_vec();
        loop {
            let rows = (self.catalog).range(Table::Attribute, &from, KEYS_END, ROWS_MOST)?;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            from.clone_from(last);
            from.push(0);
            let mut edit = Edit::default();
            for (key, value) in rows {
                let owed = parse(&key, &value).filter(|_| takes_over);
                let file = owed.as_ref().and_then(|(id, ..)| self.file(*id));
                let (Some((_, hides, message)), Some(file)) = (owed, file) else {
                    edit.delete(Table::Attribute, key);
                    continue;
                };
                self.take_up_row(&file, message, hides).has_row = true;
            }
            if !edit.is_empty() {
                self.catalog.apply(edit);
            }
        }
    }

    /// The next sync of the file, and of everything, answers with this error of a killed process.
    fn take_up_row<'a>(&self, file: &'a File, message: String, hides: bool) -> LeafGuard<'a, Owed> {
        if hides {
            file.hides_a_loss.store(true, Ordering::Release);
        }
        self.looked_for_lost_at
            .store(NEVER_LOOKED, Ordering::Release);
        let mut owed = file.owed.lock();
        owed.owe(message, Subject::of_file(file.id));
        owed
    }
}
