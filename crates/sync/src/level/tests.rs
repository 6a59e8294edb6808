use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Before, InsideLock, LeafMutex, Level, Mutex, RwLock, Unshown, assert_none_from};

crate::levels! {
    First = 10, "the first";
    Second = 20, "the second";
    <elsewhere::Third>;
    Fourth = 40, "the fourth";
}

mod elsewhere {
    crate::levels! { Third = 30, "the third"; }
}

/// What a panic says.
fn panic_of(does: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(does)).expect_err("it has to panic");
    *panic.downcast::<String>().expect("the message has names")
}

fn stands_before<H: Before<L>, L: Level>() -> bool {
    H::PLACE < L::PLACE
}

#[test]
fn a_level_of_another_crate_stands_where_it_is_listed() {
    assert!(stands_before::<First, elsewhere::Third>());
    assert!(stands_before::<elsewhere::Third, Fourth>());
}

#[test]
fn a_lock_that_stands_before_one_held_is_refused_and_both_are_named() {
    let first = Mutex::<(), First>::default();
    let second = RwLock::<(), Second>::default();
    let shared = second.read(Unshown);
    let said = panic_of(|| drop(first.lock(Unshown)));
    assert!(
        said.contains("the first") && said.contains("the second"),
        "{said}"
    );
    drop(shared);
    let upper = first.lock(Unshown);
    drop(second.write(&upper));
}

#[test]
fn a_guard_that_is_shown_does_not_hide_a_lower_one() {
    let (first, second) = (
        Mutex::<(), First>::default(),
        Mutex::<(), Second>::default(),
    );
    let fourth = Mutex::<(), Fourth>::default();
    let upper = first.lock(Unshown);
    let _lower = fourth.lock(&upper);
    let said = panic_of(|| drop(second.lock(&upper)));
    assert!(
        said.contains("the second") && said.contains("the fourth"),
        "{said}"
    );
}

#[test]
fn a_thread_holds_a_level_once() {
    let (one, other) = (Mutex::<(), First>::default(), Mutex::<(), First>::default());
    let _held = one.lock(Unshown);
    let said = panic_of(|| drop(other.lock(Unshown)));
    assert!(said.contains("the first"), "{said}");
}

#[test]
fn below_a_leaf_is_nothing_not_even_another() {
    let (one, other) = (LeafMutex::new(()), LeafMutex::new(()));
    let fourth = Mutex::<(), Fourth>::default();
    let held = one.lock();
    assert!(panic_of(|| drop(other.lock())).contains("a leaf"));
    assert!(panic_of(|| drop(fourth.lock(Unshown))).contains("a leaf"));
    drop(held);
    drop(fourth.lock(Unshown));
}

#[test]
fn what_was_given_up_is_forgotten_in_whatever_order() {
    let (first, second) = (
        Mutex::<(), First>::default(),
        Mutex::<(), Second>::default(),
    );
    let upper = first.lock(Unshown);
    let lower = second.lock(&upper);
    drop(upper);
    assert!(!panic_of(assert_none_from::<First>).is_empty());
    drop(lower);
    assert_none_from::<First>();
}

#[test]
fn what_others_hold_is_no_business_of_this_thread() {
    let second = Mutex::<(), Second>::default();
    let first = Mutex::<(), First>::default();
    let _lower = second.lock(Unshown);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(first.lock(Unshown)));
    });
}

#[test]
fn a_lock_that_is_only_tried_waits_for_nobody_and_counts_as_held() {
    let (first, second) = (
        Mutex::<(), First>::default(),
        Mutex::<(), Second>::default(),
    );
    let lower = second.lock(Unshown);
    let tried = first.try_lock().expect("nobody holds it");
    drop(lower);
    let said = panic_of(assert_none_from::<First>);
    assert!(said.contains("the first"), "{said}");
    drop(tried);
}

#[test]
fn who_holds_what_sharers_wait_for_shares_inside() {
    let inside = InsideLock::<Second, First>::default();
    let first = Mutex::<(), First>::default();
    let held = first.lock(Unshown);
    assert!(panic_of(|| drop(inside.read(Unshown))).contains("the second"));
    assert!(panic_of(|| drop(inside.write(Unshown))).contains("the second"));
    drop(inside.read_inside(&held));
    drop(held);
    drop(inside.read(Unshown));
    drop(inside.write(Unshown));
}

#[test]
fn a_panic_gives_up_what_it_held() {
    let first = Mutex::<(), First>::default();
    panic_of(|| {
        let _held = first.lock(Unshown);
        panic!("{}", "of somebody else");
    });
    assert_none_from::<First>();
}
