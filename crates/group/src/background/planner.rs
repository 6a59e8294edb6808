//! The plan of a rebalance: which copies of which extents go where. Pure; it moves nothing.
//!
//! Two walks over the maps give, for each redundancy class, what each disk holds and should hold
//! (`spindle_extent::fair_share`): surplus here, deficit there. Moves only go from surplus to
//! deficit, so their sum is the least that any plan must move. A third walk, taken while the moves are made,
//! chooses the extents: each file (small ones in bundles) gives of a disk what it has there
//! above its own share, evenly over its length, and gets likewise. So each file stays even by
//! itself, and what rounding leaves is carried on to the next file, so the disks come out even
//! too.
//!
//! Invariants: a copy goes only where no other copy of its extent lies in the same failure
//! group; nothing goes to a disk that does not receive; every copy of a disk that leaves is
//! chosen, whatever the quotas say. The plan holds a few numbers for each disk and 16 bytes for
//! each file, none for an extent. It is computed from the state alone, so a crash costs nothing
//! but the walk.

mod choice;

use spindle_base::{DiskNumber, FileId};
use spindle_extent::fair_share::{Class, Vessel, share_out};
use spindle_extent::placement::{self, Candidate, PARTNERS_MAX};
use spindle_format::{COPIES_MAX, ExtentCopy};

use choice::Choice;

/// What a disk's copies may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Gives what is above its share.
    Shares,
    /// Neither gives nor gets for the moment: it is away and expected back.
    Stays,
    /// Gives everything: it is being dropped.
    Leaves,
    /// Nothing can be read from it any more: what it held is to be made anew elsewhere.
    Lost,
}

/// A disk as the planner sees it.
#[derive(Debug, Clone, Copy)]
pub struct PlanDisk {
    /// The disk.
    pub number: DiskNumber,
    /// Its failure group.
    pub failure_group: u16,
    /// Its size in blocks: shares are in proportion to it.
    pub weight_blocks: u64,
    /// The blocks of file data that it can hold.
    pub capacity_blocks: u64,
    /// What its copies may do.
    pub role: Role,
    /// Zero for a disk. Else this is the part of a disk, named before, that it is to lose: what
    /// ends behind this block.
    pub begin_block: u64,
}

/// Which moves are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Copies that are missing or lie on lost disks are made anew.
    Restore,
    /// Leaving disks are emptied, and every disk comes to its share.
    Rebalance,
}

/// A file with extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    /// Its id.
    pub id: FileId,
    /// Its extents that are no holes.
    pub extents_count: u32,
    /// Copies of each.
    pub copies: u8,
}

/// The maps of a group, to be walked.
pub trait Maps {
    /// Every file with extents, in the order of the ids.
    fn files(&self) -> Vec<FileEntry>;

    /// Calls `visit` with number, copies and length in blocks of each extent from number `first`
    /// on, in order, until it says false or the file ends. A file that is gone has none.
    fn extents(
        &self,
        file: FileId,
        first: u32,
        visit: &mut dyn FnMut(u32, &[ExtentCopy], u64) -> bool,
    );
}

/// One copy of one extent that is to lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The file.
    pub file: FileId,
    /// The extent.
    pub index: u32,
    /// Which of its copies.
    pub copy_number: u8,
    /// Where that copy lies now; it may be missing.
    pub from: ExtentCopy,
    /// The disk it is to lie on.
    pub to: DiskNumber,
    /// Its length.
    pub blocks: u64,
}

/// Quotas of one class; all by index of the disk, the last one standing for missing copies.
#[derive(Debug, Clone)]
struct ClassPlan {
    copies: u8,
    /// Blocks of all copies.
    blocks: f64,
    /// The share of the class's copies that should lie there.
    fraction: Vec<f64>,
    /// Of what a file has there above its share, how much goes.
    out_ratio: Vec<f64>,
    /// Of what a file lacks there, how much comes.
    in_ratio: Vec<f64>,
    /// Blocks that still should go.
    out_left: Vec<f64>,
    /// Blocks that still should come.
    in_left: Vec<f64>,
    /// Rounding so far: what should have gone and has not.
    owed: Vec<f64>,
    /// Rounding so far: what should have come and has not.
    carried: Vec<f64>,
    /// Rounding so far: what the disk that lacks most should have taken from disks that are well.
    pulled: f64,
}

