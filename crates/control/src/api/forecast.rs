//! When a group will be full, as it is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is known of how fast a group fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForecastState {
    /// Too little was seen yet: less than an hour.
    Unknown,
    /// It does not fill, or so slowly that it takes ten years.
    Steady,
    /// It fills.
    Filling,
    /// Nothing is usable any more.
    Full,
}

/// When a group will be full if it goes on like this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForecastReport {
    /// The group.
    pub group: String,
    /// `unknown`, `steady`, `filling` or `full`.
    pub state: ForecastState,
    /// Seconds until nothing is usable any more; `null` where it does not fill or nothing is known.
    pub full_in_s: Option<u64>,
    /// What files and their copies take more each day; negative where they shrink; `null` while
    /// nothing is known.
    pub growth_bytes_per_day: Option<i64>,
    /// How far back the sizes reach that this comes from.
    pub window_s: u64,
}
