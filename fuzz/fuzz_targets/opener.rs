//! Who has the group open: 4 KiB, at its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_format::{OPENER_BYTES, OPENER_MAGIC, OPENER_VERSION, OpenerRecord};
use spindle_fuzz::{seal, sized};

const PLACE: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let length_bytes = usize::try_from(OPENER_BYTES).expect("4 KiB");
    let mut bytes = sized(input, length_bytes);
    seal(
        &mut bytes,
        OPENER_MAGIC,
        OPENER_VERSION,
        PLACE,
        length_bytes,
    );
    if let Ok(opener) = OpenerRecord::parse(&bytes, PLACE) {
        assert_eq!(opener.encode(PLACE), bytes);
    }
    // Whatever its length, the input itself is answered too.
    let _ = OpenerRecord::parse(input, PLACE);
});
