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

/// The AUs of a disk of `size_bytes` that joins a group: its last block is the label's. The rule of
/// a disk's AUs stands here and in the three functions below alone.
#[must_use]
pub const fn usable_aus(size_bytes: u64, au_size: AuSize) -> u64 {
    end_label_place(size_bytes) / au_size.bytes()
}

/// Whether a group may have so many AUs of a disk of `size_bytes`: with the last block left to the
/// label, or, as disks did that joined before the label had a copy there, without.
#[must_use]
pub const fn may_have_aus(size_bytes: u64, au_size: AuSize, aus: u64) -> bool {
    usable_aus(size_bytes, au_size) == aus || size_bytes / au_size.bytes() == aus
}

/// The AUs of a disk that is to have `size_bytes`, of which a group has `before_aus`: it keeps them
/// where it may have them.
#[must_use]
pub const fn resized_aus(size_bytes: u64, au_size: AuSize, before_aus: u64) -> u64 {
    if may_have_aus(size_bytes, au_size, before_aus) {
        before_aus
    } else {
        usable_aus(size_bytes, au_size)
    }
}

/// The size that the label says of a disk of `found_bytes`, of which a group has so many AUs: with
/// the copy at the end, where there is room for it.
#[must_use]
pub const fn labelled_bytes(aus: u64, au_size: AuSize, found_bytes: u64) -> u64 {
    let used_bytes = aus * au_size.bytes();
    let with_copy_bytes = used_bytes + LABEL_BYTES as u64;
    if with_copy_bytes <= found_bytes {
        with_copy_bytes
    } else {
        used_bytes
    }
}

/// Bytes of the opener record.
pub const OPENER_BYTES: usize = 4096;
/// The place of the opener record.
pub const OPENER_PLACE: u64 = 64 << 10;
/// The place of the claim: an opener record once more, by which hosts that open a group in the same
/// moment notice each other.
pub const CLAIM_PLACE: u64 = 96 << 10;
/// The place of the intent: an opener record too, in place of the one that says who has the group, by
/// which hosts notice each other that must leave that one as it is for a while.
pub const INTENT_PLACE: u64 = 112 << 10;
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
    assert!(CLAIM_PLACE >= OPENER_PLACE + OPENER_BYTES as u64);
    assert!(INTENT_PLACE >= CLAIM_PLACE + OPENER_BYTES as u64);
    assert!(STATE_PLACES[0] >= INTENT_PLACE + OPENER_BYTES as u64);
    assert!(STATE_PLACES[1] >= STATE_PLACES[0] + STATE_SLOT_BYTES as u64);
    assert!(LABEL_PLACES[1] >= STATE_PLACES[1] + STATE_SLOT_BYTES as u64);
    assert!(JOURNAL_PLACE >= LABEL_PLACES[1] + LABEL_BYTES as u64);
    assert!(JOURNAL_PLACE + JOURNAL_BYTES as u64 <= 1 << 20);
};
