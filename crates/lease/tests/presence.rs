//! Processes that end, fork, become other programs and leave requests behind, and an owner that asks
//! the disk who is still there.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use spindle_lease::ClientNumber;
use spindle_lease::presence::{all_there, is_there, take_number};

/// A file in the place of a disk, which goes with the test.
struct Disk(PathBuf);

impl Disk {
    fn create(name: &str) -> Self {
        let name = format!("spindle-presence-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        Self(path)
    }

    /// A description of its own.
    fn open(&self) -> File {
        let mut how = OpenOptions::new();
        how.read(true).write(true).open(&self.0).unwrap()
    }

    /// A shell that has the description of this number as its standard input.
    fn client(&self, number: ClientNumber, script: &str) -> Child {
        let disk = self.open();
        assert!(take_number(&disk, number).unwrap());
        Command::new("sh")
            .args(["-c", script])
            .stdin(disk)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn number(number: u16) -> ClientNumber {
    ClientNumber::new(number).unwrap()
}

fn said_by(client: &mut Child) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn wait_until_gone(disk: &File, number: ClientNumber) {
    let until = Instant::now() + Duration::from_secs(10);
    while is_there(disk, number).unwrap() {
        assert!(Instant::now() < until, "{number:?} is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_client_is_there_until_its_process_is_killed_and_its_number_is_nobody_elses_till_then() {
    let disk = Disk::create("killed");
    let looks = disk.open();
    let mut one = disk.client(number(1), "exec sleep 600");
    let mut last = disk.client(number(511), "exec sleep 600");
    assert_eq!(all_there(&looks).unwrap(), [number(1), number(511)]);
    assert!(!take_number(disk.open(), number(1)).unwrap());
    one.kill().unwrap();
    one.wait().unwrap();
    wait_until_gone(&looks, number(1));
    assert_eq!(all_there(&looks).unwrap(), [number(511)]);
    assert!(take_number(disk.open(), number(1)).unwrap());
    last.kill().unwrap();
    last.wait().unwrap();
    wait_until_gone(&looks, number(511));
}

#[test]
fn a_client_whose_process_is_killed_is_there_as_long_as_a_child_of_it_is() {
    let disk = Disk::create("forked");
    let looks = disk.open();
    // A shell gives the null device, as 0, to what it starts beside itself: 3 is the disk.
    let script = "exec 3<&0; sleep 600 & echo $!; wait";
    let mut parent = disk.client(number(7), script);
    let child = said_by(&mut parent).parse().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    // The process that was let in is no more, and its number is not free.
    assert!(is_there(&looks, number(7)).unwrap());
    assert!(!take_number(disk.open(), number(7)).unwrap());
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    wait_until_gone(&looks, number(7));
}

#[test]
fn a_client_that_becomes_another_program_with_its_descriptor_is_there_and_one_without_it_is_not() {
    let disk = Disk::create("another");
    let looks = disk.open();
    let mut keeps = disk.client(number(2), "echo on; exec sleep 600");
    let mut closes = disk.client(number(3), "exec 0</dev/null; echo on; exec sleep 600");
    for client in [&mut keeps, &mut closes] {
        assert_eq!(said_by(client), "on");
    }
    wait_until_gone(&looks, number(3));
    assert_eq!(all_there(&looks).unwrap(), [number(2)]);
    for mut client in [keeps, closes] {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    wait_until_gone(&looks, number(2));
}

#[test]
fn a_number_is_of_the_one_description_and_an_openers_lock_is_another() {
    let disk = Disk::create("flock");
    let opener = disk.open();
    opener.try_lock().unwrap();
    let client = disk.open();
    assert!(take_number(&client, number(4)).unwrap());
    let copy = client.try_clone().unwrap();
    drop(client);
    assert!(is_there(&opener, number(4)).unwrap());
    assert!(!is_there(&opener, number(5)).unwrap());
    drop(copy);
    // A process that another test starts has a copy until its `exec`.
    wait_until_gone(&opener, number(4));
}
