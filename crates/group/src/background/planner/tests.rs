//! The planner against a model of a group in memory: what it moves is compared with the least
//! that any plan must move, and what comes out with the fair shares.

use std::collections::BTreeSet;

use spindle_base::{DiskNumber, FileId};
use spindle_format::ExtentCopy;

use super::{FileEntry, Goal, Maps, Move, Plan, PlanDisk, Role};
use crate::background::mover::is_followed;

/// A group in memory: files as lists of extents, each of 2^class blocks.
#[derive(Debug, Default, Clone)]
struct Model {
    disks: Vec<PlanDisk>,
    files: Vec<Vec<(u8, Vec<ExtentCopy>)>>,
    next_block: u64,
}

impl Maps for Model {
    fn files(&self) -> Vec<FileEntry> {
        let entry = |(id, extents): (u64, &Vec<(u8, Vec<ExtentCopy>)>)| {
            let copies = extents.first()?.1.len();
            Some(FileEntry {
                id: FileId(id),
                extents_count: u32::try_from(extents.len()).unwrap(),
                copies: u8::try_from(copies).unwrap(),
            })
        };
        (0..).zip(&self.files).filter_map(entry).collect()
    }

    fn extents(
        &self,
        file: FileId,
        first: u32,
        visit: &mut dyn FnMut(u32, &[ExtentCopy], u64) -> bool,
    ) {
        let extents = &self.files[usize::try_from(file.0).unwrap()];
        for (index, (class, copies)) in (first..).zip(&extents[first as usize..]) {
            if !visit(index, copies, 1 << class) {
                return;
            }
        }
    }
}

impl Model {
    fn add_disk(&mut self, number: u16, failure_group: u16, size_blocks: u64) {
        self.disks.push(PlanDisk {
            number: DiskNumber(number),
            failure_group,
            weight_blocks: size_blocks,
            capacity_blocks: size_blocks,
            role: Role::Shares,
            begin_block: 0,
        });
    }

    fn disk_mut(&mut self, number: u16) -> &mut PlanDisk {
        let found = self.disks.iter_mut().find(|disk| disk.number.0 == number);
        found.unwrap()
    }

    /// A file whose copies are all missing, to be placed by a restore.
    fn add_file(&mut self, copies: usize, classes: impl Iterator<Item = u8>) {
        let extents = classes.map(|class| (class, vec![ExtentCopy::MISSING; copies]));
        self.files.push(extents.collect());
    }

    /// So many extents more at the ends of files, of two copies each wherever chance puts them.
    fn grow(&mut self, random: &mut Random, extents: u64) {
        for _ in 0..extents {
            let mut pick = |end: usize| usize::try_from(random.below(end as u64)).unwrap();
            let file = pick(self.files.len());
            let (first, second) = loop {
                let (first, second) = (pick(self.disks.len()), pick(self.disks.len()));
                if self.disks[first].failure_group != self.disks[second].failure_group {
                    break (first, second);
                }
            };
            let class = u8::try_from(self.files[file].len())
                .unwrap()
                .saturating_sub(1)
                .min(8);
            let copies = [first, second].map(|at| {
                self.next_block += 1 << class;
                ExtentCopy::new(self.disks[at].number, self.next_block, class)
            });
            self.files[file].push((class, copies.to_vec()));
        }
    }

    fn failure_group(&self, disk: DiskNumber) -> u16 {
        let found = self.disks.iter().find(|other| other.number == disk);
        found.unwrap().failure_group
    }

    fn apply(&mut self, moved: &Move) {
        let groups: Vec<u16> = {
            let extent = &self.files[usize::try_from(moved.file.0).unwrap()][moved.index as usize];
            assert_eq!(extent.1[usize::from(moved.copy_number)], moved.from);
            assert_eq!(1 << extent.0, moved.blocks);
            let others = extent.1.iter().enumerate();
            others
                .filter(|(number, copy)| {
                    *number != usize::from(moved.copy_number) && copy.is_present()
                })
                .map(|(_, copy)| self.failure_group(copy.disk()))
                .collect()
        };
        assert!(
            !groups.contains(&self.failure_group(moved.to)),
            "two copies in one failure group"
        );
        self.next_block += moved.blocks;
        let extent = &mut self.files[usize::try_from(moved.file.0).unwrap()][moved.index as usize];
        extent.1[usize::from(moved.copy_number)] =
            ExtentCopy::new(moved.to, self.next_block, extent.0);
    }

