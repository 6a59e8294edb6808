//! A daemon whose mount a keeper holds: taking over, handing over, and dying in the right way.
//!
//! Whatever goes wrong in here must leave the mount to the keeper: a process that fails after it
//! was given a mount ends without a word to the kernel, and the next one tries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spindle_group::{Event, EventKind};

use super::{Daemon, ServeOptions};
use crate::api::error::{ControlError, ControlResult};
use crate::serving::keeper::{KeeperLink, Order};
use crate::serving::last_word;

impl Daemon {
    /// Takes the kept mount over, or makes the one that was asked for.
    pub(super) fn mount_at_start(self: &Arc<Self>, options: &ServeOptions) -> ControlResult<()> {
        let file_system = self.opened.file_system();
        let link = self.keeper.as_deref();
        let is_last = link.is_some_and(KeeperLink::is_last);
        let mut clients_return = false;
        for event in link.iter().flat_map(|link| link.events()) {
            self.tell(event);
        }
        if let Some((link, kept)) = link.and_then(|link| Some((link, link.mount()?))) {
            self.mounts
                .take_over(file_system, self.group_name(), link, kept)?;
            let pause = link.pause_ms().map_or_else(String::new, |pause_ms| {
                format!(", {pause_ms} ms after it was left")
            });
            let message = format!(
                "process {} took over the mount on {}{pause}",
                std::process::id(),
                kept.directory.display()
            );
            self.tell(Event::new(EventKind::GroupTakenOver, message));
        } else if link.is_some_and(KeeperLink::mount_is_over) {
            let message = format!(
                "process {} took over the group without a mount",
                std::process::id()
            );
            self.tell(Event::new(EventKind::GroupTakenOver, message));
            clients_return = !is_last && self.exports.are_left();
            if !clients_return && !self.stay && self.mounts.close_if_empty() {
                self.stop_in_order();
            }
        } else if let Some(mount) = &options.mount {
            self.mounts.add(file_system, self.group_name(), mount)?;
        }
        let follows = link.is_some_and(|link| link.generation() > 0);
        if !follows {
            self.exports.forget_former();
        } else if !is_last && !*self.stop.borrow() {
            self.take_over_exports();
            if clients_return {
                // From now on: without any client the group is closed as after any last mount.
                self.mounts.note_lost();
            }
        }
        if self.keeper.is_some() {
            self.listen_to_keeper()?;
        }
        Ok(())
    }

    fn listen_to_keeper(self: &Arc<Self>) -> ControlResult<()> {
        let daemon = self.clone();
        std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || {
                let Some(link) = &daemon.keeper else {
                    return;
                };
                match link.order() {
                    Order::Stop => {}
                    Order::HandOver => daemon.handing_over.store(true, Ordering::Release),
                    Order::Alone => {
                        // From now on its own end must take the mount away.
                        daemon.mounts.own_again();
                        daemon.opened.file_system().write_behind_no_more();
                        let message = "the keeper is gone: the mount now ends with this process";
                        daemon.tell(Event::new(EventKind::KeeperLost, message));
                        return;
                    }
                }
                daemon.stop.send_replace(true);
            })
            .map(|_| ())
            .map_err(|error| ControlError::io("listen to", "the keeper", &error))
    }

    pub(super) fn tell_ready(&self) {
        if let Some(link) = &self.keeper {
            link.ready();
        }
        self.service.tell("READY=1");
        self.service
            .tell(&format!("STATUS=serving {}", self.group_name()));
    }

    /// Has the server end in order. The keeper knows it at once: where this process is killed on the
    /// way, the next one goes on with the end and serves nothing.
    pub(super) fn stop_in_order(&self) {
        if let Some(link) = &self.keeper {
            link.stopping();
        }
        self.stop.send_replace(true);
    }

    /// Background work goes on: the keeper and the service manager need not end this process.
    pub(super) fn tell_alive(&self) {
        if let Some(link) = &self.keeper {
            link.alive();
        }
        self.service.tell("WATCHDOG=1");
    }

    /// Removes files without a name that an earlier process left open and that the kernel has
    /// let go of. `false` where the mount is not taken over yet: nobody can be asked.
    pub(super) fn sweep_orphans(&self) -> bool {
        if self.mounts.is_empty() {
            return false;
        }
        let file_system = self.opened.file_system();
        for id in file_system.doubtful_orphans() {
            if !self.mounts.is_known(id) {
                file_system.disinherit(id);
            }
        }
        true
    }

    /// A panic in a process whose mount is kept must look like one to the keeper.
    pub(super) fn die_where_kept(&self) {
        if self.is_kept() {
            tracing::error!("background work ended by a panic; the next process takes over");
            std::process::abort();
        }
    }

    fn is_kept(&self) -> bool {
        self.keeper.as_ref().is_some_and(|link| !link.is_alone())
    }

    /// Whoever waits for the end shall know how it ended: the keeper says it, who also knows what
    /// is lost, and where there is none this process.
    pub(super) fn tell_how_it_ended(&self, ended: &ControlResult<()>) {
        let closed = (ended.as_ref().copied()).map_err(|error| format!("{error:#}"));
        if !(self.keeper.as_ref()).is_some_and(|link| link.ended(&closed)) {
            let directory = &self.settings.runtime_directory;
            last_word::leave(directory, self.group_name(), &closed);
        }
    }

    /// Ends in order, hands over, or leaves everything to the next process.
    pub(super) fn end(&self, served: &ControlResult<()>) -> ControlResult<()> {
        let Some(link) = self.keeper.as_ref().filter(|link| !link.is_alone()) else {
            return self.close();
        };
        if served.is_err() && link.mount().is_some() {
            self.exports.suspend_all();
            self.mounts.suspend();
            self.opened.release_all();
            return Ok(());
        }
        if !self.handing_over.load(Ordering::Acquire) {
            link.ending();
            return self.close();
        }
        // Most of the work before anybody has to wait for it.
        self.exports.suspend_all();
        if let Err(error) = self.opened.file_system().sync() {
            // One file that lost something, and owes that to its own sync, keeps nothing from being
            // handed over.
            tracing::warn!(%error, "not all could be written before the group is handed over");
        }
        self.mounts.suspend();
        let message = format!("process {} hands over", std::process::id());
        self.tell(Event::new(EventKind::GroupClosed, message));
        let closed = self.opened.close_for_heir();
        self.opened.release_all();
        if let Some(error) = closed? {
            let error = format!("{error:#}");
            tracing::warn!(
                error,
                "what no disk took this process leaves to the next one"
            );
        }
        link.handed_over();
        Ok(())
    }
}
