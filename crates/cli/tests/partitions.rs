//! Disks that join as partitions, on loop devices.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use place::{Place, can_mount, outcome};
use rustix::fs::{FlockOperation, OFlags, flock};

const SIZE_BYTES: u64 = 64 << 20;
/// Of docs/format/label.md.
const TYPE: &str = "9c494429-0806-4a04-b54d-bed9fc040125";

/// A loop device over a file of zeros.
struct Loop {
    device: String,
}

impl Loop {
    fn new(place: &Place, name: &str, with_partitions: bool) -> Option<Self> {
        let options = ["--partscan"];
        Self::of(
            place,
            name,
            SIZE_BYTES,
            &options[..usize::from(with_partitions)],
        )
    }

    fn of(place: &Place, name: &str, size_bytes: u64, options: &[&str]) -> Option<Self> {
        let image = place.text(name);
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(size_bytes).unwrap();
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(options);
        let made = outcome(command.arg(&image));
        if made.code != 0 {
            println!("skipped: no loop device: {made:?}");
            return None;
        }
        let device = made.stdout.trim().to_owned();
        Some(Self { device })
    }

    fn partition(&self) -> String {
        format!("{}p1", self.device)
    }

    fn opened(&self) -> File {
        let device = File::options().read(true).write(true).open(&self.device);
        device.unwrap()
    }

    fn write(&self, bytes: &[u8], place: u64) {
        let device = self.opened();
        device.write_all_at(bytes, place).unwrap();
        device.sync_all().unwrap();
    }

    /// The kernel knows a partition that no table lists.
    fn tell_partition(&self, number: u32) -> String {
        let told = spindle_device::add_partition(self.opened(), number, 4 << 20, 8 << 20);
        told.unwrap();
        format!("{}p{number}", self.device)
    }