    /// Plans and carries out until nothing is left to move; the blocks moved.
    fn run(&mut self, goal: Goal) -> u64 {
        let mut moved_blocks = 0;
        for effort in 0.. {
            let mut plan = Plan::new(self.disks.clone(), goal, effort, self);
            let mut moved_now = 0;
            while !plan.is_exhausted() {
                // The maps change under the plan, as they do in a group.
                for moved in plan.next_moves(self, 7) {
                    self.apply(&moved);
                    moved_now += moved.blocks;
                }
            }
            moved_blocks += moved_now;
            if !is_followed(&plan, effort, moved_now > 0) {
                break;
            }
        }
        moved_blocks
    }

    fn held(&self, file: Option<usize>) -> Vec<u64> {
        let mut held = vec![0; self.disks.len()];
        for (number, extents) in self.files.iter().enumerate() {
            if file.is_some_and(|file| file != number) {
                continue;
            }
            for (class, copies) in extents {
                for copy in copies.iter().filter(|copy| copy.is_present()) {
                    let at = self.disks.iter().position(|d| d.number == copy.disk());
                    held[at.unwrap()] += 1_u64 << class;
                }
            }
        }
        held
    }

    /// What each disk should hold of `blocks` with `copies` copies, found by handing out small
    /// portions one after the other to whoever is emptiest: another way than the planner's.
    fn fair(&self, copies: u64, blocks: f64) -> Vec<f64> {
        let mut shares = vec![0.0_f64; self.disks.len()];
        let mut of_group = std::collections::BTreeMap::<u16, f64>::new();
        let portion = blocks / 4000.0;
        for _ in 0..4000 * copies {
            let emptiest = (0..self.disks.len())
                .filter(|at| self.disks[*at].role == Role::Shares)
                .filter(|at| {
                    let group = of_group.get(&self.disks[*at].failure_group);
                    group.copied().unwrap_or(0.0) + portion <= blocks * 1.000_001
                })
                .min_by(|left, right| {
                    let level =
                        |at: &usize| (shares[*at] + portion) / self.disks[*at].weight_blocks as f64;
                    level(left).total_cmp(&level(right))
                });
            let Some(at) = emptiest else { break };
            shares[at] += portion;
            *of_group.entry(self.disks[at].failure_group).or_default() += portion;
        }
        shares
    }

    /// Whether the largest failure group is so small that few extents need a copy in it: else
    /// hardly any move is free, and what is least is another question.
    fn has_choice(&self, copies: usize) -> bool {
        let mut weights = std::collections::BTreeMap::<u16, u64>::new();
        for disk in self.disks.iter().filter(|disk| disk.role == Role::Shares) {
            *weights.entry(disk.failure_group).or_default() += disk.weight_blocks;
        }
        let largest = weights.values().copied().max().unwrap_or(0);
        let whole: u64 = weights.values().sum();
        weights.len() == copies || largest * copies as u64 * 100 <= whole * 85
    }

