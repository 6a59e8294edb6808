//! The daemon, its API, and what the commands do.
//!
//! One process owns a group: it holds the disks, serves the mount and answers over a Unix
//! socket. A command talks to that process where there is one; where there is none it opens the
//! disks itself, to read them without writing a byte ([`ReadOnlyDisks`]) or to change them. Every
//! function here returns a structure of [`view`] or a [`ControlError`]; printing is for `cli`.
//!
//! Five floors, each of which names only what lies below it: `api` says what is asked and answered,
//! `machine` what this machine has, `opened` what can be done with an open group, `serving` is the
//! processes that have it open for others, and `command` is what a person asks for.
//!
//! A crash of the daemon leaves its socket, its log and a dead mount point; the next start
//! recognises and replaces all three. Nothing about a group is kept outside its disks.

#![warn(unreachable_pub)]

mod api;
mod command;
mod machine;
mod opened;
mod serving;

pub use api::clearing::ClearReport;
pub use api::client::Client;
pub use api::conversion::ConversionReport;
pub use api::disk_request::{
    DiskChangesRequest, NewDiskRequest, ReplacementRequest, ResizeRequest,
};
pub use api::ending::{ClosedReport, SyncedReport};
pub use api::error::{ControlError, ControlErrorKind, ControlResult, ErrorContext, ErrorReport};
pub use api::estimate::{DiskAfterReport, EstimateReport, EstimateRequest, FlowReport, PaceReport};
pub use api::event_filter::{EventFilter, EventKindReport, parse_kinds, parse_severity};
pub use api::files::{Files, NewEntry};
pub use api::forecast::{ForecastReport, ForecastState};
pub use api::group_settings::GroupSettings;
pub use api::health::{space_finding, stopped_finding};
pub use api::location::Location;
pub use api::nearness::{near_names, suggestion};
pub use api::operations::{OperationReport, OperationsReport};
pub use api::scrub::{ScrubFindingReport, ScrubReport, ScrubRequest};
pub use api::scrub_log::LastScrubReport;
pub use api::status::{StatusReport, UserReport};
pub use api::top::TopReport;
pub use api::view;
pub use api::view::ReadyReport;
pub use api::volume::{ExportReport, VolumeReport};
pub use command::clearing::clear_findings;
pub use command::console::Console;
pub use command::convert::{
    convert_group, estimate_conversion, set_file_redundancy, set_template_redundancy,
};
pub use command::copy::{
    CopyOptions, CopyProgress, LocalFiles, NoProgress, Tree, copy, copy_to_writer,
};
pub use command::disk::{
    FailureGroupChange, change_disks, of_failure_groups, offline_disks, online_disks, rename_disk,
};
pub use command::dump::dump_group;
pub use command::end::{dismount_group, sync_group, unmount};
pub use command::estimate::estimate;
pub use command::event::Events;
pub use command::features::group_features;
#[cfg(any(test, feature = "fuzzing"))]
pub use command::fuzzing;
pub use command::group::{
    DestroyedGroup, check_group, check_new_group, create_group, destroy_group, list_groups,
    list_templates, rename_group, set_fault, show_group,
};
pub use command::health::check_health;
pub use command::iostat::{Iostat, rates};
pub use command::partition::{MadePartition, check_file_beside, check_partition, make_partition};
pub use command::reach::{GroupFiles, serving};
pub use command::rebalance::{list_operations, rebalance_group, set_default_power};
pub use command::scrub::{set_scrub_power, show_scrub, start_scrub, stop_scrub};
pub use command::setting::{change_setting, show_settings};
pub use command::start::{Starter, mount_served, refuse_unknown, start_daemon};
pub use command::status::show_status;
pub use command::top::Top;
pub use command::upgrade::{UpgradeReport, upgrade};
pub use command::volume::{
    create_volume, drop_volume, export_volume, list_exports, list_volumes, resize_volume,
    unexport_volume,
};
pub use machine::descriptors::raise_descriptor_limit;
pub use machine::discovery::scan;
pub use machine::hook_settings::HookSettings;
pub use machine::path::absolute;
pub use machine::read_only_disks::ReadOnlyDisks;
pub use machine::settings::Settings;
pub use machine::termination::on_termination;
pub use machine::udev::udev_properties;
pub use machine::unknown_data::{Contents, look_for_data};
pub use machine::user::{own_group, own_umask, own_user};
pub use opened::create::{WantedDisk, WantedGroup};
pub use opened::dump::dump_disks;
pub use opened::files::{KernelCache, OpenFiles};
pub use serving::daemon::{MetricsListen, ServeOptions, serve};
pub use serving::formats::Formats;
pub use serving::keeper::{KeeperClient, KeeperLink, KeeperPhase, KeeperStatus, keep};
pub use serving::mount::MountRequest;
pub use serving::notices::send_notices;
pub use serving::openapi::document;
pub use serving::served::refuse_if_served;
pub use spindle_device::FileDisk;
pub use spindle_group::Severity;
