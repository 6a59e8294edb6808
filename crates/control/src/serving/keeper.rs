//! The keeper: a small process that holds a mount beyond the death of the one that serves it.
//!
//! It starts the daemon as its child and holds copies of the mount's descriptors, what was
//! agreed with the kernel, and the memory of the journal. Where the daemon is killed, the next
//! one is started at once and given all of it; programs that use the mount wait meanwhile, and
//! no request is lost. No code of the group runs in here.
//!
//! **Invariants.** While there is a mount and the keeper lives, requests are held, never failed.
//! A daemon that ends in order ends its keeper. A daemon that dies again and again is given up
//! after [`DEATHS_MOST`] deaths soon after its start, the mount still held; `spindle mount`
//! and `spindle upgrade` go on from there. A keeper that is to end while the last daemon died, or
//! whose mount went while none served, starts one more, which writes what waits and closes the
//! group: what programs were answered for is in this process's memory alone. So does one whose first
//! daemon died with the group open before it said that it serves: programs use a mount as soon as it
//! is there. Where the last one dies too, and has not said why, it has more of them, up to
//! [`DEATHS_MOST`]. Where the keeper itself dies, the daemon goes on without it, as one that was
//! started without a keeper.
//!
//! One thread, and nothing that grows with time.

mod child;
mod command;
mod ending;
mod last_daemon;
mod lingering;
mod link;
mod message;
#[cfg(test)]
mod tests;
mod wire;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use child::{Child, Program};
use command::Asked;
use lingering::Lingering;
use message::{FromDaemon, Notice, Start};
use spindle_base::GroupName;
use spindle_device::SharedMemory;
use spindle_group::{KeptJournal, UnwrittenBlocks};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::settings::Settings;
use crate::serving::exports;
use crate::serving::formats::Formats;
use crate::serving::last_word;
use crate::serving::last_word::Closed;
use crate::serving::service_manager::ServiceManager;

pub use crate::machine::held::KeeperPhase;
pub use command::{KeeperClient, KeeperStatus};
pub use link::KeeperLink;
pub(super) use link::Order;
pub(super) use message::KeptMount;
pub(super) use message::PROTOCOL_VERSION;

/// A group that could not be opened without a disk of a killed daemon is tried again so often.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// After so many short lives in a row the daemon is not started again by itself.
const DEATHS_MOST: usize = 8;
/// What the keeper remembers of what happened while no daemon could note it.
const NOTICES_MOST: usize = 64;
/// A daemon that served for longer did not die of what it found at its start.
const SHORT_LIFE: Duration = Duration::from_millis(100);
/// Variable with that time in milliseconds, for tests.
const SHORT_LIFE_VARIABLE: &str = "SPINDLE_SHORT_LIFE_MS";
/// How long the keeper waits before it starts a daemon after several deaths.
const PAUSES_MS: [u64; 5] = [0, 0, 250, 1000, 4000];
/// How often it looks whether the daemon works, and tells a service manager.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A daemon that has ended and that the kernel does not let go of is waited for so long.
const LINGER_MOST: Duration = Duration::from_secs(1);
/// A daemon whose background work shows no sign of life for so long is killed, where neither the
/// group nor the environment says otherwise.
const SILENCE_MOST: Duration = Duration::from_secs(60);
/// Variable with that time in seconds, for tests and for slow machines.
const SILENCE_VARIABLE: &str = "SPINDLE_WATCHDOG_S";

/// Serves as the keeper until the mount has ended; the exit code.
///
/// `arguments` are those of this process; with `--daemon` behind them they start the daemon, which
/// mounts on `mount_point` where there is one.
///
/// # Errors
/// Where the machine gives no memory, socket or process.
pub fn keep(
    settings: &Settings,
    group: &GroupName,
    arguments: Vec<OsString>,
    mount_point: Option<PathBuf>,
    detach: bool,
) -> ControlResult<u8> {
    if detach {
        rustix::process::setsid()
            .map_err(|error| ControlError::io("leave", "the session", &error.into()))?;
    }
    crate::machine::runtime_directory::make(&settings.runtime_directory)?;
    crate::serving::served::refuse_if_served(settings, group)?;
    last_word::forget_namesake(&settings.runtime_directory, group.as_str());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ControlError::io("start", "the keeper", &error))?;
    runtime.block_on(async {
        let mut keeper = Keeper::new(settings, group, arguments, mount_point)?;
        keeper.run().await
    })
}