    /// The kernel knows none any more.
    fn forget_partitions(&self) {
        let mut forget = Command::new("partx");
        let forgotten = outcome(forget.args(["--delete", &self.device]));
        assert_eq!(forgotten.code, 0, "{forgotten:?}");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

fn blkid(device: &str, what: &str) -> String {
    let mut command = Command::new("blkid");
    let told = outcome(command.args(["--probe", "--output", "value", "--match-tag", what, device]));
    told.stdout.trim().to_owned()
}

/// The words that make a group of one partition.
fn creating<'a>(device: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = ["group", "create", "data", "--redundancy", "external"];
    let words = words.into_iter().chain(["--partition", "--disk", device]);
    words.chain(more.iter().copied()).collect()
}

/// The words of a command that looks for disks there.
fn searching(places: &[String], words: &[&str]) -> Vec<String> {
    let there = places.iter().flat_map(|place| ["--disks", place]);
    let all = there.chain(words.iter().copied());
    all.map(str::to_owned).collect()
}

#[test]
fn a_disk_that_joins_as_a_partition_is_seen_as_taken_by_others() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some([one, other, third]) = ["one", "other", "third"]
        .map(|name| Loop::new(&place, name, true))
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .and_then(|loops| <[Loop; 3]>::try_from(loops).ok())
    else {
        return;
    };
    let all = [&one, &other, &third].map(Loop::partition);
    let with = |words: &[&str]| searching(&all, words);
    let create = ["group", "create", "data", "--partition"];
    let disks = ["--disk", &one.device, "--disk", &other.device];
    place.tell(with(&[&create[..], &disks].concat()));
    for disk in [&one, &other] {
        assert_eq!(blkid(&disk.device, "PTTYPE"), "gpt");
        assert_eq!(blkid(&disk.partition(), "PART_ENTRY_TYPE"), TYPE);
    }
    let add = |device| ["disk", "add", "data", "--partition", "--disk", device];
    let point = place.text("mount");
    place.tell(with(&["mount", "data", &point]));
    let bytes = place::bytes(1, 4 << 20);
    std::fs::write(place.path("mount/file"), &bytes).unwrap();
    place.tell(with(&add(&third.device)));
    let shown = place.ask(with(&["group", "show", "data"]));
    let mut paths: Vec<&str> = (shown["disks"].as_array().unwrap().iter())
        .map(|disk| disk["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    let mut wanted = all.clone();
    wanted.sort_unstable();
    assert_eq!(paths, wanted);
    // 64 MiB less a MiB before it, the table's copy and the label behind it.
    assert_eq!(shown["disks"][0]["total_bytes"], 62 << 20);
    place.tell(with(&["umount", &point]));
    place.tell(with(&["mount", "data", &point]));
    assert!(std::fs::read(place.path("mount/file")).unwrap() == bytes);
    // Each is taken.
    let again = place.run(with(&add(&one.device)));
    assert_eq!(again.code, 2, "{again:?}");
    let advice = "drop that disk from its group first, or destroy the group";
    assert!(again.stderr.contains(advice), "{again:?}");
    place.tell(with(&["umount", &point]));
    let refused = |device: &str, wanted: &str| {
        let new = ["group", "create", "new", "--redundancy", "external"];
        let words = [&new[..], &["--partition", "--disk", device]].concat();
        place.refuse(with(&words), 2, &[device, wanted]);
    };
    refused(&one.device, "is disk data_0000");
    refused(&all[0], "is disk data_0000");
    assert_eq!(
        place.ask(with(&["check", "data"]))["contradictions"],
        serde_json::json!([])
    );
}

#[test]
fn what_takes_no_partition_and_what_holds_something_is_left_as_it_is() {
    let place = Place::new();
    let words = |device: &str| {
        let words = ["group", "create", "data", "--redundancy", "external"];
        let words = words.into_iter().chain(["--partition", "--disk", device]);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let file = place.disk("file");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(SIZE_BYTES)
        .unwrap();
    place.refuse(words(&file), 2, &[&file, "no block device"]);
    let (Some(plain), Some(held), Some(blank)) = (
        Loop::new(&place, "plain", false),
        Loop::new(&place, "held", true),
        Loop::new(&place, "blank", true),
    ) else {
        return;
    };
    place.refuse(
        words(&plain.device),
        2,
        &[&plain.device, "takes no partitions"],
    );
    let mut bytes = place::bytes(2, 1 << 20);
    bytes[..4].copy_from_slice(b"XFSB");
    std::fs::write(&held.device, &bytes).unwrap();
    place.refuse(words(&held.device), 2, &[&held.device, "--force"]);
    // Nor is a disk before it written.
    let mut both = words(&blank.device);
    both.extend(["--disk".to_owned(), held.device.clone()]);
    place.refuse(both, 2, &[&held.device, "--force"]);
    assert_eq!(blkid(&blank.device, "PTTYPE"), "");
    let found = std::fs::read(place.path("held")).unwrap();
    assert!(found[..bytes.len()] == bytes);
    // No member is taken, by force neither.
    let create = ["group", "create", "old", "--redundancy", "external"];
    place.tell(create.into_iter().chain(["--disk", &blank.device]));
    let before = std::fs::read(place.path("blank")).unwrap();
    let mut forced = words(&blank.device);
    forced.push("--force".to_owned());
    place.refuse(forced, 2, &[&blank.device, "of the group old"]);
    assert!(std::fs::read(place.path("blank")).unwrap() == before);
}

/// A disk that another command made with --partition, which is closed: the table is all that
/// the device itself shows.
#[test]
fn a_disk_in_a_partition_of_the_device_is_taken_by_no_force() {
    let place = Place::new();
    // With so much behind whole MiB the last AU reaches into what is zeroed at the end.
    let size_bytes = SIZE_BYTES + (24 << 10);
    let Some(held) = Loop::of(&place, "held", size_bytes, &["--partscan"]) else {
        return;
    };
    let with = |words: &[&str]| searching(&[held.partition()], words);
    let create = ["group", "create", "data", "--redundancy", "external"];
    let disk = ["--partition", "--disk", &held.device];
    place.tell(with(&[&create[..], &disk].concat()));
    let before = std::fs::read(place.path("held")).unwrap();
    let wanted = format!("{} is disk data_0000 of the group data", held.partition());
    for command in [["disk", "add", "data"], ["group", "create", "new"]] {
        for force in [&[][..], &["--force"]] {
            let words = with(&[&command[..], &disk, force].concat());
            place.refuse(words, 2, &[&held.device, &wanted]);
        }
    }
    // A kernel that knows no partition of the device has no name for it.
    held.forget_partitions();
    let words = [&create[..2], &["new", "--force"], &disk].concat();
    place.refuse(
        words,
        2,
        &[&held.device, "is disk data_0000 of the group data"],
    );
    assert!(std::fs::read(place.path("held")).unwrap() == before);
}

#[test]
fn a_command_that_is_refused_has_made_no_partition() {
    let place = Place::new();
    let (Some(held), Some(small)) = (
        Loop::new(&place, "held", true),
        Loop::of(&place, "small", 9 << 20, &["--partscan"]),
    ) else {
        return;
    };
    for one in [&held, &small] {
        let mut bytes = place::bytes(2, 4 << 20);
        bytes[..4].copy_from_slice(b"XFSB");
        let device = std::fs::File::options().write(true).open(&one.device);
        let device = device.unwrap();
        device.write_all_at(&bytes, 0).unwrap();
        device.sync_all().unwrap();
    }
    let contents = || ["held", "small"].map(|name| std::fs::read(place.path(name)).unwrap());
    let before = contents();
    place.create_group();
    let disk = ["--partition", "--force", "--disk", &held.device];
    let file = format!("{}:64M", place.disk("a"));
    let external = ["--redundancy", "external"];
    let owned = |words: &[&str]| words.iter().copied().map(str::to_owned).collect();
    let create = |name: &str, more: &[&str]| -> Vec<String> {
        owned(&[&["group", "create", name], more, &disk].concat())
    };
    let add =
        |more: &[&str]| -> Vec<String> { owned(&[&["disk", "add", "data"], more, &disk].concat()) };
    let refused = |words: Vec<String>, wanted: &str| {
        let refused = place.run(&words);
        assert_ne!(refused.code, 0, "{words:?}");
        assert!(refused.stderr.contains(wanted), "{words:?}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{words:?}: {refused:?}");
        assert!(contents() == before, "{words:?} has written");
    };
    let too_small = "with AUs of 1M has at least";
    let on_small = ["--disk", &small.device];
    refused(create("new", &[]), "failure groups");
    refused(create("data", &external), "a group data already");
    let twice = [&external[..], &["--disk", &held.device]].concat();
    refused(create("new", &twice), "twice");
    refused(create("new", &on_small), too_small);
    refused(create("new", &["--file-disk", &file]), &place.disk("a"));
    refused(add(&["--drop", "nobody"]), "nobody");
    refused(add(&["--name", "data_0001"]), "data_0001");
    refused(add(&on_small), too_small);
    refused(add(&["--disk", &held.device]), &held.device);
    refused(add(&["--file-disk", &file]), &place.disk("a"));
    // What a preview says is what the command would say.
    refused(add(&[&on_small[..], &["--dry-run"]].concat()), too_small);
    let file = place.text("zeros");
    let zeros = std::fs::File::create(&file).unwrap();
    zeros.set_len(SIZE_BYTES).unwrap();
    let on_file = [
        "disk",
        "add",
        "data",
        "--partition",
        "--dry-run",
        "--disk",
        &file,
    ];
    refused(owned(&on_file), "no block device");
    place.tell(add(&["--dry-run"]));
    assert!(contents() == before, "a preview has written");
}

#[test]
fn what_the_first_partition_of_a_wiped_table_held_is_left_as_it_is() {
    let place = Place::new();
    place.create_group();
    let Some(behind) = Loop::new(&place, "behind", true) else {
        return;
    };
    let device = std::fs::File::options().write(true).open(&behind.device);
    let mark = place::bytes(3, 4 << 20);
    let device = device.unwrap();
    device.write_all_at(b"XFSB", 1 << 20).unwrap();
    device.write_all_at(&mark, 2 << 20).unwrap();
    device.sync_all().unwrap();
    let before = std::fs::read(place.path("behind")).unwrap();
    let words = [
        "disk",
        "add",
        "data",
        "--partition",
        "--disk",
        &behind.device,
    ];
    place.refuse(words, 2, &["XFS", "from byte 1048576 on"]);
    assert!(std::fs::read(place.path("behind")).unwrap() == before);
}

#[test]
fn a_disk_with_sectors_of_4096_bytes_joins_as_a_partition() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let options = ["--partscan", "--sector-size", "4096"];
    let [Some(one), Some(other)] =
        ["one", "other"].map(|name| Loop::of(&place, name, SIZE_BYTES, &options))
    else {
        return;
    };
    let all = [&one, &other].map(Loop::partition);
    let with = |words: &[&str]| searching(&all, words);
    let create = ["group", "create", "data", "--redundancy", "external"];
    let disk = ["--partition", "--disk", &one.device];
    place.tell(with(&[&create[..], &disk].concat()));
    assert_eq!(blkid(&one.device, "PTTYPE"), "gpt");
    assert_eq!(blkid(&one.partition(), "PART_ENTRY_TYPE"), TYPE);
    let point = place.text("mount");
    place.tell(with(&["mount", "data", &point]));
    let bytes = place::bytes(1, 4 << 20);
    std::fs::write(place.path("mount/file"), &bytes).unwrap();
    let disk = ["--partition", "--disk", &other.device];
    place.tell(with(&[&["disk", "add", "data"], &disk[..]].concat()));
    place.tell(with(&["umount", &point]));
    // The kernel finds it in the table again.
    let mut read_anew = Command::new("partx");
    assert_eq!(outcome(read_anew.args(["--update", &one.device])).code, 0);
    place.tell(with(&["mount", "data", &point]));
    assert!(std::fs::read(place.path("mount/file")).unwrap() == bytes);
    place.tell(with(&["umount", &point]));
    let checked = place.ask(with(&["check", "data"]));
    assert_eq!(checked["contradictions"], serde_json::json!([]));
}

#[test]
fn sectors_of_other_sizes_than_a_table_knows_are_refused() {
    let place = Place::new();
    for size in ["1024", "2048"] {
        let options = ["--partscan", "--sector-size", size];
        let Some(device) = Loop::of(&place, size, SIZE_BYTES, &options) else {
            return;
        };
        let before = std::fs::read(place.path(size)).unwrap();
        let create = ["group", "create", "data", "--redundancy", "external"];
        let disk = ["--partition", "--force", "--disk", &device.device];
        let wanted = format!("sectors of {size} bytes");
        place.refuse([&create[..], &disk].concat(), 2, &[&device.device, &wanted]);
        assert!(std::fs::read(place.path(size)).unwrap() == before);
    }
}

#[test]
fn a_disk_with_partitions_of_which_only_the_kernel_knows_is_left_as_it_is() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let partition = held.tell_partition(5);
    held.write(&place::bytes(4, 1 << 20), 5 << 20);
    let before = std::fs::read(place.path("held")).unwrap();
    let wanted = [&held.device, &partition, "--force", "without --partition"];
    place.refuse(creating(&held.device, &[]), 2, &wanted);
    assert!(std::fs::read(place.path("held")).unwrap() == before);
    assert!(Path::new(&partition).exists());
    place.tell(creating(&held.device, &["--force"]));
    assert!(!Path::new(&partition).exists());
    assert_eq!(blkid(&held.partition(), "PART_ENTRY_TYPE"), TYPE);
}

#[test]
fn whoever_looks_at_a_disk_or_its_partitions_for_a_moment_is_waited_for() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let partition = held.tell_partition(5);
    let in_partition = File::open(&partition).unwrap();
    let locked = File::open(&held.device).unwrap();
    flock(&locked, FlockOperation::LockShared).unwrap();
    let words = creating(&held.device, &["--force"]);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| place.tell(&words));
        std::thread::sleep(Duration::from_millis(1000));
        drop(locked);
        std::thread::sleep(Duration::from_millis(1500));
        drop(in_partition);
        told.join().unwrap();
    });
}

