//! A mount that is served: its workers from the first request to the last.
//!
//! **Invariants.** A request is answered by the worker that took it (but for those whose answers
//! wait in `notices`), also where serving it panicked (`EIO`, counted and logged). The mount lives until it is unmounted; workers end by
//! themselves then. A crash of the daemon leaves the mount in the tree; every use of it fails
//! until somebody removes it, unless the descriptors are kept and [`Mount::take_over`] serves
//! them again.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open, syncfs};
use rustix::io::Errno;
use rustix::process::geteuid;
use spindle_base::FileId;
use spindle_fs::FileSystem;

use crate::abi::{InHeader, notify};
use crate::bridge::Bridge;
use crate::counters::{Counters, WorkerCounters};
use crate::device_transport::{AnswerBuffers, DeviceTransport, send};
use crate::gate::Gate;
use crate::mount_point::{BackingDevice, MAX_DATA_BYTES, MOUNT_KIND, MountError, MountPoint};
use crate::mount_table::{Standing, holders, mounted_at, requests_under_way, standing, ways_to};
use crate::negotiation::{Negotiated, NegotiationError, negotiate};
use crate::notices::{Notices, NoticesProgram, NoticesThread};
use crate::stale::Stale;
use crate::sys;
use crate::transport::Transport;

/// How long a worker waits after `/dev/fuse` failed.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long the kernel's write-back may be waited for, how often it is looked at, and after how
/// long without a request it has ended.
const WRITTEN_MOST: Duration = Duration::from_secs(30);
const WRITTEN_INTERVAL: Duration = Duration::from_millis(1);
const IDLE_LEAST: Duration = Duration::from_millis(100);
/// How long an unmounted mount may take to end before somebody is looked for who holds it: who
/// makes a namespace has every mount in it for a moment.
const END_SOON: Duration = Duration::from_secs(1);
/// How long it may take where nobody can be named.
const END_MOST: Duration = Duration::from_secs(10);

/// How a group is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source: the group's name.
    pub source: String,
    /// Every file bypasses the page cache.
    pub direct: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Users other than the one who mounts may use it, by the files' permissions.
    pub allow_other: bool,
    /// Threads that serve requests. Each blocks while its disks work, so this bounds the requests
    /// under way on disks, not the processors used.
    pub workers_count: usize,
    /// How far the kernel reads ahead of a sequential reader; enough to keep all disks busy.
    pub read_ahead_kib: u32,
    /// How much a buffered writer may be ahead of the disks, in bytes; from three quarters of it
    /// on the kernel writes to them.
    pub dirty_bytes_max: u64,
    /// Which of the processes that serve this mount one after the other this one is, counted by
    /// whoever starts them. It must differ from that of every one before.
    pub generation: u64,
    /// What sends notices to the kernel. Without, readers through the page cache may keep what
    /// asynchronous writes past it have replaced.
    pub notices: Option<NoticesProgram>,
}

impl MountOptions {
    /// The defaults for a group called `source`.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            direct: false,
            read_only: false,
            allow_other: geteuid().is_root(),
            workers_count: 16,
            read_ahead_kib: 8192,
            dirty_bytes_max: 128 << 20,
            generation: 0,
            notices: None,
        }
    }
}

/// Answers requests; shared by all workers.
pub(crate) trait Service: Send + Sync + 'static {
    /// Serves one request as that worker and answers it on `transport`.
    fn serve<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        worker: usize,
    ) -> Result<(), Errno>;

    /// Serving a request panicked, and it was answered with an error.
    fn panicked(&self) {}

    /// The kernel has ended the mount, and the last request of it was served. No other mount has begun
    /// yet.
    fn ended(&self) {}
}

