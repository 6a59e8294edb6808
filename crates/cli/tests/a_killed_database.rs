//! A database on a mount is killed, and so is what serves the mount: what it was told is there.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use place::{Place, can_mount, outcome, signal, wait_for_end};
use rustix::process::Signal;

/// `SPINDLE_TEST_KILLS` rounds, or a few: half of them with each kind of SQLite's journal.
fn rounds_count() -> u64 {
    let wanted = std::env::var("SPINDLE_TEST_KILLS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(24)
}

/// What a round may write; it is killed long before.
const TRANSACTIONS_MOST: u64 = 100_000;

/// A round is cut when it was told so many: before that the shell may not even have its table, on a
/// machine that has other things to do.
const TOLD_LEAST: u64 = 3;
/// A shell that is told nothing for so long hangs.
const TOLD_MOST: Duration = Duration::from_secs(60);

/// What is killed in a round.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Database,
    /// And the database a moment later.
    Daemon,
    /// So the mount ends, and the database with it.
    DaemonAndKeeper,
}

impl Victim {
    fn of(round: u64) -> Self {
        match round % 8 {
            1 | 3 | 5 => Self::Daemon,
            7 => Self::DaemonAndKeeper,
            _ => Self::Database,
        }
    }
}

/// SQLite's shell on a file, which commits one row after another from `first` on and says each when
/// it has been told that it is durable. With `full` it would not sync the directory that it has taken
/// its rollback journal out of: where the keeper is killed too, the journal may be back, and rolls back
/// the last transaction that was told.
fn commit_rows(file: &Path, mode: &str, first: u64) -> Child {
    // The shell would keep what it says until it has more to say.
    let mut shell = Command::new("stdbuf")
        .args(["-oL", "sqlite3", "-batch"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mode = mode.to_owned();
    thread::spawn(move || {
        let _ = writeln!(
            input,
            "pragma journal_mode = {mode}; pragma synchronous = extra;
             create table if not exists line (number integer primary key, text text);
             create index if not exists text on line (text);"
        );
        // The shell goes on after an error: what it says is a row that it has, so that it says
        // none of a commit that failed on a dead mount.
        for number in first..first + TRANSACTIONS_MOST {
            // It ends when the shell does.
            let written = writeln!(
                input,
                "begin; insert into line values ({number}, hex(randomblob(200)) || {number});
                 update line set text = hex(randomblob(100)) || number where number = {number} / 2;
                 commit; select 'told ' || number from line where number = {number};"
            );
            if written.is_err() {
                return;
            }
        }
    });
    shell
}

/// Notes the last transaction that the shell was told, as long as it says any.
fn listen(output: ChildStdout, told: &AtomicU64) {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    for number in lines.filter_map(|line| line.strip_prefix("told ")?.parse().ok()) {
        told.store(number, Ordering::Release);
    }
}

/// Not for ever: what was told is looked at when the shell is dead.
fn wait_until_told(told: &AtomicU64, least: u64) {
    let begun = Instant::now();
    while told.load(Ordering::Acquire) < least && begun.elapsed() < TOLD_MOST {
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn query(file: &Path, statement: &str) -> String {
    let answer = outcome(Command::new("sqlite3").arg(file).arg(statement));
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.stdout.trim().to_owned()
}

#[test]
fn sqlite_finds_every_transaction_that_it_was_told_whoever_is_killed() {
    if !can_mount() {
        return;
    }
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("skipped: sqlite3 is not installed");
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let rounds_count = rounds_count();
    for mode in ["delete", "wal"] {
        let file = place.mount_point().join(format!("{mode}.sqlite"));
        let mut told = 0;
        for round in 0..rounds_count / 2 {
            let mut shell = commit_rows(&file, mode, told + 1);
            let output = shell.stdout.take().unwrap();
            let heard = Arc::new(AtomicU64::new(told));
            let reader = thread::spawn({
                let heard = Arc::clone(&heard);
                move || listen(output, &heard)
            });
            wait_until_told(&heard, told + TOLD_LEAST);
            // Each round is cut at another place.
            thread::sleep(Duration::from_millis(200 + round * 37 % 150));
            let victim = Victim::of(round);
            let daemon = place.process_id();
            if victim == Victim::DaemonAndKeeper {
                signal(place.keeper_process_id(), Signal::KILL);
            }
            if victim != Victim::Database {
                signal(daemon, Signal::KILL);
                thread::sleep(Duration::from_millis(400));
            }
            shell.kill().unwrap();
            shell.wait().unwrap();
            if victim == Victim::DaemonAndKeeper {
                wait_for_end(daemon);
                let point = place.mount_point();
                let _ = place.run([std::ffi::OsStr::new("umount"), point.as_os_str()]);
                place.mount();
            }
            reader.join().unwrap();
            let heard = heard.load(Ordering::Acquire);
            let least = told + TOLD_LEAST;
            assert!(
                heard >= least,
                "{mode}, round {round}: {heard}, not {least}"
            );
            assert_eq!(
                query(&file, "pragma integrity_check"),
                "ok",
                "{mode}, round {round}"
            );
            let found = query(&file, "select count(*), max(number) from line");
            let (count, last) = found.split_once('|').unwrap();
            assert_eq!(
                count, last,
                "{mode}, round {round}: none is missing between"
            );
            // One may have been committed whose word was not heard.
            let last: u64 = last.parse().unwrap();
            assert!(
                (heard..=heard + 1).contains(&last),
                "{mode}, round {round}: {heard}, {last}"
            );
            told = last;
        }
        assert!(
            told > rounds_count,
            "the rounds are no idle ones: {told} transactions"
        );
    }
    place.umount();
}
