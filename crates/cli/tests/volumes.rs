//! Volumes: made, listed, resized and dropped; exported to a client that is written here, and to the
//! clients that the distribution has.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use place::{Outcome, Place, bytes, can_mount, outcome, signal, wait_for_end};
use rustix::process::Signal;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

/// A client that knows what a story needs, and no more.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        // By the default name, whose size and flags are the answer.
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Self(stream)
    }

    fn ask(&mut self, kind: u16, offset_bytes: u64, length: usize, data: &[u8]) -> (u32, Vec<u8>) {
        let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        request.extend(kind.to_be_bytes());
        request.extend([0; 8]);
        request.extend(offset_bytes.to_be_bytes());
        request.extend(u32::try_from(length).unwrap().to_be_bytes());
        self.0.write_all(&request).unwrap();
        self.0.write_all(data).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let mut read = vec![
            0;
            if kind == READ && error == 0 {
                length
            } else {
                0
            }
        ];
        self.0.read_exact(&mut read).unwrap();
        (error, read)
    }

    #[track_caller]
    fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        assert_eq!(self.ask(WRITE, offset_bytes, data.len(), data).0, 0);
    }

    #[track_caller]
    fn read(&mut self, offset_bytes: u64, length: usize) -> Vec<u8> {
        let (error, read) = self.ask(READ, offset_bytes, length, &[]);
        assert_eq!(error, 0);
        read
    }

    #[track_caller]
    fn flush(&mut self) {
        assert_eq!(self.ask(FLUSH, 0, 0, &[]).0, 0);
    }
}

/// A group that is open, with a volume that is exported.
fn exported(size: &str) -> Place {
    let place = Place::new();
    place.create_group();
    place.tell(["volume", "create", "data:/disk", "--size", size]);
    place.tell(["group", "mount", "data"]);
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    place
}

fn uri(place: &Place) -> String {
    format!("nbd+unix:///?socket={}", place.text("socket"))
}

#[track_caller]
fn is_there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

#[track_caller]
fn done(command: &mut Command) -> Outcome {
    let outcome = outcome(command);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    outcome
}

/// Waits until the group sees no client any more.
fn wait_until_left(place: &Place) {
    let begun = Instant::now();
    while place.ask(["volume", "exports", "data"])[0]["connections_count"] != 0 {
        assert!(begun.elapsed() < PATIENCE, "the client's end was not seen");
    }
}