/// Workers that have not ended yet.
#[derive(Debug, Default)]
struct Alive {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A mounted and served group.
#[derive(Debug)]
pub struct Mount {
    directory: PathBuf,
    /// The file system's device, by which it is known wherever it is mounted; empty where it was
    /// nowhere to be seen when this process came.
    device: String,
    /// The first carries notices, the others one worker each.
    descriptors: Vec<Arc<OwnedFd>>,
    negotiated: Negotiated,
    counters: Counters,
    alive: Arc<Alive>,
    gate: Arc<Gate>,
    notices: NoticesThread,
    /// Somebody else keeps the mount: it outlives this process.
    kept: AtomicBool,
    /// What the kernel was told last; 0 where that is not known.
    dirty_bytes_max: AtomicU64,
}

impl Mount {
    /// Mounts `file_system` on `directory` and serves it.
    ///
    /// # Errors
    /// Where the directory, the kernel, the rights or the group do not allow it; nothing stays
    /// mounted.
    pub fn start(
        file_system: Arc<FileSystem>,
        directory: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let connection =
            file_system
                .group()
                .begin_connection()
                .map_err(|source| MountError::Group {
                    directory: directory.to_path_buf(),
                    source: Box::new(source),
                })?;
        let bridge = Bridge::new(file_system, connection, options);
        Self::start_service(bridge, directory, options)
    }

    /// Serves a mount whose daemon died: `descriptors` and `negotiated` are what
    /// [`Mount::descriptors`] and [`Mount::negotiated`] gave there. Requests that were under way
    /// are served again.
    ///
    /// # Errors
    /// Where no worker can be started.
    pub fn take_over(
        file_system: Arc<FileSystem>,
        directory: &Path,
        descriptors: Vec<OwnedFd>,
        negotiated: Negotiated,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let connection = file_system.group().connection();
        let bridge = Bridge::new(file_system, connection, options).after_another();
        let descriptors = descriptors.into_iter().map(Arc::new).collect();
        Self::resume(bridge, directory, descriptors, negotiated, options)
    }

    fn resume<S: Service>(
        service: S,
        directory: &Path,
        descriptors: Vec<Arc<OwnedFd>>,
        negotiated: Negotiated,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        // Before anybody listens: a request that a worker of this process had taken would be sent
        // again as well, and be done twice.
        if negotiated.has_resend()
            && let Some(first) = descriptors.first()
        {
            send(first, 0, notify::RESEND, &[])
                .map_err(|error| MountError::system("cannot resume", directory, error))?;
        }
        // Whoever kept it until now goes on, also where this process cannot.
        Self::run(
            service,
            directory.to_path_buf(),
            descriptors,
            negotiated,
            options,
            true,
        )
    }

    pub(crate) fn start_service<S: Service>(
        service: S,
        directory: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let point = MountPoint::make(directory, options)?;
        let started = agree(&point, options).and_then(|(descriptors, negotiated)| {
            Self::run(
                service,
                point.directory.clone(),
                descriptors,
                negotiated,
                options,
                false,
            )
        });
        if started.is_err() {
            // The error that is under way matters more than one of removing.
            let _ = MountPoint::remove(&point.directory, true);
        }
        let mount = started?;
        if geteuid().is_root() {
            match point.tune(options) {
                Ok(()) => (mount.dirty_bytes_max).store(options.dirty_bytes_max, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(directory = %point.directory.display(), %error,
                        "read-ahead and write-back keep the kernel's defaults");
                }
            }
        }
        Ok(mount)
    }

