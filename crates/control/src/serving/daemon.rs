//! The process that serves a group: it holds the disks, the mounts and the socket.
//!
//! It starts in this order: disks, group, files, mount, socket; it is ready when all are there.
//! It ends in the reverse order. A crash at any point leaves what the next start expects: a
//! group that was not closed, a socket nobody listens at, a mount point nobody answers.
//!
//! Besides the mount's own threads there are these: the server's (this one), one for background
//! work and heartbeats, one that shows that the process lives while that one waits for a disk, one
//! that waits for scrubs and has its workers while one runs, one that does so for resync, restore
//! and rebalance, and short-lived ones that answer requests, because those wait for disks.

mod background;
mod clearing;
pub(crate) mod connections;
mod ending;
mod forecasting;
mod kept;
mod lock;
mod patience;
mod returning;
mod scrubbing;
pub(crate) mod server;
mod threads;
pub(crate) mod underway;
mod unkept;
mod volumes;
mod working;
mod write_behind;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spindle_base::{DiskNumber, FileId, GroupName};
use spindle_group::{Event, EventKind, KeptJournal, Severity, UnwrittenBlocks};
use tokio::sync::watch;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::event_filter::EventFilter;
use crate::api::group_settings::GroupSettings;
use crate::api::health;
use crate::api::nearness::suggestion;
use crate::api::scrub_log::last_scrub;
use crate::api::view::{
    ActivitySample, CheckReport, DiskReport, EndingReport, EventReport, GroupReport, GroupState,
    HealthReport, MountReport, ReadyReport, TemplateReport,
};
use crate::machine::runtime_directory;
use crate::machine::settings::Settings;
use crate::machine::sockets::socket_path;
use crate::opened::activity::DiskClock;
use crate::opened::files::OpenFiles;
use crate::opened::open::{Access, Kept, Opened};
use crate::opened::{activity, setting};
use crate::serving::exports::Exports;
use crate::serving::hook::Hook;
use crate::serving::keeper::KeeperLink;
use crate::serving::last_word;
use crate::serving::metrics;
use crate::serving::metrics::Snapshot;
use crate::serving::mount::{MountRequest, Mounts, refuse_directory};
use crate::serving::served::refuse_if_served;
use crate::serving::service_manager::ServiceManager;
use crate::serving::space_history::SpaceHistory;
use lock::ServingLock;
use threads::Worker;

/// How long a dismount waits for a mount that somebody else is making.
const MOUNTING_MOST: Duration = Duration::from_secs(10);

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The group.
    pub group: GroupName,
    /// Where to mount it at once, if anywhere.
    pub mount: Option<MountRequest>,
    /// A file that takes every write and flush in order, for the replayer.
    pub record: Option<PathBuf>,
    /// Serve on when the last mount is gone.
    pub stay: bool,
    /// The keeper that started this process.
    pub keeper: Option<Arc<KeeperLink>>,
    /// Take the group although another host seems to have it or a majority cannot be seen.
    pub force: bool,
    /// Where the metrics are also to be had over TCP, if anywhere.
    pub metrics: Option<MetricsListen>,
}

/// A TCP port for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsListen {
    /// Where.
    pub address: std::net::SocketAddr,
    /// Whether others than this machine may ask; they are asked for no password.
    pub public: bool,
}

impl MetricsListen {
    fn bind(self) -> ControlResult<std::net::TcpListener> {
        let address = self.address;
        if !self.public && !address.ip().is_loopback() {
            return Err(ControlError::invalid(format!(
                "{address} can be reached from other machines, and whoever asks there is answered: choose 127.0.0.1, or say --metrics-public"
            )));
        }
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|error| ControlError::io("give metrics at", address, &error))
    }
}

