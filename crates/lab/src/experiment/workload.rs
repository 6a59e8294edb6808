//! The loads of an experiment: what can be asked for, and what does not go together.

mod block;
mod companion;
mod points;
mod raw;
mod scripts;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::block::{BlockPoint, show_request};
pub use self::companion::Companion;
pub(super) use self::raw::RawWorkload;
pub(crate) use self::raw::USERS_AT_MOST;
pub use self::scripts::{ScriptFile, Scripts, beside};

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
    /// A company's orders, payments and deliveries: derived from TPC-C.
    Tpcc,
    /// 22 queries over eight tables: derived from TPC-H.
    Tpch,
    /// Single statements and mixes over four tables: AS3AP-like.
    As3ap,
    /// Transactions that a person wrote, in pgbench's format.
    Script,
}

impl Kind {
    /// All of them, as they are written.
    pub const NAMES: [&'static str; 10] = [
        "block", "validate", "scan", "growth", "random", "tpcb", "tpcc", "tpch", "as3ap", "script",
    ];

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
            Self::Tpcc => "tpcc",
            Self::Tpch => "tpch",
            Self::As3ap => "as3ap",
            Self::Script => "script",
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

/// How a suite of queries is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// `tpch`: one stream of queries.
    Power,
    /// `tpch`: a stream for each user.
    Throughput,
    /// `as3ap`: one statement after the other.
    SingleUser,
    /// `as3ap`: every user reads rows by their key.
    InformationRetrieval,
    /// `as3ap`: the same, with one user who runs the cross-section.
    MixedInformationRetrieval,
    /// `as3ap`: every user changes rows by their key.
    Oltp,
    /// `as3ap`: the same, with one user who runs the cross-section.
    MixedOltp,
}

