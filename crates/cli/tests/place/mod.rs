//! A place of its own for a story: disks as plain files, a runtime directory, a mount point,
//! and the real binary run in it. What a story leaves open is closed when it ends, however.
#![allow(dead_code, reason = "each story uses what it needs")]
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

pub mod damage;
pub mod exposition;
pub mod postgresql;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The disks that `create_group` makes.
const DISKS: [&str; 4] = ["a", "b", "c", "d"];

/// The directory of one story.
pub struct Place {
    directory: tempfile::TempDir,
}

/// What a run of the binary came to.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("spindle-story-")
            .tempdir()
            .unwrap();
        std::fs::create_dir(directory.path().join("disks")).unwrap();
        std::fs::create_dir(directory.path().join("mount")).unwrap();
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The path of a disk; the search path finds it.
    pub fn disk(&self, name: &str) -> String {
        self.text(&format!("disks/{name}"))
    }

    pub fn mount_point(&self) -> PathBuf {
        self.path("mount")
    }

    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command
            .current_dir(self.directory.path())
            .env("SPINDLE_DISKS", self.disk("*"))
            .env("SPINDLE_RUNTIME_DIR", self.path("run"))
            .env_remove("SPINDLE_ENGINE")
            .env_remove("SPINDLE_LOG")
            .stdin(Stdio::null());
        command.args(words);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Outcome {
        outcome(&mut self.command(words))
    }

    /// Runs a command that has to succeed; gives what it printed.
    #[track_caller]
    pub fn tell<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let outcome = self.run(words);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stdout
    }

    /// Runs a listing with `--json` that has to succeed.
    #[track_caller]
    pub fn ask<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Value {
        let mut command = self.command(words);
        let outcome = outcome(command.arg("--json"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        serde_json::from_str(&outcome.stdout).unwrap()
    }

    /// Runs a command that has to be refused: with this code and one line that has every word.
    #[track_caller]
    pub fn refuse<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        code: i32,
        wanted: &[&str],
    ) -> String {
        refused(&self.run(words), code, wanted)
    }

    /// Makes the group `data` of four file disks in two failure groups.
    #[track_caller]
    pub fn create_group(&self) {
        self.tell([
            "group",
            "create",
            "data",
            "--failgroup",
            &format!("left={}:64M,{}:64M", self.disk("a"), self.disk("b")),
            "--failgroup",
            &format!("right={}:64M,{}:64M", self.disk("c"), self.disk("d")),
        ]);
    }

    #[track_caller]
    pub fn mount(&self) {
        let point = self.mount_point();
        self.tell([OsStr::new("mount"), OsStr::new("data"), point.as_os_str()]);
    }

    /// Mounts with a variable in the environment of the keeper and its daemons.
    #[track_caller]
    pub fn mount_with(&self, variable: &str, value: &str) {
        let mut command = self.command(["mount", "data"]);
        command.arg(self.mount_point()).env(variable, value);
        let outcome = outcome(&mut command);
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }

    /// Mounts without a keeper: a kill takes the mount along.
    #[track_caller]
    pub fn mount_alone(&self) {
        let point = self.mount_point();
        let point = point.as_os_str();
        self.tell([
            OsStr::new("mount"),
            OsStr::new("data"),
            point,
            OsStr::new("--no-keeper"),
        ]);
    }

    /// The keeper of `data`.
    #[track_caller]
    pub fn keeper_process_id(&self) -> u32 {
        let group = self.ask(["group", "show", "data"]);
        u32::try_from(group["keeper_process_id"].as_u64().unwrap()).unwrap()
    }

    /// Kills the process that serves `data` and waits for the next one; its number.
    #[track_caller]
    pub fn kill_daemon(&self) -> u32 {
        let killed = self.process_id();
        signal(killed, rustix::process::Signal::KILL);
        wait_for_end(killed);
        let begun = std::time::Instant::now();
        loop {
            let waited = begun.elapsed();
            assert!(waited.as_secs() < 120, "nobody has taken over");
            // One that came between finds the connection broken off.
            let shown = self.run(["group", "show", "data", "--json"]);
            let group: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            match group["process_id"].as_u64() {
                Some(next) if next != u64::from(killed) => return u32::try_from(next).unwrap(),
                _ => assert!(shown.code == 0 || shown.code == 3, "{shown:?}"),
            }
        }
    }

    #[track_caller]
    pub fn umount(&self) {
        let point = self.mount_point();
        self.tell([OsStr::new("umount"), point.as_os_str()]);
    }

    /// The process that serves `data`.
    #[track_caller]
    pub fn process_id(&self) -> u32 {
        let group = self.ask(["group", "show", "data"]);
        u32::try_from(group["process_id"].as_u64().unwrap()).unwrap()
    }

    /// Takes the disks of `create_group` to where the search path does not find them. Who has them open
    /// keeps them; nobody can open them any more.
    pub fn take_disks_away(&self) {
        for disk in DISKS {
            std::fs::rename(self.disk(disk), self.path(disk)).unwrap();
        }
    }

    pub fn put_disks_back(&self) {
        for disk in DISKS {
            std::fs::rename(self.path(disk), self.disk(disk)).unwrap();
        }
    }

    /// The keeper of `data` ended with a file that no disk has, and its log says so.
    #[track_caller]
    pub fn assert_lost_is_told(&self) {
        let log = std::fs::read_to_string(self.path("run/data.log")).unwrap();
        assert!(log.contains("nobody has closed it"), "{log}");
        let lost = "written to 1 files and not synced are lost";
        assert!(log.contains(lost), "{log}");
    }

    /// Every byte of every disk, to tell whether a refusal harmed one.
    pub fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut disks: Vec<PathBuf> = std::fs::read_dir(self.path("disks"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        disks.sort();
        disks
            .into_iter()
            .map(|path| {
                let bytes = std::fs::read(&path).unwrap();
                (path, bytes)
            })
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(sockets) = std::fs::read_dir(self.path("run")) else {
            return;
        };
        for socket in sockets.filter_map(Result::ok) {
            let path = socket.path();
            if path.extension() == Some(OsStr::new("keeper")) {
                // Also where it gave up, and no daemon has a socket.
                let point = self.mount_point();
                let _ = self.run([OsStr::new("umount"), point.as_os_str()]);
            }
            if path.extension() == Some(OsStr::new("sock")) {
                let name = path.file_stem().unwrap_or_default().to_owned();
                let _ = self.run([OsStr::new("group"), OsStr::new("dismount"), &name]);
            }
        }
        if is_mounted(&self.mount_point()) {
            let flags = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(self.mount_point(), flags);
        }
    }
}

/// Checks a refusal: the code, one line, and every word in it.
#[track_caller]
pub fn refused(outcome: &Outcome, code: i32, wanted: &[&str]) -> String {
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "one line: {outcome:?}");
    for word in wanted {
        assert!(outcome.stderr.contains(word), "{word:?} in {outcome:?}");
    }
    outcome.stderr.clone()
}

