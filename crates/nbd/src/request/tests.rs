use super::*;
use crate::wire::ErrorCode::{Invalid, NoSpace, NotPermitted, Overflow};

const SIZE_BYTES: u64 = 1 << 30;

const PLAIN: Terms = Terms {
    size_bytes: SIZE_BYTES,
    is_read_only: false,
    agreed: Agreed {
        is_structured: false,
        has_allocation: false,
    },
};

const STRUCTURED: Terms = Terms {
    agreed: Agreed {
        is_structured: true,
        has_allocation: true,
    },
    ..PLAIN
};

const ONLY_READ: Terms = Terms {
    is_read_only: true,
    ..STRUCTURED
};

const fn request(kind: u16, flags: u16, offset_bytes: u64, length_bytes: u32) -> Request {
    Request {
        flags,
        kind,
        cookie: 7,
        offset_bytes,
        length_bytes,
    }
}

fn code(request: Request, terms: &Terms) -> ErrorCode {
    request.judge(terms).unwrap_err().code
}

#[test]
fn a_request_is_read_field_by_field() {
    let bytes = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0,
        16, 0,
    ];
    let request = Request::parse(&bytes).unwrap();
    let expected = Request {
        flags: 1,
        kind: 6,
        cookie: 0x0102_0304_0506_0708,
        offset_bytes: 0x1_0000_0002,
        length_bytes: 4096,
    };
    assert_eq!(request, expected);
    assert_eq!(request.encode(), bytes);
}

#[test]
fn what_begins_otherwise_is_no_request() {
    let mut bytes = request(command::READ, 0, 0, 1).encode();
    bytes[3] ^= 1;
    assert!(Request::parse(&bytes).is_err());
}

#[test]
fn only_a_write_is_followed_by_bytes() {
    for kind in 0..10 {
        let expected = if kind == command::WRITE { 512 } else { 0 };
        assert_eq!(request(kind, 0, 0, 512).payload_bytes(), expected, "{kind}");
    }
}

#[test]
fn each_command_is_known_with_its_flags() {
    use crate::wire::command_flag::{DF, FUA, NO_HOLE, REQ_ONE};
    let whole = u32::try_from(SIZE_BYTES).unwrap();
    for (kind, flags, expected) in [
        (command::READ, 0, Command::Read),
        (command::READ, DF | FUA, Command::Read),
        (command::WRITE, 0, Command::Write { is_durable: false }),
        (command::WRITE, FUA, Command::Write { is_durable: true }),
        (command::TRIM, FUA, Command::Trim { is_durable: true }),
        (
            command::WRITE_ZEROES,
            0,
            Command::Zero {
                may_be_hole: true,
                is_durable: false,
            },
        ),
        (
            command::WRITE_ZEROES,
            NO_HOLE | FUA,
            Command::Zero {
                may_be_hole: false,
                is_durable: true,
            },
        ),
        (
            command::BLOCK_STATUS,
            REQ_ONE,
            Command::Status {
                is_one_enough: true,
            },
        ),
    ] {
        let asked = request(kind, flags, 4096, 4096);
        assert_eq!(asked.judge(&STRUCTURED), Ok(expected));
    }
    let flush = request(command::FLUSH, FUA, 0, 0);
    assert_eq!(flush.judge(&PLAIN), Ok(Command::Flush));
    // What carries nothing may reach over the whole volume.
    let trim = request(command::TRIM, 0, 0, whole);
    assert_eq!(trim.judge(&PLAIN), Ok(Command::Trim { is_durable: false }));
}

#[test]
fn a_flag_or_a_command_that_was_not_offered_is_invalid() {
    use crate::wire::command_flag::{DF, FAST_ZERO, NO_HOLE, REQ_ONE};
    for (kind, flags, terms) in [
        (command::READ, DF, &PLAIN),
        (command::READ, NO_HOLE, &STRUCTURED),
        (command::WRITE, DF, &STRUCTURED),
        (command::TRIM, NO_HOLE, &STRUCTURED),
        (command::WRITE_ZEROES, FAST_ZERO, &STRUCTURED),
        (command::WRITE_ZEROES, REQ_ONE, &STRUCTURED),
        (command::BLOCK_STATUS, DF, &STRUCTURED),
        (command::BLOCK_STATUS, 0, &PLAIN),
        (command::FLUSH, 1 << 15, &PLAIN),
        (5, 0, &STRUCTURED),
        (8, 0, &STRUCTURED),
        (u16::MAX, 0, &STRUCTURED),
    ] {
        let asked = request(kind, flags, 0, if kind == command::FLUSH { 0 } else { 512 });
        assert_eq!(code(asked, terms), Invalid, "{kind} {flags}");
    }
}

#[test]
fn a_flush_of_a_range_is_invalid() {
    assert_eq!(code(request(command::FLUSH, 0, 0, 1), &PLAIN), Invalid);
    assert_eq!(code(request(command::FLUSH, 0, 1, 0), &PLAIN), Invalid);
}

#[test]
fn beyond_the_end_a_write_finds_no_space_and_a_read_nothing() {
    for (kind, expected) in [
        (command::READ, Invalid),
        (command::TRIM, Invalid),
        (command::BLOCK_STATUS, Invalid),
        (command::WRITE, NoSpace),
        (command::WRITE_ZEROES, NoSpace),
    ] {
        for offset_bytes in [SIZE_BYTES, SIZE_BYTES - 511, u64::MAX, u64::MAX - 511] {
            let asked = request(kind, 0, offset_bytes, 512);
            assert_eq!(code(asked, &STRUCTURED), expected, "{kind} {offset_bytes}");
        }
        let last = request(kind, 0, SIZE_BYTES - 512, 512);
        assert!(last.judge(&STRUCTURED).is_ok(), "{kind}");
    }
}

#[test]
fn what_carries_more_than_a_reply_can_is_refused() {
    let read = request(command::READ, 0, 0, PAYLOAD_BYTES_MAX + 1);
    assert_eq!(code(read, &STRUCTURED), Overflow);
    assert_eq!(code(read, &PLAIN), Invalid);
    let write = request(command::WRITE, 0, 0, PAYLOAD_BYTES_MAX + 1);
    assert_eq!(code(write, &STRUCTURED), Invalid);
    assert!(
        request(command::WRITE, 0, 0, PAYLOAD_BYTES_MAX)
            .judge(&PLAIN)
            .is_ok()
    );
}

#[test]
fn nobody_changes_what_is_only_for_reading() {
    for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(code(request(kind, 0, 0, 512), &ONLY_READ), NotPermitted);
    }
    for kind in [command::READ, command::BLOCK_STATUS] {
        assert!(request(kind, 0, 0, 512).judge(&ONLY_READ).is_ok());
    }
    assert!(request(command::FLUSH, 0, 0, 0).judge(&ONLY_READ).is_ok());
}