#[test]
fn a_disk_that_another_program_has_locked_is_left_as_it_is() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    held.write(&place::bytes(4, 4 << 20), 0);
    let before = std::fs::read(place.path("held")).unwrap();
    let locked = File::open(&held.device).unwrap();
    flock(&locked, FlockOperation::LockShared).unwrap();
    let wanted = [&held.device, "locked by another program"];
    place.refuse(creating(&held.device, &[]), 2, &wanted);
    assert!(std::fs::read(place.path("held")).unwrap() == before);
}

/// As udev does when a device was closed that had been open to be written.
#[test]
fn a_disk_is_locked_until_its_partition_has_joined() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let reader = File::open(&held.device).unwrap();
    let words = creating(&held.device, &[]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let others = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            // What held the lock when the partition was there for the first time.
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                if Path::new(&held.partition()).exists() {
                    return Some(flock(&reader, FlockOperation::NonBlockingLockShared));
                }
            }
            None
        });
        place.tell(&words);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert_eq!(others, Some(Err(rustix::io::Errno::WOULDBLOCK)));
    flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn a_disk_that_another_program_claims_for_a_moment_is_waited_for() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let exclusive = i32::try_from((OFlags::EXCL | OFlags::CLOEXEC).bits()).unwrap();
    let claim = || {
        let mut options = File::options();
        options.read(true).custom_flags(exclusive);
        options.open(&held.device)
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each time that the command has had the device and let go of it.
        scope.spawn(|| {
            let mut was_taken = false;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let claimed = claim();
                if was_taken && claimed.is_ok() {
                    std::thread::sleep(Duration::from_millis(400));
                    was_taken = false;
                    continue;
                }
                was_taken |= claimed.is_err();
                drop(claimed);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let told = place.run(creating(&held.device, &[]));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(told.code, 0, "{told:?}");
    });
}

