use super::super::Record;
use super::super::tests::{flush, recorded};
use super::*;

/// A block of the journal in a write of 4 KiB that begins with another block.
fn block(disk: u8, kind: u32, transaction: u32) -> (Record, Vec<u8>) {
    let record = Record {
        kind: Kind::Write,
        disk,
        offset: 4096,
        length: 4096,
    };
    let mut bytes = vec![7; 4096];
    for (index, word) in [MAGIC, kind, transaction].into_iter().enumerate() {
        bytes[2048 + 4 * index..2052 + 4 * index].copy_from_slice(&word.to_be_bytes());
    }
    (record, bytes)
}

fn commits(records: &[(Record, Vec<u8>)], disks: usize) -> Vec<Commit> {
    let directory = tempfile::tempdir().unwrap();
    let history = recorded(records, directory.path());
    history.commits(disks).unwrap()
}

#[test]
fn a_commit_that_follows_a_flush_of_each_disk_is_bare_at_no_moment() {
    let records = [
        flush(0),
        block(0, DESCRIPTOR, 5),
        flush(1),
        flush(0),
        block(1, COMMIT, 5),
        flush(1),
    ];
    let [commit] = commits(&records, 2)[..] else {
        panic!("{:?}", commits(&records, 2));
    };
    assert_eq!((commit.committed, commit.flushed), (4, Some(3)));
    assert!(!commit.overtook());
    assert!((0..=6).all(|cut| !commit.is_bare_at(cut)));
}

#[test]
fn a_commit_that_came_before_a_flush_of_one_disk_is_bare_until_that_flush() {
    let mut records = vec![
        block(0, DESCRIPTOR, 5),
        block(1, REVOCATION, 5),
        flush(1),
        block(0, COMMIT, 5),
        block(1, COMMIT, 5),
        flush(0),
    ];
    let bare = |records: &[_], disks| {
        let [commit] = commits(records, disks)[..] else {
            panic!("one commit");
        };
        let cuts = (0..=7).filter(|cut| commit.is_bare_at(*cut));
        (commit.overtook(), cuts.collect::<Vec<u64>>())
    };
    // A cut at 6 is after the flush, which is the record 5.
    assert_eq!(bare(&records, 2), (true, vec![4, 5]));
    // Of disks that forget their flushes nothing is ever safe.
    records.pop();
    assert_eq!(bare(&records, 2), (true, vec![4, 5, 6, 7]));
    // A flush before the descriptor does not count.
    records.insert(0, flush(0));
    assert_eq!(bare(&records, 2), (true, vec![5, 6, 7]));
}

#[test]
fn what_commits_nothing_and_what_is_no_block_of_a_journal_are_not_counted() {
    let (record, mut bytes) = block(0, COMMIT, 6);
    bytes[2048] = 0;
    let records = [
        (record, bytes),
        block(0, COMMIT, 7),
        block(0, DESCRIPTOR, 8),
    ];
    assert_eq!(commits(&records, 1), []);
}
