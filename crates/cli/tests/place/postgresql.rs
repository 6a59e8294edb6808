//! A server of PostgreSQL on the mount of a story.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Outcome, Place, outcome};

/// The programs of PostgreSQL, run as its own user where root runs the test.
pub struct Server {
    pub programs: PathBuf,
    pub cluster: PathBuf,
    place: PathBuf,
    is_running: bool,
}

impl Server {
    /// A cluster on the mount; `None` where PostgreSQL is not installed.
    pub fn make(place: &Place, options: &[&str]) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut programs: Vec<PathBuf> = versions
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .filter(|path| path.join("initdb").exists())
            .collect();
        programs.sort();
        let server = Self {
            programs: programs.pop()?,
            cluster: place.mount_point().join("pg"),
            place: place.path("."),
            is_running: false,
        };
        std::fs::create_dir(&server.cluster).unwrap();
        let sockets = place.path("sockets");
        std::fs::create_dir(&sockets).unwrap();
        for path in [&server.cluster, &sockets] {
            let changed = Command::new("chown").arg("postgres").arg(path).status();
            assert!(changed.unwrap().success());
        }
        let cluster = server.cluster.display().to_string();
        let mut words = vec!["-D", &cluster];
        words.extend(options);
        server.run("initdb", &words);
        Some(server)
    }

    pub fn run(&self, program: &str, words: &[&str]) -> String {
        let outcome = self.try_run(program, words);
        assert_eq!(outcome.code, 0, "{program}: {outcome:?}");
        outcome.stdout
    }

    pub fn try_run(&self, program: &str, words: &[&str]) -> Outcome {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]);
        command.arg(self.programs.join(program)).args(words);
        outcome(command.current_dir("/").stdin(Stdio::null()))
    }

    pub fn start(&mut self) {
        let options = format!(
            "-c listen_addresses='' -c max_wal_size=32MB -c min_wal_size=32MB -k {}",
            self.place.join("sockets").display()
        );
        let log = self.place.join("sockets/log").display().to_string();
        let cluster = self.cluster.display().to_string();
        // Not through pipes: the server would keep them open.
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]);
        command.arg(self.programs.join("pg_ctl"));
        command.args(["-D", &cluster, "-l", &log, "-o", &options, "-w", "start"]);
        command.stdout(Stdio::null());
        assert!(command.current_dir("/").status().unwrap().success());
        self.is_running = true;
    }

    pub fn stop(&mut self) {
        let cluster = self.cluster.display().to_string();
        self.run("pg_ctl", &["-D", &cluster, "-m", "fast", "-w", "stop"]);
        self.is_running = false;
    }

    pub fn ask(&self, statement: &str) -> String {
        let answer = self.try_ask(statement);
        assert_eq!(answer.code, 0, "{statement}: {answer:?}");
        answer.stdout.trim().to_owned()
    }

    pub fn try_ask(&self, statement: &str) -> Outcome {
        let sockets = self.place.join("sockets").display().to_string();
        self.try_run(
            "psql",
            &["-h", &sockets, "-d", "postgres", "-Atc", statement],
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_running && std::thread::panicking() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]);
            command.arg(self.programs.join("pg_ctl"));
            command.arg("-D").arg(&self.cluster);
            let _ = command.args(["-m", "immediate", "stop"]).status();
        }
    }
}
