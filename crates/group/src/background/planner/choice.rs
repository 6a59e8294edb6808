//! Which extents of one bundle of files move, and where to.
//!
//! A disk's copies are visited in the order of the file; each adds its part of the quota to what
//! the disk owes, and when half an extent is owed the extent goes: so those that go lie evenly
//! over the file. Among the disks that lack something the one whose turn is due is taken, as in
//! a smooth weighted rotation; one that is a partner of the other copies' disks goes before its
//! neighbours in the queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;
use spindle_base::FileId;
use spindle_format::{COPIES_MAX, ExtentCopy};

use crate::background::planner::{ClassPlan, Ground, Move, PlanDisk, Role};

/// Candidates that are looked at for a partner before the first one that fits is taken.
const LOOKED_AT: usize = 6;
/// A partner whose turn is not due yet goes first only where it is nearly due: else a disk that
/// few extents can go to would fall behind for good.
const PATIENCE: f64 = 1.1;

/// The choice for one bundle.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Of each block on the disk, the part that goes.
    rate: Vec<f64>,
    /// Blocks that should come here.
    wanted: Vec<f64>,
    given: Vec<f64>,
    /// Blocks that came here only to leave again.
    detoured: Vec<f64>,
    /// Disks that lack something, the one whose turn is due first; made at the first move.
    due: Option<BinaryHeap<Reverse<(u64, u16)>>>,
    /// The disk that lacks most.
    neediest: Option<usize>,
    /// The other disks in its failure group.
    neighbours: Vec<usize>,
    /// Of the blocks that it could take from disks that are well, the part that it takes.
    pull_rate: f64,
}

impl Choice {
    /// The choice for a bundle that holds `held` blocks on each disk.
    pub(crate) fn new(ground: &Ground, class: &ClassPlan, held: &[f64]) -> Self {
        let sum: f64 = held.iter().sum();
        let mut rate = vec![0.0; held.len()];
        let mut wanted = class.carried.clone();
        for (index, held) in held.iter().enumerate() {
            let above = held - class.fraction[index] * sum;
            if ground.is_must(index) {
                rate[index] = 1.0;
            } else if above > 0.0 {
                rate[index] = class.out_ratio[index] * above / held;
            } else {
                wanted[index] -= class.in_ratio[index] * above;
            }
        }
        let neediest = (0..ground.disks.len())
            .max_by(|left, right| class.in_left[*left].total_cmp(&class.in_left[*right]));
        let most = neediest.map_or(0.0, |at| class.in_left[at]);
        let group_of = |at: usize| ground.disks[at].failure_group;
        let is_neighbour =
            |at: &usize| neediest.is_some_and(|to| to != *at && group_of(to) == group_of(*at));
        Self {
            pull_rate: (most / class.blocks.max(1.0) * 100.0).min(1.0),
            rate,
            given: vec![0.0; wanted.len()],
            detoured: vec![0.0; wanted.len()],
            wanted,
            due: None,
            neediest,
            neighbours: (0..ground.disks.len()).filter(is_neighbour).collect(),
        }
    }

    /// What rounding left goes to the next bundle.
    pub(crate) fn close(self, class: &mut ClassPlan) {
        for ((carried, wanted), given) in class.carried.iter_mut().zip(self.wanted).zip(self.given)
        {
            *carried = wanted - given;
        }
    }

    /// Looks at one extent; adds the moves of its copies.
    pub(crate) fn visit(
        &mut self,
        ground: &Ground,
        class: &mut ClassPlan,
        (file, index): (FileId, u32),
        copies: &[ExtentCopy],
        blocks: u64,
        moves: &mut Vec<Move>,
    ) {
        let mut moved = false;
        let mut places: SmallVec<[usize; COPIES_MAX]> =
            copies.iter().map(|copy| ground.place(*copy)).collect();
        // What must go chooses first: where what may stay took the failure group that lacks
        // something, the other one would have to go a way around.
        let mut numbered: SmallVec<[(u8, &ExtentCopy); COPIES_MAX]> =
            (0_u8..).zip(copies).collect();
        numbered.sort_by_key(|(number, _)| !ground.is_must(places[usize::from(*number)]));
        for (number, from) in numbered {
            let place = places[usize::from(number)];
            let rate = self.rate[place];
            if rate <= 0.0 {
                continue;
            }
            let length = crate::background::planner::real(blocks);
            let must = ground.is_must(place);
            if !must {
                class.owed[place] += length * rate;
                if class.owed[place] < length / 2.0 {
                    continue;
                }
            }
            let Some(to) = self.destination(ground, class, &places, usize::from(number), length)
            else {
                continue;
            };
            if !must {
                class.owed[place] -= length;
            }
            class.out_left[place] -= length;
            class.in_left[to] -= length;
            places[usize::from(number)] = to;
            moves.push(Move {
                file,
                index,
                copy_number: number,
                from: *from,
                to: ground.disks[to].number,
                blocks,
            });
            moved = true;
        }
        if ground.effort >= 2 && !moved {
            moves.extend(self.pull(ground, class, (file, index), copies, blocks));
        }
    }

