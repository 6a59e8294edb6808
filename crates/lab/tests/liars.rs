//! The directory of liars: storages that acknowledge what they do not keep, each caught, and honest
//! ones beside them, never accused. A person reads it as the list in `docs/lab/liars.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use scene::{Said, Scene};
use spindle_lab::measure::durability::probe_directory;
use spindle_lab::measure::place::mounts;
use spindle_lab::measure::program::{command, find, run};
use spindle_lab::record::{Cut, Cuts, DurabilityClass, Gate, Outcome, Run, WayCount, read_json};

/// A file system on a loop device, or in memory; a drop takes both away.
struct Mounted {
    point: PathBuf,
    device: Option<String>,
}

impl Mounted {
    /// What `mount` makes of these words, at a place of this name.
    fn by(scene: &Scene, name: &str, words: &[&str]) -> Self {
        let point = scene.path().join(name);
        fs::create_dir(&point).unwrap();
        run(command("mount").args(words).arg(&point)).unwrap();
        Self {
            point,
            device: None,
        }
    }

    /// Over what lies in `below`, which need not be empty.
    fn overlay(scene: &Scene, name: &str, below: &Path) -> Self {
        let part = |part: &str| {
            let path = below.join(format!("{name}-{part}"));
            fs::create_dir(&path).unwrap();
            path.display().to_string()
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            part("lower"),
            part("upper"),
            part("work")
        );
        Self::by(scene, name, &["-t", "overlay", "-o", &options, "overlay"])
    }

    /// On a file in `below`.
    fn filesystem(scene: &Scene, below: &Path, name: &str, kind: &str, options: &str) -> Self {
        let file = below.join(format!("{name}.disk"));
        run(command("truncate").args(["--size", "320M"]).arg(&file)).unwrap();
        let device = run(command("losetup").args(["--find", "--show"]).arg(&file)).unwrap();
        let device = device.trim().to_owned();
        let force = if kind.starts_with("ext") { "-F" } else { "-f" };
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

/// Mounts that lie upon each other, taken away from the top.
struct Stack(Vec<Mounted>);

impl Stack {
    fn put(&mut self, mounted: Mounted) -> PathBuf {
        let point = mounted.point.clone();
        self.0.push(mounted);
        point
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        while let Some(mounted) = self.0.pop() {
            drop(mounted);
        }
    }
}

const MEMORY: &str = "in memory (tmpfs)";

/// Directories that forget, each with the words that name it.
fn lying_directories(
    scene: &Scene,
    stack: &mut Stack,
) -> Vec<(&'static str, PathBuf, &'static str)> {
    let filesystem = |below: &Path, name: &str, kind: &str, options: &str| {
        Mounted::filesystem(scene, below, name, kind, options)
    };
    let tmpfs = ["-t", "tmpfs", "-o", "size=800m", "none"];
    let memory = stack.put(Mounted::by(scene, "memory", &tmpfs));
    let mut liars = vec![("tmpfs", memory.clone(), MEMORY)];
    let ramfs = Mounted::by(scene, "ramfs", &["-t", "ramfs", "none"]);
    liars.push(("ramfs", stack.put(ramfs), "in memory (ramfs)"));
    let inside = memory.join("inside");
    fs::create_dir(&inside).unwrap();
    let words = ["--bind", inside.to_str().unwrap()];
    let bound = stack.put(Mounted::by(scene, "bound", &words));
    liars.push(("a directory of tmpfs at another place", bound, MEMORY));
    let link = scene.path().join("link");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    liars.push(("a link into tmpfs", link, MEMORY));
    let overlay = stack.put(Mounted::overlay(scene, "over-tmpfs", &memory));
    liars.push(("an overlay that writes into tmpfs", overlay, MEMORY));
    for (kind, what) in [
        ("ext4", "ext4 on a file in tmpfs"),
        ("xfs", "XFS on a file in tmpfs"),
    ] {
        let name = format!("in-memory-{kind}");
        let place = stack.put(filesystem(&memory, &name, kind, "rw"));
        liars.push((what, place, MEMORY));
    }
    let mut forgetful = PathBuf::new();
    for (kind, options, what) in [
        ("btrfs", "nobarrier", "btrfs without barriers"),
        ("ext3", "barrier=0", "ext3 without barriers"),
        ("ext4", "nobarrier", "ext4 without barriers"),
    ] {
        let name = format!("without-barriers-{kind}");
        forgetful = stack.put(filesystem(scene.path(), &name, kind, options));
        liars.push((what, forgetful.clone(), "48 acknowledged"));
    }
    let upon = stack.put(filesystem(&forgetful, "upon", "ext4", "rw"));
    liars.push((
        "ext4 on a file of an ext4 without barriers",
        upon.clone(),
        "its ext4 is mounted with `nobarrier`",
    ));
    let upon_it = stack.put(filesystem(&upon, "upon-upon", "ext4", "rw"));
    liars.push((
        "the same once more",
        upon_it,
        "its ext4 is mounted with `nobarrier`",
    ));
    liars
}

#[test]
fn directories_that_forget_are_named_or_counted_each() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext3", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    let mut stack = Stack(Vec::new());
    for (what, place, words) in lying_directories(&scene, &mut stack) {
        let gate = gate_of(&place);
        assert_eq!(gate.class, DurabilityClass::NotDurable, "{what}: {gate:#?}");
        assert!(gate.reason.contains(words), "{what}: {}", gate.reason);
    }
}

#[test]
fn honest_directories_are_durable_wherever_they_lie() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]) {
        return;
    }
    let mut stack = Stack(Vec::new());
    let mut honest = Vec::new();
    for kind in ["xfs", "btrfs", "ext4"] {
        let name = format!("honest-{kind}");
        let mounted = Mounted::filesystem(&scene, scene.path(), &name, kind, "rw");
        honest.push(stack.put(mounted));
    }
    let ext4 = honest.last().unwrap().clone();
    honest.push(stack.put(Mounted::overlay(&scene, "over-ext4", &ext4)));
    let words = ["--bind", ext4.to_str().unwrap()];
    honest.push(stack.put(Mounted::by(&scene, "bound", &words)));
    honest.push(stack.put(Mounted::filesystem(
        &scene,
        &ext4,
        "upon-ext4",
        "ext4",
        "rw",
    )));
    for place in honest {
        let gate = gate_of(&place);
        let place = place.display();
        assert_eq!(gate.class, DurabilityClass::Durable, "{place}: {gate:#?}");
        // Four ways, one writer and eight.
        assert_eq!(gate.ways.len(), 8, "{place}: {gate:#?}");
    }
}

