//! A load as it is written in the file, and whether its keys go together.

use std::time::Duration;

use serde::Deserialize;

use super::block::Values;
use super::companion::Companions;
use super::points::Users;
use super::{Kind, Mode, Pattern, Regime, Scripts, Workload};
use crate::quantity::{as_float, parse_duration, parse_size, show_size, whole};

/// What the data of `tpch` takes for each unit of the scale factor, with keys and indexes.
const SCALE_BYTES: f64 = 2.0 * 1024.0 * 1024.0 * 1024.0;
/// Below this some tables of `tpch` have too few rows for its queries to find anything.
const SCALE_AT_LEAST: f64 = 0.01;
const SCALE_AT_MOST: f64 = 1000.0;
/// The table that `random` scans, if nothing else is said.
const SCAN_BYTES: u64 = 1 << 20;

/// A load as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::experiment) struct RawWorkload {
    pub(super) kind: Kind,
    size: Option<String>,
    pub(super) users: Option<Users>,
    pub(super) regime: Option<Regime>,
    pub(super) rate: Option<f64>,
    pub(super) open: Option<Vec<u32>>,
    p90_at_most: Option<String>,
    pub(super) pattern: Option<Pattern>,
    pub(super) depth: Option<Values<u32>>,
    pub(super) block_size: Option<Values<String>>,
    pub(super) read_percent: Option<Values<u32>>,
    update_percent: Option<u32>,
    hot_percent: Option<u32>,
    pub(super) think_time: Option<String>,
    keying_time: Option<String>,
    warehouses: Option<i32>,
    procedures: Option<bool>,
    degree: Option<u32>,
    schemas: Option<u32>,
    scan_percent: Option<u32>,
    scan_size: Option<String>,
    mode: Option<Mode>,
    scale: Option<f64>,
    refresh: Option<bool>,
    files: Option<Vec<String>>,
    init: Option<String>,
    pub(super) beside: Option<Companions>,
}

/// What a warehouse takes on disk, with its indexes; the items of all take a tenth of that.
const WAREHOUSE_BYTES: u64 = 100 << 20;
/// A thousand gigabytes.
const WAREHOUSES_AT_MOST: i32 = 10_000;

/// PostgreSQL gives a query no more workers.
const DEGREE_AT_MOST: u32 = 1024;

/// A client that pauses longer does nothing in any run.
const PAUSE_AT_MOST: Duration = Duration::from_secs(24 * 3600);

/// More clients than this no database is started for.
pub(crate) const USERS_AT_MOST: u32 = 500;

impl RawWorkload {
    /// Whether it runs in a database.
    pub(in crate::experiment) fn needs_database(&self) -> bool {
        self.kind.needs_database()
    }

    pub(super) fn check(self) -> Result<Workload, String> {
        self.check_kinds()?;
        let kind = self.kind;
        let users = self
            .users
            .as_ref()
            .map_or(if kind == Kind::Block { 1 } else { 8 }, Users::most);
        self.check_numbers(users)?;
        let point = self.points()?[0];
        let (size_bytes, scale) = self.size_and_scale()?;
        self.check_places(size_bytes)?;
        let mode = self.mode()?;
        let users = if mode.has_one_user() && mode.kind() == kind {
            1
        } else {
            users
        };
        let least = self.users.as_ref().map_or(users, Users::least);
        let (schemas, scan_bytes) = self.schemas(least, size_bytes)?;
        let (warehouses, size_bytes) = self.company(size_bytes)?;
        let time = |text: &Option<String>| match text {
            Some(text) => parse_duration(text).and_then(|time| {
                if time > PAUSE_AT_MOST {
                    return Err(format!("`{text}` is longer than a pause may be: a day"));
                }
                Ok(time)
            }),
            None => Ok(Duration::ZERO),
        };
        let think_time = time(&self.think_time)?;
        let scripts = if kind == Kind::Script {
            Scripts::check(self.files.as_deref(), self.init.as_deref(), self.scale)?
        } else {
            Scripts::default()
        };
        let default_regime = match kind {
            Kind::Scan | Kind::Validate | Kind::Block | Kind::Tpch => Regime::Cold,
            Kind::Growth | Kind::Random | Kind::Tpcb | Kind::Tpcc | Kind::As3ap | Kind::Script => {
                Regime::Cached
            }
        };
        Ok(Workload {
            kind,
            size_bytes,
            users,
            regime: self.regime.unwrap_or(default_regime),
            rate: self.rate,
            open_percent: None,
            family: 0,
            p90_at_most: self.limit(mode)?,
            pattern: self.pattern.unwrap_or(Pattern::RandomRead),
            point,
            update_percent: self.update_percent.unwrap_or(30),
            hot_percent: self.hot_percent.unwrap_or(0),
            think_time,
            keying_time: time(&self.keying_time)?,
            warehouses,
            procedures: self.procedures.unwrap_or(false),
            degree: self.degree.unwrap_or(0),
            schemas,
            scan_percent: self.scan_percent.unwrap_or(0),
            scan_bytes,
            mode,
            scale,
            refresh: self.refresh.unwrap_or(false),
            scripts,
            beside: None,
        })
    }

