//! Where the fixed structures lie on every disk: in AU 0, which is never allocated, and a third copy
//! of the label behind the last AU.

use spindle_base::AuSize;

/// Bytes of a label.
pub const LABEL_BYTES: usize = 4096;
/// The two places of a disk's label: far enough apart that no single torn write reaches both.
pub const LABEL_PLACES: [u64; 2] = [0, 512 << 10];
/// The place of the label's third copy: the last whole block of a disk of `size_bytes`. What
/// overwrites the beginning of a disk (another file system, a `dd`) leaves it.
#[must_use]
pub const fn end_label_place(size_bytes: u64) -> u64 {
    let label_bytes = LABEL_BYTES as u64;
    (size_bytes / label_bytes).saturating_sub(1) * label_bytes
}

/// The AUs of a disk of `size_bytes` that joins a group: its last block is the label's.
#[must_use]
pub const fn usable_aus(size_bytes: u64, au_size: AuSize) -> u64 {
    end_label_place(size_bytes) / au_size.bytes()
}

/// Bytes of the opener record.
pub const OPENER_BYTES: usize = 4096;
/// The place of the opener record.
pub const OPENER_PLACE: u64 = 64 << 10;
/// Bytes of one slot of the group state.
pub const STATE_SLOT_BYTES: usize = 128 << 10;
/// The two places of the group state, written in turn.
pub const STATE_PLACES: [u64; 2] = [128 << 10, 256 << 10];
/// The place of the catalog's journal, on disks that hold a replica of the catalog.
pub const JOURNAL_PLACE: u64 = 640 << 10;
/// Bytes of the journal: to the end of the smallest AU 0.
pub const JOURNAL_BYTES: usize = 384 << 10;
/// The first AU that holds data or catalog.
pub const FIRST_DATA_AU: u32 = 1;

const _: () = {
    assert!(OPENER_PLACE >= LABEL_PLACES[0] + LABEL_BYTES as u64);
    assert!(STATE_PLACES[0] >= OPENER_PLACE + OPENER_BYTES as u64);
    assert!(STATE_PLACES[1] >= STATE_PLACES[0] + STATE_SLOT_BYTES as u64);
    assert!(LABEL_PLACES[1] >= STATE_PLACES[1] + STATE_SLOT_BYTES as u64);
    assert!(JOURNAL_PLACE >= LABEL_PLACES[1] + LABEL_BYTES as u64);
    assert!(JOURNAL_PLACE + JOURNAL_BYTES as u64 <= 1 << 20);
};
