//! A directory with everything that a test of the command makes, and a look at what is left of it.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use spindle_lab::experiment::DatabaseKind;
use spindle_lab::measure::database::find as find_database;
use spindle_lab::measure::program::{command, find, run};
use tempfile::TempDir;

/// A place for one test.
pub struct Scene {
    directory: TempDir,
}

/// What a command said.
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Scene {
    /// A new one, or none where this is not root.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: the lab makes devices as root");
            return None;
        }
        if spindle_lab::measure::control_group::version("memory").is_none() {
            println!("skipped: no memory cgroup here");
            return None;
        }
        let directory = TempDir::new().unwrap();
        // The database's user must come through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        Some(Self { directory })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn lacks_programs(&self, programs: &[&str]) -> bool {
        let lacking = programs.iter().find(|program| {
            let is_debians =
                **program == "initdb" && find_database(DatabaseKind::Postgresql, None).is_ok();
            find(program).is_none() && !is_debians
        });
        if let Some(program) = lacking {
            println!("skipped: {program} is not installed");
        }
        lacking.is_some()
    }

    /// Writes a file; `SCENE` in it becomes this directory.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        let here = self.path().display().to_string();
        fs::write(&path, text.replace("SCENE", &here)).unwrap();
        path.display().to_string()
    }

    /// The command, to be started as a test wants.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle-lab"));
        command
            .args(words)
            .current_dir(self.path())
            .env("SPINDLE_LAB_STATE", self.path().join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub fn lab(&self, words: &[&str]) -> Said {
        self.lab_with(&[], words)
    }

    /// Runs the command to its end, with further variables.
    pub fn lab_with(&self, variables: &[(&str, &str)], words: &[&str]) -> Said {
        let mut command = self.command(words);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        Said {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts the command.
    pub fn start(&self, words: &[&str]) -> Child {
        self.command(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Mounts, loop devices, journals and directories of this scene.
    pub fn left(&self) -> Vec<String> {
        let here = self.path().display().to_string();
        let mut left = Vec::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&here))
                .map(str::to_owned),
        );
        let loops = run(&mut command("losetup")).unwrap_or_default();
        left.extend(
            loops
                .lines()
                .filter(|line| line.contains(&here))
                .map(str::to_owned),
        );
        let entries = fs::read_dir(self.path()).unwrap();
        left.extend(
            entries
                .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
                .filter(|name| name.starts_with("spindle-lab-")),
        );
        if let Ok(state) = fs::read_dir(self.path().join("state")) {
            left.extend(state.map(|entry| entry.unwrap().path().display().to_string()));
        }
        left
    }

    /// Nothing of this scene is left on the machine.
    pub fn assert_clean(&self) {
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }
}
