//! What a killed process had answered, and what it had under way: the next one has both.

use std::panic::{AssertUnwindSafe, catch_unwind};

use spindle_catalog::{Edit, Table, file_key};
use spindle_fs::{Asked, RenameMode};

use crate::fixture::{Fixture, OWNER, ROOT, name};

/// As the mount asks for what must be done once.
fn asked(fixture: &Fixture, unique: u64) -> Asked<'_> {
    let journal = fixture.fs().group().journal().unwrap();
    Asked {
        now: fixture.now(),
        request: Some(journal.request(journal.connection(), 0, unique)),
    }
}

#[test]
fn what_is_committed_on_the_way_to_a_request_is_not_the_request() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.fs().sync().unwrap();
    // Its row lags behind, so that there is an operation to be done by the commit.
    fixture.write(&file, 0, b"something");
    std::mem::forget(file);
    {
        let _request = asked(&fixture, 77);
        // As where the journal is nearly full. The process is killed before the unlink.
        fixture.fs().sync().unwrap();
    }
    fixture.kill();
    assert!(!fixture.fs().group().is_done(77));
    assert!(fixture.exists("file"));
}

#[test]
fn a_request_that_was_refused_is_not_done_whatever_was_committed_for_it() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, b"something");
    std::mem::forget(file);
    let request = asked(&fixture, 5);
    fixture.fs().sync().unwrap();
    let refused = fixture.fs().unlink(ROOT, name("missing"), request);
    assert!(refused.is_err());
    fixture.kill();
    assert!(!fixture.fs().group().is_done(5));
}

#[test]
fn after_a_kill_each_request_is_known_by_its_own_operation_and_done_once() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    for text in ["goes", "moves", "stays"] {
        fixture.make(ROOT, text);
    }
    let fs = fixture.fs();
    fs.unlink(ROOT, name("goes"), asked(&fixture, 1)).unwrap();
    let (from, to) = (name("moves"), name("moved"));
    fs.rename(
        ROOT,
        from,
        ROOT,
        to,
        RenameMode::Replace,
        asked(&fixture, 2),
    )
    .unwrap();
    fs.make_directory(ROOT, name("made"), 0o755, OWNER, asked(&fixture, 3))
        .unwrap();
    // What nobody asked for as a request belongs to none.
    fs.unlink(ROOT, name("stays"), fixture.now()).unwrap();
    fixture.kill();
    let done = (0..10).filter(|unique| fixture.fs().group().is_done(*unique));
    assert_eq!(done.collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(fixture.names(ROOT), ["made", "moved"]);
    // And still over one more process, a commit between.
    fixture.fs().sync().unwrap();
    fixture.kill();
    assert!((1..4).all(|unique| fixture.fs().group().is_done(unique)));
    fixture.check();
}

#[test]
fn what_was_done_for_one_mount_is_not_what_the_next_one_asks() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    for text in ["one", "two", "three"] {
        fixture.make(ROOT, text);
    }
    let unlink = |fixture: &Fixture, text, unique| {
        let request = asked(fixture, unique);
        fixture.fs().unlink(ROOT, name(text), request).unwrap();
    };
    // One that an earlier process had done, one that is committed, and one in the journal's log.
    unlink(&fixture, "one", 1);
    fixture.kill();
    assert!(fixture.fs().group().is_done(1));
    unlink(&fixture, "two", 2);
    fixture.fs().sync().unwrap();
    unlink(&fixture, "three", 3);
    let left_over = asked(&fixture, 4);
    // Unmounted, and mounted again; a worker of the earlier mount is still at it.
    fixture.fs().group().begin_connection().unwrap();
    assert!(!fixture.fs().group().is_done(1));
    fixture.make(ROOT, "four");
    fixture.fs().unlink(ROOT, name("four"), left_over).unwrap();
    fixture.make(ROOT, "five");
    unlink(&fixture, "five", 5);
    fixture.kill();
    let done = (0..10).filter(|unique| fixture.fs().group().is_done(*unique));
    assert_eq!(done.collect::<Vec<_>>(), [5]);
    assert!(fixture.names(ROOT).is_empty());
    fixture.check();
}

#[test]
fn a_request_whose_full_log_a_kill_leaves_uncut_behind_its_commit_is_known_as_done() {
    let mut fixture = Fixture::plain();
    fixture.make(ROOT, "goes");
    fixture.make(ROOT, "fills");
    fixture.keep_with_log_of(1 << 10);
    fixture.fill_log("/fills");
    let unlink = asked(&fixture, 7);
    fixture.fs().unlink(ROOT, name("goes"), unlink).unwrap();
    // As the mount commits what fell out of the log, before it answers.
    fixture.kill_between(|fs| fs.make_durable().unwrap());
    assert_eq!(fixture.names(ROOT), ["fills"]);
    assert!(fixture.fs().group().is_done(7));
    // The next mount's kernel counts from the beginning.
    fixture.fs().group().begin_connection().unwrap();
    assert!(!fixture.fs().group().is_done(7));
    fixture.kill();
    assert!(!fixture.fs().group().is_done(7));
    fixture.check();
}

#[test]
fn what_a_full_log_holds_of_a_file_does_not_come_back_over_its_removal() {
    let mut fixture = Fixture::plain();
    fixture.make(ROOT, "goes");
    fixture.keep_with_log_of(1 << 10);
    let id = fixture.find("/goes").id;
    fixture.fill_log("/goes");
    (fixture.fs())
        .unlink(ROOT, name("goes"), asked(&fixture, 7))
        .unwrap();
    // The log has the inode's row, and the commit that it is gone. The next process dies as well,
    // before it has told the disks anything.
    fixture.kill_between(|fs| fs.make_durable().unwrap());
    assert_eq!(fixture.names(ROOT), Vec::<String>::new());
    assert_eq!(
        fixture.fs().attributes(id).unwrap_err().to_string(),
        "no such file or directory"
    );
    fixture.check();
    fixture.reopen();
    fixture.check();
}

