//! One cut: the disks as they could be, an ordinary recovery, and the comparison with what the
//! clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use spindle_device::SeededRandom;
use spindle_testbed::postgres::{Cluster, Installation, Server};
use spindle_testbed::spindle::Spindle;
use spindle_testbed::wire::{Connection, Row};

use super::acknowledgement::Expected;
use super::load::ROUND_ROW_COUNT;
use super::recording::{
    Changes, DISKS, Disturbance, GROUP, LEAVING_DISK, LEAVING_NAME, NEW_DISK, NEW_NAME, Recording,
    SETTINGS,
};
use super::replay::Rebuilder;

/// What is left of a rebalance of so small a group takes seconds.
const REBALANCE_AT_MOST: Duration = Duration::from_secs(120);

/// A cut: when, by which chances, and which disk is lost with it.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Which of the run's cuts.
    pub number: u64,
    /// When, by the recorder's clock.
    pub at_ns: u64,
    /// What decides about the writes that no flush covered.
    seed: u64,
    lost_disk: Option<&'static str>,
}

impl Cut {
    /// The cut of this number; every second one also loses a disk. Where one was taken away
    /// before, it is that one: normal redundancy survives one failure group at a time.
    pub fn draw(recording: &Recording, seed: u64, number: u64) -> Self {
        // Neighbouring numbers have nothing in common: each seeds a course of its own.
        let mut random = SeededRandom::new(SeededRandom::new(seed).next_u64() ^ number);
        let at_ns = recording.moment(&mut random);
        let mut members = DISKS.to_vec();
        let lost = match recording.disturbance {
            Disturbance::Pulled {
                disk,
                at_ns: pulled_ns,
            } if at_ns >= pulled_ns => disk,
            Disturbance::Changed(changes) if at_ns >= changes.added_ns => {
                members.push(NEW_DISK);
                members[random.index(members.len())]
            }
            _ => members[random.index(members.len())],
        };
        Self {
            number,
            at_ns,
            seed: random.next_u64(),
            lost_disk: (number % 2 == 1).then_some(lost),
        }
    }
}

/// Cuts, recovers and checks; `place` is removed when everything held. Whether a rebalance went
/// on by itself.
pub fn one_cut(
    recording: &Recording,
    rebuilder: &Rebuilder,
    installation: &Installation,
    place: &Path,
    cut: Cut,
) -> Result<bool> {
    let disks = place.join("disks");
    fs::create_dir_all(&disks)?;
    let rebuilt = rebuilder.rebuild(cut.at_ns, cut.seed, cut.lost_disk, &disks)?;
    let went_on = recover(recording, installation, place, &disks, cut).with_context(|| {
        format!(
            "{cut:?}, {rebuilt}, what is left of it: {}",
            place.display()
        )
    })?;
    fs::remove_dir_all(place)?;
    Ok(went_on)
}

/// Expects of disks more than they were given: what was acknowledged in a quarter of the
/// recording after the cut. The check has to find that; one that cannot fail proves nothing.
pub fn control_cut(
    recording: &Recording,
    rebuilder: &Rebuilder,
    installation: &Installation,
    place: &Path,
) -> Result<()> {
    let told_at = |quarters: usize| {
        let index = recording.told.len() * quarters / 4;
        recording.told.get(index).map(|entry| entry.at_ns)
    };
    let (Some(cut_ns), Some(expected_ns)) = (told_at(2), told_at(3)) else {
        bail!("the recording holds no acknowledgement");
    };
    let disks = place.join("disks");
    fs::create_dir_all(&disks)?;
    rebuilder.rebuild(cut_ns, 0, None, &disks)?;
    let too_late = Cut {
        number: 0,
        at_ns: expected_ns,
        seed: 0,
        lost_disk: None,
    };
    let Err(error) = recover(recording, installation, place, &disks, too_late) else {
        bail!("a quarter of the acknowledgements was lost, and the check did not notice");
    };
    ensure!(
        format!("{error:#}").contains("was told of commit"),
        "the control cut failed for a reason of its own: {error:#}"
    );
    fs::remove_dir_all(place)?;
    Ok(())
}

