//! The loads of an experiment: what can be asked for, and what does not go together.

mod points;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::points::Users;
use crate::quantity::{parse_duration, parse_size};

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// fio's patterns on the contender itself, below any database.
    Block,
    /// Every byte of a file, by 32 asynchronous requests of 1 MB: as a backup reads.
    Validate,
    /// A full scan of one large table.
    Scan,
    /// Inserts, a commit each 100 rows.
    Growth,
    /// Single-block reads through an index in random order, with updates.
    Random,
    /// pgbench's own transaction: TPC-B-like.
    Tpcb,
}

impl Kind {
    /// All of them, as they are written.
    pub const NAMES: [&'static str; 6] = ["block", "validate", "scan", "growth", "random", "tpcb"];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Validate => "validate",
            Self::Scan => "scan",
            Self::Growth => "growth",
            Self::Random => "random",
            Self::Tpcb => "tpcb",
        }
    }

    /// Whether it runs in a database.
    #[must_use]
    pub fn needs_database(self) -> bool {
        !matches!(self, Self::Block | Self::Validate)
    }
}

/// What may hold the data when the load begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// The data fits into memory and was touched before.
    Cached,
    /// The data is at least five times all memory that may hold it.
    StorageBound,
    /// No cache holds any of it when the load begins.
    Cold,
}

impl Regime {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::StorageBound => "storage-bound",
            Self::Cold => "cold",
        }
    }
}

/// A pattern of fio's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// 8 KiB at random places, read.
    RandomRead,
    /// 8 KiB at random places, written.
    RandomWrite,
    /// 8 KiB at random places, 70 % read.
    RandomMixed,
    /// 1 MiB one after the other, read.
    SequentialRead,
    /// 1 MiB one after the other, written.
    SequentialWrite,
    /// 8 KiB appended and fdatasynced, as a write-ahead log is written.
    Log,
}

impl Pattern {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RandomRead => "random-read",
            Self::RandomWrite => "random-write",
            Self::RandomMixed => "random-mixed",
            Self::SequentialRead => "sequential-read",
            Self::SequentialWrite => "sequential-write",
            Self::Log => "log",
        }
    }
}

/// A load.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Which.
    pub kind: Kind,
    /// Of the data.
    pub size_bytes: u64,
    /// Clients at once.
    pub users: u32,
    /// Where the data may be.
    pub regime: Regime,
    /// Arrivals a second of an open load; a closed one has none.
    pub rate: Option<f64>,
    /// An open load whose rate is this share of a hundred of the slowest contender's closed peak,
    /// which is known once the first block's closed runs have been.
    pub open_percent: Option<u32>,
    /// Which `[[workload]]` of the file it came from, from 0: a list of `users` or `open` makes
    /// several loads of one.
    pub family: usize,
    /// `block`: the pattern.
    pub pattern: Pattern,
    /// `block`: requests under way for each user.
    pub depth: u32,
    /// `random`: how many of a hundred operations update.
    pub update_percent: u32,
    /// `random`: how many of a hundred operations go to the hot tenth of the rows.
    pub hot_percent: u32,
    /// Between two operations of a client.
    pub think_time: Duration,
    /// `scan`: parallel workers of the database, 0 for a serial scan.
    pub degree: u32,
}

impl Workload {
    /// A name that tells it from the others of the experiment.
    #[must_use]
    pub fn title(&self) -> String {
        let mut words = self.kind_words();
        if self.has_users() {
            words.push(match self.users {
                1 => "1 user".to_owned(),
                users => format!("{users} users"),
            });
        }
        if let Some(rate) = self.rate {
            words.push(format!("open, {rate}/s"));
        }
        if let Some(percent) = self.open_percent {
            words.push(format!("open at {percent} %"));
        }
        words.push(self.regime.name().to_owned());
        words.join(", ")
    }

    /// What all loads of one `[[workload]]` share of their names.
    #[must_use]
    pub fn family_title(&self) -> String {
        let mut words = self.kind_words();
        words.push(self.regime.name().to_owned());
        words.join(", ")
    }

    fn has_users(&self) -> bool {
        !matches!(self.kind, Kind::Scan | Kind::Validate | Kind::Growth)
    }

