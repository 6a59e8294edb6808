//! What is overwritten on the disks of an open group.

use spindle_base::Redundancy;
use spindle_device::DiskSlot;

use super::{make, online, open};
use crate::quorum::FaultOutcome;

#[test]
fn what_is_overwritten_on_a_disk_of_an_open_group_is_written_again() {
    for rubbish in [0, 0xa5] {
        let disks = make("ab", Redundancy::Normal);
        let membership = open(&disks).unwrap();
        assert!(membership.verify_structures(true).is_empty());
        disks.overwrite(DiskSlot(1), 0, &vec![rubbish; 1 << 20]);
        let faults = membership.verify_structures(true);
        assert!(
            (faults.iter()).all(|fault| fault.outcome == FaultOutcome::Repaired),
            "{faults:?}"
        );
        assert!(!faults.is_empty());
        assert!(membership.verify_structures(true).is_empty());
        // As a crash finds it.
        drop(membership);
        let membership = open(&disks).unwrap();
        assert_eq!(online(&membership), [0, 1]);
    }
}