/// The kernel is told of a partition between the two times that it reads the table.
#[test]
fn where_the_kernel_keeps_its_partitions_it_is_told_that_the_table_was_written() {
    let place = Place::new();
    for round in 0..20 {
        let Some(held) = Loop::new(&place, &format!("held-{round}"), true) else {
            return;
        };
        let device = held.opened();
        let add = || spindle_device::add_partition(&device, 5, 4 << 20, 8 << 20);
        add().unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let told = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut opened = None;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if opened.is_none() && add().is_ok() {
                        opened = File::open(format!("{}p5", held.device)).ok();
                    }
                }
            });
            let told = place.run(creating(&held.device, &["--force"]));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            told
        });
        if told.code == 0 {
            // The table was read before the other partition was there.
            continue;
        }
        let wanted = [&held.device, "was written", "partprobe", "before"];
        place::refused(&told, 3, &wanted);
        assert_eq!(blkid(&held.device, "PTTYPE"), "gpt");
        // The advice helps.
        held.forget_partitions();
        place.tell(creating(&held.device, &[]));
        return;
    }
    panic!("the kernel was never told in time");
}

#[test]
fn a_partition_that_was_made_for_a_command_that_failed_is_taken_by_the_next_one() {
    let place = Place::new();
    let [Some(one), Some(other)] = ["one", "other"].map(|name| Loop::new(&place, name, true))
    else {
        return;
    };
    // Of nobody's format.
    for disk in [&one, &other] {
        disk.write(&place::bytes(5, usize::try_from(SIZE_BYTES).unwrap()), 0);
    }
    let both = creating(&one.device, &["--disk", &other.device]);
    let locked = File::open(&other.device).unwrap();
    flock(&locked, FlockOperation::LockShared).unwrap();
    let failed = place.run(&both);
    assert_eq!(failed.code, 2, "{failed:?}");
    let told = failed.stderr.lines().last().unwrap();
    assert!(told.contains(&one.partition()), "{failed:?}");
    assert!(told.contains("again"), "{failed:?}");
    drop(locked);
    let left = std::fs::read(place.path("one")).unwrap();
    // It holds nothing, as far as that is looked at, and nothing is beside it.
    for byte in [1 << 20, (1 << 20) + (600 << 10), SIZE_BYTES - (100 << 10)] {
        one.write(&[1], byte);
        place.refuse(&both, 2, &[&one.device, "--force"]);
        one.write(&left, 0);
    }
    let end = SIZE_BYTES - (20 << 10);
    spindle_device::add_partition(one.opened(), 2, end, 4096).unwrap();
    place.refuse(&both, 2, &[&one.device, "--force"]);
    one.forget_partitions();
    let elsewhere = Place::new();
    elsewhere.create_group();
    let add = ["disk", "add", "data", "--partition", "--dry-run", "--disk"];
    elsewhere.tell([&add[..], &[&one.device]].concat());
    place.tell(&both);
    for disk in [&one, &other] {
        assert_eq!(blkid(&disk.partition(), "PART_ENTRY_TYPE"), TYPE);
    }
}

