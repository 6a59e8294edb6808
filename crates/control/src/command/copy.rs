//! `cp`: files into a group, out of it, and from group to group.
//!
//! Both ends are [`Tree`]s, so there is one copy loop. A file becomes visible whole under its
//! name or not at all, on both sides. Symbolic links below a source are copied as links, and none
//! is followed below a destination. Without `preserve` a copy has the caller's owner, and so never
//! a bit that lets it run as its owner.

mod local;
mod place;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::{Files, NewEntry};
use crate::api::view::{CopiedReport, FileReport};

pub use local::LocalFiles;

/// How to copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyOptions {
    /// Directories with everything below.
    pub recursive: bool,
    /// Owners and times as the source has them; else the caller's and now.
    pub preserve: bool,
    /// Who copies, for what is not preserved.
    pub user: u32,
    /// Likewise.
    pub group: u32,
    /// Permission bits that the caller's new files do not have, likewise.
    pub umask: u16,
}

/// One end of a copy: the files of a group or of this machine.
pub struct Tree<'a> {
    /// What can be done there.
    pub files: &'a dyn Files,
    /// The path.
    pub path: PathBuf,
    /// What a person calls the place.
    pub label: String,
}

impl std::fmt::Debug for Tree<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("label", &self.label).finish()
    }
}

/// Told of each file and of the bytes as they go.
pub trait CopyProgress: Sync {
    /// Everything there is to copy.
    fn total(&self, files_count: u64, bytes: u64);
    /// A file begins.
    fn file(&self, path: &Path);
    /// More bytes went.
    fn bytes(&self, count: u64);
}

