//! The group's own structures, looked at by a scrub of the whole group before its files: labels,
//! opener records and group states of every disk, and every replica of the catalog.
//!
//! Nobody reads them while the group is open, so damage there would be met by the next opening,
//! when what could mend it may be gone.

use spindle_base::{DiskNumber, FileId};

use crate::background::Group;
use crate::background::scrub::run::Run;
use crate::background::scrub::{Finding, FindingKind, ScrubScope, ScrubStep};
use crate::error::GroupError;
use crate::event::{Event, EventKind, Severity};
use crate::quorum::{FaultOutcome, StructureFault};

/// The next part of the structures, shared by the workers of a run.
#[derive(Debug, Default)]
pub struct Cursor {
    next: usize,
    in_flight_count: usize,
    at_end: bool,
}

impl Cursor {
    /// For a scrub of this scope: the structures belong to no file.
    pub fn of(scope: &ScrubScope) -> Self {
        Self {
            at_end: *scope != ScrubScope::Group,
            ..Self::default()
        }
    }

    /// Whether nothing is left and nobody is at work.
    pub const fn is_finished(&self) -> bool {
        self.at_end && self.in_flight_count == 0
    }
}

impl Group {
    /// Looks at one part; `None` where all are given out.
    pub(crate) fn scrub_structures(&self, run: &Run) -> Result<Option<ScrubStep>, GroupError> {
        let parts_count = self.region.parts_count();
        let part = {
            let mut cursor = run.structures.lock();
            if cursor.at_end {
                return Ok(None);
            }
            let part = cursor.next;
            cursor.next += 1;
            cursor.at_end = part >= parts_count;
            cursor.in_flight_count += 1;
            part
        };
        let answer = match part.checked_sub(1) {
            None => self.scrub_disks(run),
            Some(part) => self.scrub_replicas(run, part),
        };
        let answer = answer.or_else(|error| self.tell_unjudged(run, part, error));
        run.structures.lock().in_flight_count -= 1;
        answer.map(|()| Some(ScrubStep::Did))
    }

    /// A part that could not be judged is not given out again: without a finding it would pass for good.
    fn tell_unjudged(&self, run: &Run, part: usize, error: GroupError) -> Result<(), GroupError> {
        self.check_fence()?;
        let title = match part.checked_sub(1) {
            None => "the disks' own structures and the journal of the catalog".to_owned(),
            Some(part) => format!("part {part} of the catalog"),
        };
        let message = format!("{title} could not be judged: {error}");
        let event = Some((EventKind::DamageFound, Severity::Critical));
        self.tell_part(run, FindingKind::Unreadable, title, None, message, event);
        Ok(())
    }

    fn scrub_disks(&self, run: &Run) -> Result<(), GroupError> {
        for fault in self.membership.verify_structures(run.repairs()) {
            self.tell_structure(run, &fault);
        }
        if run.repairs() && !self.region.journals_agree() {
            // What a commit's record was overwritten on one disk is in the region then.
            self.catalog.settle()?;
            self.region.make_journals_equal()?;
        }
        Ok(())
    }

    fn tell_structure(&self, run: &Run, fault: &StructureFault) {
        let disk = self.name_of_disk(fault.disk);
        let about = format!("the {} of disk {disk}: {}", fault.what, fault.why);
        let (kind, event, message) = match &fault.outcome {
            FaultOutcome::Repaired => (
                FindingKind::Repaired,
                EventKind::LabelRepaired,
                format!("{about}; it was written again"),
            ),
            FaultOutcome::Repairable => (
                FindingKind::Repairable,
                EventKind::DamageFound,
                format!("{about}; a scrub of the group with --repair writes it again"),
            ),
            FaultOutcome::Left => (
                FindingKind::CopiesDiffer,
                EventKind::DamageFound,
                format!("{about}; it was left as it is: look at who else uses the disk"),
            ),
            FaultOutcome::SetBack => (
                FindingKind::CopiesDiffer,
                EventKind::DamageFound,
                format!(
                    "{about}; the disk was set back to an older image: it goes offline where the \
                     group can do without it"
                ),
            ),
            FaultOutcome::Failed(why) => (
                FindingKind::Repairable,
                EventKind::DamageFound,
                format!("{about}; it could not be written again: {why}"),
            ),
        };
        let severity = if fault.outcome == FaultOutcome::Repaired {
            Severity::Warning
        } else {
            Severity::Critical
        };
        let title = format!("the {} of disk {disk}", fault.what);
        let event = Some((event, severity));
        self.tell_part(run, kind, title, Some(fault.disk), message, event);
    }

    fn scrub_replicas(&self, run: &Run, part: usize) -> Result<(), GroupError> {
        for fault in self.region.verify(part, run.repairs())? {
            let disk = self.name_of_disk(fault.disk);
            let what = match fault.block {
                Some(block) => format!("block {block}"),
                None => format!("the checksum block of part {part}"),
            };
            let about = format!(
                "the catalog's replica on disk {disk}, {what}: {}",
                fault.why
            );
            let (kind, event, message) = if run.repairs() {
                // The region has told it.
                let message = format!("{about}; it was written again");
                (FindingKind::Repaired, None, message)
            } else {
                let message =
                    format!("{about}; a scrub of the group with --repair writes it again");
                let event = Some((EventKind::DamageFound, Severity::Warning));
                (FindingKind::Repairable, event, message)
            };
            let title = format!("the catalog on disk {disk}");
            self.tell_part(run, kind, title, Some(fault.disk), message, event);
        }
        Ok(())
    }

    fn tell_part(
        &self,
        run: &Run,
        kind: FindingKind,
        title: String,
        disk: Option<DiskNumber>,
        message: String,
        event: Option<(EventKind, Severity)>,
    ) {
        if let Some((event, severity)) = event {
            let told = Event::new(event, message.clone()).severity(severity);
            self.event(match disk {
                Some(disk) => told.disk(disk),
                None => told,
            });
        }
        run.note(Finding {
            kind,
            file: FileId(0),
            title,
            offset_bytes: 0,
            length_bytes: 0,
            page: None,
            disks: disk
                .map(|disk| self.name_of_disk(disk))
                .into_iter()
                .collect(),
            message,
        });
    }
}
