//! One disk on a server, used by many threads at once as the engine does. The server is nfs-ganesha.

mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::Ganesha;
use spindle_device::{DeviceErrorKind, RemoteDisk, Request, Work};
use spindle_nfs::disk::PathAddress;
use spindle_nfs::rpc::Credentials;
use spindle_nfs::{Access, ErrorKind, FileWanted, NfsError, Settings, SharedDisk};

const BLOCK: usize = 4096;
const DEADLINE: Duration = Duration::from_secs(20);
const SLOT: spindle_device::DiskSlot = spindle_device::DiskSlot(4096);

fn open(server: &Ganesha, host: &str, access: Access) -> Result<Arc<SharedDisk>, NfsError> {
    open_file(server, host, "a", access)
}

fn open_file(
    server: &Ganesha,
    host: &str,
    name: &str,
    access: Access,
) -> Result<Arc<SharedDisk>, NfsError> {
    let settings = Settings {
        paths: 2,
        credentials: Credentials {
            machine_name: host.to_owned(),
            uid: 0,
            gid: 0,
        },
        owner: host.as_bytes().to_vec(),
        directory: vec!["disks".to_owned()],
        file: Some(FileWanted {
            name: name.to_owned(),
            makes: access == Access::Own,
            access,
        }),
        transfer_bytes: 1 << 20,
        slots: 16,
        probe_after_ms: 300,
        silent_after_ms: 800,
        dropped_after_ms: 10_000,
    };
    let address = PathAddress {
        server: SocketAddr::from((Ipv4Addr::LOCALHOST, server.port)),
        own: None,
    };
    let path = format!("{host}:{name}");
    SharedDisk::open(path, settings, vec![address; 2], Vec::new(), DEADLINE)
}

/// As the engine does: sent, then waited for.
fn run(disk: &SharedDisk, offset_bytes: u64, work: Work<'_>) {
    let mut request = Request::new(SLOT, offset_bytes, work);
    let job = disk.begin(&request);
    let answer = disk.wait(job, &mut request, Instant::now() + DEADLINE);
    assert_eq!(answer, Some(Ok(())), "at {offset_bytes}");
}

#[test]
fn each_of_many_threads_gets_its_own_answers_and_none_sleeps_on() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let disk = open(&server, "left", Access::Own).expect("the file is made");
    disk.set_size(8 << 20, DEADLINE).expect("it gets its size");
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let disk = &disk;
            scope.spawn(move || {
                let at = u64::from(thread) << 20;
                for round in 0..150_u8 {
                    let data = [thread ^ round.rotate_left(4); BLOCK];
                    run(disk, at, Work::Write(&data));
                    let mut found = [0; BLOCK];
                    run(disk, at, Work::Read(&mut found));
                    assert!(found == data, "thread {thread}, round {round}");
                    run(disk, 0, Work::Flush);
                }
            });
        }
    });
}

#[test]
fn a_disk_that_is_let_go_of_is_another_hosts_at_once() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let disk = open(&server, "left", Access::Own).expect("the file is made");
    let refused = open(&server, "right", Access::Own).expect_err("left has it");
    assert_eq!(refused.kind, ErrorKind::InUse, "{refused}");
    let looking = open(&server, "right", Access::Look).expect("whoever only looks is let in");
    drop(looking);
    disk.set_size(1 << 20, DEADLINE)
        .expect("a look takes nothing away");
    disk.release();
    open(&server, "right", Access::Own).expect("before any lease is over");
}

#[test]
fn whoever_waits_for_a_server_that_keeps_silent_is_answered_when_the_disk_is_given_up() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let disk = open(&server, "left", Access::Own).expect("the file is made");
    disk.set_size(1 << 20, DEADLINE).expect("it gets its size");
    server.signal(rustix::process::Signal::STOP);
    std::thread::scope(|scope| {
        let begun = Instant::now();
        for thread in 0..4 {
            let disk = &disk;
            scope.spawn(move || {
                let data = [thread; BLOCK];
                let mut request = Request::new(SLOT, 0, Work::Write(&data));
                let job = disk.begin(&request);
                let soon = Instant::now() + Duration::from_millis(200);
                assert_eq!(disk.wait(job, &mut request, soon), None);
                let answer = disk.wait(job, &mut request, begun + DEADLINE);
                let failure = answer.expect("it was given up").expect_err("nobody did it");
                assert_eq!(failure.kind, DeviceErrorKind::TimedOut);
            });
        }
        std::thread::sleep(Duration::from_millis(600));
        disk.give_up();
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
    server.signal(rustix::process::Signal::CONT);
    // And so is whoever comes later.
    let mut request = Request::new(SLOT, 0, Work::Flush);
    let job = disk.begin(&request);
    let answer = disk.wait(job, &mut request, Instant::now() + DEADLINE);
    assert!(matches!(answer, Some(Err(_))), "{answer:?}");
    // The next opening of the same host has the file, and the former writes nothing over it.
    let again = open(&server, "left", Access::Own).expect("it is its own");
    run(&again, 0, Work::Write(&[9; BLOCK]));
    let mut found = [0; BLOCK];
    run(&again, 0, Work::Read(&mut found));
    assert!(found == [9; BLOCK]);
}

/// As a heartbeat does, which asks one disk after the other.
#[test]
fn many_disks_of_a_server_that_keeps_silent_keep_whoever_measures_them_no_longer_than_one() {
    let Some(server) = Ganesha::start() else {
        return;
    };
    let disks: Vec<Arc<SharedDisk>> = (0..16)
        .map(|number| {
            let name = format!("disk {number}");
            open_file(&server, "left", &name, Access::Own).expect("the file is made")
        })
        .collect();
    let measure = || -> Vec<Option<u64>> {
        let measured = disks.iter().map(|disk| disk.measure().ok());
        measured.collect()
    };
    assert!(measure().iter().all(Option::is_some));
    server.signal(rustix::process::Signal::STOP);
    // Its threads stop a moment after that.
    while disks[0].measure().is_ok() {}
    // Two seconds for each of them would be half a minute.
    for most in [Duration::from_secs(9), Duration::from_secs(1)] {
        let begun = Instant::now();
        assert_eq!(measure(), vec![None; disks.len()]);
        let taken = begun.elapsed();
        assert!(taken < most, "{taken:?}, at most {most:?}");
    }
    server.signal(rustix::process::Signal::CONT);
    for (disk, blocks) in disks.iter().zip(1..) {
        let size_bytes = blocks * BLOCK as u64;
        (disk.set_size(size_bytes, DEADLINE)).expect("the server answers again");
        // The look that is owed may have its answer later.
        let until = Instant::now() + DEADLINE;
        let measured = loop {
            match disk.measure() {
                Err(_) if Instant::now() < until => {}
                measured => break measured.expect("and this, too"),
            }
        };
        assert_eq!(measured, size_bytes, "not what a look from before found");
    }
}
