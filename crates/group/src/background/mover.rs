//! A pass that moves copies as a plan says: RESTORE and REBALANCE.
//!
//! Several threads may call it; each call copies one piece. The plan is made and asked under the
//! pass's own lock, the copying is done without it. A move whose target has no room yet waits
//! until others have made some: in a nearly full group a disk must give before it can get, and a
//! plan is not given up for the order in which it is carried out. When a plan is carried out the
//! state is looked at anew, and what is left (files that grew, targets that had no room in the
//! end) is planned with more effort, until nothing moves any more. Nothing of a run is durable:
//! after a crash the state is looked at again.

use std::collections::VecDeque;

use spindle_base::{BLOCK_SIZE_BYTES, FileId};
use spindle_format::{DiskState, DiskStatus, ExtentCopy};
use spindle_sync::level::DeepMutex;

use crate::background::Group;
use crate::background::operations::{Meter, OperationState, OperationView, Pass};
use crate::background::planner::{FileEntry, Goal, Maps, Move, Plan, PlanDisk, Role};
use crate::background::power::Power;
use crate::background::relocation::{Refusal, Relocation, Step};
use crate::background::{BackgroundPass, Ended, PassStep};
use crate::core::Core;
use crate::error::GroupError;
use crate::event::{Event, EventKind};
use crate::levels;

/// Moves that are taken from the plan in one go.
const MOVES_MOST: usize = 64;
/// Moves that wait for room; what comes on top is left to the next plan.
const WAITING_MOST: usize = 4096;
/// Plans made until whatever is left is left.
const EFFORT_MOST: u8 = 8;
/// A plan of no effort may move nothing, because each of many small files has less to give than an
/// extent, although a disk holds much more than its share in sum; and one of little effort, because
/// room has to be made for what fits. So plans are made at least up to this effort.
const EFFORT_AT_LEAST: u8 = 2;
/// What a run left, for want of room or because something failed, is looked at again after so long:
/// files may have been removed, which no change of the disks tells.
const AGAIN_MS: u64 = 30_000;
/// Extent numbers looked at while a file's map is held.
const WALKED_MOST: u32 = 8192;

/// Whether a plan that was carried out is followed by one of more effort.
pub const fn is_followed(plan: &Plan, effort: u8, has_moved: bool) -> bool {
    let is_due = has_moved || (plan.planned_blocks() > 0 && effort < EFFORT_AT_LEAST);
    is_due && effort < EFFORT_MOST
}

/// A run of the pass.
#[derive(Debug)]
struct Run {
    /// `None` while it is being made.
    plan: Option<Plan>,
    /// What the disks were like when it was made.
    planned_at: (u64, u64),
    effort: u8,
    queue: VecDeque<Move>,
    /// Moves whose targets had no room when they were to begin.
    waiting: VecDeque<Move>,
    /// Moves that had ended well when they were last tried again; none where they were not yet.
    tried_at_count: Option<u64>,
    /// Copies on their way that no thread has in hand.
    parked: VecDeque<Relocation>,
    in_flight_count: u32,
    /// How often extents were noted that got fewer copies than they should, before it began.
    short_count: u64,
    /// Moves that ended well under this plan.
    moved_count: u64,
    meter: Meter,
}

#[derive(Debug, Default)]
struct State {
    run: Option<Run>,
    /// The state of the disks (its epoch, and a count of wishes) when it was last found that
    /// there is nothing to do.
    looked_at: Option<(u64, u64)>,
    /// When the last run ended.
    ended_at_ms: u64,
    /// It left something, or failed in its end.
    has_left: bool,
    /// And that was told since the disks changed.
    is_told: bool,
    error: Option<String>,
}

/// The pass.
#[derive(Debug)]
pub struct Mover {
    goal: Goal,
    state: DeepMutex<State, levels::Moves>,
}

/// What a call has in hand.
enum Task {
    Plan(u8),
    Copy(Box<Relocation>),
    Start(Move),
    /// What waits for room is tried again: what was freed meanwhile is made free.
    Retry,
    Wait,
    Nothing,
    Ended(Box<Run>),
}

