//! Set-user-id and set-group-id, which a change of a file's contents by a stranger takes away.
//!
//! The kernel leaves it to us. With a write, a truncation and a change of attributes it says
//! whether the caller is a stranger; with fallocate(2) and copy_file_range(2) it does not, and the
//! caller, who waits for the answer, is looked at.

use spindle_base::FileId;
use spindle_fs::{AttributeChange, Time};

use super::{Bridge, Refusal};
use crate::abi::InHeader;
use crate::stale::Stale;
use crate::transport::Transport;

const SET_USER_ID: u16 = 0o4000;
/// Set-group-id is a privilege only together with the group's execute bit.
const SET_GROUP_ID_AND_EXECUTE: u16 = 0o2010;
/// The capability of those whose changes leave the bits, usually root's (`CAP_FSETID`).
const CAPABILITY_KEEPS: u64 = 1 << 4;

impl Bridge {
    fn has_privileges(&self, id: FileId) -> Result<bool, Refusal> {
        let permissions = self.file_system.permissions(id)?;
        Ok(permissions & SET_USER_ID != 0
            || permissions & SET_GROUP_ID_AND_EXECUTE == SET_GROUP_ID_AND_EXECUTE)
    }

    /// As [`Bridge::kill_privileges`], where the kernel does not say whether the caller is a
    /// stranger.
    pub(super) fn kill_privileges_of_strangers<T: Transport>(
        &self,
        header: &InHeader,
        id: FileId,
        now: Time,
        transport: &T,
    ) -> Result<(), Refusal> {
        if !self.has_privileges(id)? || keeps_privileges(header.process) {
            return Ok(());
        }
        self.kill_privileges(id, now, transport)
    }

    /// A stranger changes the file: set-user-id and set-group-id go. The kernel, which would go
    /// on showing them, is told so. Only attributes are invalidated, which never makes it wait,
    /// so a worker may.
    pub(super) fn kill_privileges<T: Transport>(
        &self,
        id: FileId,
        now: Time,
        transport: &T,
    ) -> Result<(), Refusal> {
        if !self.has_privileges(id)? {
            return Ok(());
        }
        let change = AttributeChange {
            kill_privileges: true,
            ..AttributeChange::default()
        };
        self.file_system.set_attributes(id, &change, now)?;
        Ok(transport.forget(&Stale::Attributes(id))?)
    }
}

/// Whether changes by this process leave set-user-id and set-group-id. One that cannot be looked
/// at, and a root of a user namespace of its own, is a stranger.
fn keeps_privileges(process: u32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let theirs = namespace(&process.to_string());
    if process == 0 || theirs.is_none() || theirs != namespace("self") {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits & CAPABILITY_KEEPS != 0)
}
