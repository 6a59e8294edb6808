//! Devices that are held to a bandwidth: how near they came to it is in the record and on the page.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::Path;

use scene::Scene;
use spindle_lab::analyse::summary::Summary;
use spindle_lab::measure::control_group::lacks_limits;
use spindle_lab::measure::program::{command, run};
use spindle_lab::record::{Run, read_json};

const EXPERIMENT: &str = r#"
contenders = ["raw", "ext4"]
blocks = 1
warm_up = "500 ms"
duration = "8 s"

[devices]
kind = "loop"
count = 1
size = "256 MiB"
directory = "SCENE"
bandwidth = "20 MiB"

[database]
memory = "128 MiB"

[[workload]]
kind = "block"
pattern = "sequential-write"
size = "64 MiB"
"#;

#[test]
fn a_device_at_its_limit_is_told_at_its_limit_and_how_it_was_mounted_is_told() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4"]) {
        return;
    }
    if let Some(reason) = lacks_limits() {
        println!("skipped: {reason}");
        return;
    }
    let file = scene.write("limits.toml", EXPERIMENT);
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let mut mounts = 0;
    for run in fs::read_dir(scene.path().join("limits/runs")).unwrap() {
        let run: Run = read_json(&run.unwrap().path().join("run.json")).unwrap();
        let device = &run.measured().unwrap().devices[0];
        let share = device.limit_share.unwrap();
        assert!((0.8..1.15).contains(&share), "{device:?}");
        if let Some(mount) = run.layout.unwrap().mount {
            assert!(mount.starts_with("ext4 rw"), "{mount}");
            mounts += 1;
        }
    }
    assert_eq!(mounts, 1, "ext4's, and none of the raw devices");
    let summary: Summary = read_json(&scene.path().join("limits/summary.json")).unwrap();
    let extract = summary.workloads[0].contenders[0].extract.as_ref().unwrap();
    assert_eq!(extract.devices[0].busy_share, None);
    assert!(summary.environment.contains_key("vm.dirty_ratio"));
    let page = fs::read_to_string(scene.path().join("limits/report.html")).unwrap();
    assert!(page.contains("% of its limit"), "it is on the page");
    scene.assert_clean();
}

const NAMED: &str = r#"
contenders = ["raw"]
blocks = 1
warm_up = "100 ms"
duration = "300 ms"

[devices]
kind = "block"
names = ["DEVICE"]

[[workload]]
kind = "block"
pattern = "PATTERN"
size = "16 MiB"
"#;

#[test]
fn a_named_device_is_written_whole_before_a_load_of_random_writes_and_only_then() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio"]) {
        return;
    }
    let disk = scene.path().join("disk");
    run(command("truncate").args(["--size", "320M"]).arg(&disk)).unwrap();
    let device = run(command("losetup").args(["--find", "--show"]).arg(&disk)).unwrap();
    let device = device.trim();
    let statistics = Path::new("/sys/block")
        .join(Path::new(device).file_name().unwrap())
        .join("stat");
    let written = || -> u64 {
        let text = fs::read_to_string(&statistics).unwrap();
        let sectors = text.split_whitespace().nth(6).unwrap();
        sectors.parse::<u64>().unwrap() * 512
    };
    let mut grown = Vec::new();
    for pattern in ["log", "random-write"] {
        let text = NAMED.replace("DEVICE", device).replace("PATTERN", pattern);
        let file = scene.write(&format!("{pattern}.toml"), &text);
        let before = written();
        let ran = scene.lab(&["run", &file]);
        assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
        grown.push(written() - before);
        let page = fs::read_to_string(scene.path().join(pattern).join("report.html")).unwrap();
        let says = page.contains("Every block of the devices was written once before");
        assert_eq!(says, pattern == "random-write");
    }
    run(command("losetup").args(["--detach", device])).unwrap();
    assert!(grown[0] < 320 << 20 && grown[1] >= 320 << 20, "{grown:?}");
    scene.assert_clean();
}
