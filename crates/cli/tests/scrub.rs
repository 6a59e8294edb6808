//! Damage planted on the disks under real databases: a scrub finds it, tells which copy is
//! right where the database's own checksums say so, and touches nothing where they do not.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::path::Path;
use std::process::Command;

use place::damage::{bytes_at, damage, findings, room, scrub, spot};
use place::postgresql::Server;
use place::{Outcome, Place, bytes, can_mount, outcome};
use serde_json::Value;

const MARIADB: &str = "/usr/sbin/mariadbd";

#[test]
fn a_bad_page_of_postgresql_is_mended_from_the_copy_whose_checksum_is_right() {
    if !can_mount() {
        return;
    }
    let place = room();
    let Some(mut server) = Server::make(&place, &["--data-checksums"]) else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    server.start();
    server.ask(
        "CREATE TABLE t AS SELECT n, repeat('x', n % 90) AS text FROM generate_series(1, 60000) n",
    );
    server.ask("CREATE INDEX ON t (n)");
    server.ask("CHECKPOINT");
    let relation = server.ask("SELECT pg_relation_filepath('t')");
    let path = format!("/pg/{relation}");
    let sum = server.ask("SELECT sum(n) FROM t");

    // One page of the body in each copy, and one of the head, while the server runs.
    let mut before = Vec::new();
    for (page, copy) in [(0, 1), (300, 0), (301, 1)] {
        let at = page * 8192 + 4096 + 512;
        let (disk, disk_path, offset_bytes) = spot(&place, &path, at, copy);
        let was = damage(&disk_path, offset_bytes);
        before.push((page, disk, disk_path, offset_bytes, was));
    }
    let looked = scrub(&place, "data", &[], 1);
    assert_eq!(looked["findings_count"], 3, "{looked}");
    assert!(
        findings(&looked)
            .iter()
            .all(|(kind, _)| kind == "repairable")
    );
    for (_, _, disk_path, offset_bytes, was) in &before {
        assert!(
            bytes_at(disk_path, *offset_bytes) != *was,
            "nothing is written unasked"
        );
    }

    let mended = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(mended["repaired_count"], 3, "{mended}");
    assert!(mended["judged_pages_count"].as_u64().unwrap() > 2000);
    for (page, disk, disk_path, offset_bytes, was) in &before {
        let all = mended["findings"].as_array().unwrap();
        let one = all.iter().find(|one| one["page"] == *page).unwrap();
        assert_eq!(one["kind"], "repaired");
        assert_eq!(one["path"], path.as_str());
        assert_eq!(one["disks"], serde_json::json!([disk]));
        assert!(bytes_at(disk_path, *offset_bytes) == *was);
    }
    let events = place.tell(["events", "data"]);
    assert!(
        events.contains(&format!("page 300 (offset {}) of {path}", 300 * 8192)),
        "{events}"
    );

    // The database itself says that all is well, with nothing of it in any cache.
    server.stop();
    place.umount();
    place.mount();
    let cluster = server.cluster.display().to_string();
    let checked = server.run("pg_checksums", &["--check", "-D", &cluster]);
    assert!(checked.contains("Bad checksums:  0"), "{checked}");
    server.start();
    assert_eq!(server.ask("SELECT sum(n) FROM t"), sum);
    if server.programs.join("pg_amcheck").exists() {
        let sockets = place.text("sockets");
        server.run(
            "pg_amcheck",
            &[
                "-h",
                &sockets,
                "--install-missing",
                "--heapallindexed",
                "postgres",
            ],
        );
    }
    server.stop();
}