/// What `mount` is where a person wants ext4 to be fast.
const FAST_MOUNT: &str = "#!/bin/sh
case \" $* \" in
*' -t ext4 '*) exec REAL -o nobarrier \"$@\" ;;
*) exec REAL \"$@\" ;;
esac
";

#[test]
fn the_power_of_each_contender_is_cut_before_it_is_measured_and_who_loses_is_not_durable() {
    let Some(scene) = Scene::new() else { return };
    let Some(real) = find("mount") else { return };
    if scene.lacks_programs(&["fio", "mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let bin = scene.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = FAST_MOUNT.replace("REAL", &real.display().to_string());
    fs::write(bin.join("mount"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.join("mount"), executable).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let text = BELOW_DATABASES
        .replace("CONTENDERS", "\"ext4\", \"xfs\", \"raw\"")
        .replace("KIND", "loop");
    let file = scene.write("cut.toml", &format!("cuts = 20\n{text}"));
    let said = scene.lab_with(&[("PATH", &path)], &["run", &file]);
    assert!(said.status.success(), "{}\n{}", said.stdout, said.stderr);
    assert!(
        said.stdout
            .contains("cutting the power of ext4, at 20 moments"),
        "{}",
        said.stdout
    );

    let cuts: Cuts = read_json(&scene.path().join("cut/cuts.json")).unwrap();
    let Cut::Made {
        lost, acknowledged, ..
    } = &cuts.contenders["ext4"]
    else {
        panic!("{cuts:#?}");
    };
    assert!(!lost.is_empty() && *acknowledged == 400, "{cuts:#?}");
    let Cut::Made { lost, moments, .. } = &cuts.contenders["xfs"] else {
        panic!("{cuts:#?}");
    };
    assert!(lost.is_empty() && (1..=20).contains(moments), "{cuts:#?}");
    assert!(
        matches!(cuts.contenders["raw"], Cut::NotMade { .. }),
        "{cuts:#?}"
    );

    let summary = fs::read_to_string(scene.path().join("cut/summary.json")).unwrap();
    assert!(summary.contains("ext4 is not durable"), "{summary}");
    let page = fs::read_to_string(scene.path().join("cut/report.html")).unwrap();
    assert!(
        page.contains("xfs: its power was cut at"),
        "the report says so"
    );
    // What was cut once is not cut again.
    let said = scene.lab_with(&[("PATH", &path)], &["run", &file]);
    assert!(!said.stdout.contains("cutting"), "{}", said.stdout);
    scene.assert_clean();
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
            "careless",
            "sqlite",
            "synchronous = \"off\"",
            NotDurable,
            "synchronous = off: commit",
        ),
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
            // Ten before the load, and the load itself, whose measured part stands there where it falls
            // short by itself.
            let of_the_load = |count: &&WayCount| count.way.starts_with("load");
            let loads = gate.ways.iter().filter(of_the_load).count();
            assert_eq!(gate.ways.len() - loads, 10, "{name}: {gate:#?}");
            assert!((1..=2).contains(&loads), "{name}: {gate:#?}");
        }
    }
    scene.assert_clean();
}

