//! Which database a file belongs to, from its path and its first bytes.

use std::ops::Range;

use crate::postgresql::{self, Checksums, Cluster};
use crate::{Choice, Verdict, choose, innodb, sqlite};

/// So many bytes from a file's start are enough to recognise it.
pub const HEAD_BYTES: usize = 64 << 10;

/// A file whose pages can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFile {
    /// A relation of PostgreSQL.
    PostgreSql {
        /// Which segment of the relation the file is.
        segment: u32,
        /// What its cluster's control file says.
        cluster: Cluster,
    },
    /// A tablespace of InnoDB.
    InnoDb(innodb::Space),
    /// A database of SQLite.
    Sqlite(sqlite::Database),
}

/// What tells the versions of a page apart, by its place on the page, in bytes.
pub(crate) struct Fields {
    /// The position in the log.
    pub position: Range<usize>,
    /// The checksum that is stored.
    pub sum: Range<usize>,
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
                let known = control.and_then(Cluster::of_control);
                let cluster = known.unwrap_or_else(|| Cluster::of_head(head));
                (cluster.checksums != Checksums::Off)
                    .then_some(Self::PostgreSql { segment, cluster })
            }
            Some(Candidate::InnoDb) => innodb::Space::of_head(head).map(Self::InnoDb),
            None => sqlite::Database::of_head(head).map(Self::Sqlite),
        }
    }

    /// Recognises a file by the first bytes of each of its copies, and by each copy of the
    /// control file. A disk that lost writes may hold another file's pages here, or an older
    /// control file: what the copies do not agree about is not certain, but where one of them is
    /// proven to be the damaged one.
    #[must_use]
    pub fn recognise_copies(path: &str, heads: &[&[u8]], controls: &[&[u8]]) -> Option<Self> {
        let clusters: Vec<Option<Cluster>> = controls
            .iter()
            .map(|one| Cluster::of_control(one))
            .collect();
        let is_agreed = clusters.windows(2).all(|pair| pair[0] == pair[1]);
        let control = controls.first().copied().filter(|_| is_agreed);
        let found: Vec<Option<Self>> = heads
            .iter()
            .map(|head| Self::recognise(path, head, control))
            .collect();
        let proven = found.iter().flatten().find(|file| file.is_certain());
        let file = *proven.or_else(|| found.iter().flatten().next())?;
        let length = file.page_bytes();
        let mut first_pages: Vec<&[u8]> = heads
            .iter()
            .map(|head| head.get(..length).unwrap_or_default())
            .collect();
        first_pages.sort_unstable();
        first_pages.dedup();
        let is_same_space = match &file {
            Self::InnoDb(space) => first_pages.iter().all(|page| space.may_be_its_first(page)),
            _ => true,
        };
        let is_clear = first_pages.len() == 1
            || (is_same_space && matches!(choose(&file, 0, &first_pages), Choice::Right(_)));
        Some(if is_clear { file } else { file.doubted() })
    }

    /// Whether a wrong checksum is proof of anything in this file.
    fn is_certain(&self) -> bool {
        match self {
            Self::PostgreSql { cluster, .. } => cluster.checksums == Checksums::On,
            Self::InnoDb(space) => space.certain,
            Self::Sqlite(database) => database.certain,
        }
    }

    /// The same file, where a wrong checksum proves nothing. PostgreSQL's relations are what
    /// their control file says: their own first page says no more than any other.
    const fn doubted(self) -> Self {
        match self {
            Self::PostgreSql { .. } => self,
            Self::InnoDb(space) => Self::InnoDb(innodb::Space {
                certain: false,
                ..space
            }),
            Self::Sqlite(database) => Self::Sqlite(sqlite::Database {
                certain: false,
                ..database
            }),
        }
    }

    /// Length of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        match self {
            Self::PostgreSql { cluster, .. } => cluster.page_bytes,
            Self::InnoDb(space) => space.page_bytes,
            Self::Sqlite(database) => database.page_bytes,
        }
    }

    /// Where a good page of this file says what tells its versions apart; `None` where nothing does.
    pub(crate) fn fields_of(&self, page: &[u8]) -> Option<Fields> {
        match self {
            Self::PostgreSql { .. } => Some(Fields {
                position: postgresql::POSITION_BYTES,
                sum: postgresql::SUM_BYTES,
            }),
            Self::InnoDb(space) => Some(Fields {
                position: innodb::POSITION_BYTES,
                sum: space.sum_bytes(page),
            }),
            // Programs without the extension leave the sums of an older version.
            Self::Sqlite(_) => None,
        }
    }

    /// Whether a damaged page's head says that it is of a later version than the good one.
    pub(crate) fn may_have_newer_head(&self, own: &[u8], other: &[u8]) -> bool {
        match self {
            Self::InnoDb(space) => innodb::may_have_newer_head(space, own, other),
            Self::PostgreSql { .. } | Self::Sqlite(_) => false,
        }
    }

    /// What the page of this number is worth.
    #[must_use]
    pub fn judge(&self, page: u64, bytes: &[u8]) -> Verdict {
        match self {
            Self::PostgreSql { segment, cluster } => {
                postgresql::judge(bytes, *segment, page, *cluster)
            }
            Self::InnoDb(space) => innodb::judge(bytes, page, space),
            Self::Sqlite(database) => sqlite::judge(bytes, *database),
        }
    }

    /// What each page of a unit is worth, the first of which has the number `first_page`.
    #[must_use]
    pub fn judge_unit(&self, first_page: u64, unit: &[u8]) -> Vec<Verdict> {
        (first_page..)
            .zip(unit.chunks(self.page_bytes()))
            .map(|(number, page)| self.judge(number, page))
            .collect()
    }
}
