//! `spindle-sim`: one seed told at length, or very many.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use spindle_sim::{Coverage, Plan, Violation, shrink, simulate};

const USAGE: &str = "\
usage: spindle-sim --seed N               one run; shrinks it where it breaks a promise
       spindle-sim --seeds A..B [--threads T] [--seconds S] [--keep-going]
";

/// A run is over in milliseconds; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);
const REPORT_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Request {
    first: u64,
    last: u64,
    threads: usize,
    seconds: Option<u64>,
    keep_going: bool,
}

fn main() -> ExitCode {
    match request().and_then(|request| run(&request)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn request() -> Result<Request> {
    let mut request = Request {
        first: 1,
        last: 1,
        threads: 1,
        seconds: None,
        keep_going: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--seed" => {
                request.first = value()?.parse().context("a seed is a number")?;
                request.last = request.first;
            }
            "--seeds" => {
                let range = value()?;
                let (first, last) = range.split_once("..").context("seeds are A..B")?;
                request.first = first.parse().context("seeds are numbers")?;
                request.last = last.parse().context("seeds are numbers")?;
            }
            "--threads" => request.threads = value()?.parse().context("threads are a number")?,
            "--seconds" => {
                request.seconds = Some(value()?.parse().context("seconds are a number")?)
            }
            "--keep-going" => request.keep_going = true,
            other => bail!("what is {other}?"),
        }
    }
    Ok(request)
}

/// What the threads share.
struct Shared {
    next: AtomicU64,
    stop: AtomicBool,
    done: AtomicU64,
    coverage: Mutex<Coverage>,
    violations: Mutex<Vec<(Plan, Box<Violation>)>>,
    /// What each thread is at, for the watchdog.
    at_work: Vec<Mutex<Option<(u64, Instant)>>>,
}

fn run(request: &Request) -> Result<bool> {
    let begun = Instant::now();
    let shared = Shared {
        next: AtomicU64::new(request.first),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        coverage: Mutex::default(),
        violations: Mutex::default(),
        at_work: (0..request.threads).map(|_| Mutex::default()).collect(),
    };
    std::thread::scope(|scope| -> Result<()> {
        let mut workers = Vec::new();
        for place in &shared.at_work {
            let shared = &shared;
            let worker = std::thread::Builder::new()
                .name("seeds".to_owned())
                .spawn_scoped(scope, move || work(request, shared, place, begun))
                .context("a thread cannot be started")?;
            workers.push(worker);
        }
        let mut reported = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            watch(&shared);
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                let done = shared.done.load(Ordering::Relaxed);
                println!("{done} seeds in {} s", begun.elapsed().as_secs());
            }
        }
        Ok(())
    })?;
    report(request, &shared, begun)
}

fn work(request: &Request, shared: &Shared, place: &Mutex<Option<(u64, Instant)>>, begun: Instant) {
    while !shared.stop.load(Ordering::Relaxed) {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        let out_of_time = request
            .seconds
            .is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
        if seed > request.last || out_of_time {
            break;
        }
        set(place, Some((seed, Instant::now())));
        let plan = Plan::new(seed);
        match simulate(&plan, None) {
            Ok(coverage) => locked(&shared.coverage).add(&coverage),
            Err(violation) => {
                if !request.keep_going {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                locked(&shared.violations).push((plan, violation));
            }
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    set(place, None);
}

fn set(place: &Mutex<Option<(u64, Instant)>>, value: Option<(u64, Instant)>) {
    *locked(place) = value;
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A deadlock would otherwise end no run and name no seed.
fn watch(shared: &Shared) {
    for place in &shared.at_work {
        if let Some((seed, since)) = *locked(place)
            && since.elapsed() > HANGS_AFTER
        {
            println!("seed {seed} hangs\nmake sim SEED={seed}");
            std::process::exit(1);
        }
    }
}

fn report(request: &Request, shared: &Shared, begun: Instant) -> Result<bool> {
    let done = shared.done.load(Ordering::Relaxed);
    let mut violations = std::mem::take(&mut *locked(&shared.violations));
    violations.sort_by_key(|(plan, _)| plan.seed);
    println!(
        "{done} seeds in {:.1} s: {}",
        begun.elapsed().as_secs_f64(),
        locked(&shared.coverage)
    );
    if request.keep_going {
        for (_, violation) in &violations {
            let first = violation.message.lines().next().unwrap_or_default();
            println!("seed {}: {first}", violation.seed);
        }
        println!("{} violations", violations.len());
    }
    let Some((plan, violation)) = violations.into_iter().next() else {
        return Ok(true);
    };
    println!("{violation}");
    let shrunk = std::thread::Builder::new()
        .name("seeds".to_owned())
        .spawn(move || shrink(&plan, violation, None))
        .context("a thread cannot be started")?
        .join();
    if let Ok((plan, violation)) = shrunk {
        println!(
            "the same with {} operations:\n{violation}",
            plan.operation_count()
        );
    }
    Ok(false)
}
