//! `init`: five questions with an answer proposed from what this machine has, or flags instead; then
//! a small file.

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::experiment::{DatabaseKind, Experiment, Kind};
use crate::measure::contender;
use crate::nearness::hint;
use crate::quantity::parse_size;

/// What `init` takes. What is not given is asked, or proposed where nobody can be asked.
#[derive(Debug, clap::Args)]
pub struct InitArguments {
    /// The file to write
    #[arg(default_value = "experiment.toml")]
    file: PathBuf,
    /// Which load: block, validate, scan, growth, random, tpcb, tpcc, tpch or as3ap
    #[arg(long)]
    workload: Option<String>,
    /// How much data, such as `1 GiB`
    #[arg(long)]
    size: Option<String>,
    /// Clients at once
    #[arg(long)]
    users: Option<u32>,
    /// What to compare, separated by commas; the first is the baseline
    #[arg(long)]
    contenders: Option<String>,
    /// `loop:N`, `zram:N`, or block devices separated by commas
    #[arg(long)]
    devices: Option<String>,
    /// postgresql, mariadb or sqlite
    #[arg(long, default_value = "postgresql")]
    database: String,
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
    let workload = answer(
        "Which load",
        arguments.workload.as_deref(),
        "tpcb",
        |word| {
            if Kind::NAMES.contains(&word) {
                return Ok(());
            }
            Err(format!("no workload `{word}`{}", hint(word, Kind::NAMES)))
        },
    )?;
    let size = answer(
        "How much data",
        arguments.size.as_deref(),
        "256 MiB",
        |text| parse_size(text).map(drop),
    )?;
    let users = arguments.users.map(|users| users.to_string());
    let users = answer("How many users at once", users.as_deref(), "8", |text| {
        text.parse::<u32>()
            .map(drop)
            .map_err(|_| format!("`{text}` is no number"))
    })?;
    let proposed = possible_contenders().join(",");
    let contenders = answer(
        "What to compare (the first is the baseline)",
        arguments.contenders.as_deref(),
        &proposed,
        |names| {
            names
                .split(',')
                .try_for_each(|name| contender::find(name.trim()).map(drop))
        },
    )?;
    let devices = answer(
        "On which devices (loop:N, zram:N, or /dev/...)",
        arguments.devices.as_deref(),
        "loop:4",
        |text| device_lines(text, 1).map(drop),
    )?;
    let Some(database) = DatabaseKind::named(&arguments.database) else {
        let name = &arguments.database;
        let near = hint(name, DatabaseKind::ALL.map(DatabaseKind::name));
        bail!("no database `{name}`{near}");
    };
    let text = file_text(database, &workload, &size, &users, &contenders, &devices)?;
    // What is written can be run: the reader has the last word.
    Experiment::parse(&text)
        .map_err(|mistake| anyhow::anyhow!("these answers do not go together: {mistake}"))?;
    fs::write(&arguments.file, text)
        .with_context(|| format!("cannot write {}", arguments.file.display()))?;
    println!(
        "wrote {0}; run it: spindle-lab run {0}",
        arguments.file.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The flag, or what a person types, or what is proposed.
fn answer(
    question: &str,
    flag: Option<&str>,
    proposed: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<String> {
    if let Some(given) = flag {
        check(given).map_err(anyhow::Error::msg)?;
        return Ok(given.to_owned());
    }
    if !std::io::stdin().is_terminal() {
        return Ok(proposed.to_owned());
    }
    loop {
        print!("{question}? [{proposed}] ");
        std::io::stdout().flush()?;
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            bail!("no answer: nothing was written");
        }
        let typed = line.trim();
        let word = if typed.is_empty() { proposed } else { typed };
        match check(word) {
            Ok(()) => return Ok(word.to_owned()),
            Err(message) => println!("{message}"),
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

fn device_lines(text: &str, size_bytes: u64) -> Result<String, String> {
    if let Some((kind, count)) = text.split_once(':')
        && ["loop", "zram"].contains(&kind)
    {
        let count: u32 = count
            .parse()
            .map_err(|_| format!("`{count}` is no number of devices; write `{kind}:4`"))?;
        let mib = size_bytes.div_ceil(1 << 20);
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

fn file_text(
    database: DatabaseKind,
    workload: &str,
    size: &str,
    users: &str,
    contenders: &str,
    devices: &str,
) -> Result<String> {
    let names: Vec<&str> = contenders.split(',').map(str::trim).collect();
    let data = parse_size(size).map_err(anyhow::Error::msg)?;
    // Data, its growth and its log on one device.
    let device = (data * 5 / 2 + (256 << 20)).max(512 << 20);
    let devices = device_lines(devices, device).map_err(anyhow::Error::msg)?;
    let users_line = if ["block", "random", "tpcb", "tpcc"].contains(&workload) {
        format!("users = {users}\n")
    } else {
        String::new()
    };
    // MariaDB caches in its own quarter of the memory only.
    let memory = match database {
        DatabaseKind::Mariadb => (5 * data).max(512 << 20),
        DatabaseKind::Postgresql | DatabaseKind::Sqlite => 512 << 20,
    } >> 20;
    let kind = database.name();
    Ok(format!(
        "# What is compared; the first is the baseline. `spindle-lab doctor` lists all there are.\n\
         contenders = {names:?}\n\
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
         memory = \"{memory} MiB\"\n\
         \n\
         [[workload]]\n\
         kind = \"{workload}\"\n\
         size = \"{size}\"\n\
         {users_line}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_gives_a_file_that_can_be_read() {
        for workload in Kind::NAMES {
            for devices in ["loop:4", "zram:2", "/dev/sdx,/dev/sdy"] {
                let kind = DatabaseKind::Mariadb;
                let text = file_text(kind, workload, "1 GiB", "8", "ext4, xfs", devices).unwrap();
                let experiment = Experiment::parse(&text).unwrap();
                assert_eq!(experiment.database.memory_bytes, Some(5 << 30));
                assert_eq!(experiment.workloads[0].kind.name(), workload);
                assert_eq!(experiment.contenders, ["ext4", "xfs"]);
                assert_eq!(experiment.blocks, 12, "as many as a claim needs");
            }
        }
        assert!(
            device_lines("disk7", 1)
                .unwrap_err()
                .contains("is no device")
        );
        assert!(device_lines("loop:many", 1).is_err());
    }
}
