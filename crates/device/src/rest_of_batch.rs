//! What of a batch somebody else serves, beside the engine that waits for its own part.
//!
//! Whoever waits looks at it now and then, and before the judge is asked: a disk that has failed there
//! is no copy for the batch either, and that must not be heard only when a disk that hangs here was
//! given up. The thread that waits looks itself, with none of the engine's locks held, and a look waits
//! for nothing.

use std::time::{Duration, Instant};

use crate::request::{DeviceErrorKind, DiskSlot};

/// How often it is looked at while the engine's own disks answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Takes the answers that have come, and gives what has failed until now.
type Look<'l> = dyn FnMut() -> Vec<(DiskSlot, DeviceErrorKind)> + 'l;

/// The requests of a batch that are not the engine's.
pub(crate) struct RestOfBatch<'l> {
    /// How one looks, and when somebody did; none where the batch is the engine's alone.
    look: Option<(&'l mut Look<'l>, Instant)>,
}

impl<'l> RestOfBatch<'l> {
    /// The batch is the engine's alone.
    pub(crate) const fn nothing() -> Self {
        Self { look: None }
    }

    /// Somebody else has begun the rest.
    pub(crate) fn seen_by(look: &'l mut Look<'l>) -> Self {
        Self {
            look: Some((look, Instant::now())),
        }
    }

    /// Whether whoever waits has nothing to look at.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.look.is_none()
    }

    /// What has failed there until now: what the judge is told before it decides.
    pub(crate) fn failures(&mut self) -> Vec<(DiskSlot, DeviceErrorKind)> {
        let Some((look, looked_at)) = &mut self.look else {
            return Vec::new();
        };
        *looked_at = Instant::now();
        look()
    }

    /// Looks where nobody has for a while.
    pub(crate) fn look_if_due(&mut self) {
        if let Some((_, looked_at)) = &self.look
            && looked_at.elapsed() >= LOOK_INTERVAL
        {
            self.failures();
        }
    }
}
