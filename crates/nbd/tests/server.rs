//! A server over a pair of sockets: requests of several clients at once, refusals that end nothing,
//! and ends. The volume is memory, with a gate at which a read can be held.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use spindle_device::{ReadTarget, WriteSource};
use spindle_nbd::{CONNECTIONS_MOST, ErrorCode, Request, Server, Stretch, Volume, VolumeError};

const SIZE_BYTES: usize = 4 << 20;
/// Reads that begin here wait until the gate is opened.
const GATE_OFFSET_BYTES: u64 = 1 << 20;
/// Reads that begin here fail.
const BAD_OFFSET_BYTES: u64 = 2 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;

#[derive(Debug)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    flushes_count: AtomicUsize,
    reserved_count: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
    held_count: AtomicUsize,
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; SIZE_BYTES]),
            flushes_count: AtomicUsize::new(0),
            reserved_count: AtomicUsize::new(0),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
            held_count: AtomicUsize::new(0),
        })
    }

    fn open_gate(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }

    fn wait_until_held(&self, count: usize) {
        let begun = Instant::now();
        while self.held_count.load(Ordering::SeqCst) < count {
            assert!(begun.elapsed() < PATIENCE, "no request came to the gate");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Volume for Memory {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, mut out: ReadTarget<'_>) -> Result<(), VolumeError> {
        if offset_bytes == BAD_OFFSET_BYTES {
            return Err(VolumeError::new(ErrorCode::Io, "a bad place"));
        }
        if offset_bytes == GATE_OFFSET_BYTES {
            self.held_count.fetch_add(1, Ordering::SeqCst);
            let mut is_open = self.is_open.lock();
            while !*is_open {
                let waited = self.opened.wait_for(&mut is_open, PATIENCE);
                assert!(!waited.timed_out(), "nobody opened the gate");
            }
        }
        let at = usize::try_from(offset_bytes).unwrap();
        let length = out.len();
        (out.bytes()).copy_from_slice(&self.bytes.lock()[at..at + length]);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: WriteSource<'_>) -> Result<(), VolumeError> {
        let at = usize::try_from(offset_bytes).unwrap();
        self.bytes.lock()[at..at + data.len()].copy_from_slice(data.bytes());
        Ok(())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.flushes_count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
        self.zero(offset_bytes, length_bytes, true)
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_be_hole: bool,
    ) -> Result<(), VolumeError> {
        let at = usize::try_from(offset_bytes).unwrap();
        let length = usize::try_from(length_bytes).unwrap();
        self.bytes.lock()[at..at + length].fill(0);
        let is_reserved = usize::from(!may_be_hole);
        self.reserved_count.fetch_add(is_reserved, Ordering::SeqCst);
        Ok(())
    }

    fn stretches(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Stretch>, VolumeError> {
        let at = usize::try_from(offset_bytes).unwrap();
        let length = usize::try_from(length_bytes).unwrap();
        let bytes = self.bytes.lock();
        let blocks = bytes[at..at + length].chunks(4096).map(|block| Stretch {
            length_bytes: block.len() as u64,
            is_hole: block.iter().all(|byte| *byte == 0),
        });
        Ok(blocks.take(most).collect())
    }
}

struct Client {
    stream: UnixStream,
    is_structured: bool,
}

/// A reply: whose it is, its error, its bytes.
type Reply = (u64, u32, Vec<u8>);

impl Client {
    fn greet(mut stream: UnixStream) -> Self {
        (stream.set_read_timeout(Some(PATIENCE))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&[0, 0, 0, 3]).unwrap();
        Self {
            stream,
            is_structured: false,
        }
    }

    /// Sends an option and returns the type and the data of its last reply.
    fn option(&mut self, option: u32, data: &[u8]) -> (u32, Vec<u8>) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head).unwrap();
            let number = |at| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let mut data = vec![0; number(16) as usize];
            self.stream.read_exact(&mut data).unwrap();
            if number(12) == 1 || number(12) >> 31 == 1 {
                return (number(12), data);
            }
        }
    }

    fn connect(server: &Server, is_structured: bool) -> Self {
        let (own, other) = UnixStream::pair().unwrap();
        server.serve(other).unwrap();
        let mut client = Self::greet(own);
        if is_structured {
            assert_eq!(client.option(8, &[]).0, 1);
            let mut context = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
            context.extend(b"base:allocation");
            assert_eq!(client.option(10, &context).0, 1);
        }
        assert_eq!(client.option(7, &[0; 6]).0, 1);
        client.is_structured = is_structured;
        client
    }

    fn send(&mut self, kind: u16, flags: u16, cookie: u64, range: (u64, u32), data: &[u8]) {
        let request = Request {
            flags,
            kind,
            cookie,
            offset_bytes: range.0,
            length_bytes: range.1,
        };
        self.stream.write_all(&request.encode()).unwrap();
        self.stream.write_all(data).unwrap();
    }

    /// The next reply; `read_bytes` are what a read without chunks asked for.
    fn receive(&mut self, read_bytes: usize) -> std::io::Result<Reply> {
        let mut start = [0; 16];
        self.stream.read_exact(&mut start)?;
        let cookie = u64::from_be_bytes(start[8..].try_into().unwrap());
        let number = u32::from_be_bytes(start[4..8].try_into().unwrap());
        if start[..4] == [0x67, 0x44, 0x66, 0x98] {
            let count = if number == 0 { read_bytes } else { 0 };
            let mut data = vec![0; count];
            self.stream.read_exact(&mut data)?;
            return Ok((cookie, number, data));
        }
        assert_eq!(start[..4], [0x66, 0x8e, 0x33, 0xef]);
        assert!(self.is_structured);
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut data = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut data)?;
        match number & 0xffff {
            1 => Ok((cookie, 0, data.split_off(8))),
            0x8001 => {
                let error = u32::from_be_bytes(data[..4].try_into().unwrap());
                Ok((cookie, error, data.split_off(6)))
            }
            _ => Ok((cookie, 0, data)),
        }
    }

    fn ask(&mut self, kind: u16, flags: u16, range: (u64, u32), data: &[u8]) -> (u32, Vec<u8>) {
        self.send(kind, flags, 77, range, data);
        let is_plain_read = kind == READ && !self.is_structured;
        let read_bytes = if is_plain_read { range.1 as usize } else { 0 };
        let (cookie, error, data) = self.receive(read_bytes).unwrap();
        assert_eq!(cookie, 77);
        (error, data)
    }

    /// The server has closed the connection.
    fn assert_ended(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => assert_eq!(count, 0, "nothing more is sent"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

fn server(volume: &Arc<Memory>) -> Server {
    Server::new("data:/vm".to_owned(), "a volume".to_owned(), volume.clone())
}

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().step_by(7).take(length).collect()
}

#[test]
fn what_one_client_writes_another_reads() {
    let volume = Memory::new();
    let server = server(&volume);
    for is_structured in [false, true] {
        let mut writer = Client::connect(&server, is_structured);
        let mut reader = Client::connect(&server, !is_structured);
        for length in [1, 512, 4096, 100_000, 3 << 19] {
            let data = pattern(length);
            let range = (12_345, u32::try_from(length).unwrap());
            assert_eq!(writer.ask(WRITE, 0, range, &data).0, 0);
            assert_eq!(reader.ask(READ, 0, range, &[]), (0, data));
        }
        assert_eq!(reader.ask(READ, 0, (5, 0), &[]), (0, vec![]));
    }
}

#[test]
fn a_flush_and_fua_reach_the_volume_before_the_answer() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, true);
    let mut expected = 0;
    for (kind, data) in [(WRITE, &[1; 512][..]), (TRIM, &[]), (WRITE_ZEROES, &[])] {
        assert_eq!(client.ask(kind, 0, (0, 512), data).0, 0);
        assert_eq!(volume.flushes_count.load(Ordering::SeqCst), expected);
        expected += 1;
        assert_eq!(client.ask(kind, FUA, (0, 512), data).0, 0);
        assert_eq!(volume.flushes_count.load(Ordering::SeqCst), expected);
    }
    assert_eq!(client.ask(FLUSH, 0, (0, 0), &[]).0, 0);
    assert_eq!(volume.flushes_count.load(Ordering::SeqCst), expected + 1);
}

