//! What is whole on no replica that an opening sees, and may be whole on one that it does not.

use std::sync::Arc;

use spindle_base::Redundancy;
use spindle_catalog::Region;
use spindle_device::{DiskSlot, SimulatedDisks};
use spindle_format::JOURNAL_PLACE;

use super::unread::{crashed, held, open_catalog};
use super::{BLOCK, block, make, open, open_recovering, read, write};
use crate::event::EventKind;
use crate::quorum::Membership;

const AWAY: DiskSlot = DiskSlot(2);

fn rot(disks: &SimulatedDisks, place: u64) {
    for slot in [DiskSlot(0), DiskSlot(1)] {
        disks.overwrite(slot, place, &[0xEE; 64]);
    }
}

/// What is told of damage.
fn told(membership: &Membership) -> Vec<String> {
    let events = membership.take_events().into_iter();
    let told = events.filter(|event| event.kind == EventKind::DamageFound);
    told.map(|event| event.message).collect()
}

#[test]
fn a_record_that_rotted_on_the_replicas_that_are_seen_is_told_where_another_is_away() {
    for (is_away, is_rotten) in [(true, true), (true, false), (false, true)] {
        let disks = crashed(3, Redundancy::Normal);
        if is_rotten {
            // Behind its head, which says that it begins there.
            rot(&disks, JOURNAL_PLACE + 9 * BLOCK as u64 + 64);
        }
        if is_away {
            disks.vanish(AWAY);
        }
        let (open, catalog) = open_catalog(&disks).unwrap();
        let is_lost = is_away && is_rotten;
        assert_eq!(held(&catalog, 9).unwrap(), !is_lost);
        let told = told(&open.membership);
        assert_eq!(told.len(), usize::from(is_lost), "{told:?}");
        for words in ["block 9 of its journal is", "disk 2, which"] {
            assert!(told.iter().all(|told| told.contains(words)), "{told:?}");
        }
    }
}

#[test]
fn sums_that_rotted_on_the_replicas_that_are_seen_are_told_where_another_is_away() {
    for is_away in [true, false] {
        let disks = make(3);
        let made = open(&disks);
        made.region.grow(1 << 20).unwrap();
        write(&made.region, &[(7, 1)]).unwrap();
        write(&made.region, &[(7, 2)]).unwrap();
        drop(made);
        disks.crash();
        disks.restart();
        let newest = newest_sums(&disks);
        rot(&disks, newest + 512);
        if is_away {
            disks.vanish(AWAY);
        }
        let open = open_recovering(&disks).unwrap();
        let told = told(&open.membership);
        assert_eq!(told.len(), usize::from(is_away), "{told:?}");
        for words in ["checksum block 0 is", "disk 2, which"] {
            assert!(told.iter().all(|told| told.contains(words)), "{told:?}");
        }
        if !is_away {
            assert_eq!(read(&open.region, 7).unwrap(), block(2));
        }
    }
}

/// Where the newer of the first sums lie.
fn newest_sums(disks: &Arc<SimulatedDisks>) -> u64 {
    let places = [1 << 20, (1 << 20) + BLOCK as u64];
    let sequence = |place: &u64| {
        let bytes = disks.bytes(DiskSlot(0), *place, BLOCK);
        spindle_format::ChecksumBlock::parse(&bytes, *place).map_or(0, |block| block.sequence)
    };
    places.into_iter().max_by_key(sequence).unwrap()
}
