//! One thread, which is several clients.

use spindle_base::FileId;
use spindle_device::words::SharedMemory;

use crate::{Blocks, ClientNumber, Leases, Mode, OPERATIONS_COUNT, Patience, Refused};

fn blocks(first: u64, end: u64) -> Blocks {
    Blocks::new(FileId(7), first, end)
}

fn give_up(_: u32) -> Patience {
    Patience::GiveUp
}

#[test]
fn what_is_announced_is_found_until_it_ends_and_only_where_it_is() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let mut operation = leases.operation(client, 3);
    let announced = operation.announce_write(blocks(8, 10), give_up).unwrap();
    for (first, end, is_met) in [(0, 8, false), (0, 9, true), (9, 20, true), (10, 20, false)] {
        let revocation = leases.revoke(blocks(first, end)).unwrap();
        let found = revocation.under_way();
        assert_eq!(!found.is_empty(), is_met, "{first} to {end}");
        assert_eq!(revocation.writes_under_way().len(), found.len());
        if let [found] = &found[..] {
            assert_eq!(
                (found.client(), found.blocks(), found.mode()),
                (client.number(), blocks(8, 10), Mode::Write)
            );
            assert!(!found.has_ended());
        }
    }
    let other_file = leases.revoke(Blocks::new(FileId(8), 0, 99)).unwrap();
    assert!(other_file.under_way().is_empty());
    let everything = leases.revoke(Blocks::ALL).unwrap();
    let found = everything.under_way();
    announced.done();
    assert!(found[0].has_ended());
    assert!(everything.under_way().is_empty());
}

#[test]
fn what_is_revoked_is_announced_by_nobody_but_the_owner() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let owner = leases.let_in_owner(1);
    let mut operation = leases.operation(client, 0);
    let revocation = leases.revoke(blocks(4, 8)).unwrap();
    for (first, end) in [(7, 9), (0, 5)] {
        let refused = operation.announce_write(blocks(first, end), give_up);
        assert_eq!(refused.unwrap_err(), Refused::Revoked);
    }
    operation
        .announce_write(blocks(8, 9), give_up)
        .unwrap()
        .done();
    leases
        .operation(owner, 0)
        .announce_write(blocks(0, 5), give_up)
        .unwrap()
        .done();
    drop(revocation);
    operation
        .announce_write(blocks(0, 5), give_up)
        .unwrap()
        .done();
}

#[test]
fn two_writers_of_a_block_come_one_after_the_other() {
    let leases = Leases::create().unwrap();
    let [one, two] = [100, 101].map(|id| leases.let_in(id).unwrap());
    let mut first = leases.operation(one, 0);
    let mut second = leases.operation(two, 63);
    let written = first.announce_write(blocks(2, 4), give_up).unwrap();
    let held_by = Some(one.number());
    assert_eq!(
        second.announce_write(blocks(0, 256), give_up).unwrap_err(),
        Refused::Locked(held_by)
    );
    // Another file's, in all likelihood another word.
    let other = Blocks::new(FileId(8), 2, 4);
    second.announce_write(other, give_up).unwrap().done();
    let mut rounds = Vec::new();
    let mut written = Some(written);
    let taken = second.announce_write(blocks(3, 5), |round| {
        rounds.push(round);
        if round == 2 {
            written.take().unwrap().done();
        }
        Patience::Wait
    });
    taken.unwrap().done();
    assert_eq!(rounds, [0, 1, 2]);
}

#[test]
fn a_writer_that_waits_for_a_lock_lets_go_where_its_blocks_are_revoked() {
    let leases = Leases::create().unwrap();
    let [one, two] = [100, 101].map(|id| leases.let_in(id).unwrap());
    let mut first = leases.operation(one, 0);
    let written = first.announce_write(blocks(2, 4), give_up).unwrap();
    let mut revocation = None;
    let mut second = leases.operation(two, 0);
    let refused = second.announce_write(blocks(0, 64), |_| {
        revocation = leases.revoke(blocks(8, 9));
        Patience::Wait
    });
    assert_eq!(refused.unwrap_err(), Refused::Revoked);
    assert!(revocation.unwrap().under_way().is_empty());
    written.done();
    second
        .announce_write(blocks(0, 64), give_up)
        .unwrap()
        .done();
}

