//! The generator against servers whose behaviour is known.

use super::*;
use crate::analyse::latency::{mean_us, quantile_us};

/// Answers at once.
struct Null;

impl Client for Null {
    fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
        Ok(())
    }
}

/// Answers at once, and is of two kinds by turns.
#[derive(Default)]
struct Turning {
    count: usize,
}

impl Client for Turning {
    fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
        self.count += 1;
        Ok(())
    }

    fn kind(&self) -> Option<usize> {
        Some(self.count % 2)
    }
}

/// Takes a millisecond, but stands still for everybody at one time.
struct Stalling {
    began: Instant,
    from: Duration,
    until: Duration,
}

impl Client for Stalling {
    fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
        thread::sleep(Duration::from_millis(1));
        let now = self.began.elapsed();
        if now >= self.from && now < self.until {
            thread::sleep(self.until - now);
        }
        Ok(())
    }
}

fn plan(shape: Shape, warm_up_ms: u64, duration_ms: u64) -> LoadPlan {
    LoadPlan {
        shape,
        warm_up: Duration::from_millis(warm_up_ms),
        settling: None,
        duration: Duration::from_millis(duration_ms),
        seed: 11,
    }
}

const CLOSED: Shape = Shape::Closed {
    think_time: Duration::ZERO,
};

#[test]
fn latencies_are_told_by_kind_where_a_client_has_kinds_and_recorded_once_where_it_has_none() {
    let driven = |client: Box<dyn Client>| {
        let plan = plan(CLOSED, 0, 100);
        drive(vec![client], &plan, &Meter::default(), || (), || ()).unwrap()
    };
    let of = |latency: &Latency| -> u64 { latency.counts.iter().map(|(_, count)| count).sum() };
    let plain = driven(Box::new(Null));
    assert!(plain.operations > 0 && plain.kinds.is_empty());
    let turning = driven(Box::<Turning>::default());
    let kinds: Vec<u64> = turning.kinds.iter().map(of).collect();
    assert_eq!(kinds.len(), 2);
    assert_eq!(kinds.iter().sum::<u64>(), turning.operations);
    assert!(kinds[0].abs_diff(kinds[1]) <= 1, "{kinds:?}");
}

fn stalling(client_count: u64) -> Vec<Box<dyn Client>> {
    let began = Instant::now();
    (0..client_count)
        .map(|_| {
            Box::new(Stalling {
                began,
                from: Duration::from_millis(800),
                until: Duration::from_millis(1300),
            }) as Box<dyn Client>
        })
        .collect()
}

