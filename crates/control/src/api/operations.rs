//! Background copying, as it is shown.

use serde::{Deserialize, Serialize};
use spindle_group::{OperationState, OperationView, Pass};
use utoipa::ToSchema;

/// One pass of background work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationReport {
    /// The group.
    pub group: String,
    /// `resync`, `convert`, `restore`, `rebalance` or `scrub`.
    pub pass: String,
    /// `wait`, `run`, `paused`, `done` or `errors`.
    pub state: String,
    /// 0 to 1024.
    pub power: u16,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes left, as far as is known.
    pub left_bytes: u64,
    /// Bytes a second.
    pub rate_bytes_per_s: u64,
    /// Seconds until its end; `null` while nothing is known.
    pub left_s: Option<u64>,
    /// Why it cannot go on.
    pub error: Option<String>,
}

/// What runs and what waits in a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationsReport {
    /// The group.
    pub group: String,
    /// The group's own power: what a rebalance has that is given no other.
    pub default_power: u16,
    /// The passes, in the order in which they run; empty where there is nothing to do.
    pub operations: Vec<OperationReport>,
}

impl OperationsReport {
    /// Whether nothing is to be waited for any more: nothing runs, or what is left cannot go on.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.operations.iter().all(OperationReport::is_stuck)
    }

    /// Likewise of what copies: a scrub may go on.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        (self.operations.iter()).all(|operation| operation.is_stuck() || operation.pass == "scrub")
    }
}

impl OperationReport {
    fn is_stuck(&self) -> bool {
        self.state == "errors"
    }

    /// One pass of that group.
    pub(crate) fn new(group: &str, view: OperationView) -> Self {
        Self {
            group: group.to_owned(),
            pass: match view.pass {
                Pass::Resync => "resync",
                Pass::Convert => "convert",
                Pass::Restore => "restore",
                Pass::Rebalance => "rebalance",
                Pass::Scrub => "scrub",
            }
            .to_owned(),
            state: match view.state {
                OperationState::Wait => "wait",
                OperationState::Run => "run",
                OperationState::Paused => "paused",
                OperationState::Done => "done",
                OperationState::Errors => "errors",
            }
            .to_owned(),
            power: view.power.number(),
            done_bytes: view.done_bytes,
            left_bytes: view.left_bytes,
            rate_bytes_per_s: view.rate_bytes_per_s,
            left_s: view.left_s,
            error: view.error,
        }
    }
}
