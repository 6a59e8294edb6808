//! A disk hangs in the kernel: its file lies on a file system that is frozen.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::ffi::OsStr;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount, is_mounted, signal, wait_for_end};
use rustix::process::Signal;

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// No test waits longer for what a frozen file system holds.
const FROZEN_MOST: Duration = Duration::from_secs(120);

/// A file system of its own; thawed and unmounted however the test ends, and thawed by itself where
/// the test does not go on.
struct Freezer {
    point: PathBuf,
    frozen: Mutex<Option<Sender<()>>>,
}

impl Freezer {
    fn new(place: &Place) -> Option<Self> {
        let image = place.path("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(160 << 20)
            .unwrap();
        let point = place.path("fs");
        std::fs::create_dir(&point).unwrap();
        let (image, at) = (image.display().to_string(), point.display().to_string());
        if !succeeds("mkfs.ext4", &["-q", &image])
            || !succeeds("mount", &["-o", "loop", &image, &at])
        {
            println!("skipped: no loop device can be mounted here");
            return None;
        }
        Some(Self {
            point,
            frozen: Mutex::default(),
        })
    }

    fn freeze(&self) {
        let point = self.point.display().to_string();
        assert!(succeeds("fsfreeze", &["-f", &point]));
        let (thawed, is_thawed) = channel::<()>();
        *self.frozen.lock().unwrap() = Some(thawed);
        std::thread::spawn(move || {
            if is_thawed.recv_timeout(FROZEN_MOST) == Err(RecvTimeoutError::Timeout) {
                println!("frozen for too long: it is thawed");
                succeeds("fsfreeze", &["-u", &point]);
            }
        });
    }

    fn thaw(&self) {
        self.frozen.lock().unwrap().take();
        succeeds("fsfreeze", &["-u", &self.point.display().to_string()]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        succeeds("umount", &["-l", &self.point.display().to_string()]);
    }
}

/// Lets the writers end, whatever became of the test.
struct Ending<'a>(&'a AtomicBool, &'a Freezer);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.thaw();
    }
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A group of which one copy lies on the file system that can be frozen.
fn create_mirror(place: &Place, hanging: &Path) {
    let left = format!("left={}:96M", place.disk("a"));
    let right = format!("right={}:96M", hanging.display());
    let sides = ["--failgroup", &left, "--failgroup", &right];
    place.tell(["group", "create", "data"].iter().chain(&sides));
}

/// A mounted group of which one copy lies on the file system that can be frozen; none where this machine
/// cannot do that.
fn mounted_mirror() -> Option<(Place, Freezer)> {
    mounted(create_mirror, "")
}

/// A mounted group, made by `create`, with a disk on the file system that can be frozen.
fn mounted(create: impl FnOnce(&Place, &Path), settings: &str) -> Option<(Place, Freezer)> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    let freezer = Freezer::new(&place)?;
    std::fs::write(place.path("spindle.toml"), settings).unwrap();
    let hanging = freezer.point.join("disk");
    create(&place, &hanging);
    std::os::unix::fs::symlink(&hanging, place.disk("b")).unwrap();
    place.mount();
    Some((place, freezer))
}

/// A group without redundancy, of which one disk lies on the file system that can be frozen.
fn create_external(place: &Place, hanging: &Path) {
    let [first, second] =
        [place.disk("a"), hanging.display().to_string()].map(|disk| format!("{disk}:96M"));
    let disks = ["--file-disk", &first, "--file-disk", &second];
    let words = ["group", "create", "data", "--redundancy", "external"];
    place.tell(words.iter().chain(&disks));
}

fn offline_count(place: &Place) -> u64 {
    let group = place.ask(["group", "show", "data"]);
    group["offline_disks_count"].as_u64().unwrap()
}