fn recover(
    recording: &Recording,
    installation: &Installation,
    place: &Path,
    disks: &Path,
    cut: Cut,
) -> Result<bool> {
    let point = place.join("mount");
    let runtime = place.join("server");
    fs::create_dir_all(&point)?;
    fs::create_dir_all(&runtime)?;
    let search = format!("{}/*", disks.display());
    let spindle = Spindle::find(&search, &place.join("run"))?;
    let mount = spindle.mount(GROUP, &point, &[])?;
    let went_on = !spindle.passes(GROUP)?.is_empty();
    // These disks have had their power cut; the recovery itself may be quick about flushing.
    let mut settings = SETTINGS.to_vec();
    settings.push("fsync=off");
    let cluster = Cluster::new(installation, &point.join("pgdata"), &runtime, &settings)?;
    let server = cluster.start()?;
    let expected = Expected::at(&recording.told, cut.at_ns);
    if let Disturbance::Changed(changes) = recording.disturbance {
        // The server has recovered meanwhile. What is read now was moved before: nothing of it
        // is in a cache that an earlier reading filled.
        spindle.wait_for_copying(GROUP, REBALANCE_AT_MOST, |_| Ok(()))?;
        // First the commits: it is they that a control cut must find missing.
        compare(&server, &expected)?;
        compare_disks(&spindle, changes, cut)?;
    } else {
        compare(&server, &expected)?;
    }
    server.stop()?;
    mount.unmount()?;
    spindle.tell(["group", "check", GROUP])?;
    Ok(went_on)
}

/// A disk whose joining was acknowledged is there, and one whose leaving was has left by now.
fn compare_disks(spindle: &Spindle, changes: Changes, cut: Cut) -> Result<()> {
    let shown = spindle.ask(["group", "show", GROUP])?;
    let disks = shown["disks"].as_array().into_iter().flatten();
    let names: Vec<&str> = disks.filter_map(|disk| disk["name"].as_str()).collect();
    // A lost disk is shown too, offline: its place is kept for its return.
    if cut.at_ns >= changes.added_ns {
        ensure!(
            names.contains(&NEW_NAME),
            "{NEW_DISK} had joined, and the group has only {names:?}"
        );
    }
    // One that is lost while it leaves keeps its place as well, until it is dropped again.
    if cut.at_ns >= changes.dropped_ns && cut.lost_disk != Some(LEAVING_DISK) {
        ensure!(
            !names.contains(&LEAVING_NAME),
            "{LEAVING_DISK} was told to leave, nothing is left to be moved, and it is there: \
             {shown}"
        );
    }
    Ok(())
}

/// Everything acknowledged is there, nothing else is, and every page can be read.
fn compare(server: &Server, expected: &Expected) -> Result<()> {
    let mut connection = server.connect("postgres")?;
    let mut found = BTreeMap::new();
    for row in connection.query("SELECT client, count(*), max(number) FROM told GROUP BY client")? {
        let client = u32::try_from(number(&row, 0)?)?;
        found.insert(client, (number(&row, 1)?, number(&row, 2)?));
    }
    let clients: BTreeSet<u32> = expected
        .commits
        .keys()
        .chain(found.keys())
        .copied()
        .collect();
    for client in clients {
        let acknowledged = expected.commits.get(&client).copied().unwrap_or(0);
        let (count, highest) = found.get(&client).copied().unwrap_or((0, 0));
        ensure!(
            highest >= acknowledged,
            "client {client} was told of commit {acknowledged}, the last one there is {highest}"
        );
        ensure!(
            count == highest,
            "client {client}: {count} commits are there, numbered up to {highest}"
        );
        ensure!(
            highest <= acknowledged + 1,
            "client {client} waited for commit {}, but {highest} is there",
            acknowledged + 1
        );
    }
    let balance = connection.value("SELECT coalesce(sum(balance), 0) FROM account")?;
    let moved = connection.value("SELECT coalesce(sum(delta), 0) FROM told")?;
    ensure!(
        balance == moved,
        "the accounts hold {balance}, but {moved} was moved"
    );
    check_tables(&mut connection, expected)?;
    check_structure(&mut connection)
}

