//! The redundancy of files, directories, templates and groups, changed in the process that serves the
//! group or here where none does.

use std::path::Path;

use spindle_base::{GroupName, Redundancy};

use crate::api::calls::{ConvertFile, ConvertGroup, ConvertTemplate, EstimateConversion};
use crate::api::conversion::{ConversionReport, TemplateRedundancy};
use crate::api::error::ControlResult;
use crate::api::view::TemplateReport;
use crate::command::reach::reach;
use crate::machine::settings::Settings;

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
    let call = ConvertFile {
        path: file.to_owned(),
        redundancy,
        recursive,
    };
    reach(settings, group, &call, |opened| {
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
    reach(settings, group, &ConvertGroup { redundancy }, |opened| {
        opened.convert_group(redundancy)
    })
}

/// What [`convert_group`] would come to; nothing is changed, and the group need not be open.
///
/// # Errors
/// As there.
pub fn estimate_conversion(
    settings: &Settings,
    group: &GroupName,
    redundancy: Redundancy,
) -> ControlResult<ConversionReport> {
    let call = EstimateConversion { redundancy };
    reach(settings, group, &call, |opened| {
        opened.estimate_conversion(redundancy)
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
    let call = ConvertTemplate {
        name: name.to_owned(),
        redundancy: TemplateRedundancy(redundancy),
    };
    reach(settings, group, &call, |opened| {
        opened.set_template_redundancy(name, redundancy)
    })
}
