//! What udev is told of a device: the properties that `lsblk -f` and installers look at, so that a
//! disk of a group is not taken for an empty one.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use spindle_format::{FormatErrorKind, LABEL_BYTES, LABEL_PLACES, LabelStatus, ParsedLabel};

use crate::api::error::{ControlError, ControlResult};

/// What udev calls a disk of a group.
const TYPE: &str = "spindle_member";

/// Properties by name, as udev imports them; none where the device is no disk of a group, or was let
/// go by its group. Only reads, two blocks at most.
///
/// # Errors
/// Where the device cannot be opened or read.
pub fn udev_properties(device: &Path) -> ControlResult<Vec<(&'static str, String)>> {
    let failed =
        |error: std::io::Error| ControlError::io("read the label of", device.display(), &error);
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(device)
        .map_err(failed)?;
    let mut newest: Option<ParsedLabel> = None;
    let mut is_newer_program_s = false;
    for place in LABEL_PLACES {
        let mut bytes = [0; LABEL_BYTES];
        match file.read_exact_at(&mut bytes, place) {
            // A device this small holds nothing of ours.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            answer => answer.map_err(failed)?,
        }
        match ParsedLabel::parse(&bytes, place) {
            Ok(label) => {
                let is_newer = (newest.as_ref())
                    .is_none_or(|known| known.contents().sequence < label.contents().sequence);
                if is_newer {
                    newest = Some(label);
                }
            }
            Err(error) => {
                is_newer_program_s |= matches!(
                    error.kind,
                    FormatErrorKind::Version(_) | FormatErrorKind::Feature(_)
                );
            }
        }
    }
    let usage = [
        ("ID_FS_USAGE", "raid".to_owned()),
        ("ID_FS_TYPE", TYPE.to_owned()),
    ];
    let Some(label) = newest.as_ref().map(ParsedLabel::contents) else {
        // What a newer program wrote is no empty disk either.
        return Ok(usage.into_iter().filter(|_| is_newer_program_s).collect());
    };
    if label.status != LabelStatus::Member {
        return Ok(Vec::new());
    }
    let mut properties = Vec::from(usage);
    properties.extend([
        ("ID_FS_VERSION", spindle_format::LABEL_VERSION.to_string()),
        // As for members of md: of the group, and of the disk.
        ("ID_FS_UUID", label.group_uuid.to_string()),
        ("ID_FS_UUID_SUB", label.disk_uuid.to_string()),
        ("ID_FS_LABEL", label.group_name.to_string()),
        ("SPINDLE_GROUP", label.group_name.to_string()),
        ("SPINDLE_DISK", label.disk_name.to_string()),
        ("SPINDLE_FAILURE_GROUP", label.failure_group.to_string()),
    ]);
    Ok(properties)
}
