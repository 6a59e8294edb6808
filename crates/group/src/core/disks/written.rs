//! What a batch has written, to be covered by a flush.

use smallvec::SmallVec;
use spindle_base::DiskNumber;

use crate::core::disks::Target;
use crate::core::file::File;
use crate::incarnation::Life;

/// The writes of one batch, one target for each disk.
#[derive(Debug)]
#[must_use = "whose sync covers it has to be said"]
pub struct Written(SmallVec<[Target; 4]>);

impl Written {
    pub(crate) fn new(targets: impl Iterator<Item = Target>) -> Self {
        Self(targets.collect())
    }

    /// The next sync of the file covers it.
    pub fn of_file(&self, file: &File) {
        for target in &self.0 {
            file.note_written(*target);
        }
    }

    /// No sync of a file asks for it; the next commit covers it, as everything that was written.
    pub fn of_next_commit(&self) {}

    /// These disks failed it: they have nothing of it, whatever becomes of them.
    pub fn leave_out(&mut self, failed: impl Fn(DiskNumber) -> bool) {
        self.0.retain(|target| !failed(target.life.disk));
    }

    /// By disk, the last of its writes.
    pub fn targets(&self) -> &[Target] {
        &self.0
    }

    /// The disks, as they were when it went out.
    pub fn lives(&self) -> impl Iterator<Item = Life> {
        self.0.iter().map(|target| target.life)
    }
}
