//! What a client does between the text of a script and its session.

use super::*;

#[test]
fn values_stand_wherever_pgbench_puts_them() {
    let variables: Variables = [
        ("a".to_owned(), Variable::Datum(Datum::Integer(-7))),
        ("ab".to_owned(), Variable::Text("it's".to_owned())),
        ("d".to_owned(), Variable::Datum(Datum::Double(0.5))),
        ("n".to_owned(), Variable::Datum(Datum::Null)),
    ]
    .into();
    for (text, wanted) in [
        ("SELECT :a, :ab", "SELECT -7, it's"),
        ("SELECT ':a'::int8", "SELECT '-7'::int8"),
        ("SELECT :d::float8", "SELECT 0.5::float8"),
        ("SELECT '12:34:56'", "SELECT '12:34:56'"),
        (
            "to_char(now(), 'HH24:MI:SS')",
            "to_char(now(), 'HH24:MI:SS')",
        ),
        ("SELECT x[1:2], :abc", "SELECT x[1:2], :abc"),
        ("SELECT :n;:", "SELECT NULL;:"),
        ("ä:aä", "ä:aä"),
    ] {
        assert_eq!(substituted(text, &variables), wanted);
    }
}

#[test]
fn scripts_are_drawn_by_their_weights() {
    let script = parse::parse("SELECT 1;").unwrap();
    let of = |weight| Playable {
        path: String::new(),
        weight,
        script: script.clone(),
    };
    let scripts = [of(1), of(0), of(3)];
    let mut random = fastrand::Rng::with_seed(2);
    let mut counts = [0, 0, 0];
    for _ in 0..40_000 {
        counts[drawn(&scripts, &mut random)] += 1;
    }
    assert_eq!(counts[1], 0);
    assert!((9_500..10_500).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_run_counts_as_a_change_once_what_it_changed_is_committed() {
    let heard = |verbs: &[(Verb, u64)]| {
        let mut transaction = Transaction::default();
        for (verb, count) in verbs {
            transaction.hear(*verb, 3, *count);
        }
        (transaction.committed, transaction.begun)
    };
    use Verb::{Begin, Change, Commit, Other, Rollback};
    assert_eq!(heard(&[(Change, 1)]), (true, None));
    assert_eq!(heard(&[(Change, 0), (Other, 5)]), (false, None));
    assert_eq!(heard(&[(Begin, 0), (Change, 2), (Commit, 0)]), (true, None));
    assert_eq!(
        heard(&[(Begin, 0), (Change, 2), (Rollback, 0)]),
        (false, None)
    );
    assert_eq!(heard(&[(Begin, 0), (Change, 2)]), (false, Some(3)));
}
