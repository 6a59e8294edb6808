//! A strict reader of the text format of Prometheus 0.0.4: what it accepts, Prometheus accepts.
#![allow(dead_code, reason = "each story uses what it needs")]
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

/// A sample: its name, its labels, its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Every sample of a text that keeps all the rules.
#[track_caller]
pub fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "the last line is ended");
    let mut samples: Vec<Sample> = Vec::new();
    let mut families: BTreeSet<String> = BTreeSet::new();
    let mut current: Option<(String, String)> = None;
    let mut helped: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.trim().is_empty(), "{line}");
            assert!(families.insert(name.to_owned()), "a family twice: {line}");
            helped = Some(name.to_owned());
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(helped.take().as_deref(), Some(name), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(is_name(name), "{line}");
            current = Some((name.to_owned(), kind.to_owned()));
            continue;
        }
        assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
        let sample = parse_sample(line);
        let (family, kind) = current.as_ref().unwrap();
        let suffix = sample
            .name
            .strip_prefix(family.as_str())
            .unwrap_or_else(|| {
                panic!("{line} stands under {family}");
            });
        let allowed: &[&str] = match kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line} stands under {family}");
        assert!(sample.value.is_finite(), "{line}");
        assert!(kind != "counter" || sample.value >= 0.0, "{line}");
        let same = |other: &&Sample| other.name == sample.name && other.labels == sample.labels;
        assert!(!samples.iter().any(|other| same(&other)), "twice: {line}");
        samples.push(sample);
    }
    assert_eq!(helped, None, "a help without a type");
    check_histograms(&samples);
    samples
}

/// The one sample with that name and these labels.
#[track_caller]
pub fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let fits = |sample: &&Sample| {
        sample.name == name
            && labels
                .iter()
                .all(|(label, value)| sample.labels.get(*label).map(String::as_str) == Some(*value))
    };
    let found: Vec<&Sample> = samples.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    found[0].value
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

#[track_caller]
fn parse_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let name = line[..end].to_owned();
    assert!(is_name(&name), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = &line[end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let mut value = String::new();
            let mut letters = after.char_indices();
            let close = loop {
                match letters.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        letter @ ('"' | '\\') => letter,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, letter) => value.push(letter),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[close + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '), "no timestamps here: {line}");
    Sample {
        name,
        labels,
        value: value.parse().unwrap(),
    }
}

/// Buckets grow with their bounds, the last is +Inf and equals the count.
fn check_histograms(samples: &[Sample]) {
    for count in samples
        .iter()
        .filter(|sample| sample.name.ends_with("_count"))
    {
        let family = count.name.strip_suffix("_count").unwrap();
        let bucket = format!("{family}_bucket");
        let mut last = (f64::NEG_INFINITY, 0.0);
        for sample in samples.iter().filter(|sample| sample.name == bucket) {
            let mut labels = sample.labels.clone();
            let bound = labels.remove("le").unwrap();
            if labels != count.labels {
                continue;
            }
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().unwrap()
            };
            assert!(bound > last.0 && sample.value >= last.1, "{sample:?}");
            last = (bound, sample.value);
        }
        assert_eq!(last, (f64::INFINITY, count.value), "{count:?}");
        let sum = format!("{family}_sum");
        let sums = samples
            .iter()
            .filter(|s| s.name == sum && s.labels == count.labels);
        assert_eq!(sums.count(), 1, "{count:?}");
    }
}
