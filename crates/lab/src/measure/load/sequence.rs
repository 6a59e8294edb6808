//! Work that is measured to its end: every client does a stated number of operations, however long
//! they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use spindle_testbed::interrupt;

use super::worker::{Report, processor_time};
use super::{Client, Driven, Meter, empty_histogram, latency_of, record};

/// Lets all clients begin at once and waits for the last one.
///
/// # Errors
/// Where an operation failed, or we were asked to stop.
pub fn drive_to_end(
    clients: Vec<Box<dyn Client>>,
    operations_each: u64,
    seed: u64,
    meter: &Meter,
) -> Result<Driven> {
    interrupt::check()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, reports) = mpsc::channel();
    let client_count = clients.len();
    let began = Instant::now();
    for (index, client) in clients.into_iter().enumerate() {
        let meter = meter.clone();
        let stop = Arc::clone(&stop);
        let sender = sender.clone();
        let random = fastrand::Rng::with_seed(seed ^ ((index as u64 + 1) << 32));
        thread::Builder::new()
            .name(format!("client-{index}"))
            .spawn(move || {
                let report = work(client, operations_each, random, &meter, &stop);
                // The receiver is gone only where the run has failed already.
                let _ = sender.send(report);
            })?;
    }
    drop(sender);
    let mut gathered = Vec::new();
    while gathered.len() < client_count {
        let news = reports.recv_timeout(Duration::from_millis(20));
        if interrupt::is_asked() {
            stop.store(true, Ordering::Relaxed);
            interrupt::check()?;
        }
        match news {
            Ok(Ok(report)) => gathered.push(report),
            Ok(Err(error)) => {
                stop.store(true, Ordering::Relaxed);
                return Err(error.context("an operation failed"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(anyhow!("a client ended without a word"));
            }
        }
    }
    let duration_s = began.elapsed().as_secs_f64();
    let mut all = empty_histogram();
    for report in &gathered {
        all.add(&report.latencies)
            .map_err(|error| anyhow!("latencies cannot be added: {error}"))?;
    }
    Ok(Driven {
        operations: all.len(),
        acknowledged: gathered.iter().map(|report| report.acknowledged).sum(),
        duration_s,
        warm_up_s: 0.0,
        is_settled: None,
        latency: latency_of(&all),
        kinds: Vec::new(),
        latency_s: gathered.iter().map(|report| report.latency_s).sum(),
        under_way_s: 0.0,
        between_s: 0.0,
        unserved: 0,
        harness_s: gathered.iter().map(|report| report.processor_s).sum(),
    })
}

/// The client is gone when this returns, and with it its connection.
fn work(
    mut client: Box<dyn Client>,
    operations: u64,
    mut random: fastrand::Rng,
    meter: &Meter,
    stop: &AtomicBool,
) -> Result<Report> {
    let mut report = Report {
        latencies: empty_histogram(),
        kinds: Vec::new(),
        acknowledged: 0,
        latency_s: 0.0,
        under_way_s: 0.0,
        between_s: 0.0,
        processor_s: 0.0,
    };
    let before = processor_time();
    for _ in 0..operations {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        client.operate(&mut random)?;
        let latency = began.elapsed();
        record(&mut report.latencies, latency);
        report.latency_s += latency.as_secs_f64();
        meter.count();
        report.acknowledged += 1;
    }
    report.processor_s = processor_time().saturating_sub(before).as_secs_f64();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    struct Slow {
        left: u32,
    }

    impl Client for Slow {
        fn operate(&mut self, _: &mut fastrand::Rng) -> Result<()> {
            if self.left == 0 {
                bail!("nothing is left to do");
            }
            self.left -= 1;
            thread::sleep(Duration::from_millis(10));
            Ok(())
        }
    }

    fn clients(each: u32) -> Vec<Box<dyn Client>> {
        (0..3)
            .map(|_| Box::new(Slow { left: each }) as Box<dyn Client>)
            .collect()
    }

    #[test]
    fn every_client_does_all_its_operations_and_the_last_one_is_waited_for() {
        let meter = Meter::default();
        let driven = drive_to_end(clients(4), 4, 1, &meter).unwrap();
        assert_eq!(driven.operations, 12);
        assert_eq!(driven.acknowledged, 12);
        assert_eq!(meter.operations(), 12);
        assert!(driven.duration_s >= 0.04, "{}", driven.duration_s);
    }

    #[test]
    fn one_that_fails_fails_the_whole_with_its_reason() {
        let error = drive_to_end(clients(2), 3, 1, &Meter::default()).unwrap_err();
        assert!(format!("{error:#}").contains("nothing is left to do"));
    }
}
