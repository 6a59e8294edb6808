//! Volumes of a served group: no size or name changes under a client that does not expect it.

use std::path::Path;
use std::sync::Arc;

use super::Daemon;
use crate::api::calls::{AddExport, RemoveExport, ResizeVolume};
use crate::api::error::ControlResult;
use crate::api::volume::{ExportReport, VolumeReport};
use crate::opened::files::KernelCache;

impl Daemon {
    /// What is exported.
    #[must_use]
    pub(in crate::serving) fn exports(&self) -> Vec<ExportReport> {
        self.exports.reports()
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// Where it is none, it is exported already, or the socket cannot be made.
    pub(in crate::serving) fn add_export(&self, call: &AddExport) -> ControlResult<ExportReport> {
        let kernel = self.mounts.clone();
        self.exports.add(&self.opened, &self.files, kernel, call)
    }

    /// Exports what the process before this one left.
    pub(super) fn take_over_exports(&self) {
        let kernel: Arc<dyn KernelCache> = self.mounts.clone();
        (self.exports).take_over(&self.opened, &self.files, &kernel);
        self.exports.await_clients();
    }

    /// Ends an export.
    ///
    /// # Errors
    /// Where there is none, or clients are connected.
    pub(in crate::serving) fn remove_export(
        &self,
        call: &RemoveExport,
    ) -> ControlResult<ExportReport> {
        // Also of a volume that was removed through a mount.
        let path = crate::opened::files::normal(&call.path)?;
        self.exports.remove(&path, self.group_name(), call.force)
    }

    /// Gives a volume another size. One that is exported can grow: who connects from then on sees it,
    /// and who is connected goes on with what it knows.
    ///
    /// # Errors
    /// Where it is none, or is exported and to become smaller.
    pub(in crate::serving) fn resize_volume(
        &self,
        call: &ResizeVolume,
    ) -> ControlResult<VolumeReport> {
        let (attributes, path) = self.files.volume(&call.path)?;
        let name = self.files.volume_name(&path);
        let alone = self.exports.take_alone(attributes.id, &name)?;
        // Somebody else may have made it larger until then, and a client have seen that.
        if call.size_bytes < self.files.volume(&path)?.0.size_bytes {
            alone.refuse_exported(&name)?;
        }
        self.files
            .resize_volume(&call.path, call.size_bytes, call.shrink)
    }

    /// Removes a volume that is not exported.
    ///
    /// # Errors
    /// Where it is none, or is exported.
    pub(in crate::serving) fn drop_volume(&self, path: &Path) -> ControlResult<VolumeReport> {
        let (attributes, path) = self.files.volume(path)?;
        let name = self.files.volume_name(&path);
        let _alone = self.exports.keep_out(attributes.id, &name)?;
        self.files.drop_volume(&path)
    }
}
