//! What else goes on while a load runs: a load of its own for each, next to the same load alone.

use serde::{Deserialize, Serialize};

use super::{Kind, RawWorkload, Workload};

/// What goes on beside a load, again and again for as long as it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Companion {
    /// Every file of the database is read once from its beginning to its end.
    Backup,
    /// A device leaves and comes back, and the data moves each time.
    Rebalance,
    /// A device of a mirror goes, and gets what it missed when it is back.
    Resync,
}

impl Companion {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Rebalance => "rebalance",
            Self::Resync => "resync",
        }
    }
}

/// `beside = "backup"` or `beside = ["backup", "rebalance"]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "`beside` is \"backup\", \"rebalance\" or \"resync\", or a list of them"
)]
pub(super) enum Companions {
    One(Companion),
    Many(Vec<Companion>),
}

impl Companions {
    fn all(&self) -> &[Companion] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(list) => list,
        }
    }
}

impl RawWorkload {
    /// What is to go on beside the load, each by itself.
    pub(super) fn companions(&self) -> Result<Vec<Companion>, String> {
        let Some(list) = &self.beside else {
            return Ok(Vec::new());
        };
        let all = list.all().to_vec();
        if all.is_empty() {
            return Err("`beside` lists something, or is left out".to_owned());
        }
        for (index, one) in all.iter().enumerate() {
            if all[..index].contains(one) {
                return Err(format!("`beside` lists \"{}\" twice", one.name()));
            }
        }
        if self.open.is_some() || self.has_several_users() {
            return Err(
                "`beside` is for one number of users: leave the lists of `users` and `open` away"
                    .to_owned(),
            );
        }
        Ok(all)
    }
}

impl Workload {
    /// Whether something may go on beside it: it goes on for a stated time, in a database.
    pub(super) fn may_have_company(&self) -> bool {
        self.kind.needs_database() && !self.is_measured_to_its_end()
    }

    /// The kinds of loads that something may go on beside.
    pub(super) const WITH_COMPANY: [Kind; 6] = [
        Kind::Growth,
        Kind::Random,
        Kind::Tpcb,
        Kind::Tpcc,
        Kind::As3ap,
        Kind::Script,
    ];
}
