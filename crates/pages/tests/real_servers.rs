//! Pages that the real servers wrote: every one is good, and not with a bit of it flipped.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use spindle_pages::innodb::{Format, PAGE_BYTES, doublewrite_pages};
use spindle_pages::postgresql::{Checksums, Cluster};
use spindle_pages::{
    Choice, HEAD_BYTES, PageFile, Position, Undecided, Verdict, choose, is_candidate,
};

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

/// A program of PostgreSQL as its own user: none of them runs as root.
fn as_server(program: &Path) -> Command {
    let is_root = std::fs::metadata("/proc/self")
        .map(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        .unwrap();
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

fn make_cluster(initdb: &Path, cluster: &Path, checksums: bool) {
    let mut command = as_server(initdb);
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

/// What the pages of a directory are worth.
#[derive(Debug, Default)]
struct Worth {
    good_count: usize,
    /// Of these, how many stand at no position that could be compared.
    hidden_count: usize,
    unknown_count: usize,
}

/// Judges every page of the directory; none may be bad. Each good one is tried again with a bit of
/// it flipped.
fn judge_all(directory: &Path) -> Worth {
    let mut files = Vec::new();
    files_below(directory, &mut files);
    let mut worth = Worth::default();
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let text = path.display().to_string();
        let Some(file) = recognise(&path, &bytes) else {
            println!("{text} is not recognised ({} bytes)", bytes.len());
            worth.unknown_count += bytes.len().div_ceil(16384);
            continue;
        };
        for (page, bytes) in (0_u64..).zip(bytes.chunks(file.page_bytes())) {
            match file.judge(page, bytes) {
                Verdict::Empty => {}
                Verdict::Good(position) => {
                    worth.good_count += 1;
                    worth.hidden_count += usize::from(position == Position::Hidden);
                    let mut bytes = bytes.to_vec();
                    // Not in what lies behind a page that was compressed.
                    let at = 40 + usize::try_from(page * 977).unwrap() % sum_bytes(&file, &bytes);
                    bytes[at] ^= 1 << (page % 8);
                    let now = file.judge(page, &bytes);
                    let is_told =
                        now.is_bad() || position == Position::Hidden || is_doublewrite(&text, page);
                    assert!(!now.is_good() && is_told, "{text}:{page}:{at}: {now:?}");
                }
                Verdict::Unknown if is_doublewrite(&text, page) => {}
                Verdict::Unknown => worth.unknown_count += 1,
                Verdict::Bad(origin) => panic!("page {page} of {text} is bad: {origin:?}"),
            }
        }
    }
    worth
}

/// What InnoDB's doublewrite buffer holds may be of any kind.
fn is_doublewrite(path: &str, page: u64) -> bool {
    path.ends_with("ibdata1") && doublewrite_pages(PAGE_BYTES).contains(&page)
}

/// So many bytes from byte 40 on are surely covered by the page's sum.
fn sum_bytes(file: &PageFile, page: &[u8]) -> usize {
    match file {
        PageFile::InnoDb(space) if space.format == Format::FullCrc32 && page[24] & 0x80 != 0 => {
            (usize::from(page[24] & 0x7F) << 16) + (usize::from(page[25]) << 8) - 60
        }
        _ => page.len() - 60,
    }
}

fn recognise(path: &Path, bytes: &[u8]) -> Option<PageFile> {
    let text = path.display().to_string();
    let control = PageFile::control_path(&text).and_then(|path| std::fs::read(path).ok());
    PageFile::recognise(
        &text,
        &bytes[..bytes.len().min(HEAD_BYTES)],
        control.as_deref(),
    )
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
    assert_eq!(
        Cluster::of_control(&control),
        Some(Cluster::usual(Checksums::On))
    );
    let worth = judge_all(&cluster);
    assert!(worth.good_count > 2000, "{worth:?}");
    assert_eq!((worth.hidden_count, worth.unknown_count), (0, 0));
    // Without the control file the right checksums are proof enough.
    std::fs::remove_file(cluster.join("global/pg_control")).unwrap();
    let path = cluster.join("base/1/1259");
    let bytes = std::fs::read(&path).unwrap();
    let file = PageFile::recognise(&path.display().to_string(), &bytes, None).unwrap();
    assert!(file.judge(1, &bytes[8192..16384]).is_good());
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
    assert_eq!(
        Cluster::of_control(&control),
        Some(Cluster::usual(Checksums::Off))
    );
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
fn a_page_that_was_written_after_checksums_were_switched_off_is_not_beaten_by_an_older_one() {
    let Some(initdb) = initdb() else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    let directory = open_directory();
    let cluster = directory.path().join("cluster");
    make_cluster(&initdb, &cluster, true);
    let path = cluster.join("base/1/1259");
    let control_path = cluster.join("global/pg_control");
    let (before, control_before) = (
        std::fs::read(&path).unwrap(),
        std::fs::read(&control_path).unwrap(),
    );
    let output = as_server(&initdb.with_file_name("pg_checksums"))
        .args(["--disable", "-D"])
        .arg(&cluster)
        .current_dir("/")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // One server process by itself writes and ends, template1's pg_class (1259) among it.
    let statements = "CREATE TABLE later AS SELECT 1 AS one;\n\
                      UPDATE pg_class SET relpages = 7 WHERE relname = 'pg_type';\n";
    let output = {
        let input_path = directory.path().join("statements.sql");
        std::fs::write(&input_path, statements).unwrap();
        let mut command = as_server(&initdb.with_file_name("postgres"));
        command.args(["--single", "-O", "-D"]).arg(&cluster);
        command.arg("template1");
        let input = std::fs::File::open(&input_path).unwrap();
        command.stdin(input).current_dir("/").output().unwrap()
    };
    assert!(output.status.success(), "{output:?}");
    let after = std::fs::read(&path).unwrap();
    let text = path.display().to_string();
    let control_after = std::fs::read(&control_path).unwrap();
    assert_eq!(
        PageFile::recognise(&text, &after, Some(&control_after)),
        None
    );
    let changed: Vec<usize> = (0..before.len() / 8192)
        .filter(|page| {
            let range = page * 8192..(page + 1) * 8192;
            before[range.clone()] != after[range]
        })
        .collect();
    assert!(!changed.is_empty(), "the server has written no page");
    // By a control file that the same disk kept back, by two that differ, and by none.
    for controls in [
        &[&control_before[..]][..],
        &[&control_before[..], &control_after[..]],
        &[],
    ] {
        let heads: [&[u8]; 2] = [&before[..8192], &after[..8192]];
        let file = PageFile::recognise_copies(&text, &heads, controls).unwrap();
        for page in &changed {
            let version = |bytes: &[u8]| bytes[page * 8192..(page + 1) * 8192].to_vec();
            let (older, newer) = (version(&before), version(&after));
            let number = u64::try_from(*page).unwrap();
            assert!(file.judge(number, &older).is_good());
            assert!(!file.judge(number, &newer).is_good());
            for versions in [[&older[..], &newer[..]], [&newer[..], &older[..]]] {
                let choice = choose(&file, number, &versions);
                assert!(matches!(choice, Choice::Undecided(_)), "{page}: {choice:?}");
            }
        }
    }
}

/// Runs MariaDB over a directory with statements, until it has done them.
fn bootstrap(data: &Path, options: &[&str], statements: &str) {
    let path = data.with_extension("sql");
    std::fs::write(&path, statements).unwrap();
    std::fs::create_dir_all(data).unwrap();
    let output = Command::new(MARIADB)
        .args(["--no-defaults", "--bootstrap", "--user=root"])
        .arg("--innodb-fast-shutdown=0")
        .args(options)
        .arg(format!("--datadir={}", data.display()))
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{options:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const MARIADB: &str = "/usr/sbin/mariadbd";
const ALGORITHMS: [&str; 4] = ["full_crc32", "crc32", "strict_full_crc32", "strict_crc32"];

fn has_mariadb() -> bool {
    let is_there = Path::new(MARIADB).exists();
    if !is_there {
        println!("skipped: MariaDB is not installed");
    }
    is_there
}

/// Statements that make a table and fill it.
fn table(name: &str, options: &str) -> String {
    format!(
        "CREATE DATABASE IF NOT EXISTS d;\n\
         USE d;\n\
         CREATE TABLE d.{name} (id INT PRIMARY KEY, text VARCHAR(200)) ENGINE=InnoDB {options};\n\
         INSERT INTO d.{name} SELECT seq, REPEAT('text ', seq % 40) FROM seq_1_to_10000;\n"
    )
}

#[test]
fn every_page_that_mariadb_writes_is_good_in_each_format() {
    if !has_mariadb() {
        return;
    }
    for (algorithm, page_size) in ALGORITHMS
        .map(|algorithm| (algorithm, "16k"))
        .into_iter()
        .chain([("full_crc32", "4k"), ("crc32", "8k"), ("full_crc32", "64k")])
    {
        let directory = open_directory();
        let data = directory.path().join("data");
        let options = [
            &format!("--innodb-checksum-algorithm={algorithm}")[..],
            &format!("--innodb-page-size={page_size}"),
        ];
        bootstrap(&data, &options, &table("t", ""));
        let worth = judge_all(&data);
        assert!(worth.good_count > 60, "{algorithm}, {page_size}: {worth:?}");
        assert_eq!((worth.hidden_count, worth.unknown_count), (0, 0));
    }
}

#[test]
fn compressed_and_encrypted_tables_are_known_for_what_they_are_and_no_page_of_them_is_bad() {
    if !has_mariadb() {
        return;
    }
    for algorithm in &ALGORITHMS[..2] {
        let directory = open_directory();
        let data = directory.path().join("data");
        let keys = directory.path().join("keys");
        std::fs::write(&keys, format!("1;{}\n", "0123456789abcdef".repeat(2))).unwrap();
        let tables = [
            ("plain", ""),
            ("row_compressed", "ROW_FORMAT=COMPRESSED"),
            ("page_compressed", "PAGE_COMPRESSED=1"),
            ("encrypted", "ENCRYPTED=YES"),
            ("both", "PAGE_COMPRESSED=1 ENCRYPTED=YES"),
        ];
        let statements: String = tables
            .iter()
            .map(|(name, options)| table(name, options))
            .collect();
        let options = [
            &format!("--innodb-checksum-algorithm={algorithm}")[..],
            "--plugin-load-add=file_key_management",
            &format!("--file-key-management-filename={}", keys.display()),
        ];
        bootstrap(&data, &options, &statements);
        for (name, _) in tables {
            let path = data.join(format!("d/{name}.ibd"));
            let one = directory.path().join(format!("only-{name}"));
            std::fs::create_dir(&one).unwrap();
            std::fs::copy(&path, one.join("t.ibd")).unwrap();
            let worth = judge_all(&one);
            let is_full = *algorithm == "full_crc32";
            // Whose sum is over what lies on the disk is judged; and whose position could be
            // anything is not compared.
            let is_judged = match name {
                "row_compressed" => false,
                // Of the older format only what is encrypted has a sum.
                "page_compressed" => is_full,
                _ => true,
            };
            let what = format!("{name}, {algorithm}: {worth:?}");
            assert_eq!(worth.good_count > 20, is_judged, "{what}");
            assert_eq!(worth.unknown_count > 0, !is_judged, "{what}");
            let is_hidden = worth.hidden_count == worth.good_count;
            assert_eq!(is_hidden, name != "plain", "{what}");
        }
    }
}

/// A running MariaDB, ended with the test.
struct Server {
    process: std::process::Child,
    socket: PathBuf,
}

impl Server {
    fn start(data: &Path, options: &[&str]) -> Self {
        let socket = data.with_extension("socket");
        let process = Command::new(MARIADB)
            .args(["--no-defaults", "--user=root", "--skip-networking"])
            .args(["--skip-grant-tables", "--innodb-fast-shutdown=0"])
            .args(options)
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, socket };
        server.wait_until("SELECT 1", "1");
        server
    }

    fn ask(&self, statement: &str) -> String {
        let output = Command::new("mariadb")
            .args(["--no-defaults", "-N", "-B", "--user=root", "-e", statement])
            .arg(format!("--socket={}", self.socket.display()))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn wait_until(&self, statement: &str, answer: &str) {
        for _ in 0..600 {
            if self.ask(statement) == answer {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{statement} does not become {answer}");
    }

    fn stop(mut self) {
        self.ask("SHUTDOWN");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_page_that_was_encrypted_since_is_not_beaten_by_an_older_plain_one() {
    if !has_mariadb() {
        return;
    }
    for algorithm in &ALGORITHMS[..2] {
        let directory = open_directory();
        let data = directory.path().join("data");
        let keys = directory.path().join("keys");
        std::fs::write(&keys, format!("1;{}\n", "0123456789abcdef".repeat(2))).unwrap();
        let options = [
            &format!("--innodb-checksum-algorithm={algorithm}")[..],
            "--plugin-load-add=file_key_management",
            &format!("--file-key-management-filename={}", keys.display()),
        ];
        let system = "CREATE DATABASE mysql;\n".to_owned();
        bootstrap(&data, &options, &(system + &table("t", "")));
        let path = data.join("d/t.ibd");
        let before = std::fs::read(&path).unwrap();

        let server = Server::start(&data, &options);
        server.ask("SET GLOBAL innodb_encryption_threads = 2");
        server.ask("SET GLOBAL innodb_encrypt_tables = ON");
        server.wait_until(
            "SELECT COUNT(*) FROM information_schema.INNODB_TABLESPACES_ENCRYPTION WHERE name = \
             'd/t' AND MIN_KEY_VERSION = 1 AND ROTATING_OR_FLUSHING = 0",
            "1",
        );
        server.stop();
        let after = std::fs::read(&path).unwrap();

        let versions = |page: usize| [&before, &after].map(|all| &all[page * 16384..][..16384]);
        let text = path.display().to_string();
        let encrypted: Vec<usize> = (1..before.len() / 16384)
            .filter(|page| {
                let [older, newer] = versions(*page);
                older != newer && older.iter().any(|byte| *byte != 0)
            })
            .collect();
        assert!(encrypted.len() > 20, "{encrypted:?}");
        // By the first page as each disk may have it.
        for heads in [
            &[&before[..HEAD_BYTES]][..],
            &[&after[..HEAD_BYTES]],
            &[&before[..HEAD_BYTES], &after[..HEAD_BYTES]],
        ] {
            let file = PageFile::recognise_copies(&text, heads, &[]).unwrap();
            for page in &encrypted {
                let [older, newer] = versions(*page);
                let number = u64::try_from(*page).unwrap();
                assert!(file.judge(number, older).is_good());
                assert!(!file.judge(number, newer).is_bad());
                for versions in [[older, newer], [newer, older]] {
                    let choice = choose(&file, number, &versions);
                    assert!(matches!(choice, Choice::Undecided(_)), "{page}: {choice:?}");
                }
            }
        }
    }
}

/// What SQLite wrote with its own extension: see `testdata/sqlite`.
fn checksums_of_sqlite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sqlite/checksums.sqlite")
}

#[test]
fn every_page_that_the_checksum_extension_of_sqlite_wrote_is_good_and_not_with_a_flipped_bit() {
    let bytes = std::fs::read(checksums_of_sqlite()).unwrap();
    let file = PageFile::recognise("/checksums.sqlite", &bytes, None).unwrap();
    assert_eq!(file.page_bytes(), 4096);
    for (page, good) in (0..).zip(bytes.chunks(4096)) {
        assert_eq!(file.judge(page, good), Verdict::Good(Position::Hidden));
        for at in [0, 977, 4087, 4088, 4095] {
            let mut flipped = good.to_vec();
            flipped[at] ^= 1 << (page % 8);
            assert!(file.judge(page, &flipped).is_bad(), "{page}:{at}");
            // Which of the two a program wrote last nothing tells.
            for versions in [[good, &flipped], [&flipped, good]] {
                assert_eq!(
                    choose(&file, page, &versions),
                    Choice::Undecided(Undecided::MayBeNewer)
                );
            }
        }
    }
}

#[test]
fn a_page_of_sqlite_that_a_program_without_the_extension_wrote_is_not_beaten_by_an_older_one() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("skipped: sqlite3 is not installed");
        return;
    }
    let before = std::fs::read(checksums_of_sqlite()).unwrap();
    let directory = open_directory();
    let path = directory.path().join("checksums.sqlite");
    std::fs::write(&path, &before).unwrap();
    let output = Command::new("sqlite3")
        .arg(&path)
        .arg("UPDATE t SET text = 'changed' WHERE id = 500; PRAGMA integrity_check;")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"ok\n", "{output:?}");
    let after = std::fs::read(&path).unwrap();
    let heads: [&[u8]; 2] = [&before[..4096], &after[..4096]];
    let file = PageFile::recognise_copies("/checksums.sqlite", &heads, &[]).unwrap();
    let mut changed_count = 0;
    for (page, (older, newer)) in (0..).zip(before.chunks(4096).zip(after.chunks(4096))) {
        if older == newer {
            continue;
        }
        changed_count += 1;
        assert!(file.judge(page, older).is_good(), "{page}");
        assert!(!file.judge(page, newer).is_good(), "{page}");
        for versions in [[older, newer], [newer, older]] {
            let choice = choose(&file, page, &versions);
            assert!(matches!(choice, Choice::Undecided(_)), "{page}: {choice:?}");
        }
    }
    assert!(changed_count > 2, "{changed_count} pages changed");
}
