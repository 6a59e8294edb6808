//! A contender that hangs in the kernel: a failed run, and the others go on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use scene::Scene;
use spindle_lab::measure::program::{command, run};

const EXPERIMENT: &str = r#"
contenders = ["ext4", "directory:SCENE/frozen"]
blocks = 1
seed = 4
patience = "2 s"
warm_up = "100 ms"
duration = "500 ms"

[devices]
kind = "loop"
count = 1
size = "128 MiB"
directory = "SCENE"

[[workload]]
kind = "block"
pattern = "log"
size = "16 MiB"
"#;

/// A file system on a loop device that a test may freeze; a drop takes it away.
struct Freezer<'a> {
    point: &'a Path,
    device: String,
}

impl<'a> Freezer<'a> {
    fn new(file: &Path, point: &'a Path) -> Self {
        fs::File::create_new(file)
            .unwrap()
            .set_len(64 << 20)
            .unwrap();
        fs::create_dir(point).unwrap();
        let device = run(command("losetup").args(["--find", "--show"]).arg(file)).unwrap();
        let device = device.trim().to_owned();
        let freezer = Self { point, device };
        run(command("mkfs.ext4").arg("-q").arg(&freezer.device)).unwrap();
        run(command("mount").arg(&freezer.device).arg(point)).unwrap();
        freezer
    }

    fn set(&self, what: &str) {
        run(command("fsfreeze").arg(what).arg(self.point)).unwrap();
    }
}

impl Drop for Freezer<'_> {
    fn drop(&mut self) {
        let _ = run(command("fsfreeze").arg("--unfreeze").arg(self.point));
        let _ = run(command("umount").arg(self.point));
        let _ = run(command("losetup").arg("--detach").arg(&self.device));
    }
}

fn is_recorded(scene: &Scene, ending: &str, word: &str) -> bool {
    let Ok(runs) = fs::read_dir(scene.path().join("hanging/runs")) else {
        return false;
    };
    runs.map(|run| run.unwrap().path())
        .filter(|run| run.to_string_lossy().ends_with(ending))
        .any(|run| {
            fs::read_to_string(run.join("run.json")).is_ok_and(|record| record.contains(word))
        })
}

#[test]
fn a_contender_that_hangs_in_the_kernel_is_a_failed_run_and_the_others_go_on() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "fsfreeze", "mkfs.ext4"]) {
        return;
    }
    let point = scene.path().join("frozen");
    let freezer = Freezer::new(&scene.path().join("frozen-disk"), &point);
    let file = scene.write("hanging.toml", EXPERIMENT);
    freezer.set("--freeze");
    let mut lab = scene.start(&["run", &file]);
    let until = Instant::now() + Duration::from_secs(240);
    while !(is_recorded(&scene, "frozen", "it hung: making it")
        && is_recorded(&scene, "-ext4", "measured")
        && is_recorded(&scene, "A_A_", "measured"))
    {
        assert!(lab.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < until, "not every run is recorded");
        thread::sleep(Duration::from_millis(100));
    }
    let log = fs::read_dir(scene.path().join("hanging/runs"))
        .unwrap()
        .map(|run| run.unwrap().path())
        .find(|run| run.to_string_lossy().ends_with("frozen"))
        .unwrap();
    let log = fs::read_to_string(log.join("log.txt")).unwrap();
    assert!(log.contains("waits in the kernel"), "{log}");
    freezer.set("--unfreeze");
    let status = lab.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    drop(freezer);
    // What it held is cleared away, by itself or by the next start.
    let doctor = scene.lab(&["doctor"]);
    assert!(doctor.status.success(), "{}", doctor.stderr);
    fs::remove_file(scene.path().join("frozen-disk")).unwrap();
    scene.assert_clean();
}
