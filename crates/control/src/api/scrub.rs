//! Scrubs, as they are asked for and shown.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spindle_group::{Finding, FindingKind, LeftOut, ScrubState, ScrubView};
use utoipa::ToSchema;

/// The power of a scrub that names none: it gives way to everything else.
pub(crate) const POWER_USUAL: u16 = 1;

/// What to scrub, and how.
#[derive(Debug, Clone, Default)]
pub struct ScrubRequest {
    /// A file or a directory with everything below it, from the group's root; `None` for all.
    pub path: Option<PathBuf>,
    /// Names of disks; the extents that have a copy on one of them.
    pub disks: Vec<String>,
    /// Whether what is proven is repaired.
    pub repair: bool,
    /// 0 to 1024.
    pub power: Option<u16>,
    /// The disk whose copies lose where nothing is proven.
    pub distrust: Option<String>,
}

/// One place that was not as it should be.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ScrubFindingReport {
    /// `repaired`, `moved`, `disk_offline`, `repairable`, `copies_differ`, `bad_page` or
    /// `unreadable`.
    pub kind: String,
    /// The file's number.
    pub file: u64,
    /// Its path.
    pub path: String,
    /// Where in the file.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// The number of the page in the file; `null` where the file has none that are known.
    pub page: Option<u64>,
    /// The disks whose copies are wrong; where that is not proven, those that differ.
    pub disks: Vec<String>,
    /// In words.
    pub message: String,
}

/// A copy of a range of a file that a scrub did not look at.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeftOutReport {
    /// The file's number.
    pub file: u64,
    /// Its path.
    pub path: String,
    /// Where in the file.
    pub offset_bytes: u64,
    /// How long.
    pub length_bytes: u64,
    /// The disk whose copy it is.
    pub disk: String,
    /// `stale` (the disk missed writes there and has not been given them again yet) or `offline`.
    pub reason: String,
}

/// A scrub that runs, or the last one since the group was opened.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ScrubReport {
    /// The group.
    pub group: String,
    /// What is scrubbed: the group, disks or a path.
    pub title: String,
    /// `running`, `paused`, `looking_again`, `done` or `stopped`.
    pub state: String,
    /// Whether it repairs what is proven.
    pub repair: bool,
    /// 0 to 1024.
    pub power: u16,
    /// The disk whose copies lose where nothing is proven; `null` where all are trusted.
    pub distrust: Option<String>,
    /// Bytes of files of which every copy was looked at, one copy counted.
    pub done_bytes: u64,
    /// Bytes of files to look at, as they were when it began.
    pub total_bytes: u64,
    /// Bytes read, every copy counted.
    pub read_bytes: u64,
    /// Pages judged by their own checksums.
    pub judged_pages_count: u64,
    /// Everything that was found.
    pub findings_count: u64,
    /// What of it is right again.
    pub repaired_count: u64,
    /// The first thousand findings.
    pub findings: Vec<ScrubFindingReport>,
    /// Bytes of files of which a copy could not be looked at.
    pub left_out_bytes: u64,
    /// Which: the first thousand places.
    pub left_out: Vec<LeftOutReport>,
}

impl ScrubReport {
    /// Of a group's scrub.
    #[must_use]
    pub fn new(group: &str, view: ScrubView, distrust: Option<String>) -> Self {
        Self {
            group: group.to_owned(),
            title: view.title,
            state: state_name(view.state).to_owned(),
            repair: view.repair,
            power: view.power,
            distrust,
            done_bytes: view.done_bytes,
            total_bytes: view.total_bytes,
            read_bytes: view.read_bytes,
            judged_pages_count: view.judged_pages_count,
            findings_count: view.findings_count,
            repaired_count: view.repaired_count,
            findings: view
                .findings
                .into_iter()
                .map(ScrubFindingReport::from)
                .collect(),
            left_out_bytes: view.left_out_bytes,
            left_out: view.left_out.into_iter().map(LeftOutReport::from).collect(),
        }
    }

    /// Whether everything was looked at, and what was found is right again.
    #[must_use]
    pub fn is_all_well(&self) -> bool {
        self.findings_count == self.repaired_count && self.left_out_bytes == 0
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state.as_str(), "done" | "stopped")
    }
}

impl From<Finding> for ScrubFindingReport {
    fn from(finding: Finding) -> Self {
        Self {
            kind: kind_name(finding.kind).to_owned(),
            file: finding.file.0,
            path: finding.title,
            offset_bytes: finding.offset_bytes,
            length_bytes: finding.length_bytes,
            page: finding.page,
            disks: finding.disks,
            message: finding.message,
        }
    }
}

impl From<LeftOut> for LeftOutReport {
    fn from(left_out: LeftOut) -> Self {
        Self {
            file: left_out.file.0,
            path: left_out.title,
            offset_bytes: left_out.offset_bytes,
            length_bytes: left_out.length_bytes,
            disk: left_out.disk,
            reason: left_out.reason.name().to_owned(),
        }
    }
}

const fn state_name(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Running => "running",
        ScrubState::Paused => "paused",
        ScrubState::LookingAgain => "looking_again",
        ScrubState::Done => "done",
        ScrubState::Stopped => "stopped",
    }
}

const fn kind_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Repaired => "repaired",
        FindingKind::Moved => "moved",
        FindingKind::DiskOffline => "disk_offline",
        FindingKind::Repairable => "repairable",
        FindingKind::CopiesDiffer => "copies_differ",
        FindingKind::BadPage => "bad_page",
        FindingKind::Unreadable => "unreadable",
    }
}
