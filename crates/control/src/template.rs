//! Templates as listings show them.

use std::sync::Arc;

use spindle_fs::FileSystem;

use crate::error::ControlResult;
use crate::view::TemplateReport;

/// Every template of a group.
///
/// # Errors
/// Where the catalog cannot be read.
pub fn list(_file_system: &Arc<FileSystem>) -> ControlResult<Vec<TemplateReport>> {
    Ok(Vec::new())
}