    /// What has too much may have only extents that the disk which lacks most cannot take,
    /// because a copy lies in its failure group already. Then that disk takes from one that is
    /// well, which can take from the one that has too much. Its neighbours can give it anything,
    /// so what they have too much is left to them: taken elsewhere it would come twice.
    fn pull(
        &mut self,
        ground: &Ground,
        class: &mut ClassPlan,
        (file, index): (FileId, u32),
        copies: &[ExtentCopy],
        blocks: u64,
    ) -> Option<Move> {
        let length = crate::background::planner::real(blocks);
        let near: f64 = (self.neighbours.iter())
            .map(|at| class.out_left[*at])
            .filter(|surplus| *surplus >= length / 2.0)
            .sum();
        let to = (self.neediest).filter(|to| class.in_left[*to] - near >= length)?;
        let group = ground.disks[to].failure_group;
        let is_fit = |copy: &ExtentCopy| {
            let disk = ground.disks.get(ground.place(*copy));
            disk.is_some_and(|disk| disk.role == Role::Shares && disk.failure_group != group)
        };
        if !copies.iter().all(is_fit) {
            return None;
        }
        class.pulled += length * self.pull_rate;
        if class.pulled < length {
            return None;
        }
        class.pulled -= length;
        let (number, from) = (0_u8..).zip(copies).min_by(|left, right| {
            let lacks = |copy: &ExtentCopy| class.in_left[ground.place(*copy)];
            lacks(left.1).total_cmp(&lacks(right.1))
        })?;
        class.in_left[to] -= length;
        class.in_left[ground.place(*from)] += length;
        Some(Move {
            file,
            index,
            copy_number: number,
            from: *from,
            to: ground.disks[to].number,
            blocks,
        })
    }

    fn destination(
        &mut self,
        ground: &Ground,
        class: &ClassPlan,
        places: &[usize],
        number: usize,
        length: f64,
    ) -> Option<usize> {
        let disks = &ground.disks;
        let must = ground.is_must(places[number]);
        let surplus = class.out_left[places[number]];
        let others: SmallVec<[usize; COPIES_MAX]> = (places.iter().enumerate())
            .filter(|(other, place)| *other != number && **place < disks.len())
            .map(|(_, place)| *place)
            .collect();
        let fits = |to: usize| {
            (others.iter()).all(|other| disks[*other].failure_group != disks[to].failure_group)
        };
        let mut queue = self
            .due
            .take()
            .unwrap_or_else(|| self.queue(class, disks, length));
        let mut passed: SmallVec<[Reverse<(u64, u16)>; 8]> = SmallVec::new();
        let mut chosen: Option<usize> = None;
        let (mut looked_at, mut first_due) = (0, 0.0);
        while let Some(entry) = queue.pop() {
            let to = usize::from(entry.0.1);
            let lacks = class.in_left[to];
            if lacks <= 0.0 {
                // It has all that it should get: out of the queue for good.
                continue;
            }
            passed.push(entry);
            if !must && ground.effort == 0 && f64::from_bits(entry.0.0) > 1.0 {
                // What may stay waits for a better match rather than take the place of an extent
                // that can go nowhere else. Those behind are no nearer to their turn.
                break;
            }
            // A move between two that are both nearer to their shares than half an extent would
            // only turn the difference round.
            if !fits(to) || (!must && surplus + lacks <= length) {
                continue;
            }
            let due = f64::from_bits(entry.0.0);
            if chosen.is_some() && due > first_due * PATIENCE {
                break;
            }
            if chosen.is_none() {
                first_due = due;
            }
            let is_partner = others.iter().all(|other| ground.are_partners(*other, to));
            chosen = chosen.or(Some(to));
            looked_at += 1;
            if is_partner {
                chosen = Some(to);
            }
            if is_partner || looked_at == LOOKED_AT {
                break;
            }
        }
        if must && chosen.is_none() {
            chosen = self.detour(class, disks, &fits);
            if let Some(to) = chosen {
                self.detoured[to] += length;
            }
        }
        for entry in passed {
            if Some(usize::from(entry.0.1)) != chosen {
                queue.push(entry);
            }
        }
        if let Some(to) = chosen {
            self.given[to] += length;
            if class.in_left[to] > length {
                queue.push(self.turn(to, length));
            }
        }
        self.due = Some(queue);
        chosen
    }

    fn queue(
        &self,
        class: &ClassPlan,
        disks: &[PlanDisk],
        length: f64,
    ) -> BinaryHeap<Reverse<(u64, u16)>> {
        (0..disks.len())
            .filter(|to| class.in_left[*to] > 0.0)
            .map(|to| self.turn(to, length))
            .collect()
    }

    /// When the disk's next turn is due: the part of what it should get that it will have got
    /// by the middle of the next extent.
    fn turn(&self, to: usize, length: f64) -> Reverse<(u64, u16)> {
        let wanted = self.wanted[to].max(length / 1024.0);
        let due = (self.given[to] + length / 2.0) / wanted;
        let index = u16::try_from(to).expect("disk numbers have 16 bits");
        // The bits of a positive double are in the order of its values.
        Reverse((due.to_bits(), index))
    }

    /// Where a copy that must go can go although nobody lacks anything: each disk in turn, in
    /// proportion to the sizes, so that the file stays even. The next plan passes as much on.
    fn detour(
        &self,
        class: &ClassPlan,
        disks: &[PlanDisk],
        fits: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let part = |to: usize, of: f64| {
            of / crate::background::planner::real(disks[to].weight_blocks.max(1))
        };
        let turn = |to: &usize| {
            (
                part(*to, self.detoured[*to]),
                part(*to, -class.in_left[*to]),
            )
        };
        (0..disks.len())
            .filter(|to| disks[*to].role == Role::Shares && fits(*to))
            .min_by(|left, right| {
                let (left, right) = (turn(left), turn(right));
                left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
            })
    }
}
