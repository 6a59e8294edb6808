//! Section 5: many small files, and the space of a fresh PostgreSQL cluster, beside ext4.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use spindle_testbed::interrupt;
use spindle_testbed::postgres::{Cluster, Installation};

use super::Bench;
use super::device::{KernelMount, Loop, filled_file, four_loops};
use super::figure::{Aim, Figure};
use super::ground::{Ground, Group, GroupPlan};

const SECTION: &str = "files";
const GIB: u64 = 1 << 30;

/// Measures both.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let scene = bench.scene("files")?;
    let plan = GroupPlan {
        name: "files",
        redundancy: "external",
        two_sides: false,
        profile: "postgresql",
        options: &[],
    };
    let devices = four_loops(scene.path(), "disk", GIB / 2)?;
    let group = Group::over_devices(&scene, plan, devices)?;
    let ours = Ground::Spindle(Box::new(group));
    let file = scene.join("ext4.0");
    filled_file(&file, 2 * GIB)?;
    let devices = vec![Loop::over(&file)?];
    let rival = KernelMount::make("ext4", devices, &scene.join("ext4-mount"))?;
    let rival = Ground::Kernel(rival);

    let file_count = if bench.quick { 2_000 } else { 10_000 };
    let mut rates = Vec::new();
    for _ in 0..bench.rounds() {
        rates.push((
            file_rate(ours.point(), file_count)?,
            file_rate(rival.point(), file_count)?,
        ));
    }
    let space = (
        cluster_space(&scene, &ours)?,
        cluster_space(&scene, &rival)?,
    );
    Ok(vec![
        Figure::ratio(
            SECTION,
            format!("{file_count} files created, fsynced and removed"),
            "/s",
            "ext4",
            &rates,
            (Aim::AtLeast, 0.5),
        )?,
        Figure::ratio(
            SECTION,
            "space of a fresh PostgreSQL cluster",
            "MiB",
            "ext4",
            &[space],
            (Aim::AtMost, 1.5),
        )?,
    ])
}

/// Files a second, from creation over fsync to removal.
fn file_rate(place: &Path, file_count: u32) -> Result<f64> {
    let directory = place.join("many");
    fs::create_dir(&directory)?;
    let began = Instant::now();
    for number in 0..file_count {
        interrupt::check()?;
        let mut file = File::create_new(directory.join(number.to_string()))?;
        file.write_all(b"a small file\n")?;
        file.sync_all()?;
    }
    for number in 0..file_count {
        fs::remove_file(directory.join(number.to_string()))?;
    }
    let elapsed = began.elapsed();
    fs::remove_dir(&directory)?;
    Ok(f64::from(file_count) / elapsed.as_secs_f64())
}

/// What `df` shows a new cluster to cost, in MiB.
fn cluster_space(scene: &spindle_testbed::scene::Scene, ground: &Ground) -> Result<f64> {
    let installation = Installation::find()?;
    let runtime = scene.directory("server")?;
    let before = ground.used_bytes()?;
    let cluster = Cluster::new(&installation, &ground.point().join("pgdata"), &runtime, &[])?;
    cluster.init(&[])?;
    // What was delayed is allocated now.
    rustix::fs::syncfs(File::open(ground.point())?)?;
    let after = ground.used_bytes()?;
    #[allow(clippy::cast_precision_loss, reason = "some MiB are far below 2^52")]
    let used = after.saturating_sub(before) as f64 / f64::from(1 << 20);
    Ok(used)
}
