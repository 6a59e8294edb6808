//! The redundancy of files, directories, templates and groups, changed in the process that serves the
//! group or here where none does.

use std::path::Path;

use spindle_base::{GroupName, Redundancy};

use crate::api::conversion::{ConversionReport, text_of};
use crate::api::error::ControlResult;
use crate::api::query::append;
use crate::api::view::TemplateReport;
use crate::machine::settings::Settings;
use crate::opened::open::{Access, Opened};
use crate::serving::served;

/// Gives a file another redundancy, or a directory for what is made below it, and with
/// `recursive` for what is there too.
///
/// # Errors
/// Where there is no such file, or failure groups or room are missing: nothing has changed then.
pub fn set_file_redundancy(
    settings: &Settings,
    group: &GroupName,
    file: &Path,
    redundancy: Redundancy,
    recursive: bool,
) -> ControlResult<ConversionReport> {
    use std::os::unix::ffi::OsStrExt;
    let mut path = "/files/redundancy".to_owned();
    append(&mut path, "path", file.as_os_str().as_bytes());
    append(&mut path, "redundancy", redundancy.to_string().as_bytes());
    append(&mut path, "recursive", recursive.to_string().as_bytes());
    in_group(settings, group, &path, |opened| {
        opened.set_file_redundancy(file, redundancy, recursive)
    })
}

/// Gives a group another redundancy, and the files whose template says "as the group".
///
/// # Errors
/// Where failure groups or room are missing: nothing has changed then.
pub fn convert_group(
    settings: &Settings,
    group: &GroupName,
    redundancy: Redundancy,
) -> ControlResult<ConversionReport> {
    let mut path = "/group/convert".to_owned();
    append(&mut path, "redundancy", redundancy.to_string().as_bytes());
    in_group(settings, group, &path, |opened| {
        opened.convert_group(redundancy)
    })
}

/// Gives the templates of that name another redundancy, `None` for "as the group"; for files
/// made from now on.
///
/// # Errors
/// Where there is no such template, or failure groups are missing.
pub fn set_template_redundancy(
    settings: &Settings,
    group: &GroupName,
    name: &str,
    redundancy: Option<Redundancy>,
) -> ControlResult<Vec<TemplateReport>> {
    let mut path = "/templates/redundancy".to_owned();
    append(&mut path, "name", name.as_bytes());
    append(&mut path, "redundancy", text_of(redundancy).as_bytes());
    in_group(settings, group, &path, |opened| {
        opened.set_template_redundancy(name, redundancy)
    })
}

fn in_group<T: serde::de::DeserializeOwned>(
    settings: &Settings,
    group: &GroupName,
    path: &str,
    change: impl FnOnce(&Opened) -> ControlResult<T>,
) -> ControlResult<T> {
    if let Some(client) = served::find(settings, group.as_str())? {
        return client.post(path);
    }
    let opened = Opened::open(settings, group, &Access::Change)?;
    let answer = change(&opened);
    // Closed also where it was refused, so that it is not left open.
    let closed = opened.close();
    let answer = answer?;
    closed?;
    Ok(answer)
}
