use proptest::prelude::*;
use spindle_base::{AuSize, DiskNumber, Sequence};

use super::{Conflict, DiskSpace, Run, Space};

const AU_CLASS: u8 = 8;

proptest! {
    #[test]
    fn runs_given_out_never_overlap_and_what_is_freed_comes_back(
        steps in proptest::collection::vec((0_usize..12, any::<u16>()), 1..300),
    ) {
        let mut space = DiskSpace::new(AuSize::DEFAULT, 150);
        let all_free = space.free_blocks();
        let mut held: Vec<(u64, u8)> = Vec::new();
        let mut owner = vec![false; 150 * 256];
        for (action, pick) in steps {
            let classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12];
            if let Some(class) = classes.get(action) {
                let Some(start) = space.allocate(*class) else { continue };
                for block in start..start + (1 << class) {
                    let slot = &mut owner[usize::try_from(block).unwrap()];
                    prop_assert!(!*slot && block >= 256);
                    *slot = true;
                }
                held.push((start, *class));
            } else if !held.is_empty() {
                let (start, class) = held.swap_remove(usize::from(pick) % held.len());
                space.free(start, class);
                for block in start..start + (1 << class) {
                    owner[usize::try_from(block).unwrap()] = false;
                }
            }
            let used: u64 = held.iter().map(|(_, class)| 1_u64 << class).sum();
            prop_assert_eq!(space.free_blocks(), all_free - used);
        }
        let mut rebuilt = DiskSpace::new(AuSize::DEFAULT, 150);
        for (start, class) in &held {
            rebuilt.mark_used(*start, *class).unwrap();
            prop_assert_eq!(rebuilt.mark_used(*start, *class), Err(Conflict::DoubleUse));
        }
        prop_assert_eq!(rebuilt.free_blocks(), space.free_blocks());
        for (start, class) in held {
            space.free(start, class);
        }
        prop_assert_eq!(space.free_aus(), 149);
    }
}

#[test]
fn small_runs_share_an_au_and_leave_it_when_the_last_is_freed() {
    let mut space = DiskSpace::new(AuSize::DEFAULT, 10);
    let runs: Vec<u64> = (0..256).map(|_| space.allocate(0).unwrap()).collect();
    assert_eq!(space.free_aus(), 8);
    assert!(runs.iter().all(|start| start >> AU_CLASS == 1));
    for start in runs {
        space.free(start, 0);
    }
    assert_eq!(space.free_aus(), 9);
}

#[test]
fn four_aus_are_found_unaligned_where_no_aligned_run_is_left() {
    let mut space = DiskSpace::new(AuSize::DEFAULT, 8);
    let held: Vec<u64> = (0..7).map(|_| space.allocate(AU_CLASS).unwrap()).collect();
    for start in &held[1..5] {
        space.free(*start, AU_CLASS);
    }
    assert_eq!(space.allocate(AU_CLASS + 2), Some(2 << AU_CLASS));
    assert_eq!(space.allocate(AU_CLASS + 2), None);
}

#[test]
fn runs_outside_the_disk_or_in_its_first_au_are_refused() {
    let mut space = DiskSpace::new(AuSize::DEFAULT, 8);
    assert_eq!(space.mark_used(0, AU_CLASS), Err(Conflict::Outside));
    assert_eq!(space.mark_used(3, 0), Err(Conflict::Outside));
    assert_eq!(space.mark_used(8 << AU_CLASS, 0), Err(Conflict::Outside));
    assert_eq!(
        space.mark_used(6 << AU_CLASS, AU_CLASS + 2),
        Err(Conflict::Outside)
    );
    assert_eq!(space.mark_used(u64::MAX >> 2, 60), Err(Conflict::Outside));
}

