//! A database that is already there, copied: `pg_basebackup` takes it while it serves, and nothing
//! that a copy of it does reaches the original or whoever it works with.
//!
//! A copy has the original's files, and with them what it was told to do: archive its log, fetch
//! from publishers, run jobs. All of that is off in the copy, or it would write over the archive of
//! the original and take what was meant for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::{Original, Settings};
use super::Installation;
use crate::experiment::CopyOf;
use crate::measure::contender::Place;
use crate::measure::durability::mounted;
use crate::measure::program::{as_typed, complained, find, run_within};
use crate::quantity::{as_float, show_size};

/// A large one over a network.
const COPY_AT_MOST: Duration = Duration::from_secs(24 * 3600);
const ASK_AT_MOST: Duration = Duration::from_secs(60);

/// What the copy must not do, whatever the original was told.
const QUIET: [(&str, &str); 9] = [
    ("archive_command", ""),
    ("archive_mode", "off"),
    ("logging_collector", "off"),
    ("max_logical_replication_workers", "0"),
    ("primary_conninfo", ""),
    ("restore_command", ""),
    // Jobs of its own (pg_cron) come with these.
    ("shared_preload_libraries", ""),
    ("ssl", "off"),
    ("synchronous_standby_names", ""),
];

/// What makes a copy of a standby wait for its primary.
const SIGNALS: [&str; 2] = ["standby.signal", "recovery.signal"];

/// Of its own, in place of the original's, which may ask for passwords and certificates.
const ENTRY_FILE: &str = "spindle-lab-hba.conf";
const ENTRY: &str = "local all all trust\n";

/// Settings of a copy beyond the lab's own; `data` is where it lies.
pub(super) fn settings(data: &Path) -> Settings {
    let quiet = QUIET.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let files = [
        ("hba_file", data.join(ENTRY_FILE)),
        ("config_file", data.join("postgresql.conf")),
    ];
    let files = files.map(|(name, path)| (name.to_owned(), path.display().to_string()));
    quiet.into_iter().chain(files).collect()
}

/// Copies the original into `data`, which is made.
pub(super) fn take(installation: &Installation, original: &CopyOf, data: &Path) -> Result<()> {
    let mut backup = client(installation, "pg_basebackup")?;
    backup.arg("--dbname").arg(&original.connection);
    backup.arg("--pgdata").arg(data);
    backup.args([
        "--wal-method",
        "stream",
        "--checkpoint",
        "fast",
        "--no-sync",
    ]);
    // It asks nobody: who is not let in without is told.
    backup.arg("--no-password");
    said(&mut backup, COPY_AT_MOST)?;
    // The server takes no other's eyes.
    fs::set_permissions(data, fs::Permissions::from_mode(0o700))?;
    for name in SIGNALS {
        let path = data.join(name);
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    // Debian keeps the original's elsewhere.
    for (name, text) in [("postgresql.conf", ""), (ENTRY_FILE, ENTRY)] {
        fs::write(data.join(name), text)?;
        installation.account.give(&data.join(name))?;
    }
    Ok(())
}

/// Asks the original what it is.
pub(super) fn look(installation: &Installation, original: &CopyOf) -> Result<Original> {
    const QUESTION: &str = "SELECT current_setting('server_version_num')::int / 10000, \
         (SELECT sum(pg_database_size(oid))::int8 FROM pg_database), \
         (SELECT count(*) FROM pg_tablespace) - 2, current_setting('data_directory')";
    let mut ask = client(installation, "psql")?;
    ask.args([
        "--no-psqlrc",
        "--no-password",
        "--tuples-only",
        "--no-align",
    ]);
    ask.args(["--field-separator", "\t", "--command", QUESTION]);
    ask.arg("--dbname").arg(&original.connection);
    let answer = said(&mut ask, ASK_AT_MOST)?;
    let fields: Vec<&str> = answer.trim_end().splitn(4, '\t').collect();
    let [version, bytes, tablespaces, directory] = fields.as_slice() else {
        bail!("the database of `copy_of` answered `{}`", answer.trim());
    };
    ensure!(
        *tablespaces == "0",
        "the database of `copy_of` has {tablespaces} tablespaces of its own, which lie elsewhere and cannot be put on a contender"
    );
    let own = installation.major()?;
    ensure!(
        *version == own,
        "the database of `copy_of` is PostgreSQL {version}, and the lab would run its copy by version {own}: give `directory` of an installation of version {version}"
    );
    let size_bytes: u64 = bytes.parse().context("sizes are numbers")?;
    Ok(Original {
        size_bytes,
        described: format!(
            "{}, {}, in {directory}{}",
            original.database,
            show_size(as_float(size_bytes)),
            lies_on(&PathBuf::from(directory))
        ),
    })
}

/// What its directory lies on, where that is on this machine and can be seen.
fn lies_on(directory: &Path) -> String {
    let is_there = directory.join("PG_VERSION").is_file();
    let mount = mounted(&Place::Directory(directory.to_owned())).filter(|_| is_there);
    mount.map_or_else(String::new, |mount| format!(" on {mount}"))
}

/// A program for clients, as the server's user, who may have its password in `~/.pgpass`.
fn client(installation: &Installation, name: &str) -> Result<Command> {
    let own = installation.programs.join(name);
    let path = Some(own)
        .filter(|path| path.is_file())
        .or_else(|| find(name));
    let path = path.with_context(|| {
        format!(
            "`copy_of` needs the program `{name}`; on Debian: apt-get install postgresql-client-15"
        )
    })?;
    let mut command = installation.account.program(&path);
    // That of the account itself, and not ours.
    command.env_remove("HOME");
    Ok(command)
}

fn said(command: &mut Command, at_most: Duration) -> Result<String> {
    let ended = run_within(command, at_most)?;
    ensure!(
        ended.status.success(),
        "the database of `copy_of`: {}",
        complained(&as_typed(command), &ended)
    );
    Ok(ended.stdout)
}
