//! The API: one table says what there is, and both the router and the OpenAPI document are made
//! from it, so that neither can know a route that the other does not.

use axum::http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::api::conversion::{own_redundancy_of, redundancy_of};
use crate::api::disk_request::{DiskChangesRequest, DiskNames};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::estimate::EstimateRequest;
use crate::api::event_filter::EventFilter;
use crate::api::files::{Files, NewEntry};
use crate::api::query::{ASKED_BY, Query, body_of};
use crate::api::view::TimeReport;
use crate::serving::daemon::Daemon;
use crate::serving::metrics::exposition::CONTENT_TYPE;

/// A parameter of a request, in the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Whether the request needs it.
    pub required: bool,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// What it means.
    pub description: &'static str,
}

/// How a route answers.
#[derive(Debug)]
pub(crate) enum Handler {
    /// With a structure.
    Json(fn(&Daemon, &Query) -> ControlResult<Value>),
    /// The same; it takes a structure of that schema in the request's body.
    Body(
        &'static str,
        fn(&Daemon, &Query, &[u8]) -> ControlResult<Value>,
    ),
    /// At once, whatever the disks do.
    Alive,
    /// With a text of that media type.
    Text(&'static str, fn(&Daemon) -> String),
    /// With the bytes of a file.
    Download,
    /// Takes the bytes of a file.
    Upload,
    /// With the OpenAPI document.
    Document,
}

/// One thing that the API can do.
#[derive(Debug)]
pub(crate) struct Route {
    /// The method.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// What it takes.
    pub parameters: &'static [Parameter],
    /// The schema that it answers with; `[Name]` for a list of them, empty for nothing.
    pub response: &'static str,
    /// How it answers.
    pub handler: Handler,
}

impl Route {
    /// The parameters of a request. What is missing or unknown is refused by its name: a typing
    /// error must not become another request.
    ///
    /// # Errors
    /// Where that is so, or one is given twice.
    pub(crate) fn query(&self, text: &str) -> ControlResult<Query> {
        let query = Query::parse(text)?;
        let known: Vec<&str> = self.parameters.iter().map(|it| it.name).collect();
        if let Some(unknown) = query.names().find(|name| !known.contains(name)) {
            let known = match known.as_slice() {
                [] => "it takes none".to_owned(),
                known => format!("known are {}", known.join(", ")),
            };
            return Err(ControlError::invalid(format!(
                "{} {} knows no parameter {unknown:?}; {known}",
                self.method, self.path
            )));
        }
        let mut needed = self.parameters.iter().filter(|it| it.required);
        match needed.find(|it| query.names().all(|name| name != it.name)) {
            None => Ok(query),
            Some(missing) => Err(ControlError::invalid(format!(
                "{} {}: the parameter {} is missing: {}",
                self.method, self.path, missing.name, missing.description
            ))),
        }
    }
}

const PATH: Parameter = needed("path", "string", "path in the group, from its root");

const ENTRY: &[Parameter] = &[
    PATH,
    optional(
        "permissions",
        "integer",
        "permission bits, as a decimal number",
    ),
    optional("user", "integer", "owner; 0 where it is not given"),
    optional("group", "integer", "owning group; 0 where it is not given"),
    optional(
        "modified_s",
        "integer",
        "time of the last change, seconds since 1970; else now",
    ),
    optional("modified_ns", "integer", "and the nanoseconds beyond them"),
];

const LINK: &[Parameter] = &[
    PATH,
    needed("target", "string", "where it points"),
    ENTRY[1],
    ENTRY[2],
    ENTRY[3],
    ENTRY[4],
    ENTRY[5],
];

const fn needed(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        required: true,
        kind,
        description,
    }
}

const fn optional(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        required: false,
        kind,
        description,
    }
}

const fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    response: &'static str,
    handler: Handler,
) -> Route {
    Route {
        method,
        path,
        summary,
        parameters,
        response,
        handler,
    }
}

fn json(value: impl Serialize) -> ControlResult<Value> {
    serde_json::to_value(value)
        .map_err(|error| ControlError::new(ControlErrorKind::Bug, error.to_string()))
}

/// What a new entry is made with, as the parameters say.
///
/// # Errors
/// Where one of them is no number.
pub(crate) fn new_entry(query: &Query) -> ControlResult<NewEntry> {
    let modified = match query.value::<i64>("modified_s")? {
        Some(seconds) => Some(TimeReport {
            seconds,
            nanoseconds: query.value("modified_ns")?.unwrap_or(0),
        }),
        None => None,
    };
    Ok(NewEntry {
        permissions: query.value::<u16>("permissions")?.unwrap_or(0o644) & 0o7777,
        user: query.value("user")?.unwrap_or(0),
        group: query.value("group")?.unwrap_or(0),
        modified,
    })
}

