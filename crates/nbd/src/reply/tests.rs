use super::*;
use crate::wire::{ErrorCode, command};

const PLAIN: Agreed = Agreed {
    is_structured: false,
    has_allocation: false,
};
const STRUCTURED: Agreed = Agreed {
    is_structured: true,
    has_allocation: true,
};

const fn read(length_bytes: u32) -> Request {
    Request {
        flags: 0,
        kind: command::READ,
        cookie: 0x0102_0304_0506_0708,
        offset_bytes: 0x1000,
        length_bytes,
    }
}

#[test]
fn done_is_sixteen_bytes() {
    let expected = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(done(9), expected);
}

#[test]
fn a_read_is_answered_as_was_agreed() {
    let plain = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(before_data(PLAIN, &read(512)), plain);
    let chunk = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0,
        0x10, 0,
    ];
    assert_eq!(before_data(STRUCTURED, &read(512)), chunk);
}

#[test]
fn a_read_of_nothing_is_a_chunk_without_data() {
    let none = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0,
    ];
    assert_eq!(before_data(STRUCTURED, &read(0)), none);
}

#[test]
fn an_error_has_its_number_and_where_it_can_its_text() {
    let error = VolumeError::new(ErrorCode::NoSpace, "full");
    let plain = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 3];
    assert_eq!(failed(PLAIN, 3, &error), plain);
    let chunk = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 10, 0, 0, 0, 28, 0,
        4, b'f', b'u', b'l', b'l',
    ];
    assert_eq!(failed(STRUCTURED, 3, &error), chunk);
}

#[test]
fn a_text_is_cut_between_letters() {
    let error = VolumeError::new(ErrorCode::Io, format!("a{}", "ä".repeat(3000)));
    let reply = failed(STRUCTURED, 3, &error);
    assert_eq!(reply.len(), 20 + 6 + 4095);
    assert!(std::str::from_utf8(&reply[26..]).is_ok());
}

#[test]
fn stretches_of_one_kind_are_told_as_one_and_none_beyond_what_was_asked() {
    let data = |length_bytes| Stretch {
        length_bytes,
        is_hole: false,
    };
    let hole = |length_bytes| Stretch {
        length_bytes,
        is_hole: true,
    };
    let told = |stretches: &[Stretch], most| {
        let reply = status(5, 10_000, stretches, most);
        assert_eq!(reply[6..8], [0, 5]);
        assert_eq!(reply[20..24], ALLOCATION_ID.to_be_bytes());
        let numbers: Vec<u32> = reply[24..]
            .chunks(4)
            .map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()))
            .collect();
        assert_eq!(reply[19] as usize, 4 + 4 * numbers.len());
        numbers
    };
    let all = [
        data(1000),
        data(1000),
        hole(3000),
        data(0),
        hole(1000),
        data(9000),
    ];
    assert_eq!(told(&all, 9), [2000, 0, 4000, 3, 4000, 0]);
    assert_eq!(told(&all, 1), [2000, 0]);
    assert_eq!(told(&[hole(u64::MAX)], 1), [10_000, 3]);
    assert_eq!(told(&[], 1), [10_000, 0]);
}
