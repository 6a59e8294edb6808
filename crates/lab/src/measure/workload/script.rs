//! `script`: transactions that a person wrote, in the format of pgbench's scripts.
//!
//! A client draws a script by its weight, runs it from its first line to its last and draws the next;
//! each such run is one operation, pauses included. Statements go to the server as text, with the
//! values of variables put in wherever `:name` stands, as pgbench does by default (`-M simple`).
//!
//! What the lab asks of a script beyond pgbench: it ends no transaction that it leaves open, because
//! nothing of that would ever be durable, and it sets nothing that decides on durability. Transactions
//! that changed rows and committed are counted, and held against the flushes of the devices as those
//! of every load are. How many wrote at all the server itself knows by the numbers that it gave them:
//! where a function, `WITH`, `CALL` or `DO` wrote more than was counted, nothing is said of them. A run
//! that failed because of another one at the same time is begun anew with the same chance and the same
//! variables, and its latency has all of that.

mod chance;
mod command;
mod datum;
mod expression;
mod parse;
mod statement;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use self::command::{Amount, Command, Script, Verb};
use self::datum::Datum;
use self::expression::{Variable, Variables};
use self::parse::{OWN, SLEEP_US_AT_MOST};
use super::{Load, tpcb};
use crate::experiment::{DatabaseKind, Regime, ScriptFile, Scripts, Workload};
use crate::measure::database::{Server, Session, is_conflict};
use crate::measure::load::{Client, Driven};
use crate::quantity::{as_float, show_size};
use crate::record::Check;
use crate::record::history::fingerprint;

/// In place of a file of `init`: the tables of pgbench itself, filled.
pub const PGBENCH: &str = "pgbench";
/// A run that meets others so often would not come to its end.
const TRIES_AT_MOST: u32 = 100;

/// How far the server's numbers of transactions have come, and how often it has brought a table to
/// rest by itself: each of these takes one number at most. What a script vacuums is left among the
/// rest, or a VACUUM without a number would cover for a function that wrote.
const NUMBERS: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8, \
     sum(autovacuum_count + autoanalyze_count)::int8 \
     FROM pg_stat_all_tables";
/// What lies beside the contender, or has no log.
const ELSEWHERE: &str = "SELECT coalesce(string_agg(name, ', '), '') FROM (\
     SELECT 'tablespace ' || spcname AS name FROM pg_tablespace \
     WHERE spcname NOT IN ('pg_default', 'pg_global') \
     UNION ALL SELECT 'unlogged ' || relname FROM pg_class WHERE relpersistence = 'u') AS found";
/// What the server may be about at either end, and tells only afterwards: three workers that vacuum, a
/// table and its overflow each, and as much again for what nobody thought of.
const NUMBERS_GIVEN: u64 = 16;
/// And so many of those that were counted (5 %): a sequence takes a number for each 32nd of its values.
/// Who is held to account for 19 of 20 transactions gains next to nothing by the other one.
const COUNTED_FOR_ONE_GIVEN: u64 = 20;

/// Why a text is no script that the lab can run, with the line.
///
/// # Errors
/// Then.
pub fn check(text: &str) -> Result<(), String> {
    parse::parse(text)
        .map(drop)
        .map_err(|mistake| format!("line {}: {}", mistake.line, mistake.message))
}

pub(super) struct Scripted {
    asked: Scripts,
    users: u32,
    size_bytes: u64,
    regime: Regime,
    done: Arc<Done>,
}

/// What was acknowledged.
#[derive(Default)]
struct Done {
    /// Transactions that changed rows and were committed.
    changes: AtomicU64,
    /// Transactions that changed rows and were given up by the script.
    rollbacks: AtomicU64,
    /// Runs that were begun anew.
    retries: AtomicU64,
    /// [`numbers`] before the clients began.
    before: AtomicU64,
}