#[test]
fn zeroes_keep_their_room_where_the_client_says_so() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    assert_eq!(client.ask(WRITE, 0, (0, 8192), &[5; 8192]).0, 0);
    assert_eq!(client.ask(WRITE_ZEROES, 0, (0, 4096), &[]).0, 0);
    assert_eq!(volume.reserved_count.load(Ordering::SeqCst), 0);
    assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE, (4096, 100), &[]).0, 0);
    assert_eq!(volume.reserved_count.load(Ordering::SeqCst), 1);
    let mut expected = vec![0; 4096];
    expected.extend(vec![0; 100]);
    expected.extend(vec![5; 3996]);
    assert_eq!(client.ask(READ, 0, (0, 8192), &[]), (0, expected));
}

#[test]
fn the_status_of_blocks_tells_holes_from_data() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, true);
    assert_eq!(client.ask(WRITE, 0, (4096, 4096), &[1; 4096]).0, 0);
    let (error, data) = client.ask(BLOCK_STATUS, 0, (0, 1 << 20), &[]);
    let mut expected = vec![0, 0, 0, 1];
    for number in [4096u32, 3, 4096, 0, (1 << 20) - 8192, 3] {
        expected.extend(number.to_be_bytes());
    }
    assert_eq!((error, data), (0, expected));
    let mut plain = Client::connect(&server, false);
    let refused = plain.ask(BLOCK_STATUS, 0, (0, 512), &[]).0;
    assert_eq!(refused, ErrorCode::Invalid.number());
}

