//! Against a reference model: what must be readable, and what a crash may leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::memory_region::{Arrival, MemoryRegion};
use crate::{Catalog, CatalogError, Edit, Row, Sequence, Table};

const CACHE_BYTES: usize = 1 << 20;
type Model = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn put(table: Table, key: &[u8], value: &[u8]) -> Edit {
    let mut edit = Edit::default();
    edit.put(table, key.to_vec(), value.to_vec());
    edit
}

fn delete(table: Table, key: &[u8]) -> Edit {
    let mut edit = Edit::default();
    edit.delete(table, key.to_vec());
    edit
}

fn commit(catalog: &Catalog) -> Result<(), CatalogError> {
    catalog.commit(catalog.applied())
}

#[test]
fn an_edit_is_readable_before_and_after_its_commit() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    let sequence = catalog.apply(put(Table::Inode, b"a", b"1"));
    assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
    assert_eq!(catalog.get(Table::Name, b"a").unwrap(), None);
    assert!(catalog.committed() < sequence && catalog.pending_bytes() > 0);
    commit(&catalog).unwrap();
    assert_eq!(catalog.committed(), sequence);
    assert_eq!(catalog.pending_bytes(), 0);
    assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
}

#[test]
fn creating_forgets_what_the_region_held() {
    let region = Arc::new(MemoryRegion::new());
    let first = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    first.apply(put(Table::Inode, b"a", b"1"));
    commit(&first).unwrap();
    drop(first);
    let second = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    assert_eq!(second.get(Table::Inode, b"a").unwrap(), None);
}

#[test]
fn a_range_merges_removed_and_new_rows_into_the_committed_ones() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    for key in 0..100_u8 {
        catalog.apply(put(Table::Name, &[key], &[key]));
    }
    commit(&catalog).unwrap();
    for key in (0..80).filter(|key| key % 4 != 0) {
        catalog.apply(delete(Table::Name, &[key]));
    }
    catalog.apply(put(Table::Name, &[8, 1], b"new"));
    let rows = catalog.range(Table::Name, &[4], &[200], 5).unwrap();
    let expected: Vec<Row> = vec![
        (vec![4], vec![4]),
        (vec![8], vec![8]),
        (vec![8, 1], b"new".to_vec()),
        (vec![12], vec![12]),
        (vec![16], vec![16]),
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        catalog
            .range(Table::Name, &[0], &[200], 1000)
            .unwrap()
            .len(),
        41
    );
    assert!(
        catalog
            .range(Table::Name, &[9], &[9], 10)
            .unwrap()
            .is_empty()
    );
    assert!(
        catalog
            .range(Table::Name, &[9], &[3], 10)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_scan_visits_the_committed_rows_in_order() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    for key in [3_u8, 1, 2] {
        catalog.apply(put(Table::File, &[key], &[key]));
    }
    commit(&catalog).unwrap();
    let mut seen = Vec::new();
    catalog
        .scan(Table::File, &mut |key, value| {
            assert_eq!(key, value);
            seen.push(key[0]);
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, [1, 2, 3]);
}

#[test]
fn the_same_calls_write_the_same_bytes() {
    let run = || {
        let region = Arc::new(MemoryRegion::new());
        let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
        for round in 0..50_u32 {
            for key in 0..20_u32 {
                let key = (round * 7 + key * 13).to_be_bytes();
                catalog.apply(put(Table::Extent, &key, &[7; 300]));
            }
            catalog.apply(delete(Table::Extent, &(round * 3).to_be_bytes()));
            commit(&catalog).unwrap();
        }
        region.contents()
    };
    assert!(run() == run());
}

#[test]
fn a_region_that_cannot_be_read_for_a_while_serves_again_afterwards() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), 0).unwrap();
    catalog.apply(put(Table::Inode, b"a", b"1"));
    commit(&catalog).unwrap();
    region.fail_reads(true);
    assert!(matches!(
        catalog.get(Table::Inode, b"a"),
        Err(CatalogError::Region { .. })
    ));
    region.fail_reads(false);
    assert_eq!(catalog.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
    catalog.apply(put(Table::Inode, b"b", b"2"));
    commit(&catalog).unwrap();
}