    fn kind_words(&self) -> Vec<String> {
        let mut words = vec![self.kind.name().to_owned()];
        match self.kind {
            Kind::Block => words.push(format!("{}, depth {}", self.pattern.name(), self.depth)),
            Kind::Random => words.push(format!(
                "{}:{}",
                100 - self.update_percent.min(100),
                self.update_percent
            )),
            Kind::Scan => words.push(match self.degree {
                0 => "serial".to_owned(),
                degree => format!("degree {degree}"),
            }),
            Kind::Validate | Kind::Growth | Kind::Tpcb => {}
        }
        words
    }

    /// Whether operations arrive by chance, whatever the storage does.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rate.is_some() || self.open_percent.is_some()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    kind: Kind,
    size: Option<String>,
    users: Option<Users>,
    regime: Option<Regime>,
    rate: Option<f64>,
    open: Option<Vec<u32>>,
    pattern: Option<Pattern>,
    depth: Option<u32>,
    update_percent: Option<u32>,
    hot_percent: Option<u32>,
    think_time: Option<String>,
    degree: Option<u32>,
}

/// More clients than this no database is started for.
pub(crate) const USERS_AT_MOST: u32 = 500;

impl RawWorkload {
    pub(super) fn check(self) -> Result<Workload, String> {
        self.check_kinds()?;
        let kind = self.kind;
        let users = self
            .users
            .as_ref()
            .map_or(if kind == Kind::Block { 1 } else { 8 }, Users::most);
        if !(1..=USERS_AT_MOST).contains(&users) {
            return Err(format!(
                "`users` lies between 1 and {USERS_AT_MOST}, as many as the database is given connections"
            ));
        }
        if self
            .rate
            .is_some_and(|rate| !(0.1..=10_000_000.0).contains(&rate))
        {
            return Err("`rate` lies between 0.1 and 10,000,000 arrivals a second".to_owned());
        }
        for (name, share) in [
            ("update_percent", self.update_percent),
            ("hot_percent", self.hot_percent),
        ] {
            if share.is_some_and(|share| share > 100) {
                return Err(format!("`{name}` lies between 0 and 100"));
            }
        }
        let depth = self.depth.unwrap_or(16);
        if !(1..=1024).contains(&depth) {
            return Err("`depth` lies between 1 and 1024".to_owned());
        }
        let size_bytes = match &self.size {
            Some(text) => parse_size(text)?,
            None => 256 << 20,
        };
        if size_bytes < 16 << 20 {
            return Err("`size` is at least 16 MiB".to_owned());
        }
        let think_time = match &self.think_time {
            Some(text) => parse_duration(text)?,
            None => Duration::ZERO,
        };
        let default_regime = match kind {
            Kind::Scan | Kind::Validate | Kind::Block => Regime::Cold,
            Kind::Growth | Kind::Random | Kind::Tpcb => Regime::Cached,
        };
        Ok(Workload {
            kind,
            size_bytes,
            users,
            regime: self.regime.unwrap_or(default_regime),
            rate: self.rate,
            open_percent: None,
            family: 0,
            pattern: self.pattern.unwrap_or(Pattern::RandomRead),
            depth,
            update_percent: self.update_percent.unwrap_or(30),
            hot_percent: self.hot_percent.unwrap_or(0),
            think_time,
            degree: self.degree.unwrap_or(0),
        })
    }

    /// Every key means something to the workload.
    fn check_kinds(&self) -> Result<(), String> {
        let kind = self.kind;
        let only = |given: bool, name: &str, kinds: &[Kind]| {
            if given && !kinds.contains(&kind) {
                let meant: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                return Err(format!(
                    "`{name}` means nothing to the workload `{}`; it is for {}",
                    kind.name(),
                    meant.join(" and ")
                ));
            }
            Ok(())
        };
        only(self.pattern.is_some(), "pattern", &[Kind::Block])?;
        only(self.depth.is_some(), "depth", &[Kind::Block])?;
        only(
            self.update_percent.is_some(),
            "update_percent",
            &[Kind::Random],
        )?;
        only(self.hot_percent.is_some(), "hot_percent", &[Kind::Random])?;
        only(self.degree.is_some(), "degree", &[Kind::Scan])?;
        let clients = [Kind::Random, Kind::Tpcb];
        only(self.rate.is_some(), "rate", &clients)?;
        only(self.open.is_some(), "open", &clients)?;
        only(self.think_time.is_some(), "think_time", &clients)?;
        let with_users = [Kind::Block, Kind::Random, Kind::Tpcb];
        only(self.users.is_some(), "users", &with_users)
    }
}
