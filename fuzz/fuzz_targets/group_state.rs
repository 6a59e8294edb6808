//! The group state: a slot of 128 KiB, of which as much counts as it says itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spindle_base::Uuid;
use spindle_format::{
    ParsedGroupState, STATE_HEADER_BYTES, STATE_LENGTH_OFFSET, STATE_MAGIC, STATE_SLOT_BYTES,
    STATE_VERSION,
};
use spindle_fuzz::seal;

const PLACE: u64 = 128 << 10;

fuzz_target!(|input: &[u8]| {
    let mut slot = input.to_vec();
    if slot.len() >= STATE_HEADER_BYTES && slot.len() <= STATE_SLOT_BYTES && slot[1] & 3 != 0 {
        // A length that is the input's own: else nearly none would be right.
        let length = u32::try_from(slot.len()).expect("at most a slot");
        slot[STATE_LENGTH_OFFSET..STATE_LENGTH_OFFSET + 4].copy_from_slice(&length.to_le_bytes());
    }
    let length_bytes = slot.len();
    seal(&mut slot, STATE_MAGIC, STATE_VERSION, PLACE, length_bytes);
    if let Ok(parsed) = ParsedGroupState::parse(&slot, PLACE) {
        let state = parsed.contents().clone();
        assert_eq!(state.contradiction(), None);
        let _ = parsed.check(state.group_uuid, Uuid([0; 16]));
        // Who wrote the slot is not part of the state, so the bytes are compared by a second
        // reading.
        let again = state.encode(PLACE, Uuid([7; 16]));
        let again = ParsedGroupState::parse(&again, PLACE).expect("what was encoded is right");
        assert_eq!(*again.contents(), state);
    }
});