/// The disks, and what is known of them before any map was looked at.
#[derive(Debug)]
struct Ground {
    disks: Vec<PlanDisk>,
    /// By disk number: index into `disks`.
    index_of: Vec<u16>,
    /// By index: the part that the disk is to lose; empty where none is.
    tails: Vec<Option<(u64, u16)>>,
    /// By index: the disk's partners, ascending; empty where everybody is everybody's partner.
    partners: Vec<Vec<usize>>,
    goal: Goal,
    effort: u8,
}

/// A plan that is being carried out.
#[derive(Debug)]
pub struct Plan {
    ground: Ground,
    files: Vec<FileEntry>,
    classes: Vec<ClassPlan>,
    planned_blocks: u64,
    position: Position,
    choice: Option<Choice>,
}

/// How far the walk that chooses has come.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    class: usize,
    /// The first file behind the bundle under way.
    file: usize,
    /// The file of the bundle, and the extent in it, that come next.
    bundle_file: usize,
    extent: u32,
}

/// No disk of the plan.
const NOWHERE: u16 = u16::MAX;

impl Plan {
    /// Plans from two walks over `maps`. The first plan of a rebalance has effort 0 and looks for
    /// the extents that fit best; what it left over takes plans of more effort, which take what
    /// fits at all, and from 2 on what makes room for others to fit.
    #[must_use]
    pub fn new(disks: Vec<PlanDisk>, goal: Goal, effort: u8, maps: &impl Maps) -> Self {
        let mut plan = Self {
            ground: Ground::new(disks, goal, effort),
            files: maps.files(),
            classes: Vec::new(),
            planned_blocks: 0,
            position: Position::default(),
            choice: None,
        };
        let held = plan.tally(maps);
        plan.set_quotas(&held);
        plan.set_ratios(maps);
        plan.planned_blocks = whole(
            (plan.classes.iter())
                .map(|class| class.out_left.iter().sum::<f64>())
                .sum(),
        );
        plan
    }

    /// Blocks that the plan means to move, as counted when it was made.
    #[must_use]
    pub const fn planned_blocks(&self) -> u64 {
        self.planned_blocks
    }

