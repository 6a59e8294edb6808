//! `spindle mount`, `spindle umount`, `spindle sync`, `spindle upgrade` and their like of `spindle
//! group`.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{
    ControlError, ControlResult, KeeperLink, MetricsListen, MountRequest, ReadyReport,
    ServeOptions, Settings, Starter,
};

use super::group::{name_of, own_arguments};
use super::print_json;
use crate::arguments::{MountArguments, Output, ServeArguments};
use crate::line::say;

pub fn mount(settings: &Settings, mount: &MountArguments) -> Result<u8> {
    let group = name_of(&mount.group)?;
    // The process that takes a mount over must not look at it: nobody would answer.
    let directory = if mount.serve.daemon {
        std::path::absolute(&mount.directory)?
    } else {
        spindle_control::absolute(&mount.directory)?
    };
    let request = MountRequest {
        directory,
        direct: mount.direct,
        workers_count: mount.workers,
    };
    if mount.serve.is_first() {
        spindle_control::refuse_unknown(settings, &group)?;
    }
    if let Some(code) = keep(settings, &group, Some(&request.directory), &mount.serve)? {
        return Ok(code);
    }
    if !mount.serve.serves() {
        let force = mount.serve.force;
        let served = spindle_control::mount_served(settings, group.as_str(), &request, force)?;
        if let Some(report) = served {
            if mount.output.json {
                print_json(&served_report(settings, &group)?)?;
            } else {
                say!("{group} is mounted on {}", report.directory);
            }
            return Ok(0);
        }
        let ready = spindle_control::start_daemon(
            settings,
            group.as_str(),
            own_arguments(),
            mount.serve.wants_keeper(),
        )?;
        if mount.output.json {
            print_json(&ready)?;
            return Ok(0);
        }
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
        keeper: None,
    };
    serve(settings, options, &mount.serve)
}

/// What a process that was there already says, as one that has just started does.
fn served_report(settings: &Settings, group: &GroupName) -> Result<ReadyReport> {
    let report = spindle_control::show_group(settings, group.as_str())?;
    Ok(ReadyReport {
        group: report.name,
        process_id: report.process_id.unwrap_or(0),
        mounts: report.mounts,
        notices: Vec::new(),
    })
}

pub fn group_mount(
    settings: &Settings,
    group: &str,
    arguments: &ServeArguments,
    output: Output,
) -> Result<u8> {
    let group = name_of(group)?;
    if arguments.is_first() {
        spindle_control::refuse_unknown(settings, &group)?;
    }
    if let Some(code) = keep(settings, &group, None, arguments)? {
        return Ok(code);
    }
    if !arguments.serves() {
        spindle_control::refuse_if_served(settings, &group)?;
        let ready = spindle_control::start_daemon(
            settings,
            group.as_str(),
            own_arguments(),
            arguments.wants_keeper(),
        )?;
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
        keeper: None,
    };
    serve(settings, options, arguments)
}

/// Where this process is to be the keeper, its exit code when all is over.
fn keep(
    settings: &Settings,
    group: &GroupName,
    mount_point: Option<&Path>,
    serve: &ServeArguments,
) -> Result<Option<u8>> {
    if serve.daemon || !serve.keeper {
        return Ok(None);
    }
    let arguments = own_arguments().collect();
    let mount_point = mount_point.map(Path::to_owned);
    let kept = spindle_control::keep(settings, group, arguments, mount_point, !serve.foreground);
    match kept {
        Err(error) if !serve.foreground => {
            // Whoever started this process waits for a word.
            spindle_control::Starter::of_keeper().failed(&error);
            Ok(Some(error.class.exit_code()))
        }
        kept => Ok(Some(kept?)),
    }
}

fn metrics_of(arguments: &ServeArguments) -> Option<MetricsListen> {
    arguments.metrics.map(|address| MetricsListen {
        address,
        public: arguments.metrics_public,
    })
}

/// Serves until told to stop: as a daemon, or in the foreground.
fn serve(settings: &Settings, mut options: ServeOptions, arguments: &ServeArguments) -> Result<u8> {
    if !arguments.daemon {
        spindle_control::serve(settings, &options, |ready| {
            tell_notices(ready);
            say!(
                "{} is open, served by this process; Ctrl-C closes it",
                ready.group
            );
        })?;
        return Ok(0);
    }
    if arguments.keeper {
        options.keeper = Some(Arc::new(KeeperLink::take()?));
        if arguments.foreground {
            spindle_control::serve(settings, &options, |ready| {
                tell_notices(ready);
                say!("{} is open, kept and served; Ctrl-C closes it", ready.group);
            })?;
            return Ok(0);
        }
    }
    let starter = Arc::new(Mutex::new(Some(Starter::detach()?)));
    let take = |starter: &Mutex<Option<Starter>>| {
        let mut starter = starter.lock().unwrap_or_else(PoisonError::into_inner);
        starter.take()
    };
    let for_ready = starter.clone();
    let served: ControlResult<()> = spindle_control::serve(settings, &options, move |ready| {
        if let Some(starter) = take(&for_ready) {
            starter.ready(ready);
        }
    });
    if let Err(error) = served {
        if let Some(link) = &options.keeper {
            // The command that waits for the first one is not there for those that follow.
            link.failed(&error);
            tracing::error!("{error:#}");
        }
        match take(&starter) {
            Some(starter) => starter.failed(&error),
            None if options.keeper.is_none() => tracing::error!("{error:#}"),
            None => {}
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

/// Hands a group over to another program.
pub fn upgrade(
    settings: &Settings,
    group: &str,
    binary: Option<&Path>,
    output: Output,
) -> Result<u8> {
    let report = spindle_control::upgrade(settings, group, binary)?;
    if output.json {
        print_json(&report)?;
    } else {
        say!("{group} is served by version {} now", report.version);
    }
    Ok(0)
}

pub fn sync(settings: &Settings, group: &str, output: Output) -> Result<u8> {
    let report = spindle_control::sync_group(settings, group)?;
    if output.json {
        print_json(&report)?;
    } else if report.open {
        say!("what was written to {} is durable", report.group);
    } else {
        say!(
            "{} is not open: nothing is left to be written",
            report.group
        );
    }
    Ok(0)
}

pub fn umount(settings: &Settings, target: &OsStr, output: Output) -> Result<u8> {
    if target.is_empty() {
        return Err(ControlError::invalid("the mount point is empty").into());
    }
    let report = spindle_control::unmount(settings, Path::new(target))?;
    let name = target.to_string_lossy();
    if output.json {
        print_json(&report)?;
    } else if report.closed {
        say!("{name} is unmounted and its group is closed");
    } else {
        say!("{name} is unmounted");
    }
    Ok(0)
}

/// Closes a group and all its mounts.
pub fn dismount(settings: &Settings, group: &str, output: Output) -> Result<u8> {
    let report = spindle_control::dismount_group(settings, group)?;
    if output.json {
        print_json(&report)?;
    } else {
        say!("{} is closed", report.group);
    }
    Ok(0)
}
