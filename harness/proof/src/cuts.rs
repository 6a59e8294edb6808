//! Power cuts under PostgreSQL.
//!
//! A recording is made first: a group of three disks in three failure groups, mounted with
//! `--record`, carries a server under a load that logs each acknowledgement with the clock that
//! the recorder uses. For each cut the disks are rebuilt as a power cut at that moment could have
//! left them: what a flush covered is there, any subset of the rest is, whole or torn. In every
//! other cut one of the disks is lost too, and in every other recording one is taken away under
//! load, so that cuts fall into the time before, during and after its leaving the group. Then an
//! ordinary mount and an ordinary PostgreSQL recover, and everything that was acknowledged before
//! the cut must be there.
//!
//! With `--with-changes` a fourth disk joins in every recording and one of the three is dropped,
//! all under the load: after each cut the rebalance must go on by itself to its end, and leave
//! what PostgreSQL wrote as it was.
//!
//! Three failure groups, because two of three voters are a majority: with two groups of equal
//! vote a loss at rest cannot be told from a split, and such a mount is refused by design.
//!
//! A cut that fails keeps the recording and its disks, and says how to repeat it: the recording,
//! the seed and the number of the cut fix everything but the scheduling of the recovery.

mod acknowledgement;
mod check;
mod load;
mod recording;
mod replay;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::interrupt;
use spindle_testbed::postgres::Installation;
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;

use self::check::Cut;
use self::recording::{Plan, Recording};
use self::replay::Rebuilder;

/// So many cuts share a recording; then another is made, by other chances of the scheduler. In
/// every second recording a disk is taken away in the middle of the load.
const CUTS_PER_RECORDING: u64 = 25;

/// What to cut, and how often.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many cuts.
    #[arg(long, default_value_t = 50)]
    cuts: u64,

    /// What the cuts are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many cuts are recovered at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,

    /// A disk is added and another dropped in every recording.
    #[arg(long)]
    with_changes: bool,

    /// Seconds of load in a recording.
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Where the disks are made.
    #[arg(long, default_value_os_t = crate::memory_directory())]
    dir: PathBuf,

    /// A recording that an earlier run kept, instead of a new one.
    #[arg(long)]
    recording: Option<PathBuf>,

    /// Only the cut of this number.
    #[arg(long)]
    only: Option<u64>,
}

/// Runs the cuts.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Ok(installation) = Installation::find() else {
        println!("skipped: PostgreSQL is not installed");
        return Ok(());
    };
    let mut done = 0;
    let mut went_on_count = 0;
    while done < arguments.cuts {
        let mut scene = Scene::make(&arguments.dir, "spindle-cuts")?;
        let recording = match &arguments.recording {
            Some(kept) => Recording::open(kept)?,
            None => {
                let plan = match done / CUTS_PER_RECORDING % 2 {
                    _ if arguments.with_changes => Plan::ChangeDisks,
                    0 => Plan::Nothing,
                    _ => Plan::PullDisk,
                };
                Recording::make(&scene, &installation, arguments.seconds, plan)?
            }
        };
        let last = if arguments.recording.is_some() {
            arguments.cuts
        } else {
            arguments.cuts.min(done + CUTS_PER_RECORDING)
        };
        let numbers: Vec<u64> = match arguments.only {
            Some(number) => vec![number],
            None => (done..last).collect(),
        };
        let outcome = recover_all(arguments, &installation, &scene, &recording, &numbers)?;
        if !outcome.failures.is_empty() {
            scene.keep();
            report(&outcome.failures, arguments, &recording);
            bail!(
                "{} of {} cuts failed",
                outcome.failures.len(),
                numbers.len()
            );
        }
        went_on_count += outcome.went_on_count;
        done = last;
    }
    println!("{} power cuts, each recovered and checked", arguments.cuts);
    if arguments.with_changes {
        println!("in {went_on_count} of them a rebalance went on by itself");
        // Cuts that all miss the rebalance would prove nothing about it.
        let is_much = arguments.only.is_none() && arguments.cuts >= CUTS_PER_RECORDING;
        ensure!(
            went_on_count > 0 || !is_much,
            "no cut fell into a rebalance: it was too fast to be cut"
        );
    }
    Ok(())
}

/// A cut after which a promise was broken.
struct Failure {
    number: u64,
    error: anyhow::Error,
}

/// What came of the cuts of a recording.
#[derive(Default)]
struct CutsOutcome {
    failures: Vec<Failure>,
    /// Cuts after which a rebalance went on.
    went_on_count: u64,
}

fn recover_all(
    arguments: &Arguments,
    installation: &Installation,
    scene: &Scene,
    recording: &Recording,
    numbers: &[u64],
) -> Result<CutsOutcome> {
    let step = Step::begin("power cuts", numbers.len() as u64);
    let rebuilder = Rebuilder::new(recording, &scene.join("rebuilding"))?;
    // In the order of their moments, so that each record of the recording is applied once.
    let mut cuts: Vec<Cut> = numbers
        .iter()
        .map(|&number| Cut::draw(recording, arguments.seed, number))
        .collect();
    cuts.sort_by_key(|cut| cut.at_ns);
    check::control_cut(recording, &rebuilder, installation, &scene.join("control"))?;
    let next = AtomicU64::new(0);
    let finished = AtomicU64::new(0);
    let outcome = Mutex::new(CutsOutcome::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.clamp(1, numbers.len() as u64) {
            scope.spawn(|| {
                while interrupt::check().is_ok() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&cut) = usize::try_from(index).ok().and_then(|at| cuts.get(at)) else {
                        return;
                    };
                    let place = scene.join(&format!("cut-{}", cut.number));
                    let result = check::one_cut(recording, &rebuilder, installation, &place, cut);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(went_on) => outcome.went_on_count += u64::from(went_on),
                        Err(error) => outcome.failures.push(Failure {
                            number: cut.number,
                            error,
                        }),
                    }
                    drop(outcome);
                    let count = finished.fetch_add(1, Ordering::Relaxed) + 1;
                    step.advance(count, &format!("{count} of {}", numbers.len()));
                }
            });
        }
    });
    interrupt::check()?;
    #[allow(clippy::cast_precision_loss, reason = "a count of cuts is small")]
    let each = began.elapsed().as_secs_f64() / numbers.len() as f64;
    step.done(&format!("{} cuts, {each:.1} s each", numbers.len()));
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn report(failures: &[Failure], arguments: &Arguments, recording: &Recording) {
    for failure in failures {
        println!("cut {}: {:#}", failure.number, failure.error);
        println!(
            "  repeat: spindle-proof cuts --recording {} --seed {} --only {}",
            recording.directory().display(),
            arguments.seed,
            failure.number
        );
    }
}

/// Copies a file and keeps its holes: the disks here are mostly empty.
fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    let source = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let target = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    target.set_len(source.metadata()?.len())?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let length = source.read_at(&mut buffer, offset)?;
        if length == 0 {
            return Ok(());
        }
        for (index, block) in buffer[..length].chunks(4096).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                target.write_all_at(block, offset + 4096 * index as u64)?;
            }
        }
        offset += length as u64;
    }
}
