//! `run FILE`: the experiment, and its report at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, anyhow, ensure};

use super::progress::Progress;
use super::report;
use crate::experiment::{Experiment, beside};
use crate::measure::guest;
use crate::measure::run::{Manner, run as measure};

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// The file of the experiment
    file: PathBuf,
    /// The folder of the results; the file's name without its ending where it is not given
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Use this block device although something stands on it: it is lost
    #[arg(long, value_name = "DEVICE")]
    erase: Vec<PathBuf>,
    /// In a guest with a kernel of its own (user-mode Linux), which has device-mapper, md and NFS;
    /// the same as `guest = true` in the file
    #[arg(long)]
    guest: bool,
}

pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let text = fs::read_to_string(&arguments.file)
        .with_context(|| format!("cannot read {}", arguments.file.display()))?;
    let folder = arguments
        .output
        .clone()
        .unwrap_or_else(|| arguments.file.with_extension(""));
    run_text(
        &text,
        &arguments.file,
        &folder,
        &arguments.erase,
        arguments.guest,
    )
}

pub(super) fn run_text(
    text: &str,
    file: &Path,
    folder: &Path,
    erase: &[PathBuf],
    in_guest: bool,
) -> Result<ExitCode> {
    let mut experiment =
        Experiment::parse(text).map_err(|mistake| anyhow!("{}: {mistake}", file.display()))?;
    let directory = file.parent().unwrap_or_else(|| Path::new(""));
    experiment
        .read_scripts(|script| beside(directory, script))
        .map_err(Error::msg)?;
    let finished = if in_guest || experiment.guest {
        guest::run(text, &experiment, folder, erase, &mut Progress::of(folder))
    } else {
        ensure!(
            !folder.join(guest::CONSOLE).exists(),
            "the runs in {} are those of a guest; go on with --guest, or give another folder by --output",
            folder.display()
        );
        measure(
            text,
            &experiment,
            folder,
            erase,
            &Manner::default(),
            &mut Progress::of(folder),
        )
    };
    let finished = finished.map_err(|error| {
        if folder.join("plan.json").exists() {
            error.context(format!(
                "not finished; what was measured stays in {}",
                folder.display()
            ))
        } else {
            error
        }
    })?;
    report::write(folder)?;
    Ok(if finished.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
