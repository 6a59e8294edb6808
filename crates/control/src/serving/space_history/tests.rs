//! Groups that fill in all sorts of ways, under clocks that are set.

use super::{DAY_S, SAMPLE_INTERVAL_S, SAMPLES_MOST, SpaceHistory, Stamp};
use crate::api::forecast::{ForecastReport, ForecastState};

const MIB: u64 = 1 << 20;
/// What the groups here grow by between two samples: 144 MiB a day.
const STEP_BYTES: u64 = MIB;

fn stamp(boot: &str, booted_s: u64, time_s: u64) -> Stamp {
    Stamp {
        boot: boot.to_owned(),
        booted_s,
        time_s,
    }
}

/// So many samples in a row, of what `used` says of each.
fn seen(count: u64, used: impl Fn(u64) -> u64) -> SpaceHistory {
    let mut history = SpaceHistory::default();
    for index in 0..count {
        let at_s = index * SAMPLE_INTERVAL_S;
        assert!(history.note(stamp("a", at_s, 1_000_000 + at_s), used(index)));
    }
    history
}

/// With a GiB usable for files of two copies.
fn forecast(history: &SpaceHistory) -> ForecastReport {
    history.forecast("data", 1024 * 1024 * 1024, 2)
}

#[track_caller]
fn expect_days(history: &SpaceHistory, days: f64) {
    let told = forecast(history);
    assert_eq!(told.state, ForecastState::Filling, "{told:?}");
    let full_in_days = told.full_in_s.unwrap() as f64 / DAY_S as f64;
    assert!(
        (full_in_days - days).abs() < 0.1 * days,
        "{full_in_days} of {days}"
    );
}

#[test]
fn nothing_is_said_before_an_hour_was_seen() {
    for count in [0, 1, 6] {
        let told = forecast(&seen(count, |index| index * STEP_BYTES));
        assert_eq!((told.state, told.full_in_s), (ForecastState::Unknown, None));
        assert_eq!(told.growth_bytes_per_day, None);
    }
    let told = forecast(&seen(7, |index| index * STEP_BYTES));
    assert_eq!((told.state, told.window_s), (ForecastState::Filling, 3600));
}

#[test]
fn a_group_that_grows_is_full_when_what_is_left_for_all_copies_is_used() {
    let history = seen(500, |index| 7 * MIB + index * STEP_BYTES);
    expect_days(&history, 2048.0 / 144.0);
    assert_eq!(
        forecast(&history).growth_bytes_per_day,
        Some(144 * 1024 * 1024)
    );
    let full = history.forecast("data", 0, 2);
    assert_eq!((full.state, full.full_in_s), (ForecastState::Full, Some(0)));
}

#[test]
fn a_group_that_shrinks_or_stays_or_hardly_grows_is_steady() {
    let shrinking = seen(500, |index| 1000 * MIB - index * STEP_BYTES);
    let staying = seen(500, |_| 1000 * MIB);
    let hardly = seen(500, |index| index);
    for history in [shrinking, staying, hardly] {
        let told = forecast(&history);
        assert_eq!((told.state, told.full_in_s), (ForecastState::Steady, None));
    }
}

#[test]
fn one_load_and_one_file_that_came_and_went_change_nothing_and_a_batch_each_night_counts() {
    let loaded = seen(900, |index| {
        index * STEP_BYTES + u64::from(index > 700) * 5000 * MIB
    });
    expect_days(&loaded, 2048.0 / 144.0);
    let sorted = seen(900, |index| {
        index * STEP_BYTES + u64::from((400..430).contains(&index)) * 50_000 * MIB
    });
    expect_days(&sorted, 2048.0 / 144.0);
    // One day is 144 samples.
    let nightly = seen(1000, |index| index / 144 * 144 * STEP_BYTES);
    expect_days(&nightly, 2048.0 / 144.0);
}

#[test]
fn a_clock_that_is_set_while_the_machine_runs_changes_nothing() {
    let mut history = SpaceHistory::default();
    for index in 0..300_u64 {
        let at_s = index * SAMPLE_INTERVAL_S;
        let time_s = match index {
            0..100 => 1_000_000_000 + at_s,
            100..200 => at_s,
            _ => 2_000_000_000 + at_s,
        };
        history.note(stamp("a", at_s, time_s), index * STEP_BYTES);
    }
    expect_days(&history, 2048.0 / 144.0);
    assert_eq!(forecast(&history).window_s, 299 * SAMPLE_INTERVAL_S);
}

#[test]
fn after_a_restart_of_the_machine_the_calendar_counts_and_one_that_went_back_forgets() {
    let mut history = seen(100, |index| index * STEP_BYTES);
    let last_s = 1_000_000 + 99 * SAMPLE_INTERVAL_S;
    // Off for as long as the 100 samples took.
    let on_s = last_s + 100 * SAMPLE_INTERVAL_S;
    assert!(history.note(stamp("b", 5, on_s), 199 * STEP_BYTES));
    expect_days(&history, 2048.0 / 144.0);
    assert_eq!(forecast(&history).window_s, 199 * SAMPLE_INTERVAL_S);
    assert!(history.note(stamp("c", 5, 0), 200 * STEP_BYTES));
    assert_eq!(forecast(&history).state, ForecastState::Unknown);
    let far = stamp("d", 5, 4_000_000_000);
    assert!(history.note(far, 200 * STEP_BYTES));
    assert_eq!(
        forecast(&history).window_s,
        0,
        "a week has passed, by the calendar"
    );
}

#[test]
fn a_size_is_noted_every_ten_minutes_and_kept_for_a_week() {
    let mut history = seen(3 * SAMPLES_MOST as u64, |index| index * STEP_BYTES);
    assert_eq!(history.samples.len(), SAMPLES_MOST);
    assert_eq!(history.window_s(), 7 * DAY_S);
    let now_s = 3 * SAMPLES_MOST as u64 * SAMPLE_INTERVAL_S - 1;
    assert!(!history.note(stamp("a", now_s, now_s), 1), "not yet");
    assert_eq!(history.samples.len(), SAMPLES_MOST);
}

#[test]
fn what_was_kept_survives_the_file_and_what_is_no_history_is_none() {
    let history = seen(500, |index| index * STEP_BYTES);
    let text = serde_json::to_string(&history).unwrap();
    let read: SpaceHistory = serde_json::from_str(&text).unwrap();
    assert_eq!(read.checked(), history);
    let mut backwards = history.clone();
    backwards.samples[7].at_s = 1;
    let mut undated = history.clone();
    undated.last = None;
    let mut long = history;
    while long.samples.len() <= SAMPLES_MOST {
        let mut next = long.samples[long.samples.len() - 1];
        next.at_s += 1;
        long.samples.push_back(next);
    }
    for wrong in [backwards, undated, long] {
        assert_eq!(wrong.checked(), SpaceHistory::default());
    }
}
