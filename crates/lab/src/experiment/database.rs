//! The database of an experiment: which, from where, with which memory and settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::contender::refuses_setting;
use super::{Mistake, size};

/// Which database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatabaseKind {
    /// PostgreSQL, a server with a process for each client.
    #[default]
    Postgresql,
    /// MariaDB with InnoDB, a server with a thread for each client, past the page cache.
    Mariadb,
    /// SQLite, a library within the lab's own process.
    Sqlite,
}

impl DatabaseKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgresql, Self::Mariadb, Self::Sqlite];

    /// As it is written in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "postgresql",
            Self::Mariadb => "mariadb",
            Self::Sqlite => "sqlite",
        }
    }

    /// A setting by the one name that the database has for it: it takes others as well.
    #[must_use]
    pub fn setting_name(self, name: &str) -> String {
        let name = name.to_lowercase();
        match self {
            Self::Mariadb => name.replace('-', "_"),
            Self::Postgresql | Self::Sqlite => name,
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// As its makers write it.
impl fmt::Display for DatabaseKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Postgresql => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Sqlite => "SQLite",
        })
    }
}

/// A database that is already there, of which each contender gets a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOf {
    /// As the file has it: in the words of PostgreSQL's clients.
    pub connection: String,
    /// Whose sessions the load's are.
    pub user: String,
    /// In which database they work.
    pub database: String,
}

/// Who owns a cluster where nobody else is named.
const OWNER: &str = "postgres";

impl CopyOf {
    fn parse(connection: &str) -> Result<Self, String> {
        let config: postgres::Config = (connection.parse())
            .map_err(|error: postgres::Error| format!("`copy_of = {connection:?}`: {error}"))?;
        if config.get_password().is_some() {
            return Err(format!(
                "`copy_of` holds a password, and the file is kept with the results: put it into ~/.pgpass of the user `{OWNER}`"
            ));
        }
        let database = config.get_dbname().ok_or(
            "`copy_of` names no database: add `dbname=...`, the one that the scripts work in",
        )?;
        Ok(Self {
            connection: connection.to_owned(),
            user: config.get_user().unwrap_or(OWNER).to_owned(),
            database: database.to_owned(),
        })
    }
}

/// How the database is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Database {
    /// Which.
    pub kind: DatabaseKind,
    /// The memory of database, storage daemon and page cache together.
    pub memory_bytes: Option<u64>,
    /// Where it is installed, if not where Debian keeps it.
    pub directory: Option<PathBuf>,
    /// What it is a copy of; none where the loads make it.
    pub copy_of: Option<CopyOf>,
    /// Settings beyond the lab's own.
    pub settings: BTreeMap<String, String>,
}

impl Database {
    /// The same with other settings, which stand before its own.
    #[must_use]
    pub fn with(&self, settings: &BTreeMap<String, String>) -> Self {
        let mut database = self.clone();
        for (name, value) in settings {
            let name = self.kind.setting_name(name);
            database.settings.insert(name, value.clone());
        }
        database
    }
}

/// With less no program of the lab's starts; each database says what it needs itself.
const MEMORY_BYTES_AT_LEAST: u64 = 16 << 20;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDatabase {
    #[serde(default)]
    kind: DatabaseKind,
    memory: Option<Spanned<String>>,
    directory: Option<Spanned<PathBuf>>,
    copy_of: Option<Spanned<String>>,
    #[serde(default)]
    settings: BTreeMap<String, Spanned<String>>,
}

impl RawDatabase {
    pub(super) fn check(self, text: &str) -> Result<Database, Mistake> {
        if let Some(written) = &self.directory
            && self.kind == DatabaseKind::Sqlite
        {
            return Err(Mistake::at(
                text,
                written.span().start,
                "SQLite is built into the lab: it has no `directory`",
            ));
        }
        let copy_of = (self.copy_of.as_ref())
            .map(|written| {
                let of_postgresql = match self.kind {
                    DatabaseKind::Postgresql => CopyOf::parse(written.get_ref()),
                    kind => Err(format!("`copy_of` is for PostgreSQL, and this is {kind}")),
                };
                of_postgresql.map_err(|message| Mistake::at(text, written.span().start, &message))
            })
            .transpose()?;
        let memory_bytes = size(self.memory.as_ref(), text)?;
        if let Some(written) = &self.memory
            && memory_bytes.is_some_and(|bytes| bytes < MEMORY_BYTES_AT_LEAST)
        {
            return Err(Mistake::at(
                text,
                written.span().start,
                "`memory` is at least 16 MiB; leave it out for no limit",
            ));
        }
        let mut settings = BTreeMap::new();
        for (name, value) in self.settings {
            let start = value.span().start;
            if let Some(reason) = refuses_setting(self.kind, &name, value.get_ref()) {
                return Err(Mistake::at(text, start, &reason));
            }
            settings.insert(self.kind.setting_name(&name), value.into_inner());
        }
        Ok(Database {
            kind: self.kind,
            memory_bytes,
            directory: self.directory.map(Spanned::into_inner),
            copy_of,
            settings,
        })
    }
}