    /// Whether every file was looked at.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.position.class >= self.classes.len()
    }

    /// The next moves, at least one unless the plan is at its end, about `most`.
    pub fn next_moves(&mut self, maps: &impl Maps, most: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        while moves.len() < most && !self.is_exhausted() {
            let Some(choice) = &mut self.choice else {
                self.open_bundle(maps);
                continue;
            };
            let file = self.files[self.position.bundle_file].id;
            let class = &mut self.classes[self.position.class];
            let mut resume = None;
            maps.extents(file, self.position.extent, &mut |index, copies, blocks| {
                if moves.len() >= most {
                    resume = Some(index);
                    return false;
                }
                choice.visit(
                    &self.ground,
                    class,
                    (file, index),
                    copies,
                    blocks,
                    &mut moves,
                );
                true
            });
            match resume {
                Some(index) => self.position.extent = index,
                None => self.next_file(),
            }
        }
        moves
    }

    /// Steps to the next file of the bundle, or closes it.
    fn next_file(&mut self) {
        let copies = self.classes[self.position.class].copies;
        let next = (self.position.bundle_file + 1..self.position.file)
            .find(|at| self.files[*at].copies == copies);
        self.position.extent = 0;
        if let Some(next) = next {
            self.position.bundle_file = next;
            return;
        }
        if let Some(choice) = self.choice.take() {
            choice.close(&mut self.classes[self.position.class]);
        }
    }

    /// Takes the next files of the class as a bundle; behind the last one, the next class.
    fn open_bundle(&mut self, maps: &impl Maps) {
        let class = &self.classes[self.position.class];
        let Some((first, end)) = self.bundle(class.copies, self.position.file) else {
            self.position = Position {
                class: self.position.class + 1,
                ..Position::default()
            };
            return;
        };
        let held = self.held_by(maps, first, end, class.copies);
        self.choice = Some(Choice::new(&self.ground, class, &held));
        self.position.file = end;
        self.position.bundle_file = first;
        self.position.extent = 0;
    }

    /// The next files from `from` on that are looked at together, as `[first, end)`: a large one
    /// by itself, small ones until they have some extents for each disk.
    fn bundle(&self, copies: u8, from: usize) -> Option<(usize, usize)> {
        let enough = self.ground.disks.len().max(16) as u64;
        let of_class = |at: &usize| self.files[*at].copies == copies;
        let first = (from..self.files.len()).find(of_class)?;
        let mut extents = u64::from(self.files[first].extents_count);
        let mut end = first + 1;
        while extents < enough && end < self.files.len() {
            let next = &self.files[end];
            if next.copies == copies {
                if u64::from(next.extents_count) >= enough {
                    break;
                }
                extents += u64::from(next.extents_count);
            }
            end += 1;
        }
        Some((first, end))
    }

    /// Blocks that the files of the class in `[first, end)` have on each disk.
    fn held_by(&self, maps: &impl Maps, first: usize, end: usize, copies: u8) -> Vec<f64> {
        let mut held = vec![0_u64; self.ground.disks.len() + 1];
        let files = self.files[first..end].iter();
        for file in files.filter(|file| file.copies == copies) {
            maps.extents(file.id, 0, &mut |_, entries, blocks| {
                for copy in entries {
                    held[self.ground.place(*copy)] += blocks;
                }
                true
            });
        }
        held.into_iter().map(real).collect()
    }

    /// What each disk holds of each class; classes with more copies first.
    fn tally(&mut self, maps: &impl Maps) -> Vec<Vec<f64>> {
        let mut tallies = Vec::new();
        for copies in (1..=COPIES_MAX).rev() {
            let copies = u8::try_from(copies).expect("at most three");
            if self.files.iter().any(|file| file.copies == copies) {
                tallies.push(self.held_by(maps, 0, self.files.len(), copies));
                self.classes
                    .push(ClassPlan::new(copies, self.ground.disks.len() + 1));
            }
        }
        tallies
    }

    fn set_quotas(&mut self, held: &[Vec<f64>]) {
        let vessels: Vec<Vessel> = self
            .ground
            .disks
            .iter()
            .map(|disk| self.vessel(disk))
            .collect();
        let mut promised = vec![0.0; self.ground.disks.len()];
        for (class, held) in self.classes.iter_mut().zip(held) {
            let copies = f64::from(class.copies);
            let fixed: Vec<f64> = (self.ground.disks.iter().zip(held))
                .map(|(disk, held)| {
                    let is_fixed = self.ground.goal == Goal::Restore && disk.role == Role::Stays;
                    if is_fixed { *held } else { 0.0 }
                })
                .collect();
            let sum: f64 = held.iter().sum();
            let shared = Class {
                copies: usize::from(class.copies),
                blocks: sum / copies,
                fixed: &fixed,
            };
            let shares = share_out(&vessels, &mut promised, shared);
            class.set_quotas(&self.ground, held, &shares, sum);
        }
    }

    fn vessel(&self, disk: &PlanDisk) -> Vessel {
        let weighs = match disk.role {
            Role::Shares => true,
            Role::Stays => self.ground.goal == Goal::Rebalance,
            Role::Leaves | Role::Lost => false,
        };
        Vessel {
            failure_group: disk.failure_group,
            weight_blocks: if weighs {
                real(disk.weight_blocks)
            } else {
                0.0
            },
            capacity_blocks: real(disk.capacity_blocks),
        }
    }

    /// How much of what bundles have too much or lack is to move, so that the sums come out as
    /// the quotas say.
    fn set_ratios(&mut self, maps: &impl Maps) {
        for at in 0..self.classes.len() {
            let count = self.ground.disks.len() + 1;
            let (mut excess, mut lack) = (vec![0.0; count], vec![0.0; count]);
            let class = &self.classes[at];
            if class.out_left.iter().all(|left| *left <= 0.0) {
                continue;
            }
            let mut from = 0;
            while let Some((first, end)) = self.bundle(class.copies, from) {
                let held = self.held_by(maps, first, end, class.copies);
                let sum: f64 = held.iter().sum();
                for (index, held) in held.iter().enumerate() {
                    let above = held - class.fraction[index] * sum;
                    if above > 0.0 {
                        excess[index] += above;
                    } else {
                        lack[index] -= above;
                    }
                }
                from = end;
            }
            let class = &mut self.classes[at];
            let ratio = |left: f64, sum: f64| {
                if sum > 0.0 {
                    (left / sum).min(1.0)
                } else {
                    0.0
                }
            };
            for index in 0..count {
                class.out_ratio[index] = ratio(class.out_left[index], excess[index]);
                class.in_ratio[index] = ratio(class.in_left[index], lack[index]);
            }
        }
    }
}

