//! The layers between a database and the devices, each by what it counted itself: what the database
//! says that it read and wrote, what the file system was asked for past the page cache, what the
//! leaf devices did.
//!
//! For the kernel's file systems the middle layer is the kernel's account of the processes: what was
//! fetched from devices for them, and what they wrote. For Spindle it is what its mount was asked
//! for, by its own counters. Both stand above copies, metadata and journals.
//!
//! The kernel's account of what is to be written counts a large folio whole each time a piece of it
//! is dirtied: thirty times what a write-ahead log writes. System calls count exactly, but not the
//! requests of libaio, which go past the page cache, where the account is exact again. So the smaller
//! of the two is taken where the page cache is used, and the account where it is not.

use super::one_run::Ends;
use crate::measure::sampler::iostat;
use crate::record::{Layer, ObjectActivity};

/// How many files, tables and indexes a run tells of.
const OBJECTS_AT_MOST: usize = 12;

pub(super) fn database(ends: &Ends, block_bytes: f64) -> Layer {
    let grown = |name: &str| ends.until.database(name) - ends.from.database(name);
    Layer {
        name: "database".to_owned(),
        read_bytes: grown("database_blocks_read") * block_bytes,
        written_bytes: grown("database_blocks_written") * block_bytes + grown("database_log_bytes"),
        reads: grown("database_blocks_read"),
        writes: grown("database_blocks_written") + grown("database_log_writes"),
    }
}

/// `is_direct` where what asks goes past the page cache.
pub(super) fn filesystem(ends: &Ends, is_direct: bool) -> Layer {
    let files = files(ends);
    if ends.until.storage.is_some() {
        let sum = |of: fn(&iostat::Counted) -> f64| files.iter().map(of).sum();
        return Layer {
            name: "file system".to_owned(),
            read_bytes: sum(|file| file.read_bytes),
            written_bytes: sum(|file| file.written_bytes),
            reads: sum(|file| file.reads),
            writes: sum(|file| file.writes),
        };
    }
    let (from, until) = (ends.from.transfers, ends.until.transfers);
    let stored_bytes = until.stored_bytes - from.stored_bytes;
    let asked_bytes = until.asked_written_bytes - from.asked_written_bytes;
    Layer {
        name: "file system".to_owned(),
        read_bytes: until.fetched_bytes - from.fetched_bytes,
        written_bytes: if is_direct {
            stored_bytes
        } else {
            stored_bytes.min(asked_bytes)
        },
        // The kernel counts bytes here, not requests.
        reads: 0.0,
        writes: 0.0,
    }
}

/// What the storage's own counters say of each file.
fn files(ends: &Ends) -> Vec<iostat::Counted> {
    match (&ends.until.storage, &ends.from.storage) {
        (Some(until), Some(from)) => iostat::since(&until.files, &from.files),
        _ => Vec::new(),
    }
}

/// Tables and indexes between two readings: (name, blocks read, blocks found in memory).
pub(super) fn objects(
    before: &[(String, f64, f64)],
    after: &[(String, f64, f64)],
    block_bytes: f64,
) -> Vec<ObjectActivity> {
    after
        .iter()
        .map(|(name, read, found)| {
            let earlier = before.iter().find(|(other, _, _)| other == name);
            let (read_before, found_before) =
                earlier.map_or((0.0, 0.0), |(_, read, found)| (*read, *found));
            let (read, found) = (read - read_before, found - found_before);
            ObjectActivity {
                name: name.clone(),
                read_bytes: read * block_bytes,
                written_bytes: None,
                hit_share: (read + found > 0.0).then(|| found / (read + found)),
            }
        })
        .collect()
}

/// The busiest tables and indexes of the database, and files of the storage.
pub(super) fn busiest(ends: &Ends) -> Vec<ObjectActivity> {
    let mut objects = ends.objects.clone();
    let mut files: Vec<ObjectActivity> = files(ends)
        .into_iter()
        .map(|file| ObjectActivity {
            name: file.name,
            read_bytes: file.read_bytes,
            written_bytes: Some(file.written_bytes),
            hit_share: None,
        })
        .collect();
    for kind in [&mut objects, &mut files] {
        kind.retain(|object| bytes(object) > 0.0 || object.hit_share.is_some());
        kind.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
        kind.truncate(OBJECTS_AT_MOST);
    }
    objects.extend(files);
    objects
}

fn bytes(object: &ObjectActivity) -> f64 {
    object.read_bytes + object.written_bytes.unwrap_or(0.0)
}