impl Mover {
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            state: DeepMutex::new(State {
                run: None,
                looked_at: None,
                ended_at_ms: 0,
                has_left: false,
                is_told: false,
                error: None,
            }),
        }
    }

    /// The pace changed.
    pub fn restart_meter(&self) {
        if let Some(run) = &mut self.state.lock().run {
            run.meter.restart();
        }
    }

    /// Whether it has something to do, or has not looked since the disks changed.
    pub fn may_have_work(&self, group: &Group) -> bool {
        let state = self.state.lock();
        state.run.is_some() || state.looked_at != Some(group.background.looked_at(group))
    }

    /// One piece of a copy that is on its way, for an earlier pass that must not meet one.
    ///
    /// # Errors
    /// As [`BackgroundPass::work`].
    pub fn finish_begun(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        let relocation = {
            let mut state = self.state.lock();
            let Some(run) = &mut state.run else {
                return Ok(PassStep::Nothing);
            };
            match run.parked.pop_front() {
                Some(relocation) => {
                    run.in_flight_count += 1;
                    relocation
                }
                None if run.in_flight_count > 0 => return Ok(PassStep::Wait),
                None => return Ok(PassStep::Nothing),
            }
        };
        (self.copy(group, relocation, now_ms)).map(PassStep::Did)
    }

    /// The next thing to do.
    fn task(&self, group: &Group, now_ms: u64) -> Task {
        let mut state = self.state.lock();
        let looked_at = group.background.looked_at(group);
        let Some(run) = &mut state.run else {
            let has_left = state.has_left || (self.goal == Goal::Restore && group.may_be_short());
            let is_again = has_left && now_ms.saturating_sub(state.ended_at_ms) >= AGAIN_MS;
            let is_new = state.looked_at != Some(looked_at);
            if !(is_new || is_again)
                || (self.goal == Goal::Rebalance && !group.is_rebalance_wanted())
            {
                return Task::Nothing;
            }
            state.looked_at = Some(looked_at);
            state.is_told &= !is_new;
            state.run = Some(Run::new(looked_at, group.membership.short_count()));
            return Task::Plan(0);
        };
        run.meter.touch(now_ms);
        if run.plan.is_none() {
            return Task::Wait;
        }
        if run.planned_at != looked_at {
            // Disks came, went or were asked for: what was planned is not what is wanted now.
            run.replan(0, looked_at);
            state.looked_at = Some(looked_at);
            return Task::Plan(0);
        }
        let Some(plan) = &mut run.plan else {
            return Task::Wait;
        };
        if let Some(relocation) = run.parked.pop_front() {
            run.in_flight_count += 1;
            return Task::Copy(Box::new(relocation));
        }
        if run.queue.is_empty() {
            run.queue
                .extend(plan.next_moves(&GroupMaps(group), MOVES_MOST));
        }
        if let Some(moved) = run.queue.pop_front() {
            run.in_flight_count += 1;
            return Task::Start(moved);
        }
        if run.in_flight_count > 0 {
            return Task::Wait;
        }
        let may_try = (run.tried_at_count).is_none_or(|tried| run.moved_count > tried);
        if may_try && !run.waiting.is_empty() {
            run.tried_at_count = Some(run.moved_count);
            run.queue.append(&mut run.waiting);
            return Task::Retry;
        }
        if is_followed(plan, run.effort, run.moved_count > 0) {
            let effort = run.effort + 1;
            run.replan(effort, looked_at);
            return Task::Plan(effort);
        }
        state.ended_at_ms = now_ms;
        // Until it has ended well.
        state.has_left = true;
        match state.run.take() {
            Some(run) => Task::Ended(Box::new(run)),
            None => Task::Nothing,
        }
    }

    fn plan(&self, group: &Group, effort: u8) {
        let plan = Plan::new(group.plan_disks(), self.goal, effort, &GroupMaps(group));
        let planned_bytes = plan.planned_blocks() * BLOCK_SIZE_BYTES;
        let mut state = self.state.lock();
        if let Some(run) = &mut state.run {
            run.plan = Some(plan);
            run.meter.planned_bytes = run.meter.done_bytes + planned_bytes;
            // One that is tried again was told when it stopped.
            if effort == 0 && planned_bytes > 0 && !state.is_told {
                state.error = None;
                let (kind, what) = match self.goal {
                    Goal::Restore => (EventKind::RestoreStarted, "missing copies are made"),
                    Goal::Rebalance => (EventKind::RebalanceStarted, "a rebalance moves"),
                };
                group.event(Event::new(kind, format!("{what}: {planned_bytes} bytes")));
            }
        }
    }

    /// One piece of one relocation.
    fn copy(
        &self,
        group: &Group,
        mut relocation: Relocation,
        now_ms: u64,
    ) -> Result<u64, GroupError> {
        let power = group.power();
        let mut buffer = group.background.buffer(power);
        let answer = group.step_relocation(&mut relocation, power.piece_blocks(), &mut buffer);
        group.background.keep_buffer(buffer);
        let mut state = self.state.lock();
        let Some(run) = &mut state.run else {
            return answer.map(|_| 0);
        };
        run.in_flight_count -= 1;
        match answer? {
            Step::Copied(bytes) => {
                run.parked.push_back(relocation);
                run.meter.touch(now_ms);
                Ok(bytes)
            }
            Step::Finished => {
                run.moved_count += 1;
                run.meter.add(relocation.length_bytes(), now_ms);
                Ok(relocation.length_bytes().min(BLOCK_SIZE_BYTES))
            }
            Step::Abandoned => Ok(0),
        }
    }

    fn start(&self, group: &Group, moved: &Move, now_ms: u64) -> Result<u64, GroupError> {
        // A move that touches a disk with a failed flush which nobody told would be given up at once.
        let told = group.tell_standing_failures();
        let refusal = match told.map(|()| group.begin_relocation(moved)) {
            Ok(Ok(relocation)) => return self.copy(group, relocation, now_ms),
            Ok(Err(refusal)) => Ok(refusal),
            Err(error) => Err(error),
        };
        if let Some(run) = &mut self.state.lock().run {
            run.in_flight_count -= 1;
            if matches!(refusal, Ok(Refusal::NoRoom)) && run.waiting.len() < WAITING_MOST {
                run.waiting.push_back(*moved);
            }
        }
        refusal.map(|_| 0)
    }

    /// The run is over, and what it moved durable before anybody is told so.
    fn end(&self, group: &Group, run: &Run) -> Result<Ended, GroupError> {
        // First of all: what was moved away takes its place until then.
        group.commit_everything()?;
        let left_count = match self.goal {
            Goal::Restore => {
                let left_count = group.lost_copies_count();
                if left_count == 0 {
                    group.membership.forget_short(run.short_count);
                }
                left_count
            }
            Goal::Rebalance => group.leaving_copies_count(),
        };
        Ok(Ended {
            goal: self.goal,
            left_count,
            moved_bytes: run.meter.done_bytes,
            planned_at: run.planned_at,
        })
    }

    /// Tells what a run did; after a rebalance that nothing came between nobody wants one any more.
    pub fn tell(&self, group: &Group, run: &Ended) -> Result<(), GroupError> {
        let left = run.left_count;
        let (ended, stopped) = match self.goal {
            Goal::Restore => (EventKind::RestoreEnded, EventKind::RestoreStopped),
            Goal::Rebalance => (EventKind::RebalanceEnded, EventKind::RebalanceStopped),
        };
        if left > 0 {
            let what = match self.goal {
                Goal::Restore => "copies are still missing",
                Goal::Rebalance => {
                    "copies still lie on disks that are being dropped, or behind the new end of one"
                }
            };
            let message = format!(
                "{left} {what}: no disk of another failure group has room for them, or they \
                 cannot be read; add disks or bring disks back"
            );
            let mut state = self.state.lock();
            state.error = Some(message.clone());
            let was_told = std::mem::replace(&mut state.is_told, true);
            drop(state);
            if !was_told {
                group.event(Event::new(stopped, message));
            }
        } else {
            let mut state = self.state.lock();
            state.error = None;
            (state.has_left, state.is_told) = (false, false);
            drop(state);
            if run.moved_bytes > 0 {
                let moved_bytes = run.moved_bytes;
                let message = format!("{moved_bytes} bytes were moved; nothing is left to do");
                group.event(Event::new(ended, message));
            }
        }
        let is_fulfilled = left == 0 && run.planned_at == group.background.looked_at(group);
        if self.goal == Goal::Rebalance && is_fulfilled {
            let (_, wishes_count) = run.planned_at;
            group.rebalance_ended(wishes_count)?;
        }
        Ok(())
    }
}

