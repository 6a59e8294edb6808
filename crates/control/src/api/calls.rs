//! Everything that a process which serves a group can be asked, each with its answer.
//!
//! What is told of a call here is all there is: its document, its path, its parameters, what either
//! end makes of them, and whether a command can do without the process.

use std::path::{Path, PathBuf};

use axum::http::Method;
use spindle_base::Redundancy;
use spindle_group::Severity;

use crate::api::call::{
    Body, BodyShape, Call, Effect, Needs, Pace, Parameter, Shape, Standalone, Value, Written,
    needed, optional, sent_unless_default, written_body,
};
use crate::api::clearing::ClearReport;
use crate::api::conversion::{ConversionReport, TemplateRedundancy};
use crate::api::disk_request::{DiskChangesRequest, DiskNames};
use crate::api::error::ControlResult;
use crate::api::estimate::{EstimateReport, EstimateRequest};
use crate::api::event_filter::{EventFilter, Kinds};
use crate::api::files::NewEntry;
use crate::api::forecast::ForecastReport;
use crate::api::group_settings::GroupSettings;
use crate::api::operations::OperationsReport;
use crate::api::query::{Query, append, body_of};
use crate::api::scrub::ScrubReport;
use crate::api::view::{
    ActivitySample, CheckReport, DiskChangesReport, DiskReport, EndingReport, EventReport,
    FileReport, GroupReport, HealthReport, MapReport, MountReport, TemplateReport, TimeReport,
    UsageReport,
};
use crate::api::volume::{ExportReport, VolumeReport};

impl Body for DiskChangesRequest {
    const SHAPE: BodyShape = BodyShape {
        schema: "DiskChangesRequest",
        is_needed: true,
    };

    fn read(body: &[u8]) -> ControlResult<Self> {
        body_of(body)
    }
}

impl Body for EstimateRequest {
    const SHAPE: BodyShape = BodyShape {
        schema: "EstimateRequest",
        is_needed: true,
    };

    fn read(body: &[u8]) -> ControlResult<Self> {
        body_of(body)
    }
}

impl Body for DiskNames {
    const SHAPE: BodyShape = BodyShape {
        schema: "DiskNames",
        is_needed: false,
    };

    fn read(body: &[u8]) -> ControlResult<Self> {
        Self::from_body(body)
    }
}

macro_rules! answer {
    ([$item:ty]) => { Vec<$item> };
    ($answer:ty) => { $answer };
}

macro_rules! sent {
    (needed $value:expr) => {
        $value.write()
    };
    (optional $value:expr) => {
        sent_unless_default(&$value)
    };
}

macro_rules! is_needed {
    (needed) => {
        true
    };
    (optional) => {
        false
    };
}

macro_rules! standalone {
    (Disks $name:ident) => {
        impl Standalone for $name {}
    };
    (Process $name:ident) => {};
}

macro_rules! body_shape {
    () => {
        None
    };
    ($body:ty) => {
        Some(<$body as Body>::SHAPE)
    };
}

macro_rules! body_bytes {
    () => {
        Vec::new()
    };
    ($bytes:expr) => {
        $bytes
    };
}

