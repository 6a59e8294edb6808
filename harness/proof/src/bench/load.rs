//! pgbench alone, and while a disk is added and the rebalance runs at the default power; beside
//! it btrfs, whose `device add` and `balance` do the same on devices of the same make.
//!
//! The devices are spindles for everybody, the kernel's own threads included. First each storage
//! takes the new disk in without any load, and what the kernel counted as written tells how much
//! it moved. Then the database runs alone and during the change, in turn; what counts is the pair.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use spindle_testbed::interrupt;
use spindle_testbed::pgbench::{Load, Plan, Rate, fill};
use spindle_testbed::postgres::{Cluster, Installation, Server};
use spindle_testbed::process::run_well;
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;

use super::Bench;
use super::device::{KernelMount, Loop, SlowForAll, Traffic, filled_file, loops};
use super::figure::{Aim, Figure};
use super::fio;
use super::ground::{Ground, Group, GroupPlan};
use super::mount::SPINDLE_BYTES_PER_SECOND;
use super::stand::{operation, real, watch};

const SECTION: &str = "load";
/// A balance of btrfs, and a disk leaving it under load, need a third of the space and more.
const DISK_BYTES: u64 = 1 << 30;
const FILLER_BYTES: u64 = 1400 << 20;
const SCALE: u32 = 10;
const CLIENT_COUNT: u32 = 8;
const SETTINGS: [&str; 2] = ["shared_buffers=256MB", "max_wal_size=512MB"];
const CHANGE_AT_MOST: Duration = Duration::from_secs(600);

/// A storage with a database on it, and the disk that it gets.
struct Side {
    ground: Ground,
    spare: Loop,
    cluster: Cluster,
}

/// What one side reached.
#[derive(Debug, Clone, Copy)]
struct Pair {
    alone: Rate,
    during: Rate,
}

/// During the change and alone, of each pair.
type Measured = fn(&[Pair]) -> Vec<(f64, f64)>;

/// Measures both sides.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let scene = bench.scene("load")?;
    let installation = Installation::find()?;
    let ours = Side::make(&scene, &installation, "spindle")?;
    let rival = Side::make(&scene, &installation, "btrfs")?;
    let moved = (ours.move_unloaded()?, rival.move_unloaded()?);
    let (mut our_pairs, mut rival_pairs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds() {
        our_pairs.push(ours.round(bench, &scene)?);
        rival_pairs.push(rival.round(bench, &scene)?);
    }
    figures(&our_pairs, &rival_pairs, moved)
}

fn figures(ours: &[Pair], rivals: &[Pair], moved: (u64, u64)) -> Result<Vec<Figure>> {
    let p99: Measured = |pairs| {
        let milliseconds = |rate: &Rate| real(rate.p99_us) / 1000.0;
        (pairs.iter())
            .map(|pair| (milliseconds(&pair.during), milliseconds(&pair.alone)))
            .collect()
    };
    let rate: Measured = |pairs| {
        (pairs.iter())
            .map(|pair| (pair.during.per_second, pair.alone.per_second))
            .collect()
    };
    let factors = |of: Measured| -> Vec<(f64, f64)> {
        let factor = |pair: (f64, f64)| pair.0 / pair.1;
        (of(ours).into_iter().map(factor))
            .zip(of(rivals).into_iter().map(factor))
            .collect()
    };
    let mebibyte = f64::from(1 << 20);
    Ok(vec![
        Figure::ratio(
            SECTION,
            "pgbench during a rebalance: p99",
            "ms",
            "alone",
            &p99(ours),
            (Aim::AtMost, 1.5),
        )?,
        Figure::ratio(
            SECTION,
            "pgbench during a rebalance: rate",
            "/s",
            "alone",
            &rate(ours),
            (Aim::AtLeast, 0.85),
        )?,
        Figure::ratio(
            SECTION,
            "p99, times that alone, beside a balance",
            "",
            "btrfs",
            &factors(p99),
            (Aim::AtMost, 1.0),
        )?,
        Figure::ratio(
            SECTION,
            "rate, of that alone, beside a balance",
            "",
            "btrfs",
            &factors(rate),
            (Aim::AtLeast, 1.0),
        )?,
        Figure::ratio(
            SECTION,
            "written to take in a disk",
            "MiB",
            "btrfs",
            &[(real(moved.0) / mebibyte, real(moved.1) / mebibyte)],
            (Aim::AtMost, 1.0),
        )?,
    ])
}

