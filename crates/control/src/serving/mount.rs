//! The mounts of a served group, and dead ones that an earlier process left.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use spindle_base::{ErrorClass, FileId};
use spindle_catalog::WORKERS_MAX;
use spindle_fs::FileSystem;
use spindle_fuse::{KernelMount, Mount, MountError, MountOptions, check_directory, mounted_at};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult, ErrorContext};
use crate::api::view::MountReport;
use crate::machine::process;
use crate::opened::files::KernelCache;
use crate::serving::keeper::{KeeperLink, KeptMount};
use crate::serving::{notices, write_limit};

/// Where to mount, and how.
#[derive(Debug, Clone)]
pub struct MountRequest {
    /// An empty directory.
    pub directory: PathBuf,
    /// Bypass the page cache for every file.
    pub direct: bool,
    /// Event loops; the front door's own choice where `None`.
    pub workers_count: Option<usize>,
}

/// A mount with what is told of it.
#[derive(Debug)]
struct Served {
    mount: Mount,
    report: MountReport,
    /// Somebody is about to unmount it, and tells what came of that.
    stopping: AtomicBool,
}

impl Served {
    const fn new(mount: Mount, report: MountReport) -> Self {
        Self {
            mount,
            report,
            stopping: AtomicBool::new(false),
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// How long a mount may take to show whether anybody serves it.
const LOOK_MOST: Duration = Duration::from_secs(2);
/// So many processes that use a mount are named.
const USERS_MOST: usize = 8;
/// How long the requests of a mount that has ended are waited for before another one is refused, and
/// how often it is looked.
const FORMER_MOST: Duration = Duration::from_secs(2);
const FORMER_INTERVAL: Duration = Duration::from_millis(10);

/// What the kernel is to forget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    File(FileId),
    Entry(FileId, OsString),
}

#[derive(Debug, Default)]
struct State {
    mounts: Vec<Arc<Served>>,
    /// Those that have ended while workers served requests of theirs. Such a request may write still,
    /// over what a program writes and syncs through a mount that comes after.
    ended: Vec<Arc<Served>>,
    /// Somebody is about to add one.
    adding: bool,
    /// What changed by other doors meanwhile: that one is served before it is on the list.
    changed: BTreeSet<Changed>,
    /// One has ended: the process may be left without any.
    has_lost_mount: bool,
    /// The process ends: none is added any more.
    closed: bool,
}

/// Every mount of one group.
///
/// **Invariant.** The lock is held to look and to change the list, never while the kernel, a disk
/// or a program is waited for: heartbeats and every other mount's affairs go on meanwhile.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    state: Mutex<State>,
    /// Told of mounts that come and go, under the lock, so that it hears it in the right order.
    keeper: Option<Arc<KeeperLink>>,
}

/// Takes back that a mount is being added, however that went.
struct Adding<'a>(&'a Mounts);

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.adding = false;
        state.changed.clear();
    }
}

impl Mounts {
    /// None yet.
    #[must_use]
    pub(super) fn new(keeper: Option<Arc<KeeperLink>>) -> Self {
        Self {
            state: Mutex::default(),
            keeper,
        }
    }

    fn list(&self) -> Vec<Arc<Served>> {
        self.state.lock().mounts.clone()
    }

    /// Those that are to be told of a change. One that is being added is told when it is on the list.
    fn list_to_tell(&self, changed: impl FnOnce() -> Changed) -> Vec<Arc<Served>> {
        let mut state = self.state.lock();
        if state.adding {
            state.changed.insert(changed());
        }
        state.mounts.clone()
    }

    /// Has the kernel forget `what` of a file at each mount; whether all of them did in time.
    fn all_forget(
        &self,
        id: FileId,
        what: &str,
        forget: impl Fn(&Mount) -> Result<(), Errno>,
    ) -> bool {
        let mut has_forgotten = true;
        for served in self.list_to_tell(|| Changed::File(id)) {
            if let Err(error) = forget(&served.mount) {
                tracing::debug!(%id, what, %error, "the kernel did not forget of a file what changed");
                has_forgotten = false;
            }
        }
        has_forgotten
    }

    /// Forgets mounts that have ended but for those that `stay`.
    fn forget_ended(&self, state: &mut State, stays: impl Fn(&Served) -> bool) {
        let mounts = std::mem::take(&mut state.mounts);
        let (mounts, ended): (Vec<_>, Vec<_>) =
            (mounts.into_iter()).partition(|served| served.mount.is_alive() || stays(served));
        state.mounts = mounts;
        let has_ended = !ended.is_empty();
        state.ended.extend(ended);
        state.ended.retain(|served| served.mount.is_served());
        state.has_lost_mount |= has_ended;
        if has_ended && let Some(link) = &self.keeper {
            link.unmounted();
        }
    }

