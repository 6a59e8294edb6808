//! What was answered so far, what is proposed for the rest, and the file that comes of it.
//!
//! Each answer is tried at once: the file that it would give, with proposals for what is not
//! answered, goes through the checks of `run`. So no answer is taken that `run` refuses later.

use std::path::Path;

use crate::experiment::{DatabaseKind, Experiment, Kind, Regime, Workload};
use crate::measure::contender;
use crate::measure::database::memory_bytes_at_least;
use crate::measure::preparation::{
    TIMES_MEMORY, check_agreement, machine_memory_bytes, needed_bytes,
};
use crate::quantity::parse_size;

const MIB: u64 = 1 << 20;

/// What proposals depend on.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Of all memory.
    pub memory_bytes: u64,
    /// Free where loop devices are made.
    pub room_bytes: u64,
    /// What is worth comparing and runs here.
    pub contenders: Vec<String>,
}

impl Machine {
    /// This one.
    pub(super) fn look() -> Self {
        let room = rustix::fs::statvfs(Path::new("/var/tmp"));
        Self {
            memory_bytes: machine_memory_bytes().unwrap_or(1 << 30),
            room_bytes: room.map_or(0, |room| room.f_bavail * room.f_frsize),
            contenders: super::possible_contenders(),
        }
    }
}

/// What was answered; what was not is proposed.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    pub machine: Machine,
    pub database: DatabaseKind,
    pub workload: String,
    /// Of scripts.
    pub files: Option<String>,
    pub init: Option<String>,
    pub size: Option<String>,
    pub users: Option<String>,
    pub regime: Option<String>,
    pub memory: Option<String>,
    pub contenders: Option<String>,
    pub devices: Option<String>,
}

impl Answers {
    pub(super) fn new(machine: Machine, database: DatabaseKind) -> Self {
        Self {
            machine,
            database,
            workload: Kind::Tpcb.name().to_owned(),
            files: None,
            init: None,
            size: None,
            users: None,
            regime: None,
            memory: None,
            contenders: None,
            devices: None,
        }
    }

    /// Whether the number of users means something to the load as it will be written.
    pub(super) fn has_users(&self) -> bool {
        ["block", "random", "tpcb", "tpcc", "script"].contains(&self.workload.as_str())
    }

    pub(super) fn size(&self) -> String {
        self.size.clone().unwrap_or_else(|| "256 MiB".to_owned())
    }

    pub(super) fn users(&self) -> String {
        self.users.clone().unwrap_or_else(|| "8".to_owned())
    }

    pub(super) fn contenders(&self) -> String {
        self.contenders
            .clone()
            .unwrap_or_else(|| self.machine.contenders.join(","))
    }

    fn names(&self) -> Vec<String> {
        let names = self.contenders();
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect()
    }

    /// The load as far as it is known: without a regime it has the one that it has by itself.
    fn load(&self, regime: Option<&str>) -> Result<Workload, String> {
        let text = format!(
            "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n{}",
            self.workload_lines(regime)
        );
        let experiment = Experiment::parse(&text).map_err(|mistake| mistake.message)?;
        experiment
            .workloads
            .into_iter()
            .next()
            .ok_or_else(|| "there is no load".to_owned())
    }

    /// Cached where the data fits into half of the machine's memory with what caches it, unless the
    /// load is one that reads what nobody has read before.
    pub(super) fn regime(&self) -> Result<String, String> {
        if let Some(regime) = &self.regime {
            return Ok(regime.clone());
        }
        let load = self.load(None)?;
        if load.regime != Regime::Cached || load.kind == Kind::Growth {
            return Ok(load.regime.name().to_owned());
        }
        let fits = self
            .caching_memory_bytes(&load)
            .is_some_and(|memory| memory <= self.machine.memory_bytes / 2);
        let regime = if fits {
            Regime::Cached
        } else if load.size_bytes / TIMES_MEMORY >= memory_bytes_at_least(self.database) {
            Regime::StorageBound
        } else {
            Regime::Cold
        };
        Ok(regime.name().to_owned())
    }

    /// What it takes to cache the data of a load; none where no memory does.
    fn caching_memory_bytes(&self, load: &Workload) -> Option<u64> {
        let data = load.size_bytes;
        let needed = match self.database {
            // It caches in its own quarter of the memory only, which grows up to 8 GiB.
            DatabaseKind::Mariadb => (data <= 8 << 30).then_some(5 * data)?,
            DatabaseKind::Postgresql | DatabaseKind::Sqlite => 2 * data,
        };
        Some(needed.max(512 * MIB))
    }

    /// As much as the regime wants.
    pub(super) fn memory(&self) -> Result<String, String> {
        if let Some(memory) = &self.memory {
            return Ok(memory.clone());
        }
        let regime = self.regime()?;
        let load = self.load(Some(&regime))?;
        let least = memory_bytes_at_least(self.database);
        let bytes = match load.regime {
            Regime::StorageBound => (load.size_bytes / TIMES_MEMORY).clamp(least, 1 << 30),
            Regime::Cached if load.kind != Kind::Growth => {
                self.caching_memory_bytes(&load).unwrap_or(512 * MIB)
            }
            Regime::Cached | Regime::Cold => 512 * MIB,
        };
        Ok(format!("{} MiB", bytes / MIB))
    }

    /// Of each device: the data, its growth and its log, and what the contenders want.
    fn device_bytes(&self) -> Result<u64, String> {
        let needed = needed_bytes(&self.load(Some(&self.regime()?))?);
        let wanted = self
            .names()
            .iter()
            .filter_map(|name| {
                let storage = contender::find(words_of(name).0).ok()?;
                Some(storage.device_bytes_at_least())
            })
            .max()
            .unwrap_or(0);
        let bytes = (needed + needed / 4).max(wanted).max(512 * MIB);
        Ok(bytes.div_ceil(MIB) * MIB)
    }