#[test]
fn writers_newcomers_and_the_next_process_go_on_while_a_disk_hangs_and_it_comes_back_after() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(freezer) = Freezer::new(&place) else {
        return;
    };
    std::fs::write(place.path("spindle.toml"), "io_deadline_s = 2\n").unwrap();
    let hanging = freezer.point.join("disk");
    create_mirror(&place, &hanging);
    std::os::unix::fs::symlink(&hanging, place.disk("b")).unwrap();
    place.mount();
    let stop = AtomicBool::new(false);
    let expected = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let (place, stop) = (&place, &stop);
                scope.spawn(move || {
                    let path = place.mount_point().join(format!("w{number}"));
                    let mut file = std::fs::File::create(path).unwrap();
                    let mut longest = Duration::ZERO;
                    let mut last = Vec::new();
                    for round in 0_u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let begun = Instant::now();
                        last = bytes(number * 1000 + round, 65_536);
                        file.rewind().unwrap();
                        file.write_all(&last).unwrap();
                        file.sync_data().unwrap();
                        longest = longest.max(begun.elapsed());
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    (longest, last)
                })
            })
            .collect();
        let _ending = Ending(&stop, &freezer);
        std::thread::sleep(Duration::from_secs(1));
        freezer.freeze();
        wait_for("the disk goes offline", || offline_count(&place) == 1);
        let newcomer = place.mount_point().join("late");
        let mut file = std::fs::File::create(&newcomer).unwrap();
        file.write_all(b"late").unwrap();
        file.sync_all().unwrap();
        // The kernel still holds what the process has asked of the disk.
        let before = place.process_id();
        place.tell(["upgrade", "data"]);
        assert_ne!(place.process_id(), before);
        assert_eq!(std::fs::read(&newcomer).unwrap(), b"late");
        assert_eq!(offline_count(&place), 1, "nobody takes it back before");
        stop.store(true, Ordering::Relaxed);
        let writers: Vec<(Duration, Vec<u8>)> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect();
        for (longest, _) in &writers {
            assert!(*longest < Duration::from_secs(60), "{longest:?}");
        }
        writers
    });
    wait_for("the disk comes back", || offline_count(&place) == 0);
    wait_for("it has what it missed", || {
        let health = place.run(["health", "data", "--json"]);
        !health.stdout.contains("resync")
    });
    for (number, (_, last)) in expected.iter().enumerate() {
        let path = place.mount_point().join(format!("w{number}"));
        assert!(std::fs::read(path).unwrap() == *last, "file {number}");
    }
    place.umount();
    let check = place.run(["check", "data"]);
    assert_eq!(check.code, 0, "{check:?}");
}

#[test]
fn a_mount_after_one_that_was_ended_by_force_waits_for_what_that_one_still_writes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(freezer) = Freezer::new(&place) else {
        return;
    };
    // Longer than the story: what hangs is not given up.
    std::fs::write(place.path("spindle.toml"), "io_deadline_s = 100\n").unwrap();
    let hanging = freezer.point.join("disk");
    create_mirror(&place, &hanging);
    std::os::unix::fs::symlink(&hanging, place.disk("b")).unwrap();
    place.tell(["group", "mount", "data"]);
    place.mount();
    let point = place.mount_point();
    let at = point.display().to_string();
    let mut file = std::fs::File::create(point.join("file")).unwrap();
    file.write_all(b"former").unwrap();
    file.sync_all().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop, &freezer);
        freezer.freeze();
        let writing = scope.spawn(move || {
            file.write_all(b" and what hangs").unwrap();
            file.sync_all()
        });
        std::thread::sleep(Duration::from_secs(1));
        // The program has it in use, and is told that its request came to nothing.
        let _ = rustix::mount::unmount(&point, rustix::mount::UnmountFlags::FORCE);
        writing.join().unwrap().unwrap_err();
        let mounting = scope.spawn(|| place.run(["mount", "data", &at]));
        for _ in 0..100 {
            if mounting.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        freezer.thaw();
        let said = mounting.join().unwrap();
        place::refused(&said, 2, &["former mount", "under way", "try again"]);
    });
    place.mount();
    std::fs::write(point.join("file"), b"new").unwrap();
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"new");
    place.umount();
    place.tell(["group", "dismount", "data"]);
}