impl Side {
    fn make(scene: &Scene, installation: &Installation, kind: &str) -> Result<Self> {
        let devices = loops(scene.path(), kind, 4, DISK_BYTES)?;
        let file = scene.join(&format!("{kind}.4"));
        filled_file(&file, DISK_BYTES)?;
        let spare = Loop::over(&file)?;
        let ground = if kind == "spindle" {
            let plan = GroupPlan {
                name: "load",
                redundancy: "external",
                two_sides: false,
                profile: "postgresql",
                options: &[],
            };
            Ground::Spindle(Box::new(Group::with_spare(scene, plan, devices, &spare)?))
        } else {
            let point = scene.join(&format!("{kind}-mount"));
            Ground::Kernel(KernelMount::make(kind, devices, &point)?)
        };
        let filler = ground.point().join("filler");
        let size = format!("--size={FILLER_BYTES}");
        let options = ["--ioengine=psync", "--bs=1M", "--end_fsync=1", &size];
        fio::measure(&[&filler], "write", &options, &[])?;
        let runtime = scene.directory(&format!("{kind}-server"))?;
        let place = ground.point().join("pgdata");
        let cluster = Cluster::new(installation, &place, &runtime, &SETTINGS)?;
        cluster.init(&[])?;
        let server = cluster.start()?;
        fill(&cluster, SCALE)?;
        server.stop()?;
        Ok(Self {
            ground,
            spare,
            cluster,
        })
    }