    fn forget_dropped(&mut self) {
        let held = self.held(None);
        let mut at = 0;
        self.disks.retain(|disk| {
            at += 1;
            let keep = disk.role == Role::Shares;
            assert!(keep || held[at - 1] == 0, "a dropped disk is empty");
            keep
        });
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// The least that must move: every block above its share; and where a failure group lacks more
/// than can go there directly (one copy of an extent, and none that has one there already), the
/// others must take the rest first and pass as much on.
fn least(model: &Model, copies: usize) -> (f64, f64) {
    let held = model.held(None);
    let whole = held.iter().sum::<u64>() as f64 / copies as f64;
    let fair = model.fair(copies as u64, whole);
    let direct: f64 = (held.iter().zip(&fair))
        .map(|(held, fair)| (*held as f64 - fair).max(0.0))
        .sum();
    let disk = |number: DiskNumber| {
        let found = model.disks.iter().find(|disk| disk.number == number);
        *found.unwrap()
    };
    let groups: BTreeSet<u16> = model.disks.iter().map(|disk| disk.failure_group).collect();
    let indirect = groups.into_iter().map(|group| {
        let (mut lacks, mut reach) = (0.0, 0.0);
        for ((disk, held), fair) in model.disks.iter().zip(&held).zip(&fair) {
            if disk.role == Role::Shares {
                reach += (*held as f64 - fair).max(0.0);
                if disk.failure_group == group {
                    lacks += (fair - *held as f64).max(0.0);
                }
            }
        }
        for (class, copies) in model.files.iter().flatten() {
            let disks: Vec<PlanDisk> = copies.iter().map(|copy| disk(copy.disk())).collect();
            let is_there =
                |disk: &PlanDisk| disk.failure_group == group && disk.role == Role::Shares;
            if disks.iter().any(|disk| disk.role == Role::Leaves) && !disks.iter().any(is_there) {
                reach += f64::from(1_u32 << class);
            }
        }
        (lacks - reach).max(0.0)
    });
    (direct, indirect.fold(0.0, f64::max))
}

fn assert_even(model: &Model, copies: u64, file_part: f64, when: &str) {
    let whole: f64 = model.held(None).iter().sum::<u64>() as f64 / copies as f64;
    let fair = model.fair(copies, whole);
    for ((disk, held), fair) in model.disks.iter().zip(model.held(None)).zip(&fair) {
        let off = (held as f64 - fair).abs() / fair.max(1.0);
        assert!(
            off <= 0.01,
            "{when}: disk {} holds {held} where {fair:.0} would be fair",
            disk.number
        );
    }
    for (number, extents) in model.files.iter().enumerate() {
        if extents.len() < model.disks.len() * 20 {
            continue;
        }
        let held = model.held(Some(number));
        let sum: f64 = held.iter().sum::<u64>() as f64;
        for ((disk, held), fair) in model.disks.iter().zip(held).zip(&fair) {
            let fair = fair / (whole * copies as f64) * sum;
            let off = (held as f64 - fair).abs();
            let largest = f64::from(1_u32 << extents.last().unwrap().0);
            assert!(
                off <= largest * 3.0 + fair * file_part,
                "{when}: disk {} holds {held} of file {number} where {fair:.0} would be fair",
                disk.number
            );
        }
    }
}

fn rounds(seed: u64, copies: usize, failure_groups: u16) {
    let mut random = Random(seed | 1);
    let mut model = Model::default();
    let mut next_number = 0_u16;
    let mut add = |model: &mut Model, random: &mut Random| {
        let size = (200 + random.below(400)) << 16;
        model.add_disk(next_number, next_number % failure_groups, size);
        next_number += 1;
    };
    for _ in 0..failure_groups * 2 {
        add(&mut model, &mut random);
    }
    for file in 0..40 {
        let bodies = if file % 4 == 0 {
            2000
        } else {
            random.below(30)
        };
        let heads = (0..9).map(|index: u8| index.saturating_sub(1));
        let body = (0..bodies).map(|index| if index > 1800 { 10 } else { 8 });
        model.add_file(copies, heads.chain(body));
    }
    model.run(Goal::Restore);
    assert_even(&model, copies as u64, 0.05, "in the beginning");
    let mut went_around = false;
    for round in 0..30 {
        let when = format!("seed {seed}, {copies} copies, round {round}");
        match random.below(3) {
            0 => add(&mut model, &mut random),
            1 => {
                add(&mut model, &mut random);
                add(&mut model, &mut random);
            }
            _ => {}
        }
        let drops = if model.disks.len() > usize::from(failure_groups) * 2 {
            1
        } else {
            0
        };
        for _ in 0..drops {
            let at = usize::try_from(random.below(model.disks.len() as u64)).unwrap();
            let group = model.disks[at].failure_group;
            let staying =
                |disk: &&PlanDisk| disk.role == Role::Shares && disk.failure_group == group;
            if model.disks.iter().filter(staying).count() > 1 {
                model.disks[at].role = Role::Leaves;
                if !model.has_choice(copies) {
                    model.disks[at].role = Role::Shares;
                }
            }
        }
        let (direct, indirect) = least(&model, copies);
        let least = direct + indirect;
        // Several changes at once in failure groups that hardly leave a choice cost a little
        // more than the bound, which knows no way around two failure groups at a time.
        let empty = model.held(None).iter().filter(|held| **held == 0).count();
        let changes = drops + empty as u64;
        let most = if changes > 1 { 1.04 } else { 1.02 };
        let moved = model.run(Goal::Rebalance) as f64;
        assert!(
            moved <= direct * most + indirect * 1.15 + 1024.0,
            "{when}: moved {moved} where {least:.0} would do"
        );
        model.forget_dropped();
        // What had to go a way around leaves a file less even than what went directly.
        went_around |= indirect > 0.0;
        let file_part = if went_around { 0.25 } else { 0.1 };
        assert_even(&model, copies as u64, file_part, &when);
    }
}

#[test]
fn thirty_rounds_of_adding_and_dropping_move_the_least_and_stay_fair() {
    for seed in 1..4 {
        rounds(seed * 77, 2, 7);
    }
    rounds(5, 1, 3);
    rounds(6, 3, 9);
    rounds(7, 2, 2);
    rounds(8, 2, 12);
}

/// Of an extent that leaves its disk the other copies could go to the new failure group as well.
#[test]
fn what_must_leave_goes_to_the_new_failure_group_before_what_may_stay() {
    let mut model = Model::default();
    for (number, size) in [(0, 94), (1, 87), (2, 59), (3, 79), (4, 67)] {
        model.add_disk(number, number, size << 16);
    }
    model.add_file(3, (0..400).map(|_| 8));
    model.run(Goal::Restore);
    model.disk_mut(4).role = Role::Leaves;
    model.add_disk(5, 5, 45 << 16);
    model.add_disk(6, 5, 79 << 16);
    let (direct, indirect) = least(&model, 3);
    assert!(direct > 20_000.0 && indirect == 0.0, "{direct}, {indirect}");
    let moved = model.run(Goal::Rebalance) as f64;
    assert!(
        moved <= direct * 1.02 + 256.0,
        "moved {moved} where {direct} would do"
    );
}

#[test]
fn copies_of_a_lost_disk_are_made_anew_and_nothing_else_moves() {
    let mut model = Model::default();
    for number in 0..6 {
        model.add_disk(number, number / 2, 300 << 16);
    }
    model.add_file(2, (0..3000).map(|_| 8));
    model.run(Goal::Restore);
    let before = model.held(None);
    model.disk_mut(3).role = Role::Lost;
    let moved = model.run(Goal::Restore);
    assert_eq!(moved, before[3]);
    let after = model.held(None);
    assert_eq!(after[3], 0);
    assert_eq!(model.run(Goal::Restore), 0);
    for at in [0, 1, 2, 4, 5] {
        assert!(
            after[at] >= before[at],
            "nothing leaves a disk that is well"
        );
    }
}

#[test]
fn a_disk_that_is_away_for_a_while_neither_gives_nor_gets() {
    let mut model = Model::default();
    for number in 0..4 {
        model.add_disk(number, number, 300 << 16);
    }
    model.add_file(2, (0..1000).map(|_| 8));
    model.run(Goal::Restore);
    model.disk_mut(2).role = Role::Stays;
    let before = model.held(None);
    assert_eq!(model.run(Goal::Rebalance), 0);
    model.add_disk(9, 9, 300 << 16);
    model.run(Goal::Rebalance);
    let after = model.held(None);
    assert_eq!(after[2], before[2]);
    assert!(after[4] > 0);
    model.disk_mut(2).role = Role::Shares;
    model.run(Goal::Rebalance);
    assert_even(&model, 2, 0.05, "when it is back");
}

#[test]
fn files_of_every_redundancy_leave_a_dropped_disk() {
    let mut model = Model::default();
    for number in 0..8 {
        model.add_disk(number, number / 2, (300 + u64::from(number) * 10) << 16);
    }
    for copies in 1..=3 {
        model.add_file(
            copies,
            (0..777).map(|index| (index % 9).try_into().unwrap()),
        );
    }
    model.run(Goal::Restore);
    model.disk_mut(5).role = Role::Leaves;
    model.run(Goal::Rebalance);
    model.forget_dropped();
    assert_eq!(model.disks.len(), 7);
}

/// All ways to put one copy of each extent elsewhere, a few at a time: what is the least number
/// of moves after which no disk is further from its share than the planner left it?
fn least_by_trying(model: &Model, worst: f64, fair: &[f64], most: usize) -> Option<usize> {
    fn is_good(model: &Model, worst: f64, fair: &[f64]) -> bool {
        (model.held(None).iter().zip(fair))
            .zip(&model.disks)
            .all(|((held, fair), disk)| {
                (disk.role == Role::Shares || *held == 0)
                    && (*held as f64 - fair).abs() <= worst + 1e-6
            })
    }
    fn try_from(model: &mut Model, first: usize, left: usize, worst: f64, fair: &[f64]) -> bool {
        if is_good(model, worst, fair) {
            return true;
        }
        if left == 0 {
            return false;
        }
        let copies = model.files[0][0].1.len();
        for slot in first..model.files[0].len() * copies {
            let (extent, number) = (slot / copies, slot % copies);
            let before = model.files[0][extent].1[number];
            for disk in model.disks.clone() {
                let others_fit = model.files[0][extent]
                    .1
                    .iter()
                    .enumerate()
                    .all(|(at, copy)| {
                        at == number || model.failure_group(copy.disk()) != disk.failure_group
                    });
                if disk.role != Role::Shares || disk.number == before.disk() || !others_fit {
                    continue;
                }
                model.files[0][extent].1[number] = ExtentCopy::new(disk.number, 1, 0);
                let found = try_from(model, slot + 1, left - 1, worst, fair);
                model.files[0][extent].1[number] = before;
                if found {
                    return true;
                }
            }
        }
        false
    }
    (0..=most).find(|count| try_from(&mut model.clone(), 0, *count, worst, fair))
}

/// A handful of extents on a handful of disks, always the same cases. Shares are then fractions
/// of an extent, and rounding sends some of them by a detour: of 400 cases at most one in fifty
/// may move more than one extent too many, and none more than three.
#[test]
fn on_small_groups_no_plan_found_by_trying_moves_less() {
    use proptest::strategy::{Strategy, ValueTree};
    let cases = (
        proptest::collection::vec(1_u64..4, 3..5),
        3_usize..6,
        1_usize..3,
        0_u16..6,
        0_u64..4,
    );
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut detours_count = 0;
    for _ in 0..400 {
        let (sizes, extents, copies, dropped, added) =
            cases.new_tree(&mut runner).unwrap().current();
        let mut model = Model::default();
        for (number, size) in (0..).zip(&sizes) {
            model.add_disk(number, number, size * 1000);
        }
        model.add_file(copies, (0..extents).map(|_| 0));
        model.run(Goal::Restore);
        if added > 0 {
            model.add_disk(10, 10, added * 1000);
        }
        let staying = model.disks.len() - 1;
        if staying > copies && usize::from(dropped) < sizes.len() {
            model.disk_mut(dropped).role = Role::Leaves;
        }
        let before = model.clone();
        let fair = model.fair(copies as u64, extents as f64);
        let moved = usize::try_from(model.run(Goal::Rebalance)).unwrap();
        let worst = (model.held(None).iter().zip(&fair))
            .map(|(held, fair)| (*held as f64 - fair).abs())
            .fold(0.0, f64::max);
        let held = model.held(None);
        assert!(
            worst <= 2.01,
            "{worst} from its share: {held:?} for {fair:?}"
        );
        let Some(least) = least_by_trying(&before, worst, &fair, moved.min(3)) else {
            continue;
        };
        let was = before.held(None);
        assert!(
            moved <= least + 3,
            "moved {moved}, not {least}: {was:?} to {held:?}"
        );
        detours_count += usize::from(moved > least + 1);
    }
    assert!(
        detours_count <= 8,
        "{detours_count} of 400 plans move too much"
    );
}

/// Groups of some hundred MiB, as small databases have them: many files of a few extents of up to a
/// MiB, on disks that come and go. No file has much to give or to get, and they may all lean to the
/// same disk: what each disk holds in sum comes to its share all the same, within three extents.
#[test]
fn many_small_files_that_lean_to_the_same_disk_come_out_even_in_sum() {
    for seed in 1..=60 {
        let mut random = Random(seed * 7919);
        let mut model = Model::default();
        let groups = [0, 0, 0, 1, 1, 2];
        for (number, group) in (0..).zip(groups) {
            model.add_disk(number, group, 512 << 8);
        }
        for _ in 0..60 {
            let bodies = if random.below(4) == 0 {
                random.below(16)
            } else {
                0
            };
            let heads = random.below(10);
            let head = (0..heads).map(|index| u8::try_from(index).unwrap().saturating_sub(1));
            model.add_file(2, head.chain((0..bodies).map(|_| 8)));
        }
        model.run(Goal::Restore);
        for (number, round) in (6..).zip(0..8) {
            let leaving = usize::try_from(random.below(6)).unwrap();
            let group = model.disks[leaving].failure_group;
            model.disks[leaving].role = Role::Leaves;
            model.add_disk(number, group, 512 << 8);
            model.run(Goal::Rebalance);
            model.forget_dropped();
            model.grow(&mut random, 30);
            model.run(Goal::Rebalance);
            let held = model.held(None);
            let whole = held.iter().sum::<u64>() as f64 / 2.0;
            for (held, fair) in held.iter().zip(model.fair(2, whole)) {
                assert!(
                    (*held as f64 - fair).abs() <= fair / 100.0 + 768.0,
                    "seed {seed}, round {round}: {held} where {fair:.0} would be fair: {:?}",
                    model.held(None)
                );
            }
        }
    }
}

/// A disk lacks a little over two extents, which its two neighbours in the failure group have too
/// much; the others are well. It takes from the neighbours, and nothing that would have to be made
/// up for afterwards.
#[test]
fn what_neighbours_can_give_is_not_pulled_from_disks_that_are_well() {
    let mut model = Model::default();
    // In thousandths of an extent: the share of each disk.
    let shares = [
        (0, 0, 39_600),
        (1, 1, 39_700),
        (2, 2, 39_300),
        (3, 2, 19_200),
        (4, 2, 22_200),
        (5, 3, 40_000),
        (6, 4, 40_000),
    ];
    for (number, failure_group, thousandths) in shares {
        model.add_disk(number, failure_group, thousandths << 8);
    }
    // Those without a copy in the failure group come first: they could all be pulled.
    let pairs = [
        (0, 1, 20),
        (5, 6, 20),
        (2, 0, 20),
        (2, 1, 20),
        (3, 5, 20),
        (4, 6, 20),
    ];
    let mut extents = Vec::new();
    for (first, second, count) in pairs {
        for _ in 0..count {
            let copies = [first, second].map(|disk| {
                model.next_block += 1 << 8;
                ExtentCopy::new(DiskNumber(disk), model.next_block, 8)
            });
            extents.push((8, copies.to_vec()));
        }
    }
    model.files.push(extents);
    let mut plan = Plan::new(model.disks.clone(), Goal::Rebalance, 2, &model);
    let mut ways = Vec::new();
    while !plan.is_exhausted() {
        for moved in plan.next_moves(&model, 7) {
            ways.push((moved.from.disk().0, moved.to.0));
            model.apply(&moved);
        }
    }
    assert_eq!(ways, [(2, 4), (3, 4)]);
    assert_eq!(
        model.held(None),
        [40, 40, 39, 19, 22, 40, 40].map(|count| count << 8)
    );
}

/// A tenth of what a group is to bear, in the profile of the tests.
#[test]
fn a_million_extents_over_a_thousand_disks_are_planned_at_once() {
    let mut model = Model::default();
    for number in 0..1000 {
        model.add_disk(number, number / 10, 1 << 24);
    }
    for file in 0..100_u64 {
        let extents = (0..10_000_u64).map(|index| {
            let first = u16::try_from((file * 131 + index * 7) % 1000).unwrap();
            let copy = |disk| ExtentCopy::new(DiskNumber(disk), 1, 8);
            (8, vec![copy(first), copy((first + 10) % 1000)])
        });
        model.files.push(extents.collect());
    }
    model.add_disk(1000, 100, 1 << 24);
    model.disk_mut(17).role = Role::Leaves;
    let started = std::time::Instant::now();
    let mut plan = Plan::new(model.disks.clone(), Goal::Rebalance, 0, &model);
    let mut moved = 0;
    while !plan.is_exhausted() {
        moved += plan.next_moves(&model, 1024).len();
    }
    assert!((1990..=2040).contains(&moved), "{moved} moves");
    let took = started.elapsed();
    assert!(took.as_secs() < 5, "planning took {took:?}");
}
