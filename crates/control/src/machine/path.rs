//! Paths as every process names them.

use std::path::{Path, PathBuf};

use crate::api::error::{ControlError, ControlResult};
use crate::machine::nfs::is_remote;

/// The directory, or the disk, as every process names it; what is wrong with it is told later by whoever
/// mounts there.
///
/// # Errors
/// Where the working directory is gone.
pub fn absolute(directory: &Path) -> ControlResult<PathBuf> {
    if is_remote(directory) {
        return Ok(directory.to_owned());
    }
    if let Ok(real) = directory.canonicalize() {
        return Ok(real);
    }
    std::path::absolute(directory)
        .map_err(|error| ControlError::io("find", directory.display(), &error))
}
