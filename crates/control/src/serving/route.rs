//! What the daemon does with each call: one table, from which both the router and the `OpenAPI`
//! document are made, so that neither can know a call that the other does not.

use std::sync::LazyLock;

use crate::api::call::{Call, Shape};
use crate::api::calls::{
    AddExport, AddMount, Alive, BringOnline, ChangeDisks, ChangeSetting, CheckGroup, ClearFindings,
    ConvertFile, ConvertGroup, ConvertTemplate, CreateVolume, DismountGroup, Document, DropVolume,
    EstimateChange, EstimateConversion, FileUsage, ListExports, ListFiles, ListTemplates,
    ListVolumes, MakeDirectory, MakeSymlink, MapFile, ReadFile, Rebalance, RemoveExport,
    RemoveMount, RenameDisk, RepairGroup, ResizeVolume, SetFault, SetScrubPower, ShowActivity,
    ShowEvents, ShowForecast, ShowGroup, ShowHealth, ShowMetrics, ShowOperations, ShowScrub,
    ShowSettings, StartScrub, StatFile, StopScrub, SyncFiles, SyncGroup, TakeOffline, TellLost,
    WriteFile,
};
use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::api::files::Files;
use crate::api::query::Query;
use crate::serving::daemon::Daemon;
use crate::serving::metrics::exposition::CONTENT_TYPE;

/// A call that was read: what it does, for the user of that name, and the answer in JSON. It is
/// written at once: a tree of values between would cost several times as much for a group of a
/// thousand disks.
pub(super) type Deed = Box<dyn FnOnce(&Daemon, &str) -> ControlResult<Vec<u8>> + Send>;

/// Makes a deed of a request.
type Reading = dyn Fn(&Query, &[u8]) -> ControlResult<Deed> + Send + Sync;

/// How a call is answered.
pub(super) enum Handler {
    /// With a structure.
    Json(Box<Reading>),
    /// At once, whatever the disks do.
    Alive,
    /// With a text of that media type.
    Text(&'static str, fn(&Daemon) -> String),
    /// With the bytes of a file.
    Download,
    /// Takes the bytes of a file.
    Upload,
    /// With the `OpenAPI` document.
    Document,
}

/// One call that the daemon answers.
pub(crate) struct Route {
    /// What there is to know of it.
    pub(super) shape: Shape,
    /// How it is answered.
    pub(super) handler: Handler,
}

impl Route {
    /// Reads a request as far as its parameters and its body go.
    ///
    /// # Errors
    /// What is not as it must be.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn try_read(&self, query: &str, body: &[u8]) -> ControlResult<()> {
        let query = self.shape.query(query)?;
        match &self.handler {
            Handler::Json(read) => read(&query, body).map(|_| ()),
            Handler::Upload => WriteFile::read(&query, body).map(|call| {
                let _ = call.entry();
            }),
            Handler::Download => ReadFile::read(&query, body).map(|_| ()),
            Handler::Alive | Handler::Text(..) | Handler::Document => Ok(()),
        }
    }
}

/// A call that is answered with the structure that its type says.
fn answers<C: Call>(
    deed: impl Fn(&Daemon, C, &str) -> ControlResult<C::Answer> + Clone + Send + Sync + 'static,
) -> Route {
    let read = move |query: &Query, body: &[u8]| {
        let (call, deed) = (C::read(query, body)?, deed.clone());
        let deed: Deed = Box::new(move |daemon, by| {
            let answer = deed(daemon, call, by).map_err(|error| daemon.explained(error))?;
            serde_json::to_vec(&answer).map_err(|error| {
                ControlError::new(ControlErrorKind::Bug, "an answer cannot be written")
                    .because(error)
            })
        });
        Ok(deed)
    };
    other::<C>(Handler::Json(Box::new(read)))
}

/// A call that is answered in a way of its own.
fn other<C: Call>(handler: Handler) -> Route {
    Route {
        shape: C::SHAPE,
        handler,
    }
}

/// Everything that the daemon answers.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut routes = of_group();
    routes.extend(of_background());
    routes.extend(of_files());
    routes.extend(of_volumes());
    routes.extend(of_disks());
    routes
});

fn of_group() -> Vec<Route> {
    vec![
        other::<Document>(Handler::Document),
        other::<Alive>(Handler::Alive),
        answers(|daemon, _: ShowGroup, _| Ok(daemon.report_with_paths())),
        answers(|daemon, _: CheckGroup, _| daemon.check(false)),
        answers(|daemon, _: RepairGroup, _| daemon.check(true)),
        answers(|daemon, _: ShowSettings, _| Ok(daemon.settings())),
        answers(|daemon, call: ChangeSetting, _| daemon.change_setting(&call.name, &call.value)),
        answers(|daemon, call: ConvertGroup, _| daemon.opened().convert_group(call.redundancy)),
        answers(|daemon, call: EstimateConversion, _| {
            daemon.opened().estimate_conversion(call.redundancy)
        }),
        answers(|daemon, call: ConvertTemplate, _| {
            let opened = daemon.opened();
            opened.set_template_redundancy(&call.name, call.redundancy.0)
        }),
        answers(|daemon, _: SyncGroup, _| daemon.sync()),
        answers(|daemon, _: DismountGroup, _| daemon.dismount()),
        answers(|daemon, call: AddMount, _| {
            daemon.mount(&call.directory, call.direct, call.workers)
        }),
        answers(|daemon, call: RemoveMount, _| daemon.unmount(&call.directory)),
        answers(|daemon, call: ShowEvents, _| daemon.events(&call.into())),
        answers(|daemon, _: ShowHealth, _| Ok(daemon.health())),
        answers(|daemon, _: ShowForecast, _| Ok(daemon.forecast())),
        answers(|daemon, call: ClearFindings, by| daemon.clear_findings(&call, by)),
        answers(|daemon, _: ShowActivity, _| Ok(daemon.activity())),
        other::<ShowMetrics>(Handler::Text(CONTENT_TYPE, Daemon::metrics)),
        answers(|daemon, _: ListTemplates, _| Ok(daemon.templates())),
    ]
}

