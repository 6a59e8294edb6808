//! The server of recorded disks, as a process of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::measure::recorder::{Disks, server};

/// What it serves.
#[derive(Debug, Args)]
pub struct RecorderArguments {
    /// Where it is mounted
    point: PathBuf,
    /// The file of the record, which is made
    record: PathBuf,
    /// Disks
    count: u32,
    /// Bytes of each
    size_bytes: u64,
    /// Answer flushes and forget them
    #[arg(long)]
    swallow_flushes: bool,
}

/// Serves until it is unmounted.
pub fn serve(arguments: &RecorderArguments) -> Result<ExitCode> {
    let disks = Disks {
        count: arguments.count,
        size_bytes: arguments.size_bytes,
        swallow_flushes: arguments.swallow_flushes,
    };
    server::serve(&arguments.point, &arguments.record, disks)?;
    Ok(ExitCode::SUCCESS)
}
