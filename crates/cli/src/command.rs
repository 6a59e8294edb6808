//! What each command asks of `spindle_control`, and how the answer is printed.

mod clear;
mod console;
mod conversion;
mod copy;
mod disk;
mod dump;
mod estimate;
mod events;
mod file;
mod group;
mod health;
mod iostat;
mod rebalance;
mod scrub;
mod serve;
mod status;
mod top;
mod volume;

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use spindle_control::Settings;

use crate::arguments::{Arguments, Command, TemplateCommand};
use crate::line::say;
use crate::page;

/// Runs the command; the number is the exit code.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if tell_of_itself(&arguments.command)? {
        return Ok(0);
    }
    let settings = Settings::gather(&arguments.disks)?;
    match &arguments.command {
        Command::Disk(command) => disk::run(&settings, command),
        Command::Failgroup(command) => disk::run_on_failure_groups(&settings, command),
        Command::Group(command) => group::run(&settings, command),
        Command::Mount(mount) => serve::mount(&settings, mount),
        Command::Upgrade {
            group,
            binary,
            output,
        } => serve::upgrade(&settings, group, binary.as_deref(), *output),
        Command::Sync { group, output } => serve::sync(&settings, group, *output),
        Command::Umount { target, output } => serve::umount(&settings, target, *output),
        Command::Ls {
            paths,
            long,
            output,
        } => file::ls(&settings, paths, *long, *output),
        Command::Stat { path, output } => file::stat(&settings, path, *output),
        Command::Map {
            path,
            summary,
            output,
        } => file::map(&settings, path, *summary, *output),
        Command::Du {
            path,
            depth,
            output,
        } => file::du(&settings, path, *depth, *output),
        Command::Cp(copy) => copy::run(&settings, copy),
        Command::Iostat {
            group,
            interval,
            count,
            files,
            output,
        } => iostat::run(&settings, group, *interval, *count, *files, *output),
        Command::Status(arguments) => status::run(&settings, arguments),
        Command::Top(arguments) => top::run(&settings, arguments),
        Command::Console(arguments) => console::run(&settings, arguments),
        Command::Dump {
            group,
            disk,
            rows,
            output,
        } => dump::run(&settings, group.as_deref(), disk, *rows, *output),
        Command::File(command) => conversion::set_file(&settings, command),
        Command::Volume(command) => volume::run(&settings, command),
        Command::Template(command) => run_template(&settings, command),
        Command::Health { group, output } => health::run(&settings, group.as_deref(), *output),
        Command::Clear(arguments) => clear::run(&settings, arguments),
        Command::Events(arguments) => events::run(&settings, arguments),
        Command::Check(arguments) => group::check(&settings, arguments),
        Command::Scrub(arguments) => scrub::run(&settings, arguments),
        Command::Rebalance(arguments) => rebalance::rebalance(&settings, arguments),
        Command::Operations(arguments) => rebalance::operations(&settings, arguments),
        Command::Fault(command) => group::fault(&settings, command),
        Command::Openapi
        | Command::Udev { .. }
        | Command::Formats
        | Command::Notices { .. }
        | Command::Completions { .. }
        | Command::Man { .. } => Ok(0),
    }
}

/// Commands that need no settings, because they ask no group; whether it was one.
fn tell_of_itself(command: &Command) -> Result<bool> {
    match command {
        Command::Openapi => print_json(&spindle_control::document())?,
        Command::Notices { .. } => spindle_control::send_notices()?,
        Command::Formats => print_json(&spindle_control::Formats::own())?,
        Command::Udev { device } => {
            for (name, value) in spindle_control::udev_properties(device)? {
                say!("{name}={value}");
            }
        }
        Command::Completions { shell } => page::completions(*shell),
        Command::Man { directory } => page::man(directory.as_deref())?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn run_template(settings: &Settings, command: &TemplateCommand) -> Result<u8> {
    match command {
        TemplateCommand::List { group, output } => group::templates(settings, group, *output),
        TemplateCommand::Set {
            group,
            name,
            redundancy,
            output,
        } => conversion::set_template(settings, group, name, redundancy.0, *output),
    }
}

/// Prints a structure as JSON, indented, as one document.
fn print_json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