/// A served group.
#[derive(Debug)]
pub(super) struct Daemon {
    settings: Settings,
    opened: Opened,
    files: OpenFiles,
    mounts: Arc<Mounts>,
    exports: Exports,
    clock: DiskClock,
    hook: Mutex<Option<Hook>>,
    /// Events kept since the process began: info, warnings, critical ones.
    events_counts: [AtomicU64; 3],
    stay: bool,
    stop: watch::Sender<bool>,
    keeper: Option<Arc<KeeperLink>>,
    service: ServiceManager,
    /// Another program is to take over.
    handing_over: AtomicBool,
    underway: Arc<underway::Underway>,
    /// Lazy work failed when it was last tried.
    background_fails: AtomicBool,
    unkept: unkept::Unkept,
    space_history: Mutex<SpaceHistory>,
}

fn own_memory() -> ControlResult<Kept> {
    let blocks = UnwrittenBlocks::create();
    let journal = blocks.and_then(|blocks| Ok(KeptJournal::create()?.with_blocks(blocks)));
    Ok(Kept {
        journal: Arc::new(journal.map_err(|error| ControlError::io("get", "memory", &error))?),
        has_mount: false,
        follows: false,
        former: None,
    })
}

/// Serves a group until it is told to stop or, unless it is to stay, its last mount is gone.
///
/// # Errors
/// Where the group cannot be opened or mounted, or cannot be closed cleanly.
pub fn serve(
    settings: &Settings,
    options: &ServeOptions,
    ready: impl FnOnce(&ReadyReport) + Send + 'static,
) -> ControlResult<()> {
    // On a thread of its own: the state of the first one tells the keeper whether the process has
    // ended, and so that one asks nothing of a disk, which may hang.
    let (settings, options) = (settings.clone(), options.clone());
    threads::run("serve", move || serve_here(&settings, &options, ready))
}

/// Opens the group, with what a keeper holds of it, and tells the keeper of it.
fn open(settings: &Settings, options: &ServeOptions, access: &Access) -> ControlResult<Opened> {
    let kept = match (&options.keeper, &options.record) {
        (Some(keeper), _) => Some(Kept {
            journal: keeper.journal().clone(),
            has_mount: keeper.mount().is_some(),
            follows: keeper.generation() > 0,
            former: keeper.former_lingers().then(Arc::default),
        }),
        // What is recorded is what a kept daemon does, in memory of its own.
        (None, Some(_)) => Some(own_memory()?),
        (None, None) => None,
    };
    let former = kept.as_ref().and_then(|kept| kept.former.clone());
    let opened = Opened::open_kept(settings, &options.group, access, kept);
    if let (Some(link), Some(former)) = (&options.keeper, &former)
        && former.is_needed()
    {
        link.needs_former();
    }
    let opened = opened?;
    if let Some(link) = &options.keeper {
        let group = opened.group();
        link.opened(group.view().uuid.to_string(), group.watchdog_s());
    }
    Ok(opened)
}

fn serve_here(
    settings: &Settings,
    options: &ServeOptions,
    ready: impl FnOnce(&ReadyReport),
) -> ControlResult<()> {
    runtime_directory::make(&settings.runtime_directory)?;
    if options.keeper.is_none() {
        refuse_if_served(settings, &options.group)?;
    }
    let _serving = ServingLock::take(settings, &options.group)?;
    last_word::forget_namesake(&settings.runtime_directory, options.group.as_str());
    let metrics = options.metrics.map(MetricsListen::bind).transpose()?;
    // Caught from here on: a stop that comes while the group opens must close it again.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ControlError::io("start", "the server", &error))?;
    let access = Access::Serve {
        record: options.record.clone(),
        force: options.force,
    };
    let is_kept = |link: &Arc<KeeperLink>| link.mount().is_some() || link.mount_is_over();
    if let Some(request) = &options.mount
        && !options.keeper.as_ref().is_some_and(is_kept)
    {
        refuse_directory(&request.directory)?;
    }
    let opened = open(settings, options, &access)?;
    let group_name = opened.group_name().to_owned();
    let hook = start_hook(settings, &opened)?;
    let mounts = Arc::new(Mounts::new(options.keeper.clone()));
    let (stop, stopped) = watch::channel(false);
    let daemon = Arc::new(Daemon {
        files: OpenFiles::new(
            opened.file_system().clone(),
            group_name.clone(),
            Some(mounts.clone()),
        ),
        clock: DiskClock::default(),
        hook: Mutex::new(hook),
        events_counts: Default::default(),
        settings: settings.clone(),
        opened,
        mounts,
        exports: Exports::new(&settings.runtime_directory, &group_name),
        stay: options.stay,
        stop,
        keeper: options.keeper.clone(),
        service: ServiceManager::from_environment(),
        handing_over: AtomicBool::new(false),
        underway: Arc::default(),
        background_fails: AtomicBool::new(false),
        unkept: unkept::Unkept::default(),
        space_history: Mutex::default(),
    });
    if let Some(listener) = metrics {
        let answering = server::serve_metrics(daemon.clone(), listener, stopped.clone());
        runtime.spawn(async move {
            if let Err(error) = answering.await {
                tracing::error!("the metrics are not to be had over TCP: {error}");
            }
        });
    }
    let served = daemon.run(settings, options, &runtime, stopped, ready);
    // What it has begun is brought to its end; its threads are not waited for.
    runtime.shutdown_background();
    daemon.underway.wait();
    // The background thread has ended by now; nobody else can begin anything. On a thread of its
    // own: where a disk hangs, this one must be able to end.
    threads::run("close", move || {
        let closed = daemon.end(&served);
        let ended = served.and(closed);
        daemon.tell_how_it_ended(&ended);
        ended
    })
}

