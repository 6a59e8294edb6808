use super::*;

fn count(way: &str, writers: u32, acknowledged: u64, flushes: f64, writes: f64) -> WayCount {
    WayCount {
        way: way.to_owned(),
        writers,
        acknowledged,
        flushes,
        writes,
        copies_away: 0,
    }
}

fn ground(caches: &[Cache]) -> Ground {
    Ground {
        caches: caches.to_vec(),
        ..Ground::default()
    }
}

fn class(ground: &Ground, counts: &[WayCount], copies: u32) -> DurabilityClass {
    judge(ground, counts, copies).0
}

fn none() -> Cache {
    Cache::None("zram0".to_owned())
}

fn forced() -> Cache {
    Cache::Forced("nvme0n1".to_owned())
}

const HONEST: f64 = 48.0;

#[test]
fn one_flush_for_each_answer_of_one_writer_is_durable_and_one_less_is_not() {
    let volatile = ground(&[Cache::Volatile]);
    let durable = [count("fdatasync", 1, 48, HONEST, 96.0)];
    assert_eq!(class(&volatile, &durable, 1), DurabilityClass::Durable);
    let one_less = [count("fdatasync", 1, 48, 47.0, 96.0)];
    let (found, why) = judge(&volatile, &one_less, 1);
    assert_eq!(found, DurabilityClass::NotDurable);
    assert!(
        why.contains("48 acknowledged") && why.contains("47 flushes"),
        "{why}"
    );
}

#[test]
fn two_copies_need_twice_the_flushes() {
    let volatile = ground(&[Cache::Volatile, Cache::Volatile]);
    let single = [count("commit", 1, 48, HONEST, 96.0)];
    assert_eq!(class(&volatile, &single, 2), DurabilityClass::NotDurable);
    let both = [count("commit", 1, 48, 2.0 * HONEST, 96.0)];
    assert_eq!(class(&volatile, &both, 2), DurabilityClass::Durable);
}

#[test]
fn eight_writers_may_share_a_flush_and_not_more() {
    let volatile = ground(&[Cache::Volatile]);
    let shared = [count("commit", 8, 144, 18.0, 20.0)];
    assert_eq!(class(&volatile, &shared, 1), DurabilityClass::Durable);
    let fewer = [count("commit", 8, 144, 17.0, 144.0)];
    assert_eq!(class(&volatile, &fewer, 1), DurabilityClass::NotDurable);
}

#[test]
fn one_way_that_lies_among_honest_ones_is_found() {
    let volatile = ground(&[Cache::Volatile]);
    let counts = [
        count("fdatasync", 1, 48, HONEST, 96.0),
        count("O_DSYNC", 1, 48, 0.0, 48.0),
        count("commit", 1, 48, HONEST, 96.0),
    ];
    let (found, why) = judge(&volatile, &counts, 1);
    assert_eq!(found, DurabilityClass::NotDurable);
    assert!(why.starts_with("O_DSYNC"), "{why}");
}

#[test]
fn a_device_without_a_volatile_cache_is_never_accused_of_too_few_flushes() {
    let without = ground(&[none()]);
    let unflushed = [count("fdatasync", 1, 48, 0.0, HONEST)];
    let (found, why) = judge(&without, &unflushed, 1);
    assert_eq!(found, DurabilityClass::CannotBeSeen);
    assert!(why.contains("zram0 has no volatile cache"), "{why}");
    // But what never came to the device at all was not stored by it.
    let nothing = [count("fdatasync", 1, 48, 0.0, 1.0)];
    assert_eq!(class(&without, &nothing, 1), DurabilityClass::NotDurable);
    let mixed = ground(&[Cache::Volatile, none()]);
    assert_eq!(class(&mixed, &unflushed, 1), DurabilityClass::CannotBeSeen);
}

#[test]
fn forced_writes_excuse_their_own_ways_and_leave_others_unseen() {
    let takes = ground(&[forced()]);
    let honest = [
        count("fdatasync", 1, 48, HONEST, 96.0),
        count("RWF_DSYNC", 1, 48, 0.0, HONEST),
    ];
    assert_eq!(class(&takes, &honest, 1), DurabilityClass::Durable);
    let commits = [
        count("fdatasync", 1, 48, HONEST, 96.0),
        count("commit", 1, 48, 0.0, HONEST),
    ];
    let (found, why) = judge(&takes, &commits, 1);
    assert_eq!(found, DurabilityClass::CannotBeSeen);
    assert!(why.contains("nvme0n1 takes forced writes"), "{why}");
    let nothing = [count("commit", 1, 48, 0.0, 0.0)];
    assert_eq!(class(&takes, &nothing, 1), DurabilityClass::NotDurable);
}

#[test]
fn what_is_named_to_forget_is_not_durable_whatever_was_counted() {
    let mut named = ground(&[Cache::Volatile]);
    named.forgets.push("fsync = off".to_owned());
    let flushed = [count("commit", 1, 48, HONEST, 96.0)];
    let (found, why) = judge(&named, &flushed, 1);
    assert_eq!(found, DurabilityClass::NotDurable);
    assert!(why.contains("fsync = off"), "{why}");
}

#[test]
fn a_mount_without_barriers_forgets_only_where_a_cache_does() {
    let mut named = ground(&[none()]);
    named.forgets_caches.push("nobarrier".to_owned());
    let counts = [count("fdatasync", 1, 48, 0.0, HONEST)];
    assert_eq!(class(&named, &counts, 1), DurabilityClass::CannotBeSeen);
    named.caches = vec![forced()];
    assert_eq!(class(&named, &counts, 1), DurabilityClass::NotDurable);
}

#[test]
fn what_lies_on_another_machine_cannot_be_seen() {
    let mut hidden = ground(&[]);
    hidden.hidden = Some("it lies on nfs4".to_owned());
    let counts = [count("fdatasync", 1, 48, 0.0, 0.0)];
    assert_eq!(class(&hidden, &counts, 1), DurabilityClass::CannotBeSeen);
    assert_eq!(class(&ground(&[]), &[], 1), DurabilityClass::CannotBeSeen);
}

#[test]
fn a_load_that_writes_uncounted_is_at_best_unseen_and_no_excuse() {
    let reason = || Some("its scripts write in ways that are not counted".to_owned());
    let volatile = ground(&[Cache::Volatile]);
    let judged = |flushes| judge(&volatile, &[count("commit", 1, 48, flushes, 96.0)], 1);
    let (class, why) = as_far_as_counted(judged(HONEST), reason());
    assert_eq!(class, DurabilityClass::CannotBeSeen);
    assert!(why.contains("not counted"), "{why}");
    let (class, why) = as_far_as_counted(judged(2.0), reason());
    assert_eq!(class, DurabilityClass::NotDurable);
    assert!(why.contains("2 flushes"), "{why}");
    let class = as_far_as_counted(judged(HONEST), None).0;
    assert_eq!(class, DurabilityClass::Durable);
}
