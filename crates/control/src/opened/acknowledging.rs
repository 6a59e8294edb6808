//! Acknowledged findings, brought into the log of an open group.

use spindle_group::Severity;

use crate::api::calls::ClearFindings;
use crate::api::clearing::{ClearReport, FINDING_CLEARED, chosen, text_of};
use crate::api::error::ControlResult;
use crate::api::event_filter::EventFilter;
use crate::api::health::judge;
use crate::api::view::{EventReport, GroupReport, GroupState, HealthFindingReport};
use crate::machine::clock;
use crate::opened::open::Opened;

impl Opened {
    /// Acknowledges findings of a group that no process serves, for the user of that name.
    ///
    /// # Errors
    /// Where one of them is not there or still holds, or no disk takes the acknowledgement.
    pub(crate) fn clear_findings(
        &self,
        asked: &ClearFindings,
        by: &str,
    ) -> ControlResult<ClearReport> {
        let events = self.events(&EventFilter::default())?;
        let seen = events.last().map_or(0, |event| event.number);
        let group = GroupReport::new(self.group().view(), GroupState::Dismounted);
        let health = judge(&group, &events, clock::now_ms());
        let report = chosen(&health, &asked.finding, asked.all)?;
        self.acknowledge(&report.cleared, seen, by)?;
        Ok(report)
    }

    /// Writes down that findings are acknowledged, as of the event of that number, and makes it
    /// durable; the events that say so.
    ///
    /// # Errors
    /// Where the catalog cannot be read, or no disk takes it.
    pub(crate) fn acknowledge(
        &self,
        findings: &[HealthFindingReport],
        seen: u64,
        by: &str,
    ) -> ControlResult<Vec<EventReport>> {
        if findings.is_empty() {
            return Ok(Vec::new());
        }
        let now_ms = clock::now_ms();
        let disks = self.group().view().disks;
        let number_of = |name: &str| {
            let disk = disks.iter().find(|disk| disk.name.to_string() == name)?;
            Some(disk.number.0)
        };
        let events: Vec<EventReport> = (findings.iter())
            .map(|finding| EventReport {
                number: 0,
                time_s: now_ms / 1000,
                time_ms: now_ms,
                host: self.host().to_owned(),
                group: self.group_name().to_owned(),
                severity: Severity::Info.name().to_owned(),
                kind: FINDING_CLEARED.to_owned(),
                disk: finding.disk_name.as_deref().and_then(number_of),
                disk_name: finding.disk_name.clone(),
                file: None,
                path: None,
                text: text_of(finding, seen, by),
            })
            .collect();
        self.keep_former_events(&events)?;
        // Answered only when it will be there after a crash: who was told "cleared" looks away.
        self.file_system().make_durable()?;
        let mut kept = self.events(&EventFilter {
            after: seen,
            kinds: vec![FINDING_CLEARED.to_owned()],
            ..EventFilter::default()
        })?;
        kept.retain(|event| events.iter().any(|own| own.text == event.text));
        Ok(kept)
    }
}
