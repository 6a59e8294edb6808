//! `tpcc`: a load derived from TPC-C: a company with warehouses, its customers and their orders, and
//! all five transactions in the standard's mix. It is not TPC-C, and its rates are not comparable to
//! published results: nothing is audited, response times are not held to limits, the terminals are
//! threads without screens, there are no think and keying times unless they are asked for, and the
//! user waits for deliveries.
//!
//! What is compared is NOPM: New-Orders a minute that are durable (those rolled back do not count);
//! the latencies are those of all transactions. Each user is a terminal with its own deck of cards
//! ([`deck`]) at a warehouse of its own as long as there are enough. The transactions run statement
//! by statement or as procedures on the server, with the database's default isolation.
//!
//! After the fill and after each run the twelve consistency conditions of the standard are asked
//! ([`conditions`]), and the database must hold exactly what was acknowledged.

mod conditions;
mod customer;
mod deck;
mod delivery;
mod dialogue;
mod fill;
mod new_order;
mod order_status;
mod payment;
mod random;
mod rows;
mod schema;
mod stock_level;
mod terminal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use self::deck::Pace;
use self::dialogue::Dialogue;
use self::random::Preferences;
use self::rows::Portion;
use self::schema::{DISTRICTS, Scale};
use self::terminal::{Desk, Tally, Terminal};
use super::{Load, equal};
use crate::experiment::{DatabaseKind, Workload};
use crate::measure::database::Server;
use crate::measure::load::{Client, Driven};
use crate::quantity::as_float;
use crate::record::Check;

const SECONDS_PER_MINUTE: f64 = 60.0;

pub(super) struct Tpcc {
    scale: Scale,
    users: u32,
    pace: Pace,
    by_procedures: bool,
    tally: Arc<Tally>,
}

impl Tpcc {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            scale: Scale::of(workload.warehouses),
            users: workload.users,
            pace: Pace {
                keying_time: workload.keying_time,
                think_time: workload.think_time,
            },
            by_procedures: workload.procedures,
            tally: Arc::new(Tally::default()),
        }
    }

    /// Where a user's terminal stands: users go round the warehouses, and when all have one, round
    /// the districts whose stock they watch.
    fn desk(&self, user: u32, preferences: Preferences) -> Result<Desk> {
        let user = i32::try_from(user)?;
        Ok(Desk {
            scale: self.scale,
            home: user % self.scale.warehouses + 1,
            district: user / self.scale.warehouses % DISTRICTS + 1,
            preferences,
        })
    }
}

impl Load for Tpcc {
    fn image(&self) -> String {
        let Scale {
            warehouses,
            items,
            customers,
        } = self.scale;
        format!("tpcc-{warehouses}-{items}-{customers}")
    }

    fn refuses(&self, kind: DatabaseKind) -> Option<String> {
        match kind {
            DatabaseKind::Postgresql => None,
            DatabaseKind::Mariadb => self.by_procedures.then(|| {
                format!("the procedures are written for PostgreSQL, not for {kind}; leave out `procedures`")
            }),
            DatabaseKind::Sqlite => {
                Some(format!("{kind} has no decimal numbers, which amounts need"))
            }
        }
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        fill::fill(server, self.scale)
    }

    fn clients(&self, server: &dyn Server, seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let preferences = Preferences::of_load(Portion::preferences(fill::SEED), &mut random);
        (0..self.users)
            .map(|user| {
                let terminal = Terminal::new(
                    Dialogue::new(server)?,
                    self.desk(user, preferences)?,
                    self.pace,
                    self.by_procedures,
                    Arc::clone(&self.tally),
                )?;
                Ok(Box::new(terminal) as Box<dyn Client>)
            })
            .collect()
    }

    fn unit(&self) -> (&'static str, f64) {
        ("NOPM", SECONDS_PER_MINUTE)
    }

    fn commits(&self, _operations: u64) -> Option<u64> {
        // A Delivery may find nothing to deliver, and is left out.
        let tally = &self.tally;
        let payments = tally.payments.load(Ordering::Relaxed);
        Some(tally.new_orders.load(Ordering::Relaxed) + payments)
    }

    fn writers(&self) -> u32 {
        self.users
    }

    fn produced(&self) -> Option<u64> {
        Some(self.tally.new_orders.load(Ordering::Relaxed))
    }

    fn mean_pause(&self) -> Option<Duration> {
        Some(self.pace.mean_pause())
    }

    fn checks(&self, server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let mut dialogue = Dialogue::new(server)?;
        let counted = |counter: &AtomicU64| i64::try_from(counter.load(Ordering::Relaxed));
        let tally = &self.tally;
        let delivered = tally.delivered.load(Ordering::Relaxed);
        let mut checks = conditions::examine(&mut dialogue, self.scale, delivered)?;
        let there = dialogue.row(
            "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM history),
                    (SELECT CAST(sum(c_delivery_cnt) AS BIGINT) FROM customer)",
            &[],
        )?;
        let before = self.scale.districts() * i64::from(self.scale.customers);
        checks.push(equal(
            "the database holds the acknowledged New-Orders",
            ("orders", there.integer(0)? - before),
            ("acknowledged", counted(&tally.new_orders)?),
        ));
        checks.push(equal(
            "the database holds the acknowledged Payments",
            ("payments", there.integer(1)? - before),
            ("acknowledged", counted(&tally.payments)?),
        ));
        checks.push(equal(
            "the database holds the acknowledged Deliveries",
            ("delivered", there.integer(2)?),
            ("acknowledged", counted(&tally.delivered)?),
        ));
        Ok(checks)
    }

    fn facts(&self, _server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let tally = &self.tally;
        let counted = |counter: &AtomicU64| as_float(counter.load(Ordering::Relaxed));
        Ok([
            ("new_orders", counted(&tally.new_orders)),
            ("new_orders_rolled_back", counted(&tally.rolled_back)),
            ("payments", counted(&tally.payments)),
            ("order_statuses", counted(&tally.order_statuses)),
            ("deliveries", counted(&tally.deliveries)),
            ("orders_delivered", counted(&tally.delivered)),
            ("stock_levels", counted(&tally.stock_levels)),
            ("transactions_tried_again", counted(&tally.retries)),
            ("warehouses", f64::from(self.scale.warehouses)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

#[cfg(test)]
mod tests;
