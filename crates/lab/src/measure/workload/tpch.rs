//! `tpch`: decision support, derived from TPC-H: its tables, its 22 queries, and two ways to run them.
//!
//! - `power`: one stream, the queries one after the other in the order that the specification gives
//!   to stream 0; with `refresh`, RF1 before and RF2 after them. The rate is that of the geometric
//!   mean of the times, so that each query weighs the same.
//! - `throughput`: a stream for each user, all at once, each in an order and with values of its own.
//!   The rate is that of all queries over the time until the last stream has ended.
//!
//! Both are measured to their end, however long they take. Neither is a result of the TPC: there is
//! no refresh stream beside the queries of `throughput`, no price, no audit, and scale factors of
//! less than one are not of the specification. The data comes from the crate `tpchgen`.
//!
//! What shows that the work was real: the rows of each table are counted when it is filled; five
//! queries are computed a second time from the generator's rows ([`reference`]); at scale 1 all 22
//! answers are compared with the published ones; and every contender of a block must have answered
//! the same ([`Load::answers`]). Nothing here survives a run; a crash loses nothing.

mod answer;
mod parameters;
mod queries;
mod reference;
mod refresh;
mod schema;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use spindle_testbed::interrupt;

use self::answer::{Row, Strictness, as_published, ask, difference, digest, published};
use self::parameters::Parameters;
use self::refresh::Refresh;
use self::schema::{KEYS, Table, check_rows, values};
use super::{Load, geometric_mean};
use crate::experiment::{DatabaseKind, Mode, Workload};
use crate::measure::database::{Server, Session};
use crate::measure::load::{Client, Driven};
use crate::record::Check;

/// Up to here the data is generated again after each run, to compute what the queries answer.
const SCALE_CHECKED_EACH_RUN: f64 = 0.1;
/// Up to here that is done once, when the image is filled.
const SCALE_CHECKED_ONCE: f64 = 1.0;

/// The order of the power test (appendix A of the specification).
const POWER_ORDER: [usize; 22] = [
    14, 2, 9, 20, 6, 17, 18, 8, 21, 13, 3, 22, 16, 4, 11, 15, 1, 10, 19, 5, 7, 12,
];

/// A step of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Query(usize),
    Insert,
    Delete,
}

/// A step that was done.
struct Done {
    stream: u32,
    step: Step,
    seconds: f64,
    rows: Vec<Row>,
}

/// Used space of the server for sorting and hashing that did not fit its memory.
#[derive(Debug, Clone, Copy, Default)]
struct Temporary {
    bytes: f64,
    files: f64,
}

pub(super) struct Tpch {
    scale: f64,
    mode: Mode,
    streams: u32,
    refresh: bool,
    done: Arc<Mutex<Vec<Done>>>,
    /// What the first stream was asked with.
    asked: Mutex<Option<Parameters>>,
    before: Mutex<Temporary>,
}