    /// Starts a worker on every descriptor but the first.
    fn run<S: Service>(
        service: S,
        directory: PathBuf,
        descriptors: Vec<Arc<OwnedFd>>,
        negotiated: Negotiated,
        options: &MountOptions,
        kept: bool,
    ) -> Result<Self, MountError> {
        let workers_count = descriptors.len().saturating_sub(1);
        if workers_count == 0 {
            return Err(MountError::system("cannot serve", &directory, Errno::BADF));
        }
        let device = mounted_at(&directory)
            .filter(|found| found.kind == MOUNT_KIND)
            .map_or_else(String::new, |found| found.device);
        let gate = Arc::new(Gate::new(workers_count));
        let program = options.notices.clone();
        let notices = Notices::of(&gate, &descriptors[0], &device, &directory, program);
        let thread = (notices.start()).map_err(|source| no_thread(&directory, source))?;
        let mount = Self {
            directory,
            device,
            descriptors,
            negotiated,
            counters: Counters::new(workers_count),
            alive: Arc::default(),
            gate: Arc::clone(&gate),
            notices: thread,
            kept: AtomicBool::new(kept),
            dirty_bytes_max: AtomicU64::new(0),
        };
        // Before the workers: where this fails none of them is there to tell of the mount's end, when
        // another one may have begun. Where one of them is missing the others do not tell of it.
        if let Err(source) = start_watch(&gate) {
            notices.close();
            return Err(no_thread(&mount.directory, source));
        }
        let service = Arc::new(service);
        let serving_count = Arc::new(AtomicUsize::new(workers_count));
        let answer_buffers = Arc::new(AnswerBuffers::new(MAX_DATA_BYTES));
        for (index, descriptor) in mount.descriptors[1..].iter().enumerate() {
            let service = Arc::clone(&service);
            let counters = mount.counters.clone();
            let alive = Arc::clone(&mount.alive);
            let workers_gate = Arc::clone(&gate);
            let mut transport = DeviceTransport::new(
                Arc::clone(descriptor),
                Arc::clone(&answer_buffers),
                notices.clone(),
            );
            let told_at_end = notices.clone();
            let serving_count = Arc::clone(&serving_count);
            *alive.count.lock() += 1;
            let spawned = thread::Builder::new()
                .name(format!("fuse-{index}"))
                .spawn(move || {
                    work(
                        &*service,
                        &mut transport,
                        counters.worker(index),
                        &workers_gate,
                        index,
                    );
                    workers_gate.close();
                    if serving_count.fetch_sub(1, Ordering::AcqRel) == 1 {
                        end_service(&*service, transport.descriptor());
                    }
                    let mut count = alive.count.lock();
                    *count -= 1;
                    if *count == 0 {
                        told_at_end.close();
                    }
                    drop(count);
                    alive.changed.notify_all();
                });
            if let Err(source) = spawned {
                *mount.alive.count.lock() -= 1;
                gate.close();
                notices.close();
                return Err(no_thread(&mount.directory, source));
            }
        }
        Ok(mount)
    }

    /// Lets the kernel hold so much of what programs change through shared mappings from now on; a change
    /// by less than an eighth is not worth telling it. Only root may; for anybody else the kernel's own
    /// limit stays.
    ///
    /// # Errors
    /// What the kernel says; it is told again the next time.
    pub fn limit_dirty_bytes(&self, bytes: u64) -> std::io::Result<()> {
        let told = self.dirty_bytes_max.load(Ordering::Relaxed);
        if !geteuid().is_root() || bytes.abs_diff(told) <= told / 8 {
            return Ok(());
        }
        BackingDevice::of(&self.directory)?.limit_dirty_bytes(bytes)?;
        self.dirty_bytes_max.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Requests by kind.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was agreed with the kernel; whoever takes the mount over needs it.
    #[must_use]
    pub const fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Every descriptor of the mount. Whoever holds copies of all of them keeps it, and the
    /// requests under way, alive beyond this process.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().map(|descriptor| descriptor.as_fd())
    }

    /// From now on somebody holds copies of the descriptors: the end of this process leaves the
    /// mount in the tree.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Release);
    }

    /// Nobody else holds the descriptors any more: the mount ends with this process.
    pub fn own_again(&self) {
        self.kept.store(false, Ordering::Release);
    }

    /// Serves no further request, and waits for those under way. What the kernel asks from now on
    /// waits for whoever takes the mount over.
    pub fn suspend(&self) {
        self.keep();
        self.gate.suspend();
        self.notices.finish();
    }