#[test]
fn closing_keeps_what_was_committed_and_ends_the_catalog() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    catalog.apply(put(Table::Inode, b"a", b"1"));
    commit(&catalog).unwrap();
    catalog.close().unwrap();
    let writes_count = region.writes_count();
    catalog.apply(put(Table::Inode, b"a", b"2"));
    assert!(commit(&catalog).is_err());
    drop(catalog);
    assert_eq!(region.writes_count(), writes_count);
    let again = Catalog::open(region, CACHE_BYTES).unwrap();
    assert_eq!(again.get(Table::Inode, b"a").unwrap().unwrap(), b"1");
}

#[test]
fn dropping_without_closing_writes_nothing() {
    let region = Arc::new(MemoryRegion::new());
    let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
    catalog.apply(put(Table::Inode, b"a", b"1"));
    commit(&catalog).unwrap();
    let writes_count = region.writes_count();
    drop(catalog);
    assert_eq!(region.writes_count(), writes_count);
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8, u16),
    Delete(u8, u8),
    Commit,
    FailedCommit(bool),
    Crash(u64),
    Close,
    Range(u8, u8, u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3_u8, any::<u8>(), 0..3000_u16).prop_map(|(t, k, l)| Step::Put(t, k, l)),
        4 => (0..3_u8, any::<u8>()).prop_map(|(t, k)| Step::Delete(t, k)),
        2 => Just(Step::Commit),
        1 => any::<bool>().prop_map(Step::FailedCommit),
        1 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Close),
        2 => (0..3_u8, any::<u8>(), any::<u8>(), 0..20_u8)
            .prop_map(|(t, f, u, m)| Step::Range(t, f, u, m)),
    ];
    proptest::collection::vec(step, 1..120)
}

fn model_range(model: &Model, table: Table, from: &[u8], to: &[u8], most: usize) -> Vec<Row> {
    model
        .iter()
        .filter(|((t, key), _)| *t == table && key.as_slice() >= from && key.as_slice() < to)
        .map(|((_, key), value)| (key.clone(), value.clone()))
        .take(most)
        .collect()
}

fn everything(catalog: &Catalog) -> Model {
    let mut all = Model::new();
    for table in Table::ALL {
        for (key, value) in catalog.range(table, &[], &[0xFF; 4], usize::MAX).unwrap() {
            all.insert((table, key), value);
        }
    }
    all
}

/// One run: the catalog, what is readable, and what the last commit made durable.
struct Run {
    region: Arc<MemoryRegion>,
    catalog: Catalog,
    model: Model,
    durable: Model,
    counter: u8,
}

impl Run {
    fn new(journal_blocks: usize) -> Self {
        let region = Arc::new(MemoryRegion::with_journal(journal_blocks));
        let catalog = Catalog::create(region.clone(), CACHE_BYTES).unwrap();
        // A crash within the creation leaves no catalog; the runs begin after it.
        catalog.apply(delete(Table::Job, b"none"));
        commit(&catalog).unwrap();
        Self {
            catalog,
            region,
            model: Model::new(),
            durable: Model::new(),
            counter: 0,
        }
    }

