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
fn a_transaction_counts_once_what_it_changed_is_committed() {
    // Messages of statements: how many transactions with changes were committed and given up, and
    // where an open one began.
    let heard = |messages: &[&[(Verb, u64)]]| {
        let mut transaction = Transaction::default();
        for message in messages {
            for (verb, count) in *message {
                transaction.hear(*verb, 3, *count);
            }
            transaction.end_of_message();
        }
        let Transaction {
            committed,
            given_up,
            begun,
            ..
        } = transaction;
        (committed, given_up, begun)
    };
    use Verb::{Begin, Change, Commit, Other, Rollback};
    assert_eq!(heard(&[&[(Change, 1)]]), (1, 0, None));
    assert_eq!(heard(&[&[(Change, 0)], &[(Other, 5)]]), (0, 0, None));
    let begun: &[(Verb, u64)] = &[(Begin, 0)];
    let changed: &[(Verb, u64)] = &[(Change, 2)];
    assert_eq!(heard(&[begun, changed, &[(Commit, 0)]]), (1, 0, None));
    assert_eq!(heard(&[begun, changed, &[(Rollback, 0)]]), (0, 1, None));
    assert_eq!(heard(&[begun, changed]), (0, 0, Some(3)));
    // Each by itself is a transaction, and those that go together are one.
    assert_eq!(heard(&[changed, changed]), (2, 0, None));
    assert_eq!(heard(&[&[(Change, 1), (Change, 1)]]), (1, 0, None));
    assert_eq!(
        heard(&[&[(Begin, 0), (Change, 1), (Commit, 0), (Change, 1)]]),
        (2, 0, None)
    );
}

#[test]
fn what_wrote_uncounted_is_told_and_what_the_server_does_by_itself_is_not() {
    assert_eq!(uncounted(0, 0), None);
    // Vacuums that were under way at both ends; a sequence beside each transaction.
    assert_eq!(uncounted(16, 0), None);
    assert_eq!(uncounted(33_000, 32_000), None);
    assert_eq!(uncounted(900, 1000), None);
    let said = uncounted(1000, 0).unwrap();
    assert!(
        said.contains("1000 transactions wrote, of which 0"),
        "{said}"
    );
    // One uncounted beside each that is counted.
    assert!(uncounted(2000, 1000).is_some());
}