#[test]
fn a_volume_is_made_listed_resized_and_dropped_without_a_daemon() {
    let place = Place::new();
    place.create_group();
    place.tell(["cp", "/proc/self/status", "data:/no_volume"]);
    let made = place.ask(["volume", "create", "data:/disk", "--size", "8M"]);
    assert_eq!(made["size_bytes"], 8 * MIB);
    assert_eq!(made["allocated_bytes"], 0);
    assert_eq!(made["redundancy"], "normal");
    let reserved = place.ask(["volume", "create", "data:/all", "--size", "4M", "--reserve"]);
    assert_eq!(reserved["allocated_bytes"], 4 * MIB);
    let paths = |target: &str| {
        let listed = place.ask(["volume", "list", target]);
        let paths = listed.as_array().unwrap().iter();
        let paths = paths.map(|volume| volume["path"].as_str().unwrap().to_owned());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(paths("data"), ["/all", "/disk"]);
    assert_eq!(paths("data:/disk"), ["/disk"]);
    let resize = ["volume", "resize", "data:/disk", "--size"];
    let grown = place.ask(resize.iter().chain(&["16M"]));
    assert_eq!(grown["size_bytes"], 16 * MIB);
    let smaller: Vec<&str> = resize.iter().chain(&["4M"]).copied().collect();
    place.refuse(&smaller, 2, &["data:/disk", "--shrink", "lost"]);
    let shrunk = place.ask(smaller.iter().chain(&["--shrink"]));
    assert_eq!(shrunk["size_bytes"], 4 * MIB);
    place.refuse(["volume", "drop", "data:/disk"], 2, &["--yes"]);
    place.tell(["volume", "drop", "data:/disk", "--yes"]);
    assert_eq!(paths("data"), ["/all"]);
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_a_volume_is_refused_and_nothing_changed() {
    let place = Place::new();
    place.create_group();
    place.tell(["cp", "/proc/self/status", "data:/file"]);
    place.tell(["volume", "create", "data:/disk", "--size", "1M"]);
    for (words, wanted) in [
        (&["create", "data:/disk", "--size", "1M"][..], "already"),
        (&["create", "data:/file", "--size", "1M"], "already"),
        (&["create", "data:/none/disk", "--size", "1M"], "no"),
        (&["create", "data:/", "--size", "1M"], "directory"),
        (&["create", "data:/huge", "--size", "17T"], "at most"),
        (&["resize", "data:/file", "--size", "1M"], "no volume"),
        (&["drop", "data:/file", "--yes"], "no volume"),
        (&["drop", "data:/none", "--yes"], "there is no data:/none"),
        (&["list", "data:/file"], "no volume"),
        (&["export", "data:/disk", "--socket", "s"], "not open"),
    ] {
        place.refuse([&["volume"], words].concat(), 2, &[wanted]);
    }
    let over = [
        "volume",
        "create",
        "data:/over",
        "--size",
        "1G",
        "--reserve",
    ];
    let refused = place.run(over);
    assert!(
        refused.stderr.contains("room") || refused.stderr.contains("space"),
        "{refused:?}"
    );
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    let listed = place.ask(["ls", "data:/"]);
    let names = listed.as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["disk", "file"]);
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
}

#[test]
fn an_export_that_cannot_be_is_refused_and_its_socket_not_made() {
    let place = exported("1M");
    place.tell(["volume", "create", "data:/other", "--size", "1M"]);
    std::fs::write(place.path("file"), "mine").unwrap();
    let _listener = UnixListener::bind(place.path("served")).unwrap();
    let long = place.text(&"a".repeat(110));
    let open_to_all = std::fs::Permissions::from_mode(0o777);
    std::fs::create_dir(place.path("all")).unwrap();
    std::fs::set_permissions(place.path("all"), open_to_all).unwrap();
    for (path, socket, wanted) in [
        ("data:/disk", "second", "is exported at"),
        ("data:/none", "second", "there is no"),
        ("data:/other", "socket", "somebody listens"),
        ("data:/other", "served", "somebody listens"),
        ("data:/other", "file", "no socket"),
        ("data:/other", long.as_str(), "too long"),
        ("data:/other", "none/socket", "none/socket"),
        ("data:/other", "all/socket", "can be written by others"),
    ] {
        let words = ["volume", "export", path, "--socket", socket];
        place.refuse(words, 2, &[wanted]);
    }
    assert!(!place.path("second").exists());
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"mine");
    // What a process left that died: nobody listens there.
    drop(UnixListener::bind(place.path("left")).unwrap());
    place.tell([
        "volume",
        "export",
        "data:/other",
        "--socket",
        "left",
        "--read-only",
    ]);
    let mode = std::fs::metadata(place.path("left"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner may connect");
    let mut client = Client::connect(&place.path("left"));
    assert_eq!(client.ask(WRITE, 0, 512, &[1; 512]).0, 1, "not permitted");
    assert_eq!(client.read(0, 512), [0; 512]);
    let exports = place.ask(["volume", "exports", "data"]);
    assert_eq!(exports[1]["read_only"], true);
    assert_eq!(exports[1]["connections_count"], 1);
    drop(client);
    place.refuse(["volume", "unexport", "data:/none"], 2, &["not exported"]);
}

#[test]
fn a_client_is_not_cut_off_unless_somebody_says_so() {
    let place = exported("4M");
    let mut client = Client::connect(&place.path("socket"));
    client.write(0, &[1; 4096]);
    let connected = &["1 client of", "data:/disk", "--force"];
    place.refuse(["volume", "unexport", "data:/disk"], 2, connected);
    place.refuse(["group", "dismount", "data"], 2, connected);
    place.refuse(
        ["volume", "drop", "data:/disk", "--yes"],
        2,
        &["is exported"],
    );
    std::fs::write(place.path("image"), [2; 4096]).unwrap();
    let image = ["cp", "image", "data:/disk"];
    place.refuse(image, 2, &["data:/disk is a volume", "spindle volume drop"]);
    let shrink = ["volume", "resize", "data:/disk", "--size", "1M", "--shrink"];
    place.refuse(shrink, 2, &["is exported"]);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    place.tell(["volume", "unexport", "data:/disk", "--force"]);
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "the end");
    assert!(!place.path("socket").exists());
    place.tell(["volume", "drop", "data:/disk", "--yes"]);
    place.tell(["group", "dismount", "data"]);
}

#[test]
fn an_exported_volume_grows_under_its_client() {
    let place = exported("1M");
    let mut before = Client::connect(&place.path("socket"));
    let end = MIB as u64;
    assert_eq!(before.ask(WRITE, end, 4096, &[1; 4096]).0, 28, "no space");
    place.tell(["volume", "resize", "data:/disk", "--size", "2M"]);
    before.write(end, &[1; 4096]);
    let mut after = Client::connect(&place.path("socket"));
    assert_eq!(after.read(end, 4096), [1; 4096]);
    assert_eq!(after.read(end + 4096, 4096), [0; 4096]);
}

#[test]
fn what_was_flushed_outlives_the_process_and_its_socket_is_replaced() {
    let place = Place::new();
    place.create_group();
    place.tell(["volume", "create", "data:/disk", "--size", "8M"]);
    place.tell(["group", "mount", "data", "--no-keeper"]);
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    let data = bytes(3, 5 * MIB + 1234);
    let mut client = Client::connect(&place.path("socket"));
    client.write(777, &data);
    client.flush();
    let killed = place.process_id();
    signal(killed, Signal::KILL);
    wait_for_end(killed);
    assert!(place.path("socket").exists(), "nobody took it away");
    place.tell(["group", "mount", "data", "--no-keeper"]);
    let exports = place.ask(["volume", "exports", "data"]);
    assert_eq!(exports.as_array().unwrap().len(), 0, "nobody asked for one");
    assert!(!place.path("socket").exists(), "nobody listens there");
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    let mut client = Client::connect(&place.path("socket"));
    assert!(client.read(777, data.len()) == data);
    assert_eq!(client.read(0, 777), vec![0; 777]);
    drop(client);
    wait_until_left(&place);
    place.tell(["group", "dismount", "data"]);
    place.tell(["cp", "data:/disk", "copy"]);
    let copy = std::fs::read(place.path("copy")).unwrap();
    assert!(copy[777..777 + data.len()] == data);
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
}

#[test]
fn a_reader_on_a_mount_sees_what_a_client_wrote_after_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    place.tell(["volume", "create", "data:/disk", "--size", "1M"]);
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    let file = std::fs::File::open(place.mount_point().join("disk")).unwrap();
    let mut client = Client::connect(&place.path("socket"));
    // More often than after which all of the kernel's pages are forgotten at once.
    for round in 1..=100u8 {
        let mut read = [0; 8192];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read[..4096] == [round - 1; 4096], "round {round}");
        client.write(0, &[round; 4096]);
    }
    drop(client);
    drop(file);
    // An umount that would end the process does not cut a client off either.
    let client = Client::connect(&place.path("socket"));
    let point = place.mount_point().display().to_string();
    place.refuse(["umount", &point], 2, &["client", "data:/disk"]);
    drop(client);
    wait_until_left(&place);
    place.umount();
    assert!(!place.path("socket").exists(), "it ended with the group");
}