fn check_tables(connection: &mut Connection, expected: &Expected) -> Result<()> {
    let rows = connection.query(
        "SELECT substr(relname, 7) FROM pg_class WHERE relname LIKE 'round\\_%' AND relkind = 'r'",
    )?;
    let found: BTreeSet<u64> = rows
        .iter()
        .map(|row| number(row, 0))
        .collect::<Result<_>>()?;
    for round in &expected.tables {
        ensure!(found.contains(round), "the table round_{round} is lost");
    }
    for round in &expected.gone {
        ensure!(
            !found.contains(round),
            "the table round_{round} was removed and is back"
        );
    }
    for round in found {
        let count = connection.value(&format!(
            "SELECT count(*) FROM round_{round} WHERE filler = repeat('r', 80)"
        ))?;
        ensure!(
            count == ROUND_ROW_COUNT.to_string(),
            "the table round_{round} holds {count} rows"
        );
    }
    Ok(())
}

/// Checksums of all pages that hold something of ours, tables and indexes against each other.
fn check_structure(connection: &mut Connection) -> Result<()> {
    connection.query(
        "SELECT bt_index_check(indexrelid, true) FROM pg_index
         JOIN pg_class ON pg_class.oid = indexrelid
         JOIN pg_am ON pg_am.oid = relam
         WHERE amname = 'btree' AND relpersistence = 'p' AND indisvalid",
    )?;
    for table in ["told", "account", "pg_class", "pg_attribute"] {
        let faults = connection.query(&format!(
            "SELECT blkno, offnum, msg FROM verify_heapam('{table}')"
        ))?;
        if let Some(fault) = faults.first() {
            bail!("{table}: {fault:?}");
        }
    }
    Ok(())
}

fn number(row: &Row, index: usize) -> Result<u64> {
    let text = row.get(index).cloned().flatten();
    Ok(text.context("a count is never NULL")?.parse()?)
}

#[cfg(test)]
mod tests {
    use spindle_testbed::interrupt;
    use spindle_testbed::scene::Scene;

    use super::super::acknowledgement::now_ns;
    use super::super::load;
    use super::*;

    /// A checker that passes everything would make every cut pass: here it has to say yes to a
    /// server that was only killed, and no to one that is asked for more than it was given.
    #[test]
    fn the_check_tells_a_kept_promise_from_a_broken_one() {
        let Ok(installation) = Installation::find() else {
            println!("skipped: PostgreSQL is not installed");
            return;
        };
        let scene = Scene::make(&std::env::temp_dir(), "spindle-check-test").unwrap();
        let runtime = scene.directory("server").unwrap();
        let place = scene.directory("place").unwrap();
        let data = place.join("pgdata");
        let cluster = Cluster::new(&installation, &data, &runtime, &SETTINGS).unwrap();
        cluster
            .init(&["--wal-segsize=1", "--data-checksums"])
            .unwrap();
        let server = cluster.start().unwrap();
        load::prepare(&server).unwrap();
        let told = load::run(&server, || interrupt::sleep(Duration::from_millis(500))).unwrap();
        server.kill();

        let server = cluster.start().unwrap();
        let kept = Expected::at(&told, now_ns());
        compare(&server, &kept).unwrap();

        let mut lost_commit = Expected::at(&told, now_ns());
        *lost_commit.commits.get_mut(&0).unwrap() += 1;
        assert!(compare(&server, &lost_commit).is_err());

        let mut lost_table = Expected::at(&told, now_ns());
        lost_table.tables.insert(1_000_000);
        assert!(compare(&server, &lost_table).is_err());

        server
            .connect("postgres")
            .unwrap()
            .query("UPDATE account SET balance = balance + 1 WHERE id = 7")
            .unwrap();
        assert!(compare(&server, &kept).is_err());
    }
}