#[test]
fn freed_runs_return_only_when_their_batch_is_durable() {
    let space = Space::new(AuSize::DEFAULT, &[(DiskNumber(0), 3 << 20)]);
    let disk = DiskNumber(0);
    let first = space.allocate(disk, AU_CLASS, 0).unwrap();
    let second = space.allocate(disk, AU_CLASS, 0).unwrap();
    let run = |start_block| Run {
        disk,
        start_block,
        class: AU_CLASS,
    };
    space.quarantine(run(first));
    space.seal(Sequence(5));
    space.quarantine(run(second));
    space.release(Sequence(4));
    assert_eq!(space.allocate(disk, AU_CLASS, 0), None);
    space.release(Sequence(5));
    assert_eq!(space.allocate(disk, AU_CLASS, 0), Some(first));
    assert_eq!(space.allocate(disk, AU_CLASS, 0), None);
    space.seal(Sequence(6));
    space.release(Sequence(6));
    assert_eq!(space.allocate(disk, AU_CLASS, 0), Some(second));
}

#[test]
fn the_catalogs_reserve_is_not_given_to_files() {
    let space = Space::new(AuSize::DEFAULT, &[(DiskNumber(0), 5 << 20)]);
    let disk = DiskNumber(0);
    assert!(space.allocate(disk, AU_CLASS, 3).is_some());
    assert_eq!(space.allocate(disk, AU_CLASS, 3), None);
    assert_eq!(space.allocate_aus(disk, 3), Some(2));
}

#[test]
fn nothing_is_given_out_behind_the_end_of_a_disk_and_what_lies_there_can_be_freed() {
    let mut space = DiskSpace::new(AuSize::DEFAULT, 12);
    let whole: Vec<u64> = (0..8).map(|_| space.allocate(AU_CLASS).unwrap()).collect();
    let small: Vec<u64> = (0..20).map(|_| space.allocate(3).unwrap()).collect();
    assert!(small.iter().all(|start| start >> AU_CLASS == 9));
    let free_blocks = space.free_blocks();
    space.set_end(6);
    assert!(space.is_used_behind_end());
    assert_eq!(space.free_blocks(), 0);
    assert_eq!(space.used_blocks(), 8 * 256 + 20 * 8);
    assert_eq!((space.allocate(3), space.allocate(AU_CLASS)), (None, None));
    space.set_end(12);
    assert_eq!(space.free_blocks(), free_blocks);
    space.set_end(6);
    for start in small {
        space.free(start, 3);
    }
    for start in &whole[4..] {
        space.free(*start, AU_CLASS);
    }
    // AU 5 lies before the end.
    assert_eq!(space.allocate(AU_CLASS), Some(5 << AU_CLASS));
    assert_eq!(space.allocate(0), None);
    assert!(!space.is_used_behind_end());
    space.set_count(6);
    assert_eq!(space.mark_used(6 << AU_CLASS, 0), Err(Conflict::Outside));
    space.set_count(200);
    assert_eq!(space.free_aus(), 194);
    assert_eq!(space.allocate_aus(194), Some(6));
}

#[test]
fn a_disk_comes_grows_and_is_forgotten_with_its_quarantine() {
    let space = Space::new(AuSize::DEFAULT, &[]);
    let disk = DiskNumber(7);
    assert_eq!(space.allocate(disk, AU_CLASS, 0), None);
    space.add_disk(disk, 3 << 20);
    let start_block = space.allocate(disk, AU_CLASS, 0).unwrap();
    space.resize_disk(disk, 4 << 20);
    assert_eq!(space.free_aus(disk), 2);
    space.quarantine(Run {
        disk,
        start_block,
        class: AU_CLASS,
    });
    space.seal(Sequence(1));
    space.forget_disk(disk);
    space.release(Sequence(1));
    assert_eq!(space.free_blocks(disk), 0);
}

#[test]
fn what_is_freed_behind_a_disks_early_end_does_not_count_as_free() {
    let disk = DiskNumber(0);
    let space = Space::new(AuSize::DEFAULT, &[(disk, 11 << 20)]);
    let first = space.allocate_aus(disk, 10).unwrap();
    assert_eq!(first, 1);
    space.end_disk(disk, 6 << 20);
    // Of four AUs two lie before the end.
    space.quarantine(Run {
        disk,
        start_block: 4 << AU_CLASS,
        class: AU_CLASS + 2,
    });
    for _ in 0..2 {
        assert_eq!(space.free_blocks(disk), 2 << AU_CLASS);
        assert_eq!(space.free_aus(disk), 2);
        space.seal(Sequence(1));
        space.release(Sequence(1));
    }
    space.end_disk(disk, 11 << 20);
    assert_eq!(space.free_aus(disk), 4);
}