impl Done {
    fn add(count: &AtomicU64, more: u64) {
        if more > 0 {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// How many numbers the server has given to transactions that are none of its own.
fn numbers(server: &dyn Server) -> Result<u64> {
    let row = server.connect()?.ask_one(NUMBERS)?;
    Ok(u64::try_from(row.integer(0)? - row.integer(1)?).unwrap_or(0))
}

/// What is said where more transactions wrote than were counted.
fn uncounted(wrote: u64, counted: u64) -> Option<String> {
    let given = NUMBERS_GIVEN + counted / COUNTED_FOR_ONE_GIVEN;
    (wrote > counted + given).then(|| {
        format!(
            "its scripts write in ways that are not counted: {wrote} transactions wrote, of which {counted} are held against the flushes (INSERT, UPDATE, DELETE and MERGE are counted; not what a function, WITH, CALL, DO or a savepoint writes)"
        )
    })
}

/// That no rows lie beside the contender or without a log: a text that a script puts together names
/// what [`check`] cannot see.
fn lies_on_the_contender(server: &dyn Server) -> Result<Check> {
    let row = server.connect()?.ask_one(ELSEWHERE)?;
    let elsewhere = row.text(0)?;
    Ok(Check {
        name: "all tables have a log and lie on the contender".to_owned(),
        passed: elsewhere.is_empty(),
        detail: match elsewhere {
            "" => "no other tablespace and no unlogged table".to_owned(),
            found => format!("there are {found}"),
        },
    })
}

impl Scripted {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            asked: workload.scripts.clone(),
            users: workload.users,
            size_bytes: workload.size_bytes,
            regime: workload.regime,
            done: Arc::default(),
        }
    }

    fn parsed(file: &ScriptFile) -> Result<Script> {
        let text = (file.text.as_ref())
            .with_context(|| format!("the script {} was not read", file.path))?;
        parse::parse(text)
            .map_err(|mistake| anyhow!("{}, line {}: {}", file.path, mistake.line, mistake.message))
    }

    /// The variables that every client has from its beginning.
    fn variables(&self, client: u32, seed: u64) -> Variables {
        // As pgbench, which draws it; here the seed of the run gives it.
        let default_seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed();
        let values = [
            i64::from(self.asked.scale),
            i64::from(client),
            seed.cast_signed(),
            default_seed,
        ];
        (OWN.into_iter().zip(values))
            .map(|(name, value)| (name.to_owned(), Variable::Datum(Datum::Integer(value))))
            .collect()
    }
}

impl Load for Scripted {
    fn image(&self) -> String {
        let init = match &self.asked.init {
            None => "nothing".to_owned(),
            Some(file) => match &file.text {
                Some(text) => fingerprint(text),
                None => file.path.clone(),
            },
        };
        format!("script-{}-{init}", self.asked.scale)
    }

    fn refuses(&self, kind: DatabaseKind) -> Option<String> {
        (kind != DatabaseKind::Postgresql)
            .then(|| format!("scripts are pgbench's, for PostgreSQL, and this is {kind}"))
    }

    fn fill(&self, server: &dyn Server) -> Result<()> {
        match &self.asked.init {
            None => Ok(()),
            Some(file) if file.path == PGBENCH => tpcb::fill(server, u64::from(self.asked.scale)),
            Some(file) => {
                let mut player = Player {
                    session: server.connect()?,
                    scripts: Arc::new(vec![Playable {
                        path: file.path.clone(),
                        weight: 1,
                        script: Self::parsed(file)?,
                    }]),
                    last: 0,
                    variables: self.variables(0, 0),
                    // What makes the tables is no part of the load.
                    done: Arc::default(),
                };
                player.operate(&mut fastrand::Rng::with_seed(0))?;
                // Its statistics are known, and no later reader has to write.
                player.session.batch("VACUUM (FREEZE, ANALYZE)")
            }
        }
    }

    fn clients(&self, server: &dyn Server, seed: u64) -> Result<Vec<Box<dyn Client>>> {
        let scripts: Vec<Playable> = (self.asked.files.iter())
            .map(|file| {
                Ok(Playable {
                    path: file.path.clone(),
                    weight: file.weight,
                    script: Self::parsed(file)?,
                })
            })
            .collect::<Result<_>>()?;
        let scripts = Arc::new(scripts);
        (self.done.before).store(numbers(server)?, Ordering::Relaxed);
        (0..self.users)
            .map(|client| {
                Ok(Box::new(Player {
                    session: server.connect()?,
                    scripts: Arc::clone(&scripts),
                    last: 0,
                    variables: self.variables(client, seed),
                    done: Arc::clone(&self.done),
                }) as Box<dyn Client>)
            })
            .collect()
    }

    fn commits(&self, _operations: u64) -> Option<u64> {
        Some(self.done.changes.load(Ordering::Relaxed))
    }