/// Everything that the API can do.
pub(crate) static ROUTES: &[Route] = &[
    route(
        Method::GET,
        "/openapi.json",
        "This document.",
        &[],
        "",
        Handler::Document,
    ),
    route(
        Method::GET,
        "/alive",
        "Answers at once, whatever the disks do.",
        &[],
        "",
        Handler::Alive,
    ),
    route(
        Method::GET,
        "/group",
        "The group with its disks and mounts.",
        &[],
        "GroupReport",
        Handler::Json(|daemon, _| json(daemon.report())),
    ),
    route(
        Method::GET,
        "/group/check",
        "Compares maps, space and records.",
        &[],
        "CheckReport",
        Handler::Json(|daemon, _| json(daemon.check(false)?)),
    ),
    route(
        Method::POST,
        "/group/check",
        "The same, and puts right what can be without losing anything.",
        &[],
        "CheckReport",
        Handler::Json(|daemon, _| json(daemon.check(true)?)),
    ),
    route(
        Method::GET,
        "/group/settings",
        "The group's settings.",
        &[],
        "GroupSettings",
        Handler::Json(|daemon, _| json(daemon.settings())),
    ),
    route(
        Method::POST,
        "/group/settings",
        "Changes a setting of the group, durably.",
        &[
            needed("name", "string", "the setting: scrub_interval"),
            needed("value", "string", "a time such as 7d, 12h or 30m, or off"),
        ],
        "GroupSettings",
        Handler::Json(|daemon, query| {
            let name = query.text("name").unwrap_or_default();
            let value = query.text("value").unwrap_or_default();
            json(daemon.change_setting(&name, &value)?)
        }),
    ),
    route(
        Method::POST,
        "/group/convert",
        "Gives the group another redundancy, and the files whose template says \"as the group\".",
        &[needed("redundancy", "string", "external, normal or high")],
        "ConversionReport",
        Handler::Json(|daemon, query| {
            json(daemon.opened().convert_group(own_redundancy_of(query)?)?)
        }),
    ),
    route(
        Method::POST,
        "/files/redundancy",
        "Gives a file another redundancy, or a directory for what is made below it.",
        &[
            PATH,
            needed("redundancy", "string", "external, normal or high"),
            optional(
                "recursive",
                "boolean",
                "of a directory: what is there below it too",
            ),
        ],
        "ConversionReport",
        Handler::Json(|daemon, query| {
            let redundancy = own_redundancy_of(query)?;
            let recursive = query.value("recursive")?.unwrap_or(false);
            let path = query.path("path")?;
            json((daemon.opened()).set_file_redundancy(&path, redundancy, recursive)?)
        }),
    ),
    route(
        Method::POST,
        "/templates/redundancy",
        "Gives the templates of a name another redundancy, for files made from now on.",
        &[
            needed("name", "string", "the templates' name"),
            needed("redundancy", "string", "external, normal, high or group"),
        ],
        "[TemplateReport]",
        Handler::Json(|daemon, query| {
            let name = query.text("name").unwrap_or_default();
            let redundancy = redundancy_of(query)?;
            json((daemon.opened()).set_template_redundancy(&name, redundancy)?)
        }),
    ),
    route(
        Method::GET,
        "/operations",
        "What background copying runs and waits.",
        &[],
        "OperationsReport",
        Handler::Json(|daemon, _| json(daemon.operations())),
    ),
    route(
        Method::POST,
        "/rebalance",
        "Asks for a rebalance, or changes the power of the one that runs.",
        &[
            optional("power", "integer", "0, which pauses, to 1024"),
            optional(
                "default",
                "boolean",
                "the power is the group's own from now on; nothing is asked for",
            ),
        ],
        "OperationsReport",
        Handler::Json(|daemon, query| json(daemon.rebalance(query)?)),
    ),
    route(
        Method::GET,
        "/scrub",
        "The scrub that runs, or the last one since the group was opened.",
        &[],
        "ScrubReport",
        Handler::Json(|daemon, _| json(daemon.scrub_report()?)),
    ),
    route(
        Method::POST,
        "/scrub/start",
        "Begins a scrub: every copy is read and compared, and pages are judged.",
        &[
            optional(
                "path",
                "string",
                "a file or directory in the group; else all of it",
            ),
            optional("repair", "boolean", "mend what is proven"),
            optional("power", "integer", "0 to 1024; 1 where it is not given"),
            optional(
                "distrust",
                "string",
                "a disk whose copies lose where they differ and nothing is proven; of all that it \
                 holds where neither disks nor a path are given",
            ),
            optional(
                ASKED_BY,
                "string",
                "ignored: the event log names the user that the kernel says has asked",
            ),
        ],
        "ScrubReport",
        Handler::Body("DiskNames", |daemon, query, body| {
            let disks = DiskNames::from_body(body)?;
            json(daemon.start_scrub(query, &disks.disks)?)
        }),
    ),
    route(
        Method::POST,
        "/scrub/stop",
        "Ends the scrub that runs.",
        &[],
        "ScrubReport",
        Handler::Json(|daemon, _| json(daemon.stop_scrub()?)),
    ),
    route(
        Method::POST,
        "/scrub/power",
        "Changes the power of the scrub that runs.",
        &[needed("power", "integer", "0 to 1024; 0 lets it wait")],
        "ScrubReport",
        Handler::Json(|daemon, query| json(daemon.set_scrub_power(query.needed("power")?)?)),
    ),
    route(
        Method::POST,
        "/group/sync",
        "Makes durable what programs have written until now, the kernel's cache included.",
        &[],
        "EndingReport",
        Handler::Json(|daemon, _| json(daemon.sync()?)),
    ),
    route(
        Method::POST,
        "/group/dismount",
        "Unmounts, closes the group and ends the process.",
        &[],
        "EndingReport",
        Handler::Json(|daemon, _| json(daemon.dismount()?)),
    ),
    route(
        Method::POST,
        "/mounts/add",
        "Mounts the files of the group.",
        &[
            needed("directory", "string", "an empty directory"),
            optional("direct", "boolean", "bypass the page cache"),
            optional(
                "workers",
                "integer",
                "event loops; as many as processors where not given",
            ),
        ],
        "MountReport",
        Handler::Json(|daemon, query| {
            let directory = query.path("directory")?;
            let direct = query.value("direct")?.unwrap_or(false);
            json(daemon.mount(&directory, direct, query.value("workers")?)?)
        }),
    ),
    route(
        Method::POST,
        "/mounts/remove",
        "Unmounts; the process ends with its last mount unless it was started to stay.",
        &[needed("directory", "string", "the mount point")],
        "EndingReport",
        Handler::Json(|daemon, query| json(daemon.unmount(&query.path("directory")?)?)),
    ),
    route(
        Method::GET,
        "/files/stat",
        "One entry; symbolic links are not followed.",
        &[PATH],
        "FileReport",
        Handler::Json(|daemon, query| json(daemon.files().stat(&query.path("path")?)?)),
    ),
    route(
        Method::GET,
        "/files/list",
        "The entries of a directory.",
        &[PATH],
        "[FileReport]",
        Handler::Json(|daemon, query| json(daemon.files().list(&query.path("path")?)?)),
    ),
    route(
        Method::GET,
        "/files/map",
        "Which extents of a file lie where.",
        &[PATH],
        "MapReport",
        Handler::Json(|daemon, query| json(daemon.files().map(&query.path("path")?)?)),
    ),
    route(
        Method::GET,
        "/files/usage",
        "Space taken by a directory and everything below it, the sum last.",
        &[
            PATH,
            optional(
                "depth",
                "integer",
                "levels of directories told apart; 0 for the sum",
            ),
        ],
        "[UsageReport]",
        Handler::Json(|daemon, query| {
            let depth = query.value("depth")?.unwrap_or(0);
            json(daemon.files().usage(&query.path("path")?, depth)?)
        }),
    ),
    route(
        Method::GET,
        "/files/content",
        "The bytes of a file.",
        &[PATH],
        "",
        Handler::Download,
    ),
    route(
        Method::PUT,
        "/files/content",
        "Makes a file of the body, in place of one that is there; it becomes visible whole.",
        ENTRY,
        "",
        Handler::Upload,
    ),
    route(
        Method::POST,
        "/files/directory",
        "Makes a directory; one that is there stays.",
        ENTRY,
        "",
        Handler::Json(|daemon, query| {
            let new = new_entry(query)?;
            json(daemon.files().make_directory(&query.path("path")?, new)?)
        }),
    ),
    route(
        Method::POST,
        "/files/symlink",
        "Makes a symbolic link, in place of one that is there.",
        LINK,
        "",
        Handler::Json(|daemon, query| {
            let (path, target) = (query.path("path")?, query.path("target")?);
            json(
                daemon
                    .files()
                    .make_symlink(&path, &target, new_entry(query)?)?,
            )
        }),
    ),
    route(
        Method::POST,
        "/files/sync",
        "Makes everything durable.",
        &[],
        "",
        Handler::Json(|daemon, _| json(daemon.files().sync()?)),
    ),
    route(
        Method::GET,
        "/activity",
        "Running counters of every disk and of the busy files.",
        &[],
        "ActivitySample",
        Handler::Json(|daemon, _| json(daemon.activity())),
    ),
    route(
        Method::GET,
        "/events",
        "The events of the group's log, the oldest first.",
        &[
            optional("after", "integer", "only events with a larger number"),
            optional(
                "since_ms",
                "integer",
                "only events since then, milliseconds since 1970",
            ),
            optional(
                "severity",
                "string",
                "info, warning or critical: only events that matter at least so much",
            ),
            optional("kind", "string", "only these kinds, separated by commas"),
        ],
        "[EventReport]",
        Handler::Json(|daemon, query| json(daemon.events(&EventFilter::from_query(query)?)?)),
    ),
    route(
        Method::GET,
        "/health",
        "How well the group is, and what to do where it is not.",
        &[],
        "HealthReport",
        Handler::Json(|daemon, _| json(daemon.health())),
    ),
    route(
        Method::GET,
        "/metrics",
        "The metrics in the text format of Prometheus.",
        &[],
        "",
        Handler::Text(CONTENT_TYPE, Daemon::metrics),
    ),
    route(
        Method::GET,
        "/templates",
        "The group's templates.",
        &[],
        "[TemplateReport]",
        Handler::Json(|daemon, _| json(daemon.templates())),
    ),
    route(
        Method::POST,
        "/disks/change",
        "Adds, drops, undrops, replaces and resizes disks, all together.",
        &[],
        "DiskChangesReport",
        Handler::Body("DiskChangesRequest", |daemon, _, body| {
            let request: DiskChangesRequest = body_of(body)?;
            let opened = daemon.opened();
            json(opened.change_disks(daemon.start_settings(), &request)?)
        }),
    ),
    route(
        Method::POST,
        "/estimate",
        "Tells what a change would cost; nothing is changed.",
        &[],
        "EstimateReport",
        Handler::Body("EstimateRequest", |daemon, _, body| {
            let request: EstimateRequest = body_of(body)?;
            let opened = daemon.opened();
            json(opened.estimate(daemon.start_settings(), &request)?)
        }),
    ),
    route(
        Method::POST,
        "/disks/rename",
        "Gives a disk another name.",
        &[
            needed("disk", "string", "the disk's name"),
            needed("name", "string", "its new name"),
        ],
        "DiskChangesReport",
        Handler::Json(|daemon, query| {
            let disk = query.text("disk").unwrap_or_default();
            let name = query.text("name").unwrap_or_default();
            json(daemon.opened().rename_disk(&disk, &name)?)
        }),
    ),
    route(
        Method::POST,
        "/disks/offline",
        "Takes disks offline, where nothing loses its last copy.",
        &[],
        "DiskChangesReport",
        Handler::Body("DiskNames", |daemon, _, body| {
            let disks = DiskNames::from_body(body)?.disks;
            json(daemon.opened().offline_disks(&disks)?)
        }),
    ),
    route(
        Method::POST,
        "/disks/online",
        "Brings back disks that are offline, all that can be found where none is named.",
        &[],
        "DiskChangesReport",
        Handler::Body("DiskNames", |daemon, _, body| {
            let disks = DiskNames::from_body(body)?.disks;
            let opened = daemon.opened();
            json(opened.online_disks(daemon.start_settings(), &disks)?)
        }),
    ),
    route(
        Method::POST,
        "/faults",
        "For tests: makes a disk answer as if its cable was pulled, or plugged in again.",
        &[
            needed("disk", "string", "the disk's name"),
            needed("pulled", "boolean", "true to pull, false to plug"),
        ],
        "DiskReport",
        Handler::Json(|daemon, query| {
            let disk = query.text("disk").unwrap_or_default();
            json(daemon.fault(&disk, query.needed("pulled")?)?)
        }),
    ),
];
