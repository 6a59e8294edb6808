//! Pages that the real servers wrote: every one is good, and not with a bit of it flipped.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use spindle_pages::postgresql::{Checksums, checksums_of_control};
use spindle_pages::{HEAD_BYTES, PageFile, Verdict, is_candidate};

/// The newest `initdb` of the machine.
fn initdb() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/initdb")))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop()
}

/// A directory that the servers' own user may write, too.
fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::Builder::new()
        .prefix("spindle-pages-")
        .tempdir()
        .unwrap();
    let anybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), anybody).unwrap();
    directory
}

fn make_cluster(initdb: &Path, cluster: &Path, checksums: bool) {
    // initdb refuses to run as root.
    let is_root = std::fs::metadata("/proc/self")
        .map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        .unwrap();
    let mut command = if is_root {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(initdb);
        command
    } else {
        Command::new(initdb)
    };
    command.args(["--no-sync", "-D"]).arg(cluster);
    if checksums {
        command.arg("--data-checksums");
    }
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else if is_candidate(&path.display().to_string()) {
            found.push(path);
        }
    }
}

/// What every page of the directory is worth: how many are good and how many are empty. Each
/// good one is tried again with a bit of it flipped.
fn judge_all(directory: &Path) -> (usize, usize) {
    let mut files = Vec::new();
    files_below(directory, &mut files);
    let (mut good_count, mut empty_count) = (0, 0);
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let text = path.display().to_string();
        let control = PageFile::control_path(&text).and_then(|path| std::fs::read(path).ok());
        let head = &bytes[..bytes.len().min(HEAD_BYTES)];
        let Some(file) = PageFile::recognise(&text, head, control.as_deref()) else {
            assert!(bytes.is_empty(), "{text} is not recognised");
            continue;
        };
        for (page, bytes) in (0_u64..).zip(bytes.chunks(file.page_bytes())) {
            match file.judge(page, bytes) {
                Verdict::Empty => empty_count += 1,
                Verdict::Good => {
                    good_count += 1;
                    let mut bytes = bytes.to_vec();
                    let at = 40 + usize::try_from(page * 977).unwrap() % (bytes.len() - 60);
                    bytes[at] ^= 1 << (page % 8);
                    assert_eq!(file.judge(page, &bytes), Verdict::Bad, "{text}:{page}:{at}");
                }
                // What the doublewrite buffer holds may be of any kind.
                Verdict::Unknown if text.ends_with("ibdata1") && (64..192).contains(&page) => {}
                other => panic!("page {page} of {text} is {other:?}"),
            }
        }
    }
    (good_count, empty_count)
}

#[test]
fn every_page_of_a_real_cluster_is_good_and_not_with_a_flipped_bit() {
    let Some(initdb) = initdb() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let directory = open_directory();
    let cluster = directory.path().join("cluster");
    make_cluster(&initdb, &cluster, true);
    let control = std::fs::read(cluster.join("global/pg_control")).unwrap();
    assert_eq!(checksums_of_control(&control), Checksums::On);
    let (good_count, _) = judge_all(&cluster);
    assert!(good_count > 2000, "{good_count}");
    // Without the control file the right checksums are proof enough.
    std::fs::remove_file(cluster.join("global/pg_control")).unwrap();
    let path = cluster.join("base/1/1259");
    let bytes = std::fs::read(&path).unwrap();
    let file = PageFile::recognise(&path.display().to_string(), &bytes, None).unwrap();
    assert_eq!(file.judge(1, &bytes[8192..16384]), Verdict::Good);
}

#[test]
fn the_pages_of_a_cluster_without_checksums_are_not_judged() {
    let Some(initdb) = initdb() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let directory = open_directory();
    let cluster = directory.path().join("cluster");
    make_cluster(&initdb, &cluster, false);
    let control = std::fs::read(cluster.join("global/pg_control")).unwrap();
    assert_eq!(checksums_of_control(&control), Checksums::Off);
    let path = cluster.join("base/1/1259");
    let bytes = std::fs::read(&path).unwrap();
    let text = path.display().to_string();
    assert_eq!(PageFile::recognise(&text, &bytes, Some(&control)), None);
    let file = PageFile::recognise(&text, &bytes, None).unwrap();
    for (page, bytes) in (0..).zip(bytes.chunks(8192)) {
        assert_eq!(file.judge(page, bytes), Verdict::Unknown);
    }
}

#[test]
fn every_page_that_mariadb_writes_is_good_in_either_format() {
    let server = Path::new("/usr/sbin/mariadbd");
    if !server.exists() {
        println!("skipped: MariaDB is not installed");
        return;
    }
    for algorithm in ["full_crc32", "crc32"] {
        let directory = open_directory();
        let statements = directory.path().join("statements.sql");
        std::fs::write(
            &statements,
            "CREATE DATABASE d;\n\
             USE d;\n\
             CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(200)) ENGINE=InnoDB;\n\
             INSERT INTO t SELECT seq, REPEAT('text ', seq % 40) FROM seq_1_to_20000;\n",
        )
        .unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let output = Command::new(server)
            .args(["--no-defaults", "--bootstrap", "--user=root"])
            .arg("--plugin-load-add=ha_sequence")
            .arg("--innodb-fast-shutdown=0")
            .arg(format!("--innodb-checksum-algorithm={algorithm}"))
            .arg(format!("--datadir={}", data.display()))
            .stdin(std::fs::File::open(&statements).unwrap())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let (good_count, _) = judge_all(&data);
        assert!(good_count > 100, "{algorithm}: {good_count}");
    }
}
