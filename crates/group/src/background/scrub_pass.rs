//! SCRUB as a pass of the background: the looking itself is in `scrub.rs`. It has a power of its
//! own, and waits while another pass copies: that the copies are there comes first.

use spindle_sync::level::LeafMutex;

use crate::background::Group;
use crate::background::operations::{Meter, OperationState, OperationView, Pass};
use crate::background::power::Power;
use crate::background::scrub::ScrubStep;
use crate::background::{BackgroundPass, PassStep};
use crate::error::GroupError;

/// The pass; it remembers only how fast it is.
#[derive(Debug, Default)]
pub struct ScrubPass {
    state: LeafMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    meter: Meter,
    /// The power that the meter measures.
    power: u16,
}

impl BackgroundPass for ScrubPass {
    fn work(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        let step = group.scrub_unit(now_ms)?;
        let progress = group.scrub_progress();
        let mut state = self.state.lock();
        match progress {
            None => *state = State::default(),
            // Before its files it looks at the group's own structures: the rate is of files.
            Some(progress) if progress.done_bytes == 0 => {
                *state = State {
                    power: progress.power,
                    ..State::default()
                };
            }
            Some(progress) => {
                let is_another = progress.done_bytes < state.meter.done_bytes;
                if is_another || state.power != progress.power {
                    *state = State {
                        power: progress.power,
                        ..State::default()
                    };
                }
                (state.meter).follow(progress.done_bytes, progress.total_bytes, now_ms);
            }
        }
        Ok(match step {
            ScrubStep::Did => PassStep::Did(0),
            ScrubStep::Waiting => PassStep::Wait,
            ScrubStep::Idle => PassStep::Nothing,
        })
    }

    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView> {
        let progress = group.scrub_progress()?;
        let meter = self.state.lock().meter;
        let left_bytes = progress.total_bytes.saturating_sub(progress.done_bytes);
        let rate_bytes_per_s = meter.rate_bytes_per_s();
        Some(OperationView {
            pass: Pass::Scrub,
            state: match progress.power {
                0 => OperationState::Paused,
                _ if is_first => OperationState::Run,
                _ => OperationState::Wait,
            },
            power: Power::new(progress.power).unwrap_or(Power::DEFAULT),
            done_bytes: progress.done_bytes,
            left_bytes,
            rate_bytes_per_s,
            left_s: (rate_bytes_per_s > 0).then(|| left_bytes.div_ceil(rate_bytes_per_s)),
            error: None,
        })
    }
}
