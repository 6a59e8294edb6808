//! What a program reads and writes, by number: how one tells whether it can follow another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spindle_group::{KeptJournal, UnwrittenBlocks};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};

/// The structures of a program, each with the newest version that it knows. A later version of
/// one reads every earlier one of the same structure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formats {
    /// The program's version.
    pub version: String,
    /// What must be the same in both: the talk with the keeper, and the journal.
    pub exact: BTreeMap<String, u64>,
    /// What lies on disks: a program that follows must know at least these versions.
    pub on_disk: BTreeMap<String, u64>,
}

impl Formats {
    /// Those of this program.
    #[must_use]
    pub fn own() -> Self {
        let map = |list: &[(&str, u64)]| {
            let owned = list
                .iter()
                .map(|(name, number)| ((*name).to_owned(), *number));
            owned.collect()
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            exact: map(&[
                ("journal", KeptJournal::VERSION),
                ("unwritten blocks", UnwrittenBlocks::VERSION),
                (
                    "keeper",
                    u64::from(crate::serving::keeper::PROTOCOL_VERSION),
                ),
            ]),
            on_disk: map(spindle_format::FORMATS),
        }
    }

    /// Refuses a program that cannot serve what this one serves.
    ///
    /// # Errors
    /// What it does not know.
    pub fn check_successor(&self, next: &Self) -> ControlResult<()> {
        let refuse = |what: String| {
            let message = format!(
                "version {} cannot take over from version {}: {what}; the running one goes on",
                next.version, self.version
            );
            Err(ControlError::new(ControlErrorKind::Invalid, message))
        };
        for (name, number) in &self.exact {
            if next.exact.get(name) != Some(number) {
                return refuse(format!(
                    "their {name} differs, so that the group must be unmounted and mounted again"
                ));
            }
        }
        for (name, number) in &self.on_disk {
            if next.on_disk.get(name).is_none_or(|known| known < number) {
                return refuse(format!("it does not read version {number} of the {name}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Formats;

    #[test]
    fn a_program_follows_one_that_writes_nothing_it_cannot_read() {
        let own = Formats::own();
        own.check_successor(&own).unwrap();
        for (structure, _) in spindle_format::FORMATS {
            let mut newer = own.clone();
            newer.on_disk.insert((*structure).to_owned(), 99);
            own.check_successor(&newer).unwrap();
            let refused = newer.check_successor(&own).unwrap_err();
            let wanted = format!("version 99 of the {structure}");
            assert!(refused.message().contains(&wanted), "{refused}");
        }
        let mut newer = own.clone();
        newer.exact.insert("journal".to_owned(), 99);
        assert!(own.check_successor(&newer).is_err());
    }
}
