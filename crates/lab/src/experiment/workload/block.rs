//! The points of a `block` load: sizes of a request, requests under way, and the share of reads.

use serde::{Deserialize, Serialize};

use super::points::Users;
use super::{Kind, Pattern, RawWorkload, Regime, Workload};
use crate::quantity::parse_size;

/// A point of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPoint {
    /// Of each request.
    pub request_bytes: u64,
    /// Requests under way for each user.
    pub depth: u32,
    /// How many of a hundred requests read.
    pub read_percent: u32,
}

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Values<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> Values<T> {
    fn list(written: Option<&Self>, unasked: T) -> Vec<T> {
        match written {
            None => vec![unasked],
            Some(Self::One(one)) => vec![one.clone()],
            Some(Self::Many(list)) => list.clone(),
        }
    }
}

/// Direct requests are of whole blocks of any disk.
const REQUEST_BYTES_UNIT: u64 = 4 << 10;
const REQUEST_BYTES_MOST: u64 = 16 << 20;
const DEPTH_MOST: u32 = 1024;
const UNDER_WAY_BYTES_MOST: u64 = 4 << 30;
/// Fewer places are no random ones.
const PLACES_LEAST: u64 = 64;
/// Beyond this nobody reads the map, nor waits for it.
const POINTS_MOST: usize = 100;

impl Pattern {
    /// Bytes of a request, where nothing else is said.
    #[must_use]
    pub const fn request_bytes(self) -> u64 {
        match self {
            Self::SequentialRead | Self::SequentialWrite => 1 << 20,
            Self::RandomRead | Self::RandomWrite | Self::RandomMixed | Self::Log => 8 << 10,
        }
    }

    /// How many of a hundred requests read, where nothing else is said.
    #[must_use]
    pub const fn read_percent(self) -> u32 {
        match self {
            Self::RandomRead | Self::SequentialRead => 100,
            Self::RandomMixed => 70,
            Self::RandomWrite | Self::SequentialWrite | Self::Log => 0,
        }
    }
}

impl RawWorkload {
    /// Each combination of what is listed: by share of reads, then by size, then by depth.
    pub(super) fn points(&self) -> Result<Vec<BlockPoint>, String> {
        let pattern = self.pattern.unwrap_or(Pattern::RandomRead);
        let sizes = match &self.block_size {
            None => vec![pattern.request_bytes()],
            Some(Values::One(text)) => vec![parse_size(text)?],
            Some(Values::Many(list)) => {
                (list.iter().map(|text| parse_size(text))).collect::<Result<_, _>>()?
            }
        };
        let is_size = |bytes: &u64| {
            bytes.is_multiple_of(REQUEST_BYTES_UNIT)
                && (REQUEST_BYTES_UNIT..=REQUEST_BYTES_MOST).contains(bytes)
        };
        if !sizes.iter().all(is_size) {
            return Err(
                "`block_size` is a multiple of 4 KiB, up to 16 MiB, as in [\"4 KiB\", \"64 KiB\"]"
                    .to_owned(),
            );
        }
        let depths = Values::list(self.depth.as_ref(), 16);
        if !(depths.iter()).all(|depth| (1..=DEPTH_MOST).contains(depth)) {
            return Err(format!("`depth` lies between 1 and {DEPTH_MOST}"));
        }
        let shares = Values::list(self.read_percent.as_ref(), pattern.read_percent());
        if !shares.iter().all(|share| *share <= 100) {
            return Err("`read_percent` lies between 0 and 100".to_owned());
        }
        if self.read_percent.is_some() && pattern != Pattern::RandomMixed {
            return Err("`read_percent` is for `pattern = \"random-mixed\"`".to_owned());
        }
        let is_serial = pattern == Pattern::Log || self.regime == Some(Regime::Cached);
        if is_serial && depths.len() > 1 {
            return Err(
                "`depth` lists nothing for `log` and for `cached`: there each user waits for each request"
                    .to_owned(),
            );
        }
        let users = self.users.as_ref().map_or(1, Users::most);
        let deepest = u64::from(*depths.iter().max().unwrap_or(&1)) * u64::from(users);
        let largest = *sizes.iter().max().unwrap_or(&0);
        if self.kind == Kind::Block && largest.saturating_mul(deepest) > UNDER_WAY_BYTES_MOST {
            return Err(
                "`block_size` times `depth` times `users` is at most 4 GiB: so much memory fio would take"
                    .to_owned(),
            );
        }
        check_growing("block_size", &sizes)?;
        check_growing("depth", &depths)?;
        check_growing("read_percent", &shares)?;
        let count = sizes.len() * depths.len() * shares.len();
        if count > POINTS_MOST {
            return Err(format!(
                "`block_size`, `depth` and `read_percent` make {count} loads together; {POINTS_MOST} are the most"
            ));
        }
        if count > 1 && self.has_several_users() {
            return Err(
                "lists of `block_size`, `depth` or `read_percent` are for one number of users"
                    .to_owned(),
            );
        }
        let mut points = Vec::with_capacity(count);
        for read_percent in &shares {
            for request_bytes in &sizes {
                points.extend(depths.iter().map(|depth| BlockPoint {
                    request_bytes: *request_bytes,
                    depth: *depth,
                    read_percent: *read_percent,
                }));
            }
        }
        Ok(points)
    }
}

