//! The sums of a run of the catalog region: 4 KiB, at its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_format::{
    CHECKSUM_BLOCK_BYTES, CHECKSUM_BLOCK_MAGIC, CHECKSUM_BLOCK_VERSION, ChecksumBlock,
};
use spindle_fuzz::{seal, sized};

const PLACE: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let length_bytes = usize::try_from(CHECKSUM_BLOCK_BYTES).expect("4 KiB");
    let mut bytes = sized(input, length_bytes);
    seal(
        &mut bytes,
        CHECKSUM_BLOCK_MAGIC,
        CHECKSUM_BLOCK_VERSION,
        PLACE,
        length_bytes,
    );
    if let Ok(block) = ChecksumBlock::parse(&bytes, PLACE) {
        assert_eq!(block.encode(PLACE), bytes);
    }
    // Whatever its length, the input itself is answered too.
    let _ = ChecksumBlock::parse(input, PLACE);
});
