//! RESYNC as a pass of the background: the copying itself is in `resync.rs`.

use spindle_base::BLOCK_SIZE_BYTES;
use spindle_sync::level::LeafMutex;

use crate::background::Group;
use crate::background::operations::{Meter, OperationState, OperationView, Pass};
use crate::background::power::Power;
use crate::background::{BackgroundPass, PassStep};
use crate::error::GroupError;

/// The pass; it remembers only how fast it is.
#[derive(Debug, Default)]
pub struct ResyncPass {
    meter: LeafMutex<Meter>,
}

impl BackgroundPass for ResyncPass {
    fn work(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        group.retry_resync(now_ms);
        let piece_bytes = group.power().piece_blocks() * BLOCK_SIZE_BYTES;
        let copied = group.resync_unit(piece_bytes)?;
        let mut meter = self.meter.lock();
        if let Some(bytes) = copied {
            meter.add(bytes, now_ms);
            return Ok(PassStep::Did(bytes));
        }
        *meter = Meter::default();
        Ok(PassStep::Nothing)
    }

    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView> {
        let (left_bytes, done_bytes) = group.resync_progress();
        if left_bytes == 0 {
            return None;
        }
        let stuck = group.resync_stuck();
        let power = group.power();
        let rate_bytes_per_s = self.meter.lock().rate_bytes_per_s();
        Some(OperationView {
            pass: Pass::Resync,
            state: match power {
                Power::PAUSED => OperationState::Paused,
                // Nothing else is left, and what comes after it goes on.
                _ if stuck.is_some_and(|stuck| stuck.bytes >= left_bytes) => OperationState::Errors,
                _ if is_first => OperationState::Run,
                _ => OperationState::Wait,
            },
            power,
            done_bytes,
            left_bytes,
            rate_bytes_per_s,
            left_s: (rate_bytes_per_s > 0).then(|| left_bytes.div_ceil(rate_bytes_per_s)),
            error: stuck.map(|stuck| {
                format!(
                    "{} bytes in {} regions cannot be copied now: no copy of them can be read, or \
                     their disk does not take them; they are tried again from time to time",
                    stuck.bytes, stuck.regions_count
                )
            }),
        })
    }
}
