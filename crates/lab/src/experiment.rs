//! The file of an experiment: what a person writes, checked before anything is touched.
//!
//! Every mistake is one line with the file, the line and the column, and the nearest names where a
//! name is unknown. What only the machine can tell (a device in use, a missing program) is asked
//! later, by [`crate::measure::preparation`], and still before anything is made.

mod contender;
mod database;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::contender::Asked;
use self::contender::RawContender;
pub use self::database::{CopyOf, Database, DatabaseKind};
pub use self::workload::{
    BlockPoint, Companion, Kind, Mode, Pattern, Regime, ScriptFile, Scripts, Workload, beside,
    show_request,
};
use crate::measure::load::Settling;
use crate::nearness::hint;
use crate::quantity::{parse_duration, parse_size};

/// An experiment that can be planned.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// A name for the report.
    pub name: String,
    /// What is compared with what, by name.
    pub contenders: Vec<String>,
    /// What stands behind each of these names.
    asked: BTreeMap<String, Asked>,
    /// The one that the others are compared with; it runs under two names.
    pub baseline: String,
    /// How often every contender runs.
    pub blocks: u32,
    /// At how many moments the power of each contender is cut first, where the file says so.
    pub cuts: Option<u32>,
    /// Load that is not counted.
    pub warm_up: Duration,
    /// How long the warm-up goes on at most until the rate holds still, where the file says so.
    pub settle: Option<Duration>,
    /// Load that is.
    pub duration: Duration,
    /// What all chance is drawn from.
    pub seed: u64,
    /// How far a ratio may lie from one and still be called equivalent.
    pub margin: f64,
    /// How long a step outside of the load may take before its contender counts as hanging; what
    /// moves data gets more, in proportion.
    pub patience: Duration,
    /// Whether it runs in a guest with a kernel of its own.
    pub guest: bool,
    /// On what.
    pub devices: Devices,
    /// The database, where a workload needs one.
    pub database: Database,
    /// Under which loads.
    pub workloads: Vec<Workload>,
}

/// The devices that all contenders use in turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Devices {
    /// What they are.
    pub kind: DeviceKind,
    /// How many.
    pub count: u32,
    /// Of each; block devices have their own.
    pub size_bytes: u64,
    /// Where the files of loop devices are made.
    pub directory: PathBuf,
    /// Block devices.
    pub names: Vec<PathBuf>,
    /// Bytes a second to which each is held, either way.
    pub bandwidth: Option<u64>,
    /// Requests a second to which each is held, either way.
    pub requests: Option<u64>,
}

/// What a device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A file through a loop device with direct I/O.
    Loop,
    /// Compressed memory.
    Zram,
    /// Block devices that are there.
    Block,
}

/// A mistake in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// From 1, where there is a place.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Mistake {
    fn at(text: &str, start: usize, message: &str) -> Self {
        Self {
            place: Some(place(text, start)),
            message: message.to_owned(),
        }
    }
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((line, column)) = self.place {
            write!(formatter, "line {line}, column {column}: ")?;
        }
        write!(formatter, "{}", self.message)
    }
}

