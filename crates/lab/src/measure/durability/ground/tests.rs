use super::*;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn named(kind: DatabaseKind, pairs: &[(&str, &str)]) -> Vec<String> {
    let mut ground = Ground::default();
    ground.name_settings(kind, &settings(pairs));
    ground.forgets
}

#[test]
fn settings_that_give_durability_up_are_named_and_others_are_not() {
    use DatabaseKind::{Mariadb, Postgresql, Sqlite};
    for (kind, pair) in [
        (Postgresql, ("fsync", "off")),
        (Postgresql, ("fsync", "False")),
        (Postgresql, ("synchronous_commit", "off")),
        (Mariadb, ("innodb_flush_log_at_trx_commit", "2")),
        (Mariadb, ("innodb-flush-log-at-trx-commit", "0")),
        (Mariadb, ("innodb_flush_method", "nosync")),
        (Mariadb, ("innodb-flush-method", "LITTLESYNC")),
        (Mariadb, ("innodb_flush_log_at_trx_commit", "00")),
        (Mariadb, ("debug_no_sync", "1")),
        (Sqlite, ("synchronous", "OFF")),
        (Sqlite, ("journal_mode", "memory")),
    ] {
        let expected = format!("{} = {}", pair.0, pair.1);
        assert_eq!(named(kind, &[pair]), [expected]);
    }
    for (kind, pair) in [
        (Postgresql, ("fsync", "on")),
        (Postgresql, ("synchronous_commit", "local")),
        (Postgresql, ("full_page_writes", "off")),
        (Mariadb, ("innodb_flush_log_at_trx_commit", "1")),
        (Mariadb, ("innodb_flush_method", "O_DIRECT")),
        (Mariadb, ("innodb_flush_log_at_trx_commit", "3")),
        (Mariadb, ("debug_no_sync", "0")),
        (Sqlite, ("synchronous", "full")),
        // With a rollback journal that is durable but for a window that no count shows.
        (Sqlite, ("synchronous", "normal")),
    ] {
        assert!(named(kind, &[pair]).is_empty(), "{pair:?}");
    }
    let in_log = [("journal_mode", "wal"), ("synchronous", "normal")];
    assert_eq!(named(Sqlite, &in_log), ["synchronous = normal"]);
}

#[test]
fn pages_that_are_written_and_not_flushed_are_lost_by_a_volatile_cache_and_by_no_other() {
    let forgets = |method: &str, cache: Cache| {
        let mut ground = Ground {
            caches: vec![cache],
            ..Ground::default()
        };
        ground.name_settings(
            DatabaseKind::Mariadb,
            &settings(&[("innodb_flush_method", method)]),
        );
        ground.forgets()
    };
    assert_eq!(
        forgets("O_DIRECT_NO_FSYNC", Cache::Volatile).as_deref(),
        Some("innodb_flush_method = O_DIRECT_NO_FSYNC")
    );
    let none = || Cache::None("sda".to_owned());
    assert_eq!(forgets("O_DIRECT_NO_FSYNC", none()), None);
    assert_eq!(forgets("O_DIRECT", Cache::Volatile), None);
}

#[test]
fn a_line_of_the_mounts_gives_its_kind_source_and_all_options() {
    let line = "36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/loop3 rw,nobarrier";
    let mount = mount(line).unwrap();
    assert_eq!(mount.point, Path::new("/mnt/a b"));
    assert_eq!(
        (mount.kind.as_str(), mount.source.as_str()),
        ("ext4", "/dev/loop3")
    );
    let mut ground = Ground::default();
    ground.look_at_options(&mount);
    assert_eq!(
        ground.forgets_caches,
        ["its ext4 is mounted with `nobarrier`"]
    );
}