impl Daemon {
    fn run(
        self: &Arc<Self>,
        settings: &Settings,
        options: &ServeOptions,
        runtime: &tokio::runtime::Runtime,
        stopped: watch::Receiver<bool>,
        ready: impl FnOnce(&ReadyReport),
    ) -> ControlResult<()> {
        self.take_unkept();
        self.take_space_history();
        let disks = self.report().disks;
        self.opened.note_disk_paths(&disks);
        let notices = self.note_events();
        let opened = format!(
            "opened by process {} with {} disks",
            std::process::id(),
            disks.len()
        );
        self.tell(Event::new(EventKind::GroupOpened, opened));
        // In the batch before the mount begins, which commits it: else a kill soon after would take it
        // along, and of a group that is held then nobody could tell.
        self.note_events();
        let socket = socket_path(&settings.runtime_directory, self.group_name());
        let rounds = patience::Rounds::default();
        let (all_written, is_written) = watch::channel(false);
        let background = background::start(self.clone(), rounds.clone(), is_written.clone())?;
        let patience = patience::start(self.clone(), rounds, is_written)?;
        let working = working::start(self.clone(), stopped.clone())?;
        let returning = returning::start(self.clone(), stopped.clone())?;
        let writing = write_behind::start(self, &stopped)?;
        let served = runtime.block_on(async {
            // Before the mount: whoever sees the mount can ask this process at once.
            let listener = listen(&socket)?;
            self.mount_at_start(options)?;
            ready(&ReadyReport {
                group: self.group_name().to_owned(),
                process_id: std::process::id(),
                mounts: self.mounts.reports(),
                notices,
            });
            self.tell_ready();
            server::serve(self.clone(), listener, stopped).await
        });
        // However the server ended, the background thread must not outlive the group.
        self.stop.send_replace(true);
        // Gone before the group is closed: who finds no socket opens the disks and finds them
        // still held, which is told as it is.
        let _ = std::fs::remove_file(&socket);
        let writing = writing.into_iter().chain([working, returning]);
        let mut panicked: Vec<bool> = writing.map(Worker::wait).collect();
        // As long as anything is written the group has an owner who says so.
        all_written.send_replace(true);
        panicked.extend([background, patience].map(Worker::wait));
        if panicked.contains(&true) {
            self.die_where_kept();
            return Err(ControlError::new(
                ControlErrorKind::Bug,
                "a background thread ended by a panic; see the log",
            ));
        }
        served
    }

