//! Sections 2 and 3: streams through the mount on spindles, small reads through it on memory.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use spindle_testbed::interrupt;

use super::Bench;
use super::device::{ControlGroup, filled_file, four_loops};
use super::figure::{Aim, Figure};
use super::fio;
use super::ground::{Group, GroupPlan};

const SPINDLES: &str = "spindles";
const MEMORY: &str = "memory";

/// What a spindle is held to.
pub const SPINDLE_BYTES_PER_SECOND: u64 = 60_000_000;

const MIB: u64 = 1 << 20;

/// Section 2: one synchronous reader and one writer, against the sum of the raw devices.
pub fn spindles(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (redundancy, writing_disks) in [("external", 4.0), ("normal", 2.0)] {
        figures.extend(streams(bench, redundancy, writing_disks)?);
    }
    Ok(figures)
}

fn streams(bench: &Bench, redundancy: &str, writing_disks: f64) -> Result<Vec<Figure>> {
    let scene = bench.scene("streams")?;
    // The raw side has devices of its own, of the same make: a raw write would end the group.
    let raw = four_loops(scene.path(), "raw", 512 * MIB)?;
    let disks = four_loops(scene.path(), "disk", 1024 * MIB)?;
    let raw_paths: Vec<PathBuf> = raw.iter().map(|loop_| loop_.device.clone()).collect();
    let raw_paths: Vec<&Path> = raw_paths.iter().map(PathBuf::as_path).collect();
    let mut limited = raw;
    let raw_count = limited.len();
    limited.extend(disks);
    let limits = ControlGroup::spindles(&limited, SPINDLE_BYTES_PER_SECOND)?;
    let devices = limited.split_off(raw_count);

    let plan = GroupPlan {
        name: "streams",
        redundancy,
        two_sides: redundancy == "normal",
        profile: "plain",
        options: &[],
    };
    let mut group = Group::over_devices(&scene, plan, devices)?;
    group.limit(&limits)?;
    let file = group.point().join("stream");
    let file_size = format!("--size={}M", if bench.quick { 512 } else { 1024 });
    let sync = ["--ioengine=psync", "--bs=1M", "--end_fsync=1", &file_size];
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    for _ in 0..bench.rounds() {
        let raw_write = raw_stream(&raw_paths, "write", &limits)?;
        let write = fio::measure(&[&file], "write", &sync, &limits.prefix())?;
        writes.push((write.bytes_per_second, raw_write * writing_disks / 4.0));
        // A new mount has nothing cached: the reader has to go to the disks.
        group.remount(&[])?;
        group.limit(&limits)?;
        let raw_read = raw_stream(&raw_paths, "read", &limits)?;
        let read = fio::measure(&[&file], "read", &sync, &limits.prefix())?;
        reads.push((read.bytes_per_second, raw_read));
    }
    let megabytes = |pairs: &[(f64, f64)]| -> Vec<(f64, f64)> {
        pairs
            .iter()
            .map(|pair| (pair.0 / 1e6, pair.1 / 1e6))
            .collect()
    };
    Ok(vec![
        Figure::ratio(
            SPINDLES,
            format!("{redundancy}: one synchronous reader"),
            "MB/s",
            "four raw disks",
            &megabytes(&reads),
            (Aim::AtLeast, 0.95),
        )?,
        Figure::ratio(
            SPINDLES,
            format!("{redundancy}: one synchronous writer"),
            "MB/s",
            format!("{writing_disks:.0} raw disks"),
            &megabytes(&writes),
            (Aim::AtLeast, 0.95),
        )?,
    ])
}

/// What raw devices give together, each with a job of its own.
pub fn raw_stream(devices: &[&Path], mode: &str, limits: &ControlGroup) -> Result<f64> {
    let mut threads = Vec::new();
    for device in devices {
        let (device, mode, prefix) = (device.to_path_buf(), mode.to_owned(), limits.prefix());
        threads.push(std::thread::spawn(move || {
            // Not io_uring: it tries a large request without waiting first, fails, and asks
            // again, and the control group's limit counts both.
            let options = [
                "--ioengine=libaio",
                "--direct=1",
                "--bs=1M",
                "--iodepth=4",
                "--size=256M",
            ];
            fio::measure(&[&device], &mode, &options, &prefix)
        }));
    }
    let mut sum = 0.0;
    for thread in threads {
        let reached = thread
            .join()
            .ok()
            .context("a measuring thread panicked")??;
        sum += reached.bytes_per_second;
    }
    interrupt::check()?;
    Ok(sum)
}

