//! `spindle mount`, `spindle umount` and `spindle group mount`.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;
use spindle_control::{
    ControlError, ControlResult, MetricsListen, MountRequest, ReadyReport, ServeOptions, Settings,
    Starter,
};

use super::group::{name_of, own_arguments};
use super::print_json;
use crate::arguments::{MountArguments, Output, ServeArguments};
use crate::line::say;

pub fn mount(settings: &Settings, mount: &MountArguments) -> Result<u8> {
    let group = name_of(&mount.group)?;
    let request = MountRequest {
        directory: spindle_control::absolute(&mount.directory)?,
        direct: mount.direct,
        workers_count: mount.workers,
    };
    if !mount.serve.foreground && !mount.serve.daemon {
        if let Some(report) = spindle_control::mount_served(settings, group.as_str(), &request)? {
            say!("{group} is mounted on {}", report.directory);
            return Ok(0);
        }
        let ready = spindle_control::start_daemon(settings, group.as_str(), own_arguments())?;
        tell_notices(&ready);
        say!(
            "{} is mounted on {}",
            ready.group,
            request.directory.display()
        );
        return Ok(0);
    }
    let options = ServeOptions {
        group,
        mount: Some(request),
        record: mount.serve.record.clone(),
        stay: false,
        force: mount.serve.force,
        metrics: metrics_of(&mount.serve),
    };
    serve(settings, &options, mount.serve.daemon)
}

pub fn group_mount(
    settings: &Settings,
    group: &str,
    arguments: &ServeArguments,
    output: Output,
) -> Result<u8> {
    let group = name_of(group)?;
    if !arguments.foreground && !arguments.daemon {
        spindle_control::refuse_if_served(settings, &group)?;
        let ready = spindle_control::start_daemon(settings, group.as_str(), own_arguments())?;
        if output.json {
            print_json(&ready)?;
        } else {
            tell_notices(&ready);
            say!(
                "{} is open, served by process {}",
                ready.group,
                ready.process_id
            );
        }
        return Ok(0);
    }
    let options = ServeOptions {
        group,
        mount: None,
        record: arguments.record.clone(),
        stay: true,
        force: arguments.force,
        metrics: metrics_of(arguments),
    };
    serve(settings, &options, arguments.daemon)
}

fn metrics_of(arguments: &ServeArguments) -> Option<MetricsListen> {
    arguments.metrics.map(|address| MetricsListen {
        address,
        public: arguments.metrics_public,
    })
}

/// Serves until told to stop: as a daemon, or in the foreground.
fn serve(settings: &Settings, options: &ServeOptions, daemon: bool) -> Result<u8> {
    if !daemon {
        spindle_control::serve(settings, options, |ready| {
            tell_notices(ready);
            say!(
                "{} is open, served by this process; Ctrl-C closes it",
                ready.group
            );
        })?;
        return Ok(0);
    }
    let mut starter = Some(Starter::detach()?);
    let served: ControlResult<()> = spindle_control::serve(settings, options, |ready| {
        if let Some(starter) = starter.take() {
            starter.ready(ready);
        }
    });
    if let Err(error) = served {
        match starter.take() {
            Some(starter) => starter.failed(&error),
            None => tracing::error!("{error}"),
        }
        return Ok(error.class.exit_code());
    }
    Ok(0)
}

fn tell_notices(ready: &ReadyReport) {
    for notice in &ready.notices {
        eprintln!("spindle: note: {notice}");
    }
}

pub fn umount(settings: &Settings, target: &OsStr) -> Result<u8> {
    if target.is_empty() {
        return Err(ControlError::invalid("the mount point is empty").into());
    }
    let closed = spindle_control::unmount(settings, Path::new(target))?;
    let name = target.to_string_lossy();
    if closed {
        say!("{name} is unmounted and its group is closed");
    } else {
        say!("{name} is unmounted");
    }
    Ok(0)
}