/// The group is closed and nothing is mounted; mounted again it has the file.
#[track_caller]
fn closed_with(place: &Place, keeper: u32, contents: &[u8]) {
    wait_for_end(keeper);
    assert!(!is_mounted(&place.mount_point()));
    let shown = place.ask(["group", "show", "data"]);
    assert_eq!(shown["process_id"], serde_json::Value::Null, "{shown}");
    place.mount();
    let found = std::fs::read(place.mount_point().join("file")).unwrap();
    assert!(found == contents, "{} bytes are there", found.len());
    place.umount();
}

#[test]
fn a_daemon_that_dies_while_it_writes_out_what_was_unmounted_is_followed_by_one_that_only_closes() {
    let Some((place, freezer)) = mounted_mirror() else {
        return;
    };
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let contents = bytes(3, 300_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop, &freezer);
        freezer.freeze();
        std::fs::write(place.mount_point().join("file"), &contents).unwrap();
        let unmounting = scope.spawn(|| {
            let point = place.mount_point();
            place.run([OsStr::new("umount"), point.as_os_str()])
        });
        wait_for("it is unmounted", || !is_mounted(&place.mount_point()));
        std::thread::sleep(Duration::from_millis(300));
        signal(daemon, Signal::KILL);
        // The kernel lets go of the killed one when the disk answers, and the command waits for that.
        freezer.thaw();
        unmounting.join().unwrap();
        wait_for("the next daemon was started", || {
            !std::path::Path::new(&format!("/proc/{daemon}")).exists()
        });
        closed_with(&place, keeper, &contents);
    });
}

/// A mirror with a disk that hangs, unmounted by a command; `then` is given the daemon and the
/// keeper, and thaws. What the command said.
fn unmounted_while_a_disk_hangs(
    then: impl Fn(&Place, &Freezer, u32, u32) + Sync,
) -> Option<(Place, Freezer, place::Outcome)> {
    let (place, freezer) = mounted_mirror()?;
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let stop = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let _ending = Ending(&stop, &freezer);
        freezer.freeze();
        std::fs::create_dir(place.mount_point().join("answered")).unwrap();
        let unmounting = scope.spawn(|| {
            let point = place.mount_point();
            place.run([OsStr::new("umount"), point.as_os_str()])
        });
        wait_for("it is unmounted", || !is_mounted(&place.mount_point()));
        then(&place, &freezer, daemon, keeper);
        unmounting.join().unwrap()
    });
    wait_for_end(keeper);
    wait_for_end(daemon);
    Some((place, freezer, said))
}

#[test]
fn a_close_that_was_cut_off_with_its_keeper_is_not_told_as_done() {
    let killed = |_: &Place, _: &Freezer, daemon, keeper| {
        std::thread::sleep(Duration::from_millis(300));
        signal(keeper, Signal::KILL);
        signal(daemon, Signal::KILL);
    };
    let Some((place, _freezer, said)) = unmounted_while_a_disk_hangs(killed) else {
        return;
    };
    place::refused(
        &said,
        3,
        &["data is not closed: ", "left no word", "may be lost"],
    );
    place.mount();
    place.umount();
}

#[test]
fn a_daemon_that_is_killed_in_its_close_while_a_disk_hangs_is_followed_by_one_that_closes() {
    let killed = |place: &Place, freezer: &Freezer, daemon, _| {
        // The very end: nobody is to find its keeper any more.
        wait_for("it closes", || !place.path("run/data.keeper").exists());
        std::thread::sleep(Duration::from_millis(300));
        signal(daemon, Signal::KILL);
        // The keeper sees that the kernel does not let go of it.
        std::thread::sleep(Duration::from_secs(3));
        freezer.thaw();
    };
    let Some((place, _freezer, said)) = unmounted_while_a_disk_hangs(killed) else {
        return;
    };
    assert_eq!(said.code, 0, "{said:?}");
    let events = place.tell(["events", "data"]);
    assert!(events.contains("took over the group"), "{events}");
    place.mount();
    assert!(place.mount_point().join("answered").is_dir());
    place.umount();
}