impl std::error::Error for Mistake {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    name: Option<String>,
    contenders: Vec<Spanned<RawContender>>,
    baseline: Option<Spanned<String>>,
    blocks: Option<Spanned<u32>>,
    cuts: Option<Spanned<u32>>,
    warm_up: Option<Spanned<String>>,
    settle: Option<Spanned<String>>,
    duration: Option<Spanned<String>>,
    seed: Option<u64>,
    margin: Option<Spanned<f64>>,
    patience: Option<Spanned<String>>,
    #[serde(default)]
    guest: bool,
    devices: RawDevices,
    #[serde(default)]
    database: database::RawDatabase,
    workload: Vec<Spanned<workload::RawWorkload>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevices {
    kind: DeviceKind,
    count: Option<Spanned<u32>>,
    size: Option<Spanned<String>>,
    directory: Option<PathBuf>,
    names: Option<Spanned<Vec<PathBuf>>>,
    bandwidth: Option<Spanned<String>>,
    requests: Option<Spanned<u64>>,
}

/// As many as carry a claim: [`crate::analyse::interval::BLOCKS_FOR_A_CLAIM`].
const BLOCKS: u32 = 12;

/// Moments at which the power is cut before a claim; a look, which claims nothing, does without.
pub const CUTS: u32 = 200;

/// Smaller devices hold no file system worth measuring.
const DEVICE_BYTES_AT_LEAST: u64 = 128 << 20;

/// What is slower counts as hanging where data is moved.
const BANDWIDTH_AT_LEAST: u64 = 1 << 20;

/// In between, and as a person reads it.
struct Between {
    name: &'static str,
    least: Duration,
    most: Duration,
    words: &'static str,
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// Nothing to warm up is a wish like any other: a cold scan is measured from its first block.
const WARM_UP: Between = Between {
    name: "`warm_up`",
    least: Duration::ZERO,
    most: WEEK,
    words: "0 s and a week",
};

/// From the beginning of the load; nothing is waited for where it is nothing.
const SETTLE: Between = Between {
    name: "`settle`",
    least: Duration::ZERO,
    most: WEEK,
    words: "0 s and a week",
};

/// Before a claim a warm-up of a window or more may last so many times as long.
const SETTLE_TIMES: u32 = 6;
/// Five rounds of a second.
const WINDOW_AT_LEAST: Duration = Duration::from_secs(5);

/// In less a slow storage acknowledges nothing, and a rate is not known to a hundredth.
const DURATION: Between = Between {
    name: "`duration`",
    least: Duration::from_millis(100),
    most: WEEK,
    words: "100 ms and a week",
};

/// In less an honest step counts as hanging.
const PATIENCE: Between = Between {
    name: "`patience`",
    least: Duration::from_secs(1),
    most: WEEK,
    words: "1 s and a week",
};

impl Experiment {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let raw: RawFile = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let at = |start: usize, message: String| Mistake {
            place: Some(place(text, start)),
            message,
        };
        let database = raw.database.check(text)?;
        let uses_a_database =
            (raw.workload.iter()).any(|written| written.get_ref().needs_database());
        let (contenders, asked) =
            contender::check(raw.contenders, &database, uses_a_database, text)?;
        let Some(first) = contenders.first() else {
            return Err(Mistake {
                place: None,
                message: "`contenders` is empty: name at least one".to_owned(),
            });
        };
        let baseline = match &raw.baseline {
            None => first.clone(),
            Some(name) if contenders.contains(name.get_ref()) => name.get_ref().clone(),
            Some(name) => {
                let near = hint(name.get_ref(), contenders.iter().map(String::as_str));
                let message = format!("the baseline `{}` is no contender{near}", name.get_ref());
                return Err(at(name.span().start, message));
            }
        };
        let blocks = bounded(&raw.blocks, BLOCKS, 1..=1000, text, "`blocks`")?;
        let margin = raw.margin.as_ref().map_or(0.05, |margin| *margin.get_ref());
        if let Some(written) = &raw.margin
            && !(0.0..0.5).contains(&margin)
        {
            let message = "`margin` lies between 0 and 0.5: 0.05 for 0.95 to 1.05".to_owned();
            return Err(at(written.span().start, message));
        }
        let mut workloads: Vec<Workload> = Vec::new();
        for (family, written) in raw.workload.into_iter().enumerate() {
            let start = written.span().start;
            let loads = written
                .into_inner()
                .loads(family)
                .map_err(|message| at(start, message))?;
            for workload in loads {
                if workloads
                    .iter()
                    .any(|other| other.title() == workload.title())
                {
                    let message = format!("the workload `{}` is there twice", workload.title());
                    return Err(at(start, message));
                }
                workloads.push(workload);
            }
        }
        if workloads.is_empty() {
            return Err(Mistake {
                place: None,
                message: "there is no [[workload]]".to_owned(),
            });
        }
        Ok(Self {
            name: raw.name.unwrap_or_else(|| "experiment".to_owned()),
            contenders,
            asked,
            baseline,
            blocks,
            cuts: cuts(&raw.cuts, text)?,
            warm_up: duration(raw.warm_up.as_ref(), 10, &WARM_UP, text)?,
            settle: settle(raw.settle.as_ref(), text)?,
            duration: duration(raw.duration.as_ref(), 60, &DURATION, text)?,
            seed: raw.seed.unwrap_or(1),
            margin,
            patience: duration(raw.patience.as_ref(), 600, &PATIENCE, text)?,
            guest: raw.guest,
            devices: devices(raw.devices, text)?,
            database,
            workloads,
        })
    }
}

impl Experiment {
    /// At how many moments the power of each contender is cut before anything is measured.
    #[must_use]
    pub fn cuts(&self) -> u32 {
        let unasked = if self.blocks < BLOCKS { 0 } else { CUTS };
        self.cuts.unwrap_or(unasked)
    }

    /// Reads the scripts that its loads name; `place` gives the path of a file.
    ///
    /// # Errors
    /// Where one cannot be read, or is none that the lab can run: with its line.
    pub fn read_scripts(&mut self, place: impl Fn(&ScriptFile) -> PathBuf) -> Result<(), String> {
        (self.workloads.iter_mut()).try_for_each(|workload| workload.scripts.read(&place))
    }

    /// What stands behind the name of a contender.
    #[must_use]
    pub fn asked(&self, name: &str) -> Asked {
        (self.asked.get(name).cloned()).unwrap_or_else(|| Asked::plain(name))
    }

    /// The database as one of the contenders has it.
    #[must_use]
    pub fn database_of(&self, name: &str) -> Database {
        self.database.with(&self.asked(name).settings)
    }

    /// Settings of the database in which some contender is asked to differ from the experiment's.
    #[must_use]
    pub fn differing_settings(&self) -> BTreeSet<String> {
        (self.asked.values())
            .flat_map(|asked| asked.settings.keys().cloned())
            .collect()
    }

