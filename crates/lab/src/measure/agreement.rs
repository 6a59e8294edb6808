//! Every contender answers the same: runs of one block get the same load from the same seed, so that
//! what they answer must be the same. A run that disagrees with one before it has failed, whichever
//! of the two is wrong: the reason names both.

use std::collections::BTreeMap;
use std::path::Path;

use crate::record::{Outcome, Plan, Run, read_json};

/// Gives the run back, failed where it answered something else than an earlier run of `folder`.
pub fn checked(mut run: Run, plan: &Plan, folder: &Path) -> Run {
    let Some(measured) = run.measured() else {
        return run;
    };
    if measured.answers.is_empty() {
        return run;
    }
    let others = plan.runs.iter().filter(|other| {
        other.number != run.planned.number
            && other.block == run.planned.block
            && other.workload == run.planned.workload
            && other.seed == run.planned.seed
    });
    for other in others {
        let place = folder.join("runs").join(other.folder());
        let Ok(earlier) = read_json::<Run>(&place.join("run.json")) else {
            continue;
        };
        let Some(earlier) = earlier.measured() else {
            continue;
        };
        if let Some(difference) = difference(&measured.answers, &earlier.answers) {
            let reason = format!(
                "a check failed: it does not answer what {} answered: {difference}",
                other.folder()
            );
            run.outcome = Outcome::Failed {
                reason,
                log_tail: String::new(),
            };
            break;
        }
    }
    run
}

fn difference(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Option<String> {
    if let Some((name, answer)) = one
        .iter()
        .find(|(name, answer)| other.get(*name).is_some_and(|of_other| of_other != *answer))
    {
        return Some(format!("{name} is {answer}, it was {}", other[name]));
    }
    (one.len() != other.len()).then(|| format!("{} answers, there were {}", one.len(), other.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(name, answer)| ((*name).to_owned(), (*answer).to_owned()))
            .collect()
    }

    #[test]
    fn another_answer_and_a_missing_one_are_told_and_the_same_are_not() {
        let one = answers(&[("query 1", "aa"), ("query 2", "bb")]);
        assert_eq!(difference(&one, &one.clone()), None);
        let other = answers(&[("query 1", "aa"), ("query 2", "cc")]);
        assert_eq!(
            difference(&one, &other).unwrap(),
            "query 2 is bb, it was cc"
        );
        let fewer = answers(&[("query 1", "aa")]);
        assert_eq!(difference(&one, &fewer).unwrap(), "2 answers, there were 1");
    }
}