#[test]
fn who_asks_on_a_mount_for_the_times_and_the_space_of_a_volume_sees_what_a_client_wrote() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    place.tell(["volume", "create", "data:/disk", "--size", "64M"]);
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    let path = place.mount_point().join("disk");
    let mut client = Client::connect(&place.path("socket"));
    let allocated_bytes = || {
        let volumes = place.ask(["volume", "list", "data"]);
        volumes[0]["allocated_bytes"].as_u64().unwrap()
    };
    let seen = || {
        let status = std::fs::metadata(&path).unwrap();
        let modified = (status.mtime(), status.mtime_nsec());
        let changed = (status.ctime(), status.ctime_nsec());
        (modified, changed, status.blocks())
    };
    // So many that the kernel has no page of it left, and is told of no further write of bytes.
    for _ in 0..100 {
        client.write(0, &[1; 4096]);
    }
    let mut before = seen();
    for part in 1..5 {
        // More than the clock of times takes for a tick.
        std::thread::sleep(Duration::from_millis(20));
        // Where the volume has no space yet.
        client.write(part * 8 * MIB as u64, &[1; 4096]);
        let after = seen();
        assert!(after.0 > before.0, "mtime: {before:?}, then {after:?}");
        assert!(after.1 > before.1, "ctime: {before:?}, then {after:?}");
        assert!(after.2 > before.2, "blocks: {before:?}, then {after:?}");
        assert_eq!(after.2 * 512, allocated_bytes());
        before = after;
    }
    drop(client);
    wait_until_left(&place);
    place.umount();
}