fn of_background() -> Vec<Route> {
    vec![
        answers(|daemon, _: ShowOperations, _| Ok(daemon.operations())),
        answers(|daemon, call: Rebalance, _| daemon.rebalance(&call)),
        answers(|daemon, _: ShowScrub, _| daemon.scrub_report()),
        answers(|daemon, call: StartScrub, by| daemon.start_scrub(&call, by)),
        answers(|daemon, _: StopScrub, _| daemon.stop_scrub()),
        answers(|daemon, call: SetScrubPower, _| daemon.set_scrub_power(call.power)),
    ]
}

fn of_files() -> Vec<Route> {
    vec![
        answers(|daemon, call: ConvertFile, _| {
            let opened = daemon.opened();
            opened.set_file_redundancy(&call.path, call.redundancy, call.recursive)
        }),
        answers(|daemon, call: StatFile, _| daemon.files().stat(&call.path)),
        answers(|daemon, call: ListFiles, _| daemon.files().list(&call.path)),
        answers(|daemon, call: MapFile, _| daemon.files().map(&call.path)),
        answers(|daemon, call: FileUsage, _| daemon.files().usage(&call.path, call.depth)),
        other::<ReadFile>(Handler::Download),
        other::<WriteFile>(Handler::Upload),
        answers(|daemon, call: MakeDirectory, _| {
            daemon.files().make_directory(&call.path, call.entry())
        }),
        answers(|daemon, call: MakeSymlink, _| {
            let files = daemon.files();
            files.make_symlink(&call.path, &call.target, call.entry())
        }),
        answers(|daemon, _: SyncFiles, _| daemon.files().sync(&[])),
        answers(|daemon, call: TellLost, _| daemon.files().tell_lost(&call.path)),
    ]
}

fn of_volumes() -> Vec<Route> {
    vec![
        answers(|daemon, call: ListVolumes, _| daemon.files().volumes(call.path.as_deref())),
        answers(|daemon, call: CreateVolume, _| {
            let files = daemon.files();
            files.create_volume(&call.path, call.size_bytes, call.reserve)
        }),
        answers(|daemon, call: ResizeVolume, _| daemon.resize_volume(&call)),
        answers(|daemon, call: DropVolume, _| daemon.drop_volume(&call.path)),
        answers(|daemon, _: ListExports, _| Ok(daemon.exports())),
        answers(|daemon, call: AddExport, _| daemon.add_export(&call)),
        answers(|daemon, call: RemoveExport, _| daemon.remove_export(&call)),
    ]
}

fn of_disks() -> Vec<Route> {
    vec![
        answers(|daemon, call: ChangeDisks, by| {
            let opened = daemon.opened();
            let report = opened.change_disks(daemon.start_settings(), &call.body)?;
            daemon.tell_asked(by, &call.body.to_string());
            Ok(report)
        }),
        answers(|daemon, call: EstimateChange, _| {
            let opened = daemon.opened();
            opened.estimate(daemon.start_settings(), &call.body)
        }),
        answers(|daemon, call: RenameDisk, by| {
            let report = daemon.opened().rename_disk(&call.disk, &call.name)?;
            daemon.tell_asked(by, &format!("rename {} to {}", call.disk, call.name));
            Ok(report)
        }),
        answers(|daemon, call: TakeOffline, by| {
            let report = daemon.opened().offline_disks(&call.body.disks)?;
            daemon.tell_asked(by, &format!("take {} offline", call.body.disks.join(", ")));
            Ok(report)
        }),
        answers(|daemon, call: BringOnline, by| {
            let opened = daemon.opened();
            let names = &call.body.disks;
            let report = opened.online_disks(daemon.start_settings(), names)?;
            let which = match names.is_empty() {
                true => "every disk that was away".to_owned(),
                false => names.join(", "),
            };
            daemon.tell_asked(by, &format!("bring {which} online"));
            Ok(report)
        }),
        answers(|daemon, call: SetFault, _| daemon.fault(&call.disk, call.pulled)),
    ]
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::ROUTES;
    use crate::api::call::Effect;
    use crate::api::calls::shapes;

    #[test]
    fn every_call_that_there_is_is_answered_and_once() {
        for shape in shapes() {
            let is_it = |path: &str, method: &Method| path == shape.path && *method == shape.method;
            let routes = ROUTES.iter().map(|route| &route.shape);
            let count = routes.filter(|it| is_it(it.path, &it.method)).count();
            assert_eq!(count, 1, "{} {}", shape.method, shape.path);
        }
        assert_eq!(shapes().len(), ROUTES.len());
    }

    #[test]
    fn what_is_asked_for_by_get_changes_nothing() {
        for shape in shapes().iter().filter(|shape| shape.method == Method::GET) {
            assert_eq!(shape.effect, Effect::Looks, "GET {}", shape.path);
        }
    }
}