    fn uncounted(&self, server: &dyn Server) -> Result<Option<String>> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let wrote = numbers(server)?.saturating_sub(of(&self.done.before));
        let counted = of(&self.done.changes) + of(&self.done.rollbacks) + of(&self.done.retries);
        Ok(uncounted(wrote, counted))
    }

    fn writers(&self) -> u32 {
        self.users
    }

    fn unit(&self) -> (&'static str, f64) {
        ("transactions/s", 1.0)
    }

    fn kinds(&self) -> Vec<String> {
        self.asked
            .files
            .iter()
            .map(|file| file.path.clone())
            .collect()
    }

    /// Nobody knows what a script does; where its data lies is seen, and that it is as large as its
    /// regime says.
    fn checks(&self, server: &dyn Server, _driven: &Driven) -> Result<Vec<Check>> {
        let place = lies_on_the_contender(server)?;
        if self.regime != Regime::StorageBound {
            return Ok(vec![place]);
        }
        let row = server
            .connect()?
            .ask_one("SELECT pg_database_size(current_database())")?;
        let there = u64::try_from(row.integer(0)?)?;
        let size = Check {
            name: "the data is as large as `size` says".to_owned(),
            passed: there >= self.size_bytes,
            detail: format!(
                "{} are there, `size` is {}",
                show_size(as_float(there)),
                show_size(as_float(self.size_bytes))
            ),
        };
        Ok(vec![place, size])
    }

