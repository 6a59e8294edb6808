//! What the lab has made on this machine, and how each is undone.
//!
//! An intention is recorded durably before it is carried out, so that at no moment something is
//! there that no journal names. [`Made`] undoes its entry when it is dropped; entries are undone in
//! the reverse order of their making. A SIGKILL leaves the journal; the next start finds that its
//! owner is dead and undoes what stands in it ([`clear_left_behind`]). Undoing what never came to be
//! is no error: each way to undo looks first.

mod undo;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::process::Identity;
use crate::complain;
pub use undo::Undo;

#[derive(Serialize, Deserialize)]
enum Line {
    /// First: who writes this.
    Owner { identity: Identity, boot: String },
    /// Something is about to be made.
    Make { entry: u64, undo: Undo },
    /// It is gone.
    Gone { entry: u64 },
}

#[derive(Debug)]
struct Writer {
    file: File,
    next_entry: u64,
    open_count: u64,
}

/// The journal of this process.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
    writer: Arc<Mutex<Writer>>,
}

/// Something that was made; a drop undoes it.
#[derive(Debug)]
pub struct Made {
    journal: Journal,
    entry: u64,
    undo: Undo,
    /// Undone, or told that it cannot be: a drop does not try again.
    is_settled: bool,
}

/// Where the journals are: they must outlive a restart of the machine, as the files do.
#[must_use]
pub fn directory() -> PathBuf {
    if let Some(path) = std::env::var_os("SPINDLE_LAB_STATE") {
        return PathBuf::from(path);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/spindle-lab");
    }
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(".local/state/spindle-lab")
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

impl Journal {
    /// Begins one in `directory`, which is made.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn begin(directory: &Path) -> Result<Self> {
        let identity = Identity::own();
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        // Several in one process (tests) must not share a file.
        let mut path = directory.join(format!("{}-{}.journal", identity.id, identity.started));
        let mut number = 1;
        let file = loop {
            match File::options().create_new(true).append(true).open(&path) {
                Ok(file) => break file,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    number += 1;
                    path = directory.join(format!(
                        "{}-{}-{number}.journal",
                        identity.id, identity.started
                    ));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot write {}", path.display()));
                }
            }
        };
        let journal = Self {
            path,
            writer: Arc::new(Mutex::new(Writer {
                file,
                next_entry: 1,
                open_count: 0,
            })),
        };
        let owner = Line::Owner {
            identity,
            boot: boot(),
        };
        journal.with(|writer| append(writer, &owner))?;
        Ok(journal)
    }

    /// Records what is about to be made. The caller makes it after this.
    ///
    /// # Errors
    /// Where the journal cannot be written: then nothing may be made.
    pub fn intend(&self, undo: Undo) -> Result<Made> {
        let entry = self.with(|writer| {
            let entry = writer.next_entry;
            let line = Line::Make {
                entry,
                undo: undo.clone(),
            };
            append(writer, &line)?;
            writer.next_entry += 1;
            writer.open_count += 1;
            Ok(entry)
        })?;
        Ok(Made {
            journal: self.clone(),
            entry,
            undo,
            is_settled: false,
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut writer).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn gone(&self, entry: u64) -> Result<()> {
        self.with(|writer| {
            append(writer, &Line::Gone { entry })?;
            writer.open_count -= 1;
            Ok(())
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The last one to hold it, with nothing left to undo, takes the file away.
        if Arc::strong_count(&self.writer) == 1 {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            if writer.open_count == 0 {
                let _ = fs::remove_file(&self.path);
            }
        }
    }
}

fn append(writer: &mut Writer, line: &Line) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    writer.file.write_all(text.as_bytes())?;
    writer.file.sync_data()?;
    Ok(())
}

impl Made {
    /// Undoes it now, and says where that fails.
    ///
    /// # Errors
    /// Where it cannot be undone; the journal keeps it for the next start.
    pub fn remove(mut self) -> Result<()> {
        self.is_settled = true;
        self.take_away()
    }

    fn take_away(&self) -> Result<()> {
        self.undo.carry_out()?;
        self.journal.gone(self.entry)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        if let Err(error) = self.take_away() {
            complain!("{} stays for now: {error:#}", self.undo);
        }
    }
}

/// What a start found of others that were killed.
#[derive(Debug, Default)]
pub struct Cleared {
    /// What was undone.
    pub undone: Vec<String>,
    /// What could not be, with the reason.
    pub left: Vec<String>,
}

/// Undoes what the journals of dead owners in `directory` name.
///
/// # Errors
/// Where the directory cannot be read.
pub fn clear_left_behind(directory: &Path) -> Result<Cleared> {
    let mut cleared = Cleared::default();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(cleared),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", directory.display()));
        }
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "journal") {
            clear_one(&path, &mut cleared)?;
        }
    }
    Ok(cleared)
}

fn clear_one(path: &Path, cleared: &mut Cleared) -> Result<()> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut open: Vec<(u64, Undo)> = Vec::new();
    let mut same_boot = false;
    // A last line that was torn by the kill tells of an intention that was never carried out.
    for line in text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
    {
        match line {
            Line::Owner {
                identity,
                boot: its_boot,
            } => {
                same_boot = its_boot == boot();
                if same_boot && identity.is_alive() {
                    return Ok(());
                }
            }
            Line::Make { entry, undo } => open.push((entry, undo)),
            Line::Gone { entry } => open.retain(|(other, _)| *other != entry),
        }
    }
    let mut all_gone = true;
    for (_, undo) in open.into_iter().rev() {
        // A restart of the machine took mounts, devices and processes along; numbers that were
        // theirs may be somebody else's now.
        if !same_boot && !undo.outlives_a_restart() {
            continue;
        }
        match undo.carry_out() {
            Ok(()) => cleared.undone.push(undo.to_string()),
            Err(error) => {
                all_gone = false;
                cleared.left.push(format!("{undo}: {error:#}"));
            }
        }
    }
    if all_gone {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
