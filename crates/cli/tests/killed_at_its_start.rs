//! The first daemon of a keeper is killed in the midst of its start: its mount answers programs before
//! the keeper has heard of it.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use place::{Place, bytes, can_mount, children_of, is_mounted, signal};
use rustix::process::Signal;

/// A mount takes less, and so does an end.
const MOST: Duration = Duration::from_secs(60);
/// Threads that answer the kernel, numbered from zero.
const WORKERS_COUNT: usize = 4;

/// A `spindle mount` that waits for its daemon, whose thread that opens and mounts is held.
struct Start {
    command: Child,
    daemon: u32,
    thread: u32,
}

impl Start {
    /// Begins to mount and holds the daemon's thread `serve` between two system calls, as soon as
    /// `is_reached`; all its other threads go on. `None` where this machine lets nobody do that.
    fn held_when(place: &Place, is_reached: impl Fn() -> bool) -> Option<Self> {
        let mut command = place.command(["mount", "data"]);
        command.arg(place.mount_point());
        command.args(["--workers", &WORKERS_COUNT.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = command.spawn().unwrap();
        let begun = Instant::now();
        let daemon = loop {
            let keepers = children_of(command.id()).into_iter();
            if let Some(daemon) = keepers.flat_map(children_of).next() {
                break daemon;
            }
            let ended = command.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < MOST, "{ended:?}");
            std::thread::sleep(Duration::from_micros(100));
        };
        let thread = loop {
            if let Some(thread) = thread_serving(daemon) {
                break thread;
            }
            assert!(begun.elapsed() < MOST, "it does not begin");
            std::thread::sleep(Duration::from_micros(100));
        };
        let traced = Pid::from_raw(i32::try_from(thread).unwrap());
        if let Err(error) = ptrace::seize(traced, ptrace::Options::PTRACE_O_TRACESYSGOOD) {
            println!("skipped: a process cannot be traced here ({error})");
            command.wait().unwrap();
            return None;
        }
        ptrace::interrupt(traced).unwrap();
        loop {
            assert!(begun.elapsed() < MOST, "it does not come so far");
            let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
            let passed_on = match waitpid(traced, Some(flags)).unwrap() {
                WaitStatus::StillAlive => {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                WaitStatus::Stopped(_, signal) => Some(signal),
                WaitStatus::PtraceSyscall(_) if is_serving(daemon) && is_reached() => break,
                WaitStatus::PtraceSyscall(_) => {
                    if is_mounted(&place.mount_point()) {
                        // The other threads shall be as far as this one.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    None
                }
                WaitStatus::PtraceEvent(..) => None,
                ended => panic!("{ended:?}"),
            };
            ptrace::syscall(traced, passed_on).unwrap();
        }
        Some(Self {
            command,
            daemon,
            thread,
        })
    }

    /// Kills the daemon; what the command said.
    fn killed(mut self) -> Output {
        signal(self.daemon, Signal::KILL);
        let traced = Pid::from_raw(i32::try_from(self.thread).unwrap());
        // Whoever traces it sees its end first.
        while let Ok(seen) = waitpid(traced, Some(WaitPidFlag::__WALL)) {
            if matches!(seen, WaitStatus::Signaled(..) | WaitStatus::Exited(..)) {
                break;
            }
        }
        let begun = Instant::now();
        while self.command.try_wait().unwrap().is_none() {
            if begun.elapsed() > MOST {
                self.command.kill().unwrap();
                panic!("`spindle mount` still waits for the daemon that was killed");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.command.wait_with_output().unwrap()
    }
}

/// The thread that opens the group and mounts it.
fn thread_serving(daemon: u32) -> Option<u32> {
    let threads = std::fs::read_dir(format!("/proc/{daemon}/task")).ok()?;
    let is_meant = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "serve")
    };
    let found = threads.flatten().find(|thread| is_meant(&thread.path()))?;
    found.file_name().to_str()?.parse().ok()
}

/// A daemon that answers programs and is held before its keeper has heard of its mount.
fn unheard() -> Option<(Place, Start)> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.create_group();
    let start = Start::held_when(&place, || true)?;
    Some((place, start))
}

/// Whether the last of the threads is there that answer the kernel.
fn is_serving(daemon: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{daemon}/task")) else {
        return false;
    };
    let mut names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    let last = format!("fuse-{}", WORKERS_COUNT - 1);
    names.any(|name| name.trim() == last)
}

/// Whether the keeper says that it holds the mount.
fn is_held(place: &Place) -> bool {
    let mut keeper = UnixStream::connect(place.path("run/data.keeper")).unwrap();
    keeper.write_all(b"\"status\"\n").unwrap();
    let mut answer = String::new();
    BufReader::new(keeper).read_line(&mut answer).unwrap();
    let status: serde_json::Value = serde_json::from_str(&answer).unwrap();
    status["Ok"]["directory"].is_string()
}

#[test]
fn a_daemon_that_is_killed_before_its_keeper_heard_of_its_mount_leaves_nothing_unwritten() {
    let Some((place, start)) = unheard() else {
        return;
    };
    let contents = bytes(11, 300_000);
    std::fs::write(place.mount_point().join("file"), &contents).unwrap();
    assert!(!is_held(&place), "it was held too late");
    let said = start.killed();
    assert_eq!(said.status.code(), Some(70), "{said:?}");
    let words = String::from_utf8_lossy(&said.stderr);
    assert!(words.contains("ended before it was ready"), "{words}");
    // Whoever unmounts by the group's name would not find it.
    assert!(!is_mounted(&place.mount_point()), "a dead mount is left");
    place.mount();
    let not_closed = place.ask(["events", "data", "--kind", "group_not_closed"]);
    assert_eq!(not_closed, serde_json::json!([]));
    let found = std::fs::read(place.mount_point().join("file")).unwrap();
    assert!(found == contents, "{} bytes are there", found.len());
    let check = place.ask(["group", "check", "data"]);
    assert_eq!(check["contradictions"], serde_json::json!([]));
    place.umount();
}

#[test]
fn where_nobody_can_follow_a_daemon_that_was_killed_in_its_start_it_is_said_what_is_lost() {
    let Some((place, start)) = unheard() else {
        return;
    };
    std::fs::write(place.mount_point().join("file"), bytes(11, 300_000)).unwrap();
    place.take_disks_away();
    let said = start.killed();
    assert!(!said.status.success(), "{said:?}");
    place.assert_lost_is_told();
    place.put_disks_back();
    place.mount();
    place.umount();
}

#[test]
fn a_mount_whose_daemon_is_killed_before_it_was_ready_is_served_by_the_next_one_and_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    // The keeper answers and hears in any order: asked often it has heard.
    let is_reached = || (0..10).any(|_| is_held(&place));
    let Some(start) = Start::held_when(&place, is_reached) else {
        return;
    };
    let killed = start.daemon;
    let file = place.mount_point().join("file");
    let contents = bytes(11, 300_000);
    std::fs::write(&file, &contents).unwrap();
    let said = start.killed();
    assert!(said.status.success(), "{said:?}");
    assert!(is_mounted(&place.mount_point()));
    assert!(place.process_id() != killed);
    assert!(std::fs::read(&file).unwrap() == contents);
    place.umount();
}
