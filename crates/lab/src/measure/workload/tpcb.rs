//! `tpcb`: the transaction of pgbench's own script, TPC-B-like.
//!
//! pgbench fills the tables. The transaction is driven by the lab's own clients, so that it can
//! come as an open load and its latency counts from the intended start; it is the same seven
//! statements, prepared. The balances of accounts, tellers and branches must equal the history, and
//! the history must hold exactly the acknowledged transactions.

use anyhow::Result;
use postgres::Statement;

use super::{Load, equal};
use crate::experiment::Workload;
use crate::measure::load::{Client, Driven};
use crate::measure::postgresql::Server;
use crate::measure::program::run;
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

impl Load for Tpcb {
    fn image(&self) -> String {
        format!("tpcb-{}", self.scale)
    }

    fn fill(&self, server: &Server) -> Result<()> {
        let mut fill = server.client("pgbench");
        fill.args([
            "--initialize",
            "--quiet",
            "--scale",
            &self.scale.to_string(),
        ]);
        run(fill.arg("postgres")).map(drop)
    }

    fn clients(&self, server: &Server, _seed: u64) -> Result<Vec<Box<dyn Client>>> {
        (0..self.users)
            .map(|_| Ok(Box::new(Teller::new(server, self.scale)?) as Box<dyn Client>))
            .collect()
    }

    fn unit(&self) -> (&'static str, f64) {
        ("transactions/s", 1.0)
    }

    fn checks(&self, server: &Server, driven: &Driven) -> Result<Vec<Check>> {
        let mut client = server.connect()?;
        let row = client.query_one(
            "SELECT (SELECT sum(abalance)::int8 FROM pgbench_accounts),
                    (SELECT sum(tbalance)::int8 FROM pgbench_tellers),
                    (SELECT sum(bbalance)::int8 FROM pgbench_branches),
                    (SELECT coalesce(sum(delta), 0)::int8 FROM pgbench_history),
                    (SELECT count(*) FROM pgbench_history)",
            &[],
        )?;
        let balance = |index| row.get::<_, i64>(index);
        let history = ("history", balance(3));
        Ok(vec![
            equal(
                "accounts equal the history",
                ("accounts", balance(0)),
                history,
            ),
            equal(
                "tellers equal the history",
                ("tellers", balance(1)),
                history,
            ),
            equal(
                "branches equal the history",
                ("branches", balance(2)),
                history,
            ),
            equal(
                "the history holds what was acknowledged",
                ("rows", balance(4)),
                ("acknowledged", i64::try_from(driven.acknowledged)?),
            ),
        ])
    }
}

struct Teller {
    client: postgres::Client,
    scale: u64,
    update_account: Statement,
    select_account: Statement,
    update_teller: Statement,
    update_branch: Statement,
    insert_history: Statement,
}

impl Teller {
    fn new(server: &Server, scale: u64) -> Result<Self> {
        let mut client = server.connect()?;
        Ok(Self {
            update_account: client
                .prepare("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2")?,
            select_account: client
                .prepare("SELECT abalance FROM pgbench_accounts WHERE aid = $1")?,
            update_teller: client
                .prepare("UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2")?,
            update_branch: client
                .prepare("UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2")?,
            insert_history: client.prepare(
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
                 VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
            )?,
            client,
            scale,
        })
    }
}

impl Client for Teller {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let mut pick = |count: u64| i32::try_from(random.u64(1..=count));
        let account = pick(self.scale * ACCOUNTS_PER_BRANCH)?;
        let teller = pick(self.scale * TELLERS_PER_BRANCH)?;
        let branch = pick(self.scale)?;
        let delta = random.i32(-5000..=5000);
        let mut transaction = self.client.transaction()?;
        transaction.execute(&self.update_account, &[&delta, &account])?;
        transaction.query_one(&self.select_account, &[&account])?;
        transaction.execute(&self.update_teller, &[&delta, &teller])?;
        transaction.execute(&self.update_branch, &[&delta, &branch])?;
        transaction.execute(&self.insert_history, &[&teller, &branch, &account, &delta])?;
        transaction.commit()?;
        Ok(())
    }
}
