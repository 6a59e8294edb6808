//! Reads verify the pages of databases' files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spindle_base::crc32c;
use spindle_device::{DiskSlot, Disks, Operation, Request, SimulatedDisks};
use spindle_pages::postgresql::checksum;

use crate::fixture::{Fixture, ROOT};

const PAGE_BYTES: u64 = 8192;
const PAGES_COUNT: u32 = 64;

/// The disks of one failure group are busy; once something was written, those of the other are.
#[derive(Debug)]
struct OneSideBusy {
    disks: Arc<SimulatedDisks>,
    has_written: AtomicBool,
}

impl Disks for OneSideBusy {
    fn run(&self, batch: &mut [Request<'_>]) {
        if (batch.iter()).any(|request| request.work.operation() == Operation::Write) {
            self.has_written.store(true, Ordering::SeqCst);
        }
        self.disks.run(batch);
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        let busy_side = u16::from(!self.has_written.load(Ordering::SeqCst));
        u32::from(slot.0 % 2 == busy_side)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

/// A control file of PostgreSQL 17 that says that pages have checksums.
fn control() -> Vec<u8> {
    const SUM_OFFSET: usize = 288;
    let mut bytes = vec![0; 8192];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(8, &1700_u32.to_le_bytes());
    put(SUM_OFFSET - 80, &1_234_567.0_f64.to_le_bytes());
    put(SUM_OFFSET - 72, &(PAGE_BYTES as u32).to_le_bytes());
    put(SUM_OFFSET - 68, &131_072_u32.to_le_bytes());
    put(SUM_OFFSET - 36, &1_u32.to_le_bytes());
    let sum = crc32c(&bytes[..SUM_OFFSET]);
    bytes[SUM_OFFSET..SUM_OFFSET + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn page(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8 | 0x40; PAGE_BYTES as usize];
    bytes[..8].copy_from_slice(&[0; 8]);
    bytes[14..16].copy_from_slice(&8000_u16.to_le_bytes());
    bytes[18..20].copy_from_slice(&(PAGE_BYTES as u16 | 4).to_le_bytes());
    let sum = checksum(&bytes, number);
    bytes[8..10].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn what_is_read_again_after_a_mend_is_verified_too() {
    let mut fixture = Fixture::plain();
    let global = fixture.directory(ROOT, "global");
    let base = fixture.directory(ROOT, "base");
    let database = fixture.directory(base, "5");
    fixture.write(&fixture.make(global, "pg_control"), 0, &control());
    let relation = fixture.make(database, "16384");
    let pages: Vec<u8> = (0..PAGES_COUNT).flat_map(page).collect();
    fixture.write(&relation, 0, &pages);
    // Of each copy another page, in one extent: the read that meets the first one's page mends
    // that, and the other copy's lies outside of what was mended.
    let inside_bytes = 512;
    for (number, side) in [(40, 0), (41, 1)] {
        let at = number * PAGE_BYTES + inside_bytes;
        let places = fixture.places(&relation, at);
        let (slot, offset_bytes) = places
            .into_iter()
            .find(|(slot, _)| slot.0 % 2 == side)
            .expect("each side has a copy");
        fixture.disks.overwrite(slot, offset_bytes, &[0; 16]);
    }
    drop(relation);
    let disks = Arc::new(OneSideBusy {
        disks: Arc::clone(&fixture.disks),
        has_written: AtomicBool::new(false),
    });
    fixture.reopen_on(Arc::clone(&disks) as Arc<dyn Disks>);
    let id = fixture.find("base/5/16384").id;
    let relation = fixture.fs().open_file(id).unwrap();
    disks.has_written.store(false, Ordering::SeqCst);
    let mut read = vec![0; pages.len()];
    fixture.fs().read(&relation, 0, &mut read).unwrap();
    assert!(
        disks.has_written.load(Ordering::SeqCst),
        "a page was mended"
    );
    assert!(read == pages, "a page that lies was served");
}
