//! Changes of redundancy, as they are asked for and answered.

use serde::{Deserialize, Serialize};
use spindle_base::Redundancy;
use utoipa::ToSchema;

use crate::api::error::{ControlError, ControlResult};

/// What a change of redundancy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversionReport {
    /// The group.
    pub group: String,
    /// `external`, `normal` or `high`.
    pub redundancy: String,
    /// Files that get another number of copies; `operations` shows how far that is.
    pub files_count: u64,
    /// What a lost disk costs from then on, where copies are given up; `null` where none are.
    #[serde(default)]
    pub cost: Option<String>,
    /// What a person should know.
    pub note: Option<String>,
}

/// What a lost disk costs after a group went from one redundancy to a lower one.
#[must_use]
pub(crate) fn cost_of(from: Redundancy, to: Redundancy) -> Option<String> {
    let cost = match to {
        _ if to >= from => return None,
        Redundancy::External => {
            "from then on every file has one copy: one lost disk loses what lies on it, and stops the group"
        }
        Redundancy::Normal => {
            "from then on files have two copies: one lost disk costs nothing, two that are lost in different failure groups lose files"
        }
        Redundancy::High => return None,
    };
    Some(cost.to_owned())
}

/// A redundancy of templates; `None` for "as the group".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateRedundancy(pub(crate) Option<Redundancy>);

impl std::fmt::Display for TemplateRedundancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(redundancy) => redundancy.fmt(f),
            None => f.write_str("group"),
        }
    }
}

/// The redundancy that the word means.
///
/// # Errors
/// Where it means none.
pub(super) fn redundancy_of(text: &str) -> ControlResult<TemplateRedundancy> {
    Ok(TemplateRedundancy(match text {
        "external" => Some(Redundancy::External),
        "normal" => Some(Redundancy::Normal),
        "high" => Some(Redundancy::High),
        "group" => None,
        other => {
            return Err(ControlError::invalid(format!(
                "{other:?} is no redundancy: write external, normal or high"
            )));
        }
    }))
}
