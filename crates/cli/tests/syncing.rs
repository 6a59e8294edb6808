//! What is durable after `spindle sync`, and some time after sync(1).
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use place::{Place, bytes, can_mount, outcome};

/// Copies the disks as they are in this moment. A power cut would leave no more than what is on
/// them: the daemon writes past the page cache.
fn cut_the_power(place: &Place, into: &Place) {
    for (path, contents) in place.contents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::write(into.disk(&name), contents).unwrap();
    }
}

#[test]
fn a_sync_by_command_is_durable_when_it_returns() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    // A closed group has nothing to be written.
    assert!(place.tell(["sync", "data"]).contains("not open"));
    place.refuse(["sync", "nothing"], 2, &["nothing"]);
    place.mount();
    let contents = bytes(3, 3_000_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    assert!(place.tell(["sync", "data"]).contains("durable"));
    let after = Place::new();
    cut_the_power(&place, &after);
    // The copies name the process that had them, which must be gone.
    place.umount();
    after.mount();
    let back = std::fs::read(after.mount_point().join("file")).unwrap();
    assert!(back == contents);
    after.umount();
}

#[test]
fn a_sync_of_a_group_that_nobody_closed_does_not_say_that_nothing_is_left_to_be_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount_alone();
    let daemon = place.process_id();
    let told = format!("process {daemon} ");
    let mut elsewhere = place.command(["sync", "data"]);
    let said = outcome(elsewhere.env("SPINDLE_RUNTIME_DIR", place.path("elsewhere")));
    place::refused(&said, 2, &["data is open by", &told, "SPINDLE_RUNTIME_DIR"]);
    place::signal(daemon, rustix::process::Signal::KILL);
    place::wait_for_end(daemon);
    place.refuse(
        ["sync", "data"],
        3,
        &["was not closed", &told, "may be lost"],
    );
    place.mount();
    place.umount();
    assert!(place.tell(["sync", "data"]).contains("not open"));
}

/// A program that changes a file through a shared mapping, and keeps it open.
fn mapped(file: &Path) -> Child {
    let script = "import mmap, sys\nf = open(sys.argv[1], 'r+b')\nm = mmap.mmap(f.fileno(), 0)\n\
        m[:] = b'y' * len(m)\nprint('changed', flush=True)\nsys.stdin.read()";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let output = child.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut said).unwrap();
    assert_eq!(said, "changed\n");
    child
}

#[test]
fn a_sync_covers_what_programs_change_where_the_mount_lives_on_elsewhere_or_is_refused() {
    if !can_mount() {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let (at, second) = (place.text("mount"), place.text("second"));
    std::fs::create_dir(&second).unwrap();
    std::fs::write(place.mount_point().join("file"), vec![b'x'; 200_000]).unwrap();
    for words in [&["mount", "--bind", &at, &second][..], &["umount", &at]] {
        let done = outcome(Command::new(words[0]).args(&words[1..]));
        assert_eq!(done.code, 0, "{done:?}");
    }
    let mut program = mapped(&place.path("second/file"));
    assert!(place.tell(["sync", "data"]).contains("durable"));
    let after = Place::new();
    cut_the_power(&place, &after);
    // In no place at all any more, and still open: nobody can have it written back.
    let gone = outcome(Command::new("umount").args(["-l", &second]));
    assert_eq!(gone.code, 0, "{gone:?}");
    place.refuse(["sync", "data"], 3, &["lives on"]);
    let daemon = place.process_id();
    drop(program.stdin.take());
    program.wait().unwrap();
    place::wait_for_end(daemon);
    after.mount();
    let back = std::fs::read(after.mount_point().join("file")).unwrap();
    assert!(back == vec![b'y'; 200_000]);
    after.umount();
}

#[test]
fn a_sync_of_the_kernels_is_durable_soon_after() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let contents = bytes(4, 100_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    let synced = outcome(Command::new("sync").arg("-f").arg(place.mount_point()));
    assert_eq!(synced.code, 0, "{synced:?}");
    // Half a second, and as much again for a busy machine; without it 5 to 8 s.
    std::thread::sleep(Duration::from_millis(1500));
    let after = Place::new();
    cut_the_power(&place, &after);
    // The copies name the process that had them, which must be gone.
    place.umount();
    after.mount();
    let back = std::fs::read(after.mount_point().join("file")).unwrap();
    assert!(back == contents);
    after.umount();
}
