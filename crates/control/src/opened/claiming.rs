//! Opening a group that another host may be opening in the same moment.

use std::time::Duration;

use spindle_group::{CLAIM_PAUSE_MS, Group, GroupError, GroupErrorKind};

use crate::machine::identity::new_uuid;

/// How often a group is tried that was let go of because another host was opening it.
const TRIES_MOST: u32 = 3;

/// Opens the group, and again after a while where it was let go of: by then another host has it, or
/// nobody, and then the one whose record stands on the disks gets it.
pub(super) fn until_settled(
    mut open: impl FnMut() -> Result<Group, GroupError>,
) -> Result<Group, GroupError> {
    for _ in 1..TRIES_MOST {
        match open() {
            Err(error) if error.kind == GroupErrorKind::Contended => {
                tracing::warn!(%error, "the group is tried again");
                std::thread::sleep(pause());
            }
            answer => return answer,
        }
    }
    open()
}

/// Of a length of its own, so that two hosts do not meet again and again.
fn pause() -> Duration {
    let more_ms = new_uuid().map_or(0, |random| u64::from(random.0[0]) * 4);
    Duration::from_millis(CLAIM_PAUSE_MS + more_ms)
}
