use std::io::Write as _;

use super::*;

const SIZE: u64 = 64 << 10;

fn write(disk: u8, block: u64, byte: u8) -> (Record, Vec<u8>) {
    let record = Record {
        kind: Kind::Write,
        disk,
        offset: block * BLOCK_BYTES,
        length: 8192,
    };
    (record, vec![byte; 8192])
}

pub(super) fn flush(disk: u8) -> (Record, Vec<u8>) {
    let record = Record {
        kind: Kind::Flush,
        disk,
        offset: 0,
        length: 0,
    };
    (record, Vec::new())
}

/// A record of these, in that directory.
pub(super) fn recorded(records: &[(Record, Vec<u8>)], directory: &Path) -> History {
    let path = directory.join("record");
    let mut file = File::create(&path).unwrap();
    for (record, bytes) in records {
        file.write_all(&record.header()).unwrap();
        file.write_all(bytes).unwrap();
    }
    History::open(&path).unwrap()
}

/// The disks after a cut, by the first byte of each block.
fn disks(records: &[(Record, Vec<u8>)], cut: u64, seed: u64) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let history = recorded(records, directory.path());
    assert_eq!(history.len(), records.len() as u64);
    let paths: Vec<PathBuf> = (0..2)
        .map(|index| directory.path().join(index.to_string()))
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    history.rebuild(cut, &mut random, &paths, SIZE).unwrap();
    paths
        .iter()
        .map(|path| {
            std::fs::read(path)
                .unwrap()
                .chunks(4096)
                .map(|block| block[0])
                .collect()
        })
        .collect()
}

#[test]
fn what_a_flush_of_its_own_disk_follows_is_always_there_and_what_comes_after_the_cut_never() {
    let records = [
        write(0, 0, 1),
        write(1, 0, 2),
        flush(0),
        write(0, 4, 3),
        flush(0),
    ];
    for seed in 0..50 {
        let found = disks(&records, 4, seed);
        assert_eq!(found[0][..2], [1, 1]);
        // The other disk was not flushed, and the last write neither before the cut.
        assert!([0, 2].contains(&found[1][0]) && [0, 3].contains(&found[0][4]));
        assert_eq!(disks(&records, 3, seed)[0][4], 0);
        assert_eq!(disks(&records, 5, seed)[0][4..6], [3, 3]);
    }
}

#[test]
fn what_was_not_flushed_is_lost_kept_and_torn_in_turn() {
    let records = [write(0, 0, 1), write(0, 4, 2)];
    let mut seen: Vec<[u8; 4]> = (0..200)
        .map(|seed| {
            let found = &disks(&records, 2, seed)[0];
            [found[0], found[1], found[4], found[5]]
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    for wanted in [[0, 0, 0, 0], [1, 1, 2, 2], [0, 1, 0, 0], [0, 0, 2, 2]] {
        assert!(seen.contains(&wanted), "{wanted:?} of {seen:?}");
    }
}

#[test]
fn zeros_overwrite_and_a_torn_last_record_never_happened() {
    let zero = Record {
        kind: Kind::Zero,
        disk: 0,
        offset: 0,
        length: 4096,
    };
    let records = [write(0, 0, 7), (zero, Vec::new()), flush(0)];
    assert_eq!(disks(&records, 3, 1)[0][..2], [0, 7]);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let mut bytes = flush(0).0.header().to_vec();
    let (torn, content) = write(0, 0, 1);
    bytes.extend(torn.header());
    bytes.extend(&content[..100]);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(History::open(&path).unwrap().len(), 1);
}
