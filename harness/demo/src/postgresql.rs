//! The story's database: an unchanged PostgreSQL under pgbench.
//!
//! Each transaction is TPC-B's, and one row more: (run, client, number of the commit). pgbench
//! logs every acknowledged transaction in a file outside of the group, so the log says which of
//! these rows must be there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use spindle_testbed::pgbench::{self, Acknowledged, Plan};
use spindle_testbed::postgres::{Cluster, Installation, Server};
use spindle_testbed::scene::Scene;

use crate::database::{Acknowledgements, CLIENT_COUNT, Database, Load, Proof};

const SCALE: u32 = 10;

/// A log that is recycled early keeps the demo small; all else is PostgreSQL's default.
const SETTINGS: [&str; 3] = [
    "max_wal_size=256MB",
    "min_wal_size=64MB",
    "shared_buffers=128MB",
];

const SCRIPT: &str = "\
\\set number :number + 1
\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
INSERT INTO told (run, client, number) VALUES (:run, :client_id, :number);
END;
";

const TABLE: &str = "CREATE TABLE told (run int, client int, number bigint, \
                     PRIMARY KEY (run, client, number))";

/// What TPC-B keeps equal: the money moved, counted four ways.
const BALANCES: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), \
                        (SELECT sum(tbalance) FROM pgbench_tellers), \
                        (SELECT sum(bbalance) FROM pgbench_branches), \
                        (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// PostgreSQL, and the directories outside of the group that belong to it.
pub struct PostgreSql {
    installation: Installation,
    version: String,
    runtime: PathBuf,
    logs: PathBuf,
    script: PathBuf,
    server: Option<Server>,
}

impl PostgreSql {
    /// PostgreSQL as it is on this machine.
    pub fn find(scene: &Scene) -> Result<Self> {
        let installation = Installation::find()?;
        let logs = scene.directory("client")?;
        let script = logs.join("transaction.sql");
        fs::write(&script, SCRIPT)?;
        Ok(Self {
            version: installation.version()?,
            installation,
            runtime: scene.directory("server")?,
            logs,
            script,
            server: None,
        })
    }

    fn cluster(&self, place: &Path) -> Result<Cluster> {
        let data = place.join("pgdata");
        Cluster::new(&self.installation, &data, &self.runtime, &SETTINGS)
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server does not run")
    }
}

impl Database for PostgreSql {
    fn title(&self) -> String {
        self.version.clone()
    }

    fn create(&mut self, place: &Path) -> Result<()> {
        let cluster = self.cluster(place)?;
        cluster.init(&[])?;
        let server = cluster.start()?;
        pgbench::fill(&cluster, SCALE)?;
        server.connect("postgres")?.query(TABLE)?;
        self.server = Some(server);
        Ok(())
    }

    fn begin_load(&mut self, run: u32, duration: Duration) -> Result<Box<dyn Load>> {
        let run_option = format!("--define=run={run}");
        let plan = Plan {
            scale: SCALE,
            client_count: CLIENT_COUNT,
            duration,
            script: Some(&self.script),
            options: &[&run_option, "--define=number=0"],
        };
        let name = format!("acknowledged-{run}");
        let load = pgbench::Load::start(self.server()?.cluster(), &plan, &self.logs, &name)?;
        Ok(Box::new(load))
    }

    fn end_load(&mut self, load: Box<dyn Load>, limit: Duration) -> Result<Vec<Acknowledged>> {
        // Asked to stop by a signal, pgbench would take the end of its log along.
        self.server()?.connect("postgres")?.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'pgbench'",
        )?;
        load.finish(limit)
    }

    fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    fn recover(&mut self, place: &Path) -> Result<()> {
        self.server = Some(self.cluster(place)?.start()?);
        Ok(())
    }

    fn prove(&mut self, acknowledgements: &Acknowledgements) -> Result<Proof> {
        let server = self.server()?;
        let mut connection = server.connect("postgres")?;
        let mut found = BTreeMap::new();
        for row in connection
            .query("SELECT run, client, count(*), max(number) FROM told GROUP BY run, client")?
        {
            let number = |index: usize| -> Result<u64> {
                let text = row.get(index).cloned().flatten();
                Ok(text.context("a count is never NULL")?.parse()?)
            };
            let client = (u32::try_from(number(0)?)?, u32::try_from(number(1)?)?);
            found.insert(client, (number(2)?, number(3)?));
        }
        let mut proof = Proof::compare(acknowledgements, &found);

        let sums = connection.query(BALANCES)?.concat();
        let sums: Vec<String> = sums.into_iter().map(Option::unwrap_or_default).collect();
        if sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]) {
            proof.held.push(format!(
                "accounts, tellers, branches and history agree on the balance: {}",
                sums[0]
            ));
        } else {
            proof.faults.push(format!(
                "accounts, tellers, branches and history differ: {sums:?}"
            ));
        }
        match server.check_structure() {
            Ok(()) => proof
                .held
                .push("pg_amcheck finds every table and index sound".to_owned()),
            Err(error) => proof.faults.push(format!("{error:#}")),
        }
        Ok(proof)
    }

    fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::stop)
    }
}

impl Load for pgbench::Load {
    fn is_running(&mut self) -> Result<bool> {
        pgbench::Load::is_running(self)
    }

    fn progress(&self) -> String {
        pgbench::Load::progress(self)
    }

    fn errors(&self) -> Vec<(Instant, String)> {
        pgbench::Load::errors(self)
    }

    fn finish(self: Box<Self>, limit: Duration) -> Result<Vec<Acknowledged>> {
        Ok(pgbench::Load::finish(*self, limit)?.log)
    }
}