/// What was put in the socket's place is not believed to let in whom it likes.
#[test]
fn a_socket_that_somebody_put_in_the_place_of_another_gives_nobody_access() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let socket = place.path("socket");
    // Made beside the other one, so that it cannot have its number.
    let other = UnixListener::bind(place.path("other")).unwrap();
    std::fs::set_permissions(place.path("other"), std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::rename(place.path("other"), &socket).unwrap();
    drop(other);
    place.kill_daemon();
    drop(connect_again(&place));
    let mode = std::fs::metadata(&socket).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    wait_until_left(&place);
    place.umount();
}

/// A group on a mount that a keeper holds, with a volume that is exported.
fn exported_beside_a_keeper() -> Place {
    let place = Place::new();
    place.create_group();
    place.mount();
    place.tell(["volume", "create", "data:/disk", "--size", "8M"]);
    place.tell(["volume", "export", "data:/disk", "--socket", "socket"]);
    place
}

/// Waits until somebody listens at the socket again.
fn connect_again(place: &Place) -> Client {
    let begun = Instant::now();
    while UnixStream::connect(place.path("socket")).is_err() {
        assert!(begun.elapsed() < PATIENCE, "it is exported no more");
        std::thread::sleep(Duration::from_millis(10));
    }
    Client::connect(&place.path("socket"))
}

#[test]
fn an_export_is_there_again_with_all_that_was_answered_when_its_daemon_was_killed() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    place.tell(["volume", "create", "data:/other", "--size", "1M"]);
    place.tell(["volume", "export", "data:/other", "--socket", "gone"]);
    place.tell(["volume", "unexport", "data:/other"]);
    let socket = place.path("socket");
    // For the user of a virtual machine.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o660)).unwrap();
    std::os::unix::fs::chown(&socket, Some(1234), Some(2345)).unwrap();
    let mut client = Client::connect(&socket);
    for round in 1..=3u64 {
        let data = bytes(round, 2 * MIB + 77);
        // Answered, and not flushed.
        client.write(round * 1000, &data);
        place.kill_daemon();
        client = connect_again(&place);
        assert!(
            client.read(round * 1000, data.len()) == data,
            "round {round}"
        );
    }
    let metadata = std::fs::metadata(&socket).unwrap();
    let access = (metadata.uid(), metadata.gid(), metadata.mode() & 0o777);
    assert_eq!(access, (1234, 2345, 0o660), "it lets in whom it did");
    let exports = place.ask(["volume", "exports", "data"]);
    assert_eq!(exports.as_array().unwrap().len(), 1, "{exports}");
    assert!(!place.path("gone").exists());
    drop(client);
    wait_until_left(&place);
    place.umount();
    assert!(!place.path("socket").exists(), "it ended with the group");
    place.mount();
    let exports = place.ask(["volume", "exports", "data"]);
    assert_eq!(exports.as_array().unwrap().len(), 0, "{exports}");
    place.umount();
}

/// QEMU sends again what was not answered when its connection went.
#[test]
fn qemu_goes_on_when_the_daemon_under_it_was_killed() {
    if !can_mount() || !is_there("qemu-io") {
        return;
    }
    let place = exported_beside_a_keeper();
    let options = format!(
        "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={},file.reconnect-delay=60",
        place.text("socket")
    );
    let mut qemu = Command::new("qemu-io")
        .args(["--image-opts", &options])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = qemu.stdin.take().unwrap();
    for pattern in 1..=3u64 {
        writeln!(steps, "write -P {pattern} {pattern}M 1M").unwrap();
        // Answered, or on its way: both are there in the end.
        std::thread::sleep(Duration::from_millis(20));
        place.kill_daemon();
    }
    for pattern in 1..=3 {
        writeln!(steps, "read -P {pattern} {pattern}M 1M").unwrap();
    }
    writeln!(steps, "flush\nquit").unwrap();
    drop(steps);
    let told = qemu.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{told:?}");
    assert_eq!(
        said.matches("read 1048576/1048576 bytes").count(),
        3,
        "{said}"
    );
    assert!(!said.contains("failed"), "{said}");
    wait_until_left(&place);
    place.umount();
}