    /// Waits for the requests of mounts that have ended, not for ever.
    fn wait_for_former(&self) {
        let begun = Instant::now();
        while begun.elapsed() < FORMER_MOST {
            let mut state = self.state.lock();
            self.forget_ended(&mut state, Served::is_stopping);
            if state.ended.is_empty() {
                return;
            }
            drop(state);
            thread::sleep(FORMER_INTERVAL);
        }
    }

    /// Nobody else may add until the answer is dropped.
    fn begin_to_add(&self, group_name: &str, wanted: &Path) -> ControlResult<Adding<'_>> {
        self.wait_for_former();
        let mut state = self.state.lock();
        self.forget_ended(&mut state, |_| false);
        let wanted = wanted.display();
        let busy = |message| Err(ControlError::new(ControlErrorKind::Busy, message));
        if state.closed {
            return Err(ControlError::new(
                ControlErrorKind::Ending,
                format!("the process that serves {group_name} is about to end: try again"),
            ));
        }
        if state.adding {
            return busy(format!("{group_name} is being mounted already"));
        }
        if let Some(former) = state.ended.first() {
            let directory = &former.report.directory;
            return busy(format!(
                "requests of the former mount of {group_name} on {directory} are under way: try again when the disks have answered them"
            ));
        }
        let first = state.mounts.first().cloned();
        state.adding = first.is_none();
        drop(state);
        if let Some(served) = first {
            let directory = &served.report.directory;
            if let Some(holders) = served.mount.held_elsewhere() {
                let told = format!(
                    "{group_name} was unmounted from {directory}, but that mount lives on: {holders}"
                );
                return busy(told).map_err(ControlError::of_environment);
            }
            return busy(if *directory == wanted.to_string() {
                format!("{wanted} is a mount point already: {group_name} is mounted there")
            } else {
                format!(
                    "{group_name} is mounted on {directory} already: use it there, or show it in a further place with: mount --bind {directory} {wanted}"
                )
            });
        }
        Ok(Adding(self))
    }

    /// Mounts the files. A dead mount of a group in the same place is taken away first.
    ///
    /// One mount at a time: the kernel keeps names and attributes of each mount for itself, and
    /// would not see in one what was changed in another.
    ///
    /// # Errors
    /// Where the directory cannot be mounted on, or the group is mounted already.
    pub(super) fn add(
        &self,
        file_system: &Arc<FileSystem>,
        group_name: &str,
        request: &MountRequest,
    ) -> ControlResult<MountReport> {
        if let Some(count) = request.workers_count
            && !(1..=WORKERS_MAX).contains(&count)
        {
            return Err(ControlError::invalid(format!(
                "a mount has 1 to {WORKERS_MAX} workers, not {count}: they wait for the disks, so \
                 that more than some dozens help only with many slow disks"
            )));
        }
        let adding = self.begin_to_add(group_name, &request.directory)?;
        let directory = crate::machine::path::absolute(&request.directory)?;
        remove_dead(&directory)?;
        let mut options = MountOptions::new(group_name);
        options.direct = request.direct;
        options.generation = self.generation();
        options.notices = Some(notices::program());
        options.dirty_bytes_max = write_limit::lowest(file_system.group().view().disks.len());
        if let Some(count) = request.workers_count {
            options.workers_count = count;
        }
        let mount = Mount::start(file_system.clone(), &directory, &options)?;
        let report = MountReport {
            directory: mount.directory().display().to_string(),
            direct: request.direct,
        };
        let served = Arc::new(Served::new(mount, report.clone()));
        let mut state = self.state.lock();
        if let Some(link) = &self.keeper
            && link.keep(&served.mount, request.direct)
        {
            served.mount.keep();
        }
        state.mounts.push(Arc::clone(&served));
        let changed = std::mem::take(&mut state.changed);
        drop(state);
        for one in changed {
            let told = match &one {
                Changed::File(id) => served.mount.invalidate_file(*id, WRITTEN_BACK_MOST),
                Changed::Entry(parent, name) => {
                    served.mount.invalidate_entry(*parent, name.as_bytes())
                }
            };
            if let Err(error) = told {
                tracing::warn!(?one, %error, "the kernel did not forget what changed as it mounted");
            }
        }
        drop(adding);
        Ok(report)
    }

    fn generation(&self) -> u64 {
        self.keeper.as_ref().map_or(0, |link| link.generation())
    }

    /// Serves the mount that the keeper holds.
    ///
    /// # Errors
    /// Where no worker can be started.
    pub(super) fn take_over(
        &self,
        file_system: &Arc<FileSystem>,
        group_name: &str,
        link: &KeeperLink,
        kept: &KeptMount,
    ) -> ControlResult<()> {
        let mut options = MountOptions::new(group_name);
        options.direct = kept.direct;
        options.generation = link.generation();
        options.notices = Some(notices::program());
        let (descriptors, negotiated) = link.take_descriptors();
        let mount = Mount::take_over(
            file_system.clone(),
            &kept.directory,
            descriptors,
            negotiated,
            &options,
        )?;
        let report = MountReport {
            directory: mount.directory().display().to_string(),
            direct: kept.direct,
        };
        let served = Arc::new(Served::new(mount, report));
        self.state.lock().mounts.push(served);
        Ok(())
    }

    /// Serves nothing any more and leaves the mounts in the tree, for the next process.
    pub(super) fn suspend(&self) {
        for served in self.list() {
            served.mount.suspend();
        }
    }

    /// Nobody holds the mounts any more but this process.
    pub(super) fn own_again(&self) {
        for served in self.list() {
            served.mount.own_again();
        }
    }

    /// How much the kernel may hold of what programs change through shared mappings, for each mount from
    /// now on.
    pub(super) fn limit_dirty_bytes(&self, bytes: u64) {
        for served in self.list() {
            if let Err(error) = served.mount.limit_dirty_bytes(bytes) {
                tracing::debug!(directory = %served.report.directory, %error, bytes,
                    "the limit of written data stays what it was");
            }
        }
    }

    /// Whether the kernel has this file in its memory.
    #[must_use]
    pub(super) fn is_known(&self, id: FileId) -> bool {
        // Where it cannot be asked, it may.
        let knows = |served: &Arc<Served>| {
            served.mount.is_alive() && served.mount.is_known(id).unwrap_or(true)
        };
        self.list().iter().any(knows)
    }

    /// Unmounts one place.
    ///
    /// # Errors
    /// Where nothing of this group is mounted there, or programs use it, here or elsewhere.
    pub(super) fn remove(&self, directory: &Path) -> ControlResult<()> {
        let wanted = directory.display().to_string();
        let mounts = self.list();
        let Some(served) = mounts
            .iter()
            .find(|served| served.report.directory == wanted)
        else {
            return Err(ControlError::not_found(format!(
                "nothing of this group is mounted on {wanted}"
            )));
        };
        served.stopping.store(true, Ordering::Release);
        let stopped = served.mount.stop(false);
        served.stopping.store(false, Ordering::Release);
        stopped.map_err(|error| with_users(error, directory))?;
        self.reap();
        Ok(())
    }

    /// Unmounts everything, also what is in use: the process is ending. What is used all the same
    /// is served no more, and fails when this process has ended.
    pub(super) fn remove_all(&self) {
        let mounts = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.mounts)
        };
        for served in mounts {
            let directory = &served.report.directory;
            // The end of one that others hold writes nothing back.
            if let Err(error) = served.mount.write_back() {
                tracing::warn!(%directory, %error, "the kernel did not write its cache back");
            }
            let busy = match served.mount.stop(false) {
                Ok(()) => continue,
                Err(error) => error,
            };
            tracing::warn!(%directory, %busy, "detached although it is in use");
            if let Err(error) = served.mount.stop(true) {
                tracing::error!(%directory, %error, "still mounted");
            }
            if let Err(error) = served.mount.wait_until_written() {
                tracing::warn!(%directory, %error, "what is written from now on is refused");
            }
            served.mount.suspend();
        }
    }

    /// Has the kernel write back what its cache holds, and waits for it.
    ///
    /// # Errors
    /// Where it does not, or programs write all the while.
    pub(super) fn write_back(&self) -> ControlResult<()> {
        for served in self.list() {
            served.mount.write_back()?;
            served.mount.wait_until_written()?;
        }
        Ok(())
    }

    /// Forgets mounts that ended by somebody else's doing.
    pub(super) fn reap(&self) {
        self.forget_ended(&mut self.state.lock(), Served::is_stopping);
    }

    /// Lets none be added any more: the process is about to end.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Closes the list to new mounts where it is empty, so that the process can end; whether it is
    /// closed.
    #[must_use]
    pub(super) fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        if state.mounts.is_empty() && !state.adding {
            state.closed = true;
        }
        state.closed
    }

    /// As [`Self::close_if_empty`], where a mount has ended: whoever has seen that first may have been
    /// about to add another one, and failed.
    #[must_use]
    pub(super) fn close_if_over(&self) -> bool {
        self.state.lock().has_lost_mount && self.close_if_empty()
    }

    /// The mount that was asked for ended before this process was there.
    pub(super) fn note_lost(&self) {
        self.state.lock().has_lost_mount = true;
    }

    /// Whether nothing is mounted.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().mounts.is_empty()
    }

    /// Where the group is mounted.
    #[must_use]
    pub(super) fn reports(&self) -> Vec<MountReport> {
        let mounts = self.list();
        mounts.iter().map(|served| served.report.clone()).collect()
    }
}