#[test]
fn the_harness_drives_a_null_contender_at_200_000_a_second_on_one_core() {
    let driven = drive(
        vec![Box::new(Null)],
        &plan(CLOSED, 50, 500),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    println!("{:.0} operations a second", driven.rate());
    // Per second of the one core that it got: others may run on this machine.
    let per_core = as_float(driven.operations) / driven.harness_s;
    assert!(per_core > 200_000.0, "{per_core}");
    assert!(
        driven.harness_s > 0.01 && driven.harness_s < 0.7,
        "{}",
        driven.harness_s
    );
}

#[test]
fn a_stall_counts_for_every_operation_that_should_have_begun_in_it() {
    let shape = Shape::Open { rate: 200.0 };
    let driven = drive(
        stalling(4),
        &plan(shape, 0, 2000),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    // 100 of 400 arrivals lie in the stall of half a second and wait for its end: a quarter of a
    // second on average. The closed view would show four slow operations.
    let slow: u64 = driven
        .latency
        .counts
        .iter()
        .filter(|(us, _)| *us > 50_000)
        .map(|(_, count)| count)
        .sum();
    assert!(
        (60..=200).contains(&slow),
        "{slow} of {}",
        driven.operations
    );
    let tail = quantile_us(&driven.latency, 0.9).unwrap();
    assert!(tail > 150_000, "{tail}");
    let mean = mean_us(&driven.latency).unwrap();
    assert!((30_000.0..200_000.0).contains(&mean), "{mean}");
    assert_eq!(driven.unserved, 0);
    let missing = driven.acknowledged.abs_diff(driven.operations);
    assert_eq!(missing, 0);
}

#[test]
fn operations_that_an_end_of_the_measured_time_cuts_are_accounted_for() {
    /// Longer than a third of the measured time.
    struct Slow;

    impl Client for Slow {
        fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
            thread::sleep(Duration::from_millis(190));
            Ok(())
        }
    }

    let driven = drive(
        vec![Box::new(Slow), Box::new(Slow)],
        &plan(CLOSED, 100, 500),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    // Operations end at 190, 380 and 570 ms, and one is under way at 600: the first began 100 ms
    // too early, the last 30 ms before the end. The operations that count tell of too many clients.
    let clients = |seconds: f64| seconds / driven.duration_s;
    let counted_s = as_float(driven.operations) * mean_us(&driven.latency).unwrap() / 1e6;
    assert!((clients(counted_s) - 2.0).abs() > 0.1, "{counted_s}");
    let clients = clients(counted_s + driven.under_way_s);
    assert!((clients - 2.0).abs() < 0.01, "{clients}");
}

#[test]
fn a_closed_load_hides_the_stall_which_is_why_there_is_an_open_one() {
    let driven = drive(
        stalling(4),
        &plan(CLOSED, 0, 2000),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    let slow: u64 = driven
        .latency
        .counts
        .iter()
        .filter(|(us, _)| *us > 50_000)
        .map(|(_, count)| count)
        .sum();
    assert!(slow <= 8, "{slow}");
}

#[test]
fn clients_are_the_rate_times_the_latency() {
    let driven = drive(
        stalling(4),
        &plan(CLOSED, 100, 600),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    let clients = driven.rate() * mean_us(&driven.latency).unwrap() / 1e6;
    assert!((clients - 4.0).abs() < 0.2, "{clients}");
}

#[test]
fn arrivals_beyond_what_is_carried_are_counted_and_stand_in_the_latencies() {
    // Four clients of a millisecond carry 4,000 a second at most.
    let shape = Shape::Open { rate: 20_000.0 };
    let began = Instant::now();
    let clients: Vec<Box<dyn Client>> = (0..2)
        .map(|_| {
            Box::new(Stalling {
                began,
                from: Duration::MAX,
                until: Duration::MAX,
            }) as Box<dyn Client>
        })
        .collect();
    let driven = drive(
        clients,
        &plan(shape, 0, 300),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap();
    assert!(driven.unserved > 1000, "{}", driven.unserved);
    assert!(quantile_us(&driven.latency, 0.9).unwrap() > 200_000);
}

#[test]
fn an_operation_that_fails_fails_the_load_with_its_reason() {
    struct Failing;
    impl Client for Failing {
        fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
            bail!("no room left")
        }
    }
    let error = drive(
        vec![Box::new(Null), Box::new(Failing)],
        &plan(CLOSED, 0, 5000),
        &Meter::default(),
        || {},
        || {},
    )
    .unwrap_err();
    assert!(format!("{error:#}").contains("no room left"));
}

#[test]
fn the_measured_time_is_marked_once_at_each_end() {
    let mut marks = Vec::new();
    let starts = std::cell::RefCell::new(&mut marks);
    drive(
        vec![Box::new(Null)],
        &plan(CLOSED, 50, 50),
        &Meter::default(),
        || starts.borrow_mut().push("start"),
        || starts.borrow_mut().push("end"),
    )
    .unwrap();
    assert_eq!(marks, ["start", "end"]);
}

/// Ever faster for a while, then steady; all clients together.
struct Warming {
    began: Instant,
    for_s: f64,
}

impl Client for Warming {
    fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
        let left = 1.0 - self.began.elapsed().as_secs_f64() / self.for_s;
        thread::sleep(Duration::from_secs_f64(0.005 + 0.045 * left.max(0.0)));
        Ok(())
    }
}

#[test]
fn the_measured_time_waits_until_the_rate_holds_still_and_keeps_its_length_and_its_law() {
    let warming = |for_s: f64, at_most_s: f64| {
        let began = Instant::now();
        let clients = (0..4)
            .map(|_| Box::new(Warming { began, for_s }) as Box<dyn Client>)
            .collect();
        let plan = LoadPlan {
            settling: Some(Settling {
                round: Duration::from_millis(200),
                at_most: Duration::from_secs_f64(at_most_s),
            }),
            ..plan(
                Shape::Closed {
                    think_time: Duration::ZERO,
                },
                200,
                600,
            )
        };
        let mut seen = (None, None);
        let driven = drive(
            clients,
            &plan,
            &Meter::default(),
            || seen.0 = Some(began.elapsed()),
            || seen.1 = Some(began.elapsed()),
        )
        .unwrap();
        let law = littles_law(&driven, 4.0, 0.0).unwrap();
        assert!(law.passed, "{law:?}");
        let length = seen.1.unwrap() - seen.0.unwrap();
        assert!(length >= Duration::from_millis(550), "{length:?}");
        driven
    };
    let settles = warming(1.5, 60.0);
    assert_eq!(settles.is_settled, Some(true));
    // No window of a second holds still while the time of an operation falls by a third in it.
    assert!(settles.warm_up_s > 1.2, "{}", settles.warm_up_s);
    let never = warming(4.0, 1.6);
    assert_eq!(never.is_settled, Some(false));
    assert!((1.6..3.0).contains(&never.warm_up_s), "{}", never.warm_up_s);
}
