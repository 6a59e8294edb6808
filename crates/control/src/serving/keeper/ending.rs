//! The end of the keeper: who is told what became of the group, and what is lost with this process.

use std::collections::BTreeSet;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_device::SharedMemory;
use spindle_group::UnwrittenBlocks;

use super::Keeper;
use crate::serving::last_word;

impl Keeper {
    /// Nobody shall find this keeper any more. Once only: the next keeper may have its socket in
    /// the same place a moment later.
    pub(super) fn leave_socket(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    /// A daemon has ended in order; the exit code. Whoever asked for it is told where the group is
    /// not closed or something is lost.
    pub(super) fn tell_how_it_ended(&mut self, code: u8) -> u8 {
        if !self.was_ready && !self.is_unserved {
            return code;
        }
        // One of an earlier version says nothing where it has closed the group, and ends with 0.
        let closed = (self.closed.take()).unwrap_or_else(|| match code {
            0 => Ok(()),
            _ => Err("see the log".to_owned()),
        });
        if code == 0 && closed.is_ok() && self.blocks_left().is_none() {
            last_word::leave(&self.runtime_directory, &self.group, &Ok(()));
            return code;
        }
        self.leave_word(closed.err().unwrap_or_else(|| "see the log".to_owned()));
        if code == 0 {
            return spindle_base::ErrorClass::Environment.exit_code();
        }
        code
    }

    /// Says in the log, and to whoever waits for this end, why the group is not closed and what is
    /// lost by it.
    pub(super) fn leave_word(&self, mut why: String) {
        if let Some((left_kib, files_count)) = self.blocks_left() {
            tracing::error!(
                group = self.group,
                "{left_kib} KiB that were written to {files_count} files and not synced are lost"
            );
            why = format!(
                "{why}; {left_kib} KiB in {files_count} files that were written and not synced are lost"
            );
        }
        last_word::leave(&self.runtime_directory, &self.group, &Err(why));
    }

    /// Blocks that no daemon could write, which end with this process's memory: how many KiB, of
    /// how many files.
    fn blocks_left(&self) -> Option<(u64, usize)> {
        let [_, unwritten] = &self.memories;
        let descriptor = unwritten.descriptor().try_clone_to_owned();
        let memory = descriptor.and_then(SharedMemory::from_descriptor).ok()?;
        let left = UnwrittenBlocks::new(memory).ok()?.left();
        let files: BTreeSet<FileId> = left.iter().map(|block| block.file).collect();
        let left_kib = left.len() as u64 * BLOCK_SIZE_BYTES / 1024;
        (!left.is_empty()).then_some((left_kib, files.len()))
    }

    pub(super) fn end(&mut self) {
        self.leave_socket();
        self.service.tell("STOPPING=1");
    }
}
