//! What the catalog keeps of a scrub: lines of `name=value` in one attribute row.

use spindle_base::{BLOCK_SIZE_BYTES, DiskNumber, FileId};

use crate::background::scrub::left_out::{LeftOutReason, Missed};
use crate::background::scrub::{Distrust, ScrubScope, ScrubWish};

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
    /// What was left out so far, and the bytes of what is beyond.
    pub left_out: Vec<Missed>,
    pub left_out_beyond_bytes: u64,
}

/// So many entries of what was left out a row has: it is written every few seconds.
const LEFT_OUT_MOST: usize = 200;

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
            left_out: Vec::new(),
            left_out_beyond_bytes: 0,
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
        let (kept, beyond) = self
            .left_out
            .split_at(self.left_out.len().min(LEFT_OUT_MOST));
        let beyond_blocks: u64 = beyond.iter().map(|one| one.end - one.first).sum();
        let left_out = kept.iter().map(|one| {
            let reason = one.reason.name();
            format!(
                "{}:{}:{}:{}:{reason}",
                one.file.0, one.first, one.end, one.disk.0
            )
        });
        let mut lines = String::new();
        if let Some(distrust) = &self.wish.distrust {
            let by = distrust.by.replace('\n', " ");
            lines = format!("distrust={}\nasked_by={by}\n", distrust.disk.0);
        }
        format!(
            "title={}\nscope={scope}\nrepair={}\npower={}\nfile={}\nblock={}\ndone_bytes={}\n\
             read_bytes={}\nfindings_count={}\nrepaired_count={}\n\
             left_out={}\nleft_out_beyond_bytes={}\n{lines}",
            self.wish.title.replace('\n', " "),
            u8::from(self.wish.repair),
            self.wish.power,
            self.next.0.0,
            self.next.1,
            self.done_bytes,
            self.read_bytes,
            self.findings_count,
            self.repaired_count,
            join(left_out.collect()),
            self.left_out_beyond_bytes + beyond_blocks * BLOCK_SIZE_BYTES,
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
        // What programs of before did not write.
        let distrust = match value("distrust") {
            Ok(disk) => Some(Distrust {
                disk: DiskNumber(disk.parse().map_err(|_| wrong("distrusts no disk"))?),
                by: value("asked_by")?.to_owned(),
            }),
            Err(_) => None,
        };
        let left_out = value("left_out").unwrap_or_default();
        Ok(Self {
            wish: ScrubWish {
                scope,
                title: value("title")?.to_owned(),
                repair: number("repair")? != 0,
                power: u16::try_from(number("power")?).map_err(|_| wrong("has a power beyond"))?,
                distrust,
            },
            next: (FileId(number("file")?), number("block")?),
            done_bytes: number("done_bytes")?,
            read_bytes: number("read_bytes")?,
            findings_count: number("findings_count")?,
            repaired_count: number("repaired_count")?,
            left_out: left_out
                .split(',')
                .filter(|entry| !entry.is_empty())
                .map(|entry| missed(entry).ok_or_else(|| wrong("names what was left out wrongly")))
                .collect::<Result<_, _>>()?,
            left_out_beyond_bytes: number("left_out_beyond_bytes").unwrap_or(0),
        })
    }
}

/// `file:first:end:disk:reason`.
fn missed(entry: &str) -> Option<Missed> {
    let parts: Vec<&str> = entry.split(':').collect();
    let [file, first, end, disk, reason] = parts[..] else {
        return None;
    };
    let missed = Missed {
        file: FileId(file.parse().ok()?),
        first: first.parse().ok()?,
        end: end.parse().ok()?,
        disk: DiskNumber(disk.parse().ok()?),
        reason: LeftOutReason::of_name(reason)?,
    };
    (missed.first < missed.end).then_some(missed)
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
    use crate::background::scrub::left_out::{LeftOutReason, Missed};
    use crate::background::scrub::{Distrust, ScrubScope, ScrubWish};
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
                    distrust: Some(Distrust {
                        disk: DiskNumber(3),
                        by: "a=b".to_owned(),
                    }),
                },
                next: (FileId(12), 99),
                done_bytes: 1,
                read_bytes: 2,
                findings_count: 3,
                repaired_count: 4,
                left_out: vec![
                    Missed {
                        file: FileId(8),
                        first: 3,
                        end: 9,
                        disk: DiskNumber(2),
                        reason: LeftOutReason::Offline,
                    };
                    2
                ],
                left_out_beyond_bytes: 5,
            };
            let row = saved.encode();
            assert_eq!(Saved::parse(&row), Ok(saved));
            // As programs of before wrote it.
            let text = String::from_utf8(row).unwrap();
            let older: Vec<&str> = text
                .lines()
                .filter(|line| !line.starts_with("left_out") && !line.starts_with("distrust"))
                .collect();
            let older = Saved::parse(older.join("\n").as_bytes()).unwrap();
            assert_eq!((older.left_out.len(), older.wish.distrust), (0, None));
        }
        for damaged in [&b""[..], b"title=x\nscope=none:\n", b"\xff"] {
            assert!(Saved::parse(damaged).is_err());
        }
    }
}
