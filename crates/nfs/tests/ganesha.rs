//! The client against nfs-ganesha, a server of another hand, over loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spindle_nfs::disk::PathAddress;
use spindle_nfs::rpc::Credentials;
use spindle_nfs::{
    Access, ErrorKind, Event, FileWanted, NfsDisk, NfsError, Outcome, Settings, Work,
};

mod server;

use server::Ganesha;

const DEADLINE: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;
const LARGE_BYTES: u32 = (3 << 20) + 4096;

fn address(server: &Ganesha) -> PathAddress {
    PathAddress {
        server: SocketAddr::from((Ipv4Addr::LOCALHOST, server.port)),
        own: None,
    }
}

fn open(
    server: &Ganesha,
    host: &str,
    paths: usize,
    name: Option<&str>,
) -> Result<NfsDisk, NfsError> {
    let settings = settings(host, paths, name);
    NfsDisk::open(settings, vec![address(server); paths], DEADLINE)
}

fn served(server: &Ganesha, name: &str) -> Vec<u8> {
    std::fs::read(server.path(name)).expect("the file is there")
}

fn settings(host: &str, paths: usize, name: Option<&str>) -> Settings {
    Settings {
        paths,
        credentials: Credentials {
            machine_name: host.to_owned(),
            uid: 0,
            gid: 0,
        },
        owner: format!("{host} group").into_bytes(),
        directory: vec!["disks".to_owned()],
        file: name.map(|name| FileWanted {
            name: name.to_owned(),
            makes: true,
            access: Access::Own,
        }),
        transfer_bytes: 1 << 20,
        slots: 16,
        probe_after_ms: 300,
        silent_after_ms: 800,
        dropped_after_ms: 5000,
    }
}

/// A way to the server that can keep what it is given.
struct Way {
    port: u16,
    is_held: Arc<AtomicBool>,
    /// What reached the server late.
    late_bytes: Arc<AtomicUsize>,
}

impl Way {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let way = Self {
            port: listener.local_addr().expect("it has an address").port(),
            is_held: Arc::default(),
            late_bytes: Arc::default(),
        };
        let (is_held, late_bytes) = (Arc::clone(&way.is_held), Arc::clone(&way.late_bytes));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    continue;
                };
                let (is_held, late_bytes) = (Arc::clone(&is_held), Arc::clone(&late_bytes));
                let mut back = client.try_clone().expect("a second handle");
                let mut answers = server.try_clone().expect("a second handle");
                std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
                std::thread::spawn(move || carry(client, server, &is_held, &late_bytes));
            }
        });
        way
    }
}

/// Carries calls to the server; while the way is held they wait, whatever the client does meanwhile.
fn carry(mut client: TcpStream, mut server: TcpStream, is_held: &AtomicBool, late: &AtomicUsize) {
    let mut bytes = vec![0; MIB];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let is_late = is_held.load(Ordering::SeqCst);
        while is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if server.write_all(&bytes[..count]).is_err() {
            return;
        }
        if is_late {
            late.fetch_add(count, Ordering::SeqCst);
        }
    }
}

fn pattern(length_bytes: usize, salt: u64) -> Vec<u8> {
    let mut random = spindle_device::SeededRandom::new(salt);
    let words = (0..length_bytes / 8).flat_map(|_| random.next_u64().to_be_bytes());
    words.collect()
}

