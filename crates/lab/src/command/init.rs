//! `init`: seven questions with an answer proposed from what this machine has, or flags instead;
//! then a small file that `run` takes.

mod answers;

use std::fs;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};

use self::answers::{Answers, Machine, words_of};
use crate::experiment::{DatabaseKind, Kind, beside};
use crate::measure::{contender, database, preparation};
use crate::nearness::hint;
use crate::outlet::put;
use crate::say;

/// What `init` takes. What is not given is asked, or proposed where nobody can be asked.
#[derive(Debug, clap::Args)]
pub struct InitArguments {
    /// The file to write
    #[arg(default_value = "experiment.toml")]
    file: PathBuf,
    /// Which load: block, validate, scan, growth, random, tpcb, tpcc, tpch, as3ap or script
    #[arg(long)]
    workload: Option<String>,
    /// Of `script`: files in pgbench's format, separated by commas, each with its weight behind an @
    #[arg(long)]
    files: Option<String>,
    /// Of `script`: the file that makes the tables, or `pgbench` for those of pgbench
    #[arg(long)]
    init: Option<String>,
    /// How much data, such as `1 GiB`
    #[arg(long)]
    size: Option<String>,
    /// Clients at once
    #[arg(long)]
    users: Option<u32>,
    /// Where the data may be when the load begins: cached, storage-bound or cold
    #[arg(long)]
    regime: Option<String>,
    /// Memory of database, storage daemon and page cache together, such as `512 MiB`
    #[arg(long)]
    memory: Option<String>,
    /// What to compare, separated by commas; the first is the baseline. Settings of the database and
    /// options of the storage follow its name: `ext4,ext4 wal_sync_method=open_datasync`
    #[arg(long)]
    contenders: Option<String>,
    /// `loop:N`, `zram:N`, or block devices separated by commas
    #[arg(long)]
    devices: Option<String>,
    /// postgresql, mariadb or sqlite; the first that is installed where it is not given
    #[arg(long)]
    database: Option<String>,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &InitArguments) -> Result<ExitCode> {
    if arguments.file.exists() && !arguments.force {
        bail!(
            "{} is there already; --force writes over it",
            arguments.file.display()
        );
    }
    let answers = asked(arguments)?;
    let (text, mut experiment) = answers.tried().map_err(Error::msg)?;
    let directory = arguments.file.parent().unwrap_or_else(|| Path::new(""));
    experiment
        .read_scripts(|script| beside(directory, script))
        .map_err(Error::msg)
        .context("`run` would not take this")?;
    // What is written can be run: here, where this is who would run it. What stands on a device is
    // asked when it is to be used.
    if rustix::process::geteuid().is_root() {
        preparation::check(&experiment, &experiment.devices.names)
            .context("`run` would not take this")?;
    }
    fs::write(&arguments.file, text)
        .with_context(|| format!("cannot write {}", arguments.file.display()))?;
    say!(
        "wrote {0}; run it: spindle-lab run {0}",
        arguments.file.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Asks one question after the other.
fn asked(arguments: &InitArguments) -> Result<Answers> {
    let mut answers = Answers::new(Machine::look(), database(arguments.database.as_deref())?);
    answers.files.clone_from(&arguments.files);
    answers.init.clone_from(&arguments.init);
    answers.workload = answer(
        "Which load",
        arguments.workload.as_deref(),
        Kind::Tpcb.name(),
        |word| {
            if !Kind::NAMES.contains(&word) {
                return Err(format!("no workload `{word}`{}", hint(word, Kind::NAMES)));
            }
            tried(&answers, |answers| word.clone_into(&mut answers.workload))
        },
    )?;
    let size = answers.size();
    answers.size = Some(answer(
        "How much data",
        arguments.size.as_deref(),
        &size,
        |word| tried(&answers, |answers| answers.size = Some(word.to_owned())),
    )?);
    let users = arguments.users.map(|users| users.to_string());
    if answers.has_users() {
        answers.users = Some(answer(
            "How many users at once",
            users.as_deref(),
            "8",
            |word| tried(&answers, |answers| answers.users = Some(word.to_owned())),
        )?);
    } else if users.is_some() {
        bail!(
            "`--users` means nothing to the workload `{}`",
            answers.workload
        );
    }
    let regime = answers.regime().map_err(Error::msg)?;
    answers.regime = Some(answer(
        "Where may the data be (cached, storage-bound or cold)",
        arguments.regime.as_deref(),
        &regime,
        |word| tried(&answers, |answers| answers.regime = Some(word.to_owned())),
    )?);
    let memory = answers.memory().map_err(Error::msg)?;
    answers.memory = Some(answer(
        "How much memory (of database, storage daemon and page cache together)",
        arguments.memory.as_deref(),
        &memory,
        |word| tried(&answers, |answers| answers.memory = Some(word.to_owned())),
    )?);
    let contenders = answers.contenders();
    answers.contenders = Some(answer(
        "What to compare (the first is the baseline)",
        arguments.contenders.as_deref(),
        &contenders,
        |word| {
            word.split(',')
                .try_for_each(|name| contender::find(words_of(name).0).map(drop))?;
            tried(&answers, |answers| {
                answers.contenders = Some(word.to_owned())
            })
        },
    )?);
    let devices = answers.devices().map_err(Error::msg)?;
    answers.devices = Some(answer(
        "On which devices (loop:N, zram:N, or /dev/...)",
        arguments.devices.as_deref(),
        &devices,
        |word| tried(&answers, |answers| answers.devices = Some(word.to_owned())),
    )?);
    Ok(answers)
}

/// Whether the answers with this change are taken.
fn tried(answers: &Answers, change: impl FnOnce(&mut Answers)) -> Result<(), String> {
    let mut changed = answers.clone();
    change(&mut changed);
    changed.tried().map(drop)
}

/// The one that was named, or the first that is installed.
fn database(named: Option<&str>) -> Result<DatabaseKind> {
    let Some(name) = named else {
        return Ok(installed_database());
    };
    let near = || hint(name, DatabaseKind::ALL.map(DatabaseKind::name));
    DatabaseKind::named(name).with_context(|| format!("no database `{name}`{}", near()))
}

/// The first that is installed; the one that is built in always is.
pub(super) fn installed_database() -> DatabaseKind {
    DatabaseKind::ALL
        .into_iter()
        .find(|kind| database::find(*kind, None).is_ok())
        .unwrap_or(DatabaseKind::Sqlite)
}

/// The flag, or what a person types, or what is proposed.
fn answer(
    question: &str,
    flag: Option<&str>,
    proposed: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<String> {
    if let Some(given) = flag {
        check(given).map_err(Error::msg)?;
        return Ok(given.to_owned());
    }
    if !std::io::stdin().is_terminal() {
        return Ok(proposed.to_owned());
    }
    loop {
        put(format_args!("{question}? [{proposed}] "));
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            bail!("no answer: nothing was written");
        }
        let typed = line.trim();
        let word = if typed.is_empty() { proposed } else { typed };
        match check(word) {
            Ok(()) => return Ok(word.to_owned()),
            Err(message) => say!("{message}"),
        }
    }
}

/// What most people want to know, as far as this machine can run it.
pub(super) fn possible_contenders() -> Vec<String> {
    let wanted = ["ext4", "xfs", "btrfs-raid0-nocow", "spindle-external"];
    let possible: Vec<String> = wanted
        .iter()
        .filter(|name| contender::find(name).is_ok_and(|found| found.lacks().is_none()))
        .map(|name| (*name).to_owned())
        .collect();
    if possible.is_empty() {
        return wanted.map(str::to_owned).to_vec();
    }
    possible
}
