//! Connections that say nothing, clients that leave, processes that hang: nobody else waits.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use place::{Place, can_mount, outcome, signal};
use rustix::process::Signal;

/// Longer than any answer takes on a machine that does much else, shorter than a wait for a peer
/// that never speaks.
const SOON: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_flood_of_the_metrics_port_keeps_no_administrator_out_and_passes() {
    let place = Place::new();
    place.create_group();
    let port = free_port();
    // A process with few descriptors: the flood is more than it could hold.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 200 && exec \"$@\"", "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_spindle"));
    shell.args(["group", "mount", "data", "--metrics"]);
    shell.arg(format!("127.0.0.1:{port}"));
    shell
        .current_dir(place.path(""))
        .env("SPINDLE_DISKS", place.disk("*"))
        .env("SPINDLE_RUNTIME_DIR", place.path("run"));
    let mounted = outcome(&mut shell);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    let flood: Vec<TcpStream> = (0..400)
        .filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect();
    assert!(flood.len() > 200, "{}", flood.len());
    for _ in 0..3 {
        place.tell(["group", "show", "data"]);
    }
    // The flood says nothing, and so loses its places.
    let begun = Instant::now();
    let answer = loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        if answer.contains("spindle_group_") {
            break answer;
        }
        assert!(begun.elapsed() < SOON, "the port never answers again");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(flood);
}

#[test]
fn nothing_is_begun_for_a_client_that_has_gone() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let process = place.process_id();
    let interval = || place.ask(["group", "set", "data"])["scrub_interval_s"].clone();
    let before = interval();
    let request = |value: &str| {
        format!(
            "POST /group/settings?name=scrub_interval&value={value} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
    };
    signal(process, Signal::STOP);
    let mut gone = UnixStream::connect(place.path("run/data.sock")).unwrap();
    gone.write_all(request("5d").as_bytes()).unwrap();
    drop(gone);
    signal(process, Signal::CONT);
    // The daemon takes connections one after the other: this one comes after that.
    place.tell(["group", "show", "data"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(interval(), before, "changed for somebody who has gone");
    let mut there = UnixStream::connect(place.path("run/data.sock")).unwrap();
    there.write_all(request("5d").as_bytes()).unwrap();
    let mut answer = String::new();
    there.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_ne!(interval(), before);
}

#[test]
fn a_process_that_hangs_keeps_no_command_on_another_group_waiting_and_is_listed_as_silent() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    let (e, f) = (place.disk("e"), place.disk("f"));
    let sized = [format!("{e}:64M"), format!("{f}:64M")];
    place.tell([
        "group",
        "create",
        "aside",
        "--file-disk",
        &sized[0],
        "--file-disk",
        &sized[1],
    ]);
    place.tell(["group", "mount", "aside", "--no-keeper"]);
    place.mount();
    let hung = place.ask(["group", "show", "aside"])["process_id"]
        .as_u64()
        .unwrap();
    let hung = u32::try_from(hung).unwrap();
    signal(hung, Signal::STOP);
    let mut took = Vec::new();
    let mut run = |words: &[&OsStr]| {
        let begun = Instant::now();
        let outcome = place.run(words);
        took.push((begun.elapsed(), format!("{words:?}")));
        outcome
    };
    let listed = run(&["group".as_ref(), "list".as_ref(), "--json".as_ref()]);
    let table = run(&["group".as_ref(), "list".as_ref()]);
    let health = run(&["health".as_ref()]);
    let operations = run(&["operations".as_ref(), "--json".as_ref()]);
    let shown = run(&["group".as_ref(), "show".as_ref(), "aside".as_ref()]);
    let point = place.mount_point();
    let unmounted = run(&["umount".as_ref(), point.as_os_str()]);
    signal(hung, Signal::CONT);
    for (took, command) in took {
        assert!(took < SOON / 2, "{command} took {took:?}");
    }
    assert_eq!(listed.code, 0, "{listed:?}");
    let groups: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let state = |name: &str| {
        let groups = groups.as_array().unwrap();
        let group = groups.iter().find(|group| group["name"] == name).unwrap();
        group["state"].clone()
    };
    assert_eq!(
        (state("aside"), state("data")),
        ("silent".into(), "mounted".into())
    );
    assert!(table.stdout.contains("silent"), "{table:?}");
    assert_eq!(health.code, 2, "{health:?}");
    assert!(
        health.stdout.contains("aside: critical: no answer"),
        "{health:?}"
    );
    assert_eq!(operations.code, 0, "{operations:?}");
    assert!(operations.stdout.contains("data"), "{operations:?}");
    place::refused(&shown, 3, &["aside", "no answer"]);
    assert_eq!(unmounted.code, 0, "{unmounted:?}");
    place.tell(["group", "dismount", "aside"]);
}

#[test]
fn connections_that_say_nothing_do_not_hold_up_the_keeper() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let silent: Vec<UnixStream> = (0..30)
        .map(|_| UnixStream::connect(place.path("run/data.keeper")).unwrap())
        .collect();
    // This one comes after them.
    let begun = Instant::now();
    let mut asking = UnixStream::connect(place.path("run/data.keeper")).unwrap();
    asking.write_all(b"\"status\"\n").unwrap();
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    let took = begun.elapsed();
    drop(silent);
    assert!(answer.contains("serving"), "{answer}");
    // Heard one after the other, each for two seconds, they took a minute.
    assert!(took < Duration::from_secs(30), "{took:?}");
    place.umount();
}