    fn facts(&self, _server: &dyn Server) -> Result<BTreeMap<String, f64>> {
        let of = |count: &AtomicU64| as_float(count.load(Ordering::Relaxed));
        Ok([
            ("script_changes", of(&self.done.changes)),
            ("script_retries", of(&self.done.retries)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

/// A script that is played.
struct Playable {
    path: String,
    weight: u32,
    script: Script,
}

/// A client.
struct Player {
    session: Box<dyn Session>,
    scripts: Arc<Vec<Playable>>,
    /// Which was drawn last.
    last: usize,
    variables: Variables,
    done: Arc<Done>,
}

/// A transaction that a script has begun.
#[derive(Default)]
struct Transaction {
    /// The line where it began, while it is open.
    begun: Option<usize>,
    /// Whether it changed rows that are not committed yet.
    changes: bool,
    /// How many with changes were committed.
    committed: u64,
    /// How many with changes were given up.
    given_up: u64,
}

impl Client for Player {
    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let scripts = Arc::clone(&self.scripts);
        self.last = drawn(&scripts, random);
        let playable = scripts.get(self.last).context("there is a script")?;
        let (chance, variables) = (random.clone(), self.variables.clone());
        for _ in 0..TRIES_AT_MOST {
            match self.play(playable, random) {
                Ok(()) => return Ok(()),
                Err(error) if is_conflict(&error) => {
                    self.session.rollback()?;
                    self.done.retries.fetch_add(1, Ordering::Relaxed);
                    *random = chance.clone();
                    self.variables.clone_from(&variables);
                }
                Err(error) => return Err(error),
            }
        }
        bail!(
            "{}: {TRIES_AT_MOST} tries met other transactions and were rolled back",
            playable.path
        )
    }

    fn kind(&self) -> Option<usize> {
        Some(self.last)
    }
}

/// Draws by the weights.
fn drawn(scripts: &[Playable], random: &mut fastrand::Rng) -> usize {
    let total: u32 = scripts.iter().map(|script| script.weight).sum();
    let mut left = random.u32(..total.max(1));
    for (index, script) in scripts.iter().enumerate() {
        if left < script.weight {
            return index;
        }
        left -= script.weight;
    }
    0
}

impl Player {
    /// From the first step to the last.
    fn play(&mut self, playable: &Playable, random: &mut fastrand::Rng) -> Result<()> {
        let mut transaction = Transaction::default();
        let mut at = 0;
        while let Some(step) = playable.script.steps.get(at) {
            let place = || format!("{}, line {}", playable.path, step.line);
            at += 1;
            match &step.command {
                Command::Sql {
                    text,
                    verbs,
                    prefix,
                } => self
                    .say(step.line, text, verbs, prefix.as_deref(), &mut transaction)
                    .with_context(place)?,
                Command::Set {
                    variable,
                    expression,
                } => {
                    let datum = expression
                        .value(&self.variables, random)
                        .map_err(|message| anyhow!("{}: `\\set {variable}`: {message}", place()))?;
                    (self.variables).insert(variable.clone(), Variable::Datum(datum));
                }
                Command::Sleep { amount, unit_us } => {
                    let pause = self.slept(amount, *unit_us).with_context(place)?;
                    thread::sleep(pause);
                }
                Command::Unless {
                    expression,
                    otherwise,
                } => {
                    let datum = expression
                        .value(&self.variables, random)
                        .map_err(|message| anyhow!("{}: `\\if`: {message}", place()))?;
                    if !datum.is_true() {
                        at = *otherwise;
                    }
                }
                Command::Jump { to } => at = *to,
            }
        }
        if let Some(line) = transaction.begun {
            bail!(
                "{}: it ends within the transaction that line {line} begins, so that nothing of it is ever committed",
                playable.path
            );
        }
        Ok(())
    }

    fn say(
        &mut self,
        line: usize,
        text: &str,
        verbs: &[Verb],
        prefix: Option<&str>,
        transaction: &mut Transaction,
    ) -> Result<()> {
        let text = substituted(text, &self.variables);
        let answers = self.session.speak(&text)?;
        for (verb, answer) in verbs.iter().zip(&answers) {
            transaction.hear(*verb, line, answer.count);
        }
        transaction.end_of_message();
        // At once: what fails further on takes nothing of it back.
        Done::add(&self.done.changes, mem::take(&mut transaction.committed));
        Done::add(&self.done.rollbacks, mem::take(&mut transaction.given_up));
        let Some(prefix) = prefix else {
            return Ok(());
        };
        let answer = answers
            .last()
            .context("`\\gset`: the statement gave nothing")?;
        ensure!(
            answer.rows.len() == 1,
            "`\\gset` takes one row, the statement gave {}",
            answer.rows.len()
        );
        let row = answer.rows.first().context("there is one")?;
        for (name, value) in answer.columns.iter().zip(row) {
            let text = value.clone().unwrap_or_default();
            (self.variables).insert(format!("{prefix}{name}"), Variable::Text(text));
        }
        Ok(())
    }

    fn slept(&self, amount: &Amount, unit_us: u64) -> Result<Duration> {
        let count = match amount {
            Amount::Fixed(count) => *count,
            Amount::Variable(name) => {
                let variable = (self.variables.get(name))
                    .with_context(|| format!("`\\sleep`: there is no variable `:{name}`"))?;
                let text = variable.text();
                text.parse()
                    .with_context(|| format!("`\\sleep`: `:{name}` is {text:?}"))?
            }
        };
        let us = count.saturating_mul(unit_us);
        ensure!(
            us <= SLEEP_US_AT_MOST,
            "`\\sleep`: a pause lasts 30 s at most"
        );
        Ok(Duration::from_micros(us))
    }
}

impl Transaction {
    fn hear(&mut self, verb: Verb, line: usize, count: u64) {
        match verb {
            Verb::Begin => self.begun = Some(line),
            Verb::Commit => self.commit(),
            Verb::Rollback => {
                self.given_up += u64::from(mem::take(&mut self.changes));
                self.begun = None;
            }
            Verb::Change => self.changes |= count > 0,
            Verb::Other => {}
        }
    }

    fn commit(&mut self) {
        self.committed += u64::from(mem::take(&mut self.changes));
        self.begun = None;
    }

    /// Statements that go together without a `BEGIN` are one transaction.
    fn end_of_message(&mut self) {
        if self.begun.is_none() {
            self.commit();
        }
    }
}

/// A statement with the values of its variables, wherever `:name` stands; what no variable has stays.
fn substituted(text: &str, variables: &Variables) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(':') {
        whole.push_str(&rest[..place]);
        rest = &rest[place..];
        let after = &rest[1..];
        let is_of_it =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii();
        let length = if after.starts_with(|first: char| first.is_ascii_digit()) {
            0
        } else {
            after
                .find(|letter| !is_of_it(letter))
                .unwrap_or(after.len())
        };
        match variables.get(&after[..length]) {
            Some(variable) if length > 0 => {
                whole.push_str(&variable.text());
                rest = &after[length..];
            }
            _ => {
                // A cast has two of them, and a type's name behind it.
                let colons = if length == 0 {
                    rest.bytes().take_while(|byte| *byte == b':').count()
                } else {
                    1
                };
                whole.push_str(&rest[..colons]);
                rest = &rest[colons..];
            }
        }
    }
    whole.push_str(rest);
    whole
}

#[cfg(test)]
mod tests;
