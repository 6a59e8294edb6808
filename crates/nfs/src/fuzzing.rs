//! What a fuzzer throws at the client; also run by a test over random bytes.
//!
//! The input is what a server says. Whatever it is, nothing panics, no more is kept than was asked
//! for, and each piece of work is answered by its deadline, once.

use std::collections::BTreeSet;

use crate::client::{Action, Client, FileWanted, Settings, Work};
use crate::compound::{Access, Results, SequenceAt};
use crate::rpc::Credentials;
use crate::wire::operation;
use crate::xdr::{Put, Reader};

const SESSION: [u8; 16] = *b"0123456789abcdef";

/// Settings for so many paths.
#[must_use]
pub fn settings(paths: usize) -> Settings {
    Settings {
        paths,
        credentials: Credentials {
            machine_name: "here".to_owned(),
            uid: 0,
            gid: 0,
        },
        owner: b"a host and a group".to_vec(),
        directory: vec!["disks".to_owned()],
        file: Some(FileWanted {
            name: "a".to_owned(),
            makes: true,
            access: Access::Own,
        }),
        transfer_bytes: 1 << 16,
        slots: 4,
        probe_after_ms: 2000,
        silent_after_ms: 5000,
        dropped_after_ms: 10_000,
    }
}

/// Reads `input` as the results of every operation.
pub fn results(input: &[u8]) {
    let at = SequenceAt {
        session: SESSION,
        slot: 0,
        sequence: 1,
        highest_slot: 3,
        is_cached: false,
    };
    let new = || Results::new(Reader::new(input)).ok();
    let readers: [fn(&mut Results<'_>); 7] = [
        |results| {
            let _ = results.exchange_id();
        },
        |results| {
            let _ = results.create_session();
        },
        |results| {
            let _ = results.open().and_then(|_| results.get_handle());
        },
        |results| {
            let _ = results.get_limits();
        },
        |results| {
            if let Ok((data, _)) = results.read(512) {
                assert!(data.len() <= 512, "no more is read than was asked for");
            }
        },
        |results| {
            if let Ok(written) = results.write(512) {
                assert!(
                    written.count_bytes <= 512,
                    "no more is written than was sent"
                );
            }
        },
        |results| {
            let _ = results.commit();
        },
    ];
    for read in readers {
        if let Some(mut results) = new() {
            read(&mut results);
        }
    }
    if let Some(mut results) = new() {
        let _ = results.sequence(&at);
        if let Ok(listing) = results.read_directory() {
            // An entry has five words at least.
            assert!(
                listing.entries.len() * 20 <= input.len(),
                "names are not made up"
            );
        }
    }
}

/// Reads `input` as what a server says in a conversation: pieces of a kind, a length and as many bytes.
///
/// # Panics
/// Where the client does what it must not: a mistake of ours.
pub fn conversation(input: &[u8]) {
    results(input);
    let mut client = Client::new(settings(2), [1; 8], 0);
    let mut now_ms = 0;
    let mut asked = BTreeSet::new();
    let works = [
        Work::Size,
        Work::Read {
            offset_bytes: 0,
            length_bytes: 100_000,
        },
        Work::Write {
            offset_bytes: 4096,
            data: vec![7; 70_000].into(),
            is_durable: false,
        },
        Work::Flush,
        Work::List,
        Work::SetSize(1 << 20),
    ];
    for work in works {
        asked.insert(client.submit(work, 20_000, 0));
    }
    let mut sent: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut rest = input;
    loop {
        while let Some(action) = client.next_action() {
            match action {
                Action::Connect(path) => client.connected(path, now_ms),
                Action::Send(path, bytes) => sent.push((path, bytes.to_vec())),
                Action::Done(id, _) => assert!(asked.remove(&id), "each is answered once"),
                Action::Reset(path) => sent.retain(|(at, _)| *at != path),
                Action::Event(_) => {}
            }
        }
        let Some((head, after)) = rest.split_first_chunk::<2>() else {
            break;
        };
        let length = usize::from(head[1]).min(after.len());
        let (bytes, after) = after.split_at(length);
        rest = after;
        match head[0] % 8 {
            0 => client.disconnected(length % 2, now_ms),
            1 => now_ms += u64::from(head[1]) * 20,
            2 => client.received(length % 2, bytes, now_ms),
            kind => {
                if let Some((path, call)) = sent.pop() {
                    client.received(path, &reply(&call, kind > 4, bytes), now_ms);
                }
            }
        }
        client.tick(now_ms);
    }
    client.tick(20_000);
    while let Some(action) = client.next_action() {
        if let Action::Done(id, _) = action {
            assert!(asked.remove(&id), "each is answered once");
        }
    }
    assert!(asked.is_empty(), "each is answered by its deadline");
}

/// A reply to a call of ours whose results are `body`; or right, where `is_right` and a session is
/// just being set up.
fn reply(call: &[u8], is_right: bool, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&call[4..8]);
    for word in [1, 0, 0, 0, 0] {
        bytes.put_u32(word);
    }
    let first = call
        .windows(4)
        .position(|word| word == SESSION[..4].as_ref());
    if is_right && let Some(at) = first.filter(|at| *at >= 4) {
        let before = u32::from_be_bytes(*call[at - 4..].first_chunk().expect("a word"));
        if before == operation::SEQUENCE {
            right_results(&mut bytes, &call[at + 16..at + 24], &call[at + 32..], body);
        }
    } else if is_right {
        right_beginning(&mut bytes, call);
    } else {
        bytes.extend_from_slice(body);
    }
    crate::rpc::finish_record(&mut bytes);
    bytes
}

