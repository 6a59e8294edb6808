//! nfs-ganesha, a server of another hand, over loopback.
#![allow(dead_code, reason = "each story uses what it needs")]

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of one directory, which is `/disks` to its clients.
pub struct Ganesha {
    directory: tempfile::TempDir,
    pub port: u16,
    process: Child,
}

impl Ganesha {
    /// A server of an empty directory, or nothing where there cannot be one here.
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: nfs-ganesha needs root");
            return None;
        }
        if Command::new("ganesha.nfsd").arg("-v").output().is_err() {
            println!("skipped: ganesha.nfsd is not installed");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let process = Self::spawn(&directory, port);
        let mut this = Self {
            directory,
            port,
            process,
        };
        this.wait_for_port();
        Some(this)
    }

    fn spawn(directory: &tempfile::TempDir, port: u16) -> Child {
        let root = directory.path();
        for name in ["served", "state"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory");
        }
        let settings = format!(
            "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1;\n\
             Enable_NLM = false; Enable_RQUOTA = false; }}\n\
             NFSv4 {{ Grace_Period = 5; Lease_Lifetime = 10; Minor_Versions = 1;\n\
             Only_Numeric_Owners = true; RecoveryRoot = \"{state}\"; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{served}\"; Pseudo = \"/disks\"; Protocols = 4;\n\
             Transports = TCP; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;\n\
             FSAL {{ Name = VFS; }} }}\n",
            served = root.join("served").display(),
            state = root.join("state").display(),
        );
        std::fs::write(root.join("ganesha.conf"), settings).expect("settings are written");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(root.join("log"));
        let log = log.expect("a log");
        Command::new("ganesha.nfsd")
            .args(["-F", "-L", "STDERR", "-f"])
            .arg(root.join("ganesha.conf"))
            .arg("-p")
            .arg(root.join("ganesha.pid"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("ganesha.nfsd starts")
    }

    fn wait_for_port(&mut self) {
        let until = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = self.process.try_wait().expect("it can be asked");
            assert!(ended.is_none() && Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// As a machine that loses its power, and comes back.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }

    pub fn start_again(&mut self) {
        self.process = Self::spawn(&self.directory, self.port);
        self.wait_for_port();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.process_id(), signal).expect("it can be signalled");
    }

    pub fn process_id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }

    /// Where the server has the file of that name.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("served").join(name)
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
