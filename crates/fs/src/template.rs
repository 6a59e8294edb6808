//! Templates: which layout and caching a file gets by its path; a profile is a list of them.
//!
//! The first template whose pattern matches decides, when the file is made. A file keeps its
//! layout when it is renamed or the templates change; caching is looked up at each opening.
//! The list is a text in the attribute table: whoever looks into a catalog can read it.

use serde::{Deserialize, Serialize};
use spindle_base::{Redundancy, Striping};
use spindle_catalog::Table;
use spindle_group::{Group, Layout};

use crate::error::{FsError, FsResult, corrupt};
use crate::pattern::matches;
use crate::row::TEMPLATES_KEY;

/// The first line of the text.
const VERSION_LINE: &str = "templates 1";

/// How the front door should cache a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Through the kernel's page cache.
    Cached,
    /// Past it.
    Direct,
}

/// What a template says of caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TemplateCaching {
    /// What is best in general; today that is the page cache.
    Auto,
    /// Through the kernel's page cache.
    Cached,
    /// Past it.
    Direct,
}

/// What files of some paths get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// What a person calls it.
    pub name: String,
    /// Paths relative to the group's root; see the `pattern` module for the stars.
    pub pattern: String,
    /// Copies; `None` as the group. In an external group every file is external.
    pub redundancy: Option<Redundancy>,
    /// How bytes go over extents.
    pub striping: Striping,
    /// How the front door should cache it.
    pub caching: TemplateCaching,
}

impl Template {
    fn new(
        name: &str,
        pattern: &str,
        redundancy: Option<Redundancy>,
        striping: Striping,
        caching: TemplateCaching,
    ) -> Self {
        Self {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
            redundancy,
            striping,
            caching,
        }
    }

    /// Whether it can be stored.
    pub(crate) fn check(&self) -> FsResult<()> {
        let bad = |text: &str| text.is_empty() || text.contains(['\t', '\n']);
        if bad(&self.name) || bad(&self.pattern) {
            return Err(FsError::Invalid(
                "a template's name and pattern are not empty and have no tab and no line break",
            ));
        }
        Ok(())
    }
}

/// The templates of a profile.
pub(crate) fn templates_of_profile(profile: &str) -> FsResult<Vec<Template>> {
    // (name, pattern, redundancy, striping): "as the group" is at least normal wherever the
    // group can have that.
    let (group, external) = (None, Some(Redundancy::External));
    let special: &[(&str, &str, Option<Redundancy>, Striping)] = match profile {
        "postgresql" => &[
            ("temporary", "**/pgsql_tmp/**", external, Striping::Coarse),
            (
                "statistics",
                "**/pg_stat_tmp/**",
                external,
                Striping::Coarse,
            ),
            // Files of temporary tables: t, the session's number, _, the relation's number.
            ("temporary", "**/base/*/t*_*", external, Striping::Coarse),
            ("log", "**/pg_wal/**", group, Striping::Fine),
        ],
        "mariadb" => &[
            (
                "temporary",
                "**/#innodb_temp/**",
                external,
                Striping::Coarse,
            ),
            ("temporary", "**/ibtmp*", external, Striping::Coarse),
            ("log", "**/ib_logfile*", group, Striping::Fine),
            ("log", "**/#innodb_redo/**", group, Striping::Fine),
            ("log", "**/aria_log.*", group, Striping::Fine),
            ("binlog", "**/*-bin.*", group, Striping::Fine),
            ("binlog", "**/binlog.*", group, Striping::Fine),
        ],
        "sqlite" => &[
            ("log", "**/*-wal", group, Striping::Fine),
            ("log", "**/*-journal", group, Striping::Fine),
        ],
        "plain" => &[],
        _ => {
            return Err(FsError::Invalid(
                "the profile is none of postgresql, mariadb, sqlite and plain",
            ));
        }
    };
    let mut templates: Vec<Template> = special
        .iter()
        .map(|(name, pattern, redundancy, striping)| {
            Template::new(name, pattern, *redundancy, *striping, TemplateCaching::Auto)
        })
        .collect();
    templates.push(Template::new(
        "data",
        "**",
        group,
        Striping::Coarse,
        TemplateCaching::Auto,
    ));
    Ok(templates)
}

/// The layout that a file of this path gets.
pub(crate) fn layout_of(templates: &[Template], path: &[Vec<u8>], group: Redundancy) -> Layout {
    let template = templates.iter().find(|one| matches(&one.pattern, path));
    let redundancy = match template.and_then(|template| template.redundancy) {
        Some(redundancy) if group != Redundancy::External => redundancy,
        _ => group,
    };
    Layout {
        redundancy,
        striping: template.map_or(Striping::Coarse, |template| template.striping),
    }
}

/// The caching that a file of this path gets.
pub(crate) fn caching_of(templates: &[Template], path: &[Vec<u8>]) -> Caching {
    let template = templates.iter().find(|one| matches(&one.pattern, path));
    match template.map(|template| template.caching) {
        Some(TemplateCaching::Direct) => Caching::Direct,
        Some(TemplateCaching::Cached | TemplateCaching::Auto) | None => Caching::Cached,
    }
}