fn right_results(bytes: &mut Vec<u8>, place: &[u8], asked: &[u8], body: &[u8]) {
    for word in [0, 0, 10, operation::SEQUENCE, 0] {
        bytes.put_u32(word);
    }
    bytes.extend_from_slice(&SESSION);
    bytes.extend_from_slice(place);
    bytes.extend_from_slice(&[0; 12]);
    let second = asked
        .first_chunk()
        .map_or(0, |word| u32::from_be_bytes(*word));
    match second {
        operation::RECLAIM_COMPLETE => {
            bytes.put_u32(second);
            bytes.put_u32(0);
        }
        operation::PUTROOTFH if body.len().is_multiple_of(2) => {
            for word in [second, 0, operation::LOOKUP, 0, operation::OPEN, 0] {
                bytes.put_u32(word);
            }
            bytes.extend_from_slice(&[0; 16 + 20 + 4 + 4 + 4]);
            bytes.put_u32(operation::GETFH);
            bytes.put_u32(0);
            bytes.put_opaque(b"handle");
            bytes.put_u32(operation::GETATTR);
            bytes.put_u32(0);
            bytes.put_bitmap(&[crate::wire::attribute::SIZE]);
            bytes.put_opaque(&[0; 8]);
        }
        operation::PUTFH => {
            bytes.put_u32(second);
            bytes.put_u32(0);
            bytes.extend_from_slice(body);
        }
        _ => bytes.extend_from_slice(body),
    }
}

fn right_beginning(bytes: &mut Vec<u8>, call: &[u8]) {
    // The tag, the minor version and the count stand behind the head, whose length is ours.
    let head = crate::rpc::begin_call(0, 1, &settings(1).credentials).len();
    let number = call
        .get(head + 12..)
        .and_then(|rest| rest.first_chunk::<4>());
    let number = number.map_or(0, |word| u32::from_be_bytes(*word));
    for word in [0, 0, 1, number, 0] {
        bytes.put_u32(word);
    }
    match number {
        operation::EXCHANGE_ID => {
            bytes.put_u64(7);
            bytes.extend_from_slice(&[0; 12]);
        }
        operation::CREATE_SESSION => {
            bytes.extend_from_slice(&SESSION);
            for word in [1, 0, 0, 1 << 17, 1 << 17, 0, 8, 4, 0] {
                bytes.put_u32(word);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn right_answers_lead_to_a_file_that_is_held() {
        // Sixteen right replies with an even body: session, reclaim complete, open, and then work that
        // is answered by nothing.
        super::conversation(&[[5u8, 0]; 16].concat());
        let mut client = super::Client::new(super::settings(1), [1; 8], 0);
        for _ in 0..12 {
            while let Some(action) = client.next_action() {
                match action {
                    super::Action::Connect(path) => client.connected(path, 0),
                    super::Action::Send(path, call) => {
                        client.received(path, &super::reply(&call, true, &[]), 0);
                    }
                    _ => {}
                }
            }
        }
        assert!(
            client.is_ready(),
            "the fuzzer reaches what comes after the opening"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_server_are_an_answer_or_end_its_connection(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            right in 0usize..8,
            pieces in prop::collection::vec(
                (0u8..8, prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..90)),
                0..20,
            ),
        ) {
            super::conversation(&bytes);
            let mut all = [5u8, 0].repeat(right);
            for (kind, piece) in pieces {
                all.push(kind);
                all.push(u8::try_from(piece.len()).unwrap());
                all.extend(piece);
            }
            super::conversation(&all);
        }
    }
}
