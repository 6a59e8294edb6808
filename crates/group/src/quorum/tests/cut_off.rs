//! Disks that are smaller than their labels say.

use spindle_base::{DiskNumber, Redundancy};
use spindle_device::DiskSlot;
use spindle_format::{DiskStatus, Feature, Lost};

use super::{DISK_BYTES, make, online, open};
use crate::quorum::{Membership, look};

const TWO: DiskNumber = DiskNumber(2);

fn lost(membership: &Membership) -> Lost {
    membership.state().disk(TWO).unwrap().lost
}

#[test]
fn a_disk_that_is_cut_off_while_the_group_is_open_goes_offline_and_lost_what_it_held() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.notice_cut_off().unwrap();
    assert_eq!(online(&membership), [0, 1, 2]);
    disks.resize(DiskSlot(2), DISK_BYTES / 2);
    membership.notice_cut_off().unwrap();
    assert_eq!(membership.status(TWO), Some(DiskStatus::Offline));
    assert_eq!(lost(&membership).start_au(16), Some(8));
    // Less than was seen before is not unseen by a longer end.
    disks.resize(DiskSlot(2), 3 * DISK_BYTES / 4);
    membership.notice_cut_off().unwrap();
    assert_eq!(lost(&membership).start_au(16), Some(8));
    let error = membership
        .judge_return(&[DiskSlot(2)], &|_| None)
        .unwrap_err();
    assert!(error.message.contains("cut off"), "{error}");
    disks.resize(DiskSlot(2), DISK_BYTES);
    let returning = membership.judge_return(&[DiskSlot(2)], &|_| None).unwrap();
    assert_eq!(returning[0].lost.start_au(16), Some(8));
    assert_eq!(membership.return_disks(&returning).unwrap(), [TWO]);
    assert_eq!(lost(&membership), Lost::NOTHING);
}

#[test]
fn a_device_that_was_pulled_has_no_length_and_lost_nothing() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.resize(DiskSlot(2), 0);
    membership.notice_cut_off().unwrap();
    assert_eq!(lost(&membership), Lost::NOTHING);
    assert_eq!(online(&membership), [0, 1, 2]);
}

#[test]
fn a_disk_that_is_cut_off_at_an_opening_goes_offline_and_lost_what_it_held() {
    let disks = make("abc", Redundancy::Normal);
    disks.resize(DiskSlot(2), DISK_BYTES / 2);
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    assert_eq!(lost(&membership).start_au(16), Some(8));
    membership.close().unwrap();
    // The next opening finds it whole, and knows.
    disks.resize(DiskSlot(2), DISK_BYTES);
    let membership = open(&disks).unwrap();
    assert_eq!(online(&membership), [0, 1]);
    assert_eq!(lost(&membership).start_au(16), Some(8));
}

#[test]
fn what_fails_because_it_was_cut_off_lost_what_it_held() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.resize(DiskSlot(2), DISK_BYTES / 2);
    membership.take_offline(&[TWO], "a read failed").unwrap();
    assert_eq!(lost(&membership).start_au(16), Some(8));
}

#[test]
fn a_state_with_a_new_feature_leaves_none_without_it_on_any_disk() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    disks.resize(DiskSlot(2), DISK_BYTES / 2);
    membership.notice_cut_off().unwrap();
    for look in look(&*disks, &[DiskSlot(0), DiskSlot(1)]) {
        for slot in &look.states {
            let features = slot.state().unwrap().features;
            assert!(features.contains(Feature::LostContents));
        }
    }
}

#[test]
fn a_disk_seen_cut_off_again_while_it_comes_back_stays_away() {
    let disks = make("abc", Redundancy::Normal);
    let membership = open(&disks).unwrap();
    membership.take_offline(&[TWO], "test").unwrap();
    let returning = membership.judge_return(&[DiskSlot(2)], &|_| None).unwrap();
    disks.resize(DiskSlot(2), DISK_BYTES / 2);
    membership.notice_cut_off().unwrap();
    disks.resize(DiskSlot(2), DISK_BYTES);
    assert_eq!(membership.return_disks(&returning).unwrap(), []);
    assert_eq!(membership.status(TWO), Some(DiskStatus::Offline));
}