const BY_SCRIPTS: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "200 ms"
settle = "0 s"
duration = "1500 ms"

[devices]
kind = "loop"
count = 1
size = "320 MiB"
directory = "SCENE"

[[workload]]
kind = "script"
files = ["pay.sql"]
init = "tables.sql"
size = "16 MiB"
users = 1
"#;

/// With functions that write: one that puts its commit off without a word that stands in a script, and
/// one that does not.
const TABLES: &str = "CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL);
INSERT INTO account SELECT n, 0 FROM generate_series(1, 1000) AS n;
CREATE FUNCTION pay_later(wanted integer) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
PERFORM set_config('synchronous' || '_commit', 'off', true);
UPDATE account SET balance = balance + 1 WHERE id = wanted; END $$;
CREATE FUNCTION pay_now(wanted integer) RETURNS void LANGUAGE sql AS $$
UPDATE account SET balance = balance + 1 WHERE id = wanted $$;
";

#[test]
fn scripts_that_put_their_commits_off_are_counted_out_or_not_vouched_for() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    use DurabilityClass::{CannotBeSeen, Durable, NotDurable};
    let draw = "\\set id random(1, 1000)\n";
    scene.write("tables.sql", TABLES);
    for (name, script, class, words) in [
        (
            "put-off",
            "BEGIN; SELECT set_config('synchronous' || '_commit', 'off', true);\n\
             UPDATE account SET balance = balance + 1 WHERE id = :id; END;",
            NotDurable,
            "load",
        ),
        (
            "later",
            "SELECT pay_later(:id);",
            CannotBeSeen,
            "its scripts write in ways that are not counted",
        ),
        // Honest, and nobody can see it.
        (
            "now",
            "SELECT pay_now(:id);",
            CannotBeSeen,
            "its scripts write in ways that are not counted",
        ),
        (
            "behind-a-comment",
            "/* a /* b */ c */ UPDATE account SET balance = balance + 1 WHERE id = :id;",
            Durable,
            "load by 1 writer",
        ),
        (
            "looks",
            "SELECT balance FROM account WHERE id = :id;",
            Durable,
            "commit by 1 writer",
        ),
    ] {
        scene.write("pay.sql", &format!("{draw}{script}\n"));
        let file = scene.write(&format!("{name}.toml"), BY_SCRIPTS);
        let said = scene.lab(&["run", &file]);
        for (_, gate) in gates(&scene, name, &said) {
            assert_eq!(gate.class, class, "{name}: {gate:#?}");
            assert!(gate.reason.contains(words), "{name}: {}", gate.reason);
            let is_load = |count: &WayCount| count.way == "load";
            let load = gate.ways.iter().find(|count| is_load(count));
            let is_counted = ["put-off", "behind-a-comment"].contains(&name);
            assert_eq!(load.is_some(), is_counted, "{name}: {gate:#?}");
        }
    }
    scene.assert_clean();
}

