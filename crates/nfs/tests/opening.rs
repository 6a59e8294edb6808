//! What a disk says of itself when it is opened, as a server reads it from its socket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod faulty;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use faulty::scene::asked;
use spindle_nfs::disk::PathAddress;
use spindle_nfs::wire::operation;
use spindle_nfs::xdr::Reader;
use spindle_nfs::{ErrorKind, NfsDisk};

/// The first call on the next connection, which stays open: its client does not connect anew.
fn first_call(listener: &TcpListener) -> (Vec<u8>, TcpStream) {
    let (mut client, _) = listener.accept().unwrap();
    let mut call = vec![0; 4];
    client.read_exact(&mut call).unwrap();
    let mark = u32::from_be_bytes(*call.first_chunk().unwrap());
    call.resize(4 + (mark & 0x7fff_ffff) as usize, 0);
    client.read_exact(&mut call[4..]).unwrap();
    (call, client)
}

#[test]
fn a_disk_that_is_opened_again_says_so_by_another_verifier_and_the_same_owner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = PathAddress {
        server: listener.local_addr().unwrap(),
        own: None,
    };
    let server = std::thread::spawn(move || [first_call(&listener), first_call(&listener)]);
    for _ in 0..2 {
        let opened = NfsDisk::open(
            faulty::settings(1),
            vec![address],
            Duration::from_millis(300),
        );
        assert_eq!(opened.unwrap_err().kind, ErrorKind::TimedOut);
    }
    let calls = server.join().unwrap();
    let said = calls.map(|(call, _)| {
        assert_eq!(asked(&call), operation::EXCHANGE_ID);
        let owner = b"a host and a group";
        let at = call.windows(owner.len()).position(|part| part == owner);
        let at = at.unwrap() - 12;
        let mut reader = Reader::new(&call[at..]);
        let verifier: [u8; 8] = reader.array().unwrap();
        (verifier, reader.opaque(1024).unwrap().to_vec())
    });
    assert_ne!(said[0].0, said[1].0);
    assert_eq!(said[0].1, said[1].1);
}