#[test]
fn a_request_that_waits_holds_up_no_other_of_its_client() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    client.send(READ, 0, 1, (GATE_OFFSET_BYTES, 512), &[]);
    volume.wait_until_held(1);
    for cookie in 2..40 {
        client.send(WRITE, 0, cookie, (0, 512), &[9; 512]);
        assert_eq!(client.receive(0).unwrap(), (cookie, 0, vec![]));
    }
    volume.open_gate();
    assert_eq!(client.receive(512).unwrap(), (1, 0, vec![0; 512]));
}

#[test]
fn an_error_of_the_volume_is_told_and_the_next_request_served() {
    let volume = Memory::new();
    let server = server(&volume);
    let bad = (BAD_OFFSET_BYTES, 512);
    let mut plain = Client::connect(&server, false);
    assert_eq!(plain.ask(READ, 0, bad, &[]), (5, vec![]));
    let mut structured = Client::connect(&server, true);
    let told = structured.ask(READ, 0, bad, &[]);
    assert_eq!(told, (5, b"a bad place".to_vec()));
    for client in [&mut plain, &mut structured] {
        assert_eq!(client.ask(READ, 0, (0, 512), &[]).0, 0);
    }
}

#[test]
fn a_write_that_is_too_long_is_passed_over_and_the_next_request_served() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    let length = spindle_nbd::PAYLOAD_BYTES_MAX + 1;
    let data = vec![1; length as usize];
    let refused = client.ask(WRITE, 0, (0, length), &data).0;
    assert_eq!(refused, ErrorCode::Invalid.number());
    let end = SIZE_BYTES as u64;
    let refused = client.ask(WRITE, 0, (end - 1, 512), &[1; 512]).0;
    assert_eq!(refused, ErrorCode::NoSpace.number());
    assert_eq!(client.ask(READ, 0, (0, 4), &[]), (0, vec![0; 4]));
}

#[test]
fn who_breaks_the_protocol_loses_only_its_own_connection() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut good = Client::connect(&server, false);
    let mut bad = Client::connect(&server, false);
    bad.stream.write_all(&[0; 28]).unwrap();
    bad.assert_ended();
    let (own, other) = UnixStream::pair().unwrap();
    server.serve(other).unwrap();
    let mut bad = Client::greet(own);
    bad.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    bad.assert_ended();
    assert_eq!(good.ask(READ, 0, (0, 512), &[]).0, 0);
}

#[test]
fn an_option_that_is_too_long_is_refused_and_one_beyond_reason_ends_it() {
    let volume = Memory::new();
    let server = server(&volume);
    let (own, other) = UnixStream::pair().unwrap();
    server.serve(other).unwrap();
    let mut client = Client::greet(own);
    let (kind, _) = client.option(3, &[0; 70_000]);
    assert_eq!(kind, (1 << 31) + 9);
    assert_eq!(client.option(3, &[]).0, 1);
    (client.stream)
        .write_all(b"IHAVEOPT\0\0\0\x03\xff\xff\xff\xff")
        .unwrap();
    client.assert_ended();
}