/// Section 3: direct reads through the mount, disks in memory.
pub fn memory(bench: &Bench) -> Result<Vec<Figure>> {
    let scene = bench.scene("memory")?;
    let disks: Vec<PathBuf> = (0..4)
        .map(|index| scene.join(&format!("disk.{index}")))
        .collect();
    for disk in &disks {
        filled_file(disk, 512 * MIB)?;
    }
    let plan = GroupPlan {
        name: "memory",
        redundancy: "external",
        two_sides: false,
        profile: "plain",
        options: &[],
    };
    let group = Group::over_files(&scene, plan, &disks)?;
    let file = group.point().join("data");
    let size = "--size=1G";
    let fill = ["--ioengine=psync", "--bs=1M", "--end_fsync=1", size];
    fio::measure(&[&file], "write", &fill, &[])?;
    let time = format!("--runtime={}", bench.seconds(10).as_secs());
    let direct = |options: &[&str]| -> Result<fio::Reached> {
        let mut all = vec![size, "--direct=1", "--time_based", &time];
        all.extend(options);
        let mode = if options.contains(&"--bs=1M") {
            "read"
        } else {
            "randread"
        };
        fio::measure(&[&file], mode, &all, &[])
    };
    let mut small_many = Vec::new();
    let mut small_one = Vec::new();
    let mut exchanges = Vec::new();
    let mut large = Vec::new();
    for _ in 0..bench.rounds() {
        let many = ["--bs=8k", "--ioengine=io_uring", "--iodepth=16"];
        small_many.push(direct(&many)?.requests_per_second);
        small_one.push(direct(&["--bs=8k", "--ioengine=psync"])?.requests_per_second);
        exchanges.push(pipe_exchanges(bench.seconds(3))?);
        let stream = ["--bs=1M", "--ioengine=io_uring", "--iodepth=4"];
        large.push(direct(&stream)?.bytes_per_second / 1e9);
    }
    Ok(vec![
        Figure::value(
            MEMORY,
            "8 KiB random reads, direct, 16 outstanding",
            "/s",
            &small_many,
            (Aim::AtLeast, 150_000.0),
        )?,
        Figure::value(
            MEMORY,
            "8 KiB random reads, direct, one synchronous process",
            "/s",
            &small_one,
            (Aim::AtLeast, 40_000.0),
        )?
        .beside("exchanges by pipe", &exchanges),
        Figure::value(
            MEMORY,
            "1 MiB reads, direct",
            "GB/s",
            &large,
            (Aim::AtLeast, 4.0),
        )?,
    ])
}

/// How often a second two threads hand each other a byte through pipes. A synchronous read
/// through the mount is such an exchange between a process and the daemon: where a processor
/// that has gone idle is slow to wake, as on many virtual machines, this is what bounds it.
fn pipe_exchanges(duration: Duration) -> Result<f64> {
    let (mut asked, mut ask) = std::io::pipe()?;
    let (mut answered, mut answer) = std::io::pipe()?;
    let mut byte = [0];
    let other = std::thread::spawn(move || -> std::io::Result<()> {
        let mut byte = [0];
        while asked.read(&mut byte)? > 0 {
            answer.write_all(&byte)?;
        }
        Ok(())
    });
    let began = Instant::now();
    let mut exchanges_count = 0_u32;
    while began.elapsed() < duration {
        ask.write_all(&byte)?;
        answered.read_exact(&mut byte)?;
        exchanges_count += 1;
    }
    let per_second = f64::from(exchanges_count) / began.elapsed().as_secs_f64();
    drop(ask);
    other.join().ok().context("the other thread panicked")??;
    Ok(per_second)
}

impl Bench {
    /// How long a measurement runs: less where it has to be quick.
    pub fn seconds(&self, seconds: u64) -> Duration {
        Duration::from_secs(if self.quick {
            seconds.div_ceil(3)
        } else {
            seconds
        })
    }
}
