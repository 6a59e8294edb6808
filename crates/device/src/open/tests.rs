use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{DiskKind, FileDisk, OpenDisk, OpenErrorKind};
use crate::engine_tests::Folder;

fn file_disk(folder: &Folder) -> PathBuf {
    let path = folder.0.join("disk");
    drop(folder.disk("disk", 16 << 20));
    path
}

fn kind(path: &Path) -> OpenErrorKind {
    OpenDisk::open(path).unwrap_err().kind
}

fn command(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        let words = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program}: {}", words.trim()))
    }
}

/// A loop device over a file, detached when the test ends.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(file: &Path) -> Result<Self, String> {
        let file = file.display().to_string();
        let device = command("losetup", &["--find", "--show", &file])?;
        Ok(Self(PathBuf::from(device)))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = command("losetup", &["--detach", &self.0.display().to_string()]);
    }
}

#[test]
fn a_file_disk_is_made_with_all_its_space_and_never_over_an_existing_file() {
    let folder = Folder::new("make");
    let text = format!("{}:16M", folder.0.join("disk").display());
    let wanted: FileDisk = text.parse().unwrap();
    let disk = wanted.create().unwrap();
    assert_eq!(
        (disk.size_bytes(), disk.kind()),
        (16 << 20, DiskKind::PlainFile)
    );
    let metadata = std::fs::metadata(&wanted.path).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 >= 16 << 20);
    assert_eq!(wanted.create().unwrap_err().kind, OpenErrorKind::Exists);
    assert!(wanted.path.exists());
    let huge = FileDisk {
        path: folder.0.join("huge"),
        size_bytes: 1 << 50,
    };
    assert_eq!(huge.create().unwrap_err().kind, OpenErrorKind::NoSpace);
    assert!(
        !huge.path.exists(),
        "a disk that cannot be made leaves nothing"
    );
    for bad in [
        "disk",
        ":1M",
        "disk:",
        "disk:1X",
        "disk:4095",
        "disk:99999999T",
    ] {
        assert!(bad.parse::<FileDisk>().is_err(), "{bad}");
    }
}

#[test]
fn a_second_owner_is_told_who_has_the_file_but_may_look() {
    let folder = Folder::new("lock");
    let path = file_disk(&folder);
    let owner = OpenDisk::open(&path).unwrap();
    let error = OpenDisk::open(&path).unwrap_err();
    let by = Some("locked by this very process".to_owned());
    assert_eq!(error.kind, OpenErrorKind::InUse { by });
    assert!(
        error.to_string().contains("disk: in use, locked by"),
        "{error}"
    );
    OpenDisk::open_read_only(&path).unwrap();
    drop(owner);
    OpenDisk::open(&path).unwrap();
}

#[test]
fn what_is_no_disk_is_refused_with_its_reason() {
    let folder = Folder::new("none");
    assert_eq!(kind(&folder.0.join("missing")), OpenErrorKind::NotFound);
    let found = "a directory";
    assert_eq!(kind(&folder.0), OpenErrorKind::NoDisk { found });
    let found = "a character device";
    assert_eq!(
        kind(Path::new("/dev/null")),
        OpenErrorKind::NoDisk { found }
    );
    let small = folder.0.join("small");
    std::fs::write(&small, [0; 5000]).unwrap();
    let size_bytes = 5000;
    assert_eq!(kind(&small), OpenErrorKind::TooSmall { size_bytes });
    let error = OpenDisk::open(&small).unwrap_err();
    assert_eq!(error.class(), spindle_base::ErrorClass::Caller);
}

#[test]
fn a_disk_without_permission_is_told_apart_from_one_that_is_missing() {
    let folder = Folder::new("permission");
    let path = file_disk(&folder);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root may open every file, so a thread of its own becomes somebody else first.
    let found = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
        }
        kind(&path)
    });
    assert_eq!(found.join().unwrap(), OpenErrorKind::NotPermitted);
}

#[test]
fn a_block_device_is_owned_exclusively_and_its_holder_is_named() {
    let folder = Folder::new("block");
    let path = file_disk(&folder);
    let device = match LoopDevice::over(&path) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: no loop device: {reason}"),
    };
    let by = Some(format!("the file below {}", device.0.display()));
    assert_eq!(kind(&path), OpenErrorKind::InUse { by });
    let owner = OpenDisk::open(&device.0).unwrap();
    assert_eq!(
        (owner.size_bytes(), owner.kind()),
        (16 << 20, DiskKind::BlockDevice)
    );
    assert!(owner.is_direct());
    assert!(owner.sector_size_bytes() >= 512);
    assert_eq!(kind(&device.0), OpenErrorKind::InUse { by: None });
    OpenDisk::open_read_only(&device.0).unwrap();
    drop(owner);
    let device_text = device.0.display().to_string();
    let point = folder.0.join("mounted here");
    std::fs::create_dir(&point).unwrap();
    let point_text = point.display().to_string();
    let mounted = command("mkfs.ext4", &["-q", &device_text])
        .and_then(|_| command("mount", &[&device_text, &point_text]));
    if let Err(reason) = mounted {
        return println!("skipped: no mount: {reason}");
    }
    let found = kind(&device.0);
    command("umount", &[&point_text]).unwrap();
    let by = Some(format!("mounted on {point_text}"));
    assert_eq!(found, OpenErrorKind::InUse { by });
}

#[test]
fn who_only_asks_whether_a_device_is_free_does_not_take_it_from_its_owner() {
    let folder = Folder::new("asked");
    let device = match LoopDevice::over(&file_disk(&folder)) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: no loop device: {reason}"),
    };
    let claims_count = AtomicU32::new(0);
    let stopped = AtomicBool::new(false);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        // As discovery does, or a daemon that looks for a disk that went: a claim, given up again.
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                let claim = std::fs::File::options()
                    .read(true)
                    .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
                    .open(&device.0);
                claims_count.fetch_add(u32::from(claim.is_ok()), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
                drop(claim);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let begun = Instant::now();
        let mut outcomes = Vec::new();
        while claims_count.load(Ordering::Relaxed) < 20 && begun.elapsed().as_secs() < 20 {
            outcomes.push(OpenDisk::open(&device.0).map(drop));
        }
        stopped.store(true, Ordering::Relaxed);
        outcomes
    });
    assert!(claims_count.into_inner() >= 20, "nobody asked");
    outcomes.into_iter().for_each(Result::unwrap);
}

#[test]
fn a_released_disk_is_anybodys_while_its_slot_refuses_every_request() {
    let folder = Folder::new("release");
    let path = file_disk(&folder);
    let disks = crate::PlainDisks::new();
    let slot = disks.attach(OpenDisk::open(&path).unwrap());
    assert!(matches!(kind(&path), OpenErrorKind::InUse { .. }));
    disks.release(slot).unwrap();
    let other = OpenDisk::open(&path).unwrap();
    let mut memory = [0; 4096];
    let works = [
        crate::Work::Read(&mut memory),
        crate::Work::Write(&[1; 4096]),
        crate::Work::Flush,
    ];
    for work in works {
        let mut batch = [crate::Request::new(slot, 0, work)];
        crate::Disks::run(&disks, &mut batch);
        assert!(batch[0].result.is_err());
    }
    drop(other);
}