/// The text of a list.
pub(crate) fn write_templates(templates: &[Template]) -> String {
    let mut text = format!("{VERSION_LINE}\n");
    for template in templates {
        let redundancy = match template.redundancy {
            Some(redundancy) => redundancy.to_string(),
            None => "group".to_owned(),
        };
        let caching = match template.caching {
            TemplateCaching::Auto => "auto",
            TemplateCaching::Cached => "cached",
            TemplateCaching::Direct => "direct",
        };
        text.push_str(&format!(
            "{}\t{}\t{redundancy}\t{}\t{caching}\n",
            template.name, template.pattern, template.striping
        ));
    }
    text
}

/// The group's list; none where it has no row.
pub(crate) fn read_templates(group: &Group) -> FsResult<Vec<Template>> {
    let Some(bytes) = group.get(Table::Attribute, TEMPLATES_KEY)? else {
        return Ok(Vec::new());
    };
    parse_templates(&bytes).ok_or_else(|| {
        corrupt("the templates cannot be read: they are damaged or of a newer Spindle".to_owned())
    })
}

fn parse_templates(bytes: &[u8]) -> Option<Vec<Template>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next()? != VERSION_LINE {
        return None;
    }
    lines.map(parse_template).collect()
}

/// The redundancy of that name.
pub(crate) fn redundancy_of(name: &str) -> Option<Redundancy> {
    match name {
        "external" => Some(Redundancy::External),
        "normal" => Some(Redundancy::Normal),
        "high" => Some(Redundancy::High),
        _ => None,
    }
}

fn parse_template(line: &str) -> Option<Template> {
    let mut fields = line.split('\t');
    let template = Template {
        name: fields.next()?.to_owned(),
        pattern: fields.next()?.to_owned(),
        redundancy: match fields.next()? {
            "group" => None,
            name => Some(redundancy_of(name)?),
        },
        striping: match fields.next()? {
            "coarse" => Striping::Coarse,
            "fine" => Striping::Fine,
            _ => return None,
        },
        caching: match fields.next()? {
            "auto" => TemplateCaching::Auto,
            "cached" => TemplateCaching::Cached,
            "direct" => TemplateCaching::Direct,
            _ => return None,
        },
    };
    fields.next().is_none().then_some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(profile: &str, path: &str, group: Redundancy) -> Layout {
        let path: Vec<Vec<u8>> = path
            .split('/')
            .map(|name| name.as_bytes().to_vec())
            .collect();
        layout_of(&templates_of_profile(profile).unwrap(), &path, group)
    }

    #[test]
    fn write_ahead_logs_are_fine_and_keep_the_copies_of_the_group() {
        for (profile, path) in [
            ("postgresql", "pg_wal/000000010000000000000001"),
            ("postgresql", "data/16/main/pg_wal/000000010000000000000001"),
            ("mariadb", "mysql/ib_logfile0"),
            ("mariadb", "mysql/#innodb_redo/#ib_redo12"),
            ("mariadb", "mysql/db1-bin.000001"),
            ("sqlite", "app/test.db-wal"),
        ] {
            for group in [Redundancy::External, Redundancy::Normal, Redundancy::High] {
                let layout = layout(profile, path, group);
                assert_eq!(layout.striping, Striping::Fine, "{path}");
                assert_eq!(layout.redundancy, group, "{path}");
            }
        }
    }

    #[test]
    fn temporary_files_have_one_copy_and_tables_those_of_the_group() {
        let group = Redundancy::High;
        for (profile, path, redundancy) in [
            (
                "postgresql",
                "base/pgsql_tmp/pgsql_tmp12.0",
                Redundancy::External,
            ),
            ("postgresql", "a/base/5/t3_16384", Redundancy::External),
            ("postgresql", "a/base/5/16384", group),
            ("postgresql", "global/pg_control", group),
            ("mariadb", "ibtmp1", Redundancy::External),
            ("mariadb", "shop/#sql-alter-1-2.ibd", group),
            ("plain", "pgsql_tmp/x", group),
        ] {
            assert_eq!(
                layout(profile, path, group).redundancy,
                redundancy,
                "{path}"
            );
        }
    }

    #[test]
    fn a_list_reads_back_as_it_was_written_and_damage_is_noticed() {
        for profile in ["postgresql", "mariadb", "sqlite", "plain"] {
            let templates = templates_of_profile(profile).unwrap();
            let text = write_templates(&templates);
            assert_eq!(parse_templates(text.as_bytes()), Some(templates));
            assert_eq!(
                parse_templates(text.replace("auto", "often").as_bytes()),
                None
            );
            assert_eq!(parse_templates(&text.as_bytes()[1..]), None);
        }
        assert!(templates_of_profile("oracle").is_err());
    }
}
