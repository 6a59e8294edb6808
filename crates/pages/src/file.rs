//! Which database a file belongs to, from its path and its first bytes.

use crate::postgresql::{self, Checksums};
use crate::{Verdict, innodb, sqlite};

/// So many bytes from a file's start are enough to recognise it.
pub const HEAD_BYTES: usize = 64 << 10;

/// A file whose pages can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFile {
    /// A relation of PostgreSQL.
    PostgreSql {
        /// Which gibibyte of the relation the file is.
        segment: u32,
        /// Whether its cluster has checksums.
        checksums: Checksums,
    },
    /// A tablespace of InnoDB.
    InnoDb(innodb::Space),
    /// A database of SQLite.
    Sqlite(sqlite::Database),
}

/// What a path alone says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidate {
    PostgreSql { segment: u32 },
    InnoDb,
}

/// Whether the path is one of a database's file: [`PageFile::recognise`] needs no look at files
/// of other names but for SQLite's, which have any name.
#[must_use]
pub fn is_candidate(path: &str) -> bool {
    candidate(path).is_some()
}

/// Whether a file of any name is a database of SQLite with room for checksums, from its first
/// bytes.
#[must_use]
pub fn is_database(head: &[u8]) -> bool {
    sqlite::Database::of_head(head).is_some()
}

fn candidate(path: &str) -> Option<Candidate> {
    let mut parts = path.rsplit('/');
    let name = parts.next()?;
    let directory = parts.next().unwrap_or_default();
    let above = parts.next().unwrap_or_default();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if directory == "global"
        || (is_number(directory) && (above == "base" || above.starts_with("PG_")))
    {
        return postgresql::segment_of_name(name).map(|segment| Candidate::PostgreSql { segment });
    }
    let has_digits = |prefix| name.strip_prefix(prefix).is_some_and(is_number);
    let is_innodb = name.ends_with(".ibd") || has_digits("ibdata") || has_digits("undo");
    is_innodb.then_some(Candidate::InnoDb)
}

impl PageFile {
    /// The path of the control file that says whether PostgreSQL's file at `path` has checksums;
    /// `None` for other files, and for those of a tablespace, which do not lie in their cluster.
    #[must_use]
    pub fn control_path(path: &str) -> Option<String> {
        let Some(Candidate::PostgreSql { .. }) = candidate(path) else {
            return None;
        };
        let (directory, _) = path.rsplit_once('/')?;
        let cluster = match directory.strip_suffix("global") {
            Some(cluster) => cluster,
            None => directory.rsplit_once('/')?.0.strip_suffix("base")?,
        };
        Some(format!("{cluster}global/pg_control"))
    }

    /// Recognises a file. `head` is its first bytes, at most [`HEAD_BYTES`]; `control` the
    /// contents of the file at [`PageFile::control_path`], where there is one.
    #[must_use]
    pub fn recognise(path: &str, head: &[u8], control: Option<&[u8]>) -> Option<Self> {
        match candidate(path) {
            Some(Candidate::PostgreSql { segment }) => {
                let checksums =
                    control.map_or(Checksums::NotKnown, postgresql::checksums_of_control);
                (checksums != Checksums::Off).then_some(Self::PostgreSql { segment, checksums })
            }
            Some(Candidate::InnoDb) => innodb::Space::of_head(head).map(Self::InnoDb),
            None => sqlite::Database::of_head(head).map(Self::Sqlite),
        }
    }

    /// Length of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        match self {
            Self::PostgreSql { .. } => postgresql::PAGE_BYTES,
            Self::InnoDb(space) => space.page_bytes,
            Self::Sqlite(database) => database.page_bytes,
        }
    }

    /// What the page of this number is worth.
    #[must_use]
    pub fn judge(&self, page: u64, bytes: &[u8]) -> Verdict {
        match self {
            Self::PostgreSql { segment, checksums } => {
                postgresql::judge(bytes, *segment, page, *checksums)
            }
            Self::InnoDb(space) => innodb::judge(bytes, page, space),
            Self::Sqlite(database) => sqlite::judge(bytes, *database),
        }
    }
}