/// How often the kernel asked something of the mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestSum {
    /// What, in snake_case.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How long the answers took together.
    pub total_us: u64,
}

impl Mounts {
    /// The requests of every mount, by kind.
    #[must_use]
    pub(super) fn requests(&self) -> Vec<RequestSum> {
        let mut sums: Vec<RequestSum> = Vec::new();
        for served in self.list() {
            for request in served.mount.counters().requests() {
                let name = snake_case(&format!("{:?}", request.opcode));
                match sums.iter_mut().find(|sum| sum.name == name) {
                    Some(sum) => {
                        sum.count += request.count;
                        sum.total_us += request.total_us;
                    }
                    None => sums.push(RequestSum {
                        name,
                        count: request.count,
                        total_us: request.total_us,
                    }),
                }
            }
        }
        sums
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// How long a command waits until the kernel has written the changed pages of a file.
const WRITTEN_BACK_MOST: Duration = Duration::from_secs(10);
/// How long a write by another door waits until readers of the mount see it: longer than a read takes.
const SEEN_MOST: Duration = Duration::from_millis(250);

impl KernelCache for Mounts {
    fn write_back(&self, id: FileId) {
        for served in self.list() {
            // The kernel writes changed pages before it forgets them. Where it does not know
            // the file there is nothing to write.
            if let Err(error) = served.mount.invalidate_file(id, WRITTEN_BACK_MOST) {
                tracing::warn!(%id, %error, "the kernel did not write a file back");
            }
        }
    }

    /// While the process that sends a mount's notices is being started the caller waits longer than
    /// [`SEEN_MOST`], see [`Mount::invalidate_file`].
    fn bytes_changed(&self, id: FileId) -> bool {
        self.all_forget(id, "bytes", |mount| mount.invalidate_file(id, SEEN_MOST))
    }

    fn attributes_changed(&self, id: FileId) -> bool {
        self.all_forget(id, "attributes", |mount| mount.forget_attributes(id))
    }

    fn entry_changed(&self, parent: FileId, name: &OsStr) {
        for served in self.list_to_tell(|| Changed::Entry(parent, name.to_owned())) {
            if let Err(error) = served.mount.invalidate_entry(parent, name.as_bytes()) {
                tracing::warn!(%parent, %error, "the kernel did not forget an entry");
            }
        }
    }
}

impl From<MountError> for ControlError {
    fn from(error: MountError) -> Self {
        let kind = match (&error, error.class()) {
            (MountError::Missing(_), _) => ControlErrorKind::NotFound,
            (MountError::NotEmpty(_), _) => ControlErrorKind::Exists,
            (
                MountError::AlreadyMounted(_)
                | MountError::Busy(_)
                | MountError::Covered(_)
                | MountError::Held { .. },
                _,
            ) => ControlErrorKind::Busy,
            (_, ErrorClass::Caller) => ControlErrorKind::Invalid,
            (_, ErrorClass::Environment) => ControlErrorKind::Io,
            (_, ErrorClass::BadBytes) => ControlErrorKind::Corrupt,
            (_, ErrorClass::Bug) => ControlErrorKind::Bug,
        };
        let class = error.class();
        let context = match &error {
            MountError::Group { source, .. } => ErrorContext::of_group(&source.subject),
            _ => None,
        };
        let mut told = Self::new(kind, error.to_string()).because(error);
        told.class = class;
        told.context = context;
        told
    }
}

/// Looks at a directory that is to be mounted on, before a group is opened for it: opening takes a disk
/// offline that is away for a moment, and a mount that is refused must change nothing. The mount
/// itself looks once more.
///
/// # Errors
/// Where nothing can be mounted there.
pub(super) fn refuse_directory(directory: &Path) -> ControlResult<()> {
    let directory = crate::machine::path::absolute(directory)?;
    remove_dead(&directory)?;
    check_directory(&directory)?;
    Ok(())
}

/// A mount that is in use is told with who uses it, as far as this process may see that.
fn with_users(error: MountError, directory: &Path) -> ControlError {
    let is_busy = matches!(error, MountError::Busy(_));
    let users = if is_busy {
        process::users_of(directory)
    } else {
        Vec::new()
    };
    if users.is_empty() {
        return error.into();
    }
    let mut told: Vec<String> = (users.iter().take(USERS_MOST))
        .map(ToString::to_string)
        .collect();
    if users.len() > USERS_MOST {
        told.push(format!("and {} more", users.len() - USERS_MOST));
    }
    let message = format!(
        "{} is in use by {}: end them or have them leave it, or detach it with `umount --lazy {0}`",
        directory.display(),
        told.join(", ")
    );
    ControlError::new(ControlErrorKind::Busy, message)
}

/// Detaches dead mounts of a group of this name, wherever they are and whoever served them; where they
/// were.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn remove_dead_of(group: &str) -> ControlResult<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for mount in spindle_fuse::all_mounts() {
        let is_dead = is_of(&mount, group) && is_soon_seen_dead(&mount.directory);
        if is_dead && remove_dead(&mount.directory)? {
            removed.push(mount.directory);
        }
    }
    Ok(removed)
}

