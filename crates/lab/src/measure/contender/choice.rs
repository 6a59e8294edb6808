//! Options of a storage: in what contenders on one storage may differ beside the database.

use std::collections::BTreeMap;

use super::Contender;
use crate::nearness::hint;

/// Options by name.
pub type Options = BTreeMap<String, String>;

/// One option that a storage has.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// As it is written in the file.
    pub name: &'static str,
    /// What it takes, as a person reads it.
    pub words: &'static str,
    /// Whether it takes this.
    pub takes: fn(&str) -> bool,
}

/// Options of `mount` for a file system of the kernel's.
pub(super) const MOUNT: Choice = Choice {
    name: "mount",
    words: "options of `mount` such as `noatime,commit=30`, none that names another device, and none that makes another mount",
    takes: is_mount_options,
};

/// The same for btrfs, whose copy-on-write is part of a contender's name.
pub(super) const MOUNT_BTRFS: Choice = Choice {
    name: "mount",
    words: "options of `mount` such as `noatime,compress=zstd`, none that names another device, and none that gives copy-on-write or checksums up (that is `btrfs-...-nocow`)",
    takes: |value| {
        let is_of_the_name =
            |word: &str| ["nodatacow", "nodatasum", "datacow", "datasum"].contains(&word);
        is_mount_options(value) && !value.split(',').any(is_of_the_name)
    },
};

/// An option with a path may name a device that no contender has, such as a journal of its own; the
/// others would mount something else than was made.
fn is_mount_options(value: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"_=:.-".contains(&byte);
    let is_another = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        [
            "bind",
            "device",
            "journal_dev",
            "journal_path",
            "logdev",
            "loop",
            "move",
            "offset",
            "rbind",
            "remount",
            "ro",
            "rtdev",
            "sizelimit",
            "subvol",
            "subvolid",
        ]
        .contains(&name)
    };
    value
        .split(',')
        .all(|word| !word.is_empty() && word.bytes().all(is_right) && !is_another(word))
}

/// Why a storage does not take an option, in a line with its name and its value.
#[must_use]
pub fn refuses(contender: &dyn Contender, name: &str, value: &str) -> Option<String> {
    let shown = format!("`{name} = {value:?}`");
    let own = contender.name();
    let choices = contender.choices();
    let Some(choice) = choices.iter().find(|choice| choice.name == name) else {
        let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
        return Some(if names.is_empty() {
            format!("{shown}: `{own}` has no options")
        } else {
            format!(
                "{shown}: `{own}` has no such option{}; it has {}",
                hint(name, names.iter().copied()),
                names.join(", ")
            )
        });
    };
    (!(choice.takes)(value)).then(|| format!("{shown}: it takes {}", choice.words))
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    fn refused(storage: &str, name: &str, value: &str) -> Option<String> {
        refuses(find(storage).unwrap().as_ref(), name, value)
    }

    #[test]
    fn an_option_is_taken_by_the_storages_that_have_it_and_refused_by_name_and_value() {
        for (storage, name, value) in [
            ("ext4", "mount", "noatime,barrier=0"),
            ("lvm-striped-xfs", "mount", "logbufs=8,logbsize=256k"),
            ("btrfs-single", "mount", "compress=zstd:1"),
            ("spindle-external", "au_size", "4M"),
            ("spindle-high", "workers", "4"),
        ] {
            assert_eq!(
                refused(storage, name, value),
                None,
                "{storage} {name} {value}"
            );
        }
        for (storage, name, value, wanted) in [
            (
                "ext4",
                "au_size",
                "4M",
                "`au_size = \"4M\"`: `ext4` has no such option; it has mount",
            ),
            ("raw", "mount", "noatime", "`raw` has no options"),
            (
                "spindle-external",
                "ausize",
                "4M",
                "did you mean au_size?; it has au_size",
            ),
            ("spindle-external", "au_size", "3M", "it takes 1M, 2M"),
            (
                "spindle-external",
                "caching",
                "direct",
                "has no such option; it has au_size, workers",
            ),
            ("spindle-external", "workers", "0", "a number from 1"),
            (
                "ext4",
                "mount",
                "journal_path=/dev/sda1",
                "none that names another device",
            ),
            ("ext4", "mount", "noatime,", "options of `mount`"),
            ("xfs", "mount", "ro", "options of `mount`"),
            (
                "btrfs-raid1",
                "mount",
                "noatime,nodatacow",
                "btrfs-...-nocow",
            ),
        ] {
            let said = refused(storage, name, value).unwrap_or_default();
            assert!(said.contains(wanted), "{storage} {name} {value}: {said}");
        }
    }
}