macro_rules! calls {
    ($(
        $(#[doc = $summary:literal])+
        $method:ident $path:literal $name:ident: $effect:ident $needs:ident $pace:ident => $answer:tt {
            $(
                $(#[doc = $description:literal])+
                $need:ident $field:ident: $type:ty,
            )*
            $(body: $body:ty,)?
        }
    )+) => {$(
        $(#[doc = $summary])+
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            $(
                $(#[doc = $description])+
                pub(crate) $field: $type,
            )*
            $(
                /// The structure that goes with it.
                pub(crate) body: $body,
            )?
        }

        impl Call for $name {
            type Answer = answer!($answer);
            const SHAPE: Shape = Shape {
                method: Method::$method,
                path: $path,
                summary: concat!($($summary),+),
                parameters: &[$(
                    Parameter {
                        name: stringify!($field),
                        is_needed: is_needed!($need),
                        kind: <$type as Value>::KIND,
                        description: concat!($($description),+),
                    },
                )*],
                body: body_shape!($($body)?),
                answer: stringify!($answer),
                effect: Effect::$effect,
                needs: Needs::$needs,
                pace: Pace::$pace,
            };

            fn write(&self) -> ControlResult<Written> {
                #[allow(unused_mut, reason = "some calls carry nothing")]
                let mut path = $path.to_owned();
                $(
                    if let Some(value) = sent!($need self.$field) {
                        append(&mut path, stringify!($field), &value);
                    }
                )*
                let body = body_bytes!($(written_body::<$body>(&self.body)?)?);
                Ok(Written { path, body })
            }

            #[allow(unused_variables, reason = "some calls carry nothing")]
            fn read(query: &Query, body: &[u8]) -> ControlResult<Self> {
                Ok(Self {
                    $($field: $need::<$type>(query, stringify!($field))?,)*
                    $(body: <$body as Body>::read(body)?,)?
                })
            }
        }

        standalone!($needs $name);
    )+

        /// What there is to know of every call.
        #[cfg(test)]
        pub(crate) fn shapes() -> Vec<Shape> {
            vec![$($name::SHAPE),+]
        }
    };
}

calls! {
    /// This document.
    GET "/openapi.json" Document: Looks Process Quick => () {}

    /// Answers at once, whatever the disks do.
    GET "/alive" Alive: Looks Process Quick => () {}

    /// The group with its disks and mounts.
    GET "/group" ShowGroup: Looks Process Quick => GroupReport {}

    /// Compares maps, space and records.
    GET "/group/check" CheckGroup: Looks Disks Work => CheckReport {}

    /// The same, and puts right what can be without losing anything.
    POST "/group/check" RepairGroup: Changes Disks Work => CheckReport {}

    /// The group's settings.
    GET "/group/settings" ShowSettings: Looks Process Quick => GroupSettings {}

    /// Changes a setting of the group, durably.
    POST "/group/settings" ChangeSetting: Changes Process Work => GroupSettings {
        /// the setting: scrub_interval
        needed name: String,
        /// a time such as 7d, 12h or 30m, or off
        needed value: String,
    }

    /// Gives the group another redundancy, and the files whose template says "as the group".
    POST "/group/convert" ConvertGroup: Changes Disks Work => ConversionReport {
        /// external, normal or high
        needed redundancy: Redundancy,
    }

    /// What giving the group another redundancy would come to; nothing is changed.
    GET "/group/conversion" EstimateConversion: Looks Disks Work => ConversionReport {
        /// external, normal or high
        needed redundancy: Redundancy,
    }

    /// Gives a file another redundancy, or a directory for what is made below it.
    POST "/files/redundancy" ConvertFile: Changes Disks Work => ConversionReport {
        /// path in the group, from its root
        needed path: PathBuf,
        /// external, normal or high
        needed redundancy: Redundancy,
        /// of a directory: what is there below it too
        optional recursive: bool,
    }

    /// Gives the templates of a name another redundancy, for files made from now on.
    POST "/templates/redundancy" ConvertTemplate: Changes Disks Work => [TemplateReport] {
        /// the templates' name
        needed name: String,
        /// external, normal, high or group
        needed redundancy: TemplateRedundancy,
    }

    /// What background copying runs and waits.
    GET "/operations" ShowOperations: Looks Process Quick => OperationsReport {}

    /// Asks for a rebalance, or changes the power of the one that runs.
    POST "/rebalance" Rebalance: Changes Process Work => OperationsReport {
        /// 0, which pauses, to 1024
        optional power: Option<u16>,
        /// the power is the group's own from now on; nothing is asked for
        optional default: bool,
    }

    /// The scrub that runs, or the last one since the group was opened.
    GET "/scrub" ShowScrub: Looks Process Quick => ScrubReport {}

    /// Begins a scrub: every copy is read and compared, and pages are judged.
    POST "/scrub/start" StartScrub: Changes Process Work => ScrubReport {
        /// a file or directory in the group; else all of it
        optional path: Option<PathBuf>,
        /// mend what is proven
        optional repair: bool,
        /// 0 to 1024; 1 where it is not given
        optional power: Option<u16>,
        /// a disk whose copies lose where they differ and nothing is proven; of all that it
        /// holds where neither disks nor a path are given
        optional distrust: Option<String>,
        /// ignored: the event log names the user that the kernel says has asked
        optional by: Option<String>,
        body: DiskNames,
    }

    /// Ends the scrub that runs.
    POST "/scrub/stop" StopScrub: Changes Process Work => ScrubReport {}

    /// Changes the power of the scrub that runs.
    POST "/scrub/power" SetScrubPower: Changes Process Work => ScrubReport {
        /// 0 to 1024; 0 lets it wait
        needed power: u16,
    }

    /// Makes durable what programs have written until now, the kernel's cache included.
    POST "/group/sync" SyncGroup: Changes Process Work => EndingReport {}

    /// Unmounts, closes the group and ends the process.
    POST "/group/dismount" DismountGroup: Changes Process Work => EndingReport {}

    /// Mounts the files of the group.
    POST "/mounts/add" AddMount: Changes Process Work => MountReport {
        /// an empty directory
        needed directory: PathBuf,
        /// bypass the page cache
        optional direct: bool,
        /// event loops, 1 to 256; 16 where not given
        optional workers: Option<usize>,
    }

    /// Unmounts; the process ends with its last mount unless it was started to stay.
    POST "/mounts/remove" RemoveMount: Changes Process Work => EndingReport {
        /// the mount point
        needed directory: PathBuf,
    }

    /// One entry; symbolic links are not followed.
    GET "/files/stat" StatFile: Looks Disks Work => FileReport {
        /// path in the group, from its root
        needed path: PathBuf,
    }

    /// The entries of a directory.
    GET "/files/list" ListFiles: Looks Disks Work => [FileReport] {
        /// path in the group, from its root
        needed path: PathBuf,
    }

    /// Which extents of a file lie where.
    GET "/files/map" MapFile: Looks Disks Work => MapReport {
        /// path in the group, from its root
        needed path: PathBuf,
    }

    /// Space taken by a directory and everything below it, the sum last.
    GET "/files/usage" FileUsage: Looks Disks Work => [UsageReport] {
        /// path in the group, from its root
        needed path: PathBuf,
        /// levels of directories told apart; 0 for the sum
        optional depth: usize,
    }

    /// The bytes of a file.
    GET "/files/content" ReadFile: Looks Disks Work => () {
        /// path in the group, from its root
        needed path: PathBuf,
    }

    /// Makes a file of the body, in place of one that is there; it becomes visible whole.
    PUT "/files/content" WriteFile: Changes Disks Work => u64 {
        /// path in the group, from its root
        needed path: PathBuf,
        /// permission bits, as a decimal number
        optional permissions: Option<u16>,
        /// owner; 0 where it is not given
        optional user: Option<u32>,
        /// owning group; 0 where it is not given
        optional group: Option<u32>,
        /// time of the last change, seconds since 1970; else now
        optional modified_s: Option<i64>,
        /// and the nanoseconds beyond them
        optional modified_ns: Option<u32>,
    }

    /// Makes a directory; one that is there stays.
    POST "/files/directory" MakeDirectory: Changes Disks Work => () {
        /// path in the group, from its root
        needed path: PathBuf,
        /// permission bits, as a decimal number
        optional permissions: Option<u16>,
        /// owner; 0 where it is not given
        optional user: Option<u32>,
        /// owning group; 0 where it is not given
        optional group: Option<u32>,
        /// time of the last change, seconds since 1970; else now
        optional modified_s: Option<i64>,
        /// and the nanoseconds beyond them
        optional modified_ns: Option<u32>,
    }

    /// Makes a symbolic link, in place of one that is there.
    POST "/files/symlink" MakeSymlink: Changes Disks Work => () {
        /// path in the group, from its root
        needed path: PathBuf,
        /// where it points
        needed target: PathBuf,
        /// permission bits, as a decimal number
        optional permissions: Option<u16>,
        /// owner; 0 where it is not given
        optional user: Option<u32>,
        /// owning group; 0 where it is not given
        optional group: Option<u32>,
        /// time of the last change, seconds since 1970; else now
        optional modified_s: Option<i64>,
        /// and the nanoseconds beyond them
        optional modified_ns: Option<u32>,
    }

    /// Makes everything durable.
    POST "/files/sync" SyncFiles: Changes Disks Work => () {}

    /// Tells what was lost of a file, though another sync of everything was told.
    POST "/files/lost" TellLost: Changes Disks Work => () {
        /// a file; one that is not there any more is no error
        needed path: PathBuf,
    }

    /// The volumes in a directory and below it.
    GET "/volumes" ListVolumes: Looks Disks Work => [VolumeReport] {
        /// a directory or a volume, from the group's root; all where it is not given
        optional path: Option<PathBuf>,
    }

    /// Makes a volume: a file that reads as zeros, and that exports serve as a block device.
    POST "/volumes/create" CreateVolume: Changes Disks Work => VolumeReport {
        /// path in the group, from its root
        needed path: PathBuf,
        /// its size, in whole blocks of 4096
        needed size_bytes: u64,
        /// take all of its space at once, so that no write finds the group full
        optional reserve: bool,
    }

    /// Gives a volume another size.
    POST "/volumes/resize" ResizeVolume: Changes Disks Work => VolumeReport {
        /// path in the group, from its root
        needed path: PathBuf,
        /// its size, in whole blocks of 4096
        needed size_bytes: u64,
        /// it may become smaller: what lies beyond is lost
        optional shrink: bool,
    }

    /// Removes a volume that is not exported; what it holds is lost.
    POST "/volumes/drop" DropVolume: Changes Disks Work => VolumeReport {
        /// path in the group, from its root
        needed path: PathBuf,
    }

    /// The volumes that are exported.
    GET "/exports" ListExports: Looks Process Quick => [ExportReport] {}

    /// Exports a volume by the network block device protocol, at a Unix socket.
    POST "/exports/add" AddExport: Changes Process Work => ExportReport {
        /// path in the group, from its root
        needed path: PathBuf,
        /// where the socket is to be: an absolute path at which nothing is
        needed socket: PathBuf,
        /// clients can only read
        optional read_only: bool,
    }

    /// Ends an export: requests under way are answered, clients disconnected.
    POST "/exports/remove" RemoveExport: Changes Process Work => ExportReport {
        /// path in the group, from its root
        needed path: PathBuf,
        /// also where clients are connected
        optional force: bool,
    }

    /// Running counters of every disk and of the busy files.
    GET "/activity" ShowActivity: Looks Process Quick => ActivitySample {}

    /// The events of the group's log, the oldest first.
    GET "/events" ShowEvents: Looks Disks Work => [EventReport] {
        /// only events with a larger number
        optional after: u64,
        /// only events since then, milliseconds since 1970
        optional since_ms: u64,
        /// info, warning or critical: only events that matter at least so much
        optional severity: Option<Severity>,
        /// only these kinds, separated by commas
        optional kind: Kinds,
    }

    /// How well the group is, and what to do where it is not.
    GET "/health" ShowHealth: Looks Process Quick => HealthReport {}

    /// When the group will be full, from the growth that the process has seen.
    GET "/forecast" ShowForecast: Looks Process Quick => ForecastReport {}

    /// Acknowledges findings that are over; what still holds is refused.
    POST "/health/clear" ClearFindings: Changes Disks Work => ClearReport {
        /// findings by kind, or by kind and disk with a colon between, separated by commas
        optional finding: String,
        /// everything that can be acknowledged
        optional all: bool,
    }

    /// The metrics in the text format of Prometheus.
    GET "/metrics" ShowMetrics: Looks Process Work => () {}

    /// The group's templates.
    GET "/templates" ListTemplates: Looks Disks Quick => [TemplateReport] {}

    /// Adds, drops, undrops, replaces and resizes disks, all together.
    POST "/disks/change" ChangeDisks: Changes Disks Work => DiskChangesReport {
        body: DiskChangesRequest,
    }

    /// Tells what a change would cost; nothing is changed.
    POST "/estimate" EstimateChange: Looks Disks Work => EstimateReport {
        body: EstimateRequest,
    }

    /// Gives a disk another name.
    POST "/disks/rename" RenameDisk: Changes Disks Work => DiskChangesReport {
        /// the disk's name
        needed disk: String,
        /// its new name
        needed name: String,
    }

    /// Takes disks offline, where nothing loses its last copy.
    POST "/disks/offline" TakeOffline: Changes Disks Work => DiskChangesReport {
        body: DiskNames,
    }

    /// Brings back disks that are offline, all that can be found where none is named.
    POST "/disks/online" BringOnline: Changes Disks Work => DiskChangesReport {
        body: DiskNames,
    }

    /// For tests: makes a disk answer as if its cable was pulled, or plugged in again.
    POST "/faults" SetFault: Changes Process Work => DiskReport {
        /// the disk's name
        needed disk: String,
        /// true to pull, false to plug
        needed pulled: bool,
    }
}

/// A call that makes something with an owner, permissions and a time.
macro_rules! entry_call {
    ($name:ident $(, $field:ident: $type:ty)?) => {
        impl $name {
            pub(super) fn of(path: &Path, $($field: $type,)? new: NewEntry) -> Self {
                Self {
                    path: path.to_owned(),
                    $($field: $field.to_owned(),)?
                    permissions: Some(new.permissions),
                    user: Some(new.user),
                    group: Some(new.group),
                    modified_s: new.modified.map(|time| time.seconds),
                    modified_ns: new.modified.map(|time| time.nanoseconds),
                }
            }

            /// What the entry is made with.
            pub(crate) fn entry(&self) -> NewEntry {
                NewEntry {
                    permissions: self.permissions.unwrap_or(0o644) & 0o7777,
                    user: self.user.unwrap_or(0),
                    group: self.group.unwrap_or(0),
                    modified: self.modified_s.map(|seconds| TimeReport {
                        seconds,
                        nanoseconds: self.modified_ns.unwrap_or(0),
                    }),
                }
            }
        }
    };
}

entry_call!(WriteFile);
entry_call!(MakeDirectory);
entry_call!(MakeSymlink, target: &Path);

impl From<&EventFilter> for ShowEvents {
    fn from(filter: &EventFilter) -> Self {
        Self {
            after: filter.after,
            since_ms: filter.since_ms,
            severity: Some(filter.least),
            kind: Kinds(filter.kinds.clone()),
        }
    }
}

impl From<ShowEvents> for EventFilter {
    fn from(asked: ShowEvents) -> Self {
        Self {
            after: asked.after,
            since_ms: asked.since_ms,
            least: asked.severity.unwrap_or(Severity::Info),
            kinds: asked.kind.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use spindle_group::Severity;

    use super::{ChangeDisks, ShowEvents, StartScrub, WriteFile};
    use crate::api::call::Call;
    use crate::api::disk_request::{DiskChangesRequest, DiskNames};
    use crate::api::event_filter::EventFilter;

    /// What the other end makes of a call.
    fn received<C: Call>(call: &C) -> C {
        let written = call.write().unwrap();
        let (path, query) = written.path.split_once('?').unwrap_or((&written.path, ""));
        assert_eq!(path, C::SHAPE.path);
        C::read(&C::SHAPE.query(query).unwrap(), &written.body).unwrap()
    }

    /// A program that came before a parameter or a field refuses who sends it.
    #[test]
    fn what_a_call_does_not_use_is_not_sent() {
        let scrub = StartScrub {
            path: None,
            repair: false,
            power: None,
            distrust: None,
            by: None,
            body: DiskNames::default(),
        };
        assert_eq!(scrub.write().unwrap().path, StartScrub::SHAPE.path);
        let changes = ChangeDisks {
            body: DiskChangesRequest::default(),
        };
        assert_eq!(changes.write().unwrap().body, b"{}");
    }

    #[test]
    fn a_call_survives_the_way_from_one_end_to_the_other() {
        let scrub = StartScrub {
            path: Some(PathBuf::from("/pg/base & more")),
            repair: true,
            power: None,
            distrust: Some("data_0001".to_owned()),
            by: None,
            body: DiskNames::of(&["data_0000".to_owned()]).unwrap(),
        };
        assert_eq!(format!("{:?}", received(&scrub)), format!("{scrub:?}"));
        let change = ChangeDisks {
            body: DiskChangesRequest {
                drop: vec!["data_0000".to_owned()],
                ..DiskChangesRequest::default()
            },
        };
        assert_eq!(format!("{:?}", received(&change)), format!("{change:?}"));
        let file = WriteFile::read(&WriteFile::SHAPE.query("path=/a").unwrap(), &[]).unwrap();
        assert_eq!(file.entry().permissions, 0o644);
        assert_eq!(
            received(&file).entry().modified.map(|time| time.seconds),
            None
        );
    }

    #[test]
    fn a_filter_survives_the_way_through_a_request() {
        let filter = EventFilter {
            after: 7,
            since_ms: 8,
            least: Severity::Warning,
            kinds: vec!["disk_offline".to_owned(), "disk_slow".to_owned()],
        };
        let asked = received(&ShowEvents::from(&filter));
        assert_eq!(EventFilter::from(asked), filter);
        let nothing = ShowEvents::read(&ShowEvents::SHAPE.query("").unwrap(), &[]).unwrap();
        assert_eq!(EventFilter::from(nothing), EventFilter::default());
    }
}
