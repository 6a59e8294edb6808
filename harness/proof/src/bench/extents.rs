//! Section 6: groups of a million extents and of ten million: how long they take to mount, and
//! how much memory.
//!
//! The disks are files that are nearly all hole, and the extents are allocated without being
//! written, so that terabytes of group fit into a small machine.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;
use spindle_testbed::figures::size;
use spindle_testbed::interrupt;
use spindle_testbed::progress::Step;

use super::Bench;
use super::device::sparse_file;
use super::figure::{Aim, Figure};
use super::ground::{Group, GroupPlan, memory_bytes};

const SECTION: &str = "extents";
const MIB: u64 = 1 << 20;

/// An extent is one AU up to this many in a file, then it grows: so the files stay below.
const EXTENTS_PER_FILE: u64 = 19_000;

/// What a group of so many extents takes.
struct Taken {
    mount_seconds: f64,
    memory_bytes: u64,
}

/// Measures both sizes.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let million = 1_000_000;
    let small = take(bench, million)?;
    let mut figures = vec![
        Figure::value(
            SECTION,
            "1,000,000 extents: time to mount",
            "s",
            &[small.mount_seconds],
            (Aim::AtMost, 1.0),
        )?,
        Figure::value(
            SECTION,
            "1,000,000 extents: memory",
            "MiB",
            &[mebibytes(small.memory_bytes)],
            (Aim::AtMost, mebibytes(allowed_bytes(million))),
        )?,
    ];
    if !bench.quick {
        let large = take(bench, 10 * million)?;
        figures.push(Figure::value(
            SECTION,
            "10,000,000 extents: time to mount",
            "s",
            &[large.mount_seconds],
            (Aim::AtMost, 10.0),
        )?);
        figures.push(Figure::value(
            SECTION,
            "10,000,000 extents: memory",
            "MiB",
            &[mebibytes(large.memory_bytes)],
            (Aim::AtMost, mebibytes(allowed_bytes(10 * million))),
        )?);
    }
    Ok(figures)
}

/// 64 MiB and 32 bytes an extent.
fn allowed_bytes(extent_count: u64) -> u64 {
    64 * MIB + 32 * extent_count
}

fn take(bench: &Bench, extent_count: u64) -> Result<Taken> {
    let scene = bench.scene("extents")?;
    let step = Step::begin(&format!("allocating {extent_count} extents"), extent_count);
    // An AU an extent, and a tenth more for the catalog and the last rotation.
    let disk_size = extent_count.div_ceil(4) * MIB / 10 * 11;
    let disks: Vec<_> = (0..4)
        .map(|index| scene.join(&format!("disk.{index}")))
        .collect();
    for disk in &disks {
        sparse_file(disk, disk_size)?;
    }
    let plan = GroupPlan {
        name: "extents",
        redundancy: "external",
        two_sides: false,
        profile: "plain",
        options: &[],
    };
    let mut group = Group::over_files(&scene, plan, &disks)?;
    let mut left = extent_count;
    while left > 0 {
        interrupt::check()?;
        let count = left.min(EXTENTS_PER_FILE);
        let path = group.point().join(format!("file-{left}"));
        let file = File::create(&path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, count * MIB).with_context(
            || {
                format!(
                    "cannot allocate {} of {}",
                    size(count * MIB),
                    path.display()
                )
            },
        )?;
        file.sync_all()?;
        left -= count;
        step.advance(extent_count - left, "");
    }
    let found = group.show()?["extents_count"].as_u64();
    ensure!(
        found.is_some_and(|found| found >= extent_count),
        "{extent_count} extents were allocated, the group tells of {found:?}"
    );
    step.done("");
    let mount_seconds = group.remount(&[])?.as_secs_f64();
    let memory_bytes = memory_bytes(group.daemon_id()?, "VmHWM")?;
    Ok(Taken {
        mount_seconds,
        memory_bytes,
    })
}

fn mebibytes(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}
