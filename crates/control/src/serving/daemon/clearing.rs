//! Findings of a served group, acknowledged by who asks.

use std::sync::atomic::Ordering;

use super::Daemon;
use crate::api::calls::ClearFindings;
use crate::api::clearing::{ClearReport, WorkState, chosen};
use crate::api::error::ControlResult;
use crate::api::event_filter::EventFilter;

impl Daemon {
    /// What this process does and cannot do, as far as a finding depends on it.
    pub(super) fn clearable_now(&self) -> WorkState {
        let fails = self.background_fails.load(Ordering::Relaxed);
        WorkState::of_served(fails, &self.operations().operations)
    }

    /// Acknowledges findings, durably, for the user of that name.
    ///
    /// # Errors
    /// Where one of them is not there or still holds, or no disk takes the acknowledgement.
    pub(crate) fn clear_findings(
        &self,
        asked: &ClearFindings,
        by: &str,
    ) -> ControlResult<ClearReport> {
        self.note_events();
        let mut events = self.opened.events(&EventFilter::default())?;
        let seen = events.last().map_or(0, |event| event.number);
        self.forget_gone_files(&mut events);
        let report = chosen(&self.judged(&events), &asked.finding, asked.all)?;
        self.pass_on(&self.opened.acknowledge(&report.cleared, seen, by)?);
        Ok(report)
    }
}