#[test]
fn what_is_written_to_another_server_is_read_again_and_lies_in_its_file() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let mut disk = open(&server, "left", 2, Some("a")).expect("the file is made");
    disk.set_size(16 * MIB as u64).expect("it gets its size");
    assert_eq!(disk.size_bytes(), Ok(16 * MIB as u64));
    let large = pattern(LARGE_BYTES as usize, 1);
    disk.write(MIB as u64, &large, false)
        .expect("an unstable write of several pieces");
    let small = pattern(8192, 2);
    disk.write(0, &small, true).expect("a durable write");
    disk.flush().expect("a flush");
    assert_eq!(disk.read(MIB as u64, LARGE_BYTES), Ok(large.clone()));
    let batch = (0..64u64).map(|at| Work::Write {
        offset_bytes: 8 * MIB as u64 + at * 8192,
        data: pattern(8192, 100 + at).into(),
        is_durable: false,
    });
    assert!(
        disk.run(batch.collect()).iter().all(Result::is_ok),
        "many at once"
    );
    let batch = (0..64u64).map(|at| Work::Read {
        offset_bytes: 8 * MIB as u64 + at * 8192,
        length_bytes: 8192,
    });
    for (at, read) in disk.run(batch.collect()).into_iter().enumerate() {
        assert_eq!(read, Ok(Outcome::Data(pattern(8192, 100 + at as u64))));
    }
    disk.flush().expect("a flush");
    let beyond = disk
        .read(16 * MIB as u64, 4096)
        .expect_err("nothing lies there");
    assert_eq!(beyond.kind, ErrorKind::Gone);
    let events = disk.take_events();
    assert!(!events.contains(&Event::LostWrites), "{events:?}");
    for path in 0..2 {
        assert!(events.contains(&Event::PathUp(path)), "{events:?}");
    }
    let entries = disk.list().expect("the directory is listed");
    let entry = entries
        .iter()
        .find(|entry| entry.name == "a")
        .expect("it stands there");
    assert!(entry.is_file && entry.size_bytes == 16 * MIB as u64);
    disk.close().expect("it is closed");
    let file = served(&server, "a");
    assert_eq!(file[..8192], small);
    assert_eq!(file[MIB..MIB + large.len()], large);
}

#[test]
fn a_directory_of_many_files_is_listed_whole() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let names: Vec<String> = (0..3000)
        .map(|at| format!("a-disk-with-a-name-{at:05}"))
        .collect();
    for name in &names {
        std::fs::write(server.path(name), b"12345678").expect("a file");
    }
    let mut directory = open(&server, "left", 1, None).expect("a directory is nobody's");
    let mut entries = directory.list().expect("it is listed");
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(
        entries
            .iter()
            .all(|entry| entry.is_file && entry.size_bytes == 8)
    );
    assert_eq!(
        entries
            .into_iter()
            .map(|entry| entry.name)
            .collect::<Vec<_>>(),
        names
    );
}

#[test]
fn a_second_host_is_kept_out_until_the_first_one_closes() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let first = open(&server, "left", 1, Some("a")).expect("the first one has it");
    let refused = open(&server, "right", 1, Some("a")).expect_err("the second one has not");
    assert_eq!(refused.kind, ErrorKind::InUse, "{refused}");
    first.close().expect("it is closed");
    open(&server, "right", 1, Some("a")).expect("now it has");
    let mut directory = open(&server, "third", 1, None).expect("a directory is nobody's");
    assert_eq!(directory.list().expect("it is listed").len(), 1);
}

#[test]
fn a_server_that_is_killed_and_starts_again_gives_the_file_back_to_who_had_it() {
    let Some(mut server) = Ganesha::start() else {
        return;
    };
    let mut disk = open(&server, "left", 1, Some("a")).expect("the file is made");
    disk.set_size(MIB as u64).expect("it gets its size");
    let data = pattern(65_536, 3);
    disk.write(0, &data, true).expect("a durable write");
    disk.take_events();
    server.restart();
    let begun = Instant::now();
    disk.write(65_536, &data, true)
        .expect("a write after the restart");
    println!(
        "the first write after the restart took {:?}",
        begun.elapsed()
    );
    assert_eq!(disk.read(0, 65_536), Ok(data.clone()));
    let events = disk.take_events();
    assert!(events.contains(&Event::Reclaimed), "{events:?}");
    let file = served(&server, "a");
    assert_eq!(file[65_536..131_072], data);
}

