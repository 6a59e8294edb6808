//! The exports of a served group: volumes, each at a Unix socket of its own.
//!
//! **Invariant.** The lock is held to look and to change the list, never while a client or a disk is
//! waited for. Whoever is about to add or to end one has its name in the list of those under way, so
//! that nobody else does so with the same volume.
//!
//! A crash of this process ends the connections of its clients. Where a keeper starts the next process,
//! that exports the same volumes at the same sockets ([`left`]), and a client that connects again goes
//! on: a request that was not answered is its own to send again. Where no mount is left they have some
//! seconds for that. Else the socket that was left is taken away by the next process that serves the
//! group, or by a keeper that nobody follows, or replaced when the volume is exported there again.

mod exported_file;
mod left;
mod socket;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spindle_base::FileId;
use spindle_nbd::Server;

use crate::api::calls::AddExport;
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::volume::ExportReport;
use crate::opened::files::{KernelCache, OpenFiles};
use crate::opened::open::Opened;
use exported_file::ExportedFile;
use left::{LeftExport, LeftExports};
use socket::{ExportSocket, SocketIdentity};

/// How long requests under way are waited for when an export ends.
const STOP_MOST: Duration = Duration::from_secs(5);
/// How long the clients of a former process are waited for, where nothing else keeps the group open.
/// They try each few seconds.
const RETURN_MOST: Duration = Duration::from_secs(10);

/// A volume that is served.
#[derive(Debug)]
struct Export {
    path: PathBuf,
    id: FileId,
    name: String,
    is_read_only: bool,
    socket: ExportSocket,
    server: Server,
}

impl Export {
    fn report(&self) -> ExportReport {
        ExportReport {
            path: self.path.display().to_string(),
            id: self.id.0,
            name: self.name.clone(),
            socket: self.socket.path().display().to_string(),
            read_only: self.is_read_only,
            connections_count: self.server.connections_count(),
        }
    }

    /// Ends it; what is under way is waited for, not for ever.
    fn stop(&self) {
        self.socket.remove();
        self.stop_serving();
    }

    /// The same, and the socket stays, at which nobody listens then.
    fn stop_serving(&self) {
        if !self.server.stop(STOP_MOST) {
            tracing::warn!(export = %self.name, "requests under way were not waited for any longer");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    exports: Vec<Arc<Export>>,
    /// Volumes of which somebody is about to add or end the export, or to change the size or the name.
    under_way: Vec<FileId>,
    /// The process ends: none is added any more.
    is_closed: bool,
    /// Until then clients of a former process may come back.
    awaited_until: Option<Instant>,
}

/// Every export of one group.
#[derive(Debug)]
pub(super) struct Exports {
    state: Mutex<State>,
    left: LeftExports,
}

/// A volume that nobody else exports, changes or ends meanwhile.
#[derive(Debug)]
pub(super) struct Alone<'a> {
    exports: &'a Exports,
    id: FileId,
    /// Of the volume, where it has one.
    export: Option<Arc<Export>>,
}

impl Alone<'_> {
    /// Refuses where the volume is exported.
    ///
    /// # Errors
    /// Where that is so.
    pub(super) fn refuse_exported(&self, name: &str) -> ControlResult<()> {
        let Some(export) = &self.export else {
            return Ok(());
        };
        Err(ControlError::new(
            ControlErrorKind::Busy,
            format!(
                "{name} is exported at {}: `spindle volume unexport {name}` ends that",
                export.socket.path().display()
            ),
        ))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut state = self.exports.state.lock();
        state.under_way.retain(|other| *other != self.id);
    }
}

impl Exports {
    /// None yet.
    #[must_use]
    pub(super) fn new(runtime_directory: &Path, group: &str) -> Self {
        Self {
            state: Mutex::default(),
            left: LeftExports::new(runtime_directory, group),
        }
    }