#[test]
fn a_read_meets_no_page_that_lies_where_another_copy_is_right() {
    if !can_mount() {
        return;
    }
    let place = room();
    let Some(mut server) = Server::make(&place, &["--data-checksums"]) else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    server.start();
    server.ask(
        "CREATE TABLE t AS SELECT n, repeat('x', n % 90) AS text FROM generate_series(1, 60000) n",
    );
    // With every hint written, so that a look at it changes nothing.
    server.ask("VACUUM FREEZE t");
    let relation = server.ask("SELECT pg_relation_filepath('t')");
    let path = format!("/pg/{relation}");
    let sum = server.ask("SELECT sum(n) FROM t");
    server.stop();
    place.umount();

    // Of neighbours in one extent, from each copy's point of view: whichever is read, it lies.
    place.mount();
    let mut before = Vec::new();
    for (page, copy) in (300..306).zip([0, 1].into_iter().cycle()) {
        let (_, disk_path, offset_bytes) = spot(&place, &path, page * 8192 + 512, copy);
        let was = damage(&disk_path, offset_bytes);
        before.push((disk_path, offset_bytes, was));
    }
    place.umount();

    // Nobody verifies: the database meets a bad page. It ends, or reads it again and is given the other copy.
    std::fs::write(place.path("spindle.toml"), "verify = \"none\"\n").unwrap();
    place.mount();
    server.start();
    let refused = server.try_ask("SELECT sum(n) FROM t");
    assert!(refused.stderr.contains("invalid page"), "{refused:?}");
    server.stop();
    place.umount();

    std::fs::remove_file(place.path("spindle.toml")).unwrap();
    place.mount();
    server.start();
    assert_eq!(server.ask("SELECT sum(n) FROM t"), sum);
    let events = place.tell(["events", "data"]);
    let told = (300..306).filter(|page| {
        let page = format!("page {page} (offset {}) of {path}", page * 8192);
        events
            .lines()
            .any(|line| line.contains(&page) && line.contains("written again"))
    });
    let told_count = told.count();
    assert!(told_count > 0, "{events}");
    let left = before
        .iter()
        .filter(|(disk_path, offset_bytes, was)| bytes_at(disk_path, *offset_bytes) != *was);
    assert_eq!(
        left.count(),
        before.len() - told_count,
        "what was read is right on the disk again: {events}"
    );
    server.stop();
    let report = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(report["repaired_count"], before.len() - told_count);
    assert_eq!(report["findings_count"], report["repaired_count"]);
    for (disk_path, offset_bytes, was) in &before {
        assert!(bytes_at(disk_path, *offset_bytes) == *was);
    }
}

/// MariaDB runs these statements on its data in the mount, and ends.
fn bootstrap(place: &Place, statements: &str) -> Outcome {
    let input = place.path("statements.sql");
    std::fs::write(&input, statements).unwrap();
    let mut command = Command::new(MARIADB);
    command
        .args(["--no-defaults", "--bootstrap", "--user=root"])
        .args(["--plugin-load-add=ha_sequence", "--innodb-fast-shutdown=0"])
        .args(["--innodb-log-file-size=8M"])
        .arg(format!(
            "--datadir={}",
            place.mount_point().join("my").display()
        ))
        .stdin(std::fs::File::open(&input).unwrap());
    outcome(&mut command)
}

/// A mounted group with a table of InnoDB in `/my/d/t.ibd`.
fn with_table_of_innodb() -> Option<Place> {
    if !can_mount() {
        return None;
    }
    if !Path::new(MARIADB).exists() {
        println!("skipped: MariaDB is not installed");
        return None;
    }
    let place = room();
    let data = place.mount_point().join("my");
    std::fs::create_dir(&data).unwrap();
    let made = bootstrap(
        &place,
        "CREATE DATABASE d;\n\
         USE d;\n\
         CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(200)) ENGINE=InnoDB;\n\
         INSERT INTO t SELECT seq, REPEAT('text ', seq % 40) FROM seq_1_to_20000;\n",
    );
    assert_eq!(made.code, 0, "{made:?}");
    std::fs::File::open(data.join("d/t.ibd"))
        .unwrap()
        .sync_all()
        .unwrap();
    Some(place)
}

