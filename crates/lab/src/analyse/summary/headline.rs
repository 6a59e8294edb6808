//! The verdicts as sentences that a reader believes to be all there is: with the interval, and with
//! nothing that the figures do not carry.

use super::{ContenderSummary, Ratio, Summary, WorkloadSummary};
use crate::analyse::verdict::Verdict;

pub(super) fn sentences(summary: &Summary) -> Vec<String> {
    let mut sentences = Vec::new();
    for overall in &summary.overall {
        sentences.push(format!(
            "Over all loads {} (geometric mean).",
            said(
                &overall.name,
                &summary.baseline,
                Some(&overall.ratio),
                overall.verdict
            )
        ));
    }
    for workload in &summary.workloads {
        for contender in &workload.contenders {
            if let Some(verdict) = contender.verdict {
                sentences.push(sentence(workload, contender, &summary.baseline, verdict));
            }
        }
    }
    if sentences.is_empty() {
        sentences.push("Nothing was compared.".to_owned());
    }
    sentences
}

fn sentence(
    workload: &WorkloadSummary,
    contender: &ContenderSummary,
    baseline: &str,
    verdict: Verdict,
) -> String {
    let said = said(&contender.name, baseline, contender.ratio.as_ref(), verdict);
    let mut sentence = format!("{}: {said}", workload.title);
    if verdict == Verdict::Inconclusive {
        let reason = contender
            .doubts
            .iter()
            .chain(&workload.doubts)
            .find(|told| told.doubt.forbids_a_claim())
            .map(|told| told.what.clone());
        if let Some(reason) = reason {
            sentence.push_str(". ");
            sentence.push_str(reason.trim_end_matches('.'));
        } else if workload.noise_floor > 0.0 {
            sentence.push_str(&format!(
                ". The baseline against itself lies within {:.1} %",
                workload.noise_floor * 100.0
            ));
        }
    }
    sentence.push('.');
    sentence
}

fn said(name: &str, baseline: &str, ratio: Option<&Ratio>, verdict: Verdict) -> String {
    let Some(ratio) = ratio else {
        return format!(
            "{name} against {baseline} is {}: no run of it was measured",
            verdict.word()
        );
    };
    let interval = match (ratio.low, ratio.high, ratio.confidence) {
        (Some(low), Some(high), Some(confidence)) => {
            format!(
                "ratio {:.3}, {:.1} % interval {low:.3} to {high:.3}",
                ratio.centre,
                confidence * 100.0
            )
        }
        _ => format!("ratio {:.3}, no interval", ratio.centre),
    };
    match verdict {
        Verdict::Faster => format!(
            "{name} is {:.0} % FASTER than {baseline} ({interval})",
            (ratio.centre - 1.0) * 100.0
        ),
        Verdict::Slower => format!(
            "{name} is {:.0} % SLOWER than {baseline} ({interval})",
            (1.0 - ratio.centre) * 100.0
        ),
        Verdict::Equivalent => format!("{name} and {baseline} are EQUIVALENT ({interval})"),
        Verdict::Inconclusive => format!("{name} against {baseline} is INCONCLUSIVE ({interval})"),
    }
}