#[test]
fn a_handover_cuts_no_client_off_unasked_and_exports_the_same_again() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let mut client = Client::connect(&place.path("socket"));
    client.write(512, &[7; 512]);
    place.refuse(["upgrade", "data"], 2, &["data:/disk", "unexport"]);
    assert_eq!(client.read(512, 512), [7; 512]);
    drop(client);
    wait_until_left(&place);
    place.tell(["upgrade", "data"]);
    let mut client = connect_again(&place);
    assert_eq!(client.read(512, 512), [7; 512]);
    drop(client);
    wait_until_left(&place);
    place.umount();
}

fn unmount_from_outside(place: &Place) {
    let flags = rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(place.mount_point(), flags).unwrap();
}

#[test]
fn a_client_of_an_export_that_outlived_the_mount_finds_it_again_when_the_daemon_is_killed() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let keeper = place.keeper_process_id();
    let mut client = Client::connect(&place.path("socket"));
    unmount_from_outside(&place);
    client.write(512, &[7; 512]);
    place.kill_daemon();
    // A daemon that nobody needs ends sooner.
    std::thread::sleep(Duration::from_secs(4));
    let mut client = Client::connect(&place.path("socket"));
    assert_eq!(client.read(512, 512), [7; 512]);
    drop(client);
    // Nobody else comes: the group is closed, and nothing of the export left.
    let begun = Instant::now();
    while Path::new(&format!("/proc/{keeper}")).exists() {
        assert!(begun.elapsed() < PATIENCE, "the group stays open");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!place.path("socket").exists());
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["process_id"], serde_json::Value::Null, "{shown}");
}

#[test]
fn a_last_daemon_exports_nothing_and_leaves_no_socket() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    signal(keeper, Signal::STOP);
    signal(daemon, Signal::KILL);
    unmount_from_outside(&place);
    signal(keeper, Signal::TERM);
    signal(keeper, Signal::CONT);
    wait_for_end(keeper);
    assert!(!place.path("socket").exists());
    let log = std::fs::read_to_string(place.path("run/data.log")).unwrap();
    assert_eq!(log.matches("INFO exported").count(), 1, "{log}");
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["process_id"], serde_json::Value::Null, "{shown}");
}

#[test]
fn a_volume_that_was_renamed_is_not_exported_by_the_next_daemon_and_leaves_no_socket() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let point = place.mount_point();
    std::fs::rename(point.join("disk"), point.join("other")).unwrap();
    place.kill_daemon();
    let exports = place.ask(["volume", "exports", "data"]);
    assert_eq!(exports.as_array().unwrap().len(), 0, "{exports}");
    assert!(!place.path("socket").exists());
    place.umount();
}

#[test]
fn no_socket_is_left_of_a_group_that_its_keeper_had_to_leave() {
    if !can_mount() {
        return;
    }
    let place = exported_beside_a_keeper();
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    // Nobody can follow the daemon.
    place.take_disks_away();
    signal(keeper, Signal::STOP);
    signal(daemon, Signal::KILL);
    signal(keeper, Signal::TERM);
    signal(keeper, Signal::CONT);
    wait_for_end(keeper);
    assert!(!place.path("socket").exists());
    place.put_disks_back();
}