#[test]
fn a_read_meets_no_page_of_innodb_that_lies_where_another_copy_is_right() {
    let Some(place) = with_table_of_innodb() else {
        return;
    };
    place.umount();
    place.mount();
    let pages = 20..26;
    let mut before = Vec::new();
    for (page, copy) in pages.clone().zip([0, 1].into_iter().cycle()) {
        let (_, disk_path, offset_bytes) = spot(&place, "/my/d/t.ibd", page * 16384 + 9000, copy);
        let was = damage(&disk_path, offset_bytes);
        before.push((disk_path, offset_bytes, was));
    }
    place.umount();

    let ask = |name: &str| {
        let answer = place.path(name);
        let question = format!(
            "SELECT COUNT(*), SUM(id), SUM(LENGTH(text)) FROM d.t INTO OUTFILE '{}';\n",
            answer.display()
        );
        let said = bootstrap(&place, &question);
        (said, std::fs::read_to_string(answer).unwrap_or_default())
    };
    // Nobody verifies: the database meets a bad page. It ends, or reads it again and is given the other copy.
    std::fs::write(place.path("spindle.toml"), "verify = \"none\"\n").unwrap();
    place.mount();
    let (met, answer) = ask("unverified");
    let has_ended = met.code != 0 && answer.is_empty();
    let dumps = met.stderr.contains("End of page dump");
    assert!(has_ended || dumps, "{met:?}");
    place.umount();

    std::fs::remove_file(place.path("spindle.toml")).unwrap();
    place.mount();
    let (said, answer) = ask("verified");
    assert_eq!(answer, "20000\t200010000\t1950000\n", "{said:?}");
    let events = place.tell(["events", "data"]);
    let told = pages.filter(|page| {
        let page = format!("page {page} (offset {}) of /my/d/t.ibd", page * 16384);
        events
            .lines()
            .any(|line| line.contains(&page) && line.contains("written again"))
    });
    // Which copies the reads take depends on what the disks have to do.
    let told_count = told.count();
    assert!(told_count > 0, "{events}");
    let report = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(report["repaired_count"], before.len() - told_count);
    assert_eq!(report["findings_count"], report["repaired_count"]);
    for (disk_path, offset_bytes, was) in &before {
        assert!(bytes_at(disk_path, *offset_bytes) == *was);
    }
}

#[test]
fn a_bad_page_of_innodb_is_mended_from_the_copy_whose_checksum_is_right() {
    let Some(place) = with_table_of_innodb() else {
        return;
    };
    for (page, copy) in [(0, 0), (5, 0), (6, 1)] {
        let at = page * 16384 + 9000;
        let (disk, disk_path, offset_bytes) = spot(&place, "/my/d/t.ibd", at, copy);
        let was = damage(&disk_path, offset_bytes);
        let report = scrub(&place, "data:/my/d/t.ibd", &["--repair"], 0);
        assert_eq!(report["repaired_count"], 1, "{report}");
        assert_eq!(report["findings"][0]["page"], page);
        assert_eq!(report["findings"][0]["disks"], serde_json::json!([disk]));
        assert!(bytes_at(&disk_path, offset_bytes) == was);
    }
    let report = scrub(&place, "data", &["--repair"], 0);
    assert_eq!(report["findings_count"], 0, "{report}");
}