/// What was answered and not synced: a name, a file with data, a removal.
fn answer_without_a_sync(fixture: &Fixture) {
    let file = fixture.make(ROOT, "file");
    fixture.make(ROOT, "gone");
    fixture.fs().sync().unwrap();
    fixture.write(&file, 0, &[7; 10_000]);
    std::mem::forget(file);
    let unlinked = fixture.fs().unlink(ROOT, name("gone"), asked(fixture, 9));
    unlinked.unwrap();
    fixture.directory(ROOT, "made");
}

fn assert_answers_stand(fixture: &Fixture) {
    assert_eq!(fixture.names(ROOT), ["file", "made"]);
    assert_eq!(fixture.find("file").size_bytes, 10_000);
    let file = fixture.fs().open_file(fixture.find("file").id).unwrap();
    assert!(fixture.contents(&file).iter().all(|byte| *byte == 7));
    assert!(fixture.fs().group().is_done(9));
    fixture.check();
}

#[test]
fn openings_that_are_killed_one_after_another_at_every_request_lose_nothing_that_was_answered() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    answer_without_a_sync(&fixture);
    fixture.die();
    let deaths = (0..).take_while(|requests| !fixture.open_and_die_after(*requests));
    let deaths = deaths.count();
    assert!(deaths > 20, "{deaths}");
    assert_answers_stand(&fixture);
}

#[test]
fn what_an_opening_removed_for_want_of_a_name_stays_removed_though_it_is_killed() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    let file = fixture.make(ROOT, "file");
    fixture.write(&file, 0, &[7; 10_000]);
    let id = fixture.find("file").id;
    fixture.fs().group().sync().unwrap();
    fixture
        .fs()
        .unlink(ROOT, name("file"), fixture.now())
        .unwrap();
    std::mem::forget(file);
    fixture.die();
    // The mount has gone too: nobody reaches the file any more.
    fixture.open(false);
    fixture.fs().group().sync().unwrap();
    fixture.die();
    fixture.open(false);
    assert!(fixture.fs().group().file(id).is_none());
    fixture.check();
}

#[test]
fn what_somebody_else_changed_since_is_not_undone_by_what_a_killed_process_left() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    answer_without_a_sync(&fixture);
    fixture.die();
    // One heir dies before its claim is anywhere, one when it has claimed the group.
    for requests in [0, 60] {
        assert!(!fixture.open_and_die_after(requests));
    }
    let other = spindle_fs::FileSystem::open(fixture.open_elsewhere()).unwrap();
    other.unlink(ROOT, name("file"), fixture.now()).unwrap();
    other.close().unwrap();
    fixture.open(true);
    assert_eq!(fixture.names(ROOT), ["gone"]);
    fixture.check();
}

/// The half of an unlink: the name goes, and then the process panics.
fn panic_half_way(fixture: &Fixture, text: &str, unique: Option<u64>) {
    let mut key = file_key(ROOT);
    key.extend_from_slice(text.as_bytes());
    let mut half = Edit::default();
    half.delete(Table::Name, key);
    let group = fixture.fs().group();
    let request = unique.and_then(|unique| asked(fixture, unique).request);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let change = group.change_for(request);
        group.apply(&change, half);
        panic!("half way, as the test wants it");
    }));
    panicked.unwrap_err();
}

#[test]
fn half_an_operation_that_a_panic_left_is_taken_by_no_commit() {
    let mut fixture = Fixture::plain();
    fixture.make(ROOT, "file");
    fixture.fs().sync().unwrap();
    panic_half_way(&fixture, "file", None);
    let error = fixture.fs().sync().unwrap_err();
    assert!(error.to_string().contains("half"), "{error}");
    fixture.crash();
    assert_eq!(fixture.names(ROOT), ["file"]);
    fixture.check();
}

#[test]
fn half_an_operation_that_a_panic_left_is_taken_by_no_process_and_nothing_that_follows_is() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    fixture.make(ROOT, "file");
    panic_half_way(&fixture, "file", Some(3));
    // The name is free, as it seems.
    fixture.make(ROOT, "file");
    let journal = fixture.fs().group().journal().unwrap();
    assert!(journal.is_at_half() && journal.has_ended() && !journal.is_overflowed());
    assert!(fixture.fs().sync().is_err());
    fixture.kill();
    assert_eq!(fixture.names(ROOT), ["file"]);
    assert!(!fixture.fs().group().is_done(3));
    fixture.check();
    fixture.fs().sync().unwrap();
}

/// Makes an operation of its own as it is dropped.
struct Leaves<'a>(&'a Fixture);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0
            .fs()
            .unlink(ROOT, name("file"), self.0.now())
            .unwrap();
    }
}

#[test]
fn a_whole_operation_while_a_panic_unwinds_is_whole() {
    let mut fixture = Fixture::plain();
    fixture.keep();
    fixture.make(ROOT, "file");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _leaves = Leaves(&fixture);
        panic!("as the test wants it");
    }));
    panicked.unwrap_err();
    fixture.fs().sync().unwrap();
    fixture.kill();
    assert!(fixture.names(ROOT).is_empty());
    fixture.check();
}
