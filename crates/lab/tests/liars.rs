//! Storages that acknowledge what they do not keep, each caught, and honest ones beside them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::{Path, PathBuf};

use scene::{Said, Scene};
use spindle_lab::measure::durability::probe_directory;
use spindle_lab::measure::program::{command, run};
use spindle_lab::record::{DurabilityClass, Gate, Run, read_json};

/// A file system on a loop device, or in memory; a drop takes both away.
struct Mounted {
    point: PathBuf,
    device: Option<String>,
}

impl Mounted {
    fn memory(scene: &Scene, name: &str) -> Self {
        let point = scene.path().join(name);
        fs::create_dir(&point).unwrap();
        run(command("mount")
            .args(["-t", "tmpfs", "-o", "size=400m", "none"])
            .arg(&point))
        .unwrap();
        Self {
            point,
            device: None,
        }
    }

    /// On a file in `below`.
    fn filesystem(scene: &Scene, below: &Path, name: &str, kind: &str, options: &str) -> Self {
        let file = below.join(format!("{name}.disk"));
        run(command("truncate").args(["--size", "320M"]).arg(&file)).unwrap();
        let device = run(command("losetup").args(["--find", "--show"]).arg(&file)).unwrap();
        let device = device.trim().to_owned();
        let force = if kind == "ext4" { "-F" } else { "-f" };
        let point = scene.path().join(name);
        let mounted = Self {
            point: point.clone(),
            device: Some(device.clone()),
        };
        run(command(&format!("mkfs.{kind}")).args(["-q", force, &device])).unwrap();
        fs::create_dir(&point).unwrap();
        let mut mount = command("mount");
        mount.args(["-o", options, &device]);
        run(mount.arg(&point)).unwrap();
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(command("umount").arg(&self.point));
        if let Some(device) = &self.device {
            let _ = run(command("losetup").args(["--detach", device]));
        }
    }
}

fn gate_of(directory: &Path) -> Gate {
    probe_directory(directory).unwrap().gate.unwrap()
}

/// The gate of each run of an experiment's folder, by the contender.
fn gates(scene: &Scene, name: &str, said: &Said) -> Vec<(String, Gate)> {
    let mut folders: Vec<PathBuf> = fs::read_dir(scene.path().join(name).join("runs"))
        .unwrap_or_else(|_| panic!("{}\n{}", said.stdout, said.stderr))
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.sort();
    folders
        .iter()
        .map(|folder| {
            let run: Run = read_json(&folder.join("run.json")).unwrap();
            let measured = run.measured().unwrap_or_else(|| panic!("{run:#?}"));
            let gate = measured.durability.clone().unwrap().gate.unwrap();
            (run.planned.contender, gate)
        })
        .collect()
}

#[test]
fn honest_directories_are_durable_and_what_forgets_is_named_or_counted() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let honest =
            Mounted::filesystem(&scene, scene.path(), &format!("honest-{kind}"), kind, "rw");
        let gate = gate_of(&honest.point);
        assert_eq!(gate.class, DurabilityClass::Durable, "{kind}: {gate:#?}");
        // Four ways, one writer and eight.
        assert_eq!(gate.ways.len(), 8, "{kind}: {gate:#?}");
    }

    let memory = Mounted::memory(&scene, "memory");
    let gate = gate_of(&memory.point);
    assert_eq!(gate.class, DurabilityClass::NotDurable, "{gate:#?}");
    assert!(gate.reason.contains("in memory (tmpfs)"), "{}", gate.reason);

    let over_memory = Mounted::filesystem(&scene, &memory.point, "over-memory", "ext4", "rw");
    let gate = gate_of(&over_memory.point);
    assert_eq!(gate.class, DurabilityClass::NotDurable, "{gate:#?}");
    assert!(gate.reason.contains("in memory (tmpfs)"), "{}", gate.reason);
    drop(over_memory);

    for kind in ["ext4", "btrfs"] {
        let name = format!("without-barriers-{kind}");
        let liar = Mounted::filesystem(&scene, scene.path(), &name, kind, "nobarrier");
        let gate = gate_of(&liar.point);
        assert_eq!(gate.class, DurabilityClass::NotDurable, "{kind}: {gate:#?}");
        assert!(gate.reason.contains("`nobarrier`"), "{}", gate.reason);
        assert!(gate.reason.contains("48 acknowledged"), "{}", gate.reason);
    }
}

#[test]
fn a_disk_that_says_it_has_no_volatile_cache_cannot_be_seen_and_is_not_accused() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4"]) {
        return;
    }
    let mounted = Mounted::filesystem(&scene, scene.path(), "through", "ext4", "rw");
    let device = mounted.device.clone().unwrap();
    let name = Path::new(&device).file_name().unwrap().to_owned();
    let cache = Path::new("/sys/block").join(name).join("queue/write_cache");
    fs::write(&cache, "write through").unwrap();
    let gate = gate_of(&mounted.point);
    fs::write(&cache, "write back").unwrap();
    assert_eq!(gate.class, DurabilityClass::CannotBeSeen, "{gate:#?}");
    assert!(
        gate.reason.contains("has no volatile cache"),
        "{}",
        gate.reason
    );
}

const BELOW_DATABASES: &str = r#"
contenders = [CONTENDERS]
blocks = 1
warm_up = "100 ms"
duration = "300 ms"