    /// Whether the kernel has this file in its memory. It never waits, so a worker may ask.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn is_known(&self, id: FileId) -> Result<bool, Errno> {
        // Only attributes are forgotten, which it reads again when it needs them.
        Stale::Attributes(id).forget_if_known(&self.descriptors[0])
    }

    /// True until the mount has ended. The kernel says so before the workers have noticed.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        *self.alive.count.lock() > 0 && !has_ended(self.descriptors[0].as_fd())
    }

    /// True until the last worker has ended. One that serves a request still changes the group, also
    /// when the mount has ended.
    #[must_use]
    pub fn is_served(&self) -> bool {
        *self.alive.count.lock() > 0
    }

    /// Waits until somebody has unmounted it and the last request is answered.
    pub fn wait(&self) {
        let mut count = self.alive.count.lock();
        while *count > 0 {
            self.alive.changed.wait(&mut count);
        }
    }

    /// Has the kernel write to this mount whatever its cache holds for it. It is asked through the
    /// mount itself: never from a worker, nor while nobody serves. What it writes may still be
    /// under way afterwards, see [`Mount::wait_until_written`].
    ///
    /// # Errors
    /// What the kernel answered; [`MountError::Held`] where the mount is gone from its place and lives
    /// on where this process does not come.
    pub fn write_back(&self) -> Result<(), MountError> {
        if !self.is_alive() {
            return Ok(());
        }
        let failed = |error| MountError::system("cannot write back", &self.directory, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if self.is_in_place()? {
            let root = open(&self.directory, flags, Mode::empty()).map_err(failed)?;
            return syncfs(&root).map_err(failed);
        }
        let is_it = |root: &OwnedFd| {
            let device = fstat(root).map(|status| status.st_dev);
            let told = |device| format!("{}:{}", major(device), minor(device));
            device.is_ok_and(|device| told(device) == self.device)
        };
        let mut roots = (ways_to(&self.device).into_iter())
            .filter_map(|way| open(&way, flags, Mode::empty()).ok());
        match roots.find(is_it) {
            Some(root) => syncfs(&root).map_err(failed),
            // Meanwhile it may have ended, and the kernel has written what it held before that.
            None if !self.is_alive() => Ok(()),
            None => Err(self.held()),
        }
    }

    /// Waits for a moment in which no request of the kernel is under way: what it had to write
    /// before has been written then.
    ///
    /// # Errors
    /// Where there is none for too long, because programs keep the mount too busy.
    pub fn wait_until_written(&self) -> Result<(), MountError> {
        let begun = Instant::now();
        let mut idle_since = begun;
        let mut received_count = None;
        loop {
            let (now_received_count, serving_count) = self.gate.progress();
            if serving_count > 0
                || received_count.replace(now_received_count) != Some(now_received_count)
            {
                idle_since = Instant::now();
            }
            // Where the kernel does not tell how many wait, nothing comes for a while.
            let is_over = requests_under_way(&self.device)
                .map_or_else(|| idle_since.elapsed() > IDLE_LEAST, |count| count == 0);
            if is_over {
                return Ok(());
            }
            if begun.elapsed() > WRITTEN_MOST {
                let what = "programs write all the time to";
                return Err(MountError::system(what, &self.directory, Errno::TIMEDOUT));
            }
            thread::sleep(WRITTEN_INTERVAL);
        }
    }

    /// Whether it is still at its place; elsewhere it may be all the same.
    fn is_in_place(&self) -> Result<bool, MountError> {
        match standing(&self.directory, &self.device) {
            Standing::There => Ok(true),
            Standing::Gone => Ok(false),
            Standing::Covered => Err(MountError::Covered(self.directory.clone())),
        }
    }

    /// Unmounts. With `detach` it vanishes from the tree at once although programs use it, and
    /// ends when they do; without, it waits for the end.
    ///
    /// # Errors
    /// [`MountError::Busy`] where programs use it and `detach` is not asked;
    /// [`MountError::Held`] where it is gone from its place but lives on, in another mount
    /// namespace or at another place: asking again later looks again.
    pub fn stop(&self, detach: bool) -> Result<(), MountError> {
        if !self.is_alive() {
            return Ok(());
        }
        if self.is_in_place()? {
            MountPoint::remove(&self.directory, detach)?;
        }
        if detach {
            return Ok(());
        }
        self.wait_for_end()
    }

    /// Who holds it, in words, where it is gone from its place and lives on.
    #[must_use]
    pub fn held_elsewhere(&self) -> Option<String> {
        let is_gone = self.is_alive() && self.is_in_place().is_ok_and(|is_there| !is_there);
        is_gone.then(|| self.holders_told())
    }

    fn held(&self) -> MountError {
        MountError::Held {
            directory: self.directory.clone(),
            holders: self.holders_told(),
        }
    }

    fn holders_told(&self) -> String {
        let told: Vec<String> = holders(&self.device)
            .iter()
            .map(ToString::to_string)
            .collect();
        if told.is_empty() {
            return "programs have files of it open, or another mount namespace has it".to_owned();
        }
        told.join(", ")
    }

    /// Waits for the end of what nobody here uses any more; not for ever, because others may.
    fn wait_for_end(&self) -> Result<(), MountError> {
        let begun = Instant::now();
        loop {
            let mut count = self.alive.count.lock();
            if *count > 0 {
                self.alive.changed.wait_for(&mut count, END_SOON);
            }
            let is_over = *count == 0;
            drop(count);
            if is_over {
                return Ok(());
            }
            if !self.is_alive() {
                // What a worker still serves has nobody to answer any more.
                if begun.elapsed() > END_MOST {
                    return Ok(());
                }
                continue;
            }
            // Where nobody is to be seen it may be about to end.
            if !holders(&self.device).is_empty() || begun.elapsed() > END_MOST {
                return Err(self.held());
            }
        }
    }

    /// Makes the kernel forget a file's attributes and cached bytes, after they changed by
    /// another door, and waits for that. The kernel waits for pages that are being read, and nobody can
    /// end that wait: where this mount has a process that sends notices, it is that one which waits, and
    /// the caller waits no longer than `most`; while that process is being started no longer than two
    /// seconds, where `most` is less. Without such a process the caller waits as the kernel does. Never
    /// from a worker: the kernel may wait for requests under way.
    ///
    /// # Errors
    /// What the kernel answered, or that it was not done in time; a file that it does not know is no
    /// error.
    pub fn invalidate_file(&self, id: FileId, most: Duration) -> Result<(), Errno> {
        let notices = self.notices.notices();
        if !notices.has_program() {
            return Stale::File(id).forget(&self.descriptors[0]);
        }
        match notices.drop_file(id.0, most) {
            true => Ok(()),
            false => Err(Errno::TIMEDOUT),
        }
    }

    /// Makes the kernel forget a file's attributes alone, after they changed by another door. It waits for
    /// no page and no request.
    ///
    /// # Errors
    /// What the kernel answered; a file that it does not know is no error.
    pub fn forget_attributes(&self, id: FileId) -> Result<(), Errno> {
        Stale::Attributes(id).forget(&self.descriptors[0])
    }

    /// Makes the kernel forget what it knows of `name` in `parent`, that there is none included,
    /// after it changed by another door, and the listing and attributes of `parent`. With the write-back
    /// cache this is also the way to show a new size of a file that nobody has open. Never from a worker.
    ///
    /// # Errors
    /// What the kernel answered; a name that it does not know is no error.
    pub fn invalidate_entry(&self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        let descriptor = &self.descriptors[0];
        Stale::Entry { parent, name }.forget(descriptor)?;
        // Where nobody had looked the name up the kernel took that for nothing, and goes on listing the
        // directory as it was.
        Stale::File(parent).forget(descriptor)
    }
}

