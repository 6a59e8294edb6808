//! Reads verify the pages of databases' files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use spindle_base::{FileId, crc32c};
use spindle_device::{DiskSlot, Disks, Operation, Request, SimulatedDisks};
use spindle_fs::{Handle, RenameMode};
use spindle_group::{ScrubScope, ScrubStep, ScrubView, ScrubWish};
use spindle_pages::postgresql::checksum;

use crate::fixture::{Fixture, ROOT, name};

const PAGE_BYTES: u64 = 8192;
const PAGES_COUNT: u32 = 64;

/// The disks of one failure group are busy; once something was written, those of the other are.
#[derive(Debug)]
struct OneSideBusy {
    disks: Arc<SimulatedDisks>,
    has_written: AtomicBool,
    /// A place that is damaged, and what it had before.
    first_damaged: (DiskSlot, u64, Vec<u8>),
    /// Whether the next read of that place is followed by a mend of somebody else.
    is_mended_elsewhere: AtomicBool,
    /// Where the copies of the page with that place begin, and how often one was read from there.
    page_places: Vec<(DiskSlot, u64)>,
    reads_count: AtomicUsize,
}

impl Disks for OneSideBusy {
    fn run(&self, batch: &mut [Request<'_>]) {
        if (batch.iter()).any(|request| request.work.operation() == Operation::Write) {
            self.has_written.store(true, Ordering::SeqCst);
        }
        self.disks.run(batch);
        let reads = (batch.iter())
            .filter(|request| request.work.operation() == Operation::Read)
            .map(|request| (request.slot, request.offset_bytes));
        let page_reads = reads.clone().filter(|read| self.page_places.contains(read));
        self.reads_count
            .fetch_add(page_reads.count(), Ordering::SeqCst);
        let (slot, at_bytes, former) = &self.first_damaged;
        let file_bytes = PAGE_BYTES * u64::from(PAGES_COUNT);
        let mut reads = reads;
        if reads.any(|(read, from)| read == *slot && (from..from + file_bytes).contains(at_bytes))
            && self.is_mended_elsewhere.swap(false, Ordering::SeqCst)
        {
            self.disks.overwrite(*slot, *at_bytes, former);
            self.has_written.store(true, Ordering::SeqCst);
        }
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

/// A control file of PostgreSQL 17 that says whether pages have checksums.
fn control(has_checksums: bool) -> Vec<u8> {
    const SUM_OFFSET: usize = 288;
    let mut bytes = vec![0; 8192];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(8, &1700_u32.to_le_bytes());
    put(SUM_OFFSET - 80, &1_234_567.0_f64.to_le_bytes());
    put(SUM_OFFSET - 72, &(PAGE_BYTES as u32).to_le_bytes());
    put(SUM_OFFSET - 68, &131_072_u32.to_le_bytes());
    put(SUM_OFFSET - 36, &u32::from(has_checksums).to_le_bytes());
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

/// A relation of pages of which the copy on each side has others that are damaged, on disks that
/// are read from one side until something was written.
fn damaged_relation(
    fixture: &mut Fixture,
    damaged: &[(u64, u16)],
) -> (Arc<OneSideBusy>, Arc<Handle>, Vec<u8>) {
    let pages: Vec<u8> = (0..PAGES_COUNT).flat_map(page).collect();
    let relation = cluster(fixture, ROOT, true, &pages);
    let id = relation.id();
    let inside_bytes = 512;
    let mut first_damaged = None;
    for (number, side) in damaged {
        let places = fixture.places(&relation, number * PAGE_BYTES);
        let (slot, offset_bytes) = places
            .into_iter()
            .find(|(slot, _)| slot.0 % 2 == *side)
            .expect("each side has a copy");
        let at_bytes = offset_bytes + inside_bytes;
        let former = fixture.disks.bytes(slot, at_bytes, 16);
        first_damaged.get_or_insert((slot, at_bytes, former));
        fixture.disks.overwrite(slot, at_bytes, &[0; 16]);
    }
    let page_places = fixture.places(&relation, damaged[0].0 * PAGE_BYTES);
    drop(relation);
    let disks = Arc::new(OneSideBusy {
        disks: Arc::clone(&fixture.disks),
        has_written: AtomicBool::new(false),
        first_damaged: first_damaged.expect("a page is damaged"),
        is_mended_elsewhere: AtomicBool::new(false),
        page_places,
        reads_count: AtomicUsize::new(0),
    });
    fixture.reopen_on(Arc::clone(&disks) as Arc<dyn Disks>);
    fixture.find("base/5/16384");
    let relation = fixture.fs().open_file(id).unwrap();
    disks.has_written.store(false, Ordering::SeqCst);
    (disks, relation, pages)
}

#[test]
fn what_is_read_again_after_a_mend_is_verified_too() {
    // The read that meets the first copy's page mends that, and the other copy's lies outside of
    // what was mended.
    let damaged = [(40, 0), (41, 1)];
    let mut fixture = Fixture::plain();
    let (disks, relation, pages) = damaged_relation(&mut fixture, &damaged);
    let mut read = vec![0; pages.len()];
    fixture.fs().read(&relation, 0, &mut read).unwrap();
    assert!(
        disks.has_written.load(Ordering::SeqCst),
        "a page was mended"
    );
    assert!(read == pages, "a page that lies was served");
}

#[test]
fn what_is_read_again_after_somebody_else_mended_it_is_verified_too() {
    let mut fixture = Fixture::plain();
    let (disks, relation, pages) = damaged_relation(&mut fixture, &[(40, 0), (41, 1)]);
    disks.is_mended_elsewhere.store(true, Ordering::SeqCst);
    let mut read = vec![0; pages.len()];
    fixture.fs().read(&relation, 0, &mut read).unwrap();
    assert!(
        !disks.is_mended_elsewhere.load(Ordering::SeqCst),
        "it was mended behind the read"
    );
    assert!(read == pages, "a page that lies was served");
}

#[test]
fn a_page_that_is_bad_for_good_is_looked_at_once_a_read_and_no_more_where_nothing_else_is_read() {
    let mut fixture = Fixture::plain();
    let (disks, relation, pages) = damaged_relation(&mut fixture, &[(40, 0), (40, 1)]);
    let mut read = vec![0; usize::try_from(PAGE_BYTES).unwrap()];
    let mut reads_of_bad_page = |number: u64| {
        disks.reads_count.store(0, Ordering::SeqCst);
        let at_bytes = number * PAGE_BYTES;
        fixture.fs().read(&relation, at_bytes, &mut read).unwrap();
        let right = &pages[usize::try_from(at_bytes).unwrap()..][..read.len()];
        assert_eq!(read == right, number != 40);
        disks.reads_count.load(Ordering::SeqCst)
    };
    // The read, each copy, and the read once more: somebody else may have mended it.
    let with_look = 4;
    assert_eq!(reads_of_bad_page(40), with_look);
    // A good read between two that are in vain does not make up for both.
    let mut reads_in_vain_count = 1;
    while reads_of_bad_page(40) == with_look {
        reads_in_vain_count += 1;
        assert!(reads_in_vain_count < 500, "it is looked at for ever");
        if reads_in_vain_count % 2 == 0 {
            reads_of_bad_page(3);
        }
    }
    assert!(reads_in_vain_count > 200);
    assert_eq!(reads_of_bad_page(40), 1);
    reads_of_bad_page(3);
    assert_eq!(reads_of_bad_page(40), with_look);
    assert_eq!(reads_of_bad_page(40), 1);
}

/// Makes a cluster in a directory, whose one relation has these bytes.
fn cluster(fixture: &Fixture, at: FileId, has_checksums: bool, pages: &[u8]) -> Arc<Handle> {
    let global = fixture.directory(at, "global");
    let base = fixture.directory(at, "base");
    let database = fixture.directory(base, "5");
    let control_file = fixture.make(global, "pg_control");
    fixture.write(&control_file, 0, &control(has_checksums));
    let relation = fixture.make(database, "16384");
    fixture.write(&relation, 0, pages);
    relation
}

/// What a scrub finds that has begun with another file when a cluster is moved, and perhaps another one,
/// which has checksums, is made in its place. Nobody has the cluster's nodes in memory: their names come
/// from the index of the scrub.
fn scrub_beside_a_move(has_sums: bool, contents: &[u8], is_replaced: bool) -> ScrubView {
    let mut fixture = Fixture::plain();
    let earlier = fixture.make(ROOT, "earlier");
    fixture.write(&earlier, 0, &[1; 4096]);
    let main = fixture.directory(ROOT, "main");
    let relation = cluster(&fixture, main, has_sums, contents);
    let wish = ScrubWish {
        scope: ScrubScope::Files(vec![earlier.id(), relation.id()]),
        title: "DATA".to_owned(),
        repair: true,
        power: 1024,
        distrust: None,
    };
    drop((earlier, relation));
    fixture.reopen();
    let group = fixture.fs().group();
    group.start_scrub(wish).unwrap();
    while group.scrub_view().unwrap().done_bytes == 0 {
        assert_eq!(group.scrub_unit(1000).unwrap(), ScrubStep::Did);
    }
    (fixture.fs())
        .rename(
            ROOT,
            name("main"),
            ROOT,
            name("old"),
            RenameMode::NoReplace,
            fixture.now(),
        )
        .unwrap();
    if is_replaced {
        let main = fixture.directory(ROOT, "main");
        drop(cluster(&fixture, main, true, contents));
    }
    finish(&fixture)
}

#[test]
fn a_file_that_was_moved_while_a_scrub_runs_is_not_judged_by_what_stands_at_its_former_path() {
    let mut without_sums: Vec<u8> = (0..PAGES_COUNT).flat_map(page).collect();
    without_sums[8..10].fill(0);
    let view = scrub_beside_a_move(false, &without_sums, true);
    assert_eq!(view.judged_pages_count, 0, "{:?}", view.findings);
    assert_eq!(view.findings_count, 0, "{:?}", view.findings);
}

#[test]
fn a_file_that_was_moved_while_a_scrub_runs_is_judged_where_it_is_now() {
    let pages: Vec<u8> = (0..PAGES_COUNT).flat_map(page).collect();
    let view = scrub_beside_a_move(true, &pages, false);
    assert_eq!(view.judged_pages_count, u64::from(PAGES_COUNT));
    assert_eq!(view.findings_count, 0, "{:?}", view.findings);
}

/// Works until the scrub has ended; the clock stands still but where it waits.
fn finish(fixture: &Fixture) -> ScrubView {
    let group = fixture.fs().group();
    let mut now_ms = 1000;
    loop {
        match group.scrub_unit(now_ms).unwrap() {
            ScrubStep::Did => {}
            ScrubStep::Waiting => now_ms += 10_000,
            ScrubStep::Idle => return group.scrub_view().unwrap(),
        }
    }
}
