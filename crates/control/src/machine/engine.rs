//! The disks of this process: the engine that moves the bytes, and what is wrapped around it.
//!
//! From the bottom up: io_uring or plain system calls, and clients of NFS servers beside them; the
//! recorder where one was asked for; the switch that pulls a cable for a test; and, for who only looks,
//! the memory that takes writes. A disk that was opened stays open and locked until it is released or
//! the process ends.

use std::path::Path;
use std::sync::Arc;

use spindle_device::{
    DeviceError, DiskCounters, DiskSlot, Disks, FaultableDisks, FileDisk, MixedDisks, OpenError,
    OpenErrorKind, PlainDisks, RecordedDisks,
};

use crate::api::error::{ControlError, ControlErrorKind, ControlResult, ErrorContext};
use crate::api::view::Counters;
use crate::machine::nfs::NfsServers;
use crate::machine::read_only_disks::ReadOnlyDisks;
use crate::machine::settings::Settings;

/// Variable with a number, for tests: a disk whose cable is pulled loses of what no flush had covered,
/// by chances that are drawn from it.
const VOLATILE_CACHES_VARIABLE: &str = "SPINDLE_VOLATILE_CACHES";

/// Disks that are open, and the engine below them.
#[derive(Debug)]
pub struct Engine {
    below: Arc<MixedDisks>,
    servers: NfsServers,
    recorder: Option<Arc<RecordedDisks<Arc<MixedDisks>>>>,
    cables: Option<Arc<FaultableDisks<Arc<dyn Disks>>>>,
    disks: Arc<dyn Disks>,
}

