//! Who is whose partner, and how often each pair should hold two copies together.
//!
//! Partners lie in other failure groups and are at most 8 (more only where a disk would else
//! have none), so that a second failure seldom meets the other copy of what the first one took.

use super::Candidate;

/// Partners of a disk, in the usual case.
pub const PARTNERS_MAX: usize = 8;

/// For each candidate its partners and the weight of each pair. The weights of a disk's pairs
/// sum up to its size as nearly as the failure groups allow.
pub fn weights(candidates: &[Candidate]) -> Vec<Vec<(usize, f64)>> {
    let partners = partners(candidates);
    #[expect(clippy::cast_precision_loss, reason = "a weight, not a count")]
    let sizes: Vec<f64> = candidates.iter().map(|c| c.weight_aus as f64).collect();
    // Pair weight = factor * factor; the factors are scaled until each disk's pairs sum up to
    // its size. The square root damps the steps, so that the scaling settles.
    let mut factors: Vec<f64> = sizes.iter().map(|size| size.sqrt()).collect();
    let sum_of = |factors: &[f64], disk: usize| -> f64 {
        let others: f64 = partners[disk].iter().map(|other| factors[*other]).sum();
        factors[disk] * others
    };
    for _ in 0..200 {
        let sums: Vec<f64> = (0..sizes.len()).map(|d| sum_of(&factors, d)).collect();
        for (disk, sum) in sums.iter().enumerate() {
            if *sum > 0.0 {
                factors[disk] *= (sizes[disk] / sum).sqrt();
            }
        }
    }
    partners
        .iter()
        .enumerate()
        .map(|(disk, others)| {
            others
                .iter()
                .map(|other| (*other, factors[disk] * factors[*other]))
                .collect()
        })
        .collect()
}

/// For each candidate its partners, in order.
pub fn partners(candidates: &[Candidate]) -> Vec<Vec<usize>> {
    let count = candidates.len();
    let order = interleaved(candidates);
    let mut partners: Vec<Vec<usize>> = vec![Vec::new(); count];
    let foreign =
        |left: usize, right: usize| candidates[left].group_index != candidates[right].group_index;
    for distance in 1..count {
        for place in 0..count {
            let (left, right) = (order[place], order[(place + distance) % count]);
            if foreign(left, right)
                && partners[left].len() < PARTNERS_MAX
                && partners[right].len() < PARTNERS_MAX
                && !partners[left].contains(&right)
            {
                partners[left].push(right);
                partners[right].push(left);
            }
        }
    }
    // A small failure group beside a large one: its disks have their eight long before all of
    // the others found one.
    for disk in 0..count {
        let lonely = partners[disk].is_empty();
        let other = (0..count)
            .filter(|other| lonely && foreign(disk, *other))
            .min_by_key(|other| partners[*other].len());
        if let Some(other) = other {
            partners[disk].push(other);
            partners[other].push(disk);
        }
    }
    for list in &mut partners {
        list.sort_unstable();
    }
    partners
}

/// The disks with the failure groups taking turns, so that neighbours are partners.
fn interleaved(candidates: &[Candidate]) -> Vec<usize> {
    let mut keyed: Vec<(usize, u16, usize)> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let rank = candidates[..index]
            .iter()
            .filter(|other| other.group_index == candidate.group_index)
            .count();
        keyed.push((rank, candidate.group_index, index));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, index)| index).collect()
}
