//! What the judge of the seeds knows of each sector, and counts.

/// What a sector may hold: the values from `floor` on, the last of which was written last.
#[derive(Clone, Default)]
pub struct Sector {
    pub values: Vec<u64>,
    pub floor: usize,
    /// The newest that was acknowledged, and in which life of the server.
    pub acknowledged: Option<(usize, u64)>,
    /// The newest that was read, which a flush makes durable, too.
    pub seen: Option<usize>,
    /// A loss was told, and it was not written since: what is read may never become durable.
    pub is_lost: bool,
}

impl Sector {
    /// What a flush that begins now makes durable.
    pub fn covered(&self) -> Option<usize> {
        self.acknowledged.map(|(at, _)| at).max(self.seen)
    }

    pub fn lose(&mut self) {
        self.acknowledged = None;
        self.seen = None;
        self.is_lost = true;
    }
}

#[derive(Default, Debug)]
pub struct Tally {
    pub written: u64,
    pub flushed: u64,
    pub read: u64,
    pub late: u64,
    pub full: u64,
    pub losses: u64,
    pub failovers: u64,
    pub reclaims: u64,
    pub replays: u64,
    pub restarts: u64,
    pub lost_blocks: u64,
    pub fenced: u64,
    pub dropped: u64,
    pub refused_commits: u64,
    pub successors: u64,
    pub bad: Vec<String>,
}

pub fn add(sum: &mut Tally, one: Tally) {
    sum.written += one.written;
    sum.flushed += one.flushed;
    sum.read += one.read;
    sum.late += one.late;
    sum.full += one.full;
    sum.losses += one.losses;
    sum.failovers += one.failovers;
    sum.reclaims += one.reclaims;
    sum.replays += one.replays;
    sum.restarts += one.restarts;
    sum.lost_blocks += one.lost_blocks;
    sum.fenced += one.fenced;
    sum.dropped += one.dropped;
    sum.refused_commits += one.refused_commits;
    sum.successors += one.successors;
    sum.bad.extend(one.bad);
}
