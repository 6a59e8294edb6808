//! A process that empties the table of descriptors of another one when that has ended.
//!
//! A killed process whose thread waits in the kernel for a disk that hangs keeps its table of
//! descriptors until that disk answers, and with the table every other disk, lock and connection. The
//! undertaker shares that table and nothing else. It sleeps until the program has ended, and then
//! closes what is in the table: each disk is free when the last request that the program made of it
//! has ended, and not when the slowest of all has.
//!
//! Its own processes close, because to close may hang as well: one that is stuck is left, and another
//! goes on behind it. One descriptor is closed last: whoever holds the other end of it knows then that
//! the table is empty.
#![allow(
    unsafe_code,
    reason = "no safe interface makes a process that shares its table of descriptors"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use rustix::process::Pid;

use crate::shared_memory::SharedMemory;

/// What the kernel sends when the first thread of the program ends.
const OF_THE_END: Signal = Signal::SIGUSR1;
/// The thread is seen to have ended so soon after that; else somebody else sent the signal.
const ENDING_MOST: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// A descriptor whose closing takes longer hangs.
const CLOSING_MOST: Duration = Duration::from_millis(200);
/// So many closings may hang; then the rest is left in the table, and the last descriptor too.
const STUCK_MOST: usize = 64;
const STACK_BYTES: usize = 256 << 10;

/// Starts the undertaker of this process, which must have one thread yet. It closes `last` when all
/// others are closed, or hang in that; where too many hang it never does.
///
/// # Errors
/// Where there are more threads, or the kernel gives no process or descriptor.
pub fn engage_undertaker(last: BorrowedFd<'_>) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("this process has several threads"));
    }
    let program = rustix::process::getpid();
    let last = last.as_raw_fd();
    start(&mut || {
        attend(program, last);
        0
    })
}

/// A child that shares the table of descriptors, and has a copy of the memory.
fn start(what: &mut dyn FnMut() -> isize) -> io::Result<()> {
    let mut stack = vec![0_u8; STACK_BYTES];
    // SAFETY: the child's memory is a copy of its own, stack included. This process has one thread, so
    // that no lock is held in the copy which nobody there would release. The child ends with the
    // closure, and runs nothing of this process's end.
    unsafe {
        nix::sched::clone(
            Box::new(what),
            &mut stack,
            CloneFlags::CLONE_FILES,
            Some(Signal::SIGCHLD as i32),
        )
    }?;
    Ok(())
}

/// Waits until the first thread of the program has ended, which asks the kernel for nothing that may
/// hang. It ends with the program: no other thread asks for anything new then. A descriptor of the
/// process would tell when the last thread has ended, and since Linux 6.15 one of the thread does too.
fn wait_for_end(program: Pid) -> io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(OF_THE_END);
    signals.thread_block()?;
    nix::sys::prctl::set_pdeathsig(OF_THE_END)?;
    // Where it had ended before that, nothing is sent.
    while rustix::process::getppid() == Some(program) {
        signals.wait()?;
        let begun = Instant::now();
        while begun.elapsed() < ENDING_MOST {
            if has_ended(program) {
                return Ok(());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
    Ok(())
}

/// Whether the first thread has. Its number means nothing else as long as the process has another one,
/// or has not been waited for.
fn has_ended(program: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.as_raw_nonzero()));
    let state = |stat: String| Some(stat.rsplit_once(") ")?.1.starts_with(['Z', 'X']));
    stat.ok().and_then(state).unwrap_or(true)
}

/// The life of the undertaker.
fn attend(program: Pid, last: RawFd) {
    // What ends the program by its group or its terminal must not end this process before it.
    for number in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGPIPE,
    ] {
        // SAFETY: ignoring a signal runs no code.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
    let _ = rustix::thread::set_name(c"spindle-closer");
    // The directory that the program was started in must stay free to be unmounted.
    let _ = rustix::process::chdir("/");
    if wait_for_end(program).is_ok() && empty_table(last).unwrap_or(false) {
        close(last);
    }
}

/// Closes every descriptor but `last`; false where too many hang.
fn empty_table(last: RawFd) -> io::Result<bool> {
    // Its descriptor is closed with the others.
    let progress = ManuallyDrop::new(SharedMemory::create("spindle-closer", 4096)?);
    let [next, closed] = [0, 1].map(|word| &progress.words()[word]);
    let descriptors = open_descriptors(last)?;
    let count = descriptors.len() as u64;
    for _ in 0..STUCK_MOST {
        start(&mut || {
            let take = || usize::try_from(next.fetch_add(1, Ordering::AcqRel)).ok();
            while let Some(descriptor) = take().and_then(|place| descriptors.get(place)) {
                close(*descriptor);
                closed.fetch_add(1, Ordering::AcqRel);
            }
            0
        })?;
        wait_for_progress(
            || (next.load(Ordering::Acquire), closed.load(Ordering::Acquire)),
            count,
        );
        if next.load(Ordering::Acquire) >= count {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until all are closed, or nothing was for a while. `looks` gives how many are being closed or
/// are, and how many are.
fn wait_for_progress(looks: impl Fn() -> (u64, u64), count: u64) {
    let mut seen = looks();
    let mut since = Instant::now();
    while seen.1 < count && since.elapsed() < CLOSING_MOST {
        std::thread::sleep(Duration::from_millis(1));
        let now = looks();
        if now != seen {
            seen = now;
            since = Instant::now();
        }
    }
}

/// What is in the table, the way to read it and `last` left out.
fn open_descriptors(last: RawFd) -> io::Result<Vec<RawFd>> {
    let mut descriptors = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number: Option<RawFd> = entry?.file_name().to_string_lossy().parse().ok();
        descriptors.extend(number.filter(|number| *number != last));
    }
    Ok(descriptors)
}

fn close(descriptor: RawFd) {
    // SAFETY: this process owns no descriptor of that number beside the table that it shares, whose
    // program has ended: nobody uses the number any more. One that is closed already is refused.
    unsafe { rustix::io::close(descriptor) };
}