    /// Exports what a former process left. What cannot be exported again is told in the log, and the
    /// group is served without it.
    pub(super) fn take_over(
        &self,
        opened: &Opened,
        files: &OpenFiles,
        kernel: &Arc<dyn KernelCache>,
    ) {
        for LeftExport {
            report: export,
            socket,
        } in self.left.read()
        {
            let call = AddExport {
                path: PathBuf::from(&export.path),
                socket: PathBuf::from(&export.socket),
                read_only: export.read_only,
            };
            let is_same = |id: FileId| id.0 == export.id;
            let same = (files.volume(&call.path)).is_ok_and(|(volume, _)| is_same(volume.id));
            let added = if same {
                let kernel = kernel.clone();
                self.add_in_place_of(opened, files, kernel, &call, Some(socket))
                    .map(|_| ())
            } else {
                Err(ControlError::not_found(
                    "its file has another name or is gone",
                ))
            };
            if let Err(error) = added {
                tracing::error!(export = %export.name, "is exported no more: {error:#}");
                socket::remove_left(&call.socket, socket);
            }
        }
        // Not before: were this process killed in the midst of it, the next one would find a part.
        self.left.write(|| self.left_to_the_next());
    }

    /// Nobody is to export again what a former process did.
    pub(super) fn forget_former(&self) {
        self.left.clear();
    }

    /// Whether a former process left any.
    #[must_use]
    pub(super) fn are_left(&self) -> bool {
        !self.left.read().is_empty()
    }

    /// Clients that lost a former process are waited for, for a while.
    pub(super) fn await_clients(&self) {
        self.state.lock().awaited_until = Some(Instant::now() + RETURN_MOST);
    }

    /// Whether clients are connected, or are still to come back.
    #[must_use]
    pub(super) fn are_needed(&self) -> bool {
        let state = self.state.lock();
        let is_awaited = |until| Instant::now() < until;
        let exports = &state.exports;
        !exports.is_empty() && state.awaited_until.is_some_and(is_awaited)
            || exports
                .iter()
                .any(|export| refuse_while_used(export).is_err())
    }

