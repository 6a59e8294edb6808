//! The commands of the pages are run as they are written: what a reader types works.
//!
//! `/srv` becomes a directory of the test, and the search path finds the binary that was built;
//! each server has a port of the test's. Nothing else is changed. The pages reserve dozens of GiB for
//! disks and write little to them: `/srv/disks` is a file system in a sparse file, where what is
//! reserved takes no room.

#![allow(clippy::unwrap_used, reason = "what cannot be tried has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use spindle_testbed::postgres::Installation;
use spindle_testbed::process::run;
use spindle_testbed::scene::Scene;
use spindle_testbed::spindle::is_mounted;

/// A port of our own: the machine may have a server.
const PORT: &str = "54329";
/// Those of the page on moving, which runs beside the others: of its first server, and in place of the
/// one that it gives its second.
const MOVING_PORTS: [&str; 2] = ["54330", "54331"];

fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_path_buf()
}

/// The shell blocks of a page, one after the other; `make` is tried by those who run this.
fn commands(page: &str) -> String {
    let text = fs::read_to_string(repository_root().join(page)).unwrap();
    text.split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|block| !block.starts_with("make "))
        .collect()
}

/// Where `cargo` puts the binary: beside the directory of the tests.
fn program_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().unwrap().parent().unwrap().to_path_buf();
    assert!(
        directory.join("spindle").exists(),
        "the binary is not built: cargo build -p spindle-cli"
    );
    directory
}

fn shell(scene: &Scene, script: &str) -> spindle_testbed::process::Outcome {
    let path = format!(
        "{}:{}",
        program_directory().display(),
        std::env::var("PATH").unwrap()
    );
    // A command that does not return is an error of the page.
    run(Command::new("timeout")
        .args(["--kill-after=10", "300", "bash", "-c"])
        .arg(script.replace("/srv", &scene.path().display().to_string()))
        .current_dir(scene.path())
        .env("PATH", path)
        .env("PGPORT", PORT)
        .env("SPINDLE_RUNTIME_DIR", scene.join("run")))
    .unwrap()
}

/// The file system at `/srv/disks`, for as long as a page runs.
struct Disks<'a> {
    scene: &'a Scene,
}

impl<'a> Disks<'a> {
    fn mount(scene: &'a Scene) -> Self {
        let make = "truncate --size 128G image && mkfs.ext4 -q image && mkdir disks && \
                    mount -o loop,discard image disks && rmdir disks/lost+found";
        let outcome = shell(scene, make);
        assert!(outcome.status.success(), "{}", outcome.stderr);
        Self { scene }
    }
}

impl Drop for Disks<'_> {
    fn drop(&mut self) {
        shell(self.scene, "umount --lazy disks");
    }
}

/// Ends what a failed page left behind.
fn clean_up(scene: &Scene) {
    if is_mounted(&scene.join("data")).unwrap() {
        end_servers(scene, &["data/pg/main"]);
        unmount(scene, "data");
    }
}

/// Those that run of the servers with these clusters below `/srv`.
fn end_servers(scene: &Scene, clusters: &[&str]) {
    for cluster in clusters {
        let stop = format!("pg_ctl -D /srv/{cluster} -m immediate stop");
        shell(
            scene,
            &format!("runuser -u postgres -- /usr/lib/postgresql/15/bin/{stop}"),
        );
    }
}

fn unmount(scene: &Scene, group: &str) {
    if is_mounted(&scene.join(group)).unwrap() {
        shell(
            scene,
            &format!("spindle umount {group} || umount --lazy /srv/{group}"),
        );
    }
}

fn can_run() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the pages run a server as another user, which needs root");
        return false;
    }
    if Installation::find().is_err() {
        println!("skipped: PostgreSQL is not installed");
        return false;
    }
    if !run(Command::new("losetup").arg("--find")).is_ok_and(|found| found.status.success()) {
        println!("skipped: there is no loop device for the disks' file system");
        return false;
    }
    // The page names the version that Debian 12 has.
    if !Path::new("/usr/lib/postgresql/15").exists() {
        println!("skipped: version 15 of the server is not installed");
        return false;
    }
    true
}

#[test]
fn the_operations_page_runs_as_written() {
    if !can_run() {
        return;
    }
    let scene = Scene::make(&std::env::temp_dir(), "spindle-operations").unwrap();
    let _disks = Disks::mount(&scene);
    let outcome = shell(
        &scene,
        &format!("set -ex\n{}", commands("docs/operations.md")),
    );
    clean_up(&scene);
    assert!(
        outcome.status.success(),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    assert!(outcome.stdout.contains("offline"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("former"), "{}", outcome.stdout);
}

#[test]
fn the_page_on_moving_runs_as_written() {
    if !can_run() {
        return;
    }
    let scene = Scene::make(&std::env::temp_dir(), "spindle-moving").unwrap();
    let _disks = Disks::mount(&scene);
    let [first, second] = MOVING_PORTS;
    let script = commands("docs/moving.md").replace("5433", second);
    let script = format!("set -euxo pipefail\nexport PGPORT={first}\n{script}");
    let outcome = shell(&scene, &script);
    end_servers(
        &scene,
        &["old/main", "data/pg/main", "data/pg/fresh", "step/pg/main"],
    );
    for group in ["step", "wal", "data"] {
        unmount(&scene, group);
    }
    assert!(
        outcome.status.success(),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    // Each copy has every row, and every page of the three clusters that were read is good.
    assert_eq!(
        outcome.stdout.matches("200000").count(),
        4,
        "{}",
        outcome.stdout
    );
    assert_eq!(
        outcome.stdout.matches("Bad checksums:  0").count(),
        3,
        "{}",
        outcome.stdout
    );
}

#[test]
fn the_readme_runs_as_written() {
    if !can_run() {
        return;
    }
    let scene = Scene::make(&std::env::temp_dir(), "spindle-readme").unwrap();
    let _disks = Disks::mount(&scene);
    let script = format!("set -ex\n{}\ntouch /srv/data/a-file", commands("README.md"));
    let outcome = shell(&scene, &script);
    clean_up(&scene);
    assert!(
        outcome.status.success(),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
}
