//! What the page cache holds of the data when the load begins: nothing, or all of it.
//!
//! Only the data's own files are touched, never the whole machine's caches.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise};

use crate::measure::control_group::ControlGroup;
use crate::measure::program::run_within;

/// Makes everything below `path` durable and drops it from the page cache.
///
/// # Errors
/// Where it cannot be read.
pub fn evict(path: &Path) -> Result<()> {
    let anything = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    rustix::fs::syncfs(&anything).context("what was restored cannot be made durable")?;
    evict_below(path)
}

fn evict_below(path: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            evict_below(&entry?.path())?;
        }
        return Ok(());
    }
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)
        .with_context(|| format!("the cache of {} cannot be dropped", path.display()))
}

const WARM_AT_MOST: Duration = Duration::from_secs(3600);

/// Reads everything below `path` once, on the account of the group.
///
/// # Errors
/// Where it cannot be read.
pub fn warm(path: &Path, group: &ControlGroup) -> Result<()> {
    let mut read = Command::new("/bin/sh");
    read.args([
        "-c",
        "find \"$1\" -type f -exec cat {} + >/dev/null",
        "warm",
    ]);
    let ended = run_within(&mut group.wrap(read.arg(path)), WARM_AT_MOST)?;
    if !ended.status.success() {
        bail!("the data cannot be read: {}", ended.stderr.trim());
    }
    Ok(())
}
