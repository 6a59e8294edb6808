//! The power of each contender, cut before anything is measured ([`super::durability::cut`]).
//!
//! It is cut on disks of the lab's own, whatever the experiment's devices are: what is looked at is
//! the storage's software. So it is done where the lab owns the devices; on disks that a person
//! named, which may lie themselves, it would promise what nobody saw. What came of it is written
//! after each contender, so that an experiment that goes on does not cut again.
//!
//! A contender that hangs on them, or that cannot be started, is not accused: then nothing was seen,
//! and the reason is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use spindle_testbed::interrupt;

use super::contender::{self, Contender, Options};
use super::control_group::ControlGroup;
use super::durability::cut::{Order, Recorded};
use super::execution::unix_now_s;
use super::journal::{Journal, Undo};
use super::patience::{Attended, Watch, attend};
use super::place::force_mounts_away;
use super::process::{self, Identity};
use super::recorder::Disks;
use super::run::Listener;
use crate::experiment::Experiment;
use crate::record::{Cut, Cuts, Event, History, Plan, SCHEMA, read_json, write_json};

/// The file in the experiment's folder.
pub const FILE: &str = "cuts.json";
/// Of each disk: `mkfs.xfs` refuses less than 300 MB.
const DISK_BYTES: u64 = 320 << 20;
/// More disks show no more of what a storage does with its own.
const DISKS: u32 = 2;
/// Where the file does not say at how many moments, a contender on a slow machine is cut at fewer, and
/// the record says at how many. What a person asked for by its number is done, however long it takes.
const AT_MOST: Duration = Duration::from_secs(50);
/// Moments between two looks at the clock.
const AT_ONCE: u32 = 10;
/// Moments between two lines of progress.
const TOLD_EACH: u32 = 50;

/// Cuts the power of each contender that runs and was not cut yet. `devices_are_the_labs` says that
/// no person named the devices of the experiment.
///
/// # Errors
/// Where the lab is asked to stop, or the folder cannot be written.
pub fn make(
    folder: &Path,
    experiment: &Experiment,
    plan: &Plan,
    devices_are_the_labs: bool,
    journal: &Journal,
    listener: &mut dyn Listener,
) -> Result<()> {
    let moments = experiment.cuts();
    let path = folder.join(FILE);
    let mut cuts: Cuts = read_json(&path).unwrap_or_else(|_| Cuts {
        schema: SCHEMA,
        contenders: std::collections::BTreeMap::new(),
    });
    for name in &experiment.contenders {
        let is_cut = matches!(cuts.contenders.get(name), Some(Cut::Made { .. }));
        if is_cut || plan.not_run.contains_key(name) {
            continue;
        }
        // A loss of power is the storage's: who differs in the database alone shares it.
        if let Some(cut) = cut_of_its_like(experiment, &cuts, name) {
            note(folder, name, &cut)?;
            cuts.contenders.insert(name.clone(), cut);
            write_json(&path, &cuts)?;
            continue;
        }
        let storage = experiment.asked(name).storage;
        let cut = match obstacle_of(&storage, devices_are_the_labs) {
            Some(reason) => Err(anyhow!("{reason}")),
            None if moments == 0 => {
                cuts.contenders.insert(name.clone(), declined());
                continue;
            }
            None => of_one(experiment, name, moments, journal, listener),
        };
        // One that was stopped half way did not happen.
        interrupt::check()?;
        let cut = cut.unwrap_or_else(|error| Cut::NotMade {
            reason: format!("{error:#}")
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
            by_choice: false,
        });
        note(folder, name, &cut)?;
        if moments > 0 {
            listener.tell(&format!("  {}", cut.clause()));
        }
        cuts.contenders.insert(name.clone(), cut);
        write_json(&path, &cuts)?;
    }
    write_json(&path, &cuts)
}

/// The cut of a contender that is made and mounted alike.
fn cut_of_its_like(experiment: &Experiment, cuts: &Cuts, name: &str) -> Option<Cut> {
    let own = experiment.asked(name);
    (experiment.contenders.iter())
        .filter(|other| {
            let other = experiment.asked(other);
            (&other.storage, &other.options) == (&own.storage, &own.options)
        })
        .find_map(|other| match cuts.contenders.get(other) {
            Some(cut @ Cut::Made { .. }) => Some(cut.clone()),
            _ => None,
        })
}

