//! A real mount for tests.

#![allow(dead_code, reason = "not every story needs all of it")]

mod group_on_files;

use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use group_on_files::GroupOnFiles;
use spindle_base::Redundancy;
use spindle_fs::FileSystem;
use spindle_fuse::{Mount, MountOptions};
use spindle_group::{KeptJournal, Watch};

/// A mounted file system, gone at the end, come what may.
pub struct Mounted {
    pub mount: Option<Mount>,
    pub root: PathBuf,
    pub file_system: Arc<FileSystem>,
    group: GroupOnFiles,
    top: PathBuf,
}

impl Mounted {
    /// `None` where the machine cannot mount; the reason is printed.
    pub fn new(direct: bool) -> Option<Self> {
        Self::with_disks(direct, 512 << 20)
    }

    /// On four disks of that size.
    pub fn with_disks(direct: bool, disk_bytes: u64) -> Option<Self> {
        Self::with_journal(direct, disk_bytes, None)
    }

    /// With a journal as a keeper would hold it.
    pub fn with_journal(
        direct: bool,
        disk_bytes: u64,
        journal: Option<Arc<KeptJournal>>,
    ) -> Option<Self> {
        let options = MountOptions {
            direct,
            ..MountOptions::new("posix")
        };
        Self::with_options(&options, disk_bytes, journal, None)
    }

    /// With something that an owner is watched with who may sleep.
    pub fn watched(disk_bytes: u64, watch: Watch) -> Option<Self> {
        Self::with_options(&MountOptions::new("posix"), disk_bytes, None, Some(watch))
    }

    /// Mounted so.
    pub fn with_options(
        options: &MountOptions,
        disk_bytes: u64,
        journal: Option<Arc<KeptJournal>>,
        watch: Option<Watch>,
    ) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let top =
            std::env::temp_dir().join(format!("spindle-fuse-posix-{}-{number}", process::id()));
        let root = top.join("mount");
        std::fs::create_dir_all(&root).unwrap();
        let group = GroupOnFiles::new(&top, Redundancy::Normal, disk_bytes, journal, watch);
        let file_system = Arc::clone(&group.file_system);
        let mount = Mount::start(Arc::clone(&file_system), &root, options).unwrap();
        Some(Self {
            mount: Some(mount),
            root,
            file_system,
            group,
            top,
        })
    }

    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    /// Unmounts and mounts again.
    pub fn mount_again(&mut self) {
        self.mount().stop(false).unwrap();
        let options = MountOptions::new("posix");
        let mount = Mount::start(Arc::clone(&self.file_system), &self.root, &options);
        self.mount = Some(mount.unwrap());
    }

    /// The disks below.
    pub fn disks(&self) -> &GroupOnFiles {
        &self.group
    }

    /// Flushes that the disks have done, together.
    pub fn flushes_count(&self) -> u64 {
        self.group.flushes_count()
    }

    /// An ordinary directory beside the mount.
    pub fn outside(&self) -> PathBuf {
        let outside = self.top.join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        outside
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            let stopped = mount.stop(false);
            if stopped.is_err() {
                let _ = mount.stop(true);
            }
            if !std::thread::panicking() {
                stopped.unwrap();
                assert_eq!(mount.counters().panics_count(), 0, "a request panicked");
                self.group.close();
            }
        }
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

/// Runs `story` on a cached and on a direct mount.
pub fn in_both_modes(story: impl Fn(&Mounted)) {
    for direct in [false, true] {
        let Some(mounted) = Mounted::new(direct) else {
            return;
        };
        eprintln!("direct: {direct}");
        story(&mounted);
    }
}

/// True where `program` is installed; else the reason is printed.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .unwrap()
        .success();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a shell script and panics with what it printed where it fails.
pub fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.org")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.org")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
