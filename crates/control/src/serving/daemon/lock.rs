//! One process at a time opens, serves or closes a group.

use std::fs::TryLockError;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use spindle_base::GroupName;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::process::CLOSING_MOST;
use crate::machine::runtime_directory::file_of;
use crate::machine::settings::Settings;
use crate::machine::sockets;
use crate::serving::served::is_served;

/// How often it is looked whether the process before has closed the group.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// Held by the process that serves a group, from before it opens the group until its end. So a
/// process that is still closing the group, and whom nobody can ask any more, can be waited for.
#[derive(Debug)]
pub(super) struct ServingLock(
    #[expect(dead_code, reason = "it locks for as long as it is open")] std::fs::File,
);

impl ServingLock {
    /// Waits while a process closes the group.
    ///
    /// # Errors
    /// Where one serves it, or closes it for too long.
    pub(super) fn take(settings: &Settings, group: &GroupName) -> ControlResult<Self> {
        let path = file_of(&settings.runtime_directory, group.as_str(), "lock");
        let fail = |error| ControlError::io("lock", path.display(), &error);
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::Error(error)) => return Err(fail(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            // Without waiting for a keeper: this process's own waits for this process.
            if let Some(client) = sockets::find_daemon(settings, group.as_str())? {
                return Err(is_served(&client));
            }
            if begun.elapsed() > CLOSING_MOST {
                return Err(ControlError::new(
                    ControlErrorKind::Busy,
                    format!(
                        "another process has been opening or closing the group {group} for {} s; see its log",
                        CLOSING_MOST.as_secs()
                    ),
                ));
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
    }
}
