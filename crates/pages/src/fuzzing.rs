//! What a fuzzer throws at the judges; also run by a test over random bytes.
//!
//! Any bytes get a verdict. A page that was called good is called so again with the same
//! knowledge, and not with a bit of it flipped, but for what no checksum covers.

use crate::{Choice, HEAD_BYTES, PageFile, Verdict, choose, postgresql};

/// Paths of each kind, and of none.
const PATHS: [&str; 6] = [
    "/pg/base/5/16384.2",
    "/pg/global/1262",
    "/ts/PG_15_202209061/5/16390_vm",
    "/var/my/ibdata1",
    "/var/my/db/t.ibd",
    "/any/file.db",
];

/// The input as a file: its first byte chooses the path, the rest is what it holds.
pub fn pages(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else {
        return;
    };
    let path = PATHS[usize::from(*first) % PATHS.len()];
    let _ = postgresql::Cluster::of_control(bytes);
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    for control in [None, Some(bytes)] {
        let Some(file) = PageFile::recognise(path, head, control) else {
            continue;
        };
        let page_bytes = file.page_bytes();
        assert!((512..=HEAD_BYTES).contains(&page_bytes));
        // A page that is cut short is judged too: it must only not be called good.
        for (page, bytes) in (0_u64..).zip(bytes.chunks(page_bytes)) {
            let verdict = file.judge(page, bytes);
            assert!(bytes.len() == page_bytes || verdict == Verdict::Unknown);
            assert_eq!(file.judge(page, bytes), verdict);
        }
        let _ = file.judge(u64::MAX, head);
        if let Some(unit) = bytes.get(..page_bytes) {
            let mut other = unit.to_vec();
            other[page_bytes / 2] ^= 1;
            // Whatever is chosen is good, and what is not chosen is not.
            if let Choice::Right(right) = choose(&file, 0, &[unit, &other]) {
                let verdicts = [unit, &other].map(|unit| file.judge(0, unit));
                assert!(verdicts[right].is_good() && verdicts[1 - right].is_bad());
            }
        }
    }
}