/// Notes a cut in the history before it counts.
fn note(folder: &Path, name: &str, cut: &Cut) -> Result<()> {
    let Cut::Made { moments, lost, .. } = cut else {
        return Ok(());
    };
    let event = Event::Cut {
        at_unix_s: unix_now_s(),
        contender: name.to_owned(),
        moments: *moments,
        lost: lost.len(),
    };
    History::append(folder, event)
}

/// What is noted where a cut could have been made, and the file asks for none.
fn declined() -> Cut {
    Cut::NotMade {
        reason: "the file asks for none, as a look does without `cuts`".to_owned(),
        by_choice: true,
    }
}

/// Why the power of this one is not cut.
fn obstacle(devices_are_the_labs: bool, contender: &dyn Contender) -> Option<&'static str> {
    if !devices_are_the_labs {
        return Some("the lab cuts the power of disks that it makes itself, and these are others");
    }
    if contender.is_device() {
        return Some("a device without a file system has nothing of its own to lose");
    }
    if !contender.starts_again() {
        return Some("how it is started again after a loss of power is not known to the lab");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("the kernel has no FUSE, which recorded disks need");
    }
    None
}

fn obstacle_of(name: &str, devices_are_the_labs: bool) -> Option<&'static str> {
    let contender = contender::find(name).ok()?;
    obstacle(devices_are_the_labs, contender.as_ref())
}

fn of_one(
    experiment: &Experiment,
    name: &str,
    moments: u32,
    journal: &Journal,
    listener: &mut dyn Listener,
) -> Result<Cut> {
    listener.tell(&format!(
        "cutting the power of {name}, at {moments} moments"
    ));
    let asked = experiment.asked(name);
    let contender = contender::find(&asked.storage).map_err(anyhow::Error::msg)?;
    let count = contender
        .devices_at_least()
        .max(DISKS.min(experiment.devices.count));
    // One that hung may have left its own.
    let place = (experiment.contenders.iter()).position(|other| other == name);
    let own_name = format!(
        "spindle-lab-cut-{}-{}-{}",
        std::process::id(),
        place.unwrap_or(0),
        asked.storage
    );
    let directory = experiment.devices.directory.join(&own_name);
    let _made = journal.intend(Undo::Directory(directory.clone()))?;
    fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let stage = Arc::new(Stage {
        contender: asked.storage,
        options: asked.options,
        program: std::env::current_exe().context("the lab's own command is not known")?,
        group: ControlGroup::make(journal, &own_name, None)?,
        journal: journal.clone(),
        watch: Watch::new(experiment.patience),
        directory,
        disks: Disks {
            count,
            size_bytes: DISK_BYTES.max(contender.device_bytes_at_least()),
            swallow_flushes: false,
        },
        profile: experiment.database.kind.name(),
        seed: experiment.seed,
    });
    let began = Instant::now();
    let recorded = Arc::new(stage.attended("writing on recorded disks", Recorded::make)?);
    let mut done = 0;
    let mut lost = Vec::new();
    let mut slowest = Duration::ZERO;
    let at_most = time_at_most(experiment);
    while done < moments && at_most.is_none_or(|at_most| began.elapsed() + slowest < at_most) {
        let since = Instant::now();
        let next = moments.min(done + AT_ONCE);
        let (recorded, batch) = (Arc::clone(&recorded), done..next);
        lost.extend(
            stage.attended("looking after a loss of power", move |order| {
                recorded.cut(order, batch)
            })?,
        );
        done = next;
        slowest = slowest.max(since.elapsed());
        if done % TOLD_EACH == 0 && done < moments {
            listener.tell(&format!(
                "  {done} of {moments}: {} ({} s)",
                if lost.is_empty() {
                    "nothing lost"
                } else {
                    "acknowledged writes are lost"
                },
                began.elapsed().as_secs()
            ));
        }
    }
    ensure!(
        done > 0,
        "its clients were so slow that no time was left for it"
    );
    Ok(Cut::Made {
        moments: done,
        acknowledged: recorded.acknowledged(),
        lost,
        commits: recorded.commits(),
        seed: experiment.seed,
        elapsed_s: began.elapsed().as_secs_f64(),
    })
}

/// How long the cuts of one contender go on; none where the file names their number.
fn time_at_most(experiment: &Experiment) -> Option<Duration> {
    experiment.cuts.is_none().then_some(AT_MOST)
}