#[test]
fn what_is_under_way_is_answered_after_a_client_said_that_it_ends() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    client.send(READ, 0, 1, (GATE_OFFSET_BYTES, 512), &[]);
    volume.wait_until_held(1);
    client.send(DISC, 0, 2, (0, 0), &[]);
    volume.open_gate();
    assert_eq!(client.receive(512).unwrap(), (1, 0, vec![0; 512]));
    client.assert_ended();
    let begun = Instant::now();
    while server.connections_count() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the connection is forgotten");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_that_stops_answers_what_is_under_way() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    client.send(READ, 0, 1, (GATE_OFFSET_BYTES, 512), &[]);
    volume.wait_until_held(1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop(PATIENCE));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stopping.is_finished(), "it waits");
        volume.open_gate();
        assert!(stopping.join().unwrap(), "all have ended");
    });
    assert_eq!(client.receive(512).unwrap(), (1, 0, vec![0; 512]));
    client.assert_ended();
    let (_own, other) = UnixStream::pair().unwrap();
    assert!(server.serve(other).is_err(), "it takes nobody any more");
}

#[test]
fn a_server_that_stops_waits_for_a_volume_no_longer_than_it_is_told() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    client.send(READ, 0, 1, (GATE_OFFSET_BYTES, 512), &[]);
    volume.wait_until_held(1);
    assert!(!server.stop(Duration::from_millis(100)));
    client.assert_ended();
    volume.open_gate();
}

/// The kernel still gives what the client had sent: another client may write there by then.
#[test]
fn what_a_client_had_sent_is_not_begun_after_it_was_cut_off() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut client = Client::connect(&server, false);
    // As many as are under way at a time at most.
    for cookie in 0..16 {
        client.send(READ, 0, cookie, (GATE_OFFSET_BYTES, 512), &[]);
    }
    volume.wait_until_held(16);
    for cookie in 16..32 {
        client.send(WRITE, 0, cookie, (4096, 512), &pattern(512));
    }
    assert!(!server.stop(Duration::from_millis(100)));
    volume.open_gate();
    let begun = Instant::now();
    while server.connections_count() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the connection is forgotten");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        volume.bytes.lock()[4096..4096 + 512]
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn who_takes_no_replies_holds_up_neither_others_nor_the_end() {
    let volume = Memory::new();
    let server = server(&volume);
    let mut greedy = Client::connect(&server, false);
    // More than its socket holds, in requests of which each has memory of its own.
    for cookie in 0..40 {
        greedy.send(READ, 0, cookie, (0, 4 << 20), &[]);
    }
    // The first reply has begun, and does not fit.
    greedy.stream.read_exact(&mut [0]).unwrap();
    let mut other = Client::connect(&server, false);
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(other.ask(READ, 0, (0, 4096), &[]).0, 0);
    }
    assert!(begun.elapsed() < PATIENCE);
    assert!(!server.stop(Duration::from_millis(200)), "one is stuck");
    assert!(server.stop(PATIENCE), "and is cut");
}

#[test]
fn clients_are_bounded_and_a_place_is_given_back() {
    let directory = std::env::temp_dir().join(format!("spindle-nbd-{}", std::process::id()));
    let _ = std::fs::remove_file(&directory);
    let volume = Memory::new();
    let server = server(&volume);
    server
        .listen(UnixListener::bind(&directory).unwrap())
        .unwrap();
    let connect = || UnixStream::connect(&directory).unwrap();
    let mut clients: Vec<Client> = (0..CONNECTIONS_MOST)
        .map(|_| Client::greet(connect()))
        .collect();
    let mut refused = connect();
    assert_eq!(refused.read(&mut [0]).unwrap(), 0, "one too many");
    clients.pop();
    let begun = Instant::now();
    while server.connections_count() == CONNECTIONS_MOST {
        assert!(begun.elapsed() < PATIENCE, "its place is given back");
        std::thread::sleep(Duration::from_millis(1));
    }
    clients.push(Client::greet(connect()));
    assert!(server.stop(PATIENCE));
    for client in &mut clients {
        client.assert_ended();
    }
    std::fs::remove_file(&directory).unwrap();
}
