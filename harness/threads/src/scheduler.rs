//! Who goes on at each point, drawn from a seed.
//!
//! A scheduler that draws anew at every point seldom lets one thread run far while another stands
//! still, which is what most faults need. So a run has a bent of its own: how willingly the current
//! thread goes on, and how often a thread is held up for a long while, as one is that the kernel
//! does not schedule or whose disk is slow.

use std::collections::BTreeMap;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use spindle_device::SeededRandom;

use crate::story::Plot;

/// Draws one execution.
#[derive(Debug)]
pub struct SeededScheduler {
    seed: u64,
    random: SeededRandom,
    has_begun: bool,
    /// Of 1,024 points, how many leave the current thread at work.
    stay: u64,
    /// Of 4,096 points, how many hold up the thread that meets them.
    hold: u64,
    /// How long a hold lasts at most, in points.
    hold_points_most: u64,
    points: u64,
    held_until: BTreeMap<usize, u64>,
}

impl SeededScheduler {
    /// For one execution.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed ^ 0x5eed_0000_7a5c_u64);
        let stay = [0, 512, 900, 1000, 1015][random.index(5)];
        let hold = match Plot::of(seed) {
            // Two long halts at the right places are what it takes.
            Plot::Cuts => [64, 256][random.index(2)],
            Plot::Everything | Plot::Moves => [0, 4, 16, 64][random.index(4)],
        };
        let hold_points_most = [200, 2_000, 20_000][random.index(3)];
        Self {
            seed,
            random,
            has_begun: false,
            stay,
            hold,
            hold_points_most,
            points: 0,
            held_until: BTreeMap::new(),
        }
    }
}

impl Scheduler for SeededScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.has_begun {
            return None;
        }
        self.has_begun = true;
        Some(Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        if runnable.len() == 1 {
            return Some(runnable[0].id());
        }
        self.points += 1;
        let now = self.points;
        let current = current.filter(|id| runnable.iter().any(|task| task.id() == *id));
        if let Some(id) = current
            && self.random.below(4096) < self.hold
        {
            let until = now + 1 + self.random.below(self.hold_points_most);
            self.held_until.insert(usize::from(id), until);
        }
        let held_until = &self.held_until;
        let is_free = |id: TaskId| {
            held_until
                .get(&usize::from(id))
                .is_none_or(|until| *until <= now)
        };
        if let Some(id) = current
            && !is_yielding
            && is_free(id)
            && self.random.below(1024) < self.stay
        {
            return Some(id);
        }
        let mut free: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        if free.iter().any(|id| is_free(*id)) {
            free.retain(|id| is_free(*id));
        }
        if is_yielding && free.len() > 1 {
            free.retain(|id| Some(*id) != current);
        }
        Some(free[self.random.index(free.len())])
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
