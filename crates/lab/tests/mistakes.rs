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
        ("blocks", "block", "line 3, column 1: unknown field `block`"),
        ("tpcb", "tpcx", "did you mean tpcb"),
        ("\"SCENE\"", "\"/no/such/place\"", "/no/such/place"),
        ("512 MiB", "512 TiB", "free"),
        ("\"16 MiB\"", "\"4 GiB\"", "needs devices of"),
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
        "settings = { shared_buffers = \"nonsense\" }\nmemory =",
    );
    let file = scene.write("broken.toml", &text);
    let said = scene.lab(&["run", &file]);
    assert_eq!(said.status.code(), Some(1), "{}", said.stderr);
    assert!(said.stdout.contains("FAILED"), "{}", said.stdout);
    assert!(said.stdout.contains("shared_buffers"), "{}", said.stdout);
    assert!(said.stdout.contains("no run of it") || said.stdout.contains("Nothing was compared"));
    scene.assert_clean();
}

#[test]
fn answers_by_flags_write_a_file_without_a_question() {
    let Some(scene) = Scene::new() else { return };
    let said = scene.lab(&[
        "init",
        "mine.toml",
        "--workload",
        "random",
        "--size",
        "128 MiB",
        "--users",
        "2",
        "--contenders",
        "ext4",
        "--devices",
        "zram:2",
    ]);
    assert!(said.status.success(), "{}", said.stderr);
    let text = std::fs::read_to_string(scene.path().join("mine.toml")).unwrap();
    assert!(
        text.contains("kind = \"zram\"") && text.contains("kind = \"random\""),
        "{text}"
    );
    let refused = scene.lab(&["init", "other.toml", "--workload", "randon"]);
    assert!(
        refused.stderr.contains("did you mean random"),
        "{}",
        refused.stderr
    );
}