    fn close(&self) -> ControlResult<()> {
        self.service.tell("STOPPING=1");
        self.exports.stop_all();
        self.mounts.remove_all();
        // Kept by the close itself: the last words of a process are in the log, or it was not
        // closed.
        self.tell(Event::new(EventKind::GroupClosed, "closed"));
        self.keep_events(true);
        let closed = self.opened.close();
        self.leave_unkept(closed.is_ok());
        self.opened.release_all();
        drop(self.hook.lock().take());
        if let Err(error) = &closed {
            tracing::error!("not closed cleanly: {error:#}");
        }
        closed
    }

    /// The group's name, as its label has it.
    #[must_use]
    pub(super) fn group_name(&self) -> &str {
        self.opened.group_name()
    }

    /// The group and its disks.
    #[must_use]
    pub(super) const fn opened(&self) -> &Opened {
        &self.opened
    }

    /// What this process was started with.
    #[must_use]
    pub(super) const fn start_settings(&self) -> &Settings {
        &self.settings
    }

    /// The files, as the API shows them.
    #[must_use]
    pub(super) const fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The group with its disks and mounts.
    #[must_use]
    pub(super) fn report(&self) -> GroupReport {
        let mut report = GroupReport::new(self.opened.group().view(), GroupState::Mounted);
        report.process_id = Some(std::process::id());
        report.mounts = self.mounts.reports();
        report.keeper_process_id = self.keeper_process_id();
        report
    }

    /// As [`Daemon::report`], with what became of the disks' paths: asks the file systems that they
    /// are in, and so may wait for them.
    #[must_use]
    pub(super) fn report_with_paths(&self) -> GroupReport {
        let mut report = self.report();
        for (path, what) in self.opened.lost_paths() {
            let is_it = |disk: &&mut DiskReport| disk.path.as_deref().map(Path::new) == Some(&path);
            if let Some(disk) = report.disks.iter_mut().find(is_it) {
                disk.path_lost = Some(what);
            }
        }
        report
    }

    fn keeper_process_id(&self) -> Option<u32> {
        self.keeper.as_ref()?.keeper_process_id()
    }

