//! The streams and the rates. The queries themselves run in `tests/decision_support.rs`.

use std::collections::BTreeSet;

use super::*;
use crate::experiment::Experiment;

fn tpch(keys: &str) -> Tpch {
    let text = format!(
        "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n[[workload]]\nkind = \"tpch\"\n{keys}\n"
    );
    Tpch::new(&Experiment::parse(&text).unwrap().workloads[0])
}

fn queries(steps: &[Step]) -> BTreeSet<usize> {
    steps
        .iter()
        .filter_map(|step| match step {
            Step::Query(query) => Some(*query),
            _ => None,
        })
        .collect()
}

#[test]
fn the_power_stream_has_the_order_of_the_specification_and_the_refreshes_around_it() {
    let power = tpch("scale = 0.01\nrefresh = true");
    let steps = power.steps(0, 9);
    assert_eq!(steps.len(), 24);
    assert_eq!(steps[0], Step::Insert);
    assert_eq!(steps[1], Step::Query(14));
    assert_eq!(steps[22], Step::Query(12));
    assert_eq!(steps[23], Step::Delete);
    assert_eq!(queries(&steps), (1..=22).collect());
    assert_eq!(power.operations_each(), Some(24));
    assert_eq!(tpch("scale = 0.01").operations_each(), Some(22));
}

#[test]
fn every_stream_of_a_throughput_run_has_all_queries_in_an_order_of_its_own() {
    let throughput = tpch("scale = 0.01\nmode = \"throughput\"\nusers = 3");
    assert_eq!(throughput.first_stream(), 1);
    let orders: Vec<Vec<Step>> = (1..4).map(|stream| throughput.steps(stream, 9)).collect();
    assert_eq!(orders[0], throughput.steps(1, 9), "the seed decides");
    assert_ne!(orders[0], orders[1]);
    assert_ne!(orders[1], orders[2]);
    assert!(
        orders
            .iter()
            .all(|steps| queries(steps) == (1..=22).collect())
    );
}