/// Copies every source to the destination; with several sources, or where the destination is a
/// directory, into it.
///
/// # Errors
/// At the first thing that cannot be copied; what was copied before stays.
pub fn copy(
    sources: &[Tree<'_>],
    destination: &Tree<'_>,
    options: CopyOptions,
    progress: &dyn CopyProgress,
) -> ControlResult<CopiedReport> {
    let into = match destination.files.stat(&destination.path) {
        Ok(there) => there.kind == "directory",
        Err(error) if error.kind == ControlErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if sources.len() > 1 && !into {
        return Err(ControlError::invalid(format!(
            "{} is no directory: several sources need one to go into",
            destination.label
        )));
    }
    let mut report = CopiedReport::default();
    let mut plans = Vec::new();
    for source in sources {
        plans.push(plan(source, destination, into, options, &mut report)?);
    }
    let all = plans.iter().flatten();
    let sizes = all.filter(|step| step.entry.kind == "file");
    let (files_count, bytes) = sizes.fold((0, 0), |(count, bytes), step| {
        (count + 1, bytes + step.entry.size_bytes)
    });
    progress.total(files_count, bytes);
    for (source, steps) in sources.iter().zip(&plans) {
        for step in steps {
            execute(source, destination, step, options, progress, &mut report)?;
        }
    }
    let files = plans
        .iter()
        .flatten()
        .filter(|step| step.entry.kind == "file");
    let written: Vec<&Path> = files.map(|step| step.to.as_path()).collect();
    destination.files.sync(&written)?;
    Ok(report)
}

/// One entry to copy, and where to.
struct Step {
    entry: FileReport,
    from: PathBuf,
    to: PathBuf,
}

/// Every entry of a source, directories before what is in them.
fn plan(
    source: &Tree<'_>,
    destination: &Tree<'_>,
    into: bool,
    options: CopyOptions,
    report: &mut CopiedReport,
) -> ControlResult<Vec<Step>> {
    let entry = source.files.stat(&source.path)?;
    if entry.kind == "directory" && !options.recursive {
        return Err(ControlError::invalid(format!(
            "{} is a directory: add -r to copy it with everything below",
            source.label
        )));
    }
    let to = match source.path.file_name() {
        Some(name) if into => destination.path.join(name),
        _ => destination.path.clone(),
    };
    if std::ptr::addr_eq(source.files, destination.files) && to == source.path {
        return Err(ControlError::invalid(format!(
            "{} would be copied to itself: give another path",
            source.label
        )));
    }
    let mut steps = vec![Step {
        entry,
        from: source.path.clone(),
        to,
    }];
    let mut next = 0;
    while next < steps.len() {
        if steps[next].entry.kind == "directory" {
            let (from, to) = (steps[next].from.clone(), steps[next].to.clone());
            for entry in source.files.list(&from)? {
                let name = name_of(&entry);
                check_name(&name, &from, source)?;
                let (from, to) = (from.join(&name), to.join(&name));
                if matches!(entry.kind.as_str(), "file" | "directory" | "symlink") {
                    steps.push(Step { entry, from, to });
                } else {
                    report
                        .skipped
                        .push(format!("{} is a {}", from.display(), entry.kind));
                }
            }
        }
        next += 1;
    }
    Ok(steps)
}

fn name_of(entry: &FileReport) -> OsString {
    match &entry.name_bytes {
        Some(bytes) => OsString::from_vec(bytes.clone()),
        None => OsString::from(&entry.name),
    }
}

/// A name out of a group is bytes from a disk: one that leads elsewhere is refused.
fn check_name(name: &OsStr, directory: &Path, source: &Tree<'_>) -> ControlResult<()> {
    let bytes = name.as_bytes();
    let leads_elsewhere = matches!(bytes, b"" | b"." | b"..");
    if leads_elsewhere || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(ControlError::new(
            ControlErrorKind::Corrupt,
            format!(
                "{} (of {}) has an entry of the name {name:?}, which no file can have: see `spindle check`",
                directory.display(),
                source.label
            ),
        ));
    }
    Ok(())
}

fn execute(
    source: &Tree<'_>,
    destination: &Tree<'_>,
    step: &Step,
    options: CopyOptions,
    progress: &dyn CopyProgress,
    report: &mut CopiedReport,
) -> ControlResult<()> {
    let permissions = step.entry.permissions;
    let new = NewEntry {
        permissions: if options.preserve {
            permissions & 0o7777
        } else {
            permissions & 0o777 & !options.umask
        },
        user: if options.preserve {
            step.entry.user
        } else {
            options.user
        },
        group: if options.preserve {
            step.entry.group
        } else {
            options.group
        },
        modified: options.preserve.then_some(step.entry.modified),
    };
    match step.entry.kind.as_str() {
        "directory" => {
            destination.files.make_directory(&step.to, new)?;
            report.directories_count += 1;
        }
        "symlink" => {
            let target = PathBuf::from(step.entry.target_path());
            destination.files.make_symlink(&step.to, &target, new)?;
            report.symlinks_count += 1;
        }
        "file" => {
            progress.file(&step.from);
            report.bytes += pass(source.files, step, destination.files, new, progress)?;
            report.files_count += 1;
        }
        other => {
            return Err(ControlError::invalid(format!(
                "{} is a {other}: only files, directories and symbolic links are copied",
                step.from.display()
            )));
        }
    }
    Ok(())
}

/// Sends one file through a pipe: one thread reads, this one writes.
fn pass(
    source: &dyn Files,
    step: &Step,
    destination: &dyn Files,
    new: NewEntry,
    progress: &dyn CopyProgress,
) -> ControlResult<u64> {
    let (reader, writer) = std::io::pipe()
        .map_err(|error| ControlError::io("make a pipe for", step.from.display(), &error))?;
    // The default of 64 KiB would cut every transfer into small pieces; refused, it still works.
    let _ = rustix::pipe::fcntl_setpipe_size(&reader, crate::api::files::PIECE_BYTES);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut writer = writer;
            source.read_to(&step.from, &mut writer)
        });
        let mut counted = Counted { reader, progress };
        let written = destination.write_from(
            &step.to,
            new,
            &mut Whole {
                inner: &mut counted,
                sender: Some(sender),
            },
        );
        // Closed, so that a sender whose reader gave up is told and ends.
        drop(counted);
        written
    })
}

/// Tells of the bytes that pass.
struct Counted<'a> {
    reader: std::io::PipeReader,
    progress: &'a dyn CopyProgress,
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(out)?;
        self.progress.bytes(count as u64);
        Ok(count)
    }
}

/// Turns the sender's failure into a read error at the end of the bytes: a file that was read
/// in part must never look whole at the other end.
struct Whole<'a, 'b, 'scope> {
    inner: &'a mut Counted<'b>,
    sender: Option<std::thread::ScopedJoinHandle<'scope, ControlResult<u64>>>,
}

impl Read for Whole<'_, '_, '_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(out)?;
        if count == 0
            && !out.is_empty()
            && let Some(sender) = self.sender.take()
        {
            match sender.join() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(std::io::Error::other(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(count)
    }
}

/// A copy nobody watches.
#[derive(Debug)]
pub struct NoProgress;

impl CopyProgress for NoProgress {
    fn total(&self, _files_count: u64, _bytes: u64) {}
    fn file(&self, _path: &Path) {}
    fn bytes(&self, _count: u64) {}
}

/// Copies one file to a writer.
///
/// # Errors
/// As [`Files::read_to`].
pub fn copy_to_writer(source: &Tree<'_>, out: &mut dyn Write) -> ControlResult<u64> {
    source.files.read_to(&source.path, out)
}
