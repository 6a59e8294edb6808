//! Files as people write them, right and wrong.

use super::*;

const SMALL: &str = r#"
name = "a look"
contenders = ["ext4", "xfs"]
duration = "5 s"

[devices]
kind = "loop"
count = 2
size = "512 MiB"

[[workload]]
kind = "tpcb"
users = 4
"#;

fn mistake(text: &str) -> String {
    Experiment::parse(text).unwrap_err().to_string()
}

#[test]
fn a_small_file_gets_sensible_answers_for_the_rest() {
    let experiment = Experiment::parse(SMALL).unwrap();
    assert_eq!(experiment.baseline, "ext4");
    assert_eq!(experiment.blocks, 12, "as many as a claim needs");
    assert_eq!(experiment.devices.size_bytes, 512 << 20);
    assert_eq!(experiment.workloads[0].title(), "tpcb, 4 users, cached");
}

#[test]
fn a_wrong_key_is_told_with_its_line_and_column_and_the_nearest() {
    let said = mistake(&SMALL.replace("duration", "durations"));
    assert!(
        said.starts_with("line 4, column 1: unknown field `durations`"),
        "{said}"
    );
    assert!(said.ends_with("did you mean duration?"), "{said}");
}

#[test]
fn an_unknown_contender_is_told_with_its_place_and_the_nearest() {
    let said = mistake(&SMALL.replace("\"xfs\"", "\"xsf\""));
    assert!(
        said.starts_with("line 3, column 23: no contender `xsf`"),
        "{said}"
    );
    assert!(said.contains("did you mean xfs"), "{said}");
}

#[test]
fn an_unknown_workload_is_told_with_the_nearest() {
    let said = mistake(&SMALL.replace("tpcb", "tpc-b"));
    assert!(said.contains("did you mean tpcb"), "{said}");
    assert!(said.starts_with("line 12"), "{said}");
}

#[test]
fn a_company_has_whole_warehouses_and_says_how_its_users_work() {
    let with = |keys: &str| {
        let text = SMALL.replace("kind = \"tpcb\"", &format!("kind = \"tpcc\"\n{keys}"));
        Experiment::parse(&text).unwrap().workloads.remove(0)
    };
    let small = with("size = \"16 MiB\"");
    assert_eq!(
        small.title(),
        "tpcc (derived from TPC-C), 1 warehouse, 4 users, cached"
    );
    assert_eq!(small.size_bytes, 100 << 20);
    let sized = with("size = \"1 GiB\"\nprocedures = true");
    assert_eq!(
        sized.title(),
        "tpcc (derived from TPC-C), 10 warehouses, procedures, 4 users, cached"
    );
    assert_eq!(sized.size_bytes, 1 << 30);
    let slow = with("warehouses = 3\nkeying_time = \"18 s\"\nthink_time = \"12 s\"");
    assert_eq!(
        slow.title(),
        "tpcc (derived from TPC-C), 3 warehouses, keying 18 s, thinking 12 s, 4 users, cached"
    );
    assert_eq!(slow.size_bytes, 300 << 20);
}

