//! Volumes are made and looked at wherever their group is; they are exported by the process that
//! serves it.

use std::path::Path;

use spindle_base::GroupName;

use crate::api::calls::{
    AddExport, CreateVolume, DropVolume, ListExports, ListVolumes, RemoveExport, ResizeVolume,
};
use crate::api::error::{ControlError, ControlResult};
use crate::api::volume::{ExportReport, VolumeReport};
use crate::command::reach::{reach, serving};
use crate::machine::settings::Settings;

/// The volumes at `path` and below it.
///
/// # Errors
/// Where there is no such group or path.
pub fn list_volumes(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
) -> ControlResult<Vec<VolumeReport>> {
    let call = ListVolumes {
        path: (path != Path::new("/")).then(|| path.to_owned()),
    };
    reach(settings, group, &call, |opened| {
        opened.files().volumes(call.path.as_deref())
    })
}

/// Makes a volume.
///
/// # Errors
/// Where something is there already, or there is no room.
pub fn create_volume(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
    size_bytes: u64,
    reserve: bool,
) -> ControlResult<VolumeReport> {
    let call = CreateVolume {
        path: path.to_owned(),
        size_bytes,
        reserve,
    };
    reach(settings, group, &call, |opened| {
        opened.files().create_volume(path, size_bytes, reserve)
    })
}

/// Gives a volume another size.
///
/// # Errors
/// Where it is no volume, or is to become smaller and `shrink` does not say so.
pub fn resize_volume(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
    size_bytes: u64,
    shrink: bool,
) -> ControlResult<VolumeReport> {
    let call = ResizeVolume {
        path: path.to_owned(),
        size_bytes,
        shrink,
    };
    reach(settings, group, &call, |opened| {
        opened.files().resize_volume(path, size_bytes, shrink)
    })
}

/// Removes a volume.
///
/// # Errors
/// Where it is no volume, or is exported.
pub fn drop_volume(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
) -> ControlResult<VolumeReport> {
    let call = DropVolume {
        path: path.to_owned(),
    };
    reach(settings, group, &call, |opened| {
        opened.files().drop_volume(path)
    })
}

/// Exports a volume at a Unix socket.
///
/// # Errors
/// Where the group is not open, it is no volume, or the socket cannot be made.
pub fn export_volume(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
    socket: &Path,
    read_only: bool,
) -> ControlResult<ExportReport> {
    let socket = std::path::absolute(socket)
        .map_err(|error| ControlError::io("find", socket.display(), &error))?;
    serving(settings, group.as_str())?.ask(&AddExport {
        path: path.to_owned(),
        socket,
        read_only,
    })
}

/// Ends an export.
///
/// # Errors
/// Where there is none, or clients are connected and `force` does not say so.
pub fn unexport_volume(
    settings: &Settings,
    group: &GroupName,
    path: &Path,
    force: bool,
) -> ControlResult<ExportReport> {
    serving(settings, group.as_str())?.ask(&RemoveExport {
        path: path.to_owned(),
        force,
    })
}

/// The exports of a group.
///
/// # Errors
/// Where it is not open.
pub fn list_exports(settings: &Settings, group: &GroupName) -> ControlResult<Vec<ExportReport>> {
    serving(settings, group.as_str())?.ask(&ListExports {})
}
