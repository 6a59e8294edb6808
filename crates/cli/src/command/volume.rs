//! `spindle volume`.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Result;
use spindle_base::GroupName;
use spindle_control::{ControlError, ExportReport, Location, Settings, VolumeReport};

use super::print_json;
use crate::arguments::{Output, VolumeCommand};
use crate::line::say;
use crate::table::{Table, size};

pub fn run(settings: &Settings, command: &VolumeCommand) -> Result<u8> {
    match command {
        VolumeCommand::Create {
            path,
            size: size_bytes,
            reserve,
            output,
        } => {
            let (group, path) = Location::in_group(path)?;
            let made =
                spindle_control::create_volume(settings, &group, &path, *size_bytes, *reserve)?;
            tell_volume(&group, &made, *output)
        }
        VolumeCommand::List { target, output } => {
            let (group, path) = Location::in_group(target)?;
            list(
                &spindle_control::list_volumes(settings, &group, &path)?,
                *output,
            )
        }
        VolumeCommand::Resize {
            path,
            size: size_bytes,
            shrink,
            output,
        } => {
            let (group, path) = Location::in_group(path)?;
            let resized =
                spindle_control::resize_volume(settings, &group, &path, *size_bytes, *shrink)?;
            tell_volume(&group, &resized, *output)
        }
        VolumeCommand::Drop { path, yes, output } => {
            let (group, path) = Location::in_group(path)?;
            if !yes {
                // Nobody is asked about what is not there, or is no volume.
                spindle_control::list_volumes(settings, &group, &path)?;
                confirm(&format!("{group}:{}", path.display()))?;
            }
            let dropped = spindle_control::drop_volume(settings, &group, &path)?;
            if output.json {
                print_json(&dropped)?;
                return Ok(0);
            }
            say!("{group}:{} is gone", dropped.path);
            Ok(0)
        }
        VolumeCommand::Export { .. }
        | VolumeCommand::Exports { .. }
        | VolumeCommand::Unexport { .. } => run_on_exports(settings, command),
    }
}

fn run_on_exports(settings: &Settings, command: &VolumeCommand) -> Result<u8> {
    match command {
        VolumeCommand::Export {
            path,
            socket,
            read_only,
            output,
        } => {
            let (group, path) = Location::in_group(path)?;
            let export =
                spindle_control::export_volume(settings, &group, &path, socket, *read_only)?;
            if output.json {
                print_json(&export)?;
                return Ok(0);
            }
            say!(
                "{} is exported: nbd+unix:///?socket={}",
                export.name,
                export.socket
            );
        }
        VolumeCommand::Exports { group, output } => {
            let (group, _) = Location::in_group(group.as_ref())?;
            list_exports(&spindle_control::list_exports(settings, &group)?, *output)?;
        }
        VolumeCommand::Unexport {
            path,
            force,
            output,
        } => {
            let (group, path) = Location::in_group(path)?;
            let export = spindle_control::unexport_volume(settings, &group, &path, *force)?;
            if output.json {
                print_json(&export)?;
                return Ok(0);
            }
            say!("{} is exported no more", export.name);
        }
        VolumeCommand::Create { .. }
        | VolumeCommand::List { .. }
        | VolumeCommand::Resize { .. }
        | VolumeCommand::Drop { .. } => {}
    }
    Ok(0)
}

fn tell_volume(group: &GroupName, volume: &VolumeReport, output: Output) -> Result<u8> {
    if output.json {
        print_json(volume)?;
        return Ok(0);
    }
    say!(
        "{group}:{}: {}, of which {} are taken",
        volume.path,
        size(volume.size_bytes),
        size(volume.allocated_bytes)
    );
    Ok(0)
}

fn list(volumes: &[VolumeReport], output: Output) -> Result<u8> {
    if output.json {
        print_json(&volumes)?;
        return Ok(0);
    }
    let mut table = Table::new(&[">Size", ">Space", "Redundancy", "Striping", "Path"]);
    let dash = || "-".to_owned();
    for volume in volumes {
        table.row([
            size(volume.size_bytes),
            size(volume.allocated_bytes),
            volume.redundancy.map_or_else(dash, |it| it.to_string()),
            volume.striping.map_or_else(dash, |it| it.to_string()),
            volume.path.clone(),
        ]);
    }
    table.print()?;
    Ok(0)
}

fn list_exports(exports: &[ExportReport], output: Output) -> Result<()> {
    if output.json {
        return print_json(&exports);
    }
    let mut table = Table::new(&["Path", "Access", ">Clients", "Socket"]);
    for export in exports {
        let access = if export.read_only { "read" } else { "write" };
        table.row([
            export.path.clone(),
            access.to_owned(),
            export.connections_count.to_string(),
            export.socket.clone(),
        ]);
    }
    table.print()?;
    Ok(())
}

fn confirm(name: &str) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(ControlError::invalid(format!(
            "what {name} holds would be lost: give --yes to remove it without being asked"
        ))
        .into());
    }
    print!("What {name} holds is lost. Type its name to go on: ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() != name {
        return Err(ControlError::invalid(format!("{name} was not removed")).into());
    }
    Ok(())
}
