//! The redundancy of files, directories, templates and groups, changed while a process serves the
//! group or here where none does. What has to be copied is copied by the process that serves it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use spindle_base::{GroupName, Redundancy};
use utoipa::ToSchema;

use crate::error::{ControlError, ControlErrorKind, ControlResult};
use crate::nearness::suggestion;
use crate::opening::{Access, Opened};
use crate::query::{Query, append};
use crate::settings::Settings;
use crate::sockets;
use crate::view::TemplateReport;

/// What a change of redundancy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversionReport {
    /// The group.
    pub group: String,
    /// `external`, `normal` or `high`.
    pub redundancy: String,
    /// Files that get another number of copies; `operations` shows how far that is.
    pub files_count: u64,
    /// What a person should know.
    pub note: Option<String>,
}

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

fn text_of(redundancy: Option<Redundancy>) -> String {
    redundancy.map_or_else(|| "group".to_owned(), |redundancy| redundancy.to_string())
}

/// The redundancy that a request names; `None` for `group`.
///
/// # Errors
/// Where it is none.
pub fn redundancy_of(query: &Query) -> ControlResult<Option<Redundancy>> {
    match query.text("redundancy").unwrap_or_default().as_str() {
        "external" => Ok(Some(Redundancy::External)),
        "normal" => Ok(Some(Redundancy::Normal)),
        "high" => Ok(Some(Redundancy::High)),
        "group" => Ok(None),
        other => Err(ControlError::invalid(format!(
            "{other:?} is no redundancy: write external, normal or high"
        ))),
    }
}

/// As [`redundancy_of`], where "as the group" is none.
///
/// # Errors
/// As [`redundancy_of`].
pub fn own_redundancy_of(query: &Query) -> ControlResult<Redundancy> {
    redundancy_of(query)?.ok_or_else(|| {
        ControlError::invalid("\"group\" is a redundancy of templates only: write another one")
    })
}

fn in_group<T: serde::de::DeserializeOwned>(
    settings: &Settings,
    group: &GroupName,
    path: &str,
    change: impl FnOnce(&Opened) -> ControlResult<T>,
) -> ControlResult<T> {
    if let Some(client) = sockets::find(settings, group.as_str())? {
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

impl Opened {
    /// Gives a file or directory another redundancy.
    ///
    /// # Errors
    /// As [`set_file_redundancy`].
    pub fn set_file_redundancy(
        &self,
        path: &Path,
        redundancy: Redundancy,
        recursive: bool,
    ) -> ControlResult<ConversionReport> {
        let file = self
            .file_system()
            .resolve(path.as_os_str())
            .map_err(|error| {
                let error = ControlError::from(error);
                ControlError::new(
                    error.kind,
                    format!(
                        "{}:{}: {}",
                        self.group_name(),
                        path.display(),
                        error.message
                    ),
                )
            })?;
        let converted = (self.file_system()).set_redundancy(file.id, redundancy, recursive)?;
        Ok(self.conversion_report(redundancy, converted.files_count))
    }

    /// Gives the group another redundancy.
    ///
    /// # Errors
    /// As [`convert_group`].
    pub fn convert_group(&self, redundancy: Redundancy) -> ControlResult<ConversionReport> {
        let converted = self.file_system().convert_group(redundancy)?;
        Ok(self.conversion_report(redundancy, converted.files_count))
    }

    /// Gives templates another redundancy.
    ///
    /// # Errors
    /// As [`set_template_redundancy`].
    pub fn set_template_redundancy(
        &self,
        name: &str,
        redundancy: Option<Redundancy>,
    ) -> ControlResult<Vec<TemplateReport>> {
        let found = (self.file_system()).set_template_redundancy(name, redundancy)?;
        let templates = self.templates();
        if found {
            return Ok(templates);
        }
        let hint = suggestion(
            name,
            "template",
            templates.iter().map(|one| one.name.as_str()),
        );
        Err(ControlError::new(
            ControlErrorKind::NotFound,
            format!("{} has no template {name:?}; {hint}", self.group_name()),
        ))
    }

    fn conversion_report(&self, redundancy: Redundancy, files_count: u64) -> ConversionReport {
        let is_served = self.is_serving();
        let later = (files_count > 0 && !is_served).then(|| {
            format!(
                "the copies are made or given back when {} is mounted",
                self.group_name()
            )
        });
        ConversionReport {
            group: self.group_name().to_owned(),
            redundancy: redundancy.to_string(),
            files_count,
            note: later,
        }
    }
}