    fn check_numbers(&self, users: u32) -> Result<(), String> {
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
            ("scan_percent", self.scan_percent),
        ] {
            if share.is_some_and(|share| share > 100) {
                return Err(format!("`{name}` lies between 0 and 100"));
            }
        }
        if self.degree.is_some_and(|degree| degree > DEGREE_AT_MOST) {
            return Err(format!("`degree` lies between 0 and {DEGREE_AT_MOST}"));
        }
        Ok(())
    }

    /// How long ninety of a hundred operations may take.
    fn limit(&self, mode: Mode) -> Result<Option<Duration>, String> {
        let Some(text) = &self.p90_at_most else {
            return Ok(None);
        };
        let has_few = matches!(self.kind, Kind::Scan | Kind::Validate | Kind::Tpch)
            || (self.kind == Kind::As3ap && mode == Mode::SingleUser);
        if has_few {
            return Err(format!(
                "`p90_at_most` is for loads of many like operations; `{}` has a few long ones",
                self.kind.name()
            ));
        }
        let limit = parse_duration(text)?;
        if limit.is_zero() {
            return Err("`p90_at_most` is longer than nothing".to_owned());
        }
        Ok(Some(limit))
    }

    /// Bytes of the data, and of `tpch` the scale factor: either gives the other.
    fn size_and_scale(&self) -> Result<(u64, f64), String> {
        let size_bytes = match &self.size {
            Some(text) => parse_size(text)?,
            None => 256 << 20,
        };
        if size_bytes < 16 << 20 {
            return Err("`size` is at least 16 MiB".to_owned());
        }
        if self.kind != Kind::Tpch {
            return Ok((size_bytes, 0.0));
        }
        let scale = match self.scale {
            // Three digits tell scale factors apart, and keep titles short.
            None => (as_float(size_bytes) / SCALE_BYTES * 1000.0).round() / 1000.0,
            Some(_) if self.size.is_some() => {
                return Err("`size` and `scale` say the same: give one of them".to_owned());
            }
            Some(scale) => scale,
        };
        if !(SCALE_AT_LEAST..=SCALE_AT_MOST).contains(&scale) {
            let least = show_size(SCALE_AT_LEAST * SCALE_BYTES);
            return Err(format!(
                "`scale` lies between {SCALE_AT_LEAST} and {SCALE_AT_MOST} (a `size` of at least {least})"
            ));
        }
        let size_bytes = whole(scale * SCALE_BYTES).unwrap_or(u64::MAX);
        Ok((size_bytes, scale))
    }

    fn mode(&self) -> Result<Mode, String> {
        let mode = self.mode.unwrap_or(match self.kind {
            Kind::As3ap => Mode::SingleUser,
            _ => Mode::Power,
        });
        if self.mode.is_some() && mode.kind() != self.kind {
            return Err(format!(
                "`mode = \"{}\"` is none of the workload `{}`",
                mode.name(),
                self.kind.name()
            ));
        }
        let most = self.users.as_ref().map_or(1, Users::most);
        if mode.has_one_user() && mode.kind() == self.kind && most > 1 {
            return Err(format!("`mode = \"{}\"` has one user", mode.name()));
        }
        if self.refresh == Some(true) && mode != Mode::Power {
            return Err("`refresh` is for `mode = \"power\"`: beside other streams the answers would depend on chance".to_owned());
        }
        if self.think_time.is_some() && self.kind == Kind::As3ap && mode.has_one_user() {
            return Err("`think_time` is for the modes with several users".to_owned());
        }
        Ok(mode)
    }

    /// Of `random`: how many tables there are, and how large those are that are scanned.
    fn schemas(&self, users: u32, size_bytes: u64) -> Result<(u32, u64), String> {
        let schemas = self.schemas.unwrap_or(1);
        if !(1..=users).contains(&schemas) {
            return Err(format!(
                "`schemas` lies between 1 and the number of users ({users}): each has a user"
            ));
        }
        let scan_bytes = match &self.scan_size {
            Some(text) => parse_size(text)?,
            None => SCAN_BYTES,
        };
        if self.scan_size.is_some() && self.scan_percent.unwrap_or(0) == 0 {
            return Err(
                "`scan_size` needs a `scan_percent`: nothing is scanned otherwise".to_owned(),
            );
        }
        let most = size_bytes / u64::from(schemas);
        if !(64 << 10..=most).contains(&scan_bytes) {
            return Err(format!(
                "`scan_size` lies between 64 KiB and the size of one schema ({})",
                show_size(as_float(most))
            ));
        }
        Ok((schemas, scan_bytes))
    }

    /// How many warehouses `tpcc` has, and the size of its data: a warehouse is never cut in two.
    fn company(&self, size_bytes: u64) -> Result<(i32, u64), String> {
        if self.kind != Kind::Tpcc {
            return Ok((1, size_bytes));
        }
        if self.size.is_some() && self.warehouses.is_some() {
            return Err("`size` and `warehouses` say the same: leave one of them out".to_owned());
        }
        let is_open = self.rate.is_some() || self.open.is_some();
        if is_open && (self.think_time.is_some() || self.keying_time.is_some()) {
            return Err(
                "an open load (`rate`, `open`) has no terminals that wait: leave out `think_time` and `keying_time`"
                    .to_owned(),
            );
        }
        let fitting = i32::try_from(size_bytes / WAREHOUSE_BYTES).unwrap_or(i32::MAX);
        let warehouses = self.warehouses.unwrap_or(fitting.max(1));
        if !(1..=WAREHOUSES_AT_MOST).contains(&warehouses) {
            return Err(format!(
                "`warehouses` lies between 1 and {WAREHOUSES_AT_MOST}, of 100 MiB each"
            ));
        }
        let least = u64::from(warehouses.unsigned_abs()) * WAREHOUSE_BYTES;
        let stated = if self.size.is_some() { size_bytes } else { 0 };
        Ok((warehouses, stated.max(least)))
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
        only(self.block_size.is_some(), "block_size", &[Kind::Block])?;
        only(self.read_percent.is_some(), "read_percent", &[Kind::Block])?;
        only(
            self.update_percent.is_some(),
            "update_percent",
            &[Kind::Random],
        )?;
        only(self.hot_percent.is_some(), "hot_percent", &[Kind::Random])?;
        only(self.schemas.is_some(), "schemas", &[Kind::Random])?;
        only(self.scan_percent.is_some(), "scan_percent", &[Kind::Random])?;
        only(self.scan_size.is_some(), "scan_size", &[Kind::Random])?;
        only(self.mode.is_some(), "mode", &[Kind::Tpch, Kind::As3ap])?;
        only(self.scale.is_some(), "scale", &[Kind::Tpch, Kind::Script])?;
        only(self.files.is_some(), "files", &[Kind::Script])?;
        only(self.init.is_some(), "init", &[Kind::Script])?;
        only(self.refresh.is_some(), "refresh", &[Kind::Tpch])?;
        only(self.degree.is_some(), "degree", &[Kind::Scan])?;
        only(self.warehouses.is_some(), "warehouses", &[Kind::Tpcc])?;
        only(self.procedures.is_some(), "procedures", &[Kind::Tpcc])?;
        only(self.keying_time.is_some(), "keying_time", &[Kind::Tpcc])?;
        let clients = [Kind::Random, Kind::Tpcb, Kind::Tpcc, Kind::Script];
        only(self.rate.is_some(), "rate", &clients)?;
        only(self.open.is_some(), "open", &clients)?;
        let thinking = [
            Kind::Random,
            Kind::Tpcb,
            Kind::Tpcc,
            Kind::As3ap,
            Kind::Script,
        ];
        only(self.think_time.is_some(), "think_time", &thinking)?;
        let with_users = [
            Kind::Block,
            Kind::Random,
            Kind::Tpcb,
            Kind::Tpcc,
            Kind::Tpch,
            Kind::As3ap,
            Kind::Script,
        ];
        only(self.users.is_some(), "users", &with_users)?;
        only(self.beside.is_some(), "beside", &Workload::WITH_COMPANY)
    }
}