/// A tick every [`LOOK_INTERVAL`]. A keeper may be stopped, or get no processor for minutes: there is one
/// look for all that were missed, because meanwhile nobody could be heard.
fn looks() -> Interval {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// How a daemon's time ended.
#[derive(Debug)]
enum Ended {
    /// In order, or it never began: its exit code is the keeper's.
    Over(u8),
    /// It handed over to another program.
    HandedOver,
    /// It died; why, as a person reads it.
    Died(String),
}

/// An upgrade under way.
#[derive(Debug)]
struct Upgrade {
    program: Program,
    former: Option<Program>,
    answer: UnixStream,
}

#[derive(Debug)]
struct Keeper {
    group: String,
    arguments: Vec<OsString>,
    /// Where the first daemon was asked to mount.
    mount_point: Option<PathBuf>,
    directory: child::WorkingDirectory,
    runtime_directory: PathBuf,
    program: Program,
    /// The journal, and the blocks that are to be written.
    memories: [SharedMemory; 2],
    /// Copies of the mount's descriptors; empty where nothing is mounted.
    descriptors: Vec<OwnedFd>,
    mount: Option<KeptMount>,
    commands: mpsc::Receiver<Asked>,
    heard: mpsc::Sender<Asked>,
    /// The identity of the group, once a daemon has opened it, and whether it leads here.
    group_uuid: Option<String>,
    is_known: bool,
    socket: PathBuf,
    /// The socket is removed.
    has_left: bool,
    /// Short lives in a row.
    deaths_count: usize,
    /// What the last one died of.
    last_death: Option<String>,
    /// Somebody asked for the next daemon, which has one try to become ready.
    has_one_try: bool,
    /// Since when the daemon serves.
    ready_at: Option<Instant>,
    notices: Vec<Notice>,
    /// So many of them the daemon that is being started was given.
    told_count: usize,
    died_at_ms: Option<u64>,
    generation: u64,
    phase: KeeperPhase,
    daemon_id: Option<u32>,
    /// A daemon was ready once: from then on its deaths are not the end.
    was_ready: bool,
    /// The first daemon died before it was ready and left no mount: whoever asked for it is told that
    /// the group is not served.
    is_unserved: bool,
    upgrade: Option<Upgrade>,
    /// Nothing is to be served any more: the next daemon is the last one, and only writes what waits
    /// and closes the group.
    stopping: bool,
    /// Whoever supervises this process told it to end, by a signal.
    told_to_end: bool,
    /// And once more, while the last daemon could not be started: what waits is given up. No command
    /// says that, be it given twice.
    stop_now: bool,
    /// The mount that the first daemon was asked for has ended.
    mount_is_over: bool,
    /// Somebody asked for the next daemon at once.
    go_on: bool,
    /// And that it opens the group by force.
    by_force: bool,
    /// What the daemon that is ending said of the group; `None` as long as it said nothing.
    closed: Option<Closed>,
    /// It said that the next one may be able to do what it could not.
    may_pass: bool,
    /// So many last ones were started and died.
    last_deaths_count: usize,
    /// Daemons that have ended and that the kernel has not let go of.
    lingering: Vec<Lingering>,
    /// The group cannot be opened without a disk that one of them holds.
    needs_former: bool,
    /// What the last daemon reads and writes.
    formats: Option<Formats>,
    service: ServiceManager,
    /// What the environment says of it goes before what the group says.
    silence_from_environment: Option<Duration>,
    /// What the group says.
    silence_set: Option<Duration>,
    short_life: Duration,
    out_of_memory_score: Option<String>,
}

impl Keeper {
    fn new(
        settings: &Settings,
        group: &GroupName,
        arguments: Vec<OsString>,
        mount_point: Option<PathBuf>,
    ) -> ControlResult<Self> {
        let fail = |error| ControlError::io("make", "the keeper's memory", &error);
        let socket = command::socket_path(&settings.runtime_directory, group.as_str());
        let listener = command::listen(&socket)?;
        let (heard, commands) = command::queue();
        command::hear(listener, heard.clone());
        let number = |variable| std::env::var(variable).ok()?.parse().ok();
        let short_life = number(SHORT_LIFE_VARIABLE).map_or(SHORT_LIFE, Duration::from_millis);
        let directory = child::WorkingDirectory::own(mount_point.as_deref());
        Ok(Self {
            group: group.to_string(),
            arguments,
            mount_point,
            directory,
            runtime_directory: settings.runtime_directory.clone(),
            program: Program::own()?,
            memories: [
                SharedMemory::create("spindle-journal", KeptJournal::LENGTH_BYTES).map_err(fail)?,
                SharedMemory::create("spindle-unwritten", UnwrittenBlocks::LENGTH_BYTES)
                    .map_err(fail)?,
            ],
            descriptors: Vec::new(),
            mount: None,
            commands,
            heard,
            group_uuid: None,
            is_known: false,
            socket,
            has_left: false,
            deaths_count: 0,
            last_death: None,
            has_one_try: false,
            ready_at: None,
            short_life,
            notices: Vec::new(),
            told_count: 0,
            died_at_ms: None,
            generation: 0,
            phase: KeeperPhase::Starting,
            daemon_id: None,
            was_ready: false,
            is_unserved: false,
            upgrade: None,
            stopping: false,
            told_to_end: false,
            stop_now: false,
            mount_is_over: false,
            go_on: false,
            by_force: false,
            closed: None,
            may_pass: false,
            last_deaths_count: 0,
            lingering: Vec::new(),
            needs_former: false,
            formats: None,
            service: ServiceManager::from_environment(),
            silence_from_environment: number(SILENCE_VARIABLE).map(Duration::from_secs),
            silence_set: None,
            out_of_memory_score: child::protect_from_out_of_memory(),
        })
    }

    async fn run(&mut self) -> ControlResult<u8> {
        let mut signals = child::Signals::catch()?;
        loop {
            let is_last = self.stopping;
            let mut has_started = true;
            let ended = match self.start() {
                Ok(mut child) => {
                    let ended = self.attend(&mut child, &mut signals).await?;
                    if !child.is_gone() {
                        let was_killed = matches!(ended, Ended::Died(_));
                        self.lingering.push(Lingering { child, was_killed });
                    }
                    ended
                }
                Err(error) if self.was_opened() => {
                    has_started = false;
                    Ended::Died(error.message())
                }
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            };
            self.daemon_id = None;
            match ended {
                Ended::Over(code) => {
                    let mut code = self.tell_how_it_ended(code);
                    if self.is_unserved && code == 0 {
                        code = spindle_base::ErrorClass::Bug.exit_code();
                    }
                    self.end();
                    return Ok(code);
                }
                Ended::HandedOver => self.take_new_program(),
                Ended::Died(why) => {
                    if !self.was_ready && self.mount.is_none() {
                        // The next one must not serve what whoever asked takes for not served.
                        self.is_unserved = true;
                        self.stopping = true;
                    }
                    self.note_death(&why).await;
                    let goes_on =
                        !is_last || self.tries_last_again(has_started, &mut signals).await;
                    let gives_up = self.stop_now || !goes_on;
                    if gives_up || !self.wait_for_next(&mut signals).await {
                        tracing::error!(
                            group = self.group,
                            "the group is left as it was: nobody has closed it"
                        );
                        let why = self.closed.take().and_then(Result::err);
                        let died = "the process that was to close it died";
                        self.leave_word(match why {
                            Some(why) => format!("{died}: {why}"),
                            None => format!("{died}; see the log"),
                        });
                        exports::forget_left(&self.runtime_directory, &self.group);
                        self.detach_mount();
                        self.end();
                        return Ok(spindle_base::ErrorClass::Environment.exit_code());
                    }
                }
            }
        }
    }

    fn start(&mut self) -> ControlResult<Child> {
        self.phase = KeeperPhase::Starting;
        // It says so again where it is so.
        self.needs_former = false;
        self.closed = None;
        self.may_pass = false;
        if self.mount.is_none() {
            // They came from a daemon that died before it said what they are of. With them held the
            // kernel would wait for answers from that mount for ever; without, it is dead.
            self.descriptors.clear();
        }
        if self.mount_is_gone() {
            self.forget_mount();
        }
        if self.is_unserved {
            self.remove_unheard_mount();
        }
        let start = Start {
            generation: self.generation,
            keeper_process_id: std::process::id(),
            mount: self.mount.clone(),
            notices: self.notices.clone(),
            died_at_ms: self.died_at_ms.take(),
            mount_is_over: self.mount_is_over || self.stopping,
            is_last: self.stopping,
            former_lingers: self.lingering.iter().any(|former| former.was_killed),
            out_of_memory_score: self.out_of_memory_score.clone(),
        };
        self.told_count = self.notices.len();
        let first = self.generation == 0;
        self.generation += 1;
        // A person's word is for the start that it was given for: by now the group may be another
        // host's with as good a right.
        let by_force = std::mem::take(&mut self.by_force);
        let mut arguments: Vec<OsString> = (self.arguments.iter())
            .filter(|argument| first || *argument != "--force")
            .cloned()
            .collect();
        if by_force && !first {
            arguments.push("--force".into());
        }
        let mounted = (self.mount.as_ref()).map(|mount| Path::new(&mount.directory));
        let child = Child::start(&self.program, &arguments, &self.directory, mounted, first)?;
        if first {
            // Nobody waits for the end of this process's output, only for the daemon's word. The
            // directory that the command was given in must stay free to be unmounted.
            child::leave_output_and_directory();
        }
        self.daemon_id = Some(child.id());
        if let Err(error) = child.send_start(&start, &self.memories, &self.descriptors) {
            // Its end follows, and says why.
            tracing::error!(error = error.message(), "the daemon did not take the mount");
        }
        if self.stopping {
            child.send(&message::ToDaemon::Stop);
        }
        Ok(child)
    }

    /// Lives with one daemon until it ends.
    async fn attend(
        &mut self,
        child: &mut Child,
        signals: &mut child::Signals,
    ) -> ControlResult<Ended> {
        let mut look = looks();
        let mut silent = Duration::ZERO;
        let mut ending = false;
        let mut handed_over = false;
        let mut lingers_since: Option<Instant> = None;
        loop {
            tokio::select! {
                message = child.receive() => match message? {
                    Some((FromDaemon::Opened { group_uuid, watchdog_s }, _)) => {
                        self.group_uuid = Some(group_uuid);
                        self.silence_set = watchdog_s.map(Duration::from_secs);
                        self.become_known();
                    }
                    Some((FromDaemon::Serves(formats), _)) => self.formats = Some(formats),
                    Some((FromDaemon::Ready, _)) => {
                        self.become_ready().await;
                        silent = Duration::ZERO;
                    }
                    Some((FromDaemon::Descriptors, more)) => self.descriptors.extend(more),
                    Some((FromDaemon::Mounted(mount), _)) => {
                        self.mount = Some(mount);
                        self.mount_is_over = false;
                    }
                    Some((FromDaemon::Unmounted, _)) => self.forget_mount(),
                    Some((FromDaemon::Alive, _)) => silent = Duration::ZERO,
                    Some((FromDaemon::Stopping, _)) => self.stopping = true,
                    Some((FromDaemon::Ending, _)) => {
                        ending = true;
                        // One that dies on the way is followed by one that only closes.
                        self.stopping = true;
                        self.phase = KeeperPhase::Ending;
                        self.service.tell("STOPPING=1");
                        // Who comes now must not wait for another daemon.
                        self.leave_socket();
                    }
                    Some((FromDaemon::Closed, _)) => self.closed = Some(Ok(())),
                    Some((FromDaemon::NotClosed { why, may_pass }, _)) => self.note_refusal(why, may_pass),
                    Some((FromDaemon::HandedOver, _)) => handed_over = true,
                    Some((FromDaemon::NeedsFormer, _)) => self.needs_former = true,
                    // It let go of the socket: its end follows.
                    None => {
                        return Ok(match child.wait(LINGER_MOST).await? {
                            Some(status) => self.judge(&status, ending, handed_over),
                            None => self.leave(child, handed_over, ending),
                        });
                    }
                },
                asked = self.commands.recv() => if let Some(asked) = asked {
                    self.serve_command(asked, Some(&*child)).await;
                },
                () = signals.received() => {
                    self.told_to_end = true;
                    self.stopping = true;
                    child.send(&message::ToDaemon::Stop);
                }
                _ = look.tick() => {
                    self.service.tell("WATCHDOG=1");
                    self.become_known();
                    self.forget_gone();
                    if child.lingers() {
                        let since = lingers_since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= LINGER_MOST {
                            return Ok(self.leave(child, handed_over, ending));
                        }
                    }
                    let silence_most = self.silence_most();
                    silent += LOOK_INTERVAL;
                    if silent > silence_most && self.phase == KeeperPhase::Serving && lingers_since.is_none() {
                        let message = format!(
                            "process {} showed no sign of life for {} s and is killed",
                            child.id(),
                            silence_most.as_secs()
                        );
                        tracing::error!("{message}");
                        self.notice(&message, true);
                        child.kill();
                        silent = Duration::ZERO;
                    }
                }
            }
        }
    }

    /// How long a daemon may show no sign of life.
    fn silence_most(&self) -> Duration {
        let set = self.silence_from_environment.or(self.silence_set);
        set.unwrap_or(SILENCE_MOST)
    }

    fn judge(&self, status: &child::Status, ending: bool, handed_over: bool) -> Ended {
        if handed_over {
            return Ended::HandedOver;
        }
        let orderly = ending && status.code().is_some();
        if orderly || !self.was_opened() {
            return Ended::Over(status.code().unwrap_or(70));
        }
        // What it said itself, and not only the number with which it ended.
        match &self.closed {
            Some(Err(why)) => Ended::Died(format!("{status}: {why}")),
            _ => Ended::Died(status.to_string()),
        }
    }

    /// Whether a daemon has had the group open, which it says before it opens any door: from then on
    /// programs may have been answered, and the memories have what no disk has. A mount answers
    /// before the keeper hears of it.
    const fn was_opened(&self) -> bool {
        self.group_uuid.is_some()
    }

    /// Listens where the group's identity leads. Tried again as long as the keeper before, which is
    /// about to end, has the name.
    fn become_known(&mut self) {
        let Some(group_uuid) = self.group_uuid.as_deref().filter(|_| !self.is_known) else {
            return;
        };
        match command::listen_for(group_uuid) {
            Ok(listener) => {
                command::hear(listener, self.heard.clone());
                self.is_known = true;
            }
            Err(error) => {
                tracing::warn!(%error, "nobody else sees yet that this keeper holds the group");
            }
        }
    }

    async fn become_ready(&mut self) {
        self.phase = KeeperPhase::Serving;
        self.has_one_try = false;
        // It has them in the group's log by now; one that died before this had not.
        self.notices.drain(..std::mem::take(&mut self.told_count));
        self.ready_at = Some(Instant::now());
        self.was_ready = true;
        self.service.tell("READY=1");
        self.service.tell(&format!(
            "STATUS=serving {} by process {}",
            self.group,
            self.daemon_id.unwrap_or(0)
        ));
        if let Some(upgrade) = self.upgrade.take_if(|upgrade| upgrade.former.is_some()) {
            let version = upgrade.program.version();
            command::answer(upgrade.answer, &Ok(version)).await;
        }
    }

    /// The program that handed over has closed the group; the next one is another program.
    fn take_new_program(&mut self) {
        self.died_at_ms = Some(message::now_ms());
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        let new = upgrade.program.clone();
        upgrade.former = Some(std::mem::replace(&mut self.program, new));
    }

    async fn note_death(&mut self, why: &str) {
        self.died_at_ms = Some(message::now_ms());
        let what = format!("the process that served {} died ({why})", self.group);
        tracing::error!("{what}");
        self.last_death = Some(why.to_owned());
        self.notice(&what, false);
        if let Some(upgrade) = &self.upgrade {
            if upgrade.former.is_none() {
                // It died before it handed over: the new program takes over what it left.
                self.take_new_program();
                return;
            }
            self.refuse_upgrade(why).await;
            return;
        }
        if self.needs_former {
            // It is no fault of the daemon, and the next one waits for the disk.
            return;
        }
        let lived = self.ready_at.take().map(|ready_at| ready_at.elapsed());
        self.deaths_count = match lived {
            Some(lived) if lived > self.short_life => 0,
            _ => self.deaths_count + 1,
        };
        if std::mem::take(&mut self.has_one_try) {
            // Whoever asked waits for the answer, and can ask again.
            self.deaths_count = self.deaths_count.max(DEATHS_MOST);
        }
    }

    /// Keeps what happened for the next daemon, and for who asks meanwhile. Daemons that die for
    /// weeks must not fill the memory: the first and the newest are kept.
    fn notice(&mut self, message: &str, critical: bool) {
        if self.notices.len() >= NOTICES_MOST {
            let middle = NOTICES_MOST / 2;
            self.notices.remove(middle);
            self.told_count -= usize::from(middle < self.told_count);
        }
        self.notices.push(Notice::new(message, critical));
    }

    /// The new program cannot serve what was handed over: the former one goes on.
    async fn refuse_upgrade(&mut self, why: &str) {
        let Some(upgrade) = self.upgrade.take() else {
            return;
        };
        let message = format!(
            "the program {} could not serve the group ({why}): the former one goes on; see the log",
            upgrade.program.path().display()
        );
        if let Some(former) = upgrade.former {
            self.program = former;
        }
        let refused = ControlError::new(ControlErrorKind::Io, message);
        command::answer::<String>(upgrade.answer, &Err(refused)).await;
    }

    /// Waits before the next daemon is started. False: none is.
    async fn wait_for_next(&mut self, signals: &mut child::Signals) -> bool {
        let gave_up = !self.stopping && self.deaths_count >= DEATHS_MOST;
        if gave_up && self.mount_is_over {
            // Nobody waits for it, and nobody would come to decide.
            return false;
        }
        if gave_up {
            self.phase = KeeperPhase::GaveUp;
            let message = format!(
                "the processes that served {} died {} times soon after their start, the last one of this: {}. The mount is held and waits; `spindle mount` or `spindle upgrade` starts the next one, `spindle umount` gives the mount up",
                self.group,
                self.deaths_count,
                self.last_death.as_deref().unwrap_or("not known")
            );
            tracing::error!("{message}");
            self.service.tell(&format!("STATUS={message}"));
            self.notice(&message, true);
        }
        if self.waits_for_kernel() {
            // As one that gave up: whoever wants the mount gone is heard, also who said so while
            // the daemon's end was waited for.
            self.phase = KeeperPhase::GaveUp;
            if self.stopping {
                self.detach_mount();
            }
        }
        let pause_ms = PAUSES_MS[self.deaths_count.min(PAUSES_MS.len() - 1)];
        let pause = tokio::time::sleep(Duration::from_millis(pause_ms));
        tokio::pin!(pause);
        let retry = tokio::time::sleep(RETRY_INTERVAL);
        tokio::pin!(retry);
        let mut look = looks();
        loop {
            if !self.waits_for_kernel() {
                if self.stopping || (gave_up && self.mount_is_gone()) {
                    self.phase = KeeperPhase::Starting;
                    return true;
                }
            } else if self.stop_now {
                return false;
            }
            tokio::select! {
                () = &mut pause, if !gave_up && !self.waits_for_kernel() => return true,
                // What was needed may have been another disk, which is back.
                () = &mut retry, if self.may_retry() => {
                    self.phase = KeeperPhase::Starting;
                    return true;
                }
                asked = self.commands.recv() => if let Some(asked) = asked {
                    self.serve_command(asked, None).await;
                    if std::mem::take(&mut self.go_on) {
                        self.deaths_count = 0;
                        self.has_one_try = true;
                        return true;
                    }
                },
                () = signals.received() => {
                    self.hear_the_end();
                    self.stopping = true;
                    if self.phase == KeeperPhase::GaveUp {
                        self.detach_mount();
                    }
                }
                _ = look.tick() => {
                    self.service.tell("WATCHDOG=1");
                    self.forget_gone();
                }
            }
        }
    }

    /// A signal to end, while no daemon can be started.
    const fn hear_the_end(&mut self) {
        self.stop_now = self.told_to_end;
        self.told_to_end = true;
    }

    /// Whether somebody took the mount away while nobody served it.
    fn mount_is_gone(&self) -> bool {
        self.descriptors.first().is_some_and(child::has_ended)
    }

    fn forget_mount(&mut self) {
        self.mount_is_over = true;
        self.mount = None;
        self.descriptors.clear();
    }

    /// Gives the mount up: what waits for it is answered with an error.
    fn detach_mount(&mut self) {
        let directory = self.mount.as_ref().map(|mount| mount.directory.clone());
        self.forget_mount();
        if let Some(directory) = directory
            && let Err(error) = crate::serving::mount::detach_given_up(&directory, &self.group)
        {
            tracing::error!(error = error.message(), "the mount stays behind");
        }
    }

    /// Takes away what the first daemon mounted and was killed before it could say. The one that closes
    /// the group leaves no trace by which whoever unmounts would know that the mount is this group's.
    fn remove_unheard_mount(&self) {
        // Once this keeper has left, another one may be mounting there.
        let Some(directory) = self.mount_point.as_deref().filter(|_| !self.has_left) else {
            return;
        };
        if let Err(error) = crate::serving::mount::remove_dead_at(directory, &self.group) {
            tracing::error!(error = error.message(), "the dead mount stays behind");
        }
    }
}