    /// How the measured time of a load waits for a steady rate; none where it does not.
    #[must_use]
    pub fn settling(&self) -> Option<Settling> {
        let is_claimed = self.blocks >= BLOCKS && self.warm_up >= WINDOW_AT_LEAST;
        let unasked = if is_claimed {
            self.warm_up * SETTLE_TIMES
        } else {
            Duration::ZERO
        };
        let at_most = self.settle.unwrap_or(unasked);
        (!at_most.is_zero()).then(|| Settling::new(self.warm_up, at_most))
    }
}

fn cuts(written: &Option<Spanned<u32>>, text: &str) -> Result<Option<u32>, Mistake> {
    let asked = bounded(written, CUTS, 0..=10_000, text, "`cuts`")?;
    Ok(written.as_ref().map(|_| asked))
}

fn settle(written: Option<&Spanned<String>>, text: &str) -> Result<Option<Duration>, Mistake> {
    let asked = duration(written, 0, &SETTLE, text)?;
    Ok(written.map(|_| asked))
}

fn devices(raw: RawDevices, text: &str) -> Result<Devices, Mistake> {
    let at = |start: usize, message: String| Mistake {
        place: Some(place(text, start)),
        message,
    };
    let names = raw
        .names
        .as_ref()
        .map_or(Vec::new(), |names| names.get_ref().clone());
    if raw.kind == DeviceKind::Block && names.is_empty() {
        return Err(Mistake {
            place: None,
            message: "[devices] of kind `block` needs `names = [\"/dev/...\"]`".to_owned(),
        });
    }
    if let Some(written) = &raw.names
        && raw.kind != DeviceKind::Block
    {
        let message = "`names` is for devices of kind `block`; the lab makes these itself";
        return Err(at(written.span().start, message.to_owned()));
    }
    let size_bytes = size(raw.size.as_ref(), text)?.unwrap_or(1 << 30);
    if let Some(written) = &raw.size
        && size_bytes < DEVICE_BYTES_AT_LEAST
    {
        let message = "a device has at least 128 MiB".to_owned();
        return Err(at(written.span().start, message));
    }
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name)
            && let Some(written) = &raw.names
        {
            let message = format!("`{}` is listed twice", name.display());
            return Err(at(written.span().start, message));
        }
    }
    let bandwidth = size(raw.bandwidth.as_ref(), text)?;
    if let Some(written) = &raw.bandwidth
        && bandwidth.is_some_and(|bytes| bytes < BANDWIDTH_AT_LEAST)
    {
        let message = "`bandwidth` is at least 1 MiB a second; leave it out for no limit";
        return Err(at(written.span().start, message.to_owned()));
    }
    if let Some(written) = &raw.requests
        && *written.get_ref() == 0
    {
        let message = "`requests` is at least 1 a second; leave it out for no limit";
        return Err(at(written.span().start, message.to_owned()));
    }
    let count = if raw.kind == DeviceKind::Block {
        u32::try_from(names.len()).unwrap_or(u32::MAX)
    } else {
        bounded(&raw.count, 4, 1..=64, text, "`count`")?
    };
    Ok(Devices {
        kind: raw.kind,
        count,
        size_bytes,
        directory: raw.directory.unwrap_or_else(|| PathBuf::from("/var/tmp")),
        names,
        bandwidth,
        requests: raw.requests.map(Spanned::into_inner),
    })
}

fn bounded(
    written: &Option<Spanned<u32>>,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
    text: &str,
    what: &str,
) -> Result<u32, Mistake> {
    let Some(written) = written else {
        return Ok(default);
    };
    let value = *written.get_ref();
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Mistake {
        place: Some(place(text, written.span().start)),
        message: format!("{what} lies between {} and {}", range.start(), range.end()),
    })
}

fn size(written: Option<&Spanned<String>>, text: &str) -> Result<Option<u64>, Mistake> {
    written
        .map(|written| {
            parse_size(written.get_ref()).map_err(|message| Mistake {
                place: Some(place(text, written.span().start)),
                message,
            })
        })
        .transpose()
}

fn duration(
    written: Option<&Spanned<String>>,
    default_s: u64,
    between: &Between,
    text: &str,
) -> Result<Duration, Mistake> {
    let Some(written) = written else {
        return Ok(Duration::from_secs(default_s));
    };
    let at = |message: String| Mistake {
        place: Some(place(text, written.span().start)),
        message,
    };
    let found = parse_duration(written.get_ref()).map_err(at)?;
    if (between.least..=between.most).contains(&found) {
        return Ok(found);
    }
    Err(at(format!(
        "{} lies between {}",
        between.name, between.words
    )))
}

/// Line and column, from 1, of a byte of the text.
fn place(text: &str, start: usize) -> (usize, usize) {
    let before = &text[..start.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    (line, column)
}

/// A mistake that the TOML library found, with the nearest names where a name is unknown.
fn syntax(text: &str, error: &toml::de::Error) -> Mistake {
    let mut message = error.message().replace('\n', " ");
    if let Some((unknown, expected)) = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("unknown variant `"))
        .and_then(|rest| rest.split_once('`'))
    {
        let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        message.push_str(&hint(unknown, known));
    }
    Mistake {
        place: error.span().map(|span| place(text, span.start)),
        message,
    }
}

#[cfg(test)]
mod tests;
