//! `tpcb`: the transaction of pgbench's own script, TPC-B-like.
//!
//! Tables and rows are those that pgbench makes. The transaction is driven by the lab's own clients,
//! so that it can come as an open load and its latency counts from the intended start; it is the
//! same seven statements, prepared. The balances of accounts, tellers and branches must equal the
//! history, and the history must hold exactly the acknowledged transactions.

use anyhow::Result;

use super::{Load, equal};
use crate::experiment::{DatabaseKind, Workload};
use crate::measure::database::dialect::numbers;
use crate::measure::database::{Server, Session, Statement};
use crate::measure::load::{Client, Driven};
use crate::record::Check;

const ACCOUNTS_PER_BRANCH: u64 = 100_000;
const TELLERS_PER_BRANCH: u64 = 10;
/// What one branch takes on disk, with its index.
const BRANCH_BYTES: u64 = 15 << 20;

pub(super) struct Tpcb {
    scale: u64,
    users: u32,
}

impl Tpcb {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            scale: (workload.size_bytes / BRANCH_BYTES).max(1),
            users: workload.users,
        }
    }
}

/// The tables: (name, its key with the other columns).
const TABLES: [(&str, &str, &str); 4] = [
    (
        "pgbench_branches",
        "bid",
        "bid integer NOT NULL, bbalance integer, filler char(88)",
    ),
    (
        "pgbench_tellers",
        "tid",
        "tid integer NOT NULL, bid integer, tbalance integer, filler char(84)",
    ),
    (
        "pgbench_accounts",
        "aid",
        "aid integer NOT NULL, bid integer, abalance integer, filler char(84)",
    ),
    (
        "pgbench_history",
        "",
        "tid integer, bid integer, aid integer, delta integer, mtime timestamp NULL, filler char(22)",
    ),
];

impl Load for Tpcb {
    fn image(&self) -> String {
        format!("tpcb-{}", self.scale)
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        fill(server, self.scale)
    }

    fn clients(&self, server: &dyn Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|_| Ok(Box::new(Teller::new(server, self.scale)?) as Box<dyn Client>))
            .collect()
    }

    fn commits(&self, operations: u64) -> Option<u64> {
        Some(operations)
    }

    fn writers(&self) -> u32 {
        self.users
    }

    fn unit(&self) -> (&'static str, f64) {
        ("transactions/s", 1.0)
    }

    fn checks(&self, server: &dyn Server, driven: &Driven) -> Result<Vec<Check>> {
        let row = server.connect()?.ask_one(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                    (SELECT sum(tbalance) FROM pgbench_tellers),
                    (SELECT sum(bbalance) FROM pgbench_branches),
                    (SELECT coalesce(sum(delta), 0) FROM pgbench_history),
                    (SELECT count(*) FROM pgbench_history)",
        )?;
        let history = ("history", row.integer(3)?);
        Ok(vec![
            equal(
                "accounts equal the history",
                ("accounts", row.integer(0)?),
                history,
            ),
            equal(
                "tellers equal the history",
                ("tellers", row.integer(1)?),
                history,
            ),
            equal(
                "branches equal the history",
                ("branches", row.integer(2)?),
                history,
            ),
            equal(
                "the history holds what was acknowledged",
                ("rows", row.integer(4)?),
                ("acknowledged", i64::try_from(driven.acknowledged)?),
            ),
        ])
    }
}

/// The tables and rows that pgbench makes, for so many branches.
pub(super) fn fill(server: &dyn Server, scale: u64) -> Result<()> {
    let mut session = server.connect()?;
    let kind = server.kind();
    // Only PostgreSQL can give a table its key afterwards, at the cost of no more than a sort.
    let keys_come_last = kind == DatabaseKind::Postgresql;
    for (table, key, columns) in TABLES {
        let key = match key {
            "" => String::new(),
            _ if keys_come_last => String::new(),
            key => format!(", PRIMARY KEY ({key})"),
        };
        session.batch(&format!("CREATE TABLE {table} ({columns}{key})"))?;
    }
    session.batch(&format!(
        "INSERT INTO pgbench_branches (bid, bbalance) SELECT n, 0 FROM {}",
        numbers(kind, 1, scale)
    ))?;
    session.batch(&format!(
        "INSERT INTO pgbench_tellers (tid, bid, tbalance)
         SELECT n, 1 + (n - 1 - (n - 1) % {TELLERS_PER_BRANCH}) / {TELLERS_PER_BRANCH}, 0 FROM {}",
        numbers(kind, 1, scale * TELLERS_PER_BRANCH)
    ))?;
    for branch in 1..=scale {
        let last = branch * ACCOUNTS_PER_BRANCH;
        session.batch(&format!(
            "INSERT INTO pgbench_accounts (aid, bid, abalance, filler)
             SELECT n, {branch}, 0, '{:84}' FROM {}",
            "",
            numbers(kind, last - ACCOUNTS_PER_BRANCH + 1, last)
        ))?;
    }
    for (table, key, _) in TABLES {
        if keys_come_last && !key.is_empty() {
            session.batch(&format!("ALTER TABLE {table} ADD PRIMARY KEY ({key})"))?;
        }
        session.settle(table)?;
    }
    Ok(())
}

struct Teller {
    session: Box<dyn Session>,
    scale: u64,
    update_account: Statement,
    select_account: Statement,
    update_teller: Statement,
    update_branch: Statement,
    insert_history: Statement,
}

impl Teller {
    fn new(server: &dyn Server, scale: u64) -> Result<Self> {
        let mut session = server.connect()?;
        Ok(Self {
            update_account: session
                .prepare("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2")?,
            select_account: session
                .prepare("SELECT abalance FROM pgbench_accounts WHERE aid = $1")?,
            update_teller: session
                .prepare("UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2")?,
            update_branch: session
                .prepare("UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2")?,
            insert_history: session.prepare(
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
                 VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
            )?,
            session,
            scale,
        })
    }
}

impl Client for Teller {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let mut pick = |count: u64| i64::try_from(random.u64(1..=count));
        let account = pick(self.scale * ACCOUNTS_PER_BRANCH)?;
        let teller = pick(self.scale * TELLERS_PER_BRANCH)?;
        let branch = pick(self.scale)?;
        let delta = random.i32(-5000..=5000);
        let session = &mut self.session;
        session.begin()?;
        session.execute(self.update_account, &[delta.into(), account.into()])?;
        session.query_one(self.select_account, &[account.into()])?;
        session.execute(self.update_teller, &[delta.into(), teller.into()])?;
        session.execute(self.update_branch, &[delta.into(), branch.into()])?;
        let history = [teller.into(), branch.into(), account.into(), delta.into()];
        session.execute(self.insert_history, &history)?;
        session.commit()
    }
}
