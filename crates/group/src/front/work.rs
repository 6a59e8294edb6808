//! Background work, a unit at a time, driven from outside, and what follows when a run of it ends.

use crate::background::{Ended, Goal, Group, PassStep, Power, Worked};
use crate::error::GroupError;

impl Group {
    /// Does one unit of background work: at most a piece of an extent is copied, or a stretch
    /// scrubbed. Several threads may call it at once, each gets another unit. `now_ms` is any
    /// monotonic clock.
    ///
    /// # Errors
    /// Where the group has to stop, or a commit failed; the work goes on at the next call.
    pub fn work(&self, now_ms: u64) -> Result<Worked, GroupError> {
        self.check_fence()?;
        let idle = Worked {
            did_something: false,
            copied_bytes: 0,
            pause_percent: 0,
        };
        let background = &self.background;
        let power = self.power();
        if power != Power::PAUSED {
            match background.copy(self, now_ms)? {
                PassStep::Nothing => {}
                PassStep::Wait => return Ok(idle),
                PassStep::Did(copied_bytes) => {
                    background.set_copying(true);
                    return Ok(self.worked(copied_bytes, power));
                }
                PassStep::Ended(run) => {
                    background.set_copying(true);
                    self.follow_up(&run)?;
                    return Ok(self.worked(0, power));
                }
            }
        }
        background.set_copying(false);
        let power = self.scrub_power();
        match background.scrub(self, now_ms)? {
            PassStep::Did(copied_bytes) => Ok(self.worked(copied_bytes, power)),
            PassStep::Nothing | PassStep::Wait | PassStep::Ended(_) => Ok(idle),
        }
    }

    fn worked(&self, copied_bytes: u64, power: Power) -> Worked {
        let is_busy = self.background.is_foreground_busy(self);
        Worked {
            did_something: true,
            copied_bytes,
            pause_percent: power.pause_percent(is_busy),
        }
    }

    /// What waited for a run of moves: copies that were all made are what a raised redundancy asked
    /// for, and a disk that nothing lies on any more may go.
    fn follow_up(&self, run: &Ended) -> Result<(), GroupError> {
        if run.goal == Goal::Restore && run.left_count == 0 {
            self.finish_raised_redundancy()?;
        }
        self.background.mover(run.goal).tell(self, run)?;
        self.forget_empty_disks()?;
        Ok(())
    }
}
