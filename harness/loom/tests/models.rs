//! Orders of memory that are weaker than what everybody would see, tried by loom.
//!
//! The models stand beside the code that they are of (`models.rs` of `catalog`, of `group` and of `lease`), and
//! run it; here is only how far each is tried. Each was seen to fail with one of its orders
//! weakened: `docs/decisions/memory-orders.md` lists the words, and the model of each.

use spindle_catalog::models as kept;
use spindle_group::models as group;
use spindle_lease::map::models as map;
use spindle_lease::models as lease;

/// Threads are made to give way so often at places of loom's choice: more finds no more here, and
/// takes minutes.
const PREEMPTIONS_MOST: usize = 3;

fn explore(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MOST);
    builder.check(model);
}

macro_rules! models {
    ($($module:ident: $($name:ident),+;)+) => {
        $($(
            #[test]
            fn $name() {
                explore($module::$name);
            }
        )+)+
    };
}

models! {
    kept:
        a_touch_is_found_whole,
        a_write_under_way_is_found_whole,
        two_writers_do_not_share_a_place,
        a_list_of_done_requests_is_found_whole,
        records_are_found_whole,
        what_is_done_is_in_the_log,
        a_touch_is_given_up_after_its_row,
        a_takeover_leaves_what_the_next_one_needs,
        a_block_that_is_left_is_whole_and_its_own,
        a_lost_block_is_never_left;
    group:
        a_reader_looks_for_what_a_returned_disk_missed,
        a_disk_that_has_gone_is_a_turn,
        what_is_noted_of_an_outage_is_seen,
        a_disk_that_is_back_is_asked_where_it_is,
        what_counts_as_flushed_is_on_the_disk,
        two_syncs_share_flushes,
        what_is_written_while_an_extent_moves_is_copied_again;
    lease:
        what_is_revoked_is_touched_by_one,
        what_ended_is_seen,
        two_writers_leave_equal_copies,
        an_operation_is_found_whole,
        what_is_overtaken_is_torn,
        a_takeover_leaves_no_moment;
    map:
        what_moves_is_read_where_it_lies,
        what_was_closed_meanwhile_does_not_count,
        what_was_read_behind_an_outage_does_not_count,
        an_entry_is_found_whole,
        the_next_file_in_a_place_is_not_taken_for_the_one_before,
        the_file_before_in_a_place_is_not_taken_for_the_next,
        what_begins_behind_an_outage_asks_no_disk;
}
