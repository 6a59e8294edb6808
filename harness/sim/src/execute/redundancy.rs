//! Files and the group get another redundancy in the midst of everything. What was answered is
//! there after every power cut; what was refused has changed nothing.

use spindle_base::{FileId, Redundancy};
use spindle_fs::FsError;

use crate::fault::pick;
use crate::run::{Answer, Run, Step};

const ALL: [Redundancy; 3] = [Redundancy::External, Redundancy::Normal, Redundancy::High];

impl Run {
    /// A file or a directory, or every eighth time the group.
    pub(super) fn convert(&mut self, file: u64, number: u64) -> Step<()> {
        let mut allowed: Vec<Redundancy> = (ALL.into_iter())
            .filter(|redundancy| *redundancy >= self.least_redundancy())
            .collect();
        if (number >> 8).is_multiple_of(8) {
            let redundancy = pick(&allowed, number).unwrap_or(Redundancy::High);
            return self.convert_group(redundancy);
        }
        let mut ids = self.model.names().files();
        if (number >> 16).is_multiple_of(6) {
            ids = self.model.names().directories();
        }
        let Some(id) = pick(&ids, file) else {
            return Ok(());
        };
        let before = self.redundancy_of(id);
        allowed.retain(|redundancy| Some(*redundancy) != before);
        let Some(redundancy) = pick(&allowed, number) else {
            return Ok(());
        };
        let recursive = (number >> 24).is_multiple_of(2);
        self.note(format!("file or directory {id} to {redundancy}"));
        let result = self.system().set_redundancy(id, redundancy, recursive);
        if let Err(FsError::Group(error)) = &result
            && self.disks.is_powered()
            && self.is_refusal(error)
        {
            self.note(format!("refused: {error}"));
            self.coverage.refused_changes += 1;
            if error.kind != spindle_group::GroupErrorKind::Io && self.redundancy_of(id) != before {
                return Err(Self::wrong("a change of redundancy was refused and made"));
            }
            self.redundancies.clear();
            return Ok(());
        }
        match self.judge("a change of redundancy", result)? {
            Answer::Done(converted) => {
                self.coverage.conversions += converted.files_count;
                if !recursive || self.redundancy_of(id).is_some() {
                    self.expect_redundancy(id, redundancy);
                } else {
                    self.redundancies.clear();
                }
            }
            _ => self.redundancies.clear(),
        }
        Ok(())
    }

    fn convert_group(&mut self, redundancy: Redundancy) -> Step<()> {
        self.note(format!("the group to {redundancy}"));
        self.redundancies.clear();
        let result = self.system().convert_group(redundancy);
        if let Err(FsError::Group(error)) = &result
            && self.disks.is_powered()
            && self.is_refusal(error)
        {
            self.note(format!("refused: {error}"));
            self.coverage.refused_changes += 1;
            return Ok(());
        }
        if let Answer::Done(converted) = self.judge("a change of the group", result)? {
            self.coverage.conversions += converted.files_count;
        }
        Ok(())
    }

    /// Fewer copies than faults may take are no promise that could be kept.
    fn least_redundancy(&self) -> Redundancy {
        if self.shelf.iter().any(|disk| disk.may_fail) {
            self.plan.redundancy
        } else {
            Redundancy::External
        }
    }

    fn redundancy_of(&self, id: FileId) -> Option<Redundancy> {
        let group = self.group();
        let file = group.file(id)?;
        Some(group.layout(&file).redundancy)
    }

    fn expect_redundancy(&mut self, id: FileId, redundancy: Redundancy) {
        if self.redundancy_of(id).is_some() {
            self.redundancies.insert(id, redundancy);
        }
    }

    /// What was answered is so: nobody has to ask again after a power cut.
    pub(crate) fn check_redundancies(&self) -> Step<()> {
        for (id, redundancy) in &self.redundancies {
            let Some(found) = self.redundancy_of(*id) else {
                continue;
            };
            if found != *redundancy {
                return Err(Self::wrong(&format!(
                    "file {id} has {found} redundancy where {redundancy} was answered"
                )));
            }
        }
        Ok(())
    }
}
