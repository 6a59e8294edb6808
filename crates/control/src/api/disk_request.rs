//! Changes of a group's disks, as they are asked for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spindle_format::DISKS_MAX;
use utoipa::ToSchema;

use crate::api::error::{ControlError, ControlResult};
use crate::api::query::body_of;

/// A disk that is to join a group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDiskRequest {
    /// The block device or plain file.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// The size of the plain file to be made there; `null` where the disk is there.
    #[serde(default)]
    pub make_bytes: Option<u64>,
    /// Its failure group; `null` for one of its own.
    #[serde(default)]
    pub failure_group: Option<String>,
    /// Its name; `null` for the group's name and a number.
    #[serde(default)]
    pub name: Option<String>,
}

/// A disk that is to take the place of another.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplacementRequest {
    /// The name of the disk that goes.
    pub disk: String,
    /// The disk that comes, into the same failure group.
    pub with: NewDiskRequest,
}

/// A disk of which the group is to use more or less.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// The disk's name.
    pub disk: String,
    /// What to use of it; `null` for all that it has now.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// Changes of a group's disks that are made together and want one rebalance.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskChangesRequest {
    /// Disks that join.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<NewDiskRequest>,
    /// Use disks that join although something stands on them: it is lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overwrite: bool,
    /// Names of disks that leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<String>,
    /// Give up disks that leave and are offline.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Disks that others take the place of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<ReplacementRequest>,
    /// Names of disks that are being dropped and are kept after all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undrop: Vec<String>,
    /// Disks that get another size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resize: Vec<ResizeRequest>,
}

impl DiskChangesRequest {
    /// Refuses a change of more disks than a group can have.
    ///
    /// # Errors
    /// Where that is so.
    pub fn check_size(&self) -> ControlResult<()> {
        check_count(
            self.add.len()
                + self.drop.len()
                + self.replace.len()
                + self.undrop.len()
                + self.resize.len(),
        )
    }
}

/// What is asked for, as the event log keeps it.
impl std::fmt::Display for DiskChangesRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forced = if self.force { " by force" } else { "" };
        let mut parts: Vec<String> = Vec::new();
        for disk in &self.add {
            parts.push(format!("add {}", disk.path.display()));
        }
        if !self.drop.is_empty() {
            parts.push(format!("drop {}{forced}", self.drop.join(", ")));
        }
        for replacement in &self.replace {
            let with = replacement.with.path.display();
            parts.push(format!("replace {} with {with}", replacement.disk));
        }
        if !self.undrop.is_empty() {
            parts.push(format!("keep {}", self.undrop.join(", ")));
        }
        for resize in &self.resize {
            parts.push(format!("resize {}", resize.disk));
        }
        f.write_str(&parts.join(", "))
    }
}

/// Names of disks, in the body of a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DiskNames {
    /// The names; empty where the request says what that means.
    pub disks: Vec<String>,
}

impl DiskNames {
    /// Of a command.
    ///
    /// # Errors
    /// Where there are more than a group can have.
    pub(crate) fn of(disks: &[String]) -> ControlResult<Self> {
        check_count(disks.len())?;
        Ok(Self {
            disks: disks.to_vec(),
        })
    }

    /// Of a request; one without a body names none.
    ///
    /// # Errors
    /// Where they cannot be understood, or there are more than a group can have.
    pub(super) fn from_body(body: &[u8]) -> ControlResult<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let names: Self = body_of(body)?;
        check_count(names.disks.len())?;
        Ok(names)
    }
}

fn check_count(count: usize) -> ControlResult<()> {
    if count <= DISKS_MAX {
        return Ok(());
    }
    Err(ControlError::invalid(format!(
        "{count} disks are named: one change takes at most {DISKS_MAX}"
    )))
}