#[test]
fn a_file_without_page_checksums_is_reported_and_left_as_it_is() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "file", "data:/file"]);
    let (_, disk_path, offset_bytes) = spot(&place, "/file", 2 << 20, 1);
    let was = damage(&disk_path, offset_bytes);
    let report = scrub(&place, "data", &["--repair"], 1);
    let expected = [("copies_differ".to_owned(), "/file".to_owned())];
    assert_eq!(findings(&report), expected, "{report}");
    let one = &report["findings"][0];
    assert_eq!(
        (&one["offset_bytes"], &one["length_bytes"]),
        (&(2 << 20).into(), &4096.into())
    );
    assert_eq!(one["disks"].as_array().unwrap().len(), 2);
    assert!(
        bytes_at(&disk_path, offset_bytes) != was,
        "it is as the damage left it"
    );
    let shown = place.run(["scrub", "data", "--status"]);
    assert_eq!(shown.code, 1);
    assert!(shown.stdout.contains("nothing was changed"), "{shown:?}");
    let events = place.tell(["events", "data", "--severity", "critical"]);
    assert!(
        events.contains("/file") && events.contains("differ"),
        "{events}"
    );
    // Written again, the copies agree.
    place.tell(["cp", "file", "data:/file"]);
    assert_eq!(scrub(&place, "data", &[], 0)["findings_count"], 0);
}

#[test]
fn a_word_on_a_disk_is_asked_for_twice_and_then_decides() {
    let place = Place::new();
    place.create_group();
    let content = bytes(1, 3 << 20);
    std::fs::write(place.path("file"), &content).unwrap();
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "file", "data:/file"]);
    let (disk, disk_path, offset_bytes) = spot(&place, "/file", 2 << 20, 1);
    let was = damage(&disk_path, offset_bytes);

    place.refuse(
        ["scrub", "data", "--distrust", "nosuch"],
        2,
        &["nosuch", "there is"],
    );
    let unsure = ["scrub", "data", "--distrust", &disk, "--repair"];
    place.refuse(unsure, 2, &[&disk, "--yes", "without --repair"]);
    let told = scrub(&place, "data", &["--distrust", &disk], 1);
    assert_eq!(told["distrust"], disk.as_str());
    let expected = [("repairable".to_owned(), "/file".to_owned())];
    assert_eq!(findings(&told), expected, "{told}");
    assert_eq!(told["findings"][0]["disks"], serde_json::json!([disk]));
    assert!(
        bytes_at(&disk_path, offset_bytes) != was,
        "nothing is written unasked"
    );

    // Nobody is believed about himself: who asks is what the kernel says.
    let mut command = place.command(["scrub", "data", "--distrust", &disk, "--wait"]);
    command.envs([("USER", "mallory"), ("SUDO_USER", "mallory")]);
    assert_eq!(place::outcome(&mut command).code, 1);
    let ill = place.run(["health", "data"]);
    assert!(
        ill.code == 2 && ill.stdout.contains("damage in 1 place "),
        "{ill:?}"
    );
    let more = ["--distrust", &disk, "--repair", "--yes"];
    let done = scrub(&place, "data:/file", &more, 0);
    let well = place.run(["health", "data"]);
    assert_eq!(well.code, 0, "what was mended is over: {well:?}");
    assert_eq!(done["repaired_count"], 1, "{done}");
    assert!(bytes_at(&disk_path, offset_bytes) == was);
    assert_eq!(scrub(&place, "data", &[], 0)["findings_count"], 0);
    let events = place.tell(["events", "data"]);
    assert!(events.contains("uid "), "who asked: {events}");
    assert!(!events.contains("mallory"), "who asked: {events}");
    assert!(
        events.contains(&format!("the copies on {disk} lose")),
        "{events}"
    );
}

#[test]
fn a_scrub_of_a_path_or_a_disk_looks_at_nothing_else() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["group", "mount", "data"]);
    std::fs::create_dir_all(place.path("tree/below")).unwrap();
    std::fs::write(place.path("tree/below/one"), bytes(2, 1 << 20)).unwrap();
    std::fs::write(place.path("tree/two"), bytes(3, 1 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["cp", "-r", "tree", "data:/"]);
    assert_eq!(scrub(&place, "data:/file", &[], 0)["done_bytes"], 3 << 20);
    assert_eq!(scrub(&place, "data:/tree", &[], 0)["done_bytes"], 2 << 20);
    let whole = scrub(&place, "data", &[], 0);
    assert_eq!(whole["done_bytes"], 5 << 20);
    let disk = place.ask(["group", "show", "data"])["disks"][0]["name"].clone();
    let name = disk.as_str().unwrap();
    let part = scrub(&place, "data", &["--disk", name], 0);
    assert!(
        part["read_bytes"].as_u64() < whole["read_bytes"].as_u64(),
        "{part}"
    );
}

