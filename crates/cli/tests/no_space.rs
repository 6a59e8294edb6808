//! A group that is full says so and keeps what it has.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::Write;

use place::postgresql::Server;
use place::{Place, bytes, can_mount};

#[test]
fn a_copy_that_does_not_fit_leaves_the_group_as_it_was() {
    let place = Place::new();
    place.create_group();
    let small = bytes(7, 1 << 20);
    std::fs::write(place.path("small"), &small).unwrap();
    std::fs::write(place.path("large"), bytes(8, 200 << 20)).unwrap();
    place.tell(["cp", "small", "data:/small"]);
    let free = place.ask(["group", "show", "data"])["free_bytes"].clone();
    place.refuse(["cp", "large", "data:/large"], 2, &["data:/large", "no"]);
    place.refuse(["cp", "large", "data:/small"], 2, &["data:/small"]);
    assert_eq!(place.ask(["ls", "data:/"]).as_array().unwrap().len(), 1);
    assert_eq!(place.ask(["group", "show", "data"])["free_bytes"], free);
    place.tell(["cp", "data:/small", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == small);
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}

#[test]
fn a_full_mount_answers_enospc_and_space_comes_back_with_a_removal() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let kept = bytes(9, 1 << 20);
    std::fs::write(place.mount_point().join("kept"), &kept).unwrap();
    let mut file = std::fs::File::create(place.mount_point().join("large")).unwrap();
    let piece = bytes(10, 1 << 20);
    // The write itself says so, and what was accepted before is there.
    let mut accepted_bytes = 0;
    let failure = (0..400)
        .find_map(|_| {
            let written = file.write_all(&piece);
            accepted_bytes += if written.is_ok() { 1 << 20 } else { 0 };
            written.err()
        })
        .expect("256 MiB of disks do not hold 400 MiB twice");
    assert_eq!(failure.kind(), std::io::ErrorKind::StorageFull, "{failure}");
    file.sync_data().unwrap();
    drop(file);
    let large = std::fs::read(place.mount_point().join("large")).unwrap();
    assert!(large.len() >= accepted_bytes);
    assert!(
        large[..accepted_bytes]
            .chunks(1 << 20)
            .all(|found| found == piece)
    );
    assert!(std::fs::read(place.mount_point().join("kept")).unwrap() == kept);
    std::fs::remove_file(place.mount_point().join("large")).unwrap();
    std::fs::File::open(place.mount_point())
        .unwrap()
        .sync_all()
        .unwrap();
    std::fs::write(place.mount_point().join("again"), &kept).unwrap();
    let again = std::fs::File::open(place.mount_point().join("again")).unwrap();
    again.sync_all().unwrap();
    drop(again);
    place.umount();
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}

/// A server that learns of a full group only when it flushes panics, starts anew and panics again.
#[test]
fn postgresql_in_a_full_group_refuses_rows_and_goes_on() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let side = |name: &str, disks: [&str; 2]| {
        let disks = disks.map(|disk| format!("{}:128M", place.disk(disk)));
        format!("{name}={}", disks.join(","))
    };
    let (left, right) = (side("left", ["a", "b"]), side("right", ["c", "d"]));
    place.tell([
        "group",
        "create",
        "data",
        "--profile",
        "postgresql",
        "--failgroup",
        &left,
        "--failgroup",
        &right,
    ]);
    place.mount();
    let Some(mut server) = Server::make(&place, &["--wal-segsize=1"]) else {
        println!("skipped: PostgreSQL is not installed");
        return;
    };
    server.start();
    server.ask("CREATE TABLE kept (number int)");
    server.ask("CREATE TABLE filling (number int, filler text)");
    // A checkpoint after each, so that segments of the log are used again: a server that finds no
    // room for its log stops, on whatever it lies.
    let mut rows_count = 0;
    let refusal = (0..200).find_map(|number| {
        server.ask(&format!("INSERT INTO kept VALUES ({number})"));
        let rows =
            "INSERT INTO filling SELECT n, repeat('x', 1900) FROM generate_series(1, 2000) n";
        let answer = server.try_ask(rows);
        rows_count += if answer.code == 0 { 2000 } else { 0 };
        server.ask("CHECKPOINT");
        (answer.code != 0).then_some((number, answer.stderr))
    });
    let (last, refusal) = refusal.expect("256 MiB do not hold 800");
    assert!(
        refusal.contains("could not extend file") && refusal.contains("No space left on device"),
        "{refusal}"
    );
    let rows = server.ask("SELECT count(*) FROM filling");
    assert_eq!(rows, rows_count.to_string());
    // It stops and starts without a word of a full group.
    server.ask("CHECKPOINT");
    server.stop();
    server.start();
    let rows = server.ask("SELECT count(*) FROM filling");
    assert_eq!(rows, rows_count.to_string());
    server.ask("DROP TABLE filling");
    server.ask("CHECKPOINT");
    server.ask("CREATE TABLE again AS SELECT n, repeat('y', 1900) FROM generate_series(1, 2000) n");
    let kept = server.ask("SELECT count(*), max(number) FROM kept");
    assert_eq!(kept, format!("{}|{last}", last + 1));
    server.stop();
    place.umount();
    assert_eq!(
        place.ask(["group", "check", "data"])["contradictions"],
        serde_json::json!([])
    );
}
