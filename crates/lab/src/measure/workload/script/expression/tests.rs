//! Expressions against what pgbench gives for them; `tests/script_referee.rs` asks pgbench itself.

use super::*;

fn value(text: &str) -> Result<Datum, String> {
    let variables = [
        ("n".to_owned(), Variable::Datum(Datum::Integer(5))),
        ("t".to_owned(), Variable::Text("12".to_owned())),
        ("w".to_owned(), Variable::Text("word".to_owned())),
    ]
    .into();
    Expression::parse(text)?.value(&variables, &mut fastrand::Rng::with_seed(1))
}

#[test]
fn operators_bind_and_types_follow_as_in_pgbench() {
    use Datum::{Boolean, Double, Integer, Null};
    for (text, wanted) in [
        ("1 + 2 * 3", Integer(7)),
        ("(1 + 2) * 3", Integer(9)),
        ("7 / 2", Integer(3)),
        ("-7 / 2", Integer(-3)),
        ("-7 % 3", Integer(-1)),
        ("7 / 2.0", Double(3.5)),
        ("2 - 3 - 4", Integer(-5)),
        ("- - 3", Integer(3)),
        ("-9223372036854775808", Integer(i64::MIN)),
        ("1 << 3 + 1", Integer(16)),
        ("6 & 3 | 8", Integer(10)),
        ("~ 1 + 1", Integer(-3)),
        ("1 < 2 and 2 < 1", Boolean(false)),
        ("not 1 = 2", Boolean(true)),
        ("null is null", Boolean(true)),
        ("1 is not null", Boolean(true)),
        ("1 isnull", Boolean(false)),
        ("1 notnull", Boolean(true)),
        ("null + 1", Null),
        ("null and false", Null),
        ("false and null", Boolean(false)),
        ("null or true", Null),
        ("null or false", Null),
        ("true or null", Boolean(true)),
        (
            "case when 1 > 2 then 3 when null then 4 else 5 end",
            Integer(5),
        ),
        ("CASE WHEN 0 THEN 1 END", Null),
        ("greatest(1, 5, 3)", Integer(5)),
        ("least(1, 0.5)", Double(0.5)),
        ("abs(-4)", Integer(4)),
        ("int(2.5)", Integer(2)),
        ("mod(17, 5)", Integer(2)),
        ("1e2", Double(100.0)),
        (".5 + .5", Double(1.0)),
        (":n * :t", Integer(60)),
        ("hash(10, 5432)", Integer(-5_817_877_081_768_721_676)),
        ("hash_fnv1a(10, 5432)", Integer(-7_793_829_335_365_542_153)),
    ] {
        assert_eq!(value(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused_by_what_is_wrong() {
    for (text, wanted) in [
        ("", "a value was expected at the end"),
        ("1 +", "a value was expected at the end"),
        ("1 2", "nothing was expected where `2` stands"),
        ("1 < 2 < 3", "nothing was expected where `<` stands"),
        ("(1", "`)` was expected at the end"),
        (
            "randm(1, 2)",
            "there is no function `randm`; did you mean random",
        ),
        ("min(1, 2)", "pgbench calls it `least`"),
        ("permute(1, 2)", "the lab has no `permute`"),
        ("random(1)", "`random` takes 2 operands, here are 1"),
        ("least()", "`least` takes at least 1 operands"),
        ("1 ? 2", "`?` means nothing"),
        (
            "9223372036854775808",
            "a value was expected where `9223372036854775808` stands",
        ),
        ("99999999999999999999", "is too large"),
        ("12abc", "belongs to no number"),
        ("1 is 2", "`NULL`, `TRUE` or `FALSE` was expected"),
        ("case 1 end", "`WHEN` was expected"),
    ] {
        let said = Expression::parse(text).unwrap_err();
        assert!(said.contains(wanted), "{text}: {said}");
    }
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(
        Expression::parse(&deep)
            .unwrap_err()
            .contains("nested too deeply")
    );
    assert!(Expression::parse(&"-".repeat(5000)).is_err());
    assert!(Expression::parse(&"~".repeat(5000)).is_err());
}

#[test]
fn what_has_no_value_is_told_and_never_a_number() {
    for (text, wanted) in [
        ("1 / 0", "a division by zero"),
        ("1 % 0", "a division by zero"),
        ("9223372036854775807 + 1", "out of the range"),
        ("-9223372036854775808 / -1", "out of the range"),
        ("true + 1", "is no whole number"),
        ("not 1", "is no truth value"),
        ("1 << 64", "a shift by 64 bits"),
        (":w + 1", "neither number nor truth value"),
        (":nobody", "there is no variable `:nobody`"),
        ("random(2, 1)", "an empty range"),
        ("random_gaussian(1, 2, 1.9)", "is at least 2"),
        ("random_exponential(1, 2, 0)", "is greater than 0"),
        ("random_zipfian(1, 2, 1)", "lies between 1.001 and 1000"),
    ] {
        let said = value(text).unwrap_err();
        assert!(said.contains(wanted), "{text}: {said}");
    }
}

/// Whatever stands there, it is read or refused, and nothing breaks.
#[test]
fn no_text_breaks_the_reader_or_the_calculator() {
    let words = [
        "1",
        "0",
        "2.5",
        "1e400",
        ":n",
        ":t",
        ":w",
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<",
        "<=",
        "<<",
        ">>",
        "~",
        "#",
        "&",
        "|",
        "=",
        "and",
        "or",
        "not",
        "is",
        "null",
        "true",
        "case",
        "when",
        "then",
        "else",
        "end",
        "random(",
        "least(",
        "9223372036854775807",
        "9223372036854775808",
        "ä",
        "\\",
        "'",
        ".",
        ":",
    ];
    let mut random = fastrand::Rng::with_seed(3);
    let mut read = 0;
    for _ in 0..200_000 {
        let count = random.usize(1..9);
        let text: Vec<&str> = (0..count).filter_map(|_| random.choice(words)).collect();
        read += usize::from(value(&text.join(" ")).is_ok());
    }
    assert!(read > 1000, "{read} of them mean something");
}

#[test]
fn draws_stay_within_their_range_and_lie_where_their_distribution_has_them() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut mean = |text: &str| {
        let expression = Expression::parse(text).unwrap();
        let mut sum = 0;
        for _ in 0..20_000 {
            let drawn = expression.value(&Variables::new(), &mut random).unwrap();
            let drawn = drawn.integer().unwrap();
            assert!((11..=110).contains(&drawn), "{text}: {drawn}");
            sum += drawn;
        }
        sum / 20_000
    };
    assert!((58..=62).contains(&mean("random(11, 110)")));
    assert!((58..=62).contains(&mean("random_gaussian(11, 110, 5.0)")));
    // A tenth of the range on average, of which the end is cut off.
    assert!((19..=21).contains(&mean("random_exponential(11, 110, 10.0)")));
    assert!((16..=20).contains(&mean("random_zipfian(11, 110, 1.5)")));
}
