//! Bad input: one clear line, and nothing is touched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use scene::Scene;

const GOOD: &str = r#"
contenders = ["ext4"]
blocks = 1
[devices]
kind = "loop"
count = 1
size = "512 MiB"
directory = "SCENE"
[database]
memory = "128 MiB"
[[workload]]
kind = "tpcb"
size = "16 MiB"
"#;

#[test]
fn a_mistake_is_one_line_that_says_where_and_nothing_is_made() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    for (from, to, wanted) in [
        (
            "\"ext4\"",
            "\"etx4\"",
            "line 2, column 15: no contender `etx4`; did you mean ext4",
        ),
        (
            "blocks = 1",
            "duration = \"0 s\"",
            "line 3, column 12: `duration` lies between",
        ),
        (
            "\"16 MiB\"",
            "\"100 MiB\"",
            "are not cached by a memory of 128 MiB",
        ),
        ("\"128 MiB\"", "\"64 TiB\"", "this machine has"),
        ("blocks", "block", "line 3, column 1: unknown field `block`"),
        ("tpcb", "tpcx", "did you mean tpcb"),
        ("\"SCENE\"", "\"/no/such/place\"", "/no/such/place"),
        ("512 MiB", "512 TiB", "free"),
        (
            "\"16 MiB\"",
            "\"4 GiB\"\nregime = \"cold\"",
            "needs devices of",
        ),
        (
            "\"16 MiB\"",
            "\"64 MiB\"\nregime = \"storage-bound\"",
            "not 5 times the memory",
        ),
        (
            "kind = \"loop\"\ncount = 1\nsize = \"512 MiB\"",
            "kind = \"block\"\nnames = [\"/dev/no-such-disk\"]",
            "/dev/no-such-disk",
        ),
        (
            "memory =",
            "directory = \"/no/postgresql\"\nmemory =",
            "/no/postgresql has no PostgreSQL",
        ),
        (
            "memory =",
            "settings = { shared_buffers = \"nonsense\" }\nmemory =",
            "[database] settings: PostgreSQL does not take `shared_buffers = \"nonsense\"`: invalid value",
        ),
        ("\"ext4\"", "\"zfs-of-nobody\"", "no contender"),
        (
            "\"ext4\"",
            "\"lvm-striped-xfs\"",
            "lvm-striped-xfs` cannot run here",
        ),
    ] {
        let text = GOOD.replace(from, to);
        let file = scene.write("mistake.toml", &text);
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{to}: {}", said.stdout);
        assert!(said.stderr.contains(wanted), "{to}: {}", said.stderr);
        assert_eq!(said.stderr.trim().lines().count(), 1, "{}", said.stderr);
        assert!(!scene.path().join("mistake").exists(), "{to}");
        scene.assert_clean();
    }
    let file = scene.write("mistake.toml", GOOD);
    let said = scene.lab(&["run", &file, "--erase", "/dev/null"]);
    assert!(said.stderr.contains("does not name it"), "{}", said.stderr);
    let said = scene.lab(&["report", "/no/such/folder"]);
    assert!(
        said.stderr.contains("is no folder of an experiment"),
        "{}",
        said.stderr
    );
    let said = scene.lab(&["init", &file]);
    assert!(said.stderr.contains("is there already"), "{}", said.stderr);
}

#[test]
fn a_database_that_does_not_start_is_a_failed_run_with_the_end_of_its_log() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb"]) {
        return;
    }
    let text = GOOD.replace(
        "memory =",
        "settings = { shared_preload_libraries = \"no_such_library\" }\nmemory =",
    );
    let file = scene.write("broken.toml", &text);
    let said = scene.lab(&["run", &file]);
    assert_eq!(said.status.code(), Some(1), "{}", said.stderr);
    assert!(said.stdout.contains("FAILED"), "{}", said.stdout);
    assert!(said.stdout.contains("no_such_library"), "{}", said.stdout);
    assert!(said.stdout.contains("no run of it") || said.stdout.contains("Nothing was compared"));
    scene.assert_clean();
}

/// Whether `run` takes a file: it refuses the folder only, after every check.
fn is_taken(scene: &Scene, file: &str) -> Result<(), String> {
    let occupied = scene.path().join("occupied");
    std::fs::create_dir_all(occupied.join("by something else")).unwrap();
    let occupied = occupied.display().to_string();
    let said = scene.lab(&["run", file, "--output", &occupied]);
    scene.assert_clean();
    if said.stderr.contains("is not empty and holds no experiment") {
        Ok(())
    } else {
        Err(said.stderr)
    }
}

#[test]
fn what_init_writes_is_taken_by_run_and_what_run_refuses_is_not_written() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["initdb", "fio", "mkfs.ext4"]) {
        return;
    }
    for words in [
        "--workload random --size 128MiB --users 2 --contenders ext4 --devices loop:2",
        "--workload tpcb --size 300MiB --database sqlite --contenders ext4",
        "--workload scan --size 64MiB --regime cached --contenders ext4",
        "--workload tpcb --size 400MiB --regime storage-bound --contenders ext4",
        "--workload block --contenders ext4 --memory 100MiB",
        "--workload tpch --size 64MiB --database postgresql --contenders ext4",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let said = scene.lab(&[&["init", "mine.toml", "--force"], words.as_slice()].concat());
        assert!(said.status.success(), "{words:?}: {}", said.stderr);
        let taken = is_taken(&scene, "mine.toml");
        assert_eq!(taken, Ok(()), "{words:?}");
        std::fs::remove_file(scene.path().join("mine.toml")).unwrap();
    }
    for (words, wanted) in [
        ("--workload randon", "did you mean random"),
        (
            "--workload tpch --database sqlite",
            "written for PostgreSQL",
        ),
        ("--size 0MiB", "`size` is at least 16 MiB"),
        ("--users 0", "`users` lies between"),
        ("--memory 0MiB", "`memory` is at least 16 MiB"),
        ("--workload scan --users 3", "means nothing to the workload"),
        (
            "--size 2GiB --regime cached --memory 512MiB",
            "are not cached by a memory of 512 MiB",
        ),
        (
            "--size 2GiB --regime storage-bound --memory 512MiB",
            "are not 5 times the memory",
        ),
        ("--size 8TiB --contenders ext4", "free"),
        (
            "--contenders spindle-high --devices loop:2",
            "it needs 3 devices",
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let said = scene.lab(&[&["init", "mine.toml"], words.as_slice()].concat());
        assert_eq!(said.status.code(), Some(2), "{words:?}: {}", said.stdout);
        assert!(said.stderr.contains(wanted), "{words:?}: {}", said.stderr);
        assert!(!scene.path().join("mine.toml").exists(), "{words:?}");
    }
}