#[test]
fn what_does_not_go_together_is_refused_in_one_line() {
    for (from, to, wanted) in [
        ("users = 4", "users = 4000", "`users` lies between"),
        (
            "users = 4",
            "depth = 4",
            "means nothing to the workload `tpcb`",
        ),
        (
            "kind = \"tpcb\"",
            "kind = \"tpcc\"\nsize = \"1 GiB\"\nwarehouses = 2",
            "say the same",
        ),
        (
            "kind = \"tpcb\"",
            "kind = \"tpcc\"\nwarehouses = 0",
            "`warehouses` lies between",
        ),
        (
            "kind = \"tpcb\"",
            "kind = \"tpcc\"\nrate = 5\nthink_time = \"1 s\"",
            "no terminals that wait",
        ),
        (
            "users = 4",
            "procedures = true",
            "`procedures` means nothing to the workload `tpcb`",
        ),
        (
            "512 MiB",
            "512 parsecs",
            "line 9, column 8: `parsecs` is no unit",
        ),
        ("512 MiB", "1 MiB", "at least 128 MiB"),
        (
            "count = 2",
            "count = 0",
            "line 8, column 9: `count` lies between",
        ),
        (
            "count = 2",
            "names = [\"/dev/sdx\"]",
            "is for devices of kind `block`",
        ),
        ("kind = \"loop\"", "kind = \"block\"", "needs `names"),
        ("\"xfs\"", "\"ext4\"", "listed twice"),
        ("\"5 s\"", "\"5 parsecs\"", "no length of time"),
        (
            "contenders = [\"ext4\", \"xfs\"]",
            "contenders = []",
            "is empty",
        ),
        (
            "name =",
            "baseline = \"xf\"\nname =",
            "is no contender; did you mean xfs",
        ),
        ("name =", "margin = 2.0\nname =", "`margin` lies between"),
    ] {
        let said = mistake(&SMALL.replace(from, to));
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn a_zero_where_something_has_to_be_is_refused_by_its_name() {
    for (from, to, wanted) in [
        (
            "\"5 s\"",
            "\"0 s\"",
            "line 4, column 12: `duration` lies between 100 ms and a week",
        ),
        ("\"5 s\"", "\"99999999 h\"", "`duration` lies between"),
        (
            "duration =",
            "warm_up = \"9 h\"\npatience = \"0 s\"\nduration =",
            "line 5, column 12: `patience` lies between 1 s and a week",
        ),
        (
            "count = 2",
            "bandwidth = \"0 MiB\"",
            "line 8, column 13: `bandwidth` is at least 1 MiB a second",
        ),
        (
            "count = 2",
            "requests = 0",
            "line 8, column 12: `requests` is at least 1 a second",
        ),
        (
            "[[workload]]",
            "[database]\nmemory = \"0 B\"\n[[workload]]",
            "line 12, column 10: `memory` is at least 16 MiB",
        ),
        ("users = 4", "users = 0", "`users` lies between"),
        ("users = 4", "size = \"0 MiB\"", "`size` is at least"),
        ("users = 4", "think_time = \"99 h\"", "longer than a pause"),
        ("512 MiB", "2000 TiB", "is more than 1024 TiB"),
        (
            "kind = \"loop\"\ncount = 2\nsize = \"512 MiB\"",
            "kind = \"block\"\nnames = [\"/dev/sdx\", \"/dev/sdx\"]",
            "`/dev/sdx` is listed twice",
        ),
    ] {
        let said = mistake(&SMALL.replace(from, to));
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn no_warm_up_is_a_wish_and_no_duration_is_a_mistake() {
    let text = SMALL.replace("duration =", "warm_up = \"0 s\"\nduration =");
    assert!(Experiment::parse(&text).unwrap().warm_up.is_zero());
    assert!(Experiment::parse(&SMALL.replace("5 s", "0 s")).is_err());
}

#[test]
fn a_list_of_users_makes_a_point_each_and_open_shares_follow_them() {
    let text = SMALL.replace("users = 4", "users = [1, 2, 8]\nopen = [50, 90]");
    let experiment = Experiment::parse(&text).unwrap();
    let titles: Vec<String> = experiment.workloads.iter().map(Workload::title).collect();
    assert_eq!(
        titles,
        [
            "tpcb, 1 user, cached",
            "tpcb, 2 users, cached",
            "tpcb, 8 users, cached",
            "tpcb, 8 users, open at 50 %, cached",
            "tpcb, 8 users, open at 90 %, cached",
        ]
    );
    assert!(experiment.workloads.iter().all(|load| load.family == 0));
    for (users, wanted) in [
        ("users = []", "between 1 and 500"),
        ("users = [4, 2]", "growing numbers"),
        ("users = [1, 900]", "between 1 and 500"),
        ("users = \"many\"", "a number, or a list"),
        ("users = 4\nopen = [70, 50]", "growing shares"),
        ("users = 4\nopen = [70, 120]", "between 1 and 99"),
        ("users = [1, 2]\nrate = 5.0", "for closed ones"),
        ("open = [50]\nrate = 5.0", "finds the rate by itself"),
    ] {
        let said = mistake(&SMALL.replace("users = 4", users));
        assert!(said.contains(wanted), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

fn of(workload: &str) -> Result<Workload, String> {
    let (head, _) = SMALL.split_once("[[workload]]").unwrap();
    Experiment::parse(&format!("{head}[[workload]]\n{workload}\n"))
        .map(|experiment| experiment.workloads[0].clone())
        .map_err(|mistake| mistake.to_string())
}

#[test]
fn a_scale_factor_gives_the_size_and_a_size_the_scale_factor() {
    let given = of("kind = \"tpch\"\nscale = 0.01").unwrap();
    let by_size = of("kind = \"tpch\"\nsize = \"1 GiB\"").unwrap();
    assert_eq!(
        given.title(),
        "tpch (derived from TPC-H), power, scale 0.01, cold"
    );
    assert_eq!(given.users, 1);
    let again = of(&format!("kind = \"tpch\"\nscale = {}", by_size.scale)).unwrap();
    assert!(again.size_bytes.abs_diff(1 << 30) < 4 << 20, "{again:?}");
    let throughput = of("kind = \"tpch\"\nscale = 0.1\nmode = \"throughput\"\nusers = 3").unwrap();
    assert_eq!(
        throughput.title(),
        "tpch (derived from TPC-H), throughput, scale 0.1, 3 users, cold"
    );
    assert!(throughput.is_suite() && throughput.is_measured_to_its_end());
}

#[test]
fn the_keys_of_suites_and_schemas_are_refused_where_they_say_nothing() {
    for (workload, wanted) in [
        (
            "kind = \"tpch\"\nscale = 0.001",
            "`scale` lies between 0.01",
        ),
        (
            "kind = \"tpch\"\nsize = \"17 MiB\"",
            "`scale` lies between 0.01",
        ),
        (
            "kind = \"tpch\"\nscale = 1.0\nsize = \"1 GiB\"",
            "give one of them",
        ),
        (
            "kind = \"tpch\"\nmode = \"oltp\"",
            "is none of the workload `tpch`",
        ),
        ("kind = \"tpch\"\nmode = \"powr\"", "did you mean power"),
        ("kind = \"tpch\"\nusers = 2", "has one user"),
        (
            "kind = \"tpch\"\nmode = \"throughput\"\nrefresh = true",
            "`refresh` is for",
        ),
        (
            "kind = \"tpcb\"\nscale = 1.0",
            "means nothing to the workload `tpcb`",
        ),
        (
            "kind = \"as3ap\"\nmode = \"power\"",
            "is none of the workload `as3ap`",
        ),
        ("kind = \"as3ap\"\nthink_time = \"1 s\"", "several users"),
        (
            "kind = \"random\"\nusers = 2\nschemas = 3",
            "number of users (2)",
        ),
        (
            "kind = \"random\"\nscan_percent = 101",
            "`scan_percent` lies between 0 and 100",
        ),
        (
            "kind = \"random\"\nscan_size = \"1 MiB\"",
            "needs a `scan_percent`",
        ),
        (
            "kind = \"random\"\nscan_percent = 1\nsize = \"64 MiB\"\nschemas = 8\nscan_size = \"9 MiB\"",
            "size of one schema (8.00 MiB)",
        ),
    ] {
        let said = of(workload).unwrap_err();
        assert!(said.contains(wanted), "{workload}: {said}");
    }
    let random = of("kind = \"random\"\nschemas = 4\nscan_percent = 5").unwrap();
    assert_eq!(
        random.title(),
        "random, 70:30, 4 schemas, 5 % scans, 8 users, cached"
    );
    let mixed = of("kind = \"as3ap\"\nmode = \"mixed-oltp\"\nthink_time = \"1 s\"").unwrap();
    assert_eq!(mixed.title(), "AS3AP-like, mixed-oltp, 8 users, cached");
    assert!(!mixed.is_measured_to_its_end());
}

#[test]
fn a_limit_of_response_times_is_for_loads_of_many_operations() {
    let with = |kind: &str, limit: &str| {
        Experiment::parse(&format!(
            "contenders = [\"ext4\"]\n[devices]\nkind = \"loop\"\n\
             [[workload]]\nkind = \"{kind}\"\np90_at_most = \"{limit}\"\n"
        ))
    };
    let experiment = with("tpcc", "5 s").unwrap();
    assert_eq!(
        experiment.workloads[0].p90_at_most,
        Some(Duration::from_secs(5))
    );
    let mistake = with("scan", "5 s").unwrap_err();
    assert!(
        mistake.message.contains("many like operations"),
        "{mistake}"
    );
    let mistake = with("tpcb", "0 s").unwrap_err();
    assert!(mistake.message.contains("p90_at_most"), "{mistake}");
}

#[test]
fn scripts_have_files_weights_and_tables_and_say_what_is_wrong_with_them() {
    let load = of(
        "kind = \"script\"\nfiles = [\"pay.sql@9\", \"report.sql\"]\ninit = \"pgbench\"\nscale = 3",
    )
    .unwrap();
    assert_eq!(
        load.title(),
        "script, pay.sql@9 and report.sql, scale 3, 8 users, cached"
    );
    assert_eq!((load.scripts.files[0].weight, load.scripts.scale), (9, 3));
    for (workload, wanted) in [
        ("kind = \"script\"", "`script` needs `files"),
        (
            "kind = \"script\"\nfiles = [\"a.sql@x\"]",
            "`a.sql@x`: a weight from 0",
        ),
        (
            "kind = \"script\"\nfiles = [\"a.sql@0\"]",
            "every weight is 0",
        ),
        (
            "kind = \"script\"\nfiles = [\"a.sql\", \"a.sql@2\"]",
            "`a.sql` is listed twice",
        ),
        (
            "kind = \"script\"\nfiles = [\"pgbench@2\"]",
            "a file of that name is `./pgbench`",
        ),
        (
            "kind = \"script\"\nfiles = [\"a.sql\"]\nscale = 1.5",
            "a whole number from 1",
        ),
        (
            "kind = \"tpcb\"\nfiles = [\"a.sql\"]",
            "`files` means nothing to the workload `tpcb`; it is for script",
        ),
    ] {
        let said = of(workload).unwrap_err();
        assert!(said.contains(wanted), "{workload}: {said}");
    }
}

#[test]
fn a_setting_that_takes_or_hides_what_nobody_counts_is_refused_and_its_absence_is_not() {
    let with = |kind: &str, setting: &str| {
        let text = SMALL.replace(
            "[[workload]]",
            &format!("[database]\nkind = \"{kind}\"\nsettings = {{ {setting} }}\n[[workload]]"),
        );
        Experiment::parse(&text).map_err(|mistake| mistake.to_string())
    };
    for (kind, setting, wanted) in [
        (
            "postgresql",
            "huge_pages = \"try\"",
            "`huge_pages = \"try\"`: huge pages come from a store",
        ),
        ("postgresql", "Huge_Pages = \"on\"", "huge pages come from"),
        ("mariadb", "large-pages = \"1\"", "huge pages come from"),
        (
            "sqlite",
            "mmap_size = \"268435456\"",
            "`mmap_size = \"268435456\"`: what is read through a mapping",
        ),
    ] {
        let said = with(kind, setting).unwrap_err();
        assert!(said.contains(wanted), "{setting}: {said}");
    }
    for (kind, setting) in [
        ("postgresql", "huge_pages = \"off\""),
        ("mariadb", "large_pages = \"OFF\""),
        ("sqlite", "mmap_size = \"0\""),
    ] {
        assert!(with(kind, setting).is_ok(), "{setting}");
    }
    let said = contenders("[\"ext4\", { storage = \"ext4\", settings = { huge_pages = \"on\" } }]");
    assert!(said.unwrap_err().contains("huge pages come from"));
}

#[test]
fn no_two_scripts_are_kept_under_one_name() {
    let load =
        of("kind = \"script\"\nfiles = [\"a/b.sql\", \"a_b.sql\", \"a%2Fb.sql\", \"./pgbench\"]")
            .unwrap();
    let mut kept: Vec<String> = (load.scripts.files.iter())
        .map(ScriptFile::stored_name)
        .collect();
    assert!(kept.iter().all(|name| !name.contains('/')), "{kept:?}");
    kept.sort();
    kept.dedup();
    assert_eq!(kept.len(), 4, "{kept:?}");
}

fn contenders(list: &str) -> Result<Experiment, String> {
    let text = SMALL.replace("[\"ext4\", \"xfs\"]", list);
    Experiment::parse(&text).map_err(|mistake| mistake.to_string())
}

#[test]
fn a_contender_with_settings_has_a_name_and_stands_on_its_storage() {
    let experiment = contenders(
        "[\"ext4\", { storage = \"ext4\", settings = { wal_sync_method = \"open_datasync\" } },
          { storage = \"spindle-external\", name = \"big units\", options = { au_size = \"64M\" } }]",
    )
    .unwrap();
    assert_eq!(
        experiment.contenders,
        ["ext4", "ext4 wal_sync_method=open_datasync", "big units"]
    );
    assert_eq!(experiment.baseline, "ext4");
    let asked = experiment.asked("big units");
    assert_eq!(
        (asked.storage.as_str(), asked.options["au_size"].as_str()),
        ("spindle-external", "64M")
    );
    let database = experiment.database_of("ext4 wal_sync_method=open_datasync");
    assert_eq!(database.settings["wal_sync_method"], "open_datasync");
    assert!(experiment.database_of("ext4").settings.is_empty());
    assert_eq!(
        experiment.differing_settings(),
        ["wal_sync_method".to_owned()].into()
    );
    // Tables of tables are the same list in more lines.
    let long = SMALL.replace("contenders = [\"ext4\", \"xfs\"]\n", "")
        + "[[contenders]]\nstorage = \"ext4\"\n[[contenders]]\nname = \"other\"\nstorage = \"ext4\"\n\
           [contenders.settings]\nshared_buffers = \"64MB\"\n";
    assert_eq!(
        Experiment::parse(&long).unwrap().contenders,
        ["ext4", "other"]
    );
}

#[test]
fn the_settings_of_a_contender_stand_before_those_of_the_database_whatever_its_spelling() {
    let text = SMALL
        .replace("\"xfs\"", "{ storage = \"ext4\", name = \"x\", settings = { innodb_flush_method = \"fsync\" } }")
        .replace(
            "[[workload]]",
            "[database]\nkind = \"mariadb\"\nsettings = { innodb-flush-method = \"O_DSYNC\" }\n[[workload]]",
        );
    let experiment = Experiment::parse(&text).unwrap();
    let method = |name: &str| experiment.database_of(name).settings["innodb_flush_method"].clone();
    assert_eq!(
        (method("ext4").as_str(), method("x").as_str()),
        ("O_DSYNC", "fsync")
    );
}

#[test]
fn a_contender_that_says_what_it_cannot_have_is_refused_by_name_and_value() {
    for (list, wanted) in [
        (
            "[\"ext4\", { storage = \"etx4\" }]",
            "line 3, column 35: no contender `etx4`; did you mean ext4",
        ),
        (
            "[\"ext4\", { storage = \"ext4\" }]",
            "`ext4` is listed twice",
        ),
        (
            "[\"ext4\", { storage = \"ext4\", name = \"other\" }]",
            "`other` differs from `ext4` in nothing but its name",
        ),
        (
            "[{ storage = \"ext4\", setting = { a = \"b\" } }]",
            "unknown field `setting`, expected one of `name`, `storage`, `settings`, `options`; did you mean settings?",
        ),
        ("[{ name = \"x\" }]", "missing field `storage`"),
        (
            "[{ storage = \"ext4\", settings = { data_directory = \"/fast\" } }]",
            "line 3, column 65: `data_directory = \"/fast\"`: the lab sets this itself",
        ),
        (
            "[{ storage = \"ext4\", settings = { \"a b\" = \"c\" } }]",
            "`a b = \"c\"`: this is no name of a setting",
        ),
        (
            "[{ storage = \"ext4\", options = { au_size = \"4M\" } }]",
            "`au_size = \"4M\"`: `ext4` has no such option; it has mount",
        ),
        (
            "[{ storage = \"spindle-external\", options = { au_size = \"5M\" } }]",
            "`au_size = \"5M\"`: it takes 1M, 2M, 4M",
        ),
        (
            "[\"ext4\", { storage = \"ext4\", name = \"xfs\", options = { mount = \"noatime\" } }]",
            "`name = \"xfs\"` is the name of another storage, and this one lies on ext4",
        ),
        (
            "[\"ext4\", { storage = \"ext4\", name = \"b (A/A)\", options = { mount = \"noatime\" } }]",
            "words of the lab's own",
        ),
        (
            "[{ storage = \"ext4\", name = \"-x\" }]",
            "a name begins with a letter or a digit",
        ),
        (
            "[{ storage = \"ext4\", settings = { application_name = \"x (A/A)\" } }]",
            "words of the lab's own; `ext4 application_name=x (A/A)` is none: give another by `name`",
        ),
        (
            "[{ storage = \"ext4\", settings = { application_name = \"x under y\" } }]",
            "words of the lab's own",
        ),
        (
            "[{ storage = \"ext4\", settings = { application_name = \"x \" } }]",
            "no spaces at its ends",
        ),
        (
            "[\"directory:/srv/x under y\"]",
            "words of the lab's own; `directory:/srv/x under y` is none",
        ),
        ("[3]", "expected a contender: \"ext4\", or { storage"),
    ] {
        let said = contenders(list).unwrap_err();
        assert!(said.contains(wanted), "{list}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
    let text = SMALL
        .replace(
            "\"xfs\"",
            "{ storage = \"ext4\", settings = { fsync = \"off\" } }",
        )
        .replace("kind = \"tpcb\"", "kind = \"block\"");
    let said = mistake(&text);
    assert!(
        said.contains("`fsync = \"off\"` is a setting of a database, and no load has one"),
        "{said}"
    );
}
