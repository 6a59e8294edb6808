//! Disks that lose their power at any moment: what was acknowledged is there, and each liar is caught.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use scene::Scene;
use spindle_lab::measure::contender::{self, Contender, Options, Site, Standing};
use spindle_lab::measure::control_group::ControlGroup;
use spindle_lab::measure::durability::cut::{Order, Recorded};
use spindle_lab::measure::journal::Journal;
use spindle_lab::measure::patience::Watch;
use spindle_lab::measure::program::{command, run};
use spindle_lab::measure::recorder::{Disks, Recorder};

fn cut_on(
    scene: &Scene,
    name: &str,
    contender: &dyn Contender,
    disks: Disks,
    moments: u32,
) -> (usize, Vec<String>) {
    let directory = scene.path().join(name);
    fs::create_dir(&directory).unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let group_name = format!("spindle-lab-cut-{name}-{}", std::process::id());
    let group = ControlGroup::make(&journal, &group_name, None).unwrap();
    let watch = Watch::new(Duration::from_secs(600));
    let order = Order {
        contender,
        program: Path::new(env!("CARGO_BIN_EXE_spindle-lab")),
        journal: &journal,
        group: &group,
        watch: &watch,
        directory: &directory,
        disks,
        profile: "postgresql",
        options: &Options::new(),
        seed: 7,
    };
    let outcome = Recorded::make(&order)
        .and_then(|recorded| Ok((recorded.acknowledged(), recorded.cut(&order, 0..moments)?)));
    outcome.unwrap_or_else(|error| {
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        panic!("{name}: {error:#}\n{log}")
    })
}

fn disks(count: u32) -> Disks {
    Disks {
        count,
        size_bytes: 320 << 20,
        swallow_flushes: false,
    }
}

#[test]
fn honest_contenders_lose_nothing_that_they_acknowledged() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    let mut contenders = vec![("ext4", 1), ("xfs", 1), ("btrfs-raid1", 2)];
    if contender::spindle_program().is_some() {
        contenders.extend([("spindle-external-direct", 2), ("spindle-normal", 2)]);
    }
    for (name, count) in contenders {
        let contender = contender::find(name).unwrap();
        let (acknowledged, lost) = cut_on(&scene, name, contender.as_ref(), disks(count), 12);
        assert_eq!(lost, Vec::<String>::new(), "{name}");
        // Four clients alone with twenty writes each, then eight at once with forty.
        assert_eq!(acknowledged, 400, "{name}");
    }
    scene.assert_clean();
}

/// ext4 mounted so that it asks for no flush.
struct WithoutBarriers;

impl WithoutBarriers {
    fn remount(standing: Standing) -> Result<Standing> {
        if let contender::Place::Directory(place) = &standing.place {
            run(command("mount")
                .args(["-o", "remount,nobarrier"])
                .arg(place))?;
        }
        Ok(standing)
    }
}

impl Contender for WithoutBarriers {
    fn name(&self) -> String {
        "without-barriers".to_owned()
    }

    fn lacks(&self) -> Option<String> {
        None
    }

    fn make(&self, site: &Site<'_>) -> Result<Standing> {
        Self::remount(contender::find("ext4").unwrap().make(site)?)
    }

    fn start_again(&self, site: &Site<'_>) -> Result<Standing> {
        contender::find("ext4").unwrap().start_again(site)
    }
}

#[test]
fn a_mount_without_barriers_and_a_disk_that_swallows_flushes_lose_what_they_acknowledged() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4"]) {
        return;
    }
    let (_, lost) = cut_on(&scene, "barriers", &WithoutBarriers, disks(1), 12);
    assert!(!lost.is_empty());

    let swallows = Disks {
        swallow_flushes: true,
        ..disks(1)
    };
    let ext4 = contender::find("ext4").unwrap();
    let (_, lost) = cut_on(&scene, "swallows", ext4.as_ref(), swallows, 12);
    assert!(!lost.is_empty());
    scene.assert_clean();
}

#[test]
fn a_recorder_that_is_killed_below_a_mount_hangs_nobody_and_is_taken_away() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4"]) {
        return;
    }
    let directory = scene.path().join("killed");
    fs::create_dir(&directory).unwrap();
    let journal = Journal::begin(&scene.path().join("state")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_spindle-lab"));
    let recorder = Recorder::start(&journal, program, &directory, disks(1)).unwrap();
    let device = recorder.leaves[0].path.clone();
    run(command("mkfs.ext4").args(["-q", "-F"]).arg(&device)).unwrap();
    let point = directory.join("mount");
    fs::create_dir(&point).unwrap();
    run(command("mount").arg(&device).arg(&point)).unwrap();
    fs::write(point.join("file"), "unwritten").unwrap();
    recorder.server().kill_family();
    let written = fs::File::open(point.join("file")).and_then(|file| file.sync_all());
    assert!(written.is_err(), "nobody is there to write it");
    let _ = run(command("umount").arg(&point));
    drop(recorder);
    drop(journal);
    fs::remove_dir_all(&directory).unwrap();
    scene.assert_clean();
}