impl Drop for Mount {
    /// A mount whose owner is gone must not hang its users.
    fn drop(&mut self) {
        let is_ours = self.is_alive() && !self.kept.load(Ordering::Acquire);
        if is_ours && self.is_in_place().is_ok_and(|is_there| is_there) {
            let _ = MountPoint::remove(&self.directory, true);
        }
    }
}

/// Whether the kernel has ended the mount behind this descriptor.
#[must_use]
pub fn has_ended(descriptor: BorrowedFd<'_>) -> bool {
    let mut wait = [PollFd::from_borrowed_fd(descriptor, PollFlags::empty())];
    let seen = poll(&mut wait, Some(&Timespec::default()));
    seen.is_ok() && wait[0].revents().contains(PollFlags::ERR)
}

/// Starts whoever calls workers where nobody listens.
fn start_watch(gate: &Arc<Gate>) -> std::io::Result<()> {
    let gate = Arc::clone(gate);
    let watch = thread::Builder::new().name("fuse-watch".to_owned());
    watch.spawn(move || gate.watch()).map(|_| ())
}

fn no_thread(directory: &Path, source: std::io::Error) -> MountError {
    MountError::System {
        what: "cannot start a worker for",
        path: directory.to_owned(),
        source,
    }
}

/// Answers the kernel's first request; then there are descriptors for notices and workers.
fn agree(
    point: &MountPoint,
    options: &MountOptions,
) -> Result<(Vec<Arc<OwnedFd>>, Negotiated), MountError> {
    let failed = |error| MountError::system("cannot serve", &point.directory, error);
    let first = rustix::io::fcntl_dupfd_cloexec(&point.descriptor, 0).map_err(failed)?;
    let first = Arc::new(first);
    let mut transport = DeviceTransport::new(
        Arc::clone(&first),
        Arc::new(AnswerBuffers::new(MAX_DATA_BYTES)),
        Notices::none(&first),
    );
    let negotiated = match negotiate(&mut transport) {
        Ok(negotiated) => negotiated,
        Err(NegotiationError::Ended) => return Err(failed(Errno::NODEV)),
        Err(NegotiationError::Failed(error)) => return Err(failed(error)),
        Err(NegotiationError::TooOld { major, minor }) => {
            return Err(MountError::KernelTooOld { major, minor });
        }
    };
    let mut descriptors = vec![Arc::clone(&first)];
    for _ in 0..options.workers_count.max(1) {
        let clone = sys::clone_device(first.as_fd()).map_err(failed)?;
        descriptors.push(Arc::new(clone));
    }
    Ok((descriptors, negotiated))
}

