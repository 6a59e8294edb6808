//! The redundancy of files, directories, templates and groups, changed while a process serves the
//! group or here where none does. What has to be copied is copied by the process that serves it.

use std::path::Path;

use spindle_base::Redundancy;

use crate::api::conversion::{ConversionReport, cost_of};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::nearness::suggestion;
use crate::api::view::TemplateReport;
use crate::opened::open::Opened;

impl Opened {
    /// Gives a file or directory another redundancy.
    ///
    /// # Errors
    /// Where there is no such file, or failure groups or room are missing: nothing has changed then.
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
                let file = format!("{}:{}", self.group_name(), path.display());
                ControlError::from(error).about(file)
            })?;
        let converted = (self.file_system()).set_redundancy(file.id, redundancy, recursive)?;
        Ok(self.conversion_report(redundancy, converted.files_count))
    }

    /// Gives the group another redundancy.
    ///
    /// # Errors
    /// Where failure groups or room are missing: nothing has changed then.
    pub fn convert_group(&self, redundancy: Redundancy) -> ControlResult<ConversionReport> {
        let cost = cost_of(self.group().redundancy(), redundancy);
        let converted = self.file_system().convert_group(redundancy)?;
        let mut report = self.conversion_report(redundancy, converted.files_count);
        report.cost = cost;
        Ok(report)
    }

    /// What that would come to; nothing is changed.
    ///
    /// # Errors
    /// As for it.
    pub fn estimate_conversion(&self, redundancy: Redundancy) -> ControlResult<ConversionReport> {
        let converted = self.file_system().estimate_conversion(redundancy)?;
        let mut report = self.conversion_report(redundancy, converted.files_count);
        report.cost = cost_of(self.group().redundancy(), redundancy);
        report.note = None;
        Ok(report)
    }

    /// Gives templates another redundancy.
    ///
    /// # Errors
    /// Where there is no such template, or failure groups are missing.
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
            cost: None,
            note: later,
        }
    }
}
