//! The load of a recording: clients that commit numbered rows and move money, one that makes and
//! removes tables, and one that asks for checkpoints, so that every kind of file is written,
//! grown, truncated, removed and flushed while the recorder listens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use spindle_device::SeededRandom;
use spindle_testbed::postgres::Server;

use super::acknowledgement::{Entry, Event, now_ns};

/// Clients that commit rows.
const CLIENT_COUNT: u32 = 5;

const ACCOUNT_COUNT: u64 = 20_000;

/// Rows of each table that comes and goes.
pub const ROUND_ROW_COUNT: u64 = 2_000;

/// So many of these tables are kept at a time.
const ROUNDS_KEPT: u64 = 3;

/// Makes the tables.
pub fn prepare(server: &Server) -> Result<()> {
    server.connect("postgres")?.query(&format!(
        "CREATE EXTENSION amcheck;
         CREATE TABLE account (id int PRIMARY KEY, balance bigint, filler text);
         INSERT INTO account SELECT id, 0, repeat('.', 60) FROM generate_series(1, {ACCOUNT_COUNT}) id;
         CREATE TABLE told (client int, number bigint, delta bigint, filler text,
                            PRIMARY KEY (client, number));
         CHECKPOINT"
    ))?;
    Ok(())
}

/// Runs the load for as long as `conduct` takes, and gives everything that was acknowledged.
pub fn run(server: &Server, conduct: impl FnOnce() -> Result<()>) -> Result<Vec<Entry>> {
    let stop = AtomicBool::new(false);
    let mut log = thread::scope(|scope| -> Result<Vec<Entry>> {
        let mut clients = Vec::new();
        for client in 0..CLIENT_COUNT {
            let stop = &stop;
            clients.push(scope.spawn(move || commit_rows(server, client, stop)));
        }
        clients.push(scope.spawn(|| make_and_remove_tables(server, &stop)));
        clients.push(scope.spawn(|| ask_for_checkpoints(server, &stop)));
        let conducted = conduct();
        stop.store(true, Ordering::Relaxed);
        let mut log = Vec::new();
        for client in clients {
            let entries = client.join().map_err(|_| anyhow!("a client panicked"))?;
            log.extend(entries?);
        }
        conducted.map(|()| log)
    })?;
    log.sort_by_key(|entry| entry.at_ns);
    Ok(log)
}

fn told(event: Event) -> Entry {
    Entry {
        at_ns: now_ns(),
        event,
    }
}

fn commit_rows(server: &Server, client: u32, stop: &AtomicBool) -> Result<Vec<Entry>> {
    let mut connection = server.connect("postgres")?;
    let mut random = SeededRandom::new(u64::from(client));
    let mut log = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let delta = random.below(2001).cast_signed() - 1000;
        let account = random.below(ACCOUNT_COUNT) + 1;
        let filler = random.below(700);
        // Several statements in one message are one transaction.
        connection.query(&format!(
            "UPDATE account SET balance = balance + {delta} WHERE id = {account};
             INSERT INTO told VALUES ({client}, {number}, {delta}, repeat('x', {filler}))"
        ))?;
        log.push(told(Event::Committed { client, number }));
    }
    Ok(log)
}

fn make_and_remove_tables(server: &Server, stop: &AtomicBool) -> Result<Vec<Entry>> {
    let mut connection = server.connect("postgres")?;
    let mut log = Vec::new();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        connection.query(&format!(
            "CREATE TABLE round_{round} AS
                 SELECT n, repeat('r', 80) AS filler FROM generate_series(1, {ROUND_ROW_COUNT}) n"
        ))?;
        log.push(told(Event::Created(round)));
        if round > ROUNDS_KEPT {
            let old = round - ROUNDS_KEPT;
            log.push(told(Event::DropAsked(old)));
            connection.query(&format!("DROP TABLE round_{old}"))?;
            log.push(told(Event::Dropped(old)));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(log)
}

fn ask_for_checkpoints(server: &Server, stop: &AtomicBool) -> Result<Vec<Entry>> {
    let mut connection = server.connect("postgres")?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(700));
        connection.query("CHECKPOINT")?;
    }
    Ok(Vec::new())
}