/// Serves requests until the mount ends.
fn work<S: Service>(
    service: &S,
    transport: &mut DeviceTransport,
    counters: &WorkerCounters,
    gate: &Gate,
    worker: usize,
) {
    // While memory is short the kernel writes our own mount's pages back: a worker that waited
    // for that would wait for itself. Only root may say so; others run without.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    while gate.enter(worker) {
        let header = match transport.receive() {
            Ok(Some(header)) => header,
            Ok(None) => return,
            Err(error) => {
                // None is known that would come here; whatever it is, it may pass.
                tracing::error!(%error, "/dev/fuse gave no request");
                if gate.leave(0) {
                    gate.finish();
                }
                thread::sleep(RETRY_AFTER);
                continue;
            }
        };
        if !gate.leave(header.opcode) {
            // Left unanswered for the process that takes the mount over, which has it sent again.
            return;
        }
        counters.count(header.opcode);
        let start = Instant::now();
        let served = catch_unwind(AssertUnwindSafe(|| {
            service.serve(&header, transport, worker)
        }));
        let answered = served.unwrap_or_else(|_| {
            counters.count_panic();
            tracing::error!(
                opcode = header.opcode,
                node = header.node,
                "serving a request panicked; it is answered with EIO"
            );
            let answered = transport.answer(-Errno::IO.raw_os_error(), &[]);
            service.panicked();
            answered
        });
        let elapsed = start.elapsed();
        counters.add_time(header.opcode, elapsed);
        gate.note_time(header.opcode, elapsed);
        gate.finish();
        match answered {
            Ok(()) => {}
            Err(Errno::NODEV | Errno::CONNABORTED) => return,
            Err(error) => {
                tracing::error!(opcode = header.opcode, %error, "the kernel refused an answer");
            }
        }
    }
}

/// The last worker has ended, and nobody takes the mount for over yet who could make another one. Where
/// it is left to another process, or a worker could not be started, it has not ended.
fn end_service<S: Service>(service: &S, descriptor: BorrowedFd<'_>) {
    if !has_ended(descriptor) {
        return;
    }
    let ended = catch_unwind(AssertUnwindSafe(|| service.ended()));
    if ended.is_err() {
        service.panicked();
    }
}

#[cfg(test)]
mod tests;