    /// Compares maps, space, records and names; with `repair` it also puts right what can be
    /// without losing anything.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub(super) fn check(&self, repair: bool) -> ControlResult<CheckReport> {
        let (contradictions, repaired) = if repair {
            self.opened.check_and_repair()?
        } else {
            (self.opened.check()?, Vec::new())
        };
        Ok(CheckReport {
            group: self.group_name().to_owned(),
            contradictions,
            repaired,
            events: self.note_events(),
        })
    }

    /// The group's settings.
    #[must_use]
    pub(super) fn settings(&self) -> GroupSettings {
        setting::settings_of(self.group_name(), self.opened.group())
    }

    /// Changes one of them.
    ///
    /// # Errors
    /// Where there is no such setting or it cannot be that.
    pub(super) fn change_setting(&self, name: &str, value: &str) -> ControlResult<GroupSettings> {
        let group = self.opened.group();
        let settings = setting::change(self.group_name(), group, name, value)?;
        if let Some(link) = &self.keeper {
            link.opened(group.view().uuid.to_string(), settings.watchdog_s);
        }
        Ok(settings)
    }

    /// The events of the group's log.
    ///
    /// # Errors
    /// Where the catalog cannot be read.
    pub(super) fn events(&self, filter: &EventFilter) -> ControlResult<Vec<EventReport>> {
        self.note_events();
        self.opened.events_with_paths(filter)
    }

    /// How well the group is.
    #[must_use]
    pub(super) fn health(&self) -> HealthReport {
        self.judged(&self.events_that_count())
    }

    /// The events of the log, without what was damaged of a file that is gone: that needs nobody's
    /// care any more.
    fn events_that_count(&self) -> Vec<EventReport> {
        self.note_events();
        let events = self.opened.events(&EventFilter::default());
        let mut events = events.unwrap_or_default();
        self.forget_gone_files(&mut events);
        events
    }

    fn forget_gone_files(&self, events: &mut Vec<EventReport>) {
        let is_gone = |id| self.opened.group().file(FileId(id)).is_none();
        events.retain(|event| !(health::is_damage(event) && event.file.is_some_and(is_gone)));
    }

    fn judged(&self, events: &[EventReport]) -> HealthReport {
        let now_ms = u64::try_from(crate::machine::clock::now().seconds).unwrap_or(0) * 1000;
        health::judge_served(
            &self.report_with_paths(),
            events,
            now_ms,
            &self.clearable_now(),
        )
    }

    /// The metrics as Prometheus reads them.
    #[must_use]
    pub(super) fn metrics(&self) -> String {
        let count = |severity: Severity| {
            let count = self.events_counts[severity as usize].load(Ordering::Relaxed);
            (severity.name(), count)
        };
        let group = self.report();
        let events = self.events_that_count();
        metrics::expose(&Snapshot {
            figures: self.opened.group().figures(),
            unwritten_bytes: self.opened.file_system().unwritten_bytes(),
            disks: self.opened.disk_counters(&group.disks),
            requests: self.mounts.requests(),
            operations: self.opened.group().operations(),
            health: self.judged(&events),
            last_scrub: last_scrub(&events),
            scrub_findings_open: health::scrub_findings_open(&events),
            forecast: self.forecast_of(&group),
            events: Severity::ALL.map(count),
            group,
        })
    }

    /// Something happened that this process knows of.
    fn tell(&self, event: Event) {
        self.opened.group().event(event);
    }

    /// Keeps who asked for a change of the disks that was made.
    pub(super) fn tell_asked(&self, by: &str, what: &str) {
        let text: String = format!("{by} asked to {what}").chars().take(400).collect();
        self.tell(Event::new(EventKind::DisksChangeAsked, text));
    }

    /// The counters of every disk and of the busy files.
    #[must_use]
    pub(super) fn activity(&self) -> ActivitySample {
        activity::sample(&self.clock, &self.opened)
    }

    /// The group's templates, in the order in which they are tried.
    #[must_use]
    pub(super) fn templates(&self) -> Vec<TemplateReport> {
        self.opened.templates()
    }

    /// Makes a disk answer as if its cable was pulled, or plugged in again.
    ///
    /// # Errors
    /// Where there is no such disk in the group.
    pub(super) fn fault(&self, disk: &str, pulled: bool) -> ControlResult<DiskReport> {
        let report = self.report();
        let names = report.disks.iter().map(|disk| disk.name.as_str());
        let hint = suggestion(disk, "disk", names);
        let Some(found) = report
            .disks
            .into_iter()
            .find(|candidate| candidate.name.eq_ignore_ascii_case(disk))
        else {
            return Err(ControlError::not_found(format!(
                "the group {} has no disk {disk:?}; {hint}",
                self.group_name()
            )));
        };
        self.opened.set_pulled(&found, pulled)?;
        let what = if pulled { "pulled" } else { "plugged in again" };
        let message = format!("disk {} was {what} for a test", found.name);
        let event = Event::new(EventKind::DiskFaultInjected, message);
        self.tell(event.disk(DiskNumber(found.number)));
        Ok(found)
    }

    /// Mounts the files at one more place.
    ///
    /// # Errors
    /// Where the directory cannot be mounted on.
    pub(super) fn mount(
        &self,
        directory: &Path,
        direct: bool,
        workers_count: Option<usize>,
    ) -> ControlResult<MountReport> {
        let request = MountRequest {
            directory: directory.to_owned(),
            direct,
            workers_count,
        };
        self.mounts
            .add(self.opened.file_system(), self.group_name(), &request)
    }

    /// Takes one mount away; the last one ends the process unless it is to stay.
    ///
    /// # Errors
    /// Where there is no such mount, it is in use, or a client of an export would be cut off.
    pub(super) fn unmount(&self, directory: &Path) -> ControlResult<EndingReport> {
        if !self.stay {
            self.exports.refuse_while_used()?;
        }
        self.mounts.remove(directory)?;
        let ending = !self.stay && self.mounts.close_if_empty();
        if ending {
            self.stop_in_order();
        }
        Ok(self.ending(ending, vec![directory.display().to_string()]))
    }

    /// A refusal with the path of the file that it is about; one of a group that had to stop with how
    /// that goes on.
    pub(super) fn explained(&self, error: ControlError) -> ControlError {
        let error = self.opened.with_path(error);
        let stopped = self.opened.group().check_serves().err();
        let is_it = |why: ControlError| why.message() == error.message();
        if !stopped.map(ControlError::from).is_some_and(is_it) {
            return error;
        }
        match health::stopped_finding(&self.report()) {
            Some(finding) => {
                let told = format!("{}; {}", finding.text, finding.advice);
                ControlError::new(error.kind, told)
            }
            None => error,
        }
    }

    /// Makes durable whatever programs have written until now.
    ///
    /// # Errors
    /// What the kernel or the group says; then nothing is promised.
    pub(super) fn sync(&self) -> ControlResult<EndingReport> {
        let file_system = self.opened.file_system();
        // The kernel takes its time, in which another sync may be told of a loss.
        let told_before = file_system.told();
        let written = self.mounts.write_back();
        file_system.sync_since(told_before)?;
        written?;
        Ok(self.ending(false, Vec::new()))
    }

    /// Takes every mount away and ends the process.
    ///
    /// # Errors
    /// Where a mount is in use; the others are gone then. Where a client of an export is connected.
    pub(super) fn dismount(&self) -> ControlResult<EndingReport> {
        self.exports.refuse_while_used()?;
        let mut directories = Vec::new();
        // Once more where somebody has mounted it meanwhile.
        let mut empty_since: Option<Instant> = None;
        while !self.mounts.close_if_empty() {
            for mount in self.mounts.reports() {
                match self.mounts.remove(Path::new(&mount.directory)) {
                    // It was taken away from outside in that moment.
                    Err(error) if error.kind == ControlErrorKind::NotFound => {}
                    removed => removed?,
                }
                directories.push(mount.directory);
            }
            if self.mounts.is_empty()
                && empty_since.get_or_insert_with(Instant::now).elapsed() > MOUNTING_MOST
            {
                return Err(ControlError::new(
                    ControlErrorKind::Busy,
                    format!("{} is being mounted: try again", self.group_name()),
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop_in_order();
        Ok(self.ending(true, directories))
    }

    fn ending(&self, ending: bool, directories: Vec<String>) -> EndingReport {
        EndingReport {
            group: self.group_name().to_owned(),
            process_id: std::process::id(),
            keeper_process_id: self.keeper_process_id(),
            ending,
            directories,
        }
    }

    /// Moves what the group noticed into the event log, and returns it.
    fn note_events(&self) -> Vec<String> {
        let events = self.keep_events(false);
        events.into_iter().map(|event| event.text).collect()
    }

    fn keep_events(&self, closing: bool) -> Vec<EventReport> {
        let events = self.opened.keep_events(closing);
        self.pass_on(&events);
        events
    }

    /// What is new in the log: counted, remembered, and handed to the hook.
    fn pass_on(&self, events: &[EventReport]) {
        for event in events {
            if let Some(severity) = Severity::from_name(&event.severity) {
                self.events_counts[severity as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
        self.note_unkept(events);
        if let Some(hook) = &*self.hook.lock() {
            hook.pass_on(events);
        }
    }
}

fn start_hook(settings: &Settings, opened: &Opened) -> ControlResult<Option<Hook>> {
    let Some(wanted) = settings.hook.clone() else {
        return Ok(None);
    };
    let file_system = opened.file_system().clone();
    let hook = Hook::start(wanted, move |line| {
        let event = Event::new(EventKind::HookFailed, line);
        file_system.group().event(event);
    })?;
    Ok(Some(hook))
}

/// Binds the socket; one that a dead process left is replaced. Only its owner may connect: the
/// directory is closed to others until the socket's own permissions are set.
fn listen(socket: &Path) -> ControlResult<tokio::net::UnixListener> {
    let fail = |error| ControlError::io("listen at", socket.display(), &error);
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let listener = tokio::net::UnixListener::bind(socket).map_err(fail)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    Ok(listener)
}
