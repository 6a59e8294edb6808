//! The machine of the guest: its kernel, its disks, and the process that it is on the host.
//!
//! User-mode Linux is several processes of the host. They live in a process namespace of their own,
//! whose first process dies with the thread that started it: so nothing of a guest survives the
//! lab, however the lab ends. What can be told of the kernel is told by its command line.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::kernel::Kernel;
use crate::measure::journal::{Journal, Made, Undo};
use crate::measure::process::Identity;
use crate::measure::program::{as_typed, command, lacking, tail};

/// Why no guest can be had here, where none can.
#[must_use]
pub fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it is started by root: run it with sudo".to_owned());
    }
    ["modprobe", "setpriv", "unshare", "mkfs.ext4"]
        .into_iter()
        .find_map(lacking)
        .or_else(|| Kernel::configured().lacks())
}

/// What a machine is made of.
#[derive(Debug)]
pub struct MachinePlan<'a> {
    /// What runs on it.
    pub kernel: &'a Kernel,
    /// A directory of its own, whose name has no blanks.
    pub directory: &'a Path,
    /// Its disks, in order; the first is `/dev/ubda`.
    pub disks: &'a [PathBuf],
    /// Its memory.
    pub memory_bytes: u64,
    /// What our own program is to do in it.
    pub task: Task<'a>,
    /// Everything that the console shows.
    pub console: &'a Path,
}

/// What the first process of a guest is for.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// The experiment of the order in this file.
    Order(&'a Path),
    /// To say which kernel it is, and that is all.
    Greeting,
}

/// A running guest. A drop ends it.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    lines: Receiver<String>,
    console: PathBuf,
    /// Where this guest begins in it: another one may have written before.
    console_from: usize,
    made: Option<Made>,
}

impl Machine {
    /// Starts it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(plan: &MachinePlan<'_>, journal: &Journal) -> Result<Self> {
        let place = plan.directory.to_string_lossy();
        ensure!(
            !place.contains(char::is_whitespace),
            "a guest cannot be told of {place}: its name has a blank"
        );
        let own = plan.directory.join("init");
        if !own.exists() {
            symlink(std::env::current_exe()?, &own)
                .with_context(|| format!("cannot make {}", own.display()))?;
        }
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(plan.console)
            .with_context(|| format!("cannot write {}", plan.console.display()))?;
        let console_from = usize::try_from(log.metadata()?.len())?;
        let mut guest = command_line(plan, &own);
        writeln!(log, "{}", as_typed(&guest))?;
        let mut child = guest
            .env("TMPDIR", memory_place(plan.memory_bytes, plan.directory))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .process_group(0)
            .spawn()
            .context("the guest cannot be started")?;
        let made = Identity::of(child.id())
            .map(|identity| journal.intend(Undo::Process(identity)))
            .transpose()?;
        let (sender, lines) = channel();
        let output = child.stdout.take().context("the console is a pipe")?;
        thread::Builder::new()
            .name("console".to_owned())
            .spawn(move || {
                let mut output = BufReader::new(output);
                let mut bytes = Vec::new();
                // What is said is no text where the kernel has written over its own memory.
                while output.read_until(b'\n', &mut bytes).unwrap_or(0) > 0 {
                    let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    bytes.clear();
                    if super::speech::Word::from_line(&line).is_none() {
                        let _ = writeln!(log, "{line}");
                    }
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            child,
            lines,
            console: plan.console.to_owned(),
            console_from,
            made,
        })
    }

    /// What the console shows, line by line; it ends with the guest.
    #[must_use]
    pub fn lines(&self) -> &Receiver<String> {
        &self.lines
    }

    /// The last that was seen on the console, and why the kernel gave up where it says so.
    #[must_use]
    pub fn console_tail(&self) -> String {
        let log = self.shown();
        let end = tail(&log, 12);
        // What the processor held then fills more than the end.
        match log.lines().rev().find(|line| is_panic(line)) {
            Some(reason) if !end.contains(reason) => format!("{reason}\n{end}"),
            _ => end,
        }
    }

    /// Why it ended, in a line, as far as its console tells.
    #[must_use]
    pub fn reason(&self) -> String {
        reason_in(&self.shown())
    }

