//! pgbench: PostgreSQL's own load, and its log of every acknowledged transaction.
//!
//! The log is written by the client, so it can lie outside of what is tested: a line in it is a
//! commit that the server has acknowledged.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::figures::quantile;
use crate::interrupt;
use crate::postgres::Cluster;
use crate::process::{kill_tree, run_well, send};

/// One acknowledged transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Which of the clients, from 0.
    pub client: u32,
    /// When the answer came, in microseconds since 1970.
    pub at_us: u64,
    /// How long the transaction took.
    pub latency_us: u64,
}

/// A run's rate and latencies.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Transactions a second.
    pub per_second: f64,
    /// The median latency.
    pub p50_us: u64,
    /// What 99 of 100 transactions stay below.
    pub p99_us: u64,
    /// The longest.
    pub worst_us: u64,
}

impl Rate {
    /// Of the transactions that were acknowledged from `from_us` to `to_us`.
    ///
    /// # Errors
    /// Where there was none: nothing was measured, which is not a rate of zero.
    pub fn between(log: &[Acknowledged], from_us: u64, to_us: u64) -> Result<Self> {
        let mut latencies: Vec<u64> = log
            .iter()
            .filter(|entry| (from_us..to_us).contains(&entry.at_us))
            .map(|entry| entry.latency_us)
            .collect();
        latencies.sort_unstable();
        let at = |share| quantile(&latencies, share).context("no transaction was acknowledged");
        #[allow(clippy::cast_precision_loss, reason = "both are far below 2^52")]
        let per_second = latencies.len() as f64 / ((to_us - from_us) as f64 / 1e6);
        Ok(Self {
            per_second,
            p50_us: at(0.5)?,
            p99_us: at(0.99)?,
            worst_us: at(1.0)?,
        })
    }
}

/// Fills the four tables of pgbench.
///
/// # Errors
/// What pgbench says.
pub fn fill(cluster: &Cluster, scale: u32) -> Result<Duration> {
    let began = Instant::now();
    run_well(
        cluster
            .client("pgbench")
            .args(["--initialize", "--quiet", "--scale", &scale.to_string()])
            .arg("postgres"),
    )?;
    Ok(began.elapsed())
}

/// What a run of pgbench does.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The scale that [`fill`] was given.
    pub scale: u32,
    /// Clients at once.
    pub client_count: u32,
    /// How long.
    pub duration: Duration,
    /// The script to run instead of the built-in one.
    pub script: Option<&'a Path>,
    /// Further options, such as `--select-only`.
    pub options: &'a [&'a str],
}

/// A running pgbench; a drop ends it.
#[derive(Debug)]
pub struct Load {
    child: Child,
    log_prefix: PathBuf,
    said: Arc<Mutex<Vec<(Instant, String)>>>,
    reader: Option<JoinHandle<()>>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Finished {
    /// Every acknowledged transaction; each client's in their order.
    pub log: Vec<Acknowledged>,
    /// The lines that tell of an error, with their time.
    pub errors: Vec<(Instant, String)>,
}

impl Load {
    /// Starts pgbench; its logs go to `directory/NAME.*`.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(cluster: &Cluster, plan: &Plan<'_>, directory: &Path, name: &str) -> Result<Self> {
        let log_prefix = directory.join(name);
        let mut command = cluster.client("pgbench");
        command
            .args(["--no-vacuum", "--log", "--progress", "1"])
            .args(["--scale", &plan.scale.to_string()])
            .args(["--client", &plan.client_count.to_string()])
            .args(["--jobs", &plan.client_count.min(2).to_string()])
            .args(["--time", &plan.duration.as_secs().to_string()])
            .arg("--log-prefix")
            .arg(&log_prefix)
            .args(plan.options);
        if let Some(script) = plan.script {
            command.arg("--file").arg(script);
        }
        let mut child = command
            .arg("postgres")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start pgbench")?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let reader = child.stderr.take().map(|pipe| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    said.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((Instant::now(), line));
                }
            })
        });
        Ok(Self {
            child,
            log_prefix,
            said,
            reader,
        })
    }

    /// The last progress line, shortened: rate and latency.
    #[must_use]
    pub fn progress(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter()
            .rev()
            .find_map(|(_, line)| {
                let parts: Vec<&str> = line.strip_prefix("progress: ")?.split(", ").collect();
                Some(format!("{}, {}", parts.get(1)?, parts.get(2)?))
            })
            .unwrap_or_default()
    }

    /// The errors told so far.
    #[must_use]
    pub fn errors(&self) -> Vec<(Instant, String)> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter()
            .filter(|(_, line)| line.contains("error") || line.contains("aborted"))
            .cloned()
            .collect()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// Where that cannot be known.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end and reads its logs.
    ///
    /// # Errors
    /// Where it does not end within `limit`, or a log cannot be read.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        interrupt::wait_for("pgbench to end", limit, || Ok(self.child.try_wait()?))?;
        if let Some(reader) = self.reader.take() {
            // The pipe is at its end, since the process is: the thread ends too.
            let _ = reader.join();
        }
        Ok(Finished {
            log: self.read_logs()?,
            errors: self.errors(),
        })
    }

    /// pgbench writes a file for each of its threads: PREFIX.PROCESS and PREFIX.PROCESS.THREAD.
    fn read_logs(&self) -> Result<Vec<Acknowledged>> {
        let mut log = Vec::new();
        let directory = self.log_prefix.parent().context("a log has a directory")?;
        let name = self
            .log_prefix
            .file_name()
            .map(OsStr::to_string_lossy)
            .unwrap_or_default();
        let prefix = format!("{name}.{}", self.child.id());
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let is_ours = entry
                .file_name()
                .to_string_lossy()
                .strip_prefix(&prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            if !is_ours {
                continue;
            }
            log.extend(parse_log(&fs::read_to_string(entry.path())?)?);
        }
        if log.is_empty() {
            bail!("pgbench acknowledged nothing: {:?}", self.errors());
        }
        log.sort_by_key(|entry| entry.at_us);
        Ok(log)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            send(self.child.id(), Signal::TERM);
            kill_tree(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// Reads a log.
///
/// # Errors
/// Where a line is none of pgbench's; the last one may be torn where its writer was killed, and
/// then it is no acknowledgement.
pub fn parse_log(text: &str) -> Result<Vec<Acknowledged>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse_line).collect()
}

/// `client transaction latency_us script second microsecond`, as pgbench documents it.
fn parse_line(line: &str) -> Result<Acknowledged> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| -> Result<u64> {
        fields
            .get(index)
            .and_then(|field| field.parse().ok())
            .with_context(|| format!("not a line of pgbench's log: {line}"))
    };
    Ok(Acknowledged {
        client: u32::try_from(number(0)?)?,
        at_us: number(4)? * 1_000_000 + number(5)?,
        latency_us: number(2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_one_acknowledgement() {
        let entry = parse_line("3 199 2241 0 1175850568 995598").unwrap();
        assert_eq!(
            entry,
            Acknowledged {
                client: 3,
                at_us: 1_175_850_568_995_598,
                latency_us: 2241,
            }
        );
    }

    #[test]
    fn a_line_that_tells_of_a_failure_is_no_acknowledgement() {
        assert!(parse_line("3 199 failed 0 1175850568 995598").is_err());
        assert!(parse_line("3 199").is_err());
    }

    #[test]
    fn a_rate_of_nothing_is_an_error_and_not_zero() {
        assert!(Rate::between(&[], 0, 1_000_000).is_err());
    }
}
