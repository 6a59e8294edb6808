//! The contenders as they are asked for: a storage by its name, or a table that says in which
//! settings of the database and in which options of the storage this one differs.
//!
//! A contender is known by its name alone in every record, so that a name says what it is: it is
//! no other storage's, and no two contenders differ in their names only.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{Database, DatabaseKind, Mistake};
use crate::measure::contender;
use crate::record::AGAIN;

/// What stands behind the name of a contender.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The storage, by its name among all that there are.
    pub storage: String,
    /// Settings of the database, beyond and instead of those of the experiment.
    pub settings: BTreeMap<String, String>,
    /// How the storage is made and mounted, where that is not as usual.
    pub options: BTreeMap<String, String>,
}

impl Asked {
    /// A storage as it is.
    #[must_use]
    pub fn plain(storage: &str) -> Self {
        Self {
            storage: storage.to_owned(),
            ..Self::default()
        }
    }

    /// In what it differs from the storage and the experiment's database, a part each.
    #[must_use]
    pub fn parts(&self) -> Vec<String> {
        (self.options.iter().chain(&self.settings))
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
}

/// Longer names leave no room for figures beside them.
const NAME_CHARACTERS_AT_MOST: usize = 60;

/// Settings by which a database would put its data, its log or its door elsewhere than the lab does:
/// then something else than the contender were measured.
fn is_the_labs(kind: DatabaseKind, name: &str) -> bool {
    let own: &[&str] = match kind {
        DatabaseKind::Postgresql => &[
            "config_file",
            "data_directory",
            "external_pid_file",
            "hba_file",
            "ident_file",
            "listen_addresses",
            "port",
            "temp_tablespaces",
            "unix_socket_directories",
        ],
        DatabaseKind::Mariadb => &[
            "aria_log_dir_path",
            "basedir",
            "datadir",
            "defaults_file",
            "innodb_data_home_dir",
            "innodb_log_group_home_dir",
            "innodb_tmpdir",
            "innodb_undo_directory",
            "log_bin",
            "pid_file",
            "port",
            "socket",
            "tmpdir",
        ],
        DatabaseKind::Sqlite => &["data_store_directory", "temp_store_directory"],
    };
    own.contains(&name)
}

/// What a setting takes or hides where the lab neither limits nor counts it.
fn deceives(kind: DatabaseKind, name: &str, value: &str) -> Option<&'static str> {
    let value = value.trim().to_lowercase();
    let is_off = ["off", "false", "no", "0"].contains(&value.as_str());
    match (kind, name) {
        (DatabaseKind::Postgresql, "huge_pages") | (DatabaseKind::Mariadb, "large_pages")
            if !is_off =>
        {
            Some("huge pages come from a store of the machine's that `memory` does not limit")
        }
        (DatabaseKind::Sqlite, "mmap_size") if value != "0" => Some(
            "what is read through a mapping is a read of nobody's, so that the database would seem to read nothing",
        ),
        _ => None,
    }
}

