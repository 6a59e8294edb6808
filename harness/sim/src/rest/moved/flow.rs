//! The cheapest way for bytes from the places that have too many to those that have too few, where from
//! one place to another only so many can go: a flow of least cost, found by shortest paths one after
//! another (successive shortest paths; Bellman and Ford's search, because a way back counts less than
//! nothing).

use std::collections::{BTreeMap, VecDeque};

use super::Place;

pub(super) struct Flow {
    /// By place: bytes that are to leave it.
    surplus: BTreeMap<Place, u64>,
    /// By place: bytes that are to come to it.
    lacked: BTreeMap<Place, u64>,
    /// By the two ends of a hop: bytes that can still take it.
    left: BTreeMap<Place, BTreeMap<Place, u64>>,
    /// By the two ends of a hop: bytes that take it.
    used: BTreeMap<Place, BTreeMap<Place, u64>>,
}

/// A hop of a path: from, to, and whether it takes back what went the other way.
type Hop = (Place, Place, bool);

impl Flow {
    pub(super) fn new(surplus: BTreeMap<Place, u64>, lacked: BTreeMap<Place, u64>) -> Self {
        Self {
            surplus,
            lacked,
            left: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// So many more bytes can go directly from one place to the other.
    pub(super) fn allow(&mut self, from: Place, to: Place, bytes: u64) {
        if from != to {
            *entry(&mut self.left, from, to) += bytes;
        }
    }

    /// Bytes times the hops that they take. What finds no way counts as one hop.
    pub(super) fn hops_bytes(mut self) -> u64 {
        while let Some(path) = self.cheapest_path() {
            self.send(&path);
        }
        let hops: u64 = self.used.values().flat_map(BTreeMap::values).sum();
        hops + self.lacked.values().sum::<u64>()
    }

    /// From a place that has too many bytes to one that has too few.
    fn cheapest_path(&self) -> Option<Vec<Hop>> {
        let mut cost: BTreeMap<Place, i64> = BTreeMap::new();
        let mut came_by: BTreeMap<Place, Hop> = BTreeMap::new();
        let mut waiting: VecDeque<Place> = VecDeque::new();
        for (place, _) in self.surplus.iter().filter(|(_, bytes)| **bytes > 0) {
            cost.insert(*place, 0);
            waiting.push_back(*place);
        }
        while let Some(from) = waiting.pop_front() {
            for (to, is_back) in self.hops(from) {
                let through = cost[&from] + if is_back { -1 } else { 1 };
                if cost.get(&to).is_none_or(|known| through < *known) {
                    cost.insert(to, through);
                    came_by.insert(to, (from, to, is_back));
                    waiting.push_back(to);
                }
            }
        }
        let is_lacking = |place: &&Place| self.lacked.get(*place).is_some_and(|bytes| *bytes > 0);
        let mut place = *(cost.keys().filter(is_lacking)).min_by_key(|place| cost[*place])?;
        let mut path = Vec::new();
        while let Some(hop) = came_by.get(&place) {
            path.push(*hop);
            place = hop.0;
        }
        path.reverse();
        Some(path)
    }

    fn hops(&self, from: Place) -> impl Iterator<Item = (Place, bool)> {
        let forward = self.left.get(&from).into_iter().flatten();
        let forward = forward
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(to, _)| (*to, false));
        let used = self.used.iter();
        let back =
            used.filter(move |(_, by_end)| by_end.get(&from).is_some_and(|bytes| *bytes > 0));
        forward.chain(back.map(|(to, _)| (*to, true)))
    }

    /// As many bytes as can go this way.
    fn send(&mut self, path: &[Hop]) {
        let (Some((start, _, _)), Some((_, end, _))) = (path.first(), path.last()) else {
            return;
        };
        let room = |&(from, to, is_back): &Hop| {
            if is_back {
                self.used[&to][&from]
            } else {
                self.left[&from][&to]
            }
        };
        let most = path.iter().map(room).min().unwrap_or(0);
        let bytes = most.min(self.surplus[start]).min(self.lacked[end]);
        for &(from, to, is_back) in path {
            if is_back {
                *entry(&mut self.used, to, from) -= bytes;
                *entry(&mut self.left, to, from) += bytes;
            } else {
                *entry(&mut self.left, from, to) -= bytes;
                *entry(&mut self.used, from, to) += bytes;
            }
        }
        *self.surplus.entry(*start).or_default() -= bytes;
        *self.lacked.entry(*end).or_default() -= bytes;
    }
}

fn entry(hops: &mut BTreeMap<Place, BTreeMap<Place, u64>>, from: Place, to: Place) -> &mut u64 {
    hops.entry(from).or_default().entry(to).or_default()
}