    /// As many as there is room for, up to four.
    pub(super) fn devices(&self) -> Result<String, String> {
        if let Some(devices) = &self.devices {
            return Ok(devices.clone());
        }
        let each = self.device_bytes()?;
        let count = [4, 2, 1]
            .into_iter()
            .find(|count| count * (each + each / 16) < self.machine.room_bytes)
            .unwrap_or(1);
        Ok(format!("loop:{count}"))
    }

    fn workload_lines(&self, regime: Option<&str>) -> String {
        let mut text = format!(
            "[[workload]]\nkind = {:?}\nsize = {:?}\n",
            self.workload,
            self.size()
        );
        if let Some(files) = &self.files {
            let files: Vec<&str> = files.split(',').map(str::trim).collect();
            text.push_str(&format!("files = {files:?}\n"));
        }
        if let Some(init) = &self.init {
            text.push_str(&format!("init = {init:?}\n"));
        }
        if self.has_users() {
            text.push_str(&format!("users = {}\n", self.users()));
        }
        if let Some(regime) = regime {
            text.push_str(&format!(
                "# cached, storage-bound (five times `memory`) or cold\nregime = {regime:?}\n"
            ));
        }
        text
    }

    /// The file, if `run` takes it as far as that shows without the machine.
    ///
    /// # Errors
    /// What does not go together, in a line.
    pub(super) fn tried(&self) -> Result<(String, Experiment), String> {
        if self.has_users() && self.users().parse::<u32>().is_err() {
            return Err(format!("`{}` is not a number of users", self.users()));
        }
        let text = self.text()?;
        let experiment = Experiment::parse(&text).map_err(|mistake| mistake.message)?;
        check_agreement(&experiment).map_err(|error| format!("{error:#}"))?;
        Ok((text, experiment))
    }

    fn text(&self) -> Result<String, String> {
        let names: Vec<String> = self.names().iter().map(|name| written(name)).collect();
        let names = names.join(", ");
        let devices = device_lines(&self.devices()?, self.device_bytes()?)?;
        let memory = self.memory()?;
        parse_size(&memory)?;
        let kind = self.database.name();
        Ok(format!(
            "# What is compared; the first is the baseline. `spindle-lab doctor` lists all there are.\n\
             # One that differs in settings: {{ storage = \"ext4\", settings = {{ wal_sync_method = \"open_datasync\" }} }}\n\
             contenders = [{names}]\n\
             # Each block runs every contender once; 12 carry a claim, 5 are a look that claims nothing.\n\
             blocks = 12\n\
             warm_up = \"10 s\"\n\
             duration = \"60 s\"\n\
             \n\
             [devices]\n\
             {devices}\
             # A device as a slow disk: bandwidth = \"60 MiB\"\n\
             \n\
             [database]\n\
             # postgresql, mariadb or sqlite; another installation by `directory`.\n\
             kind = \"{kind}\"\n\
             # Of database, storage daemon and page cache together.\n\
             memory = {memory:?}\n\
             \n\
             {}",
            self.workload_lines(Some(&self.regime()?))
        ))
    }
}

/// A contender as `init` takes it: a storage, then what it is asked to have, `key=value` each.
pub(super) fn words_of(text: &str) -> (&str, Vec<(&str, &str)>) {
    let mut storage = text.trim();
    let mut pairs = Vec::new();
    // From its end: the path of a directory may have blanks of its own.
    while let Some((rest, last)) = storage.rsplit_once(char::is_whitespace)
        && let Some(pair) = last.split_once('=')
    {
        pairs.insert(0, pair);
        storage = rest.trim_end();
    }
    (storage, pairs)
}

/// The same as it stands in the file: an option where its storage has one of that name, else a setting.
fn written(text: &str) -> String {
    let (storage, pairs) = words_of(text);
    if pairs.is_empty() {
        return format!("{storage:?}");
    }
    let choices = contender::find(storage).map_or(&[][..], |found| found.choices());
    let is_option = |name: &str| choices.iter().any(|choice| choice.name == name);
    let table = |name: &str, wants_options: bool| {
        let own: Vec<String> = (pairs.iter())
            .filter(|(key, _)| is_option(key) == wants_options)
            .map(|(key, value)| format!("{key:?} = {value:?}"))
            .collect();
        (!own.is_empty()).then(|| format!("{name} = {{ {} }}", own.join(", ")))
    };
    let mut parts = vec![format!("storage = {storage:?}")];
    parts.extend(table("settings", false));
    parts.extend(table("options", true));
    format!("{{ {} }}", parts.join(", "))
}

fn device_lines(text: &str, size_bytes: u64) -> Result<String, String> {
    if let Some((kind, count)) = text.split_once(':')
        && ["loop", "zram"].contains(&kind)
    {
        let count: u32 = count
            .parse()
            .map_err(|_| format!("`{count}` is no number of devices; write `{kind}:4`"))?;
        let mib = size_bytes.div_ceil(MIB);
        return Ok(format!(
            "kind = \"{kind}\"\ncount = {count}\nsize = \"{mib} MiB\"\n"
        ));
    }
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    if let Some(stray) = names.iter().find(|name| !name.starts_with("/dev/")) {
        return Err(format!(
            "`{stray}` is no device; write `loop:4`, `zram:4` or /dev/..."
        ));
    }
    Ok(format!("kind = \"block\"\nnames = {names:?}\n"))
}

#[cfg(test)]
mod tests;
