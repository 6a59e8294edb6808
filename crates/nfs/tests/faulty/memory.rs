//! What the server has in memory, and what it makes durable or forgets.

use super::Server;

/// What the server writes at once.
const BLOCK_BYTES: usize = 4096;

impl Server {
    /// Some of what is not durable is gone.
    pub fn forget(&mut self) {
        for at in (0..self.current.len()).step_by(BLOCK_BYTES) {
            let block = at..at + BLOCK_BYTES;
            if self.current[block.clone()] == self.durable[block.clone()] {
                continue;
            }
            if self.random.chance(1, 2) && !self.unwritable.contains(&(at / BLOCK_BYTES)) {
                // The server's own kernel had written it out by chance.
                self.durable[block.clone()].copy_from_slice(&self.current[block]);
            } else {
                self.current[block.clone()].copy_from_slice(&self.durable[block]);
                self.lost_blocks += 1;
            }
        }
        self.unwritable.clear();
    }

    /// Makes everything durable but what is taken for it already; or fails, and takes all for it.
    pub fn commit(&mut self) -> bool {
        let is_refused = self.commits_to_refuse > 0 || self.meets(self.faults.refused_commits);
        self.commits_to_refuse = self.commits_to_refuse.saturating_sub(1);
        self.refused_commits += u64::from(is_refused);
        for at in (0..self.current.len()).step_by(BLOCK_BYTES) {
            let block = at..at + BLOCK_BYTES;
            if self.current[block.clone()] == self.durable[block.clone()] {
                continue;
            }
            if is_refused {
                self.unwritable.insert(at / BLOCK_BYTES);
            } else if !self.unwritable.contains(&(at / BLOCK_BYTES)) {
                self.durable[block.clone()].copy_from_slice(&self.current[block]);
            }
        }
        !is_refused
    }
}