impl RawWorkload {
    /// Random requests have somewhere to go.
    pub(super) fn check_places(&self, size_bytes: u64) -> Result<(), String> {
        let is_random = matches!(
            self.pattern.unwrap_or(Pattern::RandomRead),
            Pattern::RandomRead | Pattern::RandomWrite | Pattern::RandomMixed
        );
        let largest = (self.points()?.iter())
            .map(|point| point.request_bytes)
            .max();
        let needed = largest.unwrap_or(0) * PLACES_LEAST;
        if self.kind == Kind::Block && is_random && size_bytes < needed {
            return Err(format!(
                "`size` holds {PLACES_LEAST} requests at least: {} MiB for these",
                needed >> 20
            ));
        }
        Ok(())
    }
}

fn check_growing<T: PartialOrd>(name: &str, list: &[T]) -> Result<(), String> {
    if list.is_empty() || !list.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(format!("`{name}` lists growing values"));
    }
    Ok(())
}

impl Workload {
    /// What tells this point from others of its pattern, where that is not as usual.
    pub(super) fn point_words(&self) -> Vec<String> {
        let mut words = vec![self.pattern.name().to_owned()];
        if self.point.read_percent != self.pattern.read_percent() {
            words.push(format!("{} % read", self.point.read_percent));
        }
        if self.point.request_bytes != self.pattern.request_bytes() {
            words.push(show_request(self.point.request_bytes));
        }
        words
    }

    /// Which point of the map it is, where it is one.
    #[must_use]
    pub fn point(&self) -> Option<BlockPoint> {
        (self.kind == Kind::Block).then_some(self.point)
    }
}

/// A size of a request in whole units.
#[must_use]
pub fn show_request(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    fn parse(load: &str) -> Result<Vec<String>, String> {
        let text = format!(
            "contenders = [\"raw\"]\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"block\"\n{load}\n"
        );
        let experiment = Experiment::parse(&text).map_err(|mistake| mistake.message)?;
        Ok((experiment.workloads.iter())
            .map(|load| load.title())
            .collect())
    }

    #[test]
    fn lists_make_a_load_of_each_combination_and_what_is_usual_is_not_told() {
        let one = parse("").unwrap();
        assert_eq!(one, ["block, random-read, depth 16, 1 user, cold"]);
        let map = "pattern = \"random-mixed\"\nblock_size = [\"4 KiB\", \"8 KiB\", \"1 MiB\"]\n\
                   depth = [1, 32]\nread_percent = [0, 70]\n";
        let titles = parse(map).unwrap();
        assert_eq!(titles.len(), 12);
        assert_eq!(
            titles[0],
            "block, random-mixed, 0 % read, 4 KiB, depth 1, 1 user, cold"
        );
        // Of the pattern itself: 70 of a hundred read, 8 KiB each.
        assert_eq!(titles[9], "block, random-mixed, depth 32, 1 user, cold");
    }

    #[test]
    fn what_makes_no_map_is_refused() {
        for (load, wanted) in [
            ("block_size = \"5 KiB\"", "multiple of 4 KiB"),
            ("block_size = \"32 MiB\"", "up to 16 MiB"),
            ("block_size = [\"8 KiB\", \"4 KiB\"]", "growing"),
            ("block_size = []", "growing"),
            ("depth = [1, 1]", "growing"),
            ("depth = [0, 1]", "between 1 and 1024"),
            ("read_percent = 50", "random-mixed"),
            ("pattern = \"log\"\ndepth = [1, 2]", "waits for each"),
            ("regime = \"cached\"\ndepth = [1, 2]", "waits for each"),
            ("block_size = \"16 MiB\"\ndepth = 1024", "at most 4 GiB"),
            ("block_size = \"1 MiB\"\nsize = \"32 MiB\"", "64 requests"),
            (
                "pattern = \"random-mixed\"\nread_percent = 101",
                "between 0 and 100",
            ),
            ("users = [1, 2]\ndepth = [1, 2]", "one number of users"),
            (
                "depth = [1,2,3,4,5,6,7,8,9,10,11]\n\
                 block_size = [\"4 KiB\",\"8 KiB\",\"12 KiB\",\"16 KiB\",\"20 KiB\",\"24 KiB\",\"28 KiB\",\"32 KiB\",\"36 KiB\",\"40 KiB\"]",
                "100 are the most",
            ),
        ] {
            let message = parse(load).unwrap_err();
            assert!(message.contains(wanted), "{load}: {message}");
        }
    }
}
