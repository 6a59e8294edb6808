//! Where the disks were found last, for who looks for one that is away.
//!
//! A label has its disk's name and no path, and a disk that is away shows neither. So the paths stand
//! in a row of the catalog, which every replica has: a hint for people, believed by no code. A crash
//! loses the newest change at most.

use std::collections::BTreeMap;

use spindle_base::DiskNumber;
use spindle_catalog::{Edit, Table};

use crate::core::Core;
use crate::error::GroupError;

/// The attribute row: a line for each disk, its number and its path.
const KEY: &[u8] = b"disk_paths";

type Paths = BTreeMap<DiskNumber, String>;

fn parse(bytes: &[u8]) -> Paths {
    // A line that is none is passed over: the row is for people, no group fails for it.
    String::from_utf8_lossy(bytes)
        .lines()
        .filter_map(|line| {
            let (number, path) = line.split_once(' ')?;
            Some((DiskNumber(number.parse().ok()?), path.to_owned()))
        })
        .collect()
}

fn encode(paths: &Paths) -> Vec<u8> {
    let lines = paths
        .iter()
        .map(|(disk, path)| format!("{} {path}\n", disk.0));
    lines.collect::<String>().into_bytes()
}

impl Core {
    /// Where each disk was found last, as far as that is known.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub fn disk_paths(&self) -> Result<BTreeMap<DiskNumber, String>, GroupError> {
        let row = self.get(Table::Attribute, KEY)?;
        Ok(row.as_deref().map(parse).unwrap_or_default())
    }

    /// Notes where disks are, `None` for one that is away, of which the path that was noted stays;
    /// those that are not named are forgotten. Joins the batch where something is new, and does no
    /// I/O then.
    ///
    /// # Errors
    /// As [`Core::get`].
    pub fn note_disk_paths(
        &self,
        disks: &[(DiskNumber, Option<String>)],
    ) -> Result<(), GroupError> {
        let before = self.disk_paths()?;
        // A line has no room for one.
        let is_line = |path: &String| !path.contains(char::is_control);
        let after: Paths = (disks.iter())
            .filter_map(|(disk, path)| {
                let path = path.clone().filter(is_line);
                Some((*disk, path.or_else(|| before.get(disk).cloned())?))
            })
            .collect();
        if after != before {
            let mut edit = Edit::default();
            edit.put(Table::Attribute, KEY.to_vec(), encode(&after));
            let change = self.change_inside();
            self.apply(&change, edit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spindle_base::DiskNumber;

    use super::{Paths, encode, parse};

    #[test]
    fn paths_with_blanks_come_back_and_a_line_that_is_none_is_passed_over() {
        let paths: Paths = [(1, "/dev/sdb"), (12, "/srv/my disks/é")]
            .map(|(disk, path)| (DiskNumber(disk), path.to_owned()))
            .into();
        assert_eq!(parse(&encode(&paths)), paths);
        assert_eq!(
            encode(&paths),
            "1 /dev/sdb\n12 /srv/my disks/é\n".as_bytes()
        );
        let mut damaged = encode(&paths);
        damaged.extend(b"\xff\xfe x\n3\nfour /dev/sdc\n");
        assert_eq!(parse(&damaged), paths);
        assert!(parse(b"").is_empty());
    }
}
