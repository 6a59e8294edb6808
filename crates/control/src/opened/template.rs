//! Templates as listings show them.

use std::sync::Arc;

use spindle_fs::{FileSystem, TemplateCaching};

use crate::api::view::TemplateReport;

/// Every template of a group, in the order in which they are tried.
#[must_use]
pub(super) fn list(file_system: &Arc<FileSystem>) -> Vec<TemplateReport> {
    let templates = file_system.templates().into_iter();
    templates
        .map(|template| TemplateReport {
            name: template.name,
            pattern: template.pattern,
            redundancy: template
                .redundancy
                .map_or_else(|| "group".to_owned(), |redundancy| redundancy.to_string()),
            striping: template.striping,
            caching: match template.caching {
                TemplateCaching::Auto => "auto",
                TemplateCaching::Cached => "cached",
                TemplateCaching::Direct => "direct",
            }
            .to_owned(),
        })
        .collect()
}