impl Tpch {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            scale: workload.scale,
            mode: workload.mode,
            streams: workload.users,
            refresh: workload.refresh,
            done: Arc::default(),
            asked: Mutex::default(),
            before: Mutex::default(),
        }
    }

    /// The steps of a stream.
    fn steps(&self, stream: u32, seed: u64) -> Vec<Step> {
        let mut order = POWER_ORDER;
        if stream > 0 {
            fastrand::Rng::with_seed(seed ^ u64::from(stream).rotate_left(48)).shuffle(&mut order);
        }
        let mut steps: Vec<Step> = order.map(Step::Query).to_vec();
        if self.refresh {
            steps.insert(0, Step::Insert);
            steps.push(Step::Delete);
        }
        steps
    }

    fn check_fill(&self, session: &mut dyn Session) -> Result<()> {
        if self.scale > SCALE_CHECKED_ONCE {
            return Ok(());
        }
        // In little data no order is as large as query 18 wants it.
        let parameters = Parameters::validation(self.scale).with(18, "quantity", "250");
        for (query, expected) in reference::answers(self.scale, &parameters)? {
            let found = ask(session, &parameters.text(query))?;
            if let Some(difference) = difference(query, &found, &expected, Strictness::Exact) {
                bail!("query {query} is not answered as its rows say: {difference}");
            }
        }
        if (self.scale - 1.0).abs() < f64::EPSILON {
            let parameters = Parameters::validation(self.scale);
            for query in 1..=22 {
                interrupt::check()?;
                let found = as_published(query, ask(session, &parameters.text(query))?);
                let expected = published(query)?;
                let difference = difference(query, &found, &expected, Strictness::Published);
                if let Some(difference) = difference {
                    bail!("query {query} is not answered as published: {difference}");
                }
            }
        }
        Ok(())
    }

    /// The five queries of the first stream against what their rows say.
    fn check_reference(&self, done: &[Done]) -> Result<Vec<Check>> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(parameters) = asked.as_ref() else {
            return Ok(Vec::new());
        };
        let expected = reference::answers(self.scale, parameters)?;
        Ok(done
            .iter()
            .filter(|done| done.stream == self.first_stream())
            .filter_map(|done| {
                let Step::Query(query) = done.step else {
                    return None;
                };
                let difference =
                    difference(query, &done.rows, expected.get(&query)?, Strictness::Exact);
                Some(Check {
                    name: format!("query {query} is answered as its rows say"),
                    passed: difference.is_none(),
                    detail: difference.unwrap_or_else(|| format!("{} rows", done.rows.len())),
                })
            })
            .collect())
    }

    /// Stream 0 is that of the power test.
    fn first_stream(&self) -> u32 {
        match self.mode {
            Mode::Throughput => 1,
            _ => 0,
        }
    }
}

impl Load for Tpch {
    fn image(&self) -> String {
        format!("tpch-{}", self.scale)
    }

    fn refuses(&self, kind: DatabaseKind) -> Option<String> {
        (kind != DatabaseKind::Postgresql)
            .then(|| "its queries are written for PostgreSQL".to_owned())
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        let mut session = server.connect()?;
        for table in Table::ALL {
            let name = table.name();
            // Made and filled in one transaction, so that the log need not hold the rows.
            session.begin()?;
            session
                .batch(&format!("CREATE TABLE {name} ({})", table.columns()))
                .with_context(|| format!("{name} cannot be made"))?;
            let mut rows = table
                .rows(self.scale)
                .take_while(|_| !interrupt::is_asked())
                .map(|line| values(&line));
            let count = session
                .insert_many(name, &table.column_names(), &mut rows)
                .with_context(|| format!("{name} cannot be filled"))?;
            interrupt::check()?;
            session.commit()?;
            check_rows(table, count, self.scale)?;
        }
        for statement in KEYS {
            interrupt::check()?;
            session
                .batch(statement)
                .with_context(|| statement.to_owned())?;
        }
        session.batch("VACUUM (FREEZE, ANALYZE)")?;
        self.check_fill(session.as_mut())
    }

