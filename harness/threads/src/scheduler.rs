//! Who goes on at each point, drawn from a seed.
//!
//! A scheduler that draws anew at every point seldom lets one thread run far while another stands
//! still, which is what most faults need. So a run has a bent of its own: how willingly the current
//! thread goes on, and how often a thread is held up for a long while, as one is that the kernel
//! does not schedule or whose disk is slow. Where the plot asks for it, whoever lets another thread
//! go on that waited is held up just there: what it does after it let go of a lock meets what others
//! do who waited for the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use spindle_device::SeededRandom;

use crate::clock::Clock;
use crate::story::{Cutting, Plot};

/// One in so many points at which everybody is held up who could go on lets time pass.
const PASSES_OVER_HELD: u64 = 16;

/// Draws one execution.
#[derive(Debug)]
pub struct SeededScheduler {
    seed: u64,
    clock: Arc<Clock>,
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
    /// Of 1,024 threads that let another one go on which waited for them, how many are held up there,
    /// as one is that the kernel takes the processor from for whom it wakes.
    give_way: u64,
    /// Who was woken so, and goes on undisturbed until then.
    slice: Option<(TaskId, u64)>,
    /// Who could go on at the point before this one.
    awake_before: Vec<TaskId>,
}

impl SeededScheduler {
    /// For one execution, by this clock.
    #[must_use]
    pub fn new(seed: u64, clock: Arc<Clock>) -> Self {
        let mut random = SeededRandom::new(seed ^ 0x5eed_0000_7a5c_u64);
        let stay = [0, 512, 900, 1000, 1015][random.index(5)];
        let hold = match Plot::of(seed) {
            // Two long halts at the right places are what it takes.
            Plot::Cuts(_) => [64, 256][random.index(2)],
            Plot::Changes(_) => [16, 64, 256][random.index(3)],
            Plot::Everything | Plot::Moves | Plot::Hangs | Plot::Flushes(_) | Plot::Places => {
                [0, 4, 16, 64][random.index(4)]
            }
        };
        let give_way = match Plot::of(seed) {
            Plot::Cuts(Cutting::AfterSync) => [128, 256, 512][random.index(3)],
            _ => 0,
        };
        let hold_points_most = [200, 2_000, 20_000][random.index(3)];
        Self {
            seed,
            clock,
            random,
            has_begun: false,
            stay,
            hold,
            hold_points_most,
            points: 0,
            held_until: BTreeMap::new(),
            give_way,
            awake_before: Vec::new(),
            slice: None,
        }
    }
}

impl SeededScheduler {
    fn is_free(&self, task: TaskId) -> bool {
        let until = self.held_until.get(&usize::from(task));
        until.is_none_or(|until| *until <= self.points)
    }

    /// Who waited for the current thread until now, and goes on in its place for a while.
    fn preempting(&mut self, current: Option<TaskId>, awake: &[TaskId]) -> Option<TaskId> {
        if self.give_way == 0 {
            return None;
        }
        let before = std::mem::replace(&mut self.awake_before, awake.to_vec());
        let woken: Vec<TaskId> = (awake.iter().copied())
            .filter(|id| !before.contains(id) && Some(*id) != current)
            .collect();
        let current = current.filter(|_| !woken.is_empty())?;
        if self.random.below(1024) >= self.give_way {
            return None;
        }
        let next = woken[self.random.index(woken.len())];
        let until = self.points + 1 + self.random.below(self.hold_points_most);
        self.held_until.insert(usize::from(current), until);
        self.held_until.remove(&usize::from(next));
        self.slice = Some((next, until));
        Some(next)
    }

    /// Those that wait for no time, which passes where there are none, and at times where all of them
    /// are held up.
    fn awake(&mut self, runnable: &[&Task], current: Option<TaskId>) -> Vec<TaskId> {
        let all = || runnable.iter().map(|task| task.id());
        if !self.clock.is_simulated() {
            return all().collect();
        }
        if let Some(id) = current {
            self.clock.came_to_point(id);
        }
        let clock = Arc::clone(&self.clock);
        let awake = || -> Vec<TaskId> { all().filter(|id| !clock.is_waiting(*id)).collect() };
        let found = awake();
        let is_somebody_held = !found.is_empty();
        if found.iter().any(|id| self.is_free(*id))
            || (is_somebody_held && self.random.below(PASSES_OVER_HELD) > 0)
        {
            return found;
        }
        clock.pass(is_somebody_held);
        awake()
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
        let mut awake = self.awake(runnable, current);
        if let [only] = awake[..] {
            return Some(only);
        }
        self.points += 1;
        let now = self.points;
        let current = current.filter(|id| awake.contains(id));
        if let Some(next) = self.preempting(current, &awake) {
            return Some(next);
        }
        if let Some(id) = current
            && !is_yielding
            && self
                .slice
                .is_some_and(|(of, until)| of == id && now < until)
        {
            return Some(id);
        }
        if let Some(id) = current
            && self.random.below(4096) < self.hold
        {
            let until = now + 1 + self.random.below(self.hold_points_most);
            self.held_until.insert(usize::from(id), until);
        }
        if let Some(id) = current
            && !is_yielding
            && self.is_free(id)
            && self.random.below(1024) < self.stay
        {
            return Some(id);
        }
        if awake.iter().any(|id| self.is_free(*id)) {
            awake.retain(|id| self.is_free(*id));
        }
        if is_yielding && awake.len() > 1 {
            awake.retain(|id| Some(*id) != current);
        }
        Some(awake[self.random.index(awake.len())])
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
