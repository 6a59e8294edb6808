//! The cut: what a contender still has after a loss of power at any moment.
//!
//! It is made on disks that are recorded ([`super::super::recorder`]). Clients write, each in one of
//! the ways to make a write durable, and note after each answer how much was recorded by then
//! ([`clients`]). Then the disks are rebuilt as at many moments, the contender is started again on
//! each, and every write that was acknowledged before the moment must be found. Half of the moments
//! lie just after an answer: that is where a lie shows.
//!
//! Nobody is accused by one look: what is not found is looked for once more, on the same disks
//! rebuilt from the same chance, and is lost where it is missing again.

mod clients;

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use spindle_testbed::interrupt;

use self::clients::Acknowledged;
use crate::measure::contender::{Contender, Options, Place, Site};
use crate::measure::control_group::ControlGroup;
use crate::measure::device::{Leaf, attach};
use crate::measure::environment;
use crate::measure::journal::{Journal, Made, Undo};
use crate::measure::patience::Watch;
use crate::measure::program::{command, run};
use crate::measure::recorder::history::{Commit, History};
use crate::measure::recorder::{Disks, Recorder};
use crate::record::JournalCommits;

/// What is told of a commit where the record explains by it that something is lost.
pub const OVERTOOK: &str = "of the journal was written before the flush that it asks for";

/// What is to be cut, and how.
pub struct Order<'a> {
    /// Whose promise is looked at.
    pub contender: &'a dyn Contender,
    /// How it is made and mounted.
    pub options: &'a Options,
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
    /// The name of the database that would live on it.
    pub profile: &'a str,
    /// What moments and losses are drawn from.
    pub seed: u64,
}

/// What was written on recorded disks, and acknowledged.
#[derive(Debug)]
pub struct Recorded {
    history: History,
    acknowledged: Vec<Acknowledged>,
    commits: Vec<Commit>,
    /// The records before the first answer.
    first: u64,
    /// Disks that it uses, the first of them.
    used: usize,
    /// Where the disks are rebuilt, in memory where there is enough of it.
    moments: Moments,
}

impl Recorded {
    /// Makes the contender on recorded disks and writes.
    ///
    /// # Errors
    /// Where it cannot be made, or does not take the writes.
    pub fn make(order: &Order<'_>) -> Result<Self> {
        let below = order.directory.join("disks");
        fs::create_dir(&below).with_context(|| format!("cannot make {}", below.display()))?;
        let recorder = Recorder::start(order.journal, order.program, &below, order.disks)?;
        // No shorter than that of a moment: a path that is too long for a socket must fail here,
        // where it accuses nobody.
        let scratch = order.directory.join("before-the-power-is-cut");
        fs::create_dir(&scratch)?;
        let log = order.directory.join("log");
        let standing = order
            .contender
            .make(&site(order, &recorder.leaves, &scratch, &log))
            .context("it could not be made")?;
        let Place::Directory(place) = &standing.place else {
            bail!("a device without a file system keeps what it is told to");
        };
        let acknowledged = clients::write_all(place, &recorder.sequence_file())?;
        let used = standing.layout.devices.min(order.disks.count) as usize;
        standing.remove()?;
        let first = acknowledged
            .iter()
            .map(|one| one.sequence)
            .min()
            .context("nothing was acknowledged")?;
        let history = recorder.finish()?;
        Ok(Self {
            commits: history.commits(used)?,
            history,
            acknowledged,
            first,
            used,
            moments: Moments::make(order)?,
        })
    }

    /// Writes that were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Commits of a journal that were recorded.
    #[must_use]
    pub fn commits(&self) -> JournalCommits {
        JournalCommits {
            count: self.commits.len(),
            overtook_flush: self.commits.iter().filter(|one| one.overtook()).count(),
        }
    }

    /// Cuts the power at these moments, which the order's seed gives by their numbers, and looks:
    /// what was acknowledged and is lost, a sentence a moment.
    ///
    /// # Errors
    /// Where the disks cannot be rebuilt; what is lost is no error.
    pub fn cut(&self, order: &Order<'_>, moments: Range<u32>) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for moment in moments {
            interrupt::check()?;
            let mut random = fastrand::Rng::with_seed(order.seed ^ u64::from(moment) << 32);
            let at = if moment % 2 == 0 {
                self.acknowledged[random.usize(..self.acknowledged.len())].sequence
            } else {
                random.u64(self.first..=self.history.len())
            };
            let look = |mut random: fastrand::Rng| {
                self.look(order, at, &mut random)
                    .with_context(|| format!("the cut after record {at}"))
            };
            if look(random.clone())?.is_some()
                && let Some(what) = look(random)?
            {
                let mut line = format!("cut {moment}, after record {at}: {what}");
                if let Some(one) = self.commits.iter().find(|one| one.is_bare_at(at)) {
                    let _ = write!(line, "; commit {} {OVERTOOK}", one.transaction);
                }
                lost.push(line);
            }
        }
        Ok(lost)
    }

    /// Starts the contender on the disks of one moment; gives what is not there.
    fn look(
        &self,
        order: &Order<'_>,
        at: u64,
        random: &mut fastrand::Rng,
    ) -> Result<Option<String>> {
        let directory = self.moments.directory.join("moment");
        let _made = order.journal.intend(Undo::Directory(directory.clone()))?;
        fs::create_dir(&directory)?;
        let paths: Vec<PathBuf> = (0..self.used)
            .map(|index| directory.join(format!("disk-{index}")))
            .collect();
        self.history
            .rebuild(at, random, &paths, order.disks.size_bytes)?;
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
        let missing = clients::missing(&place, &self.acknowledged, at);
        standing.remove()?;
        Ok(missing)
    }
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
        profile: order.profile,
        options: order.options,
        watch: order.watch,
    }
}

/// Where the disks of each moment are rebuilt. Most of a cut's time went into files that nobody
/// keeps; in memory a moment takes a third.
#[derive(Debug)]
struct Moments {
    directory: PathBuf,
    _memory: Option<Made>,
}

impl Moments {
    fn make(order: &Order<'_>) -> Result<Self> {
        let directory = order.directory.join("moments");
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let most = u64::from(order.disks.count) * order.disks.size_bytes;
        let has_room = environment::memory_available_bytes().is_some_and(|bytes| bytes > 4 * most);
        if !has_room {
            return Ok(Self {
                directory,
                _memory: None,
            });
        }
        let made = order.journal.intend(Undo::Mount(directory.clone()))?;
        // Beside the disks lie the contender's sockets.
        let size = format!("size={},mode=700", most + (16 << 20));
        let mut mount = command("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "spindle-lab"]);
        let mounted = run(mount.arg(&directory));
        Ok(Self {
            _memory: mounted.is_ok().then_some(made),
            directory,
        })
    }
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