#[test]
fn nbdinfo_and_nbdcopy_find_a_device_and_give_back_what_they_were_given() {
    if !is_there("nbdcopy") || !is_there("nbdinfo") {
        return;
    }
    let place = exported("24M");
    let uri = uri(&place);
    let told = done(Command::new("nbdinfo").args(["--json", &uri])).stdout;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let export = &told["exports"][0];
    assert_eq!(export["export-size"], 24 * MIB);
    for can in [
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
        "can_df",
    ] {
        assert_eq!(export[can], true, "{can}");
    }
    assert_eq!(export["can_fast_zero"], false);
    assert_eq!(export["is_read_only"], false);
    // Data, a hole, data.
    let mut image = bytes(9, 24 * MIB);
    image[6 * MIB..15 * MIB].fill(0);
    std::fs::write(place.path("image"), &image).unwrap();
    let there = ["--flush", "--connections=4", &place.text("image"), &uri];
    done(Command::new("nbdcopy").args(there));
    done(Command::new("nbdcopy").args([&uri, &place.text("back")]));
    assert!(
        std::fs::read(place.path("back")).unwrap() == image,
        "the same bytes"
    );
    let map = done(Command::new("nbdinfo").args(["--map", "--json", &uri])).stdout;
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let holes = map.as_array().unwrap().iter();
    let holes = holes.filter(|part| part["type"] == 3);
    let hole_bytes: u64 = holes.map(|part| part["length"].as_u64().unwrap()).sum();
    assert_eq!(hole_bytes, 9 * MIB as u64, "{map}");
    wait_until_left(&place);
    place.tell(["group", "dismount", "data"]);
    place.tell(["cp", "data:/disk", "copy"]);
    assert!(std::fs::read(place.path("copy")).unwrap() == image);
}

#[test]
fn qemu_reads_back_the_patterns_that_it_wrote_zeroed_and_discarded() {
    if !is_there("qemu-io") {
        return;
    }
    let place = exported("16M");
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", &uri(&place)]);
    for step in [
        "write -P 1 0 4M",
        // Within blocks, and over their borders.
        "write -P 2 1000 5000",
        "read -P 1 0 1000",
        "read -P 2 1000 5000",
        "read -P 1 6000 1000",
        "flush",
        "write -f -P 3 4M 64k",
        "read -P 3 4M 64k",
        "write -z 512 1M",
        "read -P 1 0 512",
        "read -P 0 512 1M",
        "write -z -u 2M 1M",
        "read -P 0 2M 1M",
        "write -z -f 3M 100k",
        "read -P 0 3M 100k",
        "discard 3584k 512k",
        "write -P 4 3584k 512k",
        "read -P 4 3584k 512k",
        "aio_write -P 5 8M 1M",
        "aio_write -P 6 9M 1M",
        "aio_write -P 7 10M 1M",
        "aio_flush",
        "read -P 5 8M 1M",
        "read -P 6 9M 1M",
        "read -P 7 10M 1M",
    ] {
        command.args(["-c", step]);
    }
    let told = done(&mut command);
    assert!(
        !told.stdout.contains("Pattern verification failed"),
        "{told:?}"
    );
    assert!(!told.stdout.contains("failed"), "{told:?}");
    wait_until_left(&place);
    place.tell(["group", "dismount", "data"]);
    // What was zeroed without --unmap keeps its room, what was zeroed with it gives it back.
    place.tell(["cp", "data:/disk", "copy"]);
    let copy = std::fs::read(place.path("copy")).unwrap();
    assert!(copy[8 * MIB..9 * MIB].iter().all(|byte| *byte == 5));
    assert!(copy[512..512 + MIB].iter().all(|byte| *byte == 0));
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"].as_array().unwrap().len(), 0);
}

#[test]
fn fio_reads_what_it_wrote_while_a_disk_leaves_and_another_is_pulled() {
    if !is_there("fio") {
        return;
    }
    let place = exported("16M");
    let mut load = Command::new("fio")
        .args(["--name=load", "--ioengine=nbd"])
        .arg(format!("--uri={}", uri(&place)))
        .args(["--rw=randwrite", "--bs=8k"])
        .args([
            "--size=16M",
            "--iodepth=16",
            "--fsync=64",
            "--time_based",
            "--runtime=12",
        ])
        .args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1"])
        // It leaves a file where it runs.
        .current_dir(place.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    place.tell(["disk", "drop", "data", "data_0000"]);
    place.tell(["rebalance", "data", "--power", "64", "--wait"]);
    place.tell(["fault", "pull", "data", "data_0002"]);
    let is_under_load = load.try_wait().unwrap().is_none();
    let told = load.wait_with_output().unwrap();
    assert!(told.status.success(), "{told:?}");
    assert!(is_under_load, "the disks changed under load");
    wait_until_left(&place);
    let map = place.ask(["map", "data:/disk"]);
    let disks = map["disks"].as_array().unwrap().iter();
    let names: Vec<&str> = disks
        .map(|disk| disk["disk_name"].as_str().unwrap())
        .collect();
    assert!(!names.contains(&"data_0000"), "{names:?}");
}