    /// Keeps others from the volume until the answer is dropped; and its export, where it has one.
    ///
    /// # Errors
    /// Where somebody else has it so, or the process is about to end.
    pub(super) fn take_alone(&self, id: FileId, name: &str) -> ControlResult<Alone<'_>> {
        let mut state = self.state.lock();
        let busy = |what: &str| Err(ControlError::new(ControlErrorKind::Busy, what));
        if state.is_closed {
            let told = "the process that serves the group is about to end: try again";
            return Err(ControlError::new(ControlErrorKind::Ending, told));
        }
        if state.under_way.contains(&id) {
            return busy(&format!("{name} is being exported, unexported or changed"));
        }
        state.under_way.push(id);
        let export = state.exports.iter().find(|export| export.id == id);
        let export = export.cloned();
        Ok(Alone {
            exports: self,
            id,
            export,
        })
    }

    /// Keeps a volume that is not exported from being exported until the answer is dropped.
    ///
    /// # Errors
    /// Where it is exported.
    pub(super) fn keep_out(&self, id: FileId, name: &str) -> ControlResult<Alone<'_>> {
        let alone = self.take_alone(id, name)?;
        alone.refuse_exported(name)?;
        Ok(alone)
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// Where it is none, it is exported already, or the socket cannot be made.
    pub(super) fn add(
        &self,
        opened: &Opened,
        files: &OpenFiles,
        kernel: Arc<dyn KernelCache>,
        call: &AddExport,
    ) -> ControlResult<ExportReport> {
        let report = self.add_in_place_of(opened, files, kernel, call, None)?;
        self.left.write(|| self.left_to_the_next());
        Ok(report)
    }

    fn add_in_place_of(
        &self,
        opened: &Opened,
        files: &OpenFiles,
        kernel: Arc<dyn KernelCache>,
        call: &AddExport,
        former: Option<SocketIdentity>,
    ) -> ControlResult<ExportReport> {
        let (attributes, path) = files.volume(&call.path)?;
        let name = files.volume_name(&path);
        let alone = self.keep_out(attributes.id, &name)?;
        let file_system = opened.file_system().clone();
        let handle = file_system.open_file(attributes.id)?;
        let (socket, listener) = ExportSocket::bind(&call.socket, former)?;
        // What programs changed through a shared mapping is to be seen by the clients.
        kernel.write_back(attributes.id);
        let file = ExportedFile {
            file_system,
            handle,
            kernel,
            is_read_only: call.read_only,
        };
        let description = format!("volume {name}");
        let server = Server::new(name.clone(), description, Arc::new(file));
        let export = Arc::new(Export {
            path,
            id: attributes.id,
            name,
            is_read_only: call.read_only,
            socket,
            server,
        });
        if let Err(error) = export.server.listen(listener) {
            export.socket.remove();
            let socket = call.socket.display();
            return Err(ControlError::io("listen at", socket, &error));
        }
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            export.stop();
            let told = "the process that serves the group is about to end";
            return Err(ControlError::new(ControlErrorKind::Ending, told));
        }
        state.exports.push(export.clone());
        drop(state);
        drop(alone);
        tracing::info!(export = %export.name, socket = %call.socket.display(), "exported");
        Ok(export.report())
    }

    /// Ends the export of a volume.
    ///
    /// # Errors
    /// Where it is not exported, or clients are connected and `force` does not say so.
    pub(super) fn remove(
        &self,
        path: &Path,
        group_name: &str,
        force: bool,
    ) -> ControlResult<ExportReport> {
        let name = format!("{group_name}:{}", path.display());
        let none = || ControlError::not_found(format!("{name} is not exported"));
        let is_it = |export: &&Arc<Export>| export.path == path;
        let found = self.state.lock().exports.iter().find(is_it).cloned();
        let id = found.ok_or_else(none)?.id;
        let alone = self.take_alone(id, &name)?;
        let export = alone.export.clone().ok_or_else(none)?;
        let report = export.report();
        if !force {
            refuse_while_used(&export)?;
        }
        export.stop();
        (self.state.lock().exports).retain(|other| other.id != id);
        self.left.write(|| self.left_to_the_next());
        drop(alone);
        Ok(report)
    }

    /// Refuses while a client of an export is connected.
    ///
    /// # Errors
    /// Where that is so.
    pub(super) fn refuse_while_used(&self) -> ControlResult<()> {
        let exports = self.state.lock().exports.clone();
        exports
            .iter()
            .try_for_each(|export| refuse_while_used(export))
    }

    /// Ends every export and lets none be added any more: the process is ending, and so is what it
    /// served.
    pub(super) fn stop_all(&self) {
        self.end_all(Export::stop);
        self.left.clear();
    }

    /// The same, for a process that goes on with all of them: their sockets and their list stay.
    pub(super) fn suspend_all(&self) {
        self.end_all(Export::stop_serving);
    }

    fn end_all(&self, end: impl Fn(&Export) + Sync) {
        let exports = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.exports)
        };
        // None of them waits for the others' clients.
        std::thread::scope(|scope| {
            for export in &exports {
                scope.spawn(|| end(export));
            }
        });
    }

    fn left_to_the_next(&self) -> Vec<LeftExport> {
        let exports = self.state.lock().exports.clone();
        let left = exports.iter().map(|export| LeftExport {
            report: export.report(),
            socket: export.socket.identity(),
        });
        left.collect()
    }

    /// What is exported.
    #[must_use]
    pub(super) fn reports(&self) -> Vec<ExportReport> {
        let exports = self.state.lock().exports.clone();
        exports.iter().map(|export| export.report()).collect()
    }
}

/// Nobody serves the group any more, and none of its exports is to be found.
pub(super) fn forget_left(runtime_directory: &Path, group: &str) {
    LeftExports::new(runtime_directory, group).clear();
}

fn refuse_while_used(export: &Export) -> ControlResult<()> {
    let clients = match export.server.connections_count() {
        0 => return Ok(()),
        1 => "1 client".to_owned(),
        count => format!("{count} clients"),
    };
    Err(ControlError::new(
        ControlErrorKind::Busy,
        format!(
            "{clients} of {0} connected at {1}: disconnect first, or cut off with `spindle volume unexport {0} --force`",
            export.name,
            export.socket.path().display()
        ),
    ))
}
