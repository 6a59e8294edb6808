//! What the catalog keeps of a scrub: lines of `name=value` in one attribute row.

use spindle_base::{DiskNumber, FileId};

use super::{ScrubScope, ScrubWish};

/// The attribute row of the scrub that runs.
pub const RUN_KEY: &[u8] = b"scrub";
/// The attribute row of the schedule: seconds, a little-endian u64.
pub const INTERVAL_KEY: &[u8] = b"scrub_interval_s";
/// The attribute row of when a scheduled scrub last began, likewise.
pub const LAST_KEY: &[u8] = b"scrub_started_s";

/// A scrub at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub wish: ScrubWish,
    /// The next file and block; all before them was looked at.
    pub next: (FileId, u64),
    pub done_bytes: u64,
    pub read_bytes: u64,
    pub findings_count: u64,
    pub repaired_count: u64,
}

impl Saved {
    /// At its beginning.
    pub const fn fresh(wish: ScrubWish) -> Self {
        Self {
            wish,
            next: (FileId(0), 0),
            done_bytes: 0,
            read_bytes: 0,
            findings_count: 0,
            repaired_count: 0,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let join = |numbers: Vec<String>| numbers.join(",");
        let scope = match &self.wish.scope {
            ScrubScope::Group => "group:".to_owned(),
            ScrubScope::Disks(disks) => {
                format!(
                    "disks:{}",
                    join(disks.iter().map(|d| d.0.to_string()).collect())
                )
            }
            ScrubScope::Files(files) => {
                format!(
                    "files:{}",
                    join(files.iter().map(|f| f.0.to_string()).collect())
                )
            }
        };
        format!(
            "title={}\nscope={scope}\nrepair={}\npower={}\nfile={}\nblock={}\ndone_bytes={}\n\
             read_bytes={}\nfindings_count={}\nrepaired_count={}\n",
            self.wish.title.replace('\n', " "),
            u8::from(self.wish.repair),
            self.wish.power,
            self.next.0.0,
            self.next.1,
            self.done_bytes,
            self.read_bytes,
            self.findings_count,
            self.repaired_count,
        )
        .into_bytes()
    }

    /// # Errors
    /// What is wrong with the row, in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("is no text"))?;
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .ok_or_else(|| wrong(&format!("has no {name}")))
        };
        let number = |name: &str| {
            let value = value(name)?;
            value
                .parse::<u64>()
                .map_err(|_| wrong(&format!("has {value:?} as its {name}")))
        };
        let (kind, list) = value("scope")?
            .split_once(':')
            .ok_or_else(|| wrong("has no scope"))?;
        let scope = match kind {
            "group" => ScrubScope::Group,
            "disks" => ScrubScope::Disks(numbers(list, DiskNumber)?),
            "files" => ScrubScope::Files(numbers(list, FileId)?),
            other => return Err(wrong(&format!("is of {other:?}"))),
        };
        Ok(Self {
            wish: ScrubWish {
                scope,
                title: value("title")?.to_owned(),
                repair: number("repair")? != 0,
                power: u16::try_from(number("power")?).map_err(|_| wrong("has a power beyond"))?,
            },
            next: (FileId(number("file")?), number("block")?),
            done_bytes: number("done_bytes")?,
            read_bytes: number("read_bytes")?,
            findings_count: number("findings_count")?,
            repaired_count: number("repaired_count")?,
        })
    }
}

fn wrong(what: &str) -> String {
    format!("the row of the scrub {what}")
}

fn numbers<N: std::str::FromStr, T>(list: &str, make: impl Fn(N) -> T) -> Result<Vec<T>, String> {
    list.split(',')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map(&make))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("names what is no number"))
}

#[cfg(test)]
mod tests {
    use super::Saved;
    use crate::scrub::{ScrubScope, ScrubWish};
    use spindle_base::{DiskNumber, FileId};

    #[test]
    fn a_position_comes_back_as_it_was_saved() {
        for scope in [
            ScrubScope::Group,
            ScrubScope::Disks(vec![DiskNumber(0), DiskNumber(65_535)]),
            ScrubScope::Files(vec![FileId(7), FileId(u64::MAX)]),
        ] {
            let saved = Saved {
                wish: ScrubWish {
                    scope,
                    title: "/a=b".to_owned(),
                    repair: true,
                    power: 1024,
                },
                next: (FileId(12), 99),
                done_bytes: 1,
                read_bytes: 2,
                findings_count: 3,
                repaired_count: 4,
            };
            assert_eq!(Saved::parse(&saved.encode()), Ok(saved));
        }
        for damaged in [&b""[..], b"title=x\nscope=none:\n", b"\xff"] {
            assert!(Saved::parse(damaged).is_err());
        }
    }
}