#[test]
fn a_mount_whose_killed_daemon_hangs_in_the_kernel_is_given_up_at_once_and_closed_afterwards() {
    // The keeper has seen that the kernel does not let go of it, or is about to.
    for seen in [Duration::from_secs(3), Duration::from_millis(200)] {
        given_up_at_once(seen);
    }
}

fn given_up_at_once(seen: Duration) {
    let Some((place, freezer)) = mounted_mirror() else {
        return;
    };
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let contents = bytes(4, 300_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|_| {
        let _ending = Ending(&stop, &freezer);
        freezer.freeze();
        std::fs::write(place.mount_point().join("file"), &contents).unwrap();
        // Its threads write, and hang.
        std::thread::sleep(Duration::from_secs(1));
        signal(daemon, Signal::KILL);
        std::thread::sleep(seen);
        signal(keeper, Signal::TERM);
        wait_for("it is unmounted", || !is_mounted(&place.mount_point()));
        assert!(std::path::Path::new(&format!("/proc/{keeper}")).exists());
        freezer.thaw();
        closed_with(&place, keeper, &contents);
    });
}

/// A keeper that waits for the kernel to let go of a killed daemon is asked again for what it was asked
/// before, and goes on waiting: what programs were answered for is in its memory alone.
#[test]
fn a_mount_that_is_given_up_twice_by_a_command_keeps_what_waits() {
    // The only copy: the next daemon waits for it.
    let Some((place, freezer)) = mounted(create_external, "io_deadline_s = 1\n") else {
        return;
    };
    let (daemon, keeper) = (place.process_id(), place.keeper_process_id());
    let contents = bytes(5, 300_000);
    let stop = AtomicBool::new(false);
    let _ending = Ending(&stop, &freezer);
    freezer.freeze();
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    signal(daemon, Signal::KILL);
    std::thread::sleep(Duration::from_secs(3));
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(place.command(["umount", "data"]).spawn().unwrap());
        wait_for("it is unmounted", || !is_mounted(&place.mount_point()));
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(std::path::Path::new(&format!("/proc/{keeper}")).exists());
    freezer.thaw();
    closed_with(&place, keeper, &contents);
    for mut command in asked {
        command.wait().unwrap();
    }
}

#[test]
fn a_keeper_that_is_told_to_end_while_a_killed_close_hangs_has_it_closed_first() {
    let killed = |place: &Place, freezer: &Freezer, daemon, keeper| {
        wait_for("it closes", || !place.path("run/data.keeper").exists());
        std::thread::sleep(Duration::from_millis(300));
        signal(daemon, Signal::KILL);
        std::thread::sleep(Duration::from_secs(3));
        // The first that it hears: that the daemon was about to end is no such word.
        signal(keeper, Signal::TERM);
        std::thread::sleep(Duration::from_secs(1));
        freezer.thaw();
    };
    let Some((place, _freezer, said)) = unmounted_while_a_disk_hangs(killed) else {
        return;
    };
    assert_eq!(said.code, 0, "{said:?}");
    place.mount();
    assert!(place.mount_point().join("answered").is_dir());
    place.umount();
}

/// The keeper's view: the first thread stands for the process, and what it waits for in the kernel
/// would hide that the process has ended.
#[test]
fn a_daemon_that_is_killed_while_its_opening_hangs_is_seen_to_have_ended() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(freezer) = Freezer::new(&place) else {
        return;
    };
    std::fs::write(place.path("spindle.toml"), "io_deadline_s = 100\n").unwrap();
    let hanging = freezer.point.join("disk");
    create_mirror(&place, &hanging);
    std::os::unix::fs::symlink(&hanging, place.disk("b")).unwrap();
    let stop = AtomicBool::new(false);
    let _ending = Ending(&stop, &freezer);
    freezer.freeze();
    let mut command = place.command(["mount", "data"]);
    let mut mounting = command.arg(place.mount_point()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let keeper = place::children_of(mounting.id())[0];
    let daemon = place::children_of(keeper)[0];
    let state = || std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
    signal(daemon, Signal::KILL);
    std::thread::sleep(Duration::from_secs(2));
    let seen = state();
    freezer.thaw();
    mounting.wait().unwrap();
    wait_for_end(daemon);
    assert!(seen.contains(") Z "), "{seen}");
}