impl Mode {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Throughput => "throughput",
            Self::SingleUser => "single-user",
            Self::InformationRetrieval => "information-retrieval",
            Self::MixedInformationRetrieval => "mixed-information-retrieval",
            Self::Oltp => "oltp",
            Self::MixedOltp => "mixed-oltp",
        }
    }

    /// Whose it is.
    fn kind(self) -> Kind {
        match self {
            Self::Power | Self::Throughput => Kind::Tpch,
            _ => Kind::As3ap,
        }
    }

    /// Whether there is one client, whatever the experiment says of users.
    fn has_one_user(self) -> bool {
        matches!(self, Self::Power | Self::SingleUser)
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
    /// Ninety of a hundred operations are to take no longer, or the rate is not ranked.
    pub p90_at_most: Option<Duration>,
    /// `block`: the pattern.
    pub pattern: Pattern,
    /// `block`: the requests.
    pub point: BlockPoint,
    /// `random`: how many of a hundred operations update.
    pub update_percent: u32,
    /// `random`: how many of a hundred operations go to the hot tenth of the rows.
    pub hot_percent: u32,
    /// Between two operations of a client; of `tpcc`, the mean after a New-Order, the others in the
    /// standard's proportion.
    pub think_time: Duration,
    /// `tpcc`: to key a New-Order in, the others in the standard's proportion.
    pub keying_time: Duration,
    /// `tpcc`: how many.
    pub warehouses: i32,
    /// `tpcc`: by procedures on the server, not statement by statement.
    pub procedures: bool,
    /// `scan`: parallel workers of the database, 0 for a serial scan.
    pub degree: u32,
    /// `random`: tables, each for a group of the users.
    pub schemas: u32,
    /// `random`: how many of a hundred operations scan a table.
    pub scan_percent: u32,
    /// `random`: the size of the tables that are scanned.
    pub scan_bytes: u64,
    /// `tpch`, `as3ap`: how the suite is run.
    pub mode: Mode,
    /// `tpch`: the scale factor.
    pub scale: f64,
    /// `tpch`: whether the power stream has its refresh functions.
    pub refresh: bool,
    /// `script`: which.
    pub scripts: Scripts,
    /// What goes on beside it for as long as it is measured.
    pub beside: Option<Companion>,
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
        if let Some(beside) = self.beside {
            words.push(format!("beside a {}", beside.name()));
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
        match self.kind {
            Kind::Scan | Kind::Validate | Kind::Growth => false,
            Kind::Tpch | Kind::As3ap => !self.mode.has_one_user(),
            Kind::Block | Kind::Random | Kind::Tpcb | Kind::Tpcc | Kind::Script => true,
        }
    }

    fn kind_words(&self) -> Vec<String> {
        let mut words = vec![match self.kind {
            Kind::Tpcc => "tpcc (derived from TPC-C)".to_owned(),
            Kind::Tpch => "tpch (derived from TPC-H)".to_owned(),
            Kind::As3ap => "AS3AP-like".to_owned(),
            kind => kind.name().to_owned(),
        }];
        match self.kind {
            Kind::Block => {
                words.extend(self.point_words());
                words.push(format!("depth {}", self.point.depth));
            }
            Kind::Random => words.extend(self.random_words()),
            Kind::Tpch => {
                words.push(self.mode.name().to_owned());
                words.push(format!("scale {}", self.scale));
                if self.refresh {
                    words.push("refreshed".to_owned());
                }
            }
            Kind::As3ap => words.push(self.mode.name().to_owned()),
            Kind::Scan => words.push(match self.degree {
                0 => "serial".to_owned(),
                degree => format!("degree {degree}"),
            }),
            Kind::Tpcc => words.extend(self.tpcc_words()),
            Kind::Script => {
                let files = self.scripts.files.iter().map(ScriptFile::shown);
                words.push(files.collect::<Vec<_>>().join(" and "));
                if self.scripts.scale > 1 {
                    words.push(format!("scale {}", self.scripts.scale));
                }
            }
            Kind::Validate | Kind::Growth | Kind::Tpcb => {}
        }
        words
    }

    /// Whether operations arrive by chance, whatever the storage does.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rate.is_some() || self.open_percent.is_some()
    }

    fn random_words(&self) -> Vec<String> {
        let updates = self.update_percent;
        let mut words = vec![format!("{}:{updates}", 100 - updates.min(100))];
        if self.schemas > 1 {
            words.push(format!("{} schemas", self.schemas));
        }
        if self.scan_percent > 0 {
            words.push(format!("{} % scans", self.scan_percent));
        }
        words
    }

    /// Whether it goes through a list of different questions once.
    #[must_use]
    pub fn is_suite(&self) -> bool {
        match self.kind {
            Kind::Tpch => true,
            Kind::As3ap => self.mode == Mode::SingleUser,
            _ => false,
        }
    }

    /// Whether it writes single blocks here and there: what a disk does with these depends on what
    /// was written to it before.
    #[must_use]
    pub fn writes_at_random(&self) -> bool {
        match self.kind {
            Kind::Block => match self.pattern {
                Pattern::RandomWrite => true,
                Pattern::RandomMixed => self.point.read_percent < 100,
                _ => false,
            },
            // Of a script nobody knows; most do.
            Kind::Tpcb | Kind::Tpcc | Kind::Random | Kind::Growth | Kind::Script => true,
            Kind::Validate | Kind::Scan | Kind::Tpch | Kind::As3ap => false,
        }
    }

    /// Whether the work decides how long it takes, and not the experiment.
    #[must_use]
    pub fn is_measured_to_its_end(&self) -> bool {
        self.is_suite() || matches!(self.kind, Kind::Scan | Kind::Validate)
    }

    fn tpcc_words(&self) -> Vec<String> {
        let mut words = vec![match self.warehouses {
            1 => "1 warehouse".to_owned(),
            warehouses => format!("{warehouses} warehouses"),
        }];
        if self.procedures {
            words.push("procedures".to_owned());
        }
        for (name, time) in [("keying", self.keying_time), ("thinking", self.think_time)] {
            if !time.is_zero() {
                words.push(format!("{name} {} s", time.as_secs_f64()));
            }
        }
        words
    }
}