impl Run {
    /// The plan is given up for another one; copies on their way go on.
    fn replan(&mut self, effort: u8, planned_at: (u64, u64)) {
        self.plan = None;
        self.planned_at = planned_at;
        self.effort = effort;
        self.queue.clear();
        self.waiting.clear();
        self.moved_count = 0;
        self.tried_at_count = None;
    }

    fn new(planned_at: (u64, u64), short_count: u64) -> Self {
        Self {
            short_count,
            plan: None,
            planned_at,
            effort: 0,
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            tried_at_count: None,
            parked: VecDeque::new(),
            in_flight_count: 0,
            moved_count: 0,
            meter: Meter::default(),
        }
    }
}

impl BackgroundPass for Mover {
    fn work(&self, group: &Group, now_ms: u64) -> Result<PassStep, GroupError> {
        match self.task(group, now_ms) {
            Task::Nothing => Ok(PassStep::Nothing),
            Task::Wait => Ok(PassStep::Wait),
            Task::Plan(effort) => {
                self.plan(group, effort);
                Ok(PassStep::Did(0))
            }
            Task::Copy(relocation) => (self.copy(group, *relocation, now_ms)).map(PassStep::Did),
            Task::Retry => {
                group.commit_everything()?;
                Ok(PassStep::Did(0))
            }
            Task::Start(moved) => self.start(group, &moved, now_ms).map(PassStep::Did),
            Task::Ended(run) => self.end(group, &run).map(PassStep::Ended),
        }
    }

