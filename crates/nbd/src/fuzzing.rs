//! What a fuzzer throws at the protocol; also run by a test over random bytes.
//!
//! The bytes are one client's conversation. Whatever they are, each is taken at most once, nothing is
//! allocated by an unchecked length, and every reply is one of the protocol.

use crate::negotiation::{
    Agreed, Negotiation, OPTION_BYTES_MAX, OPTION_HEADER_BYTES, Offer, OptionHeader, Step,
};
use crate::reply;
use crate::request::{Command, REQUEST_BYTES, Request, Terms};
use crate::wire::PAYLOAD_BYTES_MAX;

const SIZE_BYTES: u64 = 1 << 20;

/// Reads `input` as what a client says after the greeting.
///
/// # Panics
/// Where something is granted that must not be: a mistake of ours.
pub fn conversation(input: &[u8]) {
    let Some((flags, mut rest)) = input.split_first_chunk::<4>() else {
        return;
    };
    let offer = Offer {
        name: "data:/disk".to_owned(),
        description: "a volume".to_owned(),
        size_bytes: SIZE_BYTES,
        is_read_only: flags[0] & 1 != 0,
    };
    let is_read_only = offer.is_read_only;
    if flags[0] & 2 != 0 {
        // As after a handshake, which is long, and would seldom be found.
        let is_structured = flags[0] & 4 != 0;
        let agreed = Agreed {
            is_structured,
            has_allocation: is_structured && flags[0] & 8 != 0,
        };
        let terms = Terms {
            size_bytes: SIZE_BYTES,
            is_read_only,
            agreed,
        };
        return requests(rest, &terms);
    }
    let Ok(mut negotiation) = Negotiation::begin(offer, u32::from(flags[3])) else {
        return;
    };
    let agreed = loop {
        let Some((header, after)) = rest.split_first_chunk::<OPTION_HEADER_BYTES>() else {
            return;
        };
        let Ok(header) = OptionHeader::parse(header) else {
            return;
        };
        let mut out = Vec::new();
        let step = if header.length_bytes > OPTION_BYTES_MAX {
            rest = after;
            negotiation.answer_too_big(header.option, &mut out)
        } else {
            let Some((data, after)) = after.split_at_checked(header.length_bytes as usize) else {
                return;
            };
            rest = after;
            negotiation.answer(header.option, data, &mut out)
        };
        assert!(
            step == Step::End || !out.is_empty(),
            "every option is answered"
        );
        match step {
            Step::Next => {}
            Step::End => return,
            Step::Serve(agreed) => break agreed,
        }
    };
    let terms = Terms {
        size_bytes: SIZE_BYTES,
        is_read_only,
        agreed,
    };
    requests(rest, &terms);
}

fn requests(mut rest: &[u8], terms: &Terms) {
    while let Some((bytes, after)) = rest.split_first_chunk::<REQUEST_BYTES>() {
        let Ok(request) = Request::parse(bytes) else {
            return;
        };
        assert_eq!(request.encode(), *bytes, "there is one way to write it");
        if request.is_disconnect() {
            return;
        }
        match request.judge(terms) {
            Ok(command) => check_granted(&request, command, terms),
            Err(error) => {
                let reply = reply::failed(terms.agreed, request.cookie, &error);
                assert!(reply.len() >= 16, "a refusal is told");
            }
        }
        let payload_bytes = request.payload_bytes() as usize;
        let Some((_, after)) = after.split_at_checked(payload_bytes) else {
            return;
        };
        rest = after;
    }
}

fn check_granted(request: &Request, command: Command, terms: &Terms) {
    let end = request.offset_bytes + u64::from(request.length_bytes);
    assert!(end <= terms.size_bytes, "nothing lies beyond the end");
    let carries = matches!(command, Command::Read | Command::Write { .. });
    assert!(!carries || request.length_bytes <= PAYLOAD_BYTES_MAX);
    let reads = matches!(
        command,
        Command::Read | Command::Flush | Command::Status { .. }
    );
    assert!(reads || !terms.is_read_only, "nobody writes");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::request::Request;
    use crate::wire::OPTION_MAGIC;

    /// A handshake with one option, well formed but for its data.
    fn handshake(flags: u8, option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, flags];
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_client_are_answered_or_end_its_connection(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            flags in 0u8..8,
            option in 0u32..14,
            data in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..60),
            asked in prop::collection::vec(any::<(u16, u16, u64, u32)>(), 0..20),
        ) {
            super::conversation(&bytes);
            let mut begun = vec![flags << 1 | 2, 0, 0, 0];
            begun.extend(&bytes);
            super::conversation(&begun);
            super::conversation(&handshake(flags, option, &data));
            let mut all = handshake(flags, 8, &[]);
            all.extend(&handshake(0, 7, &[0; 6])[4..]);
            for (flags, kind, offset_bytes, length_bytes) in asked {
                let request = Request {
                    flags: flags & 0x1f,
                    kind: kind % 10,
                    cookie: 1,
                    offset_bytes: offset_bytes >> (offset_bytes % 64),
                    length_bytes: length_bytes >> (length_bytes % 32),
                };
                all.extend(request.encode());
            }
            super::conversation(&all);
        }
    }
}