impl Ground {
    fn new(disks: Vec<PlanDisk>, goal: Goal, effort: u8) -> Self {
        let numbers_end = disks
            .iter()
            .map(|disk| usize::from(disk.number.0) + 1)
            .max();
        let mut index_of = vec![NOWHERE; numbers_end.unwrap_or(0)];
        let mut tails = Vec::new();
        for (index, disk) in (0_u16..).zip(&disks) {
            let known = &mut index_of[usize::from(disk.number.0)];
            if disk.begin_block == 0 {
                *known = index;
            } else {
                tails.resize(disks.len(), None);
                tails[usize::from(*known)] = Some((disk.begin_block, index));
            }
        }
        let (indices, candidates): (Vec<usize>, Vec<Candidate>) = (disks.iter().enumerate())
            .filter(|(_, disk)| disk.role == Role::Shares)
            .map(|(index, disk)| {
                let candidate = Candidate {
                    number: disk.number,
                    group_index: disk.failure_group,
                    weight_aus: disk.weight_blocks,
                };
                (index, candidate)
            })
            .unzip();
        let mut partners = Vec::new();
        if candidates.len() > PARTNERS_MAX + 1 {
            partners = vec![Vec::new(); disks.len()];
            for (index, others) in indices.iter().zip(placement::partners(&candidates)) {
                partners[*index] = others.into_iter().map(|other| indices[other]).collect();
            }
        }
        Self {
            disks,
            index_of,
            tails,
            partners,
            goal,
            effort,
        }
    }

    /// The index of the disk that a copy lies on; the one behind all disks where it is missing.
    fn place(&self, copy: ExtentCopy) -> usize {
        let index = if copy.is_present() {
            let known = self.index_of.get(usize::from(copy.disk().0));
            known.copied().unwrap_or(NOWHERE)
        } else {
            NOWHERE
        };
        match self.tails.get(usize::from(index)) {
            Some(Some((begin, tail))) if copy.start_block() + copy.blocks() > *begin => {
                usize::from(*tail)
            }
            _ => usize::from(index).min(self.disks.len()),
        }
    }

    fn role(&self, place: usize) -> Role {
        self.disks.get(place).map_or(Role::Lost, |disk| disk.role)
    }

    /// Whether every copy there must go.
    fn is_must(&self, place: usize) -> bool {
        is_must(self.role(place), self.goal)
    }

    fn are_partners(&self, left: usize, right: usize) -> bool {
        self.partners.is_empty() || self.partners[left].binary_search(&right).is_ok()
    }
}

impl ClassPlan {
    fn new(copies: u8, count: usize) -> Self {
        let zeros = vec![0.0; count];
        Self {
            copies,
            blocks: 0.0,
            fraction: zeros.clone(),
            out_ratio: zeros.clone(),
            in_ratio: zeros.clone(),
            out_left: zeros.clone(),
            in_left: zeros.clone(),
            owed: zeros.clone(),
            carried: zeros,
            pulled: 0.0,
        }
    }

    /// From what each disk holds and should hold: what goes and what comes, equal in sum as far
    /// as they can be.
    fn set_quotas(&mut self, ground: &Ground, held: &[f64], shares: &[f64], sum: f64) {
        self.blocks = sum;
        let (mut must, mut may, mut wanted) = (0.0, 0.0, 0.0);
        let share_of = |index: usize| shares.get(index).copied().unwrap_or(0.0);
        for (index, held) in held.iter().enumerate() {
            self.fraction[index] = part(share_of(index), sum);
            if ground.is_must(index) {
                must += held;
            } else if ground.role(index) == Role::Shares {
                may += (held - share_of(index)).max(0.0);
                wanted += (share_of(index) - held).max(0.0);
            }
        }
        if ground.goal == Goal::Restore {
            may = 0.0;
        }
        let moved = must + may.min((wanted - must).max(0.0));
        let (may_scale, in_scale) = (part(moved - must, may), part(moved, wanted));
        for (index, held) in held.iter().enumerate() {
            if ground.is_must(index) {
                self.out_left[index] = *held;
            } else if ground.role(index) == Role::Shares {
                let above = held - share_of(index);
                self.out_left[index] = above.max(0.0) * may_scale;
                self.in_left[index] = (-above).max(0.0) * in_scale;
            }
        }
    }
}

/// Whether every copy there must go.
const fn is_must(role: Role, goal: Goal) -> bool {
    matches!(
        (role, goal),
        (Role::Lost, Goal::Restore) | (Role::Leaves, Goal::Rebalance)
    )
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a quota; 2^53 blocks are more than a group can have"
)]
const fn real(blocks: u64) -> f64 {
    blocks as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of quotas, none of them negative"
)]
fn whole(blocks: f64) -> u64 {
    blocks.round().max(0.0) as u64
}

#[cfg(test)]
mod tests;
