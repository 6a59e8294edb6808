//! Pages of real databases of which nothing proves the right copy: a scrub that may repair tells
//! of them and leaves both copies as they are.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use place::damage::{bytes_at, damage, findings, keep_back, on_disk, room, scrub, spot};
use place::postgresql::Server;
use place::{Place, can_mount, outcome};

/// The two versions of a page, each of which some disk has.
struct Versions {
    path: String,
    page: u64,
    older: Vec<u8>,
    newer: Vec<u8>,
}

impl Versions {
    /// Of pages that a server has written again the first `wanted` from page `from` on.
    fn after(
        path: &str,
        (from, wanted): (usize, usize),
        before: &[u8],
        after: &[u8],
        page_bytes: usize,
    ) -> Vec<Self> {
        let of_page = |bytes: &[u8], page: usize| bytes[page * page_bytes..][..page_bytes].to_vec();
        let found: Vec<Self> = (from..before.len() / page_bytes)
            .map(|page| Self {
                path: path.to_owned(),
                page: page as u64,
                older: of_page(before, page),
                newer: of_page(after, page),
            })
            .filter(|versions| {
                versions.older != versions.newer && versions.older.iter().any(|byte| *byte != 0)
            })
            .take(wanted)
            .collect();
        assert_eq!(found.len(), wanted, "pages that the server wrote again");
        found
    }

    fn offset_bytes(&self) -> u64 {
        self.page * self.newer.len() as u64
    }

    fn on_disk(&self, place: &Place, copy: usize) -> Vec<u8> {
        let length_bytes = self.newer.len();
        on_disk(place, &self.path, self.offset_bytes(), length_bytes, copy)
    }

    fn keep_back(&self, place: &Place, copy: usize) -> String {
        keep_back(place, &self.path, self.offset_bytes(), &self.older, copy)
    }

    fn put_right(&self, place: &Place, copy: usize) {
        keep_back(place, &self.path, self.offset_bytes(), &self.newer, copy);
    }
}

/// Of each page one copy is what a disk has that kept back the newer version: that is told, and
/// neither is touched.
fn assert_told_and_left(place: &Place, kept_back: &[(&Versions, usize)]) {
    let report = scrub(place, "data", &["--repair"], 1);
    assert_eq!(report["repaired_count"], 0, "{report}");
    let told = findings(&report);
    for (versions, copy) in kept_back {
        let is_told = told
            .iter()
            .any(|(kind, path)| kind == "copies_differ" && *path == versions.path);
        assert!(is_told, "{report}");
        assert!(
            versions.on_disk(place, *copy) == versions.older,
            "page {} was only told",
            versions.page
        );
        assert!(
            versions.on_disk(place, 1 - copy) == versions.newer,
            "what was committed of page {} is there",
            versions.page
        );
    }
    let is_of_them = |(kind, path): &(String, String)| {
        kind == "copies_differ"
            && (path.ends_with("/pg_control") || kept_back.iter().any(|(one, _)| one.path == *path))
    };
    assert!(told.iter().all(is_of_them), "{report}");
}

#[test]
fn a_page_written_after_checksums_were_switched_off_does_not_lose_to_an_older_one() {
    if !can_mount() {
        return;
    }
    let place = room();
    let Some(mut server) = Server::make(&place, &["--data-checksums"]) else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    server.start();
    server.ask("CREATE TABLE t AS SELECT n, 'old ' || n AS text FROM generate_series(1, 5000) n");
    server.ask("VACUUM FREEZE t");
    let relation = server.ask("SELECT pg_relation_filepath('t')");
    server.stop();
    let path = format!("/pg/{relation}");
    let (file, control_file) = (
        server.cluster.join(&relation),
        server.cluster.join("global/pg_control"),
    );
    let before = std::fs::read(&file).unwrap();
    let control_before = std::fs::read(&control_file).unwrap();

    let cluster = server.cluster.display().to_string();
    server.run("pg_checksums", &["--disable", "-D", &cluster]);
    server.start();
    server.ask("UPDATE t SET text = 'committed' WHERE n IN (5, 3000)");
    server.stop();
    let versions = Versions::after(&path, (0, 2), &before, &std::fs::read(&file).unwrap(), 8192);
    let control_after = std::fs::read(&control_file).unwrap();
    place.tell(["sync", "data"]);
    assert_eq!(scrub(&place, "data", &[], 0)["findings_count"], 0);

    let kept_back = [(&versions[0], 0), (&versions[1], 1)];
    for (one, copy) in kept_back {
        one.keep_back(&place, copy);
    }
    assert_told_and_left(&place, &kept_back);
    // A disk that says, by the control file that it kept back, that there are checksums.
    let control = "/pg/global/pg_control";
    keep_back(&place, control, 0, &control_before, 0);
    assert_told_and_left(&place, &kept_back);
    keep_back(&place, control, 0, &control_after, 0);
    versions[0].put_right(&place, 0);

    // A person knows which disk it was.
    let (last, _) = kept_back[1];
    let disk = last.keep_back(&place, 1);
    let word = ["--distrust", &disk, "--repair", "--yes"];
    let report = scrub(&place, "data", &word, 0);
    assert_eq!(report["findings_count"], report["repaired_count"]);
    assert!(last.on_disk(&place, 0) == last.newer && last.on_disk(&place, 1) == last.newer);
    place.umount();
    place.mount();
    server.start();
    assert_eq!(
        server.ask("SELECT count(*) FROM t WHERE text = 'committed'"),
        "2"
    );
    server.stop();
}

