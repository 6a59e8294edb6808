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
//! The row goes with the sync after the one that told, because a daemon that is killed between the
//! two may not have answered: the kernel asks the next one again, which tells once more.

pub(in crate::core) mod together;

use spindle_base::FileId;
use spindle_catalog::{Edit, Table};
use spindle_sync::atomic::Ordering;

use crate::core::Core;
use crate::core::file::File;
use crate::error::GroupError;

const KEY_START: &str = "owed.";
/// Behind every key of an owed error.
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

impl Core {
    /// The next sync of the file answers with this error.
    pub fn owe(&self, file: &File, message: &str) {
        self.owe_for(file, message, false);
    }

    /// As [`Self::owe`]; where it `hides` a loss, reads beyond the marks are refused until then.
    pub(super) fn owe_for(&self, file: &File, message: &str, hides: bool) {
        // Told and shown together: whoever tells it lets zeros be read.
        let mut error = file.error.lock();
        if hides {
            file.hides_a_loss.store(true, Ordering::Release);
        }
        *error = Some(message.to_owned());
        if self.kept.is_none() || file.is_removed() {
            return;
        }
        let mut edit = Edit::default();
        let hides = file.hides_a_loss.load(Ordering::Acquire);
        edit.put(Table::Attribute, key(file.id), encode(hides, message));
        file.has_owed_row.store(true, Ordering::Release);
        // Under the lock, so that nobody takes it away for an error that was told before.
        self.catalog.apply(edit);
    }

    /// The error that the file owes its next sync, which the caller tells.
    pub(super) fn take_owed(&self, file: &File) -> Option<String> {
        let mut error = file.error.lock();
        let owed = error.take();
        if owed.is_some() {
            file.hides_a_loss.store(false, Ordering::Release);
            return owed;
        }
        let mut edit = Edit::default();
        self.forget_owed(file, &mut edit);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        drop(error);
        let mut edit = Edit::default();
        let _rows = self.leave_owed_together(file, &mut edit);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        None
    }

    /// Takes the file's own row away.
    pub(crate) fn forget_owed(&self, file: &File, edit: &mut Edit) {
        if self.kept.is_some() && file.has_owed_row.swap(false, Ordering::AcqRel) {
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
                self.take_up_row(&file, message, hides);
                file.has_owed_row.store(true, Ordering::Release);
            }
            if !edit.is_empty() {
                self.catalog.apply(edit);
            }
        }
    }

    /// The next sync of the file, and of everything, answers with this error of a killed process.
    fn take_up_row(&self, file: &File, message: String, hides: bool) {
        if hides {
            file.hides_a_loss.store(true, Ordering::Release);
        }
        *file.error.lock() = Some(message);
        self.looked_for_lost_at
            .store(NEVER_LOOKED, Ordering::Release);
    }
}