    fn view(&self, group: &Group, is_first: bool) -> Option<OperationView> {
        let state = self.state.lock();
        let kept_for = match self.goal {
            Goal::Restore => None,
            Goal::Rebalance => group.background.kept_for.lock().clone(),
        };
        let error = state.error.clone().or(kept_for);
        let pass = match self.goal {
            Goal::Restore => Pass::Restore,
            Goal::Rebalance => Pass::Rebalance,
        };
        let power = group.power();
        let meter = state.run.as_ref().map(|run| run.meter);
        // From the moment on that a disk is given up, and before anybody has looked what it held:
        // whoever takes the next disk away must be able to see that copies are missing.
        let wanted = match self.goal {
            Goal::Restore => group.has_given_up_disks(),
            Goal::Rebalance => group.is_rebalance_wanted(),
        };
        if meter.is_none_or(|meter| meter.planned_bytes == 0) && error.is_none() && !wanted {
            return None;
        }
        let meter = meter.unwrap_or_default();
        let operation = match () {
            () if error.is_some() && state.run.is_none() => OperationState::Errors,
            () if power == Power::PAUSED => OperationState::Paused,
            () if is_first => OperationState::Run,
            () => OperationState::Wait,
        };
        Some(OperationView {
            pass,
            state: operation,
            power,
            done_bytes: meter.done_bytes,
            left_bytes: meter.left_bytes(),
            rate_bytes_per_s: meter.rate_bytes_per_s(),
            left_s: meter.left_s(),
            error,
        })
    }
}

/// The maps of an open group; none is held for long.
#[derive(Debug, Clone, Copy)]
pub struct GroupMaps<'a>(pub &'a Group);

impl Maps for GroupMaps<'_> {
    fn files(&self) -> Vec<FileEntry> {
        let files = self.0.all_files();
        // Where surplus copies are given back nothing is moved before that is over.
        let is_planned = |file: &&std::sync::Arc<crate::core::file::File>| {
            !file.is_removed() && !file.map.read().has_surplus()
        };
        let entries = files.iter().filter(is_planned).map(|file| {
            let map = file.map.read();
            FileEntry {
                id: file.id,
                extents_count: u32::try_from(map.extents_count()).unwrap_or(u32::MAX),
                copies: u8::try_from(map.copies()).expect("at most three"),
            }
        });
        entries.filter(|entry| entry.extents_count > 0).collect()
    }

    fn extents(
        &self,
        file: FileId,
        first: u32,
        visit: &mut dyn FnMut(u32, &[ExtentCopy], u64) -> bool,
    ) {
        let Some(file) = self.0.file(file) else {
            return;
        };
        let mut from = Some(first);
        while let Some(first) = from {
            let map = file.map.read();
            from = map.walk(first, WALKED_MOST, |index, extent| {
                let copies = extent.copies();
                // Surplus entries that are given back already are none.
                let surplus = copies[map.wanted()..]
                    .iter()
                    .rposition(|copy| copy.is_present());
                let there = map.wanted() + surplus.map_or(0, |last| last + 1);
                visit(index, &copies[..there], map.schedule().length_blocks(index))
            });
        }
    }
}