/// MariaDB on the mount, with keys by which it can encrypt.
struct MariaDb {
    data: PathBuf,
    keys: PathBuf,
    socket: PathBuf,
    process: Option<Child>,
}

impl MariaDb {
    const PROGRAM: &str = "/usr/sbin/mariadbd";

    /// A directory of data, made by these statements; `None` where MariaDB is not installed.
    fn make(place: &Place, statements: &str) -> Option<Self> {
        if !Path::new(Self::PROGRAM).exists() {
            println!("skipped: MariaDB is not installed");
            return None;
        }
        let server = Self {
            data: place.mount_point().join("my"),
            keys: place.path("keys"),
            socket: place.path("mariadb.socket"),
            process: None,
        };
        std::fs::create_dir(&server.data).unwrap();
        std::fs::write(
            &server.keys,
            format!("1;{}\n", "0123456789abcdef".repeat(2)),
        )
        .unwrap();
        let input = place.path("statements.sql");
        std::fs::write(&input, statements).unwrap();
        let mut command = server.command();
        command.arg("--bootstrap");
        let made = outcome(command.stdin(std::fs::File::open(&input).unwrap()));
        assert_eq!(made.code, 0, "{made:?}");
        Some(server)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(Self::PROGRAM);
        command
            .args(["--no-defaults", "--user=root", "--innodb-fast-shutdown=0"])
            .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M"])
            .arg("--plugin-load-add=file_key_management")
            .arg(format!(
                "--file-key-management-filename={}",
                self.keys.display()
            ))
            .arg(format!("--datadir={}", self.data.display()));
        command
    }

    fn start(&mut self) {
        let mut command = self.command();
        command
            .args(["--skip-networking", "--skip-grant-tables"])
            .arg(format!("--socket={}", self.socket.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        self.wait_until("SELECT 1", "1");
    }

    fn ask(&self, statement: &str) -> String {
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "-N", "-B", "--user=root", "-e", statement])
            .arg(format!("--socket={}", self.socket.display()));
        outcome(&mut command).stdout.trim().to_owned()
    }