/// Detaches dead mounts of a group of this name at `directory`. What anybody serves or holds, and what
/// lies under it, stays.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn remove_dead_at(directory: &Path, group: &str) -> ControlResult<()> {
    while mounted_at(directory).is_some_and(|mount| is_of(&mount, group))
        && is_soon_seen_dead(directory)
    {
        detach(directory)?;
    }
    Ok(())
}

fn is_of(mount: &KernelMount, group: &str) -> bool {
    mount.kind == "fuse.spindle" && mount.source.eq_ignore_ascii_case(group)
}

/// Whether nobody serves the mount. One that is held waits instead of answering, and is not dead.
fn is_soon_seen_dead(directory: &Path) -> bool {
    let (sender, receiver) = std::sync::mpsc::channel();
    let directory = directory.to_owned();
    thread::spawn(move || sender.send(is_dead(&directory)));
    receiver.recv_timeout(LOOK_MOST).unwrap_or(false)
}

/// The attributes of the root may be cached; how full it is must be asked for.
fn is_dead(directory: &Path) -> bool {
    matches!(
        rustix::fs::statfs(directory),
        Err(Errno::NOTCONN | Errno::CONNABORTED)
    )
}

/// Detaches mounts of ours at `directory` whose process has died. Whether there was one.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn remove_dead(directory: &Path) -> ControlResult<bool> {
    let mut removed = false;
    while let Some(mount) = mounted_at(directory) {
        // Another one is not asked: it may hang.
        if mount.kind != "fuse.spindle" || !is_soon_seen_dead(directory) {
            break;
        }
        detach(directory)?;
        removed = true;
    }
    Ok(removed)
}

