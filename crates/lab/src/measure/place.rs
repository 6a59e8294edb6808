//! Mounts: what is mounted where, and taking it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::program::{command, run_within};

/// Every mount of this machine: (where, what).
///
/// # Errors
/// Where the kernel's list cannot be read.
pub fn mounts() -> Result<Vec<(PathBuf, String)>> {
    let list = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    Ok(list
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let place = before.split(' ').nth(4)?;
            let source = after.split(' ').nth(1)?;
            // Blanks are written as \040.
            Some((
                PathBuf::from(place.replace("\\040", " ")),
                source.to_owned(),
            ))
        })
        .collect())
}

/// Whether something is mounted exactly here.
///
/// # Errors
/// Where the kernel's list cannot be read.
pub fn is_mounted(path: &Path) -> Result<bool> {
    Ok(mounts()?.iter().any(|(place, _)| place == path))
}

/// What is mounted here and further down.
///
/// # Errors
/// Where the kernel's list cannot be read.
pub fn mounts_below(path: &Path) -> Result<Vec<PathBuf>> {
    Ok(mounts()?
        .into_iter()
        .map(|(place, _)| place)
        .filter(|place| place.starts_with(path))
        .collect())
}

/// Takes away by force what is mounted here and further down: who waits for it gets an error.
pub fn force_mounts_away(path: &Path) {
    let mut mounts = mounts_below(path).unwrap_or_default();
    // What was mounted last lies on top.
    mounts.reverse();
    for mount in mounts {
        let _ = run_within(command("umount").arg("--force").arg(&mount), FORCED_AT_MOST);
    }
}

/// What is dirty may take this long to be written.
const UNMOUNT_AT_MOST: Duration = Duration::from_secs(120);

/// By force nothing is waited for.
const FORCED_AT_MOST: Duration = Duration::from_secs(10);

/// Unmounts whatever is mounted here; what is busy is tried again, what hangs is forced, and at
/// last it is done lazily.
///
/// # Errors
/// Where it stays.
pub fn unmount(path: &Path) -> Result<()> {
    let mut hangs = false;
    for attempt in 0..40 {
        if !is_mounted(path)? {
            return Ok(());
        }
        let mut unmount = command("umount");
        if hangs {
            unmount.arg("--force");
        }
        if attempt >= 30 || (hangs && attempt >= 3) {
            unmount.arg("--lazy");
        }
        let limit = if hangs {
            FORCED_AT_MOST
        } else {
            UNMOUNT_AT_MOST
        };
        // Its words are told at the end, where all attempts were in vain.
        match run_within(unmount.arg(path), limit) {
            Ok(ended) if ended.status.success() => {}
            Ok(_) => thread::sleep(Duration::from_millis(50)),
            Err(_) => hangs = true,
        }
    }
    if is_mounted(path)? {
        bail!("{} stays mounted", path.display());
    }
    Ok(())
}