#[test]
fn what_a_dead_client_left_is_known_to_the_next_owner_too_and_goes_with_its_number() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let mut operation = leases.operation(client, 5);
    std::mem::forget(operation.announce_write(blocks(2, 4), give_up).unwrap());
    let memory = leases.memory().descriptor().try_clone_to_owned().unwrap();
    let next = Leases::new(SharedMemory::from_descriptor(memory).unwrap()).unwrap();
    let everything = next.take_over();
    assert_eq!(next.clients(), [client]);
    let left = next.left_by(client.number());
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].blocks(), left[0].mode()),
        (blocks(2, 4), Mode::Write)
    );
    next.let_go(client.number());
    assert!(next.clients().is_empty() && everything.under_way().is_empty());
    drop(everything);
    // Its number is somebody else's, and its locks are free.
    let other = next.let_in(200).unwrap();
    assert_eq!(other.number(), client.number());
    next.operation(other, 5)
        .announce_write(blocks(2, 4), give_up)
        .unwrap()
        .done();
    // One that lives after all is told.
    assert_eq!(
        leases
            .operation(client, 7)
            .announce_write(blocks(2, 4), give_up)
            .unwrap_err(),
        Refused::Gone
    );
}

#[test]
fn a_new_owner_has_everything_to_itself_and_nothing_of_the_former_one_stays_revoked() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    for first in [0, 10, 20] {
        std::mem::forget(leases.revoke(blocks(first, first + 1)).unwrap());
    }
    let everything = leases.take_over();
    let mut operation = leases.operation(client, 0);
    let refused = operation.announce_write(blocks(50, 51), give_up);
    assert_eq!(refused.unwrap_err(), Refused::Revoked);
    drop(everything);
    for first in [0, 10, 20, 50] {
        let announced = operation.announce_write(blocks(first, first + 1), give_up);
        announced.unwrap().done();
    }
    assert!(!leases.is_revoked(Blocks::ALL));
}

#[test]
fn a_write_that_the_owner_overtakes_is_torn_until_it_was_compared() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let owner = leases.let_in_owner(1);
    let mut operation = leases.operation(client, 0);
    let slow = operation.announce_write(blocks(2, 4), give_up).unwrap();
    let mut by_owner = leases.operation(owner, 0);
    let written = by_owner.announce_write(blocks(2, 6), |round| match round {
        0 => Patience::Wait,
        _ => Patience::Overtake,
    });
    written.unwrap().done();
    let [found] = &leases.left_by(client.number())[..] else {
        panic!("one is under way");
    };
    assert_eq!(found.mode(), Mode::Write);
    slow.done();
    assert!(!found.has_ended());
    let [found] = &leases.left_by(client.number())[..] else {
        panic!("one is torn");
    };
    assert_eq!((found.mode(), found.blocks()), (Mode::Torn, blocks(2, 4)));
    assert_eq!(
        operation
            .announce_write(blocks(9, 10), give_up)
            .unwrap_err(),
        Refused::Torn
    );
    found.is_compared();
    assert!(leases.left_by(client.number()).is_empty());
    operation
        .announce_write(blocks(2, 4), give_up)
        .unwrap()
        .done();
}

#[test]
fn a_write_that_does_not_come_to_its_end_is_torn() {
    let leases = Leases::create().unwrap();
    let [client, other] = [100, 101].map(|id| leases.let_in(id).unwrap());
    let mut operation = leases.operation(client, 0);
    drop(operation.announce_write(blocks(2, 4), give_up).unwrap());
    let [found] = &leases.left_by(client.number())[..] else {
        panic!("one is torn");
    };
    assert_eq!(found.mode(), Mode::Torn);
    // Its locks are free: the owner has to revoke before it compares.
    let mut another = leases.operation(other, 0);
    another
        .announce_write(blocks(2, 4), give_up)
        .unwrap()
        .done();
}

#[test]
#[should_panic(expected = "what is compared has ended")]
fn what_is_still_written_is_not_compared() {
    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let mut operation = leases.operation(client, 0);
    let _written = operation.announce_write(blocks(2, 4), give_up).unwrap();
    leases.left_by(client.number())[0].is_compared();
}

#[test]
fn an_owner_that_overtakes_has_the_lock_itself_and_nobody_who_came_in_between_is_overrun() {
    let leases = Leases::create().unwrap();
    let owner = leases.let_in_owner(1);
    let [one, two] = [100, 101].map(|id| leases.let_in(id).unwrap());
    let (mut first, mut second) = (leases.operation(one, 0), leases.operation(two, 0));
    let mut by_owner = leases.operation(owner, 0);
    // The lock becomes free as the owner loses its patience.
    let mut slow = first.announce_write(blocks(2, 4), give_up).ok();
    let written = by_owner.announce_write(blocks(2, 4), |_| {
        if let Some(slow) = slow.take() {
            slow.done();
        }
        Patience::Overtake
    });
    let written = written.unwrap();
    let refused = second.announce_write(blocks(2, 4), give_up).unwrap_err();
    assert_eq!(refused, Refused::Locked(Some(owner.number())));
    written.done();
    assert!(leases.left_by(one.number()).is_empty());
    assert!(slow.is_none());
    drop(slow);
    // The one that is overtaken ends before the owner does.
    let slow = first.announce_write(blocks(3, 4), give_up).unwrap();
    let written = by_owner.announce_write(blocks(2, 4), |_| Patience::Overtake);
    slow.done();
    let refused = second.announce_write(blocks(2, 3), give_up).unwrap_err();
    assert_eq!(refused, Refused::Locked(Some(owner.number())));
    written.unwrap().done();
    second.announce_write(blocks(2, 3), give_up).unwrap().done();
    assert_eq!(leases.left_by(one.number())[0].mode(), Mode::Torn);
}

