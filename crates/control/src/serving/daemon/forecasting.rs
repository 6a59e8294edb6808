//! How fast the group fills, kept in the runtime directory beside the socket: the next process of the
//! group goes on with it. It is lost where that directory is, which on most machines is with their
//! restart, and then begins anew: a forecast is not worth a place in the group.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Daemon;
use crate::api::forecast::ForecastReport;
use crate::api::view::GroupReport;
use crate::machine::clock::now;
use crate::machine::identity::{moment, opener_identity};
use crate::machine::runtime_directory::file_of;
use crate::serving::space_history::{SpaceHistory, Stamp};

/// More than a week of sizes takes.
const FILE_BYTES_MOST: u64 = 256 << 10;

/// What the file has.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Another group of the same name is another group.
    group_uuid: String,
    history: SpaceHistory,
}

impl Daemon {
    fn space_path(&self) -> PathBuf {
        let directory = &self.start_settings().runtime_directory;
        file_of(directory, self.group_name(), "space")
    }

    /// Goes on with what a former process saw.
    pub(super) fn take_space_history(&self) {
        let path = self.space_path();
        let is_small = |file: &std::fs::Metadata| file.len() <= FILE_BYTES_MOST;
        if !std::fs::metadata(&path).is_ok_and(|file| is_small(&file)) {
            return;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        let kept = serde_json::from_slice::<Kept>(&bytes).ok();
        let uuid = self.opened().group().view().uuid.to_string();
        if let Some(kept) = kept.filter(|kept| kept.group_uuid == uuid) {
            *self.space_history.lock() = kept.history.checked();
        }
    }

    /// Notes how much is used, where it is time for that.
    pub(super) fn note_space(&self, group: &GroupReport) {
        let (_, boot) = opener_identity();
        let stamp = Stamp {
            boot: boot.to_string(),
            booted_s: moment().booted_ms / 1000,
            time_s: u64::try_from(now().seconds).unwrap_or(0),
        };
        let used_bytes = group.total_bytes.saturating_sub(group.free_bytes);
        let kept = {
            let mut history = self.space_history.lock();
            if !history.note(stamp, used_bytes) {
                return;
            }
            Kept {
                group_uuid: group.uuid.clone(),
                history: history.clone(),
            }
        };
        let path = self.space_path();
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        // In whole or not at all: a kill may come in between.
        let new = path.with_extension("space.new");
        let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(%error, "the next process begins anew with the forecast of space");
        }
    }

    /// When the group will be full.
    pub(crate) fn forecast(&self) -> ForecastReport {
        self.forecast_of(&self.report())
    }

    pub(super) fn forecast_of(&self, group: &GroupReport) -> ForecastReport {
        let copies = group.redundancy.copies() as u64;
        let history = self.space_history.lock();
        history.forecast(&group.name, group.usable_bytes, copies)
    }
}