/// Detaches the group's mount at `directory`. It is not looked at: while the kernel holds a killed
/// process for a disk that hangs, whoever looks waits.
///
/// # Errors
/// Where the kernel refuses.
pub(super) fn detach_given_up(directory: &Path, group_name: &str) -> ControlResult<()> {
    match mounted_at(directory) {
        Some(mount) if is_of(&mount, group_name) => detach(directory),
        _ => Ok(()),
    }
}

fn detach(directory: &Path) -> ControlResult<()> {
    let fail = |error| ControlError::io("take away the dead mount at", directory.display(), &error);
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(directory, rustix::mount::UnmountFlags::DETACH)
            .map_err(|error| fail(error.into()));
    }
    let output = std::process::Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(directory)
        .output()
        .map_err(fail)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(fail(std::io::Error::other(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_while_a_mount_is_added_is_kept_for_it_and_for_no_other() {
        let mounts = Mounts::new(None);
        let (file, directory, name) = (FileId(7), FileId(8), OsStr::new("name"));
        let change = || {
            mounts.attributes_changed(file);
            mounts.bytes_changed(file);
            mounts.entry_changed(directory, name);
        };
        let kept = || mounts.state.lock().changed.clone();
        change();
        assert!(kept().is_empty(), "there is no mount that knows anything");
        let adding = mounts.begin_to_add("DATA", Path::new("/place")).unwrap();
        assert!(kept().is_empty());
        change();
        let wanted = [
            Changed::File(file),
            Changed::Entry(directory, name.to_owned()),
        ];
        assert_eq!(kept(), BTreeSet::from(wanted));
        drop(adding);
        assert!(kept().is_empty());
    }
}
