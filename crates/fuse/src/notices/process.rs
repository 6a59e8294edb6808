//! The process that sends a mount's notices, and waits for the kernel where the kernel waits.
//!
//! The kernel drops a page when nobody reads it, and whoever told it to waits so long and cannot be
//! killed meanwhile. A process that serves would take its end, and whatever it holds, into that
//! wait. So this one holds the mount's descriptor and nothing else.
//!
//! **Invariants.** A notice waits for no other one: a thread takes the next as long as there are
//! any. What was asked for before the other end was gone is sent. The mount does not live on by
//! this process alone: where nobody else holds it and the kernel still waits, for a read that
//! nobody will answer, it is aborted.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::net::RecvFlags;
use zerocopy::IntoBytes;

use super::NOTICES_MOST;
use super::wire::{Asked, Done, IS_THERE, receive, receive_first, send_patiently};
use crate::abi::notify;
use crate::device_transport::send;
use crate::mount_table::{Standing, standing};

/// By which other processes of this kind are known: they hold a mount without serving it.
const NAME: &std::ffi::CStr = c"fuse-notices";
/// They do one system call after another.
const STACK_BYTES: usize = 64 << 10;
/// How often it is looked whether somebody else holds the mount.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Threads {
    count: usize,
    /// Those that wait for something to do.
    idle_count: usize,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    device: OwnedFd,
    threads: Mutex<Threads>,
    changed: Condvar,
}

/// Sends the notices that the other end of `socket` asks for, until that is gone and the last is
/// sent. The process should have nothing else to do, nor hold anything.
///
/// # Errors
/// Where the other end is not what it should be, or there is no thread.
pub fn send_notices(socket: OwnedFd) -> std::io::Result<()> {
    let _ = rustix::thread::set_name(NAME);
    // Nothing is kept busy by its being somebody's working directory.
    let _ = rustix::process::chdir("/");
    let (device, connection, directory) = receive_first(&socket)?;
    let shared = Arc::new(Shared {
        socket,
        device,
        threads: Mutex::default(),
        changed: Condvar::new(),
    });
    let is_there = Done {
        number: IS_THERE,
        errno: 0,
    };
    // Where nobody is there any more, what was asked for is done all the same.
    let _ = send_patiently(&shared.socket, &is_there);
    let mut threads = shared.threads.lock();
    start(&shared, &mut threads)?;
    drop(threads);
    wait_until_alone(&shared.socket)?;
    let mut threads = shared.threads.lock();
    while threads.count > 0 {
        let waited = shared.changed.wait_for(&mut threads, LOOK_INTERVAL);
        if waited.timed_out() && !has_other_holder(&shared.device, connection) {
            drop(threads);
            abort(connection, Path::new(OsStr::from_bytes(&directory)));
            threads = shared.threads.lock();
        }
    }
    Ok(())
}

/// One more thread.
fn start(shared: &Arc<Shared>, threads: &mut Threads) -> std::io::Result<()> {
    let own = Arc::clone(shared);
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || own.work())?;
    threads.count += 1;
    threads.idle_count += 1;
    Ok(())
}

fn wait_until_alone(socket: &OwnedFd) -> Result<(), Errno> {
    loop {
        let mut wait = [PollFd::new(socket, PollFlags::empty())];
        match poll(&mut wait, None) {
            Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

impl Shared {
    fn work(self: Arc<Self>) {
        // What the kernel drops it may have to write back to this mount first: see the workers.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        while let Ok(Some(asked)) = receive::<Asked>(&self.socket, RecvFlags::empty()) {
            {
                let mut threads = self.threads.lock();
                threads.idle_count -= 1;
                if threads.idle_count == 0 && threads.count < NOTICES_MOST {
                    // Where there is none to be had, those that are there take one by one.
                    let _ = start(&self, &mut threads);
                }
            }
            let parts = [asked.notice.as_bytes()];
            let told = send(&self.device, 0, notify::INVALIDATE_INODE, &parts);
            let done = Done {
                number: asked.number,
                errno: told.map_or_else(|error| i64::from(error.raw_os_error()), |()| 0),
            };
            // Where nobody is there any more nobody waits for it.
            let _ = send_patiently(&self.socket, &done);
            self.threads.lock().idle_count += 1;
        }
        let mut threads = self.threads.lock();
        threads.idle_count -= 1;
        threads.count -= 1;
        self.changed.notify_all();
    }
}

/// Whether a process that is not of this kind holds a descriptor of the mount. Where the kernel
/// does not say of which mount a descriptor is, any may be.
fn has_other_holder(device: &OwnedFd, connection: u64) -> bool {
    let own = connection_of(Path::new("/proc/self"), &device.as_raw_fd().to_string());
    let own = own.unwrap_or(connection);
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return true;
    };
    processes.flatten().any(|process| {
        let name = process.file_name();
        let is_process = name.as_bytes().iter().all(u8::is_ascii_digit);
        is_process && !is_of_this_kind(&process.path()) && holds(&process.path(), own)
    })
}

fn is_of_this_kind(process: &Path) -> bool {
    let name = std::fs::read(process.join("comm"));
    name.is_ok_and(|name| name.trim_ascii_end() == NAME.to_bytes())
}

fn holds(process: &Path, connection: u64) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let leads_to = std::fs::read_link(descriptor.path());
        let number = descriptor.file_name();
        leads_to.is_ok_and(|path| path == Path::new("/dev/fuse"))
            && number.to_str().is_some_and(|number| {
                connection_of(process, number).is_none_or(|other| other == connection)
            })
    })
}

/// Of which mount a descriptor is, as the kernel numbers them, where it says so.
fn connection_of(process: &Path, descriptor: &str) -> Option<u64> {
    let told = std::fs::read_to_string(process.join("fdinfo").join(descriptor)).ok()?;
    let number = (told.lines()).find_map(|line| line.strip_prefix("fuse_connection:"))?;
    number.trim().parse().ok()
}

/// Ends the mount as the kernel does where the last descriptor is closed.
fn abort(connection: u64, directory: &Path) {
    tracing::warn!(directory = %directory.display(),
        "nobody serves the mount any more, and the kernel waits for it; it is aborted");
    let control = PathBuf::from(format!("/sys/fs/fuse/connections/{connection}/abort"));
    let Err(error) = std::fs::write(control, "1") else {
        return;
    };
    if standing(directory, &format!("0:{connection}")) == Standing::There {
        // It aborts before it looks whether the mount is in use.
        match unmount(directory, UnmountFlags::FORCE) {
            Ok(()) | Err(Errno::BUSY) => return,
            Err(_) => {}
        }
    }
    tracing::error!(%error, directory = %directory.display(), "the mount cannot be aborted");
}
