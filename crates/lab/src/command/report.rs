//! `report DIR`: what the analysis says, for people and for programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::analyse::folder;
use crate::analyse::summary::summarise;
use crate::outlet::put;
use crate::record::{write_json, write_whole};
use crate::render::{csv, html, terminal};
use crate::say;

/// What `report` takes.
#[derive(Debug, clap::Args)]
pub struct ReportArguments {
    /// The folder of an experiment
    folder: PathBuf,
}

pub(super) fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    write(&arguments.folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes everything and prints the table.
pub(super) fn write(path: &Path) -> Result<()> {
    let folder = folder::read(path)?;
    let summary = summarise(&folder);
    write_json(&path.join("summary.json"), &summary)?;
    write_whole(&path.join("samples.csv"), &csv::samples(&folder))?;
    let report = path.join("report.html");
    write_whole(&report, &html::page(&folder, &summary))?;
    put(format_args!("{}", terminal::table(&summary)));
    say!("report: {}", report.display());
    Ok(())
}
