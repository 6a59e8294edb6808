//! Whether a claim rests on a storage whose power was cut. What was lost makes a class ([`super::class`]);
//! what nobody tried, or tried seldom, is a doubt beside the verdict.

use super::class::Found;
use crate::analyse::doubt::Doubt;
use crate::analyse::folder::Folder;
use crate::experiment::CUTS;
use crate::record::{AGAIN, Cut, DurabilityClass};

/// Of the contender behind a label. What is known to forget needs no cut.
pub(super) fn doubt(folder: &Folder, label: &str, found: Option<&Found>) -> Option<Doubt> {
    if found.is_some_and(|found| found.class == DurabilityClass::NotDurable) {
        return None;
    }
    let whose = label.strip_suffix(AGAIN).unwrap_or(label).to_owned();
    match folder.cuts.contenders.get(&whose) {
        None => Some(Doubt::NotCut {
            whose,
            reason: "the folder has no record of it".to_owned(),
            by_choice: true,
        }),
        Some(Cut::NotMade { reason, by_choice }) => Some(Doubt::NotCut {
            whose,
            reason: reason.clone(),
            by_choice: *by_choice,
        }),
        Some(Cut::Made { moments, .. }) => (*moments < CUTS).then(|| Doubt::CutAtFew {
            whose,
            moments: *moments,
            needed: CUTS,
            by_choice: folder
                .experiment
                .cuts
                .is_some_and(|asked| asked <= *moments),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::sample::{cut_at, experiment, folder, measured};
    use crate::analyse::summary::{Summary, summarise};
    use crate::analyse::verdict::Verdict;

    /// xfs is half as fast again as ext4, in so many blocks; what came of the cut is as it is given.
    fn of(cuts: Option<u32>, of_xfs: Option<Cut>, of_ext4: Option<Cut>) -> Summary {
        let mut asked = experiment(12);
        asked.cuts = cuts;
        let mut folder = folder(asked, |planned| {
            let speed = if planned.contender == "xfs" { 1.5 } else { 1.0 };
            measured(1000.0 * speed + f64::from(planned.number % 3))
        });
        folder.cuts.contenders.clear();
        for (name, cut) in [("xfs", of_xfs), ("ext4", of_ext4)] {
            let cut = cut.map(|cut| (name.to_owned(), cut));
            folder.cuts.contenders.extend(cut);
        }
        summarise(&folder)
    }

    fn not_made(by_choice: bool) -> Cut {
        Cut::NotMade {
            reason: "no FUSE".to_owned(),
            by_choice,
        }
    }

    fn of_xfs(summary: &Summary) -> (Option<Verdict>, Vec<String>) {
        let xfs = &summary.workloads[0].contenders[2];
        assert_eq!(xfs.name, "xfs");
        let told = xfs
            .doubts
            .iter()
            .filter(|told| matches!(told.doubt, Doubt::NotCut { .. } | Doubt::CutAtFew { .. }));
        (xfs.verdict, told.map(|told| told.what.clone()).collect())
    }

    #[test]
    fn where_the_power_could_have_been_cut_and_was_not_the_verdict_is_a_look_with_the_reason() {
        let cut = || Some(cut_at(200));
        for (of_one, of_other, whose) in [
            (Some(not_made(true)), cut(), "xfs"),
            (cut(), Some(not_made(true)), "ext4"),
            (None, cut(), "xfs"),
            (cut(), None, "ext4"),
        ] {
            let summary = of(Some(0), of_one, of_other);
            let (verdict, told) = of_xfs(&summary);
            assert_eq!(verdict, Some(Verdict::Look));
            let [told] = told.as_slice() else {
                panic!("{told:?}");
            };
            assert!(
                told.contains(&format!("The power of {whose} was not cut")),
                "{told}"
            );
            assert!(
                summary.headline[0].starts_with("This is a look, not a claim: the power of"),
                "{:?}",
                summary.headline
            );
            let sentence = crate::render::matrix::sentence(&summary);
            assert!(
                sentence
                    .starts_with("A look and no claim (power not cut): against ext4, xfs is 1.500"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn what_could_not_be_cut_or_was_cut_short_stands_beside_a_claim_with_its_number() {
        let (verdict, told) = of_xfs(&of(None, Some(not_made(false)), Some(cut_at(200))));
        assert_eq!(verdict, Some(Verdict::Faster));
        assert!(
            told[0].contains("was not cut before it was measured: no FUSE"),
            "{told:?}"
        );
        let (verdict, told) = of_xfs(&of(None, Some(cut_at(10)), Some(cut_at(200))));
        assert_eq!(verdict, Some(Verdict::Faster));
        assert!(
            told[0].contains("cut at 10 moments, where 200 are usual: there was no time")
                && told[0].contains("fewer than 26 of 100 moments"),
            "{told:?}"
        );
        let (verdict, told) = of_xfs(&of(None, Some(cut_at(200)), Some(cut_at(200))));
        assert_eq!((verdict, told), (Some(Verdict::Faster), Vec::new()));
    }

    #[test]
    fn who_asks_for_a_cut_or_two_has_a_look_as_who_asks_for_none() {
        let (verdict, told) = of_xfs(&of(Some(1), Some(cut_at(1)), Some(cut_at(1))));
        assert_eq!((verdict, told.len()), (Some(Verdict::Look), 2));
        assert!(told[0].contains("the file asks for no more"), "{told:?}");
        let (verdict, told) = of_xfs(&of(Some(60), Some(cut_at(60)), Some(cut_at(60))));
        assert_eq!((verdict, told.len()), (Some(Verdict::Faster), 2));
    }
}
