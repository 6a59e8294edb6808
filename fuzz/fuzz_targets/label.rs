//! The disk label: 4 KiB, at its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_format::{LABEL_BYTES, LABEL_MAGIC, LABEL_VERSION, ParsedLabel};
use spindle_fuzz::{seal, sized};

const PLACE: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let length_bytes = usize::try_from(LABEL_BYTES).expect("4 KiB");
    let mut bytes = sized(input, length_bytes);
    seal(&mut bytes, LABEL_MAGIC, LABEL_VERSION, PLACE, length_bytes);
    if let Ok(label) = ParsedLabel::parse(&bytes, PLACE) {
        assert_eq!(label.contents().encode(PLACE), bytes);
    }
    // Whatever its length, the input itself is answered too.
    let _ = ParsedLabel::parse(input, PLACE);
});