/// Freezes the disk, begins to write and sync the file, and kills the daemon while that is under way;
/// gives the daemon and who writes.
fn killed_while_it_writes<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    place: &Place,
    freezer: &Freezer,
    contents: &'scope [u8],
) -> (u32, std::thread::ScopedJoinHandle<'scope, Duration>) {
    let daemon = place.process_id();
    let path = place.mount_point().join("file");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&contents[..4096]).unwrap();
    file.sync_all().unwrap();
    freezer.freeze();
    let writing = scope.spawn(move || {
        let begun = Instant::now();
        file.rewind().unwrap();
        file.write_all(contents).unwrap();
        file.sync_all().unwrap();
        begun.elapsed()
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!writing.is_finished(), "nothing hangs");
    signal(daemon, Signal::KILL);
    (daemon, writing)
}

#[test]
fn a_daemon_that_is_killed_while_a_disk_hangs_is_followed_by_one_that_goes_on_without_that_disk() {
    followed_without(true);
}

/// As one that hangs when it is read, too: nobody can say whose it is.
#[test]
fn a_daemon_that_is_killed_while_a_disk_hangs_is_followed_where_that_disk_is_not_found() {
    followed_without(false);
}

fn followed_without(is_found: bool) {
    let Some((place, freezer)) = mounted(create_mirror, "io_deadline_s = 4\n") else {
        return;
    };
    let on_search_path = |is_there: bool| match is_there {
        true => {
            let hanging = freezer.point.join("disk");
            std::os::unix::fs::symlink(hanging, place.disk("b")).unwrap();
        }
        false => std::fs::remove_file(place.disk("b")).unwrap(),
    };
    if !is_found {
        on_search_path(false);
    }
    let contents = bytes(7, 3_000_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop, &freezer);
        let (daemon, writing) = killed_while_it_writes(scope, &place, &freezer, &contents);
        let waited = writing.join().unwrap();
        assert!(waited < Duration::from_secs(30), "{waited:?}");
        assert_ne!(place.process_id(), daemon);
        assert!(
            std::path::Path::new(&format!("/proc/{daemon}")).exists(),
            "the kernel let go of it, and nothing is tried"
        );
        assert_eq!(offline_count(&place), 1, "nobody takes it back before");
        // What this one writes the late write of the killed one must not outlive.
        std::fs::write(place.mount_point().join("late"), &contents[..70_000]).unwrap();
        place.tell(["sync", "data"]);
        freezer.thaw();
        wait_for_end(daemon);
    });
    if !is_found {
        on_search_path(true);
    }
    wait_for("the disk comes back", || offline_count(&place) == 0);
    wait_for("it has what it missed", || {
        let health = place.run(["health", "data", "--json"]);
        !health.stdout.contains("resync")
    });
    let scrubbed = place.tell(["scrub", "data", "--wait", "--power", "1024"]);
    assert!(!scrubbed.contains("differ"), "{scrubbed}");
    for (name, length) in [("file", contents.len()), ("late", 70_000)] {
        let found = std::fs::read(place.mount_point().join(name)).unwrap();
        assert!(found == contents[..length], "{name}");
    }
    place.umount();
    let check = place.run(["check", "data"]);
    assert_eq!(check.code, 0, "{check:?}");
}

#[test]
fn a_daemon_that_is_killed_while_the_only_copy_hangs_is_followed_when_the_disk_answers() {
    let Some((place, freezer)) = mounted(create_external, "io_deadline_s = 2\n") else {
        return;
    };
    let contents = bytes(8, 3_000_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop, &freezer);
        let (_, writing) = killed_while_it_writes(scope, &place, &freezer, &contents);
        // Long enough for eight daemons to die of it.
        std::thread::sleep(Duration::from_secs(20));
        assert!(!writing.is_finished(), "the disk was not needed");
        freezer.thaw();
        writing.join().unwrap();
    });
    let found = std::fs::read(place.mount_point().join("file")).unwrap();
    assert!(found == contents);
    place.umount();
}