    fn wait_until(&self, statement: &str, answer: &str) {
        for _ in 0..600 {
            if self.ask(statement) == answer {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{statement} does not become {answer}");
    }

    fn stop(&mut self) {
        self.ask("SHUTDOWN");
        let mut process = self.process.take().unwrap();
        assert!(process.wait().unwrap().success());
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn a_page_of_innodb_that_was_encrypted_since_does_not_lose_to_an_older_plain_one() {
    if !can_mount() {
        return;
    }
    let place = room();
    let statements = "CREATE DATABASE mysql;\n\
         CREATE DATABASE d;\n\
         USE d;\n\
         CREATE TABLE d.t (id INT PRIMARY KEY, text VARCHAR(200)) ENGINE=InnoDB;\n\
         INSERT INTO d.t SELECT seq, REPEAT('text ', seq % 40) FROM seq_1_to_20000;\n";
    let Some(mut server) = MariaDb::make(&place, statements) else {
        return;
    };
    let (file, path) = (server.data.join("d/t.ibd"), "/my/d/t.ibd");
    let before = std::fs::read(&file).unwrap();
    server.start();
    server.ask("SET GLOBAL innodb_encryption_threads = 2");
    server.ask("SET GLOBAL innodb_encrypt_tables = ON");
    server.wait_until(
        "SELECT COUNT(*) FROM information_schema.INNODB_TABLESPACES_ENCRYPTION WHERE name = 'd/t' \
         AND MIN_KEY_VERSION = 1 AND ROTATING_OR_FLUSHING = 0",
        "1",
    );
    let sum = server.ask("SELECT SUM(id + LENGTH(text)) FROM d.t");
    server.stop();
    let after = std::fs::read(&file).unwrap();
    place.tell(["sync", "data"]);

    // No encrypted page is called bad.
    let well = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(well["findings_count"], 0, "{well}");
    let versions = Versions::after(path, (5, 2), &before, &after, 16384);
    let kept_back = [(&versions[0], 0), (&versions[1], 1)];
    for (one, copy) in kept_back {
        one.keep_back(&place, copy);
    }
    assert_told_and_left(&place, &kept_back);
    for (one, copy) in kept_back {
        one.put_right(&place, copy);
    }

    // Bits that flipped on a page that is encrypted: its sum of 32 bits is the good one's.
    let at = versions[0].offset_bytes() + 9000;
    for copy in [0, 1] {
        let (disk, disk_path, offset_bytes) = spot(&place, path, at, copy);
        let was = damage(&disk_path, offset_bytes);
        let report = scrub(&place, "data", &["--repair"], 0);
        assert_eq!(report["repaired_count"], 1, "{report}");
        assert_eq!(report["findings"][0]["page"], versions[0].page);
        assert_eq!(report["findings"][0]["disks"], serde_json::json!([disk]));
        assert!(bytes_at(&disk_path, offset_bytes) == was);
    }
    place.umount();
    place.mount();
    server.start();
    assert_eq!(server.ask("SELECT SUM(id + LENGTH(text)) FROM d.t"), sum);
    assert_eq!(server.ask("CHECK TABLE d.t"), "d.t\tcheck\tstatus\tOK");
    server.stop();
}

/// A database that SQLite's own extension wrote: see `testdata/sqlite`.
const SQLITE: &[u8] = include_bytes!("../../../testdata/sqlite/checksums.sqlite");

#[test]
fn a_bad_page_of_sqlite_is_told_and_neither_mended_nor_taken_from_the_other_copy() {
    if !can_mount() {
        return;
    }
    let place = room();
    let file = place.mount_point().join("checksums.sqlite");
    std::fs::write(&file, SQLITE).unwrap();
    place.tell(["sync", "data"]);
    let well = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(well["judged_pages_count"], 25, "{well}");

    // Of neighbours, from each copy's point of view: whichever is read, it lies.
    let path = "/checksums.sqlite";
    let mut planted = Vec::new();
    for (page, copy) in (6..12).zip([0, 1].into_iter().cycle()) {
        let (_, disk_path, offset_bytes) = spot(&place, path, page * 4096 + 512, copy);
        damage(&disk_path, offset_bytes);
        let damaged = bytes_at(&disk_path, offset_bytes);
        planted.push((disk_path, offset_bytes, damaged));
    }
    let told = scrub(&place, "data", &["--repair"], 1);
    assert_eq!(told["repaired_count"], 0, "{told}");
    assert!(
        findings(&told)
            .iter()
            .all(|one| *one == ("copies_differ".to_owned(), path.to_owned())),
        "{told}"
    );
    let mut pages: Vec<u64> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["page"].as_u64().unwrap())
        .collect();
    pages.sort_unstable();
    assert_eq!(pages, [6, 7, 8, 9, 10, 11], "{told}");

    // A read gets what lies there; the database judges it.
    place.umount();
    place.mount();
    let read = std::fs::read(&file).unwrap();
    let wrong = (0..25).filter(|page| {
        let range = page * 4096..(page + 1) * 4096;
        read[range.clone()] != SQLITE[range]
    });
    assert!(wrong.count() > 0, "no page came as it lies on its disk");
    for (disk_path, offset_bytes, damaged) in &planted {
        assert!(bytes_at(disk_path, *offset_bytes) == *damaged);
    }
    let events = place.tell(["events", "data"]);
    assert!(!events.contains("written again"), "{events}");
}
