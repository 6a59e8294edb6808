//! Carrying out one operation on the file system and on the model, and comparing the answers.

mod bytes;
mod disks;
mod names;
mod redundancy;
mod slow;

use std::collections::BTreeSet;
use std::sync::Arc;

use spindle_base::{DiskNumber, FileId};
use spindle_fs::FsError;
use spindle_group::ExtentView;

use crate::fault::pick;
use crate::operation::{Operation, Place};
use crate::run::{Answer, Run, Step, Stop};

/// No file of a run grows beyond this, so that a run stays short.
const SIZE_BYTES_MAX: u64 = 7 << 20;

/// Near what an attribute may have.
const BULK_VALUE_BYTES: u64 = 60 << 10;
/// So many of these are less than what all attributes of a file may have.
const BULK_FILE_COUNT: u64 = 16;

impl Run {
    pub(crate) fn execute(&mut self, operation: Operation) -> Step<()> {
        match operation {
            Operation::Names(operation) => self.execute_on_names(operation),
            Operation::Bytes(operation) => self.execute_on_bytes(operation),
            Operation::KeepOpen { file } => self.keep_open(file),
            Operation::CloseKept { file } => {
                let ids: Vec<FileId> = self.kept.keys().copied().collect();
                if let Some(id) = pick(&ids, file) {
                    self.note(format!("closes file {id}"));
                    self.kept.remove(&id);
                }
                Ok(())
            }
            Operation::SyncFile { file, data_only } => self.sync_file(file, data_only),
            Operation::Sync => self.sync(),
            Operation::Background { steps } => self.background(steps),
            Operation::Fill { file, left_bytes } => self.fill(file, left_bytes),
            Operation::Bulk { file, count } => (0..count)
                .filter(|_| self.disks.is_powered())
                .collect::<Vec<u64>>()
                .into_iter()
                .try_for_each(|number| {
                    // One file takes no more.
                    let file = file.wrapping_add(number / BULK_FILE_COUNT);
                    self.set_extended(file, 100 + number, BULK_VALUE_BYTES)
                }),
            Operation::Check => self.check_group(),
            Operation::CloseAndReopen => self.close_and_reopen(),
            Operation::Kill => self.kill(),
            Operation::Crash => {
                self.disks.crash();
                Ok(())
            }
            Operation::CrashAfter {
                requests,
                and_in_recovery,
            } => {
                self.disks.power_fails_after(requests);
                self.cut_in_recovery = and_in_recovery;
                Ok(())
            }
            Operation::Fault { disk, fault } => self.put_fault(disk, fault),
            Operation::Disks(operation) => self.execute_on_disks(operation),
        }
    }

    pub(crate) fn sync(&mut self) -> Step<()> {
        self.sync_group("sync")
    }

    pub(crate) fn sync_group(&mut self, what: &str) -> Step<()> {
        let result = self.system().sync();
        match self.judge(what, result)? {
            Answer::Done(()) => {
                let kept = self.kept_ids();
                self.model.synced(&kept);
            }
            Answer::Failed => self.may_have_lost_what_lies_alone(),
            Answer::PowerLost | Answer::Full => {}
        }
        Ok(())
    }

    /// A sync of the group answered that something was lost, and does not say of which files; or a
    /// kill or power cut came after faults and before any sync could tell. It can be files with an
    /// extent that lies in one place only, or of which one disk alone that may fail has a copy and
    /// serves. Of a mirrored file that has its copies nothing was lost.
    pub(crate) fn may_have_lost_what_lies_alone(&mut self) {
        let group = Arc::clone(self.system().group());
        let clock = self.model.clock;
        let view = group.view();
        let serving: BTreeSet<DiskNumber> = (view.disks.iter())
            .filter(|disk| disk.mode == "online")
            .map(|disk| disk.number)
            .collect();
        let failing: BTreeSet<DiskNumber> = (self.failing_slots().into_iter())
            .filter_map(|slot| self.number_of(slot))
            .collect();
        for (id, content) in &mut self.model.contents {
            let lies_alone = |extent: ExtentView| {
                let copies = || extent.copies.iter().flatten().map(|(disk, _)| disk);
                let mut here = copies().filter(|disk| serving.contains(disk));
                let is_alone = match (here.next(), here.next()) {
                    (None, _) => true,
                    (Some(disk), None) => failing.contains(disk),
                    (Some(_), Some(_)) => false,
                };
                copies().count() == 1 || is_alone
            };
            let file = group.file(*id);
            if file.is_some_and(|file| group.map(&file).into_iter().any(lies_alone)) {
                content.tell_of_loss(clock);
            }
        }
    }

    pub(crate) fn background(&mut self, steps: u64) -> Step<()> {
        let now_s = self.model.clock * 60;
        let heartbeat = self.system().group().heartbeat(now_s);
        let heartbeat = heartbeat.map_err(FsError::Group);
        if !matches!(self.judge("a heartbeat", heartbeat)?, Answer::Done(())) {
            return Ok(());
        }
        for step in 0..steps {
            let now_ms = self.model.clock * 1000 + step;
            let result = self.system().step(now_ms);
            if !matches!(self.judge("a background step", result)?, Answer::Done(_)) {
                break;
            }
        }
        Ok(())
    }

    /// The offset a place means in a file of that size.
    fn offset_bytes(place: Place, size_bytes: u64) -> u64 {
        match place {
            Place::Inside(millionths) => size_bytes * millionths / 1_000_000,
            Place::End => size_bytes,
            Place::At(offset_bytes) => offset_bytes,
            Place::Beyond(bytes) => size_bytes + bytes,
        }
        .min(SIZE_BYTES_MAX)
    }

    pub(crate) fn wrong(what: &str) -> Stop {
        Stop::Violation(what.to_owned())
    }
}