#[test]
fn one_that_waits_for_a_lock_is_nothing_to_compare_and_gives_up_where_it_is_overtaken() {
    let leases = Leases::create().unwrap();
    let owner = leases.let_in_owner(1);
    let [one, two] = [100, 101].map(|id| leases.let_in(id).unwrap());
    let (mut first, mut second) = (leases.operation(one, 0), leases.operation(two, 0));
    let mut by_owner = leases.operation(owner, 0);
    // Another stretch, whose lock the waiting one has already.
    let written = first.announce_write(blocks(8, 9), give_up).unwrap();
    let mut written = Some(written);
    let refused = second.announce_write(blocks(0, 12), |round| {
        assert!(leases.left_by(two.number()).is_empty());
        if round == 0 {
            let overtaking = by_owner.announce_write(blocks(0, 8), |_| Patience::Overtake);
            overtaking.unwrap().done();
            if let Some(written) = written.take() {
                written.done();
            }
        }
        Patience::Wait
    });
    let of_locks = |refused: &Refused| matches!(refused, Refused::Overtaken);
    match refused {
        Ok(announced) => announced.done(),
        Err(refused) => assert!(of_locks(&refused), "{refused:?}"),
    }
    assert!(leases.left_by(two.number()).is_empty());
}

#[test]
fn what_an_owner_had_begun_to_let_go_of_is_gone_after_a_takeover_and_for_the_next_client() {
    for takes_over in [true, false] {
        let leases = Leases::create().unwrap();
        let client = leases.let_in(100).unwrap();
        let mut operation = leases.operation(client, 0);
        std::mem::forget(operation.announce_write(blocks(2, 4), give_up).unwrap());
        // As `let_go` is killed behind its first store.
        let word = leases.client_word(client.number());
        word.store(1 << 32, std::sync::atomic::Ordering::Release);
        if takes_over {
            drop(leases.take_over());
        }
        let next = leases.let_in(200).unwrap();
        assert_eq!(next.number(), client.number());
        let mut operation = leases.operation(next, 0);
        operation
            .announce_write(blocks(2, 4), give_up)
            .unwrap()
            .done();
    }
}

#[test]
fn as_many_as_there_are_places_for_are_let_in_and_revoked() {
    let leases = Leases::create().unwrap();
    let let_in: Vec<_> = (1..2000).map_while(|id| leases.let_in(id)).collect();
    assert_eq!(let_in.len(), crate::CLIENTS_COUNT - 1);
    assert_eq!(leases.clients(), let_in);
    assert!(ClientNumber::new(u16::try_from(crate::CLIENTS_COUNT).unwrap()).is_none());
    let revoked: Vec<_> = (0..)
        .map_while(|first| leases.revoke(blocks(first, first + 1)))
        .collect();
    assert_eq!(revoked.len(), 63);
    drop(revoked);
    assert!(leases.revoke(Blocks::ALL).is_some());
    let _ = leases.operation(let_in[0], OPERATIONS_COUNT - 1);
}

#[test]
fn memory_of_something_else_is_refused_and_wild_words_are_no_panic() {
    let other = SharedMemory::create("other", Leases::LENGTH_BYTES).unwrap();
    other.words()[0].store(5, std::sync::atomic::Ordering::Relaxed);
    assert!(Leases::new(other).is_err());
    let short = SharedMemory::create("short", 4096).unwrap();
    assert!(Leases::new(short).unwrap_err().contains("512 words"));

    let leases = Leases::create().unwrap();
    let client = leases.let_in(100).unwrap();
    let mut random = spindle_device::SeededRandom::new(1);
    for _ in 0..20 {
        for word in &leases.memory().words()[2..] {
            word.store(random.next_u64(), std::sync::atomic::Ordering::Relaxed);
        }
        for other in leases.clients() {
            for found in leases.left_by(other.number()) {
                found.overtake();
                if found.mode() == Mode::Torn {
                    found.is_compared();
                }
            }
        }
        drop(leases.revoke(blocks(0, 64)));
        drop(leases.take_over());
        assert!(leases.revoke(blocks(0, 64)).is_some());
        let _ = leases
            .operation(client, 0)
            .announce_write(blocks(0, 64), give_up);
        assert_eq!(leases.mend_locks(), 0, "a takeover has mended them");
    }
    let number = client.number();
    leases.let_go(number);
    assert!(leases.left_by(number).is_empty());
}