    /// The newest durable write of the region becomes any subset of its blocks. That write was
    /// the second phase of the last commit or something of an opening, so the state afterwards
    /// is the last commit or, where its header was lost, the one before.
    fn crash(&mut self, mut seed: u64, before_last: &Model) {
        let crashed = self.region.after_crash(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match seed >> 61 {
                0..=3 => Arrival::Whole,
                4 | 5 => Arrival::Lost,
                _ => Arrival::Garbage,
            }
        });
        self.region = Arc::new(crashed);
        self.catalog = Catalog::open(self.region.clone(), CACHE_BYTES).unwrap();
        let found = everything(&self.catalog);
        assert!(found == self.durable || found == *before_last);
        self.durable.clone_from(&found);
        self.model = found;
    }

    fn run(&mut self, step: &Step, before_last: &mut Model) {
        let table = |number: u8| Table::ALL[usize::from(number)];
        match *step {
            Step::Put(number, key, length) => {
                self.counter = self.counter.wrapping_add(1);
                let value = vec![self.counter; usize::from(length)];
                self.catalog.apply(put(table(number), &[key], &value));
                self.model.insert((table(number), vec![key]), value);
            }
            Step::Delete(number, key) => {
                self.catalog.apply(delete(table(number), &[key]));
                self.model.remove(&(table(number), vec![key]));
            }
            Step::Commit => {
                // With nothing to commit the newest write stays the one of the commit before.
                if self.catalog.pending_bytes() > 0 {
                    before_last.clone_from(&self.durable);
                }
                commit(&self.catalog).unwrap();
                self.durable.clone_from(&self.model);
            }
            Step::FailedCommit(in_before) => {
                let good = u64::from(self.counter % 2);
                self.region.fail_write_after((!in_before).then_some(good));
                let all = Sequence(u64::MAX);
                let batch = self.catalog.begin_commit(all).unwrap().take_batch();
                let result = if in_before {
                    // As where the flush fails that the batch waits for.
                    drop(batch);
                    Err(CatalogError::Full)
                } else {
                    batch.make_durable()
                };
                self.region.fail_write_after(None);
                // A batch with nothing in it writes nothing, which cannot fail, and the journal
                // may have room for it, which is one good write.
                if result.is_ok() && self.model != self.durable {
                    assert!(!in_before && good == 1);
                    before_last.clone_from(&self.durable);
                    self.durable.clone_from(&self.model);
                }
            }
            Step::Crash(seed) => self.crash(seed, before_last),
            Step::Close => {
                commit(&self.catalog).unwrap();
                before_last.clone_from(&self.model);
                self.durable.clone_from(&self.model);
                self.catalog.close().unwrap();
                self.catalog = Catalog::open(self.region.clone(), CACHE_BYTES).unwrap();
            }
            Step::Range(number, from, to, most) => {
                let found = self
                    .catalog
                    .range(table(number), &[from], &[to], usize::from(most));
                let expected = model_range(
                    &self.model,
                    table(number),
                    &[from],
                    &[to],
                    usize::from(most),
                );
                assert_eq!(found.unwrap(), expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_reads_as_the_model_and_a_crash_keeps_a_prefix_of_the_commits(
        steps in steps(),
        journal_blocks in prop_oneof![Just(0_usize), 1..6_usize, Just(96)],
    ) {
        let mut run = Run::new(journal_blocks);
        let mut before_last = Model::new();
        for step in &steps {
            run.run(step, &mut before_last);
            if let Step::Put(number, key, _) | Step::Delete(number, key) = *step {
                let table = Table::ALL[usize::from(number)];
                let found = run.catalog.get(table, &[key]).unwrap();
                prop_assert_eq!(found.as_ref(), run.model.get(&(table, vec![key])));
            }
        }
        prop_assert!(everything(&run.catalog) == run.model);
    }
}

/// Two crashes of which each leaves other blocks of a record on each replica: the second takes a replica
/// back to what it had itself, and not to what the other one had.
#[test]
fn a_record_of_which_each_replica_lost_another_block_is_there_after_no_later_crash() {
    use Step::{Commit, Crash, Put};
    let lengths = [
        0, 0, 0, 0, 513, 975, 2278, 1799, 2264, 1551, 1266, 1308, 1254, 155, 2859,
    ];
    let keys = [0, 0, 0, 0].into_iter().chain(0..);
    let many = keys.zip(lengths).map(|(key, length)| Put(0, key, length));
    let more = [
        Commit,
        Put(0, 0, 2039),
        Put(0, 1, 1976),
        Commit,
        Crash(5_868_871_013_851_525_650),
        Put(0, 0, 0),
        Commit,
        Crash(3_985_399_402_946_342_330),
    ];
    let mut run = Run::new(5);
    let mut before_last = Model::new();
    for step in many.chain(more) {
        run.run(&step, &mut before_last);
    }
}
