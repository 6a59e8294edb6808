//! What the units for systemd promise: the mount is seen by everybody, and a database starts after
//! it or not at all.

#![allow(
    clippy::unwrap_used,
    reason = "a rule that cannot be read off is a failure"
)]

use std::path::Path;
use std::process::Command;

use spindle_tidy::repository_root;

fn settings(name: &str) -> Vec<(String, String)> {
    let path = repository_root().join("packaging").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_unit_gets_no_mount_namespace_of_its_own_where_nobody_else_would_see_the_mount() {
    let unit = settings("spindle@.service");
    let private = [
        "ProtectSystem",
        "ProtectHome",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateUsers",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "BindPaths",
        "TemporaryFileSystem",
        "RootDirectory",
        "DynamicUser",
        "MountFlags",
    ];
    for (name, value) in &unit {
        assert!(!private.contains(&name.as_str()), "{name}={value}");
    }
    for hardening in ["NoNewPrivileges", "CapabilityBoundingSet", "UMask"] {
        assert!(
            unit.iter().any(|(name, _)| name == hardening),
            "{hardening}"
        );
    }
}

#[test]
fn a_database_starts_after_the_mount_and_not_on_an_empty_directory() {
    let unit = settings("spindle@.service");
    let value = |name: &str| &unit.iter().find(|(it, _)| it == name).unwrap().1;
    assert!(value("Before").contains("mariadb.service"));
    // systemd orders nothing by a template: instances have the drop-in.
    assert!(!value("Before").contains('@'));
    // Disks may come late: a start that fails is tried again for ever.
    assert_eq!(value("StartLimitIntervalSec"), "0");
    assert_eq!(value("Restart"), "on-failure");
    let drop_in = settings("database-on-spindle.conf");
    let has = |name: &str, value: &str| drop_in.contains(&(name.to_owned(), value.to_owned()));
    assert!(has("Requires", "spindle@data.service"), "{drop_in:?}");
    assert!(has("After", "spindle@data.service"), "{drop_in:?}");
    let assertion = drop_in.iter().find(|(name, _)| name.starts_with("Assert"));
    let (name, directory) = assertion.unwrap();
    assert_eq!(directory, "/srv/data", "where the unit mounts");
    // Asked of systemd itself, where it is there: an empty directory is refused, a mount is not.
    let judge = |directory: &Path| {
        let condition = format!("{name}={}", directory.display());
        let asked = Command::new("systemd-analyze")
            .args(["condition", &condition])
            .output();
        asked.ok().map(|output| output.status.success())
    };
    let Some(of_mount) = judge(Path::new("/proc")) else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let empty = std::env::temp_dir().join(format!("spindle-empty-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let of_empty = judge(&empty);
    std::fs::remove_dir(&empty).unwrap();
    assert_eq!((of_mount, of_empty), (true, Some(false)));
}