#[test]
fn a_load_that_changes_settings_or_lays_rows_elsewhere_has_failed() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    scene.write("tables.sql", TABLES);
    for (name, script, words) in [
        (
            "alters",
            "SELECT 'synchronous' || '_commit' AS name \\gset\n\
             ALTER SYSTEM SET :name = off;\nSELECT pg_reload_conf();\n\
             UPDATE account SET balance = balance + 1 WHERE id = 1;",
            "synchronous_commit was on and is off",
        ),
        (
            "without-a-log",
            "DO $$ BEGIN EXECUTE 'CREATE UNLOG' || 'GED TABLE IF NOT EXISTS quick (a integer)'; END $$;\n\
             INSERT INTO quick VALUES (1);",
            "there are unlogged quick",
        ),
    ] {
        scene.write("pay.sql", &format!("{script}\n"));
        let file = scene.write(&format!("{name}.toml"), BY_SCRIPTS);
        scene.lab(&["run", &file]);
        let runs = fs::read_dir(scene.path().join(name).join("runs")).unwrap();
        for folder in runs.map(|entry| entry.unwrap().path()) {
            let run: Run = read_json(&folder.join("run.json")).unwrap();
            let Outcome::Failed { reason, .. } = &run.outcome else {
                panic!("{name}: {run:#?}");
            };
            assert!(reason.contains(words), "{name}: {reason}");
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

/// One client, so that each of its transactions needs a flush of its own.
const UNDER_LOAD: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "500 ms"
duration = "6 s"

[devices]
kind = "loop"
count = 1
size = "320 MiB"
directory = "SCENE"

[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 1
"#;

#[test]
fn a_mount_that_loses_its_barriers_under_the_load_is_caught_by_the_load() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "mkfs.ext4"]) {
        return;
    }
    let file = scene.write("under.toml", UNDER_LOAD);
    let mut lab = scene.start(&["run", &file]);
    // The probes are over when the samples of the first run begin.
    let until = Instant::now() + Duration::from_secs(180);
    let is_under_load = || {
        let runs = fs::read_dir(scene.path().join("under/runs"))
            .into_iter()
            .flatten();
        let mut samples = runs.map(|run| run.unwrap().path().join("samples.csv"));
        samples.any(|path| fs::read_to_string(path).is_ok_and(|text| text.lines().count() > 1))
    };
    while !is_under_load() {
        assert!(lab.try_wait().unwrap().is_none(), "it ended early");
        assert!(Instant::now() < until, "no load has begun");
        thread::sleep(Duration::from_millis(20));
    }
    let mut places = mounts().unwrap().into_iter().map(|(place, _)| place);
    let place = places
        .find(|place| place.starts_with(scene.path()))
        .unwrap();
    run(command("mount")
        .args(["-o", "remount,nobarrier"])
        .arg(&place))
    .unwrap();
    assert!(lab.wait().unwrap().success());

    let mut classes = Vec::new();
    for run in fs::read_dir(scene.path().join("under/runs")).unwrap() {
        let run: Run = read_json(&run.unwrap().path().join("run.json")).unwrap();
        let durability = run.measured().unwrap().durability.clone().unwrap();
        let gate = durability.gate.unwrap();
        let load = gate.ways.iter().find(|count| count.way == "load").unwrap();
        assert!(load.acknowledged > 0, "{gate:#?}");
        if gate.class == DurabilityClass::NotDurable {
            assert!(gate.reason.starts_with("load"), "{gate:#?}");
        } else {
            // The other one was left alone: as many flushes as it acknowledged.
            assert!(load.flushes >= quantity(load.acknowledged), "{gate:#?}");
        }
        classes.push(gate.class);
    }
    classes.sort();
    assert_eq!(
        classes,
        [DurabilityClass::Durable, DurabilityClass::NotDurable]
    );
    let summary = fs::read_to_string(scene.path().join("under/summary.json")).unwrap();
    assert!(summary.contains("ext4 is not durable: load"), "{summary}");
    scene.assert_clean();
}

fn quantity(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
