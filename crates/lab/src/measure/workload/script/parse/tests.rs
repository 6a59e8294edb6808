//! Scripts as people write them, right and wrong.

use super::super::command::Verb;
use super::*;

fn refused(text: &str) -> (usize, String) {
    let mistake = parse(text).unwrap_err();
    (mistake.line, mistake.message)
}

/// Each by its line, and in one line.
fn assert_refused(scripts: &[(&str, usize, &str)]) {
    for (text, line, wanted) in scripts {
        let (at, said) = refused(text);
        assert!(said.contains(wanted), "{text}: {said}");
        assert_eq!(at, *line, "{text}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

/// The statements of a script.
fn statements(text: &str) -> Vec<String> {
    let of = |step: Step| match step.command {
        Command::Sql { text, .. } => Some(text),
        _ => None,
    };
    parse(text)
        .unwrap()
        .steps
        .into_iter()
        .filter_map(of)
        .collect()
}

#[test]
fn the_script_of_pgbench_is_understood() {
    let script = parse(
        "\\set aid random(1, 100000 * :scale)\n\\set delta random(-5000, 5000)\nBEGIN;\n\
         UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
         SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\nEND;\n",
    )
    .unwrap();
    let lines: Vec<usize> = script.steps.iter().map(|step| step.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
    let verbs: Vec<Verb> = (script.steps.iter())
        .filter_map(|step| match &step.command {
            Command::Sql { verbs, .. } => verbs.first().copied(),
            _ => None,
        })
        .collect();
    assert_eq!(
        verbs,
        [Verb::Begin, Verb::Change, Verb::Other, Verb::Commit]
    );
}

#[test]
fn a_statement_ends_at_its_semicolon_and_at_no_other() {
    assert_eq!(
        statements(
            "-- a remark; with one\nSELECT ';', \"a;b\", $$;$$, $x$ ; $$ ; $x$, E'\\';' /* ; /* ; */ ; */;\n\
             CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);\n\
             SELECT 1 -- not; here\n + 2;\nSELECT 3 \\; SELECT 4;\nSELECT 'it''s;' ; ;\nSELECT a$1"
        ),
        [
            "SELECT ';', \"a;b\", $$;$$, $x$ ; $$ ; $x$, E'\\';' /* ; /* ; */ ; */",
            "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
            "SELECT 1 \n + 2",
            "SELECT 3 ; SELECT 4",
            "SELECT 'it''s;'",
            "SELECT a$1",
        ]
    );
    let together = parse("BEGIN \\; UPDATE t SET a = 1 \\; COMMIT;").unwrap();
    let Command::Sql { verbs, .. } = &together.steps[0].command else {
        panic!()
    };
    assert_eq!(verbs, &[Verb::Begin, Verb::Change, Verb::Commit]);
    // Comments lie in each other, and between words.
    let hidden =
        parse(r"/* a /* b */ ; */ UPDATE t SET a = 1 \; COMMIT /* c */ AND CHAIN;").unwrap();
    let Command::Sql { verbs, .. } = &hidden.steps[0].command else {
        panic!()
    };
    assert_eq!(verbs, &[Verb::Change, Verb::Other]);
}

#[test]
fn branches_go_where_they_should() {
    let script = parse(
        "\\set x random(1, 3)\n\\if :x = 1\nSELECT 1;\n\\elif :x = 2\nSELECT 2;\n\\else\n\\if true\nSELECT 3;\n\\endif\n\\endif\nSELECT 4;\n",
    )
    .unwrap();
    let walk = |x: i64| {
        let mut said = Vec::new();
        let mut at = 0;
        while let Some(step) = script.steps.get(at) {
            at += 1;
            match &step.command {
                Command::Sql { text, .. } => said.push(text.clone()),
                Command::Unless {
                    expression,
                    otherwise,
                } => {
                    let variables = [(
                        "x".to_owned(),
                        super::super::expression::Variable::Datum(
                            super::super::datum::Datum::Integer(x),
                        ),
                    )]
                    .into();
                    let datum = expression.value(&variables, &mut fastrand::Rng::with_seed(1));
                    if !datum.unwrap().is_true() {
                        at = *otherwise;
                    }
                }
                Command::Jump { to } => at = *to,
                _ => {}
            }
        }
        said
    };
    assert_eq!(walk(1), ["SELECT 1", "SELECT 4"]);
    assert_eq!(walk(2), ["SELECT 2", "SELECT 4"]);
    assert_eq!(walk(3), ["SELECT 3", "SELECT 4"]);
}

#[test]
fn pauses_and_rows_of_statements_are_understood() {
    let script =
        parse("\\sleep 5 ms\nSELECT 1 AS a \\gset p_\n\\sleep :p_a us\n\\set b :p_a \\\n + 1\n")
            .unwrap();
    let commands: Vec<Command> = script.steps.into_iter().map(|step| step.command).collect();
    let fixed = |count, unit_us| Command::Sleep {
        amount: Amount::Fixed(count),
        unit_us,
    };
    assert_eq!(commands[0], fixed(5, 1000));
    assert!(matches!(&commands[1], Command::Sql { prefix: Some(prefix), .. } if prefix == "p_"));
    assert!(matches!(&commands[2], Command::Sleep { unit_us: 1, .. }));
    assert!(matches!(&commands[3], Command::Set { variable, .. } if variable == "b"));
    let of = |line: &str| {
        parse(&format!("{line}\nSELECT 1;"))
            .unwrap()
            .steps
            .remove(0)
            .command
    };
    assert_eq!(of("\\sleep 2"), fixed(2, 1_000_000));
    assert_eq!(of("\\sleep 10ms"), fixed(10, 1000));
}

#[test]
fn what_is_not_known_is_refused_by_its_line_and_its_name() {
    assert_refused(&[
        ("SELECT 1;\n\\shell rm -rf /\n", 2, "no command `\\shell`"),
        (
            "SELECT 1;\n\n\\startpipeline\n",
            3,
            "no command `\\startpipeline`",
        ),
        ("SELECT 1 \\aset\n", 1, "no command `\\aset`; did you mean"),
        (
            "\\sett a 1\nSELECT 1;",
            1,
            "no command `\\sett`; did you mean set",
        ),
        (
            "SELECT 1;\n\\set a randm(1, 2)\n",
            2,
            "`\\set a`: there is no function `randm`; did you mean random",
        ),
        (
            "\\set a\nSELECT 1;",
            1,
            "takes a variable and an expression",
        ),
        ("\\set 1a 1\nSELECT 1;", 1, "`1a` is no name of a variable"),
        ("\\set a :b + 1\nSELECT 1;", 1, "`:b` is set nowhere"),
        ("\\if :x\nSELECT 1;\n\\endif", 1, "`:x` is set nowhere"),
        ("\\if true\nSELECT 1;\n", 1, "this `\\if` has no `\\endif`"),
        ("SELECT 1;\n\\endif\n", 2, "`\\endif` without `\\if`"),
        (
            "\\if 1\n\\else\n\\elif 2\n\\endif\nSELECT 1;",
            3,
            "`\\elif` behind `\\else`",
        ),
        (
            "\\if 1\n\\else\n\\else\n\\endif\nSELECT 1;",
            3,
            "a second `\\else`",
        ),
        ("\\sleep 5 hours\nSELECT 1;", 1, "`hours` is no unit"),
        ("\\sleep 31 s\nSELECT 1;", 1, "longer than the 30 s"),
        ("\\gset\nSELECT 1;", 1, "`\\gset` stands behind a statement"),
        ("SELECT 'a;\n", 1, "has no other that ends its text"),
        ("SELECT 1;\n/* open\n", 2, "a `/*` has no `*/`"),
        ("\\set a 1\n", 1, "no statement of SQL"),
        ("", 1, "no statement of SQL"),
    ]);
}

#[test]
fn what_a_script_would_keep_from_the_lab_is_refused_wherever_it_stands() {
    assert_refused(&[
        ("SELECT 1;\nCOPY t FROM STDIN;", 2, "`COPY` is no statement"),
        (
            "SELECT 1;\n/* a /* b */ */ COPY t TO '/tmp/t';",
            2,
            "`COPY` is no statement",
        ),
        (
            "SELECT 1 \\; COPY t FROM STDIN;",
            1,
            "`COPY` is no statement",
        ),
        (
            "DO $$ BEGIN COPY (SELECT a FROM t) TO PROGRAM 'cat'; END $$;",
            1,
            "`COPY` is no statement",
        ),
        (
            "DO $$ BEGIN EXECUTE $x$copy t from E'/tmp/t'$x$; END $$;",
            1,
            "`COPY` is no statement",
        ),
        (
            "SELECT 1;\nCREATE TABLE t (a integer) TABLESPACE fast;",
            2,
            "`TABLESPACE` puts rows beside the contender",
        ),
        (
            "SET default_tablespace = fast;",
            1,
            "`TABLESPACE` puts rows beside the contender",
        ),
        (
            "DO $$ BEGIN\nCREATE UNLOGGED TABLE t (a integer); END $$;",
            1,
            "`UNLOGGED` commits without a log",
        ),
        (
            "BEGIN;\nSET LOCAL synchronous_commit = off;\nEND;",
            2,
            "`synchronous_commit` stands in `settings`",
        ),
        (
            "ALTER SYSTEM SET FSYNC = off;",
            1,
            "`fsync` stands in `settings`",
        ),
    ]);
}

#[test]
fn a_column_may_be_called_as_a_statement_that_is_refused() {
    let text = "SELECT copy, a FROM book WHERE a = 'x';\nINSERT INTO copy SELECT * FROM book;";
    assert_eq!(statements(text).len(), 2);
}

/// Whatever stands there, it is read or refused, and nothing breaks.
#[test]
fn no_text_breaks_the_reader() {
    let words = [
        "SELECT 1",
        ";",
        "\n",
        "\\",
        "\\set a 1\n",
        "\\if 1\n",
        "\\else\n",
        "\\elif 0\n",
        "\\endif\n",
        "\\gset p",
        "\\sleep 1 us\n",
        "'",
        "\"",
        "$$",
        "$a$",
        "$1",
        "(",
        ")",
        "/*",
        "*/",
        "--",
        "E'",
        "ä",
        "\r\n",
        ":a",
        "::",
        "\\;",
        "\\:",
        "BEGIN",
        "COMMIT",
        " ",
    ];
    let mut random = fastrand::Rng::with_seed(9);
    let mut read = 0;
    for _ in 0..100_000 {
        let count = random.usize(1..12);
        let text: Vec<&str> = (0..count).filter_map(|_| random.choice(words)).collect();
        read += usize::from(parse(&text.concat()).is_ok());
    }
    assert!(read > 1000, "{read} of them mean something");
}
