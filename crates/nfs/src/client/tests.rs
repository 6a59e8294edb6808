//! What only the client's own state can show.

use std::sync::Arc;

use super::session::{Carries, Purpose, Sent};
use super::{Client, FileWanted, Settings, Work, owner};
use crate::compound::{Access, SequenceAt, Written};
use crate::fuzzing::settings;
use crate::wire::{OPAQUE_BYTES_MAX, Stable};

#[test]
fn a_write_goes_on_behind_its_first_four_gibibytes() {
    const PIECE_BYTES: u32 = 4096;
    let almost_bytes = u32::MAX as usize;
    let mut client = Client::new(settings(1), [1; 8], 0);
    let work = Work::Write {
        offset_bytes: 0,
        data: vec![0; 1].into(),
        is_durable: true,
    };
    let id = client.submit(work, 1000, 0);
    client.jobs.get_mut(&id).unwrap().done_bytes = almost_bytes;
    let sent = Sent {
        at: SequenceAt {
            session: [0; 16],
            slot: 0,
            sequence: 1,
            highest_slot: 0,
            is_cached: true,
        },
        purpose: Purpose::Job(id),
        carries: Carries::DurableWrite,
        losses: 0,
        done_bytes: almost_bytes,
        length_bytes: PIECE_BYTES,
        xid: 1,
        bytes: Arc::default(),
        path: None,
        not_before_ms: 0,
        attempts: 0,
        copies: 1,
    };
    let written = Written {
        count_bytes: PIECE_BYTES,
        stable: Stable::FileSync,
        verifier: [0; 8],
    };
    client.take_written(id, &written, &sent, almost_bytes + 2 * PIECE_BYTES as usize);
    let done_bytes = client.jobs[&id].done_bytes;
    assert_eq!(done_bytes, almost_bytes + PIECE_BYTES as usize);
}

#[test]
fn a_request_larger_than_a_record_is_never_made() {
    let client = Client::new(
        Settings {
            transfer_bytes: u32::MAX,
            ..settings(1)
        },
        [1; 8],
        0,
    );
    assert!(client.settings.transfer_bytes <= super::TRANSFER_BYTES_MOST);
}

fn of(directory: &[&str], file: Option<&str>, verifier: [u8; 8]) -> Vec<u8> {
    let settings = Settings {
        directory: directory.iter().map(|name| (*name).to_owned()).collect(),
        file: file.map(|name| FileWanted {
            name: name.to_owned(),
            makes: false,
            access: Access::Own,
        }),
        ..settings(1)
    };
    owner::of(&settings, verifier)
}

#[test]
fn an_owner_is_that_of_one_file_whoever_holds_it() {
    let one = of(&["disks"], Some("a"), [1; 8]);
    assert_eq!(one, of(&["disks"], Some("a"), [2; 8]));
    assert_ne!(one, of(&["disks"], Some("b"), [1; 8]));
    assert_ne!(one, of(&["disk"], Some("sa"), [1; 8]));
    assert_ne!(one, of(&["disks", "a"], None, [1; 8]));
    assert_ne!(of(&["disks"], None, [1; 8]), of(&["disks"], None, [2; 8]));
}

#[test]
fn an_owner_of_a_file_with_a_long_path_fits_and_is_that_of_no_other() {
    let long = "d".repeat(250);
    let path = [long.as_str(); 5];
    let (one, other) = (of(&path, Some("a"), [1; 8]), of(&path, Some("b"), [1; 8]));
    assert_eq!(one.len(), OPAQUE_BYTES_MAX);
    assert_ne!(one, other);
}