    fn clients(&self, server: &dyn Server, seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let refresh = self.refresh.then(|| Refresh::of(self.scale)).transpose()?;
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) =
            temporary(server.connect()?.as_mut())?;
        let mut refresh = refresh.map(Arc::new);
        let mut clients: Vec<Box<dyn Client>> = Vec::new();
        let first = self.first_stream();
        for stream in first..first + self.streams {
            let parameters = Parameters::drawn(seed, u64::from(stream), self.scale);
            if stream == first {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                *asked = Some(parameters.clone());
            }
            let mut steps = self.steps(stream, seed);
            // The next one is taken from the end.
            steps.reverse();
            clients.push(Box::new(Stream {
                session: server.connect()?,
                number: stream,
                steps,
                parameters,
                refresh: refresh.take(),
                done: Arc::clone(&self.done),
            }));
        }
        Ok(clients)
    }

    fn unit(&self) -> (&'static str, f64) {
        match self.mode {
            Mode::Throughput => ("queries/h × scale", 3600.0 * self.scale),
            _ => ("queries/h × scale, geometric mean", 3600.0 * self.scale),
        }
    }

    fn rate(&self, driven: &Driven) -> f64 {
        let (_, each) = self.unit();
        if self.mode == Mode::Throughput {
            return driven.rate() * each;
        }
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds: Vec<f64> = done.iter().map(|done| done.seconds).collect();
        each / geometric_mean(&seconds)
    }

    fn operations_each(&self) -> Option<u64> {
        Some(self.steps(0, 0).len() as u64)
    }

    fn checks(&self, _server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = done
            .iter()
            .filter(|done| matches!(done.step, Step::Query(_)))
            .count();
        let asked = 22 * usize::try_from(self.streams)?;
        let mut checks = vec![Check {
            name: "every stream had its 22 answers".to_owned(),
            passed: answered == asked,
            detail: format!("asked {asked}, answered {answered}"),
        }];
        // What RF1 put in is not among the generator's rows.
        if self.scale <= SCALE_CHECKED_EACH_RUN && !self.refresh {
            checks.extend(self.check_reference(&done)?);
        }
        Ok(checks)
    }

    fn answers(&self) -> BTreeMap<String, String> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.iter()
            .filter_map(|done| {
                let Step::Query(query) = done.step else {
                    return None;
                };
                let name = format!("stream {}, query {query}", done.stream);
                Some((name, digest(&done.rows)))
            })
            .collect()
    }

    fn facts(&self, server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let mut facts = BTreeMap::new();
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        for done in done.iter() {
            let name = match done.step {
                Step::Query(query) => format!("query_{query:02}_s"),
                Step::Insert => "refresh_insert_s".to_owned(),
                Step::Delete => "refresh_delete_s".to_owned(),
            };
            // Of several streams the average.
            *facts.entry(name).or_default() += done.seconds / f64::from(self.streams);
        }
        let mut session = server.connect()?;
        wait_for_clients(session.as_mut())?;
        let now = temporary(session.as_mut())?;
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        facts.insert("temporary_bytes".to_owned(), now.bytes - before.bytes);
        facts.insert("temporary_files".to_owned(), now.files - before.files);
        Ok(facts)
    }
}

/// A server process adds what it used to the statistics when it ends, at the latest.
fn wait_for_clients(session: &mut dyn Session) -> Result<()> {
    const AT_MOST: Duration = Duration::from_secs(5);
    let began = Instant::now();
    while began.elapsed() < AT_MOST {
        let row = session.ask_one(
            "SELECT count(*) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?;
        if row.integer(0)? == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn temporary(session: &mut dyn Session) -> Result<Temporary> {
    let row = session
        .ask_one("SELECT sum(temp_bytes)::float8, sum(temp_files)::float8 FROM pg_stat_database")?;
    Ok(Temporary {
        bytes: row.float(0)?,
        files: row.float(1)?,
    })
}

struct Stream {
    session: Box<dyn Session>,
    number: u32,
    steps: Vec<Step>,
    parameters: Parameters,
    refresh: Option<Arc<Refresh>>,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Client for Stream {
    fn operate(&mut self, _random: &mut fastrand::Rng) -> Result<()> {
        let step = self.steps.pop().context("a stream has steps left")?;
        let began = Instant::now();
        let rows = match (step, &self.refresh) {
            (Step::Query(query), _) => ask(self.session.as_mut(), &self.parameters.text(query))
                .with_context(|| format!("query {query} failed"))?,
            (Step::Insert, Some(refresh)) => {
                refresh
                    .insert(self.session.as_mut())
                    .context("RF1 failed")?;
                Vec::new()
            }
            (Step::Delete, Some(refresh)) => {
                refresh
                    .delete(self.session.as_mut())
                    .context("RF2 failed")?;
                Vec::new()
            }
            (_, None) => bail!("a stream without refresh functions has no step for them"),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Done {
                stream: self.number,
                step,
                seconds,
                rows,
            });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
