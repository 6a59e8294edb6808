//! Fair shares: how much of a redundancy class each disk should hold, by arithmetic alone.
//!
//! A class is all files with the same number of copies. A failure group can hold at most one
//! copy of each extent, so its share is capped at the class's blocks, and what it cannot take
//! goes to the others: water poured into vessels as wide as their weights. Classes with more
//! copies choose first, because they have less choice; the others even the sums out. Within a
//! failure group the same pouring goes over its disks.

use std::collections::BTreeMap;

/// What the shares need to know of a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vessel {
    /// Which failure group.
    pub failure_group: u16,
    /// Its size in blocks; zero where it must hold nothing.
    pub weight_blocks: f64,
    /// The most that it can hold, in blocks of file data.
    pub capacity_blocks: f64,
}

/// One vessel of a pouring.
#[derive(Debug, Clone, Copy)]
struct Level {
    weight: f64,
    already: f64,
    room: f64,
}

/// Pours `total` so that (already + poured) / weight is the same level everywhere, as far as
/// nothing is taken out and no room is exceeded. What no room is left for is not poured.
fn pour(levels: &[Level], total: f64) -> Vec<f64> {
    let poured_at = |height: f64, level: &Level| {
        if level.weight > 0.0 {
            (height * level.weight - level.already).clamp(0.0, level.room.max(0.0))
        } else {
            0.0
        }
    };
    let sum_at = |height: f64| -> f64 { levels.iter().map(|level| poured_at(height, level)).sum() };
    let mut high = levels
        .iter()
        .filter(|level| level.weight > 0.0)
        .map(|level| (level.already + level.room.max(0.0)) / level.weight)
        .fold(0.0, f64::max);
    let mut low = 0.0;
    if sum_at(high) > total {
        // The sum rises with the height; a hundred halvings are finer than a double is.
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if sum_at(middle) < total {
                low = middle;
            } else {
                high = middle;
            }
        }
    }
    levels.iter().map(|level| poured_at(high, level)).collect()
}

/// A redundancy class to be shared out.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Copies of each extent.
    pub copies: usize,
    /// The blocks of its files, one copy counted.
    pub blocks: f64,
    /// By vessel: blocks that lie there and cannot be moved; such a vessel has no weight.
    pub fixed: &'a [f64],
}

/// The blocks of a class that each vessel should hold, on top of what `held` says it is to hold
/// of other classes; adds them to `held`.
pub fn share_out(vessels: &[Vessel], held: &mut [f64], class: Class<'_>) -> Vec<f64> {
    let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (index, vessel) in vessels.iter().enumerate() {
        groups.entry(vessel.failure_group).or_default().push(index);
    }
    let level_of = |index: usize| Level {
        weight: vessels[index].weight_blocks,
        already: held[index],
        room: vessels[index].capacity_blocks - held[index],
    };
    let group_levels: Vec<Level> = groups
        .values()
        .map(|members| {
            let serving = members
                .iter()
                .map(|index| level_of(*index))
                .filter(|level| level.weight > 0.0);
            let sum = serving.fold((0.0, 0.0, 0.0), |sum, level| {
                (
                    sum.0 + level.weight,
                    sum.1 + level.already,
                    sum.2 + level.room.max(0.0),
                )
            });
            let fixed: f64 = members.iter().map(|index| class.fixed[*index]).sum();
            Level {
                weight: sum.0,
                already: sum.1,
                room: sum.2.min(class.blocks - fixed),
            }
        })
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "at most three")]
    let total = class.blocks * class.copies as f64 - class.fixed.iter().sum::<f64>();
    let of_groups = pour(&group_levels, total);
    let mut shares = class.fixed.to_vec();
    for (members, amount) in groups.values().zip(of_groups) {
        let levels: Vec<Level> = members.iter().map(|index| level_of(*index)).collect();
        for (index, amount) in members.iter().zip(pour(&levels, amount)) {
            shares[*index] += amount;
        }
    }
    for (held, share) in held.iter_mut().zip(&shares) {
        *held += share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{Class, Vessel};

    fn vessels(sizes: &[(u16, f64)]) -> Vec<Vessel> {
        let vessel = |&(failure_group, size): &(u16, f64)| Vessel {
            failure_group,
            weight_blocks: size,
            capacity_blocks: size,
        };
        sizes.iter().map(vessel).collect()
    }

    fn share_out(vessels: &[Vessel], held: &mut [f64], copies: usize, blocks: f64) -> Vec<f64> {
        let fixed = vec![0.0; vessels.len()];
        let class = Class {
            copies,
            blocks,
            fixed: &fixed,
        };
        super::share_out(vessels, held, class)
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        for (left, right) in found.iter().zip(expected) {
            assert!((left - right).abs() < 1e-6, "{found:?} for {expected:?}");
        }
    }

    #[test]
    fn disks_of_unequal_size_get_in_proportion() {
        let disks = vessels(&[(0, 100.0), (1, 200.0), (2, 300.0)]);
        let mut held = vec![0.0; 3];
        assert_near(&share_out(&disks, &mut held, 1, 60.0), &[10.0, 20.0, 30.0]);
    }

    #[test]
    fn a_failure_group_never_gets_more_than_one_copy_of_each_extent() {
        let disks = vessels(&[(0, 900.0), (0, 100.0), (1, 100.0), (2, 100.0)]);
        let mut held = vec![0.0; 4];
        assert_near(
            &share_out(&disks, &mut held, 2, 100.0),
            &[90.0, 10.0, 50.0, 50.0],
        );
    }

    #[test]
    fn classes_with_more_choice_even_out_what_the_others_could_not() {
        let disks = vessels(&[(0, 1000.0), (1, 100.0)]);
        let mut held = vec![0.0; 2];
        assert_near(&share_out(&disks, &mut held, 2, 90.0), &[90.0, 90.0]);
        assert_near(&share_out(&disks, &mut held, 1, 500.0), &[500.0, 0.0]);
    }

    #[test]
    fn a_full_disk_is_passed_over_and_a_leaving_one_gets_nothing() {
        let mut disks = vessels(&[(0, 100.0), (1, 100.0), (2, 100.0)]);
        disks[0].capacity_blocks = 10.0;
        disks[1].weight_blocks = 0.0;
        let mut held = vec![0.0; 3];
        assert_near(&share_out(&disks, &mut held, 1, 60.0), &[10.0, 0.0, 50.0]);
    }
}