    /// Everything that its console has shown.
    fn shown(&self) -> String {
        let log = fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.console_from..).unwrap_or_default()).into_owned()
    }

    /// Ends it now.
    pub fn end(&mut self) {
        // The journal's entry kills the family; where there is none the guest has ended already.
        drop(self.made.take());
        let _ = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a line of the console is the kernel's word that it gives up.
#[must_use]
pub fn is_panic(line: &str) -> bool {
    line.contains("Kernel panic - not syncing")
}

/// What the kernel complains of before it gives up, or instead: of the host, whose processor or
/// memory is not what it needs.
const COMPLAINTS: [&str; 4] = [
    "failed, errno",
    "Too few physical memory",
    "Cannot allocate memory",
    "error while loading shared libraries",
];

fn reason_in(console: &str) -> String {
    let lines = || console.lines().map(str::trim);
    let complaint =
        lines().find(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)));
    let reasons: Vec<&str> = complaint
        .into_iter()
        .chain(lines().find(|line| is_panic(line)))
        .collect();
    if !reasons.is_empty() {
        return reasons.join("; ");
    }
    let last = lines().rfind(|line| !line.is_empty());
    last.unwrap_or("its console shows nothing").to_owned()
}

/// The kernel's program with its command line, below those that let it end with us.
fn command_line(plan: &MachinePlan<'_>, own: &Path) -> Command {
    let mut guest = command("setpriv");
    guest.args(["--pdeathsig", "KILL"]);
    guest.arg(command("unshare").get_program());
    guest.args(["--pid", "--fork", "--kill-child=KILL"]);
    // The first process of the namespace must not be the kernel itself: signals that a process
    // sends to itself are lost on a first process, and the kernel ends itself by one when it panics.
    guest.args(["/bin/sh", "-c", "\"$@\"; exit $?", "guest"]);
    guest.arg(plan.kernel.program());
    guest.arg(format!("mem={}M", plan.memory_bytes >> 20));
    guest.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]);
    guest.arg(format!("init={}", own.display()));
    // Where the host allows it the guest's processes call its kernel by a signal instead of being
    // traced, which takes a fraction of the time. Whatever runs in there is root's own anyway.
    guest.arg("seccomp=auto");
    // NFS 4.1 would ask for delegations of directories; nfs-ganesha answers that by an error, and no
    // directory could be opened.
    guest.arg("nfsv4.directory_delegations=0");
    for (index, disk) in plan.disks.iter().enumerate() {
        guest.arg(format!("ubd{index}={}", disk.display()));
    }
    // Unnamed, the console is added at the end, where our own words are.
    guest.args([
        "console=tty0",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        "loglevel=5",
    ]);
    guest.arg(format!("uml_dir={}", plan.directory.join("uml").display()));
    match plan.task {
        Task::Order(order) => guest.args(["--", "guest-init"]).arg(order),
        Task::Greeting => guest.args(["--", "guest-greet"]).arg(plan.kernel.modules()),
    };
    guest
}

/// Where the file behind the guest's memory lies: in the host's memory, where there is room for it
/// and programs may run from it, as the kernel of the guest demands.
fn memory_place(memory_bytes: u64, otherwise: &Path) -> PathBuf {
    let shared = Path::new("/dev/shm");
    let fits = statvfs(shared).is_ok_and(|room| {
        room.f_bavail * room.f_frsize > memory_bytes + memory_bytes / 8
            && !room.f_flag.contains(StatVfsMountFlags::NOEXEC)
    });
    if fits {
        shared.to_owned()
    } else {
        otherwise.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel 6.1 shows where the processor has AMX.
    const OF_A_SMALL_BUFFER: &str = "\
Run /tmp/init as init process
userspace - ptrace set fp regs failed, errno = 14

Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b
CPU: 0 PID: 1 Comm: init Not tainted 6.1.176 #1
Call Trace:
 [<6002c0dd>] new_thread_handler+0xae/0xb0
";

    #[test]
    fn why_a_kernel_gave_up_is_one_line_and_names_what_it_complained_of() {
        assert_eq!(
            reason_in(OF_A_SMALL_BUFFER),
            "userspace - ptrace set fp regs failed, errno = 14; \
             Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b"
        );
        assert_eq!(
            reason_in("Checking for ptrace\nsetpriv: failed to execute\n\n"),
            "setpriv: failed to execute"
        );
        assert_eq!(reason_in(""), "its console shows nothing");
    }
}