[devices]
kind = "KIND"
count = 2
size = "320 MiB"
directory = "SCENE"

[[workload]]
kind = "block"
pattern = "log"
size = "16 MiB"
"#;

#[test]
fn contenders_of_the_lab_on_loop_devices_are_durable() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    let mut contenders = vec!["raw", "ext3", "ext4", "xfs", "btrfs-raid0", "btrfs-raid1"];
    if spindle_lab::measure::contender::spindle_program().is_some() {
        contenders.extend(["spindle-external", "spindle-normal-direct"]);
    }
    let names: Vec<String> = contenders.iter().map(|name| format!("{name:?}")).collect();
    let text = BELOW_DATABASES
        .replace("CONTENDERS", &names.join(", "))
        .replace("KIND", "loop");
    let file = scene.write("honest.toml", &text);
    let said = scene.lab(&["run", &file]);
    let gates = gates(&scene, "honest", &said);
    // The baseline stands there twice.
    assert_eq!(gates.len(), contenders.len() + 1, "{}", said.stdout);
    for (contender, gate) in gates {
        assert_eq!(
            gate.class,
            DurabilityClass::Durable,
            "{contender}: {gate:#?}"
        );
        let ways = if contender == "raw" { 6 } else { 8 };
        assert_eq!(gate.ways.len(), ways, "{contender}: {gate:#?}");
    }
    scene.assert_clean();
}

#[test]
fn contenders_on_memory_devices_cannot_be_seen() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4"]) || !Path::new("/sys/class/zram-control").exists()
    {
        return;
    }
    let text = BELOW_DATABASES
        .replace("CONTENDERS", "\"ext4\"")
        .replace("KIND", "zram");
    let file = scene.write("memory.toml", &text);
    let said = scene.lab(&["run", &file]);
    for (contender, gate) in gates(&scene, "memory", &said) {
        assert_eq!(
            gate.class,
            DurabilityClass::CannotBeSeen,
            "{contender}: {gate:#?}"
        );
        assert!(gate.reason.contains("no volatile cache"), "{}", gate.reason);
    }
    scene.assert_clean();
}

const IN_A_DATABASE: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "100 ms"
duration = "400 ms"

[devices]
kind = "loop"
count = 1
size = "320 MiB"
directory = "SCENE"

[database]
kind = "KIND"
settings = { SETTINGS }

[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 2
"#;

#[test]
fn commits_of_a_database_are_counted_and_settings_that_give_them_up_are_named() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    use DurabilityClass::{Durable, NotDurable};
    for (name, kind, settings, class, words) in [
        ("honest", "postgresql", "", Durable, "commit by 1 writer"),
        (
            "forgets",
            "postgresql",
            "fsync = \"off\"",
            NotDurable,
            "fsync = off: commit",
        ),
        (
            "later",
            "postgresql",
            "synchronous_commit = \"off\"",
            NotDurable,
            "synchronous_commit = off: commit",
        ),
        ("library", "sqlite", "", Durable, "commit by 1 writer"),
        (
            "hasty",
            "sqlite",
            "synchronous = \"normal\"",
            NotDurable,
            "synchronous = normal: commit",
        ),
    ] {
        let text = IN_A_DATABASE
            .replace("SETTINGS", settings)
            .replace("KIND", kind);
        let file = scene.write(&format!("{name}.toml"), &text);
        let said = scene.lab(&["run", &file]);
        let gates = gates(&scene, name, &said);
        assert_eq!(gates.len(), 2, "{name}: {}", said.stdout);
        for (_, gate) in gates {
            assert_eq!(gate.class, class, "{name}: {gate:#?}");
            assert!(gate.reason.contains(words), "{name}: {}", gate.reason);
            assert_eq!(gate.ways.len(), 10, "{name}: {gate:#?}");
        }
    }
    scene.assert_clean();
}

/// What `eatmydata` does: every way to ask for durability is answered at once.
const DEAF: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
int fsync(int file) { return 0; }
int fdatasync(int file) { return 0; }
void sync(void) {}
int syncfs(int file) { return 0; }
int msync(void *at, unsigned long length, int flags) { return 0; }
static int next(const char *name, const char *path, int flags, int mode) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    return real(path, flags & ~(O_SYNC | O_DSYNC), mode);
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return next("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return next("open64", path, flags, mode);
}
"#;

#[test]
fn a_library_that_answers_in_place_of_the_kernel_is_counted_out_and_named() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4", "cc"]) {
        return;
    }
    let source = scene.write("deaf.c", DEAF);
    let library = scene.path().join("deaf.so");
    run(command("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl"))
    .unwrap();
    let text = BELOW_DATABASES
        .replace("CONTENDERS", "\"ext4\"")
        .replace("KIND", "loop");
    let file = scene.write("deaf.toml", &text);
    let library = library.display().to_string();
    let said = scene.lab_with(&[("LD_PRELOAD", &library)], &["run", &file]);
    for (contender, gate) in gates(&scene, "deaf", &said) {
        assert_eq!(
            gate.class,
            DurabilityClass::NotDurable,
            "{contender}: {gate:#?}"
        );
        assert!(gate.reason.contains("deaf.so"), "{}", gate.reason);
    }
    scene.assert_clean();
}