/// Runs a command to its end.
pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn is_mounted(directory: &Path) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = directory.display().to_string();
    list.lines()
        .any(|line| line.split(' ').nth(4) == Some(&wanted))
}

/// Whether a story that mounts can run here; says why not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return false;
    }
    if !root {
        println!("skipped: mounting in tests needs root");
    }
    root
}

/// Bytes that differ from place to place, so that a piece in the wrong place is seen.
pub fn bytes(seed: u64, length_bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length_bytes + 8);
    while bytes.len() < length_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length_bytes);
    bytes
}

/// Sends a signal to a process that the story started. One that is to stop has stopped then, but for
/// threads that wait in the kernel.
pub fn signal(process_id: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(process_id).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    if signal == rustix::process::Signal::STOP {
        // One of its threads has to be scheduled first, and tells the others.
        let until = Instant::now() + STOPS_WITHIN;
        while Instant::now() < until && has_running_threads(process_id) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread that waits for a disk or a mount stops when that answers.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

fn has_running_threads(process_id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process_id}/task")).into_iter();
    threads.flatten().flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name in parentheses, which may hold anything.
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !"TtZX".contains(state))
    })
}

/// The processes that this one started and that nobody has waited for; none where it has ended.
pub fn children_of(process_id: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process_id}/task")).into_iter();
    let children: String = (threads.flatten().flatten())
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    (children.split_whitespace())
        .map(|child| child.parse().unwrap())
        .collect()
}

/// Waits until the process has ended, and nothing of it holds a file or a socket.
pub fn wait_for_end(process_id: u32) {
    let path = format!("/proc/{process_id}/stat");
    let threads = format!("/proc/{process_id}/task");
    for _ in 0..1000 {
        let threads_count = std::fs::read_dir(&threads).map_or(0, Iterator::count);
        match std::fs::read_to_string(&path) {
            // A zombie has ended, too: only its parent has not asked yet. Its threads may be left.
            Ok(stat) if threads_count > 1 || !stat.contains(") Z ") => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
    panic!("process {process_id} did not end within 10 s");
}