/// Zeros where the tables of a disk are, of which the kernel then knows no partitions.
fn wipe_table(disk: &Loop) {
    disk.write(&vec![0; 1 << 20], 0);
    disk.write(&vec![0; 33 * 512], SIZE_BYTES - 33 * 512);
    disk.forget_partitions();
}

#[test]
fn a_member_behind_a_table_that_is_wiped_or_damaged_is_taken_by_no_force() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let with = |words: &[&str]| searching(&[held.partition()], words);
    place.tell(with(&creating(&held.device, &[])));
    // A checksum of the table's, which the kernel and others ask for.
    held.forget_partitions();
    held.write(&[0; 4], 512 + 16);
    held.write(&[0; 4], SIZE_BYTES - 512 + 16);
    let refused = |words: &[&str]| {
        let before = std::fs::read(place.path("held")).unwrap();
        let wanted = [&held.device, "disk data_0000 of the group data", "--force"];
        place.refuse(words, 2, &wanted);
        assert!(std::fs::read(place.path("held")).unwrap() == before);
    };
    let forced = creating(&held.device, &["--force"]);
    refused(&forced);
    held.tell_partition(7);
    wipe_table(&held);
    refused(&forced);
    // What was given up is taken.
    held.write(&vec![0; usize::try_from(SIZE_BYTES).unwrap()], 0);
    place.tell(&forced);
}

