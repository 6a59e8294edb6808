//! The simulator of threads: the real group under a scheduler that is drawn from a seed.
//!
//! `harness/sim` has one thread and every operation of a file system; here several threads write,
//! sync, commit, lose disks and copy, and each lock, atomic and disk request is a point at which
//! another of them may go on or the power may fail. A seed and a commit repeat a run.

mod clock;
mod disks;
mod faults;
mod history;
mod scheduler;
mod story;
mod watch;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use clock::Clock;
use history::History;
use scheduler::SeededScheduler;
use spindle_sync::Fault;
use story::Plot;

const USAGE: &str = "\
usage: spindle-threads --seed N            one run, told at length
       spindle-threads --seeds A..B [--threads T] [--seconds S] [--keep-going]
                       [--every N]: only each N-th seed, which all have the same plot where N is 16
       spindle-threads --put-back NAME|all --seeds A..B [--threads T]
                       makes a mistake that was once in the code, and has to find it
";

/// Room for the deepest call of the group's.
const STACK_BYTES: usize = 1 << 20;
/// Points after which a run counts as one that does not end.
const POINTS_MOST: usize = 20_000_000;
/// A run is over in milliseconds; one that takes this long waits for itself inside of a library.
const HANGS_AFTER: Duration = Duration::from_secs(120);

struct Request {
    first: u64,
    last: u64,
    threads: usize,
    seconds: Option<u64>,
    every: u64,
    keep_going: bool,
    put_back: Vec<Fault>,
}

fn main() -> ExitCode {
    match request().map(|request| run(&request)) {
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
        every: 1,
        keep_going: false,
        put_back: Vec::new(),
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
                request.seconds = Some(value()?.parse().context("seconds are a number")?);
            }
            "--every" => request.every = value()?.parse().context("every is a number")?,
            "--put-back" => request.put_back = faults(&value()?)?,
            "--keep-going" => request.keep_going = true,
            other => bail!("what is {other}?"),
        }
    }
    Ok(request)
}

fn faults(name: &str) -> Result<Vec<Fault>> {
    if name == "all" {
        return Ok(Fault::ALL.to_vec());
    }
    let known = || Fault::ALL.iter().map(|fault| fault.name());
    let found = Fault::ALL.iter().find(|fault| fault.name() == name);
    let found = found.with_context(|| {
        let names: Vec<&str> = known().collect();
        format!("which mistake is {name}? One of {}", names.join(", "))
    })?;
    Ok(vec![*found])
}

thread_local! {
    /// Of the first panic of this run: a second one is a consequence.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

fn remember_panics(is_traced: bool) {
    std::panic::set_hook(Box::new(move |information| {
        let mut text = information.to_string().replace('\n', " ");
        if is_traced {
            text.push_str(&format!("\n{}", std::backtrace::Backtrace::force_capture()));
        }
        PANIC.with_borrow_mut(|kept| {
            if kept.is_empty() {
                *kept = text;
            }
        });
    }));
}

/// What a seed broke: what, and the trace where it was asked for.
type Broken = (Vec<String>, Vec<String>);

/// Runs a seed.
fn simulate(seed: u64, traced: bool) -> Option<Broken> {
    let history = Arc::new(History::default());
    if traced {
        history.trace();
    }
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(POINTS_MOST);
    config.silence_warnings = true;
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    let told = Arc::clone(&history);
    let clock = Arc::new(Clock::new(Plot::of(seed).has_time()));
    // A thread of its own: an execution that ends in a panic leaves its scheduler's state behind.
    let outcome = std::thread::Builder::new()
        .name("seed".to_owned())
        .spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let scheduler = SeededScheduler::new(seed, Arc::clone(&clock));
                let runner = Runner::new(scheduler, config);
                runner.run(move || story::run(seed, &told, &clock));
            }));
            outcome.err().map(|_| PANIC.with_borrow(String::clone))
        })
        .map(std::thread::JoinHandle::join);
    match outcome {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(panic))) => history.violate(format!("panic: {panic}")),
        Ok(Err(_)) => history.violate("panic outside of the story".to_owned()),
        Err(error) => history.violate(format!("a thread cannot be started: {error}")),
    }
    let broken = history.take();
    (!broken.0.is_empty()).then_some(broken)
}

struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    violations: Mutex<Vec<(u64, String)>>,
    at_work: Vec<Mutex<Option<(u64, Instant)>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run(request: &Request) -> bool {
    remember_panics(request.first == request.last);
    if request.first == request.last {
        if let Some(fault) = request.put_back.first() {
            spindle_sync::put_back(*fault);
        }
        return run_one(request.first);
    }
    if request.put_back.is_empty() {
        return run_seeds(request).is_empty();
    }
    let mut all_found = true;
    for fault in &request.put_back {
        spindle_sync::put_back(*fault);
        let found = !run_seeds(request).is_empty();
        let verdict = if found { "found" } else { "NOT FOUND" };
        println!("{}: {verdict}", fault.name());
        all_found &= found;
    }
    all_found
}

/// The seeds that broke a promise, and how.
fn run_seeds(request: &Request) -> Vec<(u64, String)> {
    let begun = Instant::now();
    let shared = Shared {
        next: AtomicU64::new(request.first),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        violations: Mutex::default(),
        at_work: (0..request.threads).map(|_| Mutex::default()).collect(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (shared.at_work.iter())
            .map(|place| {
                let shared = &shared;
                scope.spawn(move || work(request, shared, place, begun))
            })
            .collect();
        let mut reported = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            watch(&shared);
            if reported.elapsed() >= Duration::from_secs(10) {
                reported = Instant::now();
                let done = shared.done.load(Ordering::Relaxed);
                println!("{done} seeds in {} s", begun.elapsed().as_secs());
            }
        }
    });
    let violations = std::mem::take(&mut *locked(&shared.violations));
    let done = shared.done.load(Ordering::Relaxed);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{done} threaded seeds in {seconds:.1} s, {} broke a promise",
        violations.len()
    );
    for (seed, what) in &violations {
        println!("seed {seed}: {what}");
    }
    violations
}

fn run_one(seed: u64) -> bool {
    let Some((broken, trace)) = simulate(seed, true) else {
        println!("seed {seed}: every promise held");
        return true;
    };
    for line in trace {
        println!("{line}");
    }
    for what in broken {
        println!("seed {seed}: {what}");
    }
    false
}

fn work(request: &Request, shared: &Shared, place: &Mutex<Option<(u64, Instant)>>, begun: Instant) {
    while !shared.stop.load(Ordering::Relaxed) {
        let seed = shared.next.fetch_add(request.every, Ordering::Relaxed);
        let out_of_time =
            (request.seconds).is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
        if seed > request.last || out_of_time {
            break;
        }
        *locked(place) = Some((seed, Instant::now()));
        if let Some((broken, _)) = simulate(seed, false) {
            let first = broken.into_iter().next().unwrap_or_default();
            let first = first.lines().next().unwrap_or_default().to_owned();
            locked(&shared.violations).push((seed, first));
            if !request.keep_going {
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    *locked(place) = None;
}

/// A lock inside of a library that another logical thread holds would otherwise end no run.
fn watch(shared: &Shared) {
    for place in &shared.at_work {
        if let Some((seed, since)) = *locked(place)
            && since.elapsed() > HANGS_AFTER
        {
            println!("seed {seed} hangs");
            std::process::exit(1);
        }
    }
}
