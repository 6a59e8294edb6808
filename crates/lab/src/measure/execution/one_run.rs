//! A run on a contender that stands: what is put on it, driven and checked, and what was counted
//! meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use spindle_testbed::interrupt;

use super::super::companion::{Companions, Lap};
use super::super::contender::{Place, Standing};
use super::super::control_group::{ControlGroup, Version, version};
use super::super::counters::{devices_since, processor_since, total};
use super::super::database::{
    Installation, Purpose, Server, ServerPlan, Settings, Statistics, direct_cache_bytes,
};
use super::super::device::DeviceSet;
use super::super::durability::{self, WhileMeasured, Worked};
use super::super::journal::Made;
use super::super::load::{
    Client, Driven, LoadPlan, Meter, Shape, drive, drive_to_end, is_steady, littles_law,
};
use super::super::preparation::log_bytes;
use super::super::program::as_typed;
use super::super::sampler::{Reading, Sampler, Sources, waits_since};
use super::super::throttle::limit_share;
use super::super::workload::{Load, fio};
use super::{Bench, DATA, LONG, cache, image, layers, note};
use crate::analyse::latency::mean_us;
use crate::experiment::{Companion, Database, Kind, Regime, Workload};
use crate::quantity::as_float;
use crate::record::{
    COUNTED_S, Check, LapRun, Latency, Layer, Measured, ObjectActivity, PlannedRun, SETTLED,
    ScriptActivity,
};

pub(super) struct OneRun<'a> {
    pub(super) bench: &'a Bench,
    pub(super) devices: &'a DeviceSet,
    pub(super) planned: &'a PlannedRun,
    pub(super) asked: &'a Workload,
    /// As this contender has it.
    pub(super) database: &'a Database,
    pub(super) folder: &'a Path,
    pub(super) scratch: &'a Path,
    pub(super) group: &'a Arc<ControlGroup>,
}

/// What was read at both ends of the measured time.
pub(super) struct Ends {
    pub(super) from: Reading,
    pub(super) until: Reading,
    /// What the database read of each table and index in between.
    pub(super) objects: Vec<ObjectActivity>,
    /// What was produced between them, where operations are not what counts.
    pub(super) produced: Option<u64>,
    /// Transactions that wrote and were acknowledged between them for certain, where that is counted.
    pub(super) commits: Option<u64>,
}

impl Ends {
    /// Of work whose parts nobody counts.
    const fn between(from: Reading, until: Reading) -> Self {
        Self {
            from,
            until,
            objects: Vec::new(),
            produced: None,
            commits: None,
        }
    }
}

/// What fio needs to be under way after what settled it.
const RESTART: Duration = Duration::from_secs(1);

/// Puts down how long the load had run before it was measured, and whether it held still then.
fn tell_settled(measured: &mut Measured, is_settled: Option<bool>, warm_up_s: f64) {
    if let Some(is_settled) = is_settled {
        measured.warm_up_s = warm_up_s;
        let fact = f64::from(u8::from(is_settled));
        measured.facts.insert(SETTLED.to_owned(), fact);
    }
}

/// What each of several scripts did.
fn by_script(load: &dyn Load, driven: &Driven) -> Vec<ScriptActivity> {
    (load.kinds().into_iter().enumerate())
        .map(|(kind, name)| {
            let latency = driven.kinds.get(kind).cloned().unwrap_or_default();
            let operations = latency.counts.iter().map(|(_, count)| count).sum();
            ScriptActivity {
                name,
                operations,
                latency,
            }
        })
        .collect()
}