#[test]
fn what_cannot_be_scrubbed_is_refused_in_one_line() {
    let place = Place::new();
    place.create_group();
    place.refuse(["scrub", "data"], 2, &["not open", "spindle mount"]);
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 1 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.refuse(["scrub", "data", "--power", "1025"], 2, &["1025", "1024"]);
    place.refuse(
        ["scrub", "data", "--disk", "nosuch"],
        2,
        &["nosuch", "there is"],
    );
    place.refuse(["scrub", "data:/nosuch"], 2, &["/nosuch"]);
    place.refuse(
        ["scrub", "data:/file", "--disk", "data_0000"],
        2,
        &["not of both"],
    );
    place.refuse(["scrub", "./file"], 2, &["GROUP:/path"]);
    place.refuse(["scrub", "data", "--stop"], 2, &["no scrub runs"]);
    place.refuse(["scrub", "data", "--status"], 2, &["no scrub has run"]);

    // Power 0 waits, and is changed as it runs.
    place.tell(["scrub", "data", "--power", "0", "--repair"]);
    place.refuse(
        ["scrub", "data", "--repair"],
        2,
        &["runs already", "--stop"],
    );
    assert_eq!(place.ask(["scrub", "data", "--status"])["state"], "paused");
    place.tell(["scrub", "data", "--power", "0"]);
    assert_eq!(place.ask(["scrub", "data", "--stop"])["state"], "stopped");
    assert_eq!(scrub(&place, "data", &[], 0)["state"], "done");
    // The next process knows of it by the log.
    place.tell(["group", "dismount", "data"]);
    place.tell(["group", "mount", "data"]);
    let before = ["no scrub has run", "s ago: the scrub of data ended: "];
    place.refuse(["scrub", "data", "--status"], 2, &before);
}

#[test]
fn a_scrub_that_was_cut_short_goes_on_when_the_group_is_opened_again() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 1 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place.tell(["scrub", "data", "--power", "0", "--repair"]);
    place.tell(["group", "dismount", "data"]);
    place.tell(["group", "mount", "data"]);
    let busy = ["scrub", "data", "--repair"];
    place.refuse(busy, 2, &["runs already"]);
    place.tell(["scrub", "data", "--power", "1024"]);
    for _ in 0..100 {
        let report = place.ask(["scrub", "data", "--status"]);
        if report["state"] == "done" {
            assert_eq!(
                (&report["repair"], &report["done_bytes"]),
                (&true.into(), &(1 << 20).into())
            );
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the scrub did not go on");
}

#[test]
fn a_schedule_is_set_shown_and_refused_where_it_is_none() {
    let place = Place::new();
    place.create_group();
    place.refuse(["group", "set", "data"], 2, &["not open"]);
    place.tell(["group", "mount", "data"]);
    let show = || place.ask(["group", "set", "data"])["scrub_interval_s"].clone();
    assert_eq!(show(), Value::Null);
    place.tell(["group", "set", "data", "scrub_interval=7d"]);
    for (change, word) in [
        ("scrub_interval=7", "7d"),
        ("scrub_interval=1s", "minute"),
        ("scrub_intervall=7d", "scrub_interval"),
        ("scrub_interval", "NAME=VALUE"),
    ] {
        place.refuse(["group", "set", "data", change], 2, &[word]);
    }
    place.tell(["group", "dismount", "data"]);
    place.tell(["group", "mount", "data"]);
    assert_eq!(show(), 604_800);
    place.tell(["group", "set", "data", "scrub_interval=off"]);
    assert_eq!(show(), Value::Null);
}
