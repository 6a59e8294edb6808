//! Changes of redundancy, as they are asked for and answered.

use serde::{Deserialize, Serialize};
use spindle_base::Redundancy;
use utoipa::ToSchema;

use crate::api::error::{ControlError, ControlResult};
use crate::api::query::Query;

/// What a change of redundancy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversionReport {
    /// The group.
    pub group: String,
    /// `external`, `normal` or `high`.
    pub redundancy: String,
    /// Files that get another number of copies; `operations` shows how far that is.
    pub files_count: u64,
    /// What a person should know.
    pub note: Option<String>,
}

pub(crate) fn text_of(redundancy: Option<Redundancy>) -> String {
    redundancy.map_or_else(|| "group".to_owned(), |redundancy| redundancy.to_string())
}

/// The redundancy that a request names; `None` for `group`.
///
/// # Errors
/// Where it is none.
pub(crate) fn redundancy_of(query: &Query) -> ControlResult<Option<Redundancy>> {
    match query.text("redundancy").unwrap_or_default().as_str() {
        "external" => Ok(Some(Redundancy::External)),
        "normal" => Ok(Some(Redundancy::Normal)),
        "high" => Ok(Some(Redundancy::High)),
        "group" => Ok(None),
        other => Err(ControlError::invalid(format!(
            "{other:?} is no redundancy: write external, normal or high"
        ))),
    }
}

/// As [`redundancy_of`], where "as the group" is none.
///
/// # Errors
/// As [`redundancy_of`].
pub(crate) fn own_redundancy_of(query: &Query) -> ControlResult<Redundancy> {
    redundancy_of(query)?.ok_or_else(|| {
        ControlError::invalid("\"group\" is a redundancy of templates only: write another one")
    })
}
