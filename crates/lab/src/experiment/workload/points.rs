//! One `[[workload]]` as several loads: a point of the scaling curve for each number of users, and
//! an open load for each share of the slowest contender's peak, the load once more beside what else
//! is to go on, and each combination of sizes and depths of requests.

use serde::Deserialize;

use super::{RawWorkload, USERS_AT_MOST, Workload};

/// `users = 8` or `users = [1, 2, 4, 8]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "`users` is a number, or a list of them as in [1, 2, 4, 8]"
)]
pub(super) enum Users {
    One(u32),
    Many(Vec<u32>),
}

impl Users {
    /// The largest number there is; none at all counts as zero, which is refused.
    pub(super) fn most(&self) -> u32 {
        match self {
            Self::One(users) => *users,
            Self::Many(list) => list.iter().copied().max().unwrap_or(0),
        }
    }

    /// The smallest number there is.
    pub(super) fn least(&self) -> u32 {
        match self {
            Self::One(users) => *users,
            Self::Many(list) => list.iter().copied().min().unwrap_or(0),
        }
    }
}

/// Beyond this an open load would not keep up with the slowest contender.
const PERCENT_AT_MOST: u32 = 99;

impl RawWorkload {
    /// Every load that it asks for: closed ones by their users, then the open ones, then
    /// those with something beside them.
    ///
    /// # Errors
    /// What does not go together, in a line.
    pub(in crate::experiment) fn loads(self, family: usize) -> Result<Vec<Workload>, String> {
        let open = self.open.clone();
        let users = match &self.users {
            Some(Users::Many(list)) => Some(list.clone()),
            _ => None,
        };
        let has_rate = self.rate.is_some();
        let has_think_time = self.think_time.is_some();
        let companions = self.companions()?;
        let points = self.points()?;
        let base = Workload {
            family,
            ..self.check()?
        };
        if let Some(list) = &users {
            check_users(list)?;
            if has_rate {
                return Err(
                    "`rate` makes the load open: a list of `users` is for closed ones".to_owned(),
                );
            }
        }
        if let Some(list) = &open {
            check_percents(list)?;
            if has_rate || has_think_time {
                return Err(
                    "`open` finds the rate by itself from closed loads without pauses: leave `rate` and `think_time` away"
                        .to_owned(),
                );
            }
        }
        let users = users.unwrap_or_else(|| vec![base.users]);
        let closed = (users.into_iter()).flat_map(|users| {
            let load = Workload {
                users,
                ..base.clone()
            };
            points.iter().map(move |point| Workload {
                point: *point,
                ..load.clone()
            })
        });
        let open = open
            .unwrap_or_default()
            .into_iter()
            .map(|percent| Workload {
                open_percent: Some(percent),
                ..base.clone()
            });
        if !companions.is_empty() && !base.may_have_company() {
            return Err(format!(
                "`beside` is for loads that go on for `duration`; `{}` in this mode ends when its work is done",
                base.kind.name()
            ));
        }
        let accompanied = companions.into_iter().map(|beside| Workload {
            beside: Some(beside),
            ..base.clone()
        });
        Ok(closed.chain(open).chain(accompanied).collect())
    }

    pub(super) fn has_several_users(&self) -> bool {
        matches!(&self.users, Some(Users::Many(list)) if list.len() > 1)
    }
}

fn check_users(list: &[u32]) -> Result<(), String> {
    if list.is_empty()
        || list
            .iter()
            .any(|users| !(1..=USERS_AT_MOST).contains(users))
    {
        return Err(format!(
            "`users` lists numbers between 1 and {USERS_AT_MOST}, as in [1, 2, 4, 8]"
        ));
    }
    if !list.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err("`users` lists growing numbers, as in [1, 2, 4, 8]".to_owned());
    }
    Ok(())
}

fn check_percents(list: &[u32]) -> Result<(), String> {
    let is_wrong = |percent: &u32| !(1..=PERCENT_AT_MOST).contains(percent);
    if list.is_empty()
        || list.iter().any(is_wrong)
        || !list.windows(2).all(|pair| pair[0] < pair[1])
    {
        return Err(format!(
            "`open` lists growing shares of the slowest contender's peak, between 1 and {PERCENT_AT_MOST}, as in [50, 70, 90]"
        ));
    }
    Ok(())
}
