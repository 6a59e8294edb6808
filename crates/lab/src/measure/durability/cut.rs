//! The cut: what a contender still has after a loss of power at any moment.
//!
//! It is made on disks that are recorded ([`super::super::recorder`]). Clients write, each in one of
//! the [`Way`]s, and note after each answer how much was recorded by then. Then the disks are
//! rebuilt as at many moments, the contender is started again on each, and every write that was
//! acknowledged before the moment must be found, whole. Half of the moments lie just after an
//! answer: that is where a lie shows.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use spindle_testbed::interrupt;

use super::ways::{Way, open};
use crate::measure::contender::{Contender, Place, Site};
use crate::measure::control_group::ControlGroup;
use crate::measure::device::{Leaf, attach};
use crate::measure::journal::{Journal, Made, Undo};
use crate::measure::patience::Watch;
use crate::measure::recorder::history::History;
use crate::measure::recorder::{Disks, Recorder};

const WAYS: [Way; 4] = [Way::Fdatasync, Way::OpenDsync, Way::WriteDsync, Way::Rename];
/// Clients of each way.
const CLIENTS: u32 = 2;
/// Writes of each client.
const WRITES: u64 = 40;
const BLOCK_BYTES: usize = 4096;
/// What is written over is written over in turn.
const SLOTS: u64 = 16;

/// What is to be cut, and how.
pub struct Order<'a> {
    /// Whose promise is looked at.
    pub contender: &'a dyn Contender,
    /// The lab's own command, which serves the recorder.
    pub program: &'a Path,
    /// Undoes everything.
    pub journal: &'a Journal,
    /// Of the contender's daemon.
    pub group: &'a ControlGroup,
    /// Told of what takes long.
    pub watch: &'a Watch,
    /// An empty directory for all of it.
    pub directory: &'a Path,
    /// The disks that are made.
    pub disks: Disks,
    /// At how many moments they are cut.
    pub moments: u32,
    /// What moments and losses are drawn from.
    pub seed: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Moments that were looked at.
    pub moments: u32,
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// What was acknowledged and not found, one sentence a moment.
    pub lost: Vec<String>,
}

/// An answer that a client got.
#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    client: u32,
    number: u64,
    /// The records at the time.
    sequence: u64,
}

/// Makes the contender, writes, cuts and looks.
///
/// # Errors
/// Where it cannot be made, or the disks not be rebuilt; what is lost is no error.
pub fn cut(order: &Order<'_>) -> Result<Outcome> {
    let (history, acknowledged) = recorded(order)?;
    let first = acknowledged
        .iter()
        .map(|one| one.sequence)
        .min()
        .context("nothing was acknowledged")?;
    let mut random = fastrand::Rng::with_seed(order.seed);
    let mut lost = Vec::new();
    for moment in 0..order.moments {
        interrupt::check()?;
        let at = if moment % 2 == 0 {
            acknowledged[random.usize(..acknowledged.len())].sequence
        } else {
            random.u64(first..=history.len())
        };
        if let Some(what) = look(order, &history, &acknowledged, at, &mut random)
            .with_context(|| format!("the cut after record {at}"))?
        {
            lost.push(format!("cut after record {at}: {what}"));
        }
    }
    Ok(Outcome {
        moments: order.moments,
        acknowledged: acknowledged.len(),
        lost,
    })
}

fn recorded(order: &Order<'_>) -> Result<(History, Vec<Acknowledged>)> {
    let below = order.directory.join("disks");
    fs::create_dir(&below).with_context(|| format!("cannot make {}", below.display()))?;
    let recorder = Recorder::start(order.journal, order.program, &below, order.disks)?;
    let scratch = order.directory.join("first");
    fs::create_dir(&scratch)?;
    let log = order.directory.join("log");
    let standing = order
        .contender
        .make(&site(order, &recorder.leaves, &scratch, &log))
        .context("it could not be made")?;
    let Place::Directory(place) = &standing.place else {
        bail!("a device without a file system keeps what it is told to");
    };
    let acknowledged = write_all(place, &recorder.sequence_file())?;
    standing.remove()?;
    Ok((recorder.finish()?, acknowledged))
}

fn site<'a>(
    order: &'a Order<'_>,
    leaves: &'a [Leaf],
    scratch: &'a Path,
    log: &'a Path,
) -> Site<'a> {
    Site {
        journal: order.journal,
        leaves,
        group: order.group,
        scratch,
        log,
        profile: "postgresql",
        watch: order.watch,
    }
}