/// The label of a program to come, of which no more is known here than that.
fn of_a_newer_program(mut label: Vec<u8>) -> Vec<u8> {
    label[8..12].copy_from_slice(&2_u32.to_le_bytes());
    label[12..16].fill(0);
    let sum = spindle_base::crc32c(&label);
    label[12..16].copy_from_slice(&sum.to_le_bytes());
    label
}

#[test]
fn a_disk_of_a_newer_program_is_taken_by_no_force() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let with = |words: &[&str]| searching(&[held.partition()], words);
    place.tell(with(&creating(&held.device, &[])));
    let mut label = vec![0; 4096];
    held.opened().read_exact_at(&mut label, 1 << 20).unwrap();
    let label = of_a_newer_program(label);
    let refused = || {
        let before = std::fs::read(place.path("held")).unwrap();
        let wanted = [&held.device, "a newer Spindle", "--force"];
        place.refuse(creating(&held.device, &["--force"]), 2, &wanted);
        assert!(std::fs::read(place.path("held")).unwrap() == before);
    };
    held.write(&label, 1 << 20);
    refused();
    wipe_table(&held);
    refused();
    // The whole device.
    held.write(&vec![0; usize::try_from(SIZE_BYTES).unwrap()], 0);
    held.write(&label_at_the_beginning(label), 0);
    refused();
}

fn label_at_the_beginning(label: Vec<u8>) -> Vec<u8> {
    // Its place in the partition was the beginning too.
    assert_eq!(spindle_format::said_place(&label), Some(0));
    label
}

#[test]
fn a_table_with_longer_entries_than_usual_is_followed() {
    let place = Place::new();
    let Some(held) = Loop::new(&place, "held", true) else {
        return;
    };
    let with = |words: &[&str]| searching(&[held.partition()], words);
    place.tell(with(&creating(&held.device, &[])));
    held.forget_partitions();
    // 64 entries of 256 bytes, with the checksum of the header, which others ask for first.
    let mut header = vec![0; 92];
    held.opened().read_exact_at(&mut header, 512).unwrap();
    header[80..84].copy_from_slice(&64_u32.to_le_bytes());
    header[84..88].copy_from_slice(&256_u32.to_le_bytes());
    header[16..20].fill(0);
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    held.write(&header, 512);
    let before = std::fs::read(place.path("held")).unwrap();
    for force in [&[][..], &["--force"]] {
        let wanted = [&held.device, "is disk data_0000 of the group data"];
        place.refuse(creating(&held.device, force), 2, &wanted);
    }
    assert!(std::fs::read(place.path("held")).unwrap() == before);
}

/// Of a GPT's header.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), step)
    });
    !sum
}

#[test]
fn a_disk_that_cannot_be_written_is_refused_before_another_is() {
    let place = Place::new();
    let (Some(one), Some(fixed)) = (
        Loop::new(&place, "one", true),
        Loop::of(&place, "fixed", SIZE_BYTES, &["--partscan", "--read-only"]),
    ) else {
        return;
    };
    let wanted = [&fixed.device, "read-only"];
    place.refuse(
        creating(&one.device, &["--disk", &fixed.device]),
        2,
        &wanted,
    );
    assert_eq!(blkid(&one.device, "PTTYPE"), "");
    place.create_group();
    let add = ["disk", "add", "data", "--partition", "--dry-run", "--disk"];
    place.refuse([&add[..], &[&fixed.device]].concat(), 2, &wanted);
}
