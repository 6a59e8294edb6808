//! `spindle cp`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use spindle_base::{GroupName, count_text};
use spindle_control::{
    CopyOptions, CopyProgress, Files, GroupFiles, LocalFiles, Location, NoProgress, Settings, Tree,
};

use super::print_json;
use crate::arguments::CopyArguments;
use crate::line::say;
use crate::progress::CopyBar;
use crate::table::size;

pub fn run(settings: &Settings, arguments: &CopyArguments) -> Result<u8> {
    let locations: Vec<Location> = arguments
        .paths
        .iter()
        .map(|path| Location::parse(path))
        .collect();
    let (destination, sources) = locations.split_last().expect("clap asks for two or more");
    let preserve = arguments.preserve || arguments.archive;
    let options = CopyOptions {
        recursive: arguments.recursive || arguments.archive,
        preserve,
        user: spindle_control::own_user(),
        group: spindle_control::own_group(),
        umask: spindle_control::own_umask(),
    };
    let groups = open_groups(settings, sources, destination)?;
    let locals: Vec<LocalFiles> = (locations.iter())
        .map(|location| LocalFiles::new(location.path().to_owned(), preserve))
        .collect();
    let (local_destination, local_sources) = locals.split_last().expect("one for each location");
    let bar = CopyBar::new();
    let quiet = arguments.quiet || arguments.output.json;
    let progress: &dyn CopyProgress = if quiet { &NoProgress } else { &bar };
    let sources: Vec<Tree<'_>> = (sources.iter().zip(local_sources))
        .map(|(location, local)| tree(&groups, location, local))
        .collect();
    let destination = tree(&groups, destination, local_destination);
    let copied = spindle_control::copy(&sources, &destination, options, progress);
    bar.finish();
    // Closed also after a failure: what was copied before it stays, durably.
    let closed: Result<(), _> = groups.values().try_for_each(GroupFiles::close);
    let report = copied?;
    closed?;
    for skipped in &report.skipped {
        eprintln!("spindle: left out: {skipped}");
    }
    if arguments.output.json {
        print_json(&report)?;
    } else if !arguments.quiet {
        say!(
            "{}, {}",
            count_text(report.files_count, "file"),
            size(report.bytes)
        );
    }
    Ok(0)
}

fn tree<'a>(
    groups: &'a BTreeMap<String, GroupFiles>,
    location: &Location,
    local: &'a LocalFiles,
) -> Tree<'a> {
    Tree {
        files: match location {
            Location::Group(name, _) => groups[&key(name)].files(),
            Location::Local(_) => local as &dyn Files,
        },
        path: location.path().to_owned(),
        label: location.to_string(),
    }
}

fn key(name: &GroupName) -> String {
    name.as_str().to_lowercase()
}

/// Every group of the command, once: the destination to be changed, the others to be read.
fn open_groups(
    settings: &Settings,
    sources: &[Location],
    destination: &Location,
) -> Result<BTreeMap<String, GroupFiles>> {
    let mut groups = BTreeMap::new();
    if let Location::Group(name, _) = destination {
        groups.insert(key(name), GroupFiles::to_change(settings, name)?);
    }
    for source in sources {
        match source {
            Location::Group(name, _) if !groups.contains_key(&key(name)) => {
                groups.insert(key(name), GroupFiles::to_look(settings, name)?);
            }
            Location::Local(path) if matches!(destination, Location::Local(_)) => {
                return Err(neither(path));
            }
            _ => {}
        }
    }
    Ok(groups)
}

fn neither(path: &Path) -> anyhow::Error {
    spindle_control::ControlError::invalid(format!(
        "neither {} nor the destination is in a group: write GROUP:/path, or use cp(1)",
        path.display()
    ))
    .into()
}
