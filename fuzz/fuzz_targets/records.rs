//! The rows of the catalog's tables: the first byte chooses which, the rest is its value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_format::{
    DirtyRecord, DiskRecord, ExtentRow, FileRecord, Inode, NameRecord, encode_extent_row,
};

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else {
        return;
    };
    let again = match kind % 6 {
        0 => FileRecord::parse(bytes).ok().map(|record| record.encode()),
        1 => DirtyRecord::parse(bytes).ok().map(|record| record.encode()),
        2 => DiskRecord::parse(bytes).ok().map(|record| record.encode()),
        3 => Inode::parse(bytes).ok().map(|inode| inode.encode()),
        4 => NameRecord::parse(bytes).ok().map(|name| name.encode()),
        _ => ExtentRow::parse(bytes).ok().and_then(|row| {
            let entries: Vec<_> = row.entries().collect();
            let marks: Vec<_> = row.marks().collect();
            // A row of holes only is never written, and so has no bytes to compare with.
            encode_extent_row(row.copies(), &entries, &marks)
        }),
    };
    if let Some(again) = again {
        assert_eq!(again, bytes);
    }
});
