//! The clients of the cut: what each writes, the log of what was acknowledged, and the look into it.
//!
//! Those that work alone wait for each answer with nothing else under way; then eight write at once,
//! two in each [`Way`]. After each answer a client notes how much was recorded by then. It writes
//! again only after that, so that at any moment exactly one write of each client is under way: the
//! one after its last that was acknowledged.
//!
//! A place that is written over in the middle of a file promises nothing of the bytes until the
//! write is acknowledged: a disk that lost its power in between holds sectors of the old and of the
//! new, and a file system with blocks of 1 KiB lays four of them across two blocks of a disk. So each
//! sector is looked up by itself, and the write that was under way may be there in part. What was
//! acknowledged must not be older anywhere.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use super::super::ways::{Way, open};

const WAYS: [Way; 4] = [Way::Fdatasync, Way::OpenDsync, Way::WriteDsync, Way::Rename];
/// Clients that write at once, as many of each way.
const TOGETHER: u32 = 8;
/// Writes of each of them.
const WRITES: u64 = 40;
/// Writes of each client that works alone; there is one of each way.
const WRITES_ALONE: u64 = 20;
const BLOCK_BYTES: usize = 4096;
/// No disk tears less.
const SECTOR_BYTES: usize = 512;
/// What is written over is written over in turn.
const SLOTS: u64 = 16;

/// An answer that a client got.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    client: u32,
    number: u64,
    /// The records at the time.
    pub(super) sequence: u64,
}

fn way_of(client: u32) -> Way {
    WAYS[client as usize % WAYS.len()]
}

fn writes_of(client: u32) -> u64 {
    if client < TOGETHER {
        WRITES
    } else {
        WRITES_ALONE
    }
}

fn folder(place: &Path, client: u32) -> PathBuf {
    place.join(format!("client-{client}"))
}

/// Which place of its file a write goes to: logs grow, pages are written over.
fn slot(way: Way, number: u64) -> u64 {
    match way {
        Way::Fdatasync | Way::OpenDsync => number,
        Way::WriteDsync => number % SLOTS,
        Way::Rename => 0,
    }
}

fn file_name(way: Way) -> &'static str {
    if way == Way::Rename {
        "renamed"
    } else {
        "file"
    }
}

/// What a client writes: in each sector whose it is, which, and bytes that nothing else has.
fn block(client: u32, number: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    for sector in 0..BLOCK_BYTES / SECTOR_BYTES {
        let end = bytes.len() + SECTOR_BYTES;
        bytes.extend(format!("{client} {number} {sector} ").into_bytes());
        let mut random =
            fastrand::Rng::with_seed(u64::from(client) << 32 | number << 8 | sector as u64);
        bytes.resize_with(end, || random.u8(b'a'..=b'z'));
    }
    bytes
}

/// The number of each sector of a block; none of one that is not whole, or not the client's.
fn numbers_of(bytes: &[u8], client: u32) -> Vec<Option<u64>> {
    bytes
        .chunks(SECTOR_BYTES)
        .enumerate()
        .map(|(index, sector)| {
            let word = sector.split(|byte| *byte == b' ').nth(1)?;
            let number = std::str::from_utf8(word).ok()?.parse().ok()?;
            let whole = block(client, number);
            (whole.chunks(SECTOR_BYTES).nth(index) == Some(sector)).then_some(number)
        })
        .collect()
}

/// Writes all there is to write; gives every answer.
pub(super) fn write_all(place: &Path, sequence: &Path) -> Result<Vec<Acknowledged>> {
    let alone = TOGETHER..TOGETHER + u32::try_from(WAYS.len())?;
    for client in 0..alone.end {
        let folder = folder(place, client);
        fs::create_dir(&folder)?;
        let file = File::create_new(folder.join("file"))?;
        if way_of(client) == Way::WriteDsync {
            for slot in 0..SLOTS {
                file.write_all_at(&[0; BLOCK_BYTES], slot * BLOCK_BYTES as u64)?;
            }
        }
        file.sync_all()?;
        File::open(&folder)?.sync_all()?;
    }
    File::open(place)?.sync_all()?;
    let mut all = Vec::new();
    for client in alone {
        all.extend(write(place, sequence, client).context("a client of the cut, alone")?);
    }
    let results: Vec<Result<Vec<Acknowledged>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..TOGETHER)
            .map(|client| scope.spawn(move || write(place, sequence, client)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a client of the cut panicked")))
            })
            .collect()
    });
    for result in results {
        all.extend(result.context("a client of the cut")?);
    }
    Ok(all)
}

fn write(place: &Path, sequence: &Path, client: u32) -> Result<Vec<Acknowledged>> {
    let way = way_of(client);
    let folder = folder(place, client);
    let flags = if way == Way::OpenDsync {
        OFlags::DSYNC
    } else {
        OFlags::empty()
    };
    let file = open(&folder.join("file"), flags)?;
    let sequence = File::open(sequence)?;
    let mut acknowledged = Vec::new();
    for number in 0..writes_of(client) {
        let bytes = block(client, number);
        let offset = slot(way, number) * BLOCK_BYTES as u64;
        match way {
            Way::Fdatasync => {
                file.write_all_at(&bytes, offset)?;
                file.sync_data()?;
            }
            Way::OpenDsync => file.write_all_at(&bytes, offset)?,
            Way::WriteDsync => {
                let pieces = [IoSlice::new(&bytes)];
                let written = rustix::io::pwritev2(&file, &pieces, offset, ReadWriteFlags::DSYNC)?;
                ensure!(written == bytes.len(), "a write was cut short");
            }
            Way::Rename => {
                let beside = folder.join("new");
                let new = File::create(&beside)?;
                new.write_all_at(&bytes, 0)?;
                new.sync_all()?;
                fs::rename(&beside, folder.join(file_name(way)))?;
                File::open(&folder)?.sync_all()?;
            }
        }
        let mut text = [0; 32];
        let length = sequence.read_at(&mut text, 0)?;
        acknowledged.push(Acknowledged {
            client,
            number,
            sequence: std::str::from_utf8(&text[..length])?.trim().parse()?,
        });
    }
    Ok(acknowledged)
}