impl Group {
    /// The disks as the planner sees them.
    pub(crate) fn plan_disks(&self) -> Vec<PlanDisk> {
        let members = self.membership.members();
        let au_blocks = self.membership.au_size().blocks();
        let catalog_aus = self.catalog_aus();
        let mut tails = Vec::new();
        let mut disks: Vec<PlanDisk> = (self.disks.iter().filter(|disk| disk.holds_data))
            .map(|disk| {
                let status = (members.iter())
                    .find(|member| member.state.number == disk.number)
                    .map(|member| member.state.status);
                let role = match status {
                    Some(DiskStatus::Dropping) if disk.is_online() => Role::Leaves,
                    Some(DiskStatus::Absent) | None => Role::Lost,
                    Some(DiskStatus::Online) if disk.may_receive() => Role::Shares,
                    _ => Role::Stays,
                };
                let total_aus = disk.total_bytes() / self.membership.au_size().bytes();
                let file_aus = Core::file_aus(total_aus, catalog_aus(disk.number));
                let plan_disk = PlanDisk {
                    number: disk.number,
                    failure_group: disk.group_index,
                    weight_blocks: total_aus.saturating_sub(1).max(1) * au_blocks,
                    capacity_blocks: file_aus * au_blocks,
                    role,
                    begin_block: 0,
                };
                if role == Role::Shares && self.space.is_used_behind_end(disk.number) {
                    tails.push(PlanDisk {
                        weight_blocks: 0,
                        capacity_blocks: 0,
                        role: Role::Leaves,
                        begin_block: self.space.end_block(disk.number).max(1),
                        ..plan_disk
                    });
                }
                plan_disk
            })
            .collect();
        disks.append(&mut tails);
        disks
    }

    /// Whether there are disks that were given up and that copies may still be missing of.
    fn has_given_up_disks(&self) -> bool {
        (self.membership.members().iter()).any(|member| member.state.status == DiskStatus::Absent)
    }

    fn count_copies(&self, mut is_counted: impl FnMut(ExtentCopy) -> bool) -> u64 {
        let mut count = 0;
        for file in self.all_files() {
            GroupMaps(self).extents(file.id, 0, &mut |_, copies, _| {
                count += copies.iter().filter(|copy| is_counted(**copy)).count() as u64;
                true
            });
        }
        count
    }

    /// Whether extents got fewer copies than they should although all disks were there. Where one is away,
    /// its return is looked at.
    fn may_be_short(&self) -> bool {
        let is_away = |disk: &DiskState| disk.status == DiskStatus::Offline;
        self.membership.is_short() && !self.membership.state().disks.iter().any(is_away)
    }

    /// Copies that are missing or lie on disks that were given up.
    pub(crate) fn lost_copies_count(&self) -> u64 {
        let disks = self.plan_disks();
        let is_lost = |copy: ExtentCopy| {
            !copy.is_present()
                || (disks.iter()).any(|disk| disk.number == copy.disk() && disk.role == Role::Lost)
        };
        self.count_copies(is_lost)
    }

    /// Copies on disks that are being dropped, or behind the end that a disk is to have.
    fn leaving_copies_count(&self) -> u64 {
        let disks = self.plan_disks();
        if disks.iter().all(|disk| disk.role != Role::Leaves) {
            return 0;
        }
        self.count_copies(|copy| {
            if !copy.is_present() {
                return false;
            }
            let end_block = (copy.start_bytes() + copy.length_bytes()) / BLOCK_SIZE_BYTES;
            (disks.iter()).any(|disk| {
                disk.number == copy.disk()
                    && disk.role == Role::Leaves
                    && disk.begin_block < end_block
            })
        })
    }
}

#[cfg(test)]
mod tests;
