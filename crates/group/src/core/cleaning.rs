//! Records of dirty regions that are quiet are dropped. A crash leaves more of them to compare.

use spindle_catalog::Edit;
use spindle_format::Feature;
use spindle_sync::level::Unshown;

use crate::core::Core;
use crate::error::GroupError;

impl Core {
    /// One round of cleaning; whether a further one could clean more. The disks are flushed
    /// first, and again by the commit that drops the rows.
    pub(crate) fn clean_round(&self) -> Result<bool, GroupError> {
        if self.dirty.count() == 0 {
            return Ok(false);
        }
        let round = self.dirty.begin_round();
        self.flush_written()?;
        self.notice_offline();
        // Alone, so that nobody records a region between the decision and its edit.
        let _alone = self.change.write(Unshown);
        let mut edit = Edit::default();
        let more = round.end(&mut edit);
        if !edit.is_empty() {
            self.catalog.apply(edit);
        }
        Ok(more)
    }

    /// Rows of regions that are written to list what disks lack, once the group has the feature for it.
    ///
    /// # Errors
    /// Where too few voters take the state that says so.
    pub(crate) fn let_rows_list(&self) -> Result<(), GroupError> {
        match self.dirty.would_list() {
            true => self.have_rows_list(),
            false => Ok(()),
        }
    }

    /// Rows list blocks from now on.
    ///
    /// # Errors
    /// As [`Self::let_rows_list`].
    pub(crate) fn have_rows_list(&self) -> Result<(), GroupError> {
        if !self.dirty.lists_blocks() {
            self.membership.use_feature(Feature::ListedRegions)?;
            self.dirty.list_blocks();
        }
        Ok(())
    }

    /// Cleans all that can be cleaned, for a close: nobody writes any more.
    pub(crate) fn clean_everything(&self) -> Result<(), GroupError> {
        while self.clean_round()? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
