//! A smoke run of every load on MariaDB and on SQLite, through the command; and what such a
//! database cannot do, refused before anything is made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod scene;

use scene::Scene;
use serde_json::Value;

const EXPERIMENT: &str = r#"
contenders = ["ext4"]
blocks = 1
warm_up = "100 ms"
duration = "500 ms"

[devices]
kind = "loop"
count = 1
size = "384 MiB"
directory = "SCENE"

[database]
kind = "KIND"
memory = "256 MiB"

[[workload]]
kind = "scan"
size = "16 MiB"
[[workload]]
kind = "growth"
size = "16 MiB"
[[workload]]
kind = "random"
size = "16 MiB"
users = 2
schemas = 2
scan_percent = 10
scan_size = "256 KiB"
[[workload]]
kind = "tpcb"
size = "16 MiB"
users = 3
"#;

fn every_load_runs_on(kind: &str, programs: &[&str]) {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(programs) {
        return;
    }
    let file = scene.write("smoke.toml", &EXPERIMENT.replace("KIND", kind));
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let text = std::fs::read_to_string(scene.path().join("smoke/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    let workloads = summary["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 4);
    for workload in workloads {
        for contender in workload["contenders"].as_array().unwrap() {
            assert!(contender["rate"].as_f64().unwrap() > 0.0, "{workload}");
            assert_eq!(contender["failed"], 0, "{workload}");
        }
    }
    let is_embedded = text.contains("database-is-embedded");
    assert_eq!(is_embedded, kind == "sqlite");
    let environment = std::fs::read_to_string(scene.path().join("smoke/environment.json")).unwrap();
    assert!(
        environment.to_lowercase().contains(&format!("\"{kind} ")),
        "{environment}"
    );
    scene.assert_clean();
}

#[test]
fn every_load_runs_on_mariadb_and_is_checked() {
    every_load_runs_on("mariadb", &["mariadbd", "mariadb-install-db"]);
}

#[test]
fn every_load_runs_on_sqlite_and_is_checked() {
    every_load_runs_on("sqlite", &[]);
}

/// `SPINDLE_LAB_POSTGRESQL` may name an installation of another version than Debian's.
#[test]
fn a_postgresql_of_another_directory_runs_and_its_views_are_known() {
    let Some(scene) = Scene::new() else { return };
    let directory = std::env::var("SPINDLE_LAB_POSTGRESQL")
        .unwrap_or_else(|_| "/usr/lib/postgresql/15".to_owned());
    if !std::path::Path::new(&directory).join("bin/initdb").exists() {
        println!("skipped: {directory} has no PostgreSQL");
        return;
    }
    let text = EXPERIMENT.replace("KIND", "postgresql").replace(
        "memory =",
        &format!("directory = \"{directory}\"\nmemory ="),
    );
    // The last of the loads is enough: all ask through the same interface.
    let (head, loads) = text.split_once("[[workload]]").unwrap();
    let (_, last) = loads.rsplit_once("[[workload]]").unwrap();
    let file = scene.write("other.toml", &format!("{head}[[workload]]{last}"));
    let ran = scene.lab(&["run", &file]);
    assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
    let folder = scene.path().join("other");
    let environment = std::fs::read_to_string(folder.join("environment.json")).unwrap();
    println!("{environment}");
    let samples = std::fs::read_to_string(folder.join("samples.csv")).unwrap();
    let names: Vec<&str> = samples.lines().next().unwrap().split(',').collect();
    for name in ["database_blocks_written", "database_log_writes"] {
        assert!(names.contains(&name), "{names:?}");
    }
    scene.assert_clean();
}

#[test]
fn what_a_database_cannot_do_is_refused_in_one_line_before_anything_is_made() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mariadbd", "initdb"]) {
        return;
    }
    for (kind, from, to, wanted) in [
        (
            "sqlite",
            "kind = \"scan\"",
            "kind = \"scan\"\ndegree = 4",
            "`scan, degree 4, cold` cannot run: SQLite scans a table with one thread",
        ),
        (
            "mariadb",
            "memory =",
            "settings = { max_connections = \"4\" }\nmemory =",
            "needs 5 connections",
        ),
        (
            "mariadb",
            "256 MiB",
            "129 MiB",
            "do not fit into MariaDB's buffers of",
        ),
        (
            "mariadb",
            "256 MiB",
            "100 MiB",
            "MariaDB needs at least 128",
        ),
        (
            "postgresql",
            "256 MiB",
            "32 MiB",
            "PostgreSQL needs at least 64",
        ),
        (
            "mariadb",
            "memory =",
            "directory = \"/no/mariadb\"\nmemory =",
            "/no/mariadb has no MariaDB",
        ),
        (
            "sqlite",
            "memory =",
            "directory = \"/anywhere\"\nmemory =",
            "SQLite is built into the lab",
        ),
        ("sqlight", "KIND", "", "did you mean sqlite"),
    ] {
        let text = EXPERIMENT
            .replace("KIND", kind)
            .replace("size = \"16 MiB\"", "size = \"33 MiB\"")
            .replace(from, to);
        let file = scene.write("refused.toml", &text);
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{to}: {}", said.stdout);
        assert!(said.stderr.contains(wanted), "{to}: {}", said.stderr);
        assert_eq!(said.stderr.trim().lines().count(), 1, "{}", said.stderr);
        assert!(!scene.path().join("refused").exists(), "{to}");
        scene.assert_clean();
    }
}

#[test]
fn a_setting_that_the_database_does_not_take_is_refused_with_its_own_words() {
    let Some(scene) = Scene::new() else { return };
    if scene.lacks_programs(&["mariadbd"]) {
        return;
    }
    for kind in ["mariadb", "sqlite"] {
        let text = EXPERIMENT.replace("KIND", kind).replace(
            "memory =",
            "settings = { no_such_setting = \"1\" }\nmemory =",
        );
        let text = text
            .split("[[workload]]\nkind = \"growth\"")
            .next()
            .unwrap();
        let file = scene.write(&format!("{kind}.toml"), text);
        let said = scene.lab(&["run", &file]);
        assert_eq!(said.status.code(), Some(2), "{}", said.stdout);
        assert!(said.stderr.contains("no_such_setting"), "{}", said.stderr);
        scene.assert_clean();
    }
}