fn way_of(client: u32) -> Way {
    WAYS[client as usize % WAYS.len()]
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

/// What a client writes: whose it is and which, and bytes that nothing else has.
fn block(client: u32, number: u64) -> Vec<u8> {
    let mut bytes = format!("{client} {number} ").into_bytes();
    let mut random = fastrand::Rng::with_seed(u64::from(client) << 32 | number);
    bytes.resize_with(BLOCK_BYTES, || random.u8(b'a'..=b'z'));
    bytes
}

/// The number of a block that is whole and the client's.
fn number_of(bytes: &[u8], client: u32) -> Option<u64> {
    let mut words = bytes.split(|byte| *byte == b' ');
    let own = words.next()?;
    let number = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    (own == client.to_string().as_bytes() && bytes == block(client, number)).then_some(number)
}

fn write_all(place: &Path, sequence: &Path) -> Result<Vec<Acknowledged>> {
    let clients = CLIENTS * u32::try_from(WAYS.len())?;
    for client in 0..clients {
        let folder = folder(place, client);
        fs::create_dir(&folder)?;
        let file = File::create_new(folder.join("file"))?;
        if way_of(client) == Way::WriteDsync {
            file.write_all_at(&vec![0; BLOCK_BYTES * 16], 0)?;
        }
        file.sync_all()?;
        File::open(&folder)?.sync_all()?;
    }
    File::open(place)?.sync_all()?;
    let results: Vec<Result<Vec<Acknowledged>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
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
    let mut all = Vec::new();
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
    for number in 0..WRITES {
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
                fs::rename(&beside, folder.join("renamed"))?;
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

/// Starts the contender on the disks of one moment; gives what is not there.
fn look(
    order: &Order<'_>,
    history: &History,
    acknowledged: &[Acknowledged],
    at: u64,
    random: &mut fastrand::Rng,
) -> Result<Option<String>> {
    let directory = order.directory.join("moment");
    let _made = order.journal.intend(Undo::Directory(directory.clone()))?;
    fs::create_dir(&directory)?;
    let paths: Vec<PathBuf> = (0..order.disks.count)
        .map(|index| directory.join(format!("disk-{index}")))
        .collect();
    history.rebuild(at, random, &paths, order.disks.size_bytes)?;
    let mut disks = Rebuilt::default();
    for path in &paths {
        disks
            .made
            .push(order.journal.intend(Undo::LoopOver(path.clone()))?);
        disks.leaves.push(attach(path)?);
    }
    let log = order.directory.join("log");
    let site = site(order, &disks.leaves, &directory, &log);
    let standing = match order.contender.start_again(&site) {
        Ok(standing) => standing,
        Err(error) => return Ok(Some(format!("it does not start again: {error:#}"))),
    };
    let Place::Directory(place) = standing.place.clone() else {
        bail!("a device without a file system keeps what it is told to");
    };
    let missing = missing(&place, acknowledged, at);
    standing.remove()?;
    Ok(missing)
}

/// Undone in the reverse order.
#[derive(Default)]
struct Rebuilt {
    leaves: Vec<Leaf>,
    made: Vec<Made>,
}

impl Drop for Rebuilt {
    fn drop(&mut self) {
        while let Some(made) = self.made.pop() {
            drop(made);
        }
    }
}

fn missing(place: &Path, acknowledged: &[Acknowledged], at: u64) -> Option<String> {
    let before: Vec<&Acknowledged> = acknowledged
        .iter()
        .filter(|one| one.sequence <= at)
        .collect();
    let mut found_missing = 0;
    let mut first = None;
    for one in &before {
        let way = way_of(one.client);
        let path = folder(place, one.client).join(file_name(way));
        let mut bytes = vec![0; BLOCK_BYTES];
        let offset = slot(way, one.number) * BLOCK_BYTES as u64;
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        let found = read.ok().and_then(|()| number_of(&bytes, one.client));
        if found.is_none_or(|number| number < one.number) {
            found_missing += 1;
            first.get_or_insert_with(|| {
                format!(
                    "write {} of client {} by {}, there is {}",
                    one.number,
                    one.client,
                    way.name(),
                    found.map_or("none".to_owned(), |number| format!("write {number}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_only_whole_and_by_its_own_client() {
        let mut bytes = block(3, 17);
        assert_eq!(number_of(&bytes, 3), Some(17));
        assert_eq!(number_of(&bytes, 4), None);
        assert_eq!(number_of(&[0; BLOCK_BYTES], 0), None);
        bytes[BLOCK_BYTES - 1] = 0;
        assert_eq!(number_of(&bytes, 3), None);
    }
}