impl OneRun<'_> {
    fn limits(&self, standing: &Standing) -> Result<Vec<Made>> {
        let devices = &self.bench.experiment.devices;
        if devices.bandwidth.is_none() && devices.requests.is_none() {
            return Ok(Vec::new());
        }
        let leaves = &self.devices.leaves;
        let journal = &self.bench.journal;
        let limit = |group: &ControlGroup| {
            group.limit(journal, leaves, devices.bandwidth, devices.requests)
        };
        let mut made = limit(self.group)?;
        if version("io") == Some(Version::Two) {
            // Version 1 holds everybody at once.
            for group in &standing.groups {
                made.extend(limit(group)?);
            }
        }
        Ok(made)
    }

    /// What the place does with single writes that it acknowledges.
    fn probed(&self, standing: &Standing) -> Result<durability::Findings> {
        // Devices of the lab stand for disks wherever their bytes lie, unless something that is no
        // device of the lab's is compared with them.
        let simulated = !self.bench.experiment.contenders.iter().any(|name| {
            let storage = self.bench.experiment.asked(name).storage;
            storage.starts_with("directory:")
        });
        durability::probe(standing, &self.devices.leaves, simulated)
    }

    /// What the database does with commits that it acknowledges.
    fn probe_commits(
        &self,
        findings: &mut durability::Findings,
        server: &dyn Server,
        settings: &Settings,
    ) -> Result<()> {
        // Connections that a person counted are not to be used up.
        let alone = self.database.settings.contains_key("max_connections");
        findings
            .add_commits(server, settings, &self.group.members(), alone)
            .inspect_err(|_| note(self.folder, &server.log_tail()))
    }

    fn sampler(
        &self,
        standing: &mut Standing,
        meter: &Meter,
        statistics: Option<Box<dyn Statistics>>,
    ) -> Result<Sampler> {
        let sources = Sources {
            leaves: self.devices.leaves.clone(),
            group: Arc::clone(self.group),
            meter: meter.clone(),
            servers: standing.servers(),
            statistics,
            iostat: standing.iostat(),
        };
        Sampler::start(sources, self.folder)
    }

    /// A stated number of operations takes what it takes: a scan, all the queries of a suite.
    fn load_length(&self, load: &dyn Load) -> Duration {
        let experiment = &self.bench.experiment;
        let length = self.warm_up_at_most() + experiment.duration;
        if load.operations_each().is_some() {
            length + 6 * LONG
        } else {
            length
        }
    }

    fn warm_up_at_most(&self) -> Duration {
        let experiment = &self.bench.experiment;
        let settling = experiment.settling().map(|settling| settling.at_most);
        experiment.warm_up.max(settling.unwrap_or(Duration::ZERO))
    }

    /// Rounds of fio until its rate holds still: whether it does, and how long that took.
    fn settled(&self, path: &Path) -> Result<Option<(bool, Duration)>> {
        let experiment = &self.bench.experiment;
        let Some(settling) = experiment.settling() else {
            return Ok(None);
        };
        if self.asked.kind == Kind::Validate {
            return Ok(None);
        }
        let began = Instant::now();
        let mut rates = Vec::new();
        loop {
            interrupt::check()?;
            // Each of them goes to other places than the one before.
            let seed = self
                .planned
                .seed
                .wrapping_add((rates.len() as u64 + 1) << 33);
            let job = fio::job(self.asked, path, Duration::ZERO, settling.round, seed)?;
            rates.push(fio::measure(&job, self.group, self.asked, settling.round)?.rate);
            let elapsed = began.elapsed();
            if elapsed >= experiment.warm_up && is_steady(&rates) {
                return Ok(Some((true, elapsed)));
            }
            if elapsed >= settling.at_most.max(experiment.warm_up) {
                return Ok(Some((false, elapsed)));
            }
        }
    }

    pub(super) fn below_database(&self, standing: &mut Standing) -> Result<Measured> {
        let experiment = &self.bench.experiment;
        let watch = &self.bench.watch;
        watch.begin("probing its flushes", 0, Duration::ZERO)?;
        let durability = match self.probed(standing) {
            Ok(findings) => findings.concluded(),
            Err(error) => durability::unseen(&error),
        };
        watch.begin("writing its file", self.asked.size_bytes, Duration::ZERO)?;
        let path = fio::prepare(&standing.place, self.asked.size_bytes, self.group)?;
        if self.asked.regime == Regime::Cached {
            cache::warm(&path, self.group)?;
        } else {
            cache::evict(&path)?;
        }
        let limits = self.limits(standing)?;
        let meter = Meter::default();
        let sampler = self.sampler(standing, &meter, None)?;
        let (warm_up, duration) = if self.asked.kind == Kind::Validate {
            (Duration::ZERO, Duration::from_secs(3600))
        } else {
            (experiment.warm_up, experiment.duration)
        };
        watch.begin(
            "the load",
            self.asked.size_bytes,
            self.warm_up_at_most() + warm_up + duration + LONG / 4,
        )?;
        let settled = self.settled(&path)?;
        // What has settled is warm; fio only starts anew.
        let (is_settled, before, warm_up) = match settled {
            Some((is_settled, before)) => (Some(is_settled), before, warm_up.min(RESTART)),
            None => (None, Duration::ZERO, warm_up),
        };
        let job = fio::job(self.asked, &path, warm_up, duration, self.planned.seed)?;
        note(self.folder, &as_typed(&job));
        // fio warms up by itself; what it does until then does not count here either.
        let (from, reached) = thread::scope(|scope| {
            let mark = scope.spawn(|| {
                thread::sleep(warm_up);
                sampler.read()
            });
            let reached = fio::measure(&job, self.group, self.asked, warm_up + duration);
            (mark.join(), reached)
        });
        let reached = reached?;
        let from = from.map_err(|_| anyhow!("the sampler panicked"))?;
        let until = sampler.read_ended();
        drop(sampler);
        drop(limits);
        let ends = Ends::between(from, until);
        let mut measured = self.measured(&ends, reached.latency.clone());
        tell_settled(&mut measured, is_settled, (before + warm_up).as_secs_f64());
        measured.unit = reached.unit.to_owned();
        measured.rate = reached.rate;
        measured.operations = reached.operations;
        measured.duration_s = reached.duration_s;
        measured.processor.harness_s = reached.harness_s;
        // fio runs in the group of what it asks.
        measured.processor.own_s = measured
            .processor
            .own_s
            .map(|own_s| (own_s - reached.harness_s).max(0.0));
        measured.durability = Some(durability);
        if matches!(standing.place, Place::Directory(_)) {
            let filesystem = layers::filesystem(&ends, fio::is_direct(self.asked));
            measured.layers.insert(0, filesystem);
        }
        measured.layers.insert(
            0,
            Layer {
                name: "fio".to_owned(),
                read_bytes: reached.read_bytes,
                written_bytes: reached.written_bytes,
                reads: as_float(reached.operations),
                writes: 0.0,
            },
        );
        Ok(measured)
    }

    pub(super) fn in_database(
        &self,
        standing: &mut Standing,
        load: &dyn Load,
        image: &Path,
        laps: Vec<Lap>,
    ) -> Result<Measured> {
        let Place::Directory(directory) = standing.place.clone() else {
            bail!("a database needs a directory");
        };
        let watch = &self.bench.watch;
        let data_bytes = self.asked.size_bytes;
        watch.begin("probing its flushes", 0, Duration::ZERO)?;
        let mut durability = self.probed(standing)?;
        let data = directory.join(DATA);
        watch.begin("restoring the data", 4 * data_bytes, Duration::ZERO)?;
        image::restore(image, &data)?;
        cache::evict(&data)?;
        if let Some(below) = &standing.below {
            // What serves it over the network holds pages, too.
            cache::evict(below)?;
        }
        let installation = self
            .bench
            .installation
            .as_ref()
            .context("the database was looked for")?;
        watch.begin("starting the database", 4 * data_bytes, Duration::ZERO)?;
        let server = self.started(installation.as_ref(), &data)?;
        let server_block_bytes = as_float(server.block_bytes());
        let settings = self.settings(server.as_ref());
        watch.begin("probing its commits", 0, Duration::ZERO)?;
        self.probe_commits(&mut durability, server.as_ref(), &settings)?;
        let limits = self.limits(standing)?;
        watch.begin("the load", data_bytes, self.load_length(load))?;
        let flushed_before = durability.before_the_load();
        let worked = self.work(standing, load, server.as_ref(), laps);
        if worked.is_err() {
            note(self.folder, &server.log_tail());
        }
        let (driven, ends, beside) = worked?;
        durability.add_load(
            &flushed_before,
            &self.worked(standing, load, &driven, &ends),
        );
        watch.begin("checking the work", 4 * data_bytes, Duration::ZERO)?;
        durability.add_uncounted(load.uncounted(server.as_ref())?);
        let mut checks = load.checks(server.as_ref(), &driven)?;
        checks.extend(self.littles_law(load, &driven));
        checks.push(self.same_settings(server.as_ref(), &settings));
        let facts = load.facts(server.as_ref())?;
        drop(limits);
        watch.begin("stopping the database", data_bytes, Duration::ZERO)?;
        server.stop()?;
        let mut measured = self.measured(&ends, driven.latency.clone());
        tell_settled(&mut measured, driven.is_settled, driven.warm_up_s);
        self.set_rate(&mut measured, load, &driven, &ends)?;
        measured.operations = driven.operations;
        measured.duration_s = driven.duration_s;
        // Where the database runs on the harness's own threads, all of it is the database's. Else it
        // is the clients' own, or all of the lab with its sampler where that is more.
        measured.processor.harness_s = if installation.is_embedded() {
            0.0
        } else {
            measured.processor.harness_s.max(driven.harness_s)
        };
        measured.unserved = driven.unserved;
        measured.checks = checks;
        measured.answers = load.answers();
        measured.settings = settings;
        measured.scripts = by_script(load, &driven);
        measured.beside = beside;
        measured.durability = Some(durability.concluded());
        measured.facts.extend(facts);
        if let Some(rate) = self.asked.rate {
            measured.facts.insert("arrivals_per_s".to_owned(), rate);
        }
        measured.waits = Some(waits_since(&ends.until.waits, &ends.from.waits));
        let is_direct = direct_cache_bytes(self.database).is_some();
        measured
            .layers
            .insert(0, layers::filesystem(&ends, is_direct));
        measured
            .layers
            .insert(0, layers::database(&ends, server_block_bytes));
        Ok(measured)
    }

    /// What is compared of it.
    fn set_rate(
        &self,
        measured: &mut Measured,
        load: &dyn Load,
        driven: &Driven,
        ends: &Ends,
    ) -> Result<()> {
        if self.asked.rate.is_some() {
            // An open load gets the rate that it arrives at; what differs is how long each waits.
            let mean_us = mean_us(&driven.latency).context("there were operations")?;
            measured.unit = "1/s (1 / mean latency)".to_owned();
            measured.rate = 1e6 / mean_us.max(1.0);
        } else {
            measured.unit = load.unit().0.to_owned();
            measured.rate = match ends.produced {
                Some(count) => as_float(count) / driven.duration_s * load.unit().1,
                None => load.rate(driven),
            };
        }
        Ok(())
    }

    /// What the load acknowledged, and what the lab's devices did in the measured time.
    fn worked(&self, standing: &Standing, load: &dyn Load, driven: &Driven, ends: &Ends) -> Worked {
        let disks = total(&devices_since(&ends.until.devices, &ends.from.devices));
        let are_ours = standing.layout.devices > 0;
        Worked {
            commits: load.commits(driven.acknowledged),
            writers: load.writers(),
            copies_away: u32::from(self.asked.beside == Some(Companion::Resync)),
            while_measured: (ends.commits.filter(|_| are_ours)).map(|commits| WhileMeasured {
                commits,
                flushes: disks.flushes,
                writes: disks.writes,
            }),
        }
    }

    /// What the database was started with, and in the server's own words what some contender or the
    /// file sets, and what decides on durability: it takes more spellings than anybody knows.
    fn settings(&self, server: &dyn Server) -> Settings {
        let mut settings = server.settings().clone();
        settings.extend(self.told(server));
        settings
    }

    fn told(&self, server: &dyn Server) -> Settings {
        let mut asked = self.bench.experiment.differing_settings();
        asked.extend(self.database.settings.keys().cloned());
        asked.extend(durability::decisive(server.kind()).map(str::to_owned));
        (asked.into_iter())
            .filter_map(|name| server.told(&name).map(|value| (name, value)))
            .collect()
    }

    /// That the load left the settings as they were told before it: under others, figures and class
    /// would be those of a database that nobody asked for.
    fn same_settings(&self, server: &dyn Server, before: &Settings) -> Check {
        let changed: Vec<String> = (self.told(server).iter())
            .filter_map(|(name, now)| {
                let was = before.get(name)?;
                (was != now).then(|| format!("{name} was {was} and is {now}"))
            })
            .collect();
        Check {
            name: "the database has the settings that it had before the load".to_owned(),
            passed: changed.is_empty(),
            detail: if changed.is_empty() {
                "none of those that are asked for has changed".to_owned()
            } else {
                changed.join(", ")
            },
        }
    }

    /// The server over restored data, with what the regime wants in its caches.
    fn started(&self, installation: &dyn Installation, data: &Path) -> Result<Box<dyn Server>> {
        let asked = self.database;
        let is_cached = self.asked.regime == Regime::Cached;
        let is_direct = direct_cache_bytes(asked).is_some();
        if is_cached && !is_direct {
            cache::warm(data, self.group)?;
        }
        let runtime = self.scratch.join("database");
        fs::create_dir(&runtime)?;
        let server = installation.start(&ServerPlan {
            data,
            runtime: &runtime,
            purpose: Purpose::Measure,
            settings: &asked.settings,
            memory_bytes: asked.memory_bytes,
            log_bytes: log_bytes(self.asked),
            users: self.asked.users,
            group: self.group,
            journal: &self.bench.journal,
        })?;
        let settings: Vec<String> = server
            .settings()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        note(
            self.folder,
            &format!("{}: {}", server.kind(), settings.join(" ")),
        );
        if is_cached {
            server.warm()?;
        }
        Ok(server)
    }

    fn work(
        &self,
        standing: &mut Standing,
        load: &dyn Load,
        server: &dyn Server,
        laps: Vec<Lap>,
    ) -> Result<(Driven, Ends, Vec<LapRun>)> {
        let meter = Meter::default();
        let clients = load.clients(server, self.planned.seed)?;
        let statistics = server.statistics()?;
        let sampler = self.sampler(standing, &meter, Some(statistics))?;
        let mut objects = server.statistics()?;
        let before = objects.objects();
        let (driven, mut ends, beside) = if let Some(operations_each) = load.operations_each() {
            let from = sampler.read();
            let driven = drive_to_end(clients, operations_each, self.planned.seed, &meter)?;
            let until = sampler.read_ended();
            (driven, Ends::between(from, until), Vec::new())
        } else {
            self.many_operations(load, clients, &sampler, &meter, laps)?
        };
        // With the warm-up: tables and indexes are asked for once, not at the ends of the measured
        // time, in which nothing else should happen.
        let block_bytes = as_float(server.block_bytes());
        ends.objects = layers::objects(&before, &objects.objects(), block_bytes);
        Ok((driven, ends, beside))
    }

    fn many_operations(
        &self,
        load: &dyn Load,
        clients: Vec<Box<dyn Client>>,
        sampler: &Sampler,
        meter: &Meter,
        laps: Vec<Lap>,
    ) -> Result<(Driven, Ends, Vec<LapRun>)> {
        let experiment = &self.bench.experiment;
        let plan = LoadPlan {
            shape: match self.asked.rate {
                Some(rate) => Shape::Open { rate },
                None => Shape::Closed {
                    think_time: self.asked.think_time,
                },
            },
            warm_up: experiment.warm_up,
            settling: experiment.settling(),
            duration: experiment.duration,
            seed: self.planned.seed,
        };
        let (mut from, mut until) = (None, None);
        let mut laps = Some(laps).filter(|laps| !laps.is_empty());
        let companions = RefCell::new(None);
        let committed = || load.commits(meter.operations());
        // Within the readings: no commit is counted of which the devices' flush may lie outside.
        let driven = drive(
            clients,
            &plan,
            meter,
            || {
                from = Some((sampler.read(), load.produced(), committed()));
                let begun = laps.take().map(|laps| Companions::begin(laps, self.group));
                *companions.borrow_mut() = begun;
            },
            || {
                let commits = committed();
                until = Some((sampler.read(), load.produced(), commits));
                if let Some(Ok(companions)) = &*companions.borrow() {
                    companions.stop();
                }
            },
        )?;
        let beside = match companions.take() {
            Some(companions) => companions?.end()?,
            None => Vec::new(),
        };
        ensure!(
            driven.operations > 0,
            "nothing was acknowledged in the measured time"
        );
        let (from, produced_before, commits_before) = from.context("the measured time began")?;
        let (until, produced, commits) = until.context("the measured time ended")?;
        let since = |after: Option<u64>, before: Option<u64>| {
            (after.zip(before)).map(|(after, before)| after.saturating_sub(before))
        };
        let ends = Ends {
            produced: since(produced, produced_before),
            commits: since(commits, commits_before),
            ..Ends::between(from, until)
        };
        Ok((driven, ends, beside))
    }

    /// What every run has in common; the rest is the caller's to fill in.
    fn measured(&self, ends: &Ends, latency: Latency) -> Measured {
        let mut devices = devices_since(&ends.until.devices, &ends.from.devices);
        let limited = &self.bench.experiment.devices;
        for (index, device) in devices.iter_mut().enumerate() {
            let served = |reading: &Reading| reading.served.get(index).copied().flatten();
            let ends_of_it = (served(&ends.until), served(&ends.from));
            let elapsed_s = ends.until.at_s - ends.from.at_s;
            device.limit_share = limit_share(ends_of_it, device, limited, elapsed_s);
        }
        let disks = total(&devices);
        let mut facts: BTreeMap<String, f64> = [
            ("device_flushes", disks.flushes),
            (
                "storage_daemon_s",
                ends.until.servers_s - ends.from.servers_s,
            ),
            (
                "database_processor_s",
                ends.until.members_s - ends.from.members_s,
            ),
            (COUNTED_S, ends.until.at_s - ends.from.at_s),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let processor = processor_since(&ends.until.processor, &ends.from.processor);
        if let Some(seconds) = processor.kernel_s {
            facts.insert("kernel_threads_s".to_owned(), seconds);
        }
        for (name, value) in &ends.until.database {
            let grown = value - ends.from.database(name);
            // A server that did not answer at one end leaves a gap, never a number.
            if grown.is_finite() {
                facts.insert((*name).to_owned(), grown);
            }
        }
        Measured {
            unit: String::new(),
            rate: 0.0,
            operations: 0,
            duration_s: 0.0,
            warm_up_s: if self.asked.is_measured_to_its_end() {
                0.0
            } else {
                self.bench.experiment.warm_up.as_secs_f64()
            },
            latency,
            processor,
            layers: vec![Layer {
                name: "devices".to_owned(),
                read_bytes: disks.read_bytes,
                written_bytes: disks.written_bytes,
                reads: disks.reads,
                writes: disks.writes,
            }],
            checks: Vec::new(),
            durability: None,
            unserved: 0,
            settings: BTreeMap::new(),
            scripts: Vec::new(),
            beside: Vec::new(),
            answers: BTreeMap::new(),
            facts,
            devices,
            waits: None,
            objects: layers::busiest(ends),
        }
    }

    /// Clients = rate x time each operation takes, within 2 %, for a closed load.
    fn littles_law(&self, load: &dyn Load, driven: &Driven) -> Option<Check> {
        if self.asked.rate.is_some() || load.operations_each().is_some() {
            return None;
        }
        let pause_s = load
            .mean_pause()
            .unwrap_or(self.asked.think_time)
            .as_secs_f64();
        // Growth has one client, whatever the experiment says of users.
        let clients = match self.asked.kind {
            Kind::Growth => 1.0,
            _ => f64::from(self.asked.users),
        };
        littles_law(driven, clients, pause_s)
    }
}