    fn name(&self) -> &'static str {
        match self.ground {
            Ground::Spindle(_) => "spindle",
            Ground::Kernel(_) => "btrfs",
        }
    }

    /// Holds every device to the speed of a spindle as long as the value lives.
    fn slow(&self) -> Result<SlowForAll> {
        let mut devices: Vec<&Loop> = match &self.ground {
            Ground::Spindle(group) => group.devices().iter().collect(),
            Ground::Kernel(mount) => mount.devices().iter().collect(),
        };
        devices.push(&self.spare);
        SlowForAll::spindles(&devices, SPINDLE_BYTES_PER_SECOND)
    }

    fn traffic(&self) -> Result<Traffic> {
        let devices = match &self.ground {
            Ground::Spindle(group) => group.devices(),
            Ground::Kernel(mount) => mount.devices(),
        };
        let spare = self.spare.traffic()?;
        let mut sum = Traffic::of(devices)?;
        sum.read_bytes += spare.read_bytes;
        sum.written_bytes += spare.written_bytes;
        Ok(sum)
    }

    /// Takes the disk in and gives it back without any load; the bytes written for taking it in.
    fn move_unloaded(&self) -> Result<u64> {
        let step = Step::begin(&format!("{}: a disk is added", self.name()), 0);
        let before = self.traffic()?;
        let began = Instant::now();
        let change = self.begin_change()?;
        self.end_change(change)?;
        let written_bytes = self.traffic()?.since(before).written_bytes;
        step.done(&format!(
            "{} MiB written in {:.1} s",
            written_bytes >> 20,
            began.elapsed().as_secs_f64()
        ));
        self.undo_change()?;
        Ok(written_bytes)
    }

    /// pgbench alone, then during the change.
    fn round(&self, bench: &Bench, scene: &Scene) -> Result<Pair> {
        let slow = self.slow()?;
        let logs = scene.directory("client")?;
        let server = self.cluster.start()?;
        let alone = rate(bench, &server, &logs, &format!("{}, alone", self.name()))?;
        let change = self.begin_change()?;
        let title = format!("{}, during the change", self.name());
        let during = rate(bench, &server, &logs, &title)?;
        ensure!(
            self.is_changing(&change)?,
            "{}: the change ended before pgbench did: more data is needed",
            self.name()
        );
        server.stop()?;
        drop(slow);
        self.end_change(change)?;
        self.undo_change()?;
        Ok(Pair { alone, during })
    }

    fn begin_change(&self) -> Result<Change<'_>> {
        let spare = self.spare.device.display().to_string();
        match &self.ground {
            Ground::Spindle(group) => {
                let words = ["disk", "add", group.name(), "--disk", &spare];
                group.tell(&[&words[..], &["--name", "SPARE"]].concat())?;
                Ok(Change::Rebalance(group))
            }
            Ground::Kernel(mount) => {
                let mut add = Command::new("btrfs");
                add.args(["device", "add", "-f", &spare]).arg(mount.point());
                run_well(&mut add)?;
                let child = Command::new("btrfs")
                    .args(["balance", "start", "--full-balance"])
                    .arg(mount.point())
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .context("cannot start the balance")?;
                Ok(Change::Balance(child, mount.point().to_owned()))
            }
        }
    }

    fn is_changing(&self, change: &Change<'_>) -> Result<bool> {
        match change {
            Change::Rebalance(group) => Ok(operation(group, "rebalance")?.is_some()),
            Change::Balance(_, point) => {
                let mut status = Command::new("btrfs");
                status.args(["balance", "status"]).arg(point);
                Ok(spindle_testbed::process::run(&mut status)?
                    .stdout
                    .contains("is running"))
            }
        }
    }

    /// Waits for its end, as fast as the storage can.
    fn end_change(&self, change: Change<'_>) -> Result<()> {
        match change {
            Change::Rebalance(group) => {
                group.tell(&["rebalance", group.name(), "--power", "1024"])?;
                watch(group, "rebalance", Instant::now())?;
            }
            Change::Balance(mut child, _) => {
                let ended =
                    interrupt::wait_for("the balance", CHANGE_AT_MOST, || Ok(child.try_wait()?))?;
                ensure!(ended.success(), "the balance failed: {ended}");
            }
        }
        Ok(())
    }

    fn undo_change(&self) -> Result<()> {
        match &self.ground {
            Ground::Spindle(group) => {
                group.tell(&["disk", "drop", group.name(), "SPARE"])?;
                self.end_change(Change::Rebalance(group))
            }
            Ground::Kernel(mount) => {
                let mut remove = Command::new("btrfs");
                remove.args(["device", "remove"]).arg(&self.spare.device);
                run_well(remove.arg(mount.point())).map(drop)
            }
        }
    }
}

/// A change that runs.
enum Change<'a> {
    Rebalance(&'a Group),
    Balance(Child, PathBuf),
}

fn rate(bench: &Bench, server: &Server, logs: &std::path::Path, title: &str) -> Result<Rate> {
    // Shorter than the rebalance: some 350 MiB are moved, at tens of megabytes a second.
    let duration = bench.seconds(6);
    let plan = Plan {
        scale: SCALE,
        client_count: CLIENT_COUNT,
        duration,
        script: None,
        options: &[],
    };
    // Every measurement begins as far from the next checkpoint.
    server.connect("postgres")?.query("CHECKPOINT")?;
    let step = Step::begin(&format!("pgbench on {title}"), 0);
    let began_us = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let finished = Load::start(server.cluster(), &plan, logs, "load")?.finish(duration * 4)?;
    if let Some((_, error)) = finished.errors.first() {
        bail!("pgbench: {error}");
    }
    // The first fifth warms the caches up.
    let length_us = u64::try_from(duration.as_micros())?;
    let rate = Rate::between(
        &finished.log,
        began_us + length_us / 5,
        began_us + length_us,
    )?;
    step.done(&format!(
        "{:.0}/s, median {:.2} ms, p99 {:.2} ms",
        rate.per_second,
        real(rate.p50_us) / 1000.0,
        real(rate.p99_us) / 1000.0
    ));
    for entry in std::fs::read_dir(logs)? {
        std::fs::remove_file(entry?.path())?;
    }
    Ok(rate)
}
