//! ASM's sums: what must stay free, and what can still be written.
//!
//! Pure functions of the disks' sizes. Copies of one extent lie in different failure groups, so
//! what unequal failure groups can hold mirrored is less than their sum: `x` blocks fit exactly
//! when the groups, each counted at most `x` times, have `copies` times `x` blocks.

use spindle_base::Redundancy;

/// What the sums need to know of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskCapacity {
    /// Which failure group, as a number of the caller's choice.
    pub failure_group: u32,
    /// Blocks that data can use.
    pub total_blocks: u64,
    /// Of these, how many no extent uses.
    pub free_blocks: u64,
    /// Whether it can be written to.
    pub online: bool,
}

/// The sums of one failure group's online disks.
#[derive(Debug, Default, Clone, Copy)]
struct FailureGroup {
    number: u32,
    total_blocks: u64,
    free_blocks: u64,
    disks_count: u32,
    largest_disk_blocks: u64,
}

fn failure_groups(disks: &[DiskCapacity]) -> Vec<FailureGroup> {
    let mut groups: Vec<FailureGroup> = Vec::new();
    for disk in disks.iter().filter(|disk| disk.online) {
        let place = groups
            .iter()
            .position(|group| group.number == disk.failure_group);
        let place = place.unwrap_or_else(|| {
            groups.push(FailureGroup {
                number: disk.failure_group,
                ..FailureGroup::default()
            });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.total_blocks += disk.total_blocks;
        group.free_blocks += disk.free_blocks;
        group.disks_count += 1;
        group.largest_disk_blocks = group.largest_disk_blocks.max(disk.total_blocks);
    }
    groups
}

/// The blocks that must stay free so that redundancy can be restored after a failure.
///
/// With more failure groups than copies a whole failure group can be rebuilt elsewhere: the
/// reserve is the largest one (high: the two largest, where two can go). With just as many
/// failure groups as copies only a disk can be rebuilt, on its neighbours in the same failure
/// group: the reserve is the largest disk that has such a neighbour.
pub fn required_mirror_free_blocks(redundancy: Redundancy, disks: &[DiskCapacity]) -> u64 {
    let copies = redundancy.copies();
    if copies == 1 {
        return 0;
    }
    let groups = failure_groups(disks);
    let spare_groups_count = groups.len().saturating_sub(copies);
    if spare_groups_count == 0 {
        let rebuildable = groups.iter().filter(|group| group.disks_count > 1);
        return rebuildable
            .map(|group| group.largest_disk_blocks)
            .max()
            .unwrap_or(0);
    }
    let mut totals: Vec<u64> = groups.iter().map(|group| group.total_blocks).collect();
    totals.sort_unstable_by(|left, right| right.cmp(left));
    totals.iter().take(spare_groups_count.min(copies - 1)).sum()
}

/// The blocks of file data that can still be written with `redundancy`. While fewer failure
/// groups are online than there are copies, files are written with as many copies as can be.
pub fn writable_blocks(redundancy: Redundancy, disks: &[DiskCapacity]) -> u64 {
    let free: Vec<u64> = failure_groups(disks)
        .iter()
        .map(|group| group.free_blocks)
        .collect();
    mirrored_blocks(&free, redundancy.copies().min(free.len()))
}

/// ASM's usable space in blocks: what can be written so that a failure can still be repaired
/// from the free space. Negative where that is not so any more.
pub fn usable_blocks(redundancy: Redundancy, disks: &[DiskCapacity]) -> i64 {
    let signed = |blocks: u64| i64::try_from(blocks).unwrap_or(i64::MAX);
    let required = signed(required_mirror_free_blocks(redundancy, disks));
    signed(writable_blocks(redundancy, disks)) - required / redundancy.copies() as i64
}

/// The largest `x` with `sum(min(free, x)) >= copies * x`.
fn mirrored_blocks(free: &[u64], copies: usize) -> u64 {
    if copies == 0 {
        return 0;
    }
    let mut descending = free.to_vec();
    descending.sort_unstable_by(|left, right| right.cmp(left));
    // Groups larger than x count as x each: with the k largest taken out, the rest must fill the
    // remaining columns. The smallest such bound over k < copies is the answer.
    (0..copies)
        .map(|taken| {
            let rest: u64 = descending[taken..].iter().sum();
            rest / (copies - taken) as u64
        })
        .min()
        .unwrap_or(0)
}

/// The blocks that failure groups lack to hold extents; 0 where they hold them all.
///
/// `rooms` gives the blocks of each failure group, `demands` copies and blocks of one copy. The
/// copies of an extent lie in different failure groups, so a failure group can take one of each
/// at most: for the k largest rooms together no more than k copies of each extent count, and the
/// other rooms must take what is left. Over all k that is exact (Gale's condition).
pub fn lacking_blocks(rooms: &[u64], demands: &[(usize, u64)]) -> u64 {
    let mut descending = rooms.to_vec();
    descending.sort_unstable_by(|left, right| right.cmp(left));
    (0..=rooms.len())
        .map(|largest| {
            let elsewhere: u64 = (demands.iter())
                .map(|(copies, blocks)| {
                    let copies = (*copies).min(rooms.len());
                    copies.saturating_sub(largest) as u64 * blocks
                })
                .sum();
            let room: u64 = descending[largest..].iter().sum();
            elsewhere.saturating_sub(room)
        })
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use spindle_base::Redundancy;

    use super::{
        DiskCapacity, lacking_blocks, mirrored_blocks, required_mirror_free_blocks, usable_blocks,
        writable_blocks,
    };

    fn disks(sizes: &[(u32, u64)]) -> Vec<DiskCapacity> {
        let disk = |&(failure_group, blocks)| DiskCapacity {
            failure_group,
            total_blocks: blocks,
            free_blocks: blocks,
            online: true,
        };
        sizes.iter().map(disk).collect()
    }

    #[test]
    fn mirrored_space_agrees_with_its_definition_for_all_small_groups() {
        let fits = |free: &[u64], copies: u64, x: u64| {
            free.iter().map(|group| (*group).min(x)).sum::<u64>() >= copies * x
        };
        for a in 0..8 {
            for b in 0..8 {
                for c in 0..8 {
                    for copies in 1..=3 {
                        let free = [a, b, c];
                        let expected = (0..=32).rev().find(|x| fits(&free, copies, *x)).unwrap();
                        let found = mirrored_blocks(&free, usize::try_from(copies).unwrap());
                        assert_eq!(found, expected, "{free:?} × {copies}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_lacking_agrees_with_what_can_be_mirrored() {
        for free in [[7, 7, 7], [9, 2, 1], [5, 5, 0], [8, 3, 3]] {
            for copies in 1..=3 {
                let fits = mirrored_blocks(&free, copies);
                assert_eq!(lacking_blocks(&free, &[(copies, fits)]), 0, "{free:?}");
                assert_ne!(lacking_blocks(&free, &[(copies, fits + 1)]), 0, "{free:?}");
            }
        }
        // Three copies of 2 leave 3 and 1 and 0 of these; two copies of 1 fit, of 2 do not.
        assert_eq!(lacking_blocks(&[5, 3, 2], &[(3, 2), (2, 1)]), 0);
        assert_eq!(lacking_blocks(&[5, 3, 2], &[(3, 2), (2, 2)]), 1);
        assert_eq!(lacking_blocks(&[], &[(2, 0)]), 0);
    }

    #[test]
    fn two_failure_groups_keep_one_disk_free_and_three_a_whole_failure_group() {
        let two = disks(&[(0, 100), (0, 100), (1, 100), (1, 100)]);
        assert_eq!(required_mirror_free_blocks(Redundancy::Normal, &two), 100);
        assert_eq!(usable_blocks(Redundancy::Normal, &two), 150);
        let three = disks(&[(0, 100), (0, 100), (1, 100), (2, 100)]);
        assert_eq!(required_mirror_free_blocks(Redundancy::Normal, &three), 200);
        let single = disks(&[(0, 100), (1, 100)]);
        assert_eq!(required_mirror_free_blocks(Redundancy::Normal, &single), 0);
        let high = disks(&[(0, 90), (1, 80), (2, 70), (3, 60), (4, 50)]);
        assert_eq!(required_mirror_free_blocks(Redundancy::High, &high), 170);
        assert_eq!(required_mirror_free_blocks(Redundancy::External, &high), 0);
    }

    #[test]
    fn unequal_failure_groups_promise_no_more_than_they_can_mirror() {
        let uneven = disks(&[(0, 1000), (1, 10)]);
        assert_eq!(writable_blocks(Redundancy::Normal, &uneven), 10);
        assert_eq!(writable_blocks(Redundancy::External, &uneven), 1010);
    }

    #[test]
    fn one_disk_that_outgrows_the_others_lowers_what_is_usable() {
        let usable =
            |size| usable_blocks(Redundancy::Normal, &disks(&[(0, size), (1, 100), (2, 100)]));
        assert_eq!([usable(100), usable(200), usable(400)], [100, 100, 0]);
    }

    #[test]
    fn usable_space_goes_negative_when_the_reserve_is_eaten() {
        let mut full = disks(&[(0, 100), (1, 100), (2, 100)]);
        for disk in &mut full {
            disk.free_blocks = 10;
        }
        assert_eq!(usable_blocks(Redundancy::Normal, &full), 15 - 50);
    }

    #[test]
    fn a_degraded_group_still_tells_what_can_be_written() {
        let mut degraded = disks(&[(0, 100), (1, 100)]);
        degraded[1].online = false;
        assert_eq!(writable_blocks(Redundancy::Normal, &degraded), 100);
    }
}