#[test]
fn what_a_path_that_went_silent_still_holds_does_not_come_over_a_later_write() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let way = Way::to(server.port);
    let mut first = address(&server);
    first.server.set_port(way.port);
    let addresses = vec![first, address(&server)];
    let mut disk = NfsDisk::open(settings("left", 2, Some("a")), addresses, DEADLINE)
        .expect("the file is made");
    disk.set_size(MIB as u64).expect("it gets its size");
    disk.rest(Duration::from_millis(200));
    disk.take_events();
    way.is_held.store(true, Ordering::SeqCst);
    // One of them goes by the way that is held: requests are spread over the paths.
    let second = |block: u64| Work::Write {
        offset_bytes: block * 65_536,
        data: pattern(65_536, 2).into(),
        is_durable: true,
    };
    assert!(
        disk.run((0..2).map(second).collect())
            .iter()
            .all(Result::is_ok)
    );
    assert!(
        disk.take_events().contains(&Event::PathDown(0)),
        "it was silent"
    );
    for block in 0..2 {
        let third = pattern(65_536, 3 + block);
        disk.write(block * 65_536, &third, true)
            .expect("a later write");
    }
    way.is_held.store(false, Ordering::SeqCst);
    let until = Instant::now() + Duration::from_secs(10);
    while way.late_bytes.load(Ordering::SeqCst) < 65_536 {
        assert!(Instant::now() < until, "the way has kept a write");
        disk.rest(Duration::from_millis(20));
    }
    disk.rest(Duration::from_millis(500));
    for block in 0..2 {
        assert_eq!(
            disk.read(block * 65_536, 65_536),
            Ok(pattern(65_536, 3 + block))
        );
    }
    disk.close().expect("it is closed");
    assert_eq!(served(&server, "a")[..65_536], pattern(65_536, 3));
}

#[test]
fn a_server_that_stops_for_a_while_does_each_write_once_when_it_goes_on() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let mut disk = open(&server, "left", 2, Some("a")).expect("the file is made");
    disk.set_size(4 * MIB as u64).expect("it gets its size");
    server.signal(rustix::process::Signal::STOP);
    let id = server.process_id();
    let waker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        rustix::process::kill_process(id, rustix::process::Signal::CONT)
    });
    let batch = (0..32u64).map(|at| Work::Write {
        offset_bytes: at * 65_536,
        data: pattern(65_536, at).into(),
        is_durable: true,
    });
    let begun = Instant::now();
    assert!(disk.run(batch.collect()).iter().all(Result::is_ok));
    assert!(begun.elapsed() > Duration::from_secs(2), "it stood still");
    waker
        .join()
        .expect("it woke the server")
        .expect("it can be signalled");
    let events = disk.take_events();
    assert!(events.contains(&Event::PathDown(0)) && !events.contains(&Event::LostWrites));
    for at in 0..32u64 {
        assert_eq!(disk.read(at * 65_536, 65_536), Ok(pattern(65_536, at)));
    }
}

#[test]
fn a_disk_that_is_opened_again_by_the_same_process_has_the_file_and_the_former_one_has_not() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let mut former = open(&server, "left", 1, Some("a")).expect("the file is made");
    former.set_size(MIB as u64).expect("it gets its size");
    let mut disk = open(&server, "left", 1, Some("a")).expect("it is opened again");
    let fenced = former
        .write(0, &pattern(4096, 1), true)
        .expect_err("its session has ended");
    assert_eq!(fenced.kind, ErrorKind::Fenced, "{fenced}");
    // And the former one has not ended the hold of the second while it learned that.
    disk.write(0, &pattern(4096, 2), true).expect("a write");
    assert!(!disk.take_events().contains(&Event::SessionLost));
    let mut other = open(&server, "left", 1, Some("b")).expect("another file");
    other.set_size(4096).expect("it gets its size");
    disk.write(0, &pattern(4096, 3), true).expect("a write");
    assert!(
        !disk.take_events().contains(&Event::SessionLost),
        "two files of one host are two clients"
    );
    assert_eq!(served(&server, "a")[..4096], pattern(4096, 3));
}