/// What a cut needs, for a thread that may have to be left behind.
struct Stage {
    contender: String,
    options: Options,
    program: PathBuf,
    group: ControlGroup,
    journal: Journal,
    watch: Watch,
    directory: PathBuf,
    disks: Disks,
    profile: &'static str,
    seed: u64,
}

impl Stage {
    /// Does a part of it and attends to it.
    fn attended<T: Send + 'static>(
        self: &Arc<Self>,
        step: &'static str,
        work: impl FnOnce(&Order<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stage = Arc::clone(self);
        let work = move || {
            stage.watch.begin(step, 0, Duration::ZERO)?;
            let contender = contender::find(&stage.contender).map_err(anyhow::Error::msg)?;
            work(&Order {
                contender: contender.as_ref(),
                options: &stage.options,
                program: &stage.program,
                journal: &stage.journal,
                group: &stage.group,
                watch: &stage.watch,
                directory: &stage.directory,
                disks: stage.disks,
                profile: stage.profile,
                seed: stage.seed,
            })
        };
        let members = || -> Vec<Identity> {
            let members = self.group.members().into_iter();
            members.filter_map(Identity::of).collect()
        };
        let rescue = || {
            process::end(&members());
            // The recorder's own mount is the first, so that it is the last to go: then whoever
            // waits for its disks gets an error.
            force_mounts_away(&self.directory);
        };
        match attend(&self.watch, work, members, rescue)? {
            Attended::Ended(result) => result,
            Attended::Hung { reason, .. } => Err(anyhow!("{reason}")),
            Attended::Broke => Err(anyhow!("a mistake of the lab's own: its thread panicked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::JournalCommits;

    #[test]
    fn a_number_of_moments_that_the_file_names_has_no_longest_time() {
        let of = |line: &str| {
            let text = format!(
                "contenders = [\"ext4\"]\n{line}[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"tpcb\"\n"
            );
            time_at_most(&Experiment::parse(&text).unwrap())
        };
        assert_eq!(of(""), Some(AT_MOST));
        assert_eq!(of("cuts = 200\n"), None);
    }

    #[test]
    fn who_differs_in_the_database_alone_shares_a_cut_and_who_is_mounted_otherwise_does_not() {
        let experiment = Experiment::parse(
            "contenders = [\n\"ext4\",\n\
             { name = \"set\", storage = \"ext4\", settings = { work_mem = \"1MB\" } },\n\
             { name = \"mounted\", storage = \"ext4\", options = { mount = \"noatime\" } },\n\
             \"xfs\"]\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"tpcb\"\n",
        )
        .unwrap();
        let made = Cut::Made {
            moments: 200,
            acknowledged: 400,
            lost: vec!["a write".to_owned()],
            commits: JournalCommits::default(),
            seed: 1,
            elapsed_s: 1.0,
        };
        let cuts = |cut: &Cut| Cuts {
            schema: SCHEMA,
            contenders: [("ext4".to_owned(), cut.clone())].into(),
        };
        let shared = |cut: &Cut, name| cut_of_its_like(&experiment, &cuts(cut), name);
        // With what was lost: it is the storage's.
        assert_eq!(shared(&made, "set"), Some(made.clone()));
        assert_eq!(shared(&made, "mounted"), None);
        assert_eq!(shared(&made, "xfs"), None);
        // What was not made is tried again.
        assert_eq!(shared(&declined(), "set"), None);
    }

    #[test]
    fn what_is_cut_is_known_of_each_contender_and_the_others_say_why_not() {
        for name in [
            "ext4",
            "btrfs-raid1",
            "lvm-striped-ext4",
            "lvm-raid10-xfs",
            "md-raid1-xfs",
        ] {
            let is_fuse_there = Path::new("/dev/fuse").exists();
            assert_eq!(obstacle_of(name, true).is_none(), is_fuse_there, "{name}");
            let of_named = obstacle_of(name, false).unwrap();
            assert!(
                of_named.contains("disks that it makes itself"),
                "{of_named}"
            );
        }
        for name in ["nfs4", "zfs"] {
            let reason = obstacle_of(name, true).unwrap();
            assert!(reason.contains("started again"), "{name}: {reason}");
        }
        assert!(
            obstacle_of("raw", true)
                .unwrap()
                .contains("without a file system")
        );
    }
}