impl Engine {
    /// No disk yet. Without io_uring the plain engine serves, with a warning.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let below = if settings.plain_engine {
            tracing::warn!(
                "plain system calls are used, as SPINDLE_ENGINE says: slower than io_uring"
            );
            spindle_device::Engine::Plain(PlainDisks::with_deadline(settings.io_deadline))
        } else {
            let (engine, why_plain) = spindle_device::open_engine(settings.io_deadline);
            if let Some(reason) = why_plain {
                tracing::warn!(
                    "io_uring cannot be used ({reason}): plain system calls are, which is slower"
                );
            }
            engine
        };
        let below = Arc::new(MixedDisks::new(below, settings.io_deadline));
        Self {
            servers: settings.servers.clone(),
            disks: below.clone(),
            recorder: None,
            cables: None,
            below,
        }
    }

    /// As a daemon needs it: with cables that a test can pull and, where `record` names a file,
    /// every write and flush written into it in order.
    ///
    /// # Errors
    /// Where that file is there already or cannot be made.
    pub fn to_serve(settings: &Settings, record: Option<&Path>) -> ControlResult<Self> {
        let mut engine = Self::new(settings);
        if let Some(path) = record {
            let recorder = RecordedDisks::new(engine.below.clone(), path)
                .map_err(|error| ControlError::io("make the record", path.display(), &error))?;
            let recorder = Arc::new(recorder);
            engine.disks = recorder.clone();
            engine.recorder = Some(recorder);
        }
        let below = engine.disks.clone();
        let seed = std::env::var(VOLATILE_CACHES_VARIABLE).ok();
        let cables = Arc::new(match seed.and_then(|seed| seed.parse().ok()) {
            Some(seed) => FaultableDisks::with_volatile_caches(below, seed),
            None => FaultableDisks::new(below),
        });
        engine.disks = cables.clone();
        engine.cables = Some(cables);
        Ok(engine)
    }

    /// Opens a disk to read and write it; nobody else can.
    ///
    /// # Errors
    /// Where it is not there, not to be opened, or in use.
    pub fn attach_to_own(&self, path: &Path) -> ControlResult<DiskSlot> {
        self.servers.attach_to_own(&self.below, path)
    }

    /// Opens a disk only to look at it.
    ///
    /// # Errors
    /// Where it is not there or not to be opened.
    pub fn attach_to_look(&self, path: &Path) -> ControlResult<DiskSlot> {
        self.servers.attach_to_look(&self.below, path)
    }

    /// Makes a plain file and opens it as a disk.
    ///
    /// # Errors
    /// Where there is one already, or no room for it.
    pub fn make(&self, disk: &FileDisk) -> ControlResult<DiskSlot> {
        self.servers.make(&self.below, disk)
    }

    /// The servers that the settings name.
    #[must_use]
    pub(crate) const fn servers(&self) -> &NfsServers {
        &self.servers
    }

    /// Lets go of a disk: somebody else may have it, and requests to its slot fail.
    pub fn release(&self, slot: DiskSlot) {
        if let Err(error) = self.below.release(slot) {
            let path = self.disks.path(slot);
            tracing::warn!(path, %error, "the disk is held until this process ends");
        }
    }

    /// Brings the record, where there is one, into its file.
    ///
    /// # Errors
    /// Where the file cannot be written; the disks go on without it.
    pub fn flush_record(&self) -> std::io::Result<()> {
        self.recorder
            .as_ref()
            .map_or(Ok(()), |recorder| recorder.flush_log())
    }

    /// Keeps writes in memory from now on.
    pub fn withhold_writes(&mut self) {
        self.disks = Arc::new(ReadOnlyDisks::new(self.disks.clone()));
    }

    /// The disks as a group uses them.
    #[must_use]
    pub fn disks(&self) -> Arc<dyn Disks> {
        self.disks.clone()
    }

    /// Pulls a disk's cable, or plugs it in.
    pub fn set_pulled(&self, slot: DiskSlot, pulled: bool) {
        match &self.cables {
            Some(cables) if pulled => cables.pull(slot),
            Some(cables) => cables.plug(slot),
            None => {}
        }
    }

    /// All that is counted of a disk, its histograms too.
    #[must_use]
    pub fn disk_counters(&self, slot: DiskSlot) -> DiskCounters {
        self.below.counters(slot)
    }

    /// What a disk has done since it was opened.
    #[must_use]
    pub fn counters(&self, slot: DiskSlot) -> Counters {
        let counters = self.below.counters(slot);
        Counters {
            reads_count: counters.reads,
            writes_count: counters.writes,
            read_bytes: counters.read_bytes,
            written_bytes: counters.write_bytes,
            read_time_us: counters.read_latency.sum_ns / 1000,
            write_time_us: counters.write_latency.sum_ns / 1000,
        }
    }
}

impl From<OpenError> for ControlError {
    fn from(error: OpenError) -> Self {
        let kind = match error.kind {
            OpenErrorKind::NotFound => ControlErrorKind::NotFound,
            OpenErrorKind::InUse { .. } => ControlErrorKind::Busy,
            OpenErrorKind::Exists => ControlErrorKind::Exists,
            OpenErrorKind::NoSpace => ControlErrorKind::NoSpace,
            OpenErrorKind::TooSmall { .. } => ControlErrorKind::NotEnough,
            OpenErrorKind::NoDisk { .. } | OpenErrorKind::SectorSize { .. } => {
                ControlErrorKind::Invalid
            }
            OpenErrorKind::NotPermitted | OpenErrorKind::NoSlot | OpenErrorKind::Refused => {
                ControlErrorKind::Io
            }
        };
        let mut failed = Self::new(kind, error.to_string());
        failed.context = ErrorContext::of("open", &error.path);
        // Elsewhere the words say it all, and the kernel's would only say it again.
        if matches!(error.kind, OpenErrorKind::Refused | OpenErrorKind::NoSlot) {
            return failed.because(error);
        }
        failed
    }
}

impl From<DeviceError> for ControlError {
    fn from(error: DeviceError) -> Self {
        Self::new(ControlErrorKind::Io, error.to_string()).because(error)
    }
}