/// What was acknowledged before the moment `at` and is not in `place`, in a sentence.
pub(super) fn missing(place: &Path, acknowledged: &[Acknowledged], at: u64) -> Option<String> {
    let before: Vec<&Acknowledged> = acknowledged
        .iter()
        .filter(|one| one.sequence <= at)
        .collect();
    let mut found_missing = 0;
    let mut first = None;
    for one in &before {
        if let Err(found) = look_up(place, one) {
            found_missing += 1;
            first.get_or_insert_with(|| {
                format!(
                    "write {} of client {} by {}, there is {found}",
                    one.number,
                    one.client,
                    way_of(one.client).name(),
                )
            });
        }
    }
    let first = first?;
    Some(format!(
        "{found_missing} of {} acknowledged writes are lost; the first: {first}",
        before.len()
    ))
}

/// Whether a write is there, or a later one of its place; what is there instead.
fn look_up(place: &Path, one: &Acknowledged) -> Result<(), String> {
    let way = way_of(one.client);
    let path = folder(place, one.client).join(file_name(way));
    let mut bytes = vec![0; BLOCK_BYTES];
    let offset = slot(way, one.number) * BLOCK_BYTES as u64;
    File::open(&path)
        .and_then(|file| file.read_exact_at(&mut bytes, offset))
        .map_err(|error| format!("none ({error})"))?;
    let numbers = numbers_of(&bytes, one.client);
    let oldest = numbers.iter().copied().min().flatten();
    let Some(oldest) = oldest else {
        let known = numbers.iter().filter(|number| number.is_some()).count();
        return Err(format!("none, in {} of 8 sectors", numbers.len() - known));
    };
    if oldest < one.number {
        return Err(format!("write {oldest}"));
    }
    // A name changes from one file to another, and each of them was whole before.
    let is_torn = numbers.iter().any(|number| *number != Some(oldest));
    if way == Way::Rename && is_torn {
        return Err("a file that was torn".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in the first slot of a client after the moment 41, sector by sector. Of this slot
    /// the writes 0 and 16 were acknowledged, and 32 is under way.
    fn found(client: u32, number_of: impl Fn(usize) -> Option<u64>) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        let folder = folder(place.path(), client);
        fs::create_dir(&folder).unwrap();
        let bytes: Vec<u8> = (0..8)
            .flat_map(|sector| match number_of(sector) {
                Some(number) => block(client, number)[sector * 512..][..512].to_vec(),
                None => vec![0; 512],
            })
            .collect();
        fs::write(folder.join(file_name(way_of(client))), bytes).unwrap();
        let acknowledged = [(0, 10), (16, 26), (32, 42)].map(|(number, sequence)| Acknowledged {
            client,
            number,
            sequence,
        });
        missing(place.path(), &acknowledged, 41)
    }

    const OVERWRITES: u32 = 2;
    const RENAMES: u32 = 3;

    #[test]
    fn a_sector_is_known_only_whole_and_by_its_own_client_and_place() {
        let mut bytes = block(3, 17);
        assert_eq!(numbers_of(&bytes, 3), [Some(17); 8]);
        assert_eq!(numbers_of(&bytes, 4), [None; 8]);
        assert_eq!(numbers_of(&[0; BLOCK_BYTES], 0), [None; 8]);
        bytes[BLOCK_BYTES - 1] = 0;
        assert_eq!(numbers_of(&bytes, 3)[6..], [Some(17), None]);
        bytes.copy_within(..512, 512);
        assert_eq!(numbers_of(&bytes, 3)[..2], [Some(17), None]);
    }

    #[test]
    fn a_block_that_is_being_written_over_may_be_torn_between_the_old_and_the_new() {
        assert_eq!(found(OVERWRITES, |_| Some(16)), None);
        assert_eq!(found(OVERWRITES, |_| Some(32)), None);
        let torn = |sector| Some(if sector < 3 { 32 } else { 16 });
        assert_eq!(found(OVERWRITES, torn), None);
    }

    #[test]
    fn a_sector_that_is_older_than_what_was_acknowledged_is_lost_and_so_is_one_of_nobody() {
        let older = |sector| Some(if sector == 7 { 0 } else { 16 });
        let what = found(OVERWRITES, older).unwrap();
        assert!(what.starts_with("1 of 2 acknowledged"), "{what}");
        assert!(
            what.contains("write 16") && what.ends_with("write 0"),
            "{what}"
        );
        assert!(found(RENAMES, older).is_some());
        for client in [OVERWRITES, RENAMES] {
            let nobodys = found(client, |sector| (sector != 7).then_some(16)).unwrap();
            assert!(nobodys.starts_with("2 of 2"), "{nobodys}");
        }
    }

    #[test]
    fn a_file_that_took_the_name_of_another_is_whole() {
        assert_eq!(found(RENAMES, |_| Some(32)), None);
        let torn = |sector| Some(if sector < 3 { 32 } else { 16 });
        assert!(
            found(RENAMES, torn)
                .unwrap()
                .ends_with("a file that was torn")
        );
    }
}