/// A contender as the file has it: `"ext4"`, or a table.
pub(super) enum RawContender {
    Name(String),
    Table(RawTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    name: Option<Spanned<String>>,
    storage: Spanned<String>,
    #[serde(default)]
    settings: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    options: BTreeMap<String, Spanned<String>>,
}

/// By hand, because an untagged enum would lose the places of what is within.
impl<'de> Deserialize<'de> for RawContender {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RawContender;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "a contender: \"ext4\", or { storage = \"ext4\", settings = { ... } }",
                )
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<RawContender, E> {
                Ok(RawContender::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawContender, A::Error> {
                RawTable::deserialize(MapAccessDeserializer::new(map)).map(RawContender::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// All of them, by their names in the order of the file.
pub(super) fn check(
    raw: Vec<Spanned<RawContender>>,
    database: &Database,
    uses_a_database: bool,
    text: &str,
) -> Result<(Vec<String>, BTreeMap<String, Asked>), Mistake> {
    let mut names: Vec<String> = Vec::new();
    let mut all: BTreeMap<String, Asked> = BTreeMap::new();
    for written in raw {
        let start = written.span().start;
        let at = |message: String| Mistake::at(text, start, &message);
        let (name, asked) = match written.into_inner() {
            RawContender::Name(storage) => {
                contender::find(&storage).map_err(at)?;
                check_words(&storage)
                    .map_err(|reason| at(format!("{reason}; {}", give_another(&storage))))?;
                (storage.clone(), Asked::plain(&storage))
            }
            RawContender::Table(table) => {
                table.check(database.kind, start, uses_a_database, text)?
            }
        };
        if names.contains(&name) {
            return Err(at(format!("`{name}` is listed twice")));
        }
        let is_like = |other: &&String| {
            all.get(*other)
                .is_some_and(|one| is_same(one, &asked, database))
        };
        if let Some(other) = names.iter().find(is_like) {
            return Err(at(format!(
                "`{name}` differs from `{other}` in nothing but its name (the baseline runs a second time by itself)"
            )));
        }
        names.push(name.clone());
        all.insert(name, asked);
    }
    Ok((names, all))
}

fn is_same(one: &Asked, other: &Asked, database: &Database) -> bool {
    let settings = |asked: &Asked| database.with(&asked.settings).settings;
    (&one.storage, &one.options) == (&other.storage, &other.options)
        && settings(one) == settings(other)
}

impl RawTable {
    fn check(
        self,
        kind: DatabaseKind,
        start: usize,
        uses_a_database: bool,
        text: &str,
    ) -> Result<(String, Asked), Mistake> {
        let at = |start: usize, message: String| Mistake::at(text, start, &message);
        let storage = self.storage.get_ref();
        let found =
            contender::find(storage).map_err(|message| at(self.storage.span().start, message))?;
        let mut asked = Asked::plain(storage);
        for (name, value) in &self.options {
            let value_start = value.span().start;
            if let Some(reason) = contender::refuses(found.as_ref(), name, value.get_ref()) {
                return Err(at(value_start, reason));
            }
            asked.options.insert(name.clone(), value.get_ref().clone());
        }
        for (name, value) in &self.settings {
            let value_start = value.span().start;
            let shown = format!("`{name} = {:?}`", value.get_ref());
            if !uses_a_database {
                let reason = format!("{shown} is a setting of a database, and no load has one");
                return Err(at(value_start, reason));
            }
            if let Some(reason) = refuses_setting(kind, name, value.get_ref()) {
                return Err(at(value_start, reason));
            }
            let name = kind.setting_name(name);
            asked.settings.insert(name, value.get_ref().clone());
        }
        let name = match &self.name {
            Some(given) => {
                check_name(given.get_ref(), storage)
                    .map_err(|message| at(given.span().start, message))?;
                given.get_ref().clone()
            }
            None => {
                let mut words = vec![storage.clone()];
                words.extend(asked.parts());
                let name = words.join(" ");
                check_words(&name)
                    .and_then(|()| check_length(&name))
                    .map_err(|reason| at(start, format!("{reason}; {}", give_another(&name))))?;
                name
            }
        };
        Ok((name, asked))
    }
}

/// Why a setting is none that a contender may have, as far as that shows without the database.
pub(super) fn refuses_setting(kind: DatabaseKind, name: &str, value: &str) -> Option<String> {
    let is_word = |text: &str| {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_right)
    };
    let shown = format!("`{name} = {value:?}`");
    if !is_word(name) {
        return Some(format!("{shown}: this is no name of a setting"));
    }
    if value.chars().any(char::is_control) {
        return Some(format!("{shown}: a setting stands on one line"));
    }
    let name = kind.setting_name(name);
    if is_the_labs(kind, &name) {
        return Some(format!(
            "{shown}: the lab sets this itself, so that all of the database lies on the contender"
        ));
    }
    deceives(kind, &name, value).map(|reason| format!("{shown}: {reason}"))
}

/// What to do where a storage with its settings and options makes no name.
fn give_another(derived: &str) -> String {
    format!("`{derived}` is none: give another by `name`")
}

fn check_length(name: &str) -> Result<(), String> {
    if name.chars().count() > NAME_CHARACTERS_AT_MOST {
        return Err(format!(
            "a contender's name has at most {NAME_CHARACTERS_AT_MOST} characters"
        ));
    }
    Ok(())
}

/// What holds of every name, given or made of the parts: one that reads as something else in what the
/// lab writes would stand there for something else.
fn check_words(name: &str) -> Result<(), String> {
    let begins_well = name.starts_with(|first: char| first.is_alphanumeric());
    if !begins_well || name.trim() != name || name.chars().any(char::is_control) {
        return Err(
            "a name begins with a letter or a digit, stands on one line and has no spaces at its ends"
                .to_owned(),
        );
    }
    if name.ends_with(AGAIN) || name.contains(" under ") {
        return Err(format!(
            "`{}` and ` under ` are words of the lab's own",
            AGAIN.trim()
        ));
    }
    Ok(())
}

fn check_name(name: &str, storage: &str) -> Result<(), String> {
    check_words(name)
        .and_then(|()| check_length(name))
        .map_err(|message| format!("`name = {name:?}`: {message}"))?;
    // A name that is another storage's would be a lie in every table.
    if name != storage && contender::find(name).is_ok() {
        return Err(format!(
            "`name = {name:?}` is the name of another storage, and this one lies on {storage}"
        ));
    }
    Ok(())
}
