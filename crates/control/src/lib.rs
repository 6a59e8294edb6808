//! The daemon, its API, and what the commands do.
//!
//! One process owns a group: it holds the disks, serves the mount and answers over a Unix
//! socket. A command talks to that process where there is one; where there is none it opens the
//! disks itself, to read them without writing a byte ([`ReadOnlyDisks`]) or to change them. Every
//! function here returns a structure of [`view`] or a [`ControlError`]; printing is for `cli`.
//!
//! A crash of the daemon leaves its socket, its log and a dead mount point; the next start
//! recognises and replaces all three. Nothing about a group is kept outside its disks.

mod access;
mod activity;
mod administration;
mod channel_body;
mod client;
mod conversion;
mod copying;
mod daemon;
mod descriptors;
mod dirty_limit;
mod discovery;
mod disk_changes;
mod disk_returns;
mod dump;
mod dump_row;
mod engine;
mod error;
mod estimating;
mod event_log;
mod exposition;
mod features;
mod files;
mod formats;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group_settings;
mod health;
mod hook;
mod iostat;
mod keeper;
mod label_writing;
mod location;
mod making;
mod metrics;
mod mounting;
mod nearness;
mod openapi;
mod opening;
mod operations;
mod probe;
mod query;
mod read_only_disks;
mod route;
mod runtime_directory;
mod scrubbing;
mod service_manager;
mod settings;
mod sockets;
mod starting;
mod template;
mod unknown_data;
pub mod view;

pub use access::GroupFiles;
pub use administration::{
    check_group, destroy_group, list_groups, list_templates, own_group, own_umask, own_user,
    rename_group, serving, set_fault, show_group,
};
pub use client::Client;
pub use conversion::{
    ConversionReport, convert_group, set_file_redundancy, set_template_redundancy,
};
pub use copying::{CopyOptions, CopyProgress, LocalFiles, NoProgress, Tree, copy, copy_to_writer};
pub use daemon::{MetricsListen, ReadyReport, ServeOptions, refuse_if_served, serve};
pub use descriptors::raise_descriptor_limit;
pub use discovery::scan;
pub use disk_changes::{
    DiskChangesRequest, FailureGroupChange, NewDiskRequest, ReplacementRequest, ResizeRequest,
    change_disks, of_failure_groups, offline_disks, rename_disk,
};
pub use disk_returns::online_disks;
pub use dump::{dump_disks, dump_group};
pub use error::{ControlError, ControlErrorKind, ControlResult};
pub use estimating::{
    DiskAfterReport, EstimateReport, EstimateRequest, FlowReport, PaceReport, estimate,
};
pub use event_log::{EventFilter, Events, parse_kinds, parse_severity};
pub use features::group_features;
pub use files::{Files, KernelCache, NewEntry, OpenFiles};
pub use formats::Formats;
pub use group_settings::{GroupSettings, change_setting, show_settings};
pub use health::{check_health, space_finding};
pub use hook::HookSettings;
pub use iostat::{Iostat, rates};
pub use keeper::{KeeperClient, KeeperLink, KeeperPhase, KeeperStatus, keep};
pub use location::Location;
pub use making::{WantedDisk, WantedGroup, create_group};
pub use mounting::MountRequest;
pub use nearness::{near_names, suggestion};
pub use openapi::document;
pub use operations::{
    OperationReport, OperationsReport, list_operations, rebalance_group, set_default_power,
};
pub use read_only_disks::ReadOnlyDisks;
pub use scrubbing::{
    ScrubFindingReport, ScrubReport, ScrubRequest, set_scrub_power, show_scrub, start_scrub,
    stop_scrub,
};
pub use settings::Settings;
pub use spindle_device::FileDisk;
pub use spindle_group::Severity;
pub use starting::{
    Starter, absolute, dismount_group, mount_served, start_daemon, sync_group, unmount, upgrade,
};
pub use unknown_data::{Contents, look_for_data};
