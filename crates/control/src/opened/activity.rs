//! Running counters of disks and files at one time.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::Instant;

use spindle_device::DiskSlot;

use crate::api::view::{ActivityReport, ActivitySample, Counters};
use crate::opened::open::Opened;

/// Files told of at most, those with the most requests first.
const FILES_MOST: usize = 4096;

/// Files whose names are looked for in their directories at a time: that reads these directories.
const LOOKED_FOR_MOST: usize = 16;

/// A clock that begins with the process and never goes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskClock(Instant);

impl Default for DiskClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// The counters of every disk, and of the files that were used.
#[must_use]
pub(crate) fn sample(clock: &DiskClock, opened: &Opened) -> ActivitySample {
    let view = opened.group().view();
    let slots = opened.slots();
    // By path, because a look through all slots for each of a thousand disks takes milliseconds.
    let slots: HashMap<&OsStr, DiskSlot> = (slots.iter())
        .map(|(slot, path)| (path.as_os_str(), *slot))
        .collect();
    let mut disks = Vec::new();
    for disk in view.disks {
        let slot = disk
            .path
            .as_deref()
            .and_then(|path| slots.get(OsStr::new(path)));
        let counters = slot.map(|slot| opened.engine().counters(*slot));
        disks.push(ActivityReport {
            id: u64::from(disk.number.0),
            name: disk.name.to_string(),
            counters: counters.unwrap_or_default(),
        });
    }
    ActivitySample {
        group: view.name.to_string(),
        time_us: u64::try_from(clock.0.elapsed().as_micros()).unwrap_or(u64::MAX),
        disks,
        files: files(opened),
    }
}

fn files(opened: &Opened) -> Vec<ActivityReport> {
    let file_system = opened.file_system();
    let mut busy = file_system.activity();
    busy.sort_by_key(|file| std::cmp::Reverse(file.reads_count + file.writes_count));
    busy.truncate(FILES_MOST);
    let mut looked_for_count = 0;
    let mut path_of = |id| {
        let recent = file_system.recent_path(id);
        if recent.is_some() || looked_for_count >= LOOKED_FOR_MOST {
            return recent;
        }
        // Open since before this process took over: nobody has asked for it by its name.
        looked_for_count += 1;
        file_system.path_of(id).ok().flatten()
    };
    busy.into_iter()
        .map(|file| ActivityReport {
            id: file.id.0,
            name: path_of(file.id).map_or_else(
                || format!("file {}", file.id),
                |path| path.to_string_lossy().into_owned(),
            ),
            counters: Counters {
                reads_count: file.reads_count,
                writes_count: file.writes_count,
                read_bytes: file.read_bytes,
                written_bytes: file.written_bytes,
                read_time_us: file.read_time_us,
                write_time_us: file.write_time_us,
            },
        })
        .collect()
}
