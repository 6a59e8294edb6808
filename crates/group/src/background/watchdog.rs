//! How long the process that serves the group may show no sign of life before it is killed: a setting
//! that the group keeps, so that it goes where the disks go. Who watches is above.
//!
//! An earlier program passes the row over and watches as it always did.

use std::ops::RangeInclusive;

use spindle_catalog::{Edit, Table};

use crate::background::Group;
use crate::error::{GroupError, GroupErrorKind};

/// The attribute, a decimal number of seconds.
const KEY: &[u8] = b"watchdog";
/// Seconds where nothing else was set.
const DEFAULT_S: u64 = 60;
/// What can be set, in seconds. It takes ten seconds until a background that waits for a disk which
/// hangs is known for one: before that nobody may be killed for it.
const POSSIBLE_S: RangeInclusive<u64> = 15..=86_400;

impl Group {
    /// How long the process that serves the group may show no sign of life, in seconds.
    pub fn watchdog_s(&self) -> u64 {
        let row = self.catalog.get(Table::Attribute, KEY).ok().flatten();
        let text = row.and_then(|bytes| String::from_utf8(bytes).ok());
        let set = text.and_then(|text| text.parse().ok());
        set.filter(|seconds| POSSIBLE_S.contains(seconds))
            .unwrap_or(DEFAULT_S)
    }

    /// Sets it, durably.
    ///
    /// # Errors
    /// [`GroupErrorKind::Invalid`] below 15 s and beyond a day; as
    /// [`Core::sync`](crate::core::Core::sync).
    pub fn set_watchdog_s(&self, seconds: u64) -> Result<(), GroupError> {
        if !POSSIBLE_S.contains(&seconds) {
            return Err(GroupError::new(
                GroupErrorKind::Invalid,
                "watchdog is between 15s and 1d: a disk that hangs is known for one after ten \
                 seconds, and no process may be killed for it before",
            ));
        }
        self.check_fence()?;
        let mut edit = Edit::default();
        let value = seconds.to_string().into_bytes();
        edit.put(Table::Attribute, KEY.to_vec(), value);
        let sequence = {
            let _change = self.change_inside();
            self.catalog.apply(edit)
        };
        self.commit_through(sequence)
    }
}
