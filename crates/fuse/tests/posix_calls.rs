//! Every call of POSIX and Linux that the mount answers, against a real mount, cached and direct.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom as LinuxSeek,
    StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use support::{Mounted, in_both_modes};

fn read_write(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn bytes_written_anywhere_are_read_back() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        let file = read_write(&path);
        let bytes: Vec<u8> = (0..2_500_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all_at(&bytes, 0).unwrap();
        file.write_all_at(b"hello", 4094).unwrap();
        file.write_all_at(b"far", 20_000_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20_000_003);
        drop(file);
        let back = fs::read(&path).unwrap();
        assert_eq!(back.len(), 20_000_003);
        assert!(back[..4094] == bytes[..4094] && back[4099..bytes.len()] == bytes[4099..]);
        assert_eq!(&back[4094..4099], b"hello");
        assert!(back[bytes.len()..20_000_000].iter().all(|byte| *byte == 0));
        assert_eq!(&back[20_000_000..], b"far");
    });
}

#[test]
fn truncating_and_growing_leave_zeros_behind_the_cut() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, vec![7; 10_000]).unwrap();
        let file = read_write(&path);
        file.set_len(5_000).unwrap();
        file.set_len(9_000).unwrap();
        let back = fs::read(&path).unwrap();
        assert!(back.len() == 9_000 && back[..5_000].iter().all(|byte| *byte == 7));
        assert!(back[5_000..].iter().all(|byte| *byte == 0));
        drop(
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&path)
                .unwrap(),
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        drop(File::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"");
    });
}

#[test]
fn a_program_that_runs_is_neither_cut_nor_written_to() {
    in_both_modes(|mounted| {
        let elsewhere = mounted.outside();
        for directory in [&mounted.root, &elsewhere] {
            let path = directory.join("program");
            fs::copy("/bin/sleep", &path).unwrap();
            let size_bytes = fs::metadata(&path).unwrap().len();
            let mut running = std::process::Command::new(&path).arg("60").spawn().unwrap();
            let flags = [
                OFlags::RDONLY | OFlags::TRUNC,
                OFlags::WRONLY | OFlags::TRUNC,
                OFlags::RDWR,
            ];
            let opened: Vec<Option<Errno>> = flags
                .into_iter()
                .map(|flags| rustix::fs::open(&path, flags, Mode::empty()).err())
                .collect();
            let cut = fs::metadata(&path).unwrap().len() != size_bytes;
            let is_running = running.try_wait().unwrap().is_none();
            running.kill().unwrap();
            running.wait().unwrap();
            // What is done is the same on the mount and on the file system beside it.
            assert_eq!(opened, [Some(Errno::TXTBSY); 3], "{}", path.display());
            assert!(!cut && is_running, "{}", path.display());
        }
    });
}

#[test]
fn appending_writes_go_to_the_end_whatever_the_position() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("log");
        let open = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .unwrap()
        };
        let (mut one, mut two) = (open(), open());
        for _ in 0..100 {
            one.write_all(b"one\n").unwrap();
            two.seek(SeekFrom::Start(0)).unwrap();
            two.write_all(b"two\n").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n".repeat(100));
    });
}

#[test]
fn direct_io_works_and_sees_what_was_written_by_the_cache() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, vec![1; 16_384]).unwrap();
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .unwrap();
        let mut memory = vec![0; 4096 * 3];
        let start = 4096 - memory.as_ptr().addr() % 4096;
        let aligned = &mut memory[start..start + 8192];
        assert_eq!(file.read_at(aligned, 4096).unwrap(), 8192);
        assert!(aligned.iter().all(|byte| *byte == 1));
        aligned.fill(2);
        assert_eq!(file.write_at(aligned, 4096).unwrap(), 8192);
        // An unaligned one either works or says so; it never writes something else.
        match file.write_at(&[3; 10], 16_384) {
            Ok(written) => assert_eq!(written, 10),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
        let back = fs::read(&path).unwrap();
        assert!(back[4096..12_288].iter().all(|byte| *byte == 2));
        assert!(back[..4096].iter().all(|byte| *byte == 1));
    });
}

#[test]
fn a_file_without_a_name_gets_one_by_link_or_vanishes() {
    in_both_modes(|mounted| {
        let unnamed = || -> File {
            rustix::fs::open(
                &mounted.root,
                OFlags::TMPFILE | OFlags::RDWR,
                Mode::from(0o640),
            )
            .unwrap()
            .into()
        };
        let mut file = unnamed();
        file.write_all(b"born without a name").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert!(names(&mounted.root).is_empty());
        let target = mounted.root.join("named");
        rustix::fs::linkat(&file, "", CWD, &target, AtFlags::EMPTY_PATH).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"born without a name");
        let shown = fs::metadata(&target).unwrap();
        assert_eq!((shown.nlink(), shown.mode() & 0o7777), (1, 0o640));
        let mut other = unnamed();
        other.write_all(b"gone").unwrap();
        drop(other);
        assert_eq!(names(&mounted.root), ["named"]);
    });
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        let mut file = read_write(&path);
        file.write_all(b"still here").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b", and growing").unwrap();
        let mut back = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut back).unwrap();
        assert_eq!(back, "still here, and growing");
        read_write(&path).write_all(b"another").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
    });
}

#[test]
fn holes_are_found_made_and_filled() {
    in_both_modes(|mounted| {
        let file = read_write(&mounted.root.join("sparse"));
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[1; 1 << 20], 32 << 20).unwrap();
        file.sync_all().unwrap();
        let data = rustix::fs::seek(&file, LinuxSeek::Data(0)).unwrap();
        assert!(data > 0 && data <= 32 << 20, "{data}");
        let hole = rustix::fs::seek(&file, LinuxSeek::Hole(32 << 20)).unwrap();
        assert!((33 << 20..64 << 20).contains(&hole), "{hole}");
        let at_end = rustix::fs::seek(&file, LinuxSeek::Data(64 << 20));
        assert_eq!(at_end, Err(Errno::NXIO));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, (32 << 20) + 100, 500_000).unwrap();
        let mut back = vec![9; 1 << 20];
        file.read_exact_at(&mut back, 32 << 20).unwrap();
        assert!(back[..100].iter().all(|byte| *byte == 1));
        assert!(back[100..500_100].iter().all(|byte| *byte == 0));
        assert!(back[500_100..].iter().all(|byte| *byte == 1));
        rustix::fs::fallocate(
            &file,
            FallocateFlags::ZERO_RANGE,
            (32 << 20) + 600_000,
            10_000,
        )
        .unwrap();
        file.read_exact_at(&mut back, 32 << 20).unwrap();
        assert!(back[600_000..610_000].iter().all(|byte| *byte == 0));
        assert!(back[599_999] == 1 && back[610_000] == 1);
    });
}

#[test]
fn allocated_space_reads_as_zeros_and_keeps_or_moves_the_size() {
    in_both_modes(|mounted| {
        let file = read_write(&mounted.root.join("file"));
        file.write_all_at(b"begin", 0).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let mut back = vec![1; 1 << 20];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(&back[..5] == b"begin" && back[5..].iter().all(|byte| *byte == 0));
        let refused =
            rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).unwrap_err();
        assert_eq!(refused, Errno::OPNOTSUPP);
    });
}

#[test]
fn ranges_are_copied_between_files() {
    in_both_modes(|mounted| {
        let from = read_write(&mounted.root.join("from"));
        let to = read_write(&mounted.root.join("to"));
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        from.write_all_at(&bytes, 0).unwrap();
        let (mut from_offset, mut to_offset) = (1_000, 50);
        let mut left = bytes.len() - 1_000;
        while left > 0 {
            let copied = rustix::fs::copy_file_range(
                &from,
                Some(&mut from_offset),
                &to,
                Some(&mut to_offset),
                left,
            )
            .unwrap();
            assert!(copied > 0);
            left -= copied;
        }
        let mut back = vec![0; bytes.len() - 1_000];
        to.read_exact_at(&mut back, 50).unwrap();
        assert!(back == bytes[1_000..]);
    });
}

#[test]
fn rename_replaces_refuses_or_exchanges() {
    in_both_modes(|mounted| {
        let path = |name: &str| mounted.root.join(name);
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        let rename = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
        };
        assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("a", "b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!((text("a"), text("b")), ("b".into(), "a".into()));
        rename("a", "b", RenameFlags::empty()).unwrap();
        assert_eq!((path("a").exists(), text("b")), (false, "b".into()));
        rename("b", "c", RenameFlags::NOREPLACE).unwrap();
        fs::create_dir_all(path("d/e")).unwrap();
        fs::create_dir(path("f")).unwrap();
        rename("d/e", "f", RenameFlags::empty()).unwrap();
        assert_eq!(rename("f", "c", RenameFlags::empty()), Err(Errno::NOTDIR));
        assert_eq!(rename("c", "f", RenameFlags::empty()), Err(Errno::ISDIR));
        rename("c", "f/c", RenameFlags::empty()).unwrap();
        assert_eq!(rename("d", "f", RenameFlags::empty()), Err(Errno::NOTEMPTY));
        assert_eq!(
            rename("f", "f/inside", RenameFlags::empty()),
            Err(Errno::INVAL)
        );
        assert_eq!(
            rename("nothing", "x", RenameFlags::empty()),
            Err(Errno::NOENT)
        );
        rename("d", "f/d", RenameFlags::empty()).unwrap();
        let up = path("f/d").join("..");
        assert_eq!(
            fs::metadata(up).unwrap().ino(),
            fs::metadata(path("f")).unwrap().ino()
        );
        assert_eq!(fs::metadata(path("f")).unwrap().nlink(), 3);
        rename("f/d", "f/c", RenameFlags::EXCHANGE).unwrap();
        assert!(path("f/c").is_dir() && path("f/d").is_file());
    });
}

#[test]
fn links_of_both_kinds_lead_to_the_file() {
    in_both_modes(|mounted| {
        let (file, hard) = (mounted.root.join("file"), mounted.root.join("hard"));
        fs::write(&file, "content").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(&file).unwrap().ino(),
            fs::metadata(&hard).unwrap().ino()
        );
        let exists = fs::hard_link(&file, &hard).unwrap_err();
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        let soft = mounted.root.join("soft");
        std::os::unix::fs::symlink("hard", &soft).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(fs::read_link(&soft).unwrap(), Path::new("hard"));
        assert_eq!(fs::read(&soft).unwrap(), b"content");
        assert_eq!(fs::symlink_metadata(&soft).unwrap().len(), 4);
        assert_eq!(fs::metadata(&hard).unwrap().nlink(), 1);
        let long = mounted.root.join("long");
        let target = "x/".repeat(2_000);
        std::os::unix::fs::symlink(&target, &long).unwrap();
        assert_eq!(fs::read_link(&long).unwrap(), Path::new(&target));
    });
}

#[test]
fn directories_list_each_name_once_however_many() {
    in_both_modes(|mounted| {
        let directory = mounted.root.join("many");
        fs::create_dir(&directory).unwrap();
        let mut expected: Vec<String> = (0..2_000).map(|n| format!("name-{n}")).collect();
        for name in &expected {
            File::create(directory.join(name)).unwrap();
        }
        expected.sort();
        assert_eq!(names(&directory), expected);
        assert_eq!(names(&directory), expected);
        // Removing while listing: what is left is found, and each removal counts.
        for entry in fs::read_dir(&directory).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert!(names(&directory).is_empty());
        fs::remove_dir(&directory).unwrap();
        assert!(!directory.exists());
    });
}

#[test]
fn every_entry_tells_its_kind() {
    in_both_modes(|mounted| {
        let path = |name: &str| mounted.root.join(name);
        let make = |name: &str, kind, device| {
            rustix::fs::mknodat(CWD, path(name), kind, Mode::from(0o600), device).unwrap();
        };
        make("fifo", FileType::Fifo, 0);
        make("socket", FileType::Socket, 0);
        make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        make("disk", FileType::BlockDevice, rustix::fs::makedev(7, 300));
        make("plain", FileType::RegularFile, 0);
        fs::create_dir(path("directory")).unwrap();
        std::os::unix::fs::symlink("plain", path("link")).unwrap();
        for entry in fs::read_dir(&mounted.root).unwrap() {
            let entry = entry.unwrap();
            let listed = entry.file_type().unwrap();
            assert_eq!(
                listed,
                fs::symlink_metadata(entry.path()).unwrap().file_type()
            );
        }
        assert!(fs::metadata(path("fifo")).unwrap().file_type().is_fifo());
        let device = fs::metadata(path("disk")).unwrap().rdev();
        assert_eq!(
            (rustix::fs::major(device), rustix::fs::minor(device)),
            (7, 300)
        );
        fs::write(path("null"), b"into the void").unwrap();
    });
}

#[test]
fn owners_permissions_and_times_are_kept() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4751);
        let (user, group) = (Uid::from_raw(1234), Gid::from_raw(4321));
        rustix::fs::chown(&path, Some(user), Some(group)).unwrap();
        let shown = fs::metadata(&path).unwrap();
        assert_eq!((shown.uid(), shown.gid()), (1234, 4321));
        assert_eq!(shown.mode() & 0o7777, 0o751, "chown clears set-user-id");
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(1_000_000_000, 123_456_789),
            last_modification: time(-5, 999_999_999),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let shown = fs::metadata(&path).unwrap();
        assert_eq!(
            (shown.atime(), shown.atime_nsec()),
            (1_000_000_000, 123_456_789)
        );
        assert_eq!((shown.mtime(), shown.mtime_nsec()), (-5, 999_999_999));
        let times = Timestamps {
            last_access: time(0, UTIME_OMIT),
            last_modification: time(77, 0),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let shown = fs::metadata(&path).unwrap();
        assert_eq!((shown.atime(), shown.mtime()), (1_000_000_000, 77));
    });
}

#[test]
fn writing_moves_the_time_of_modification() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        let file = read_write(&path);
        let old = Timestamps {
            last_access: Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            },
            last_modification: Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            },
        };
        rustix::fs::futimens(&file, &old).unwrap();
        assert_eq!(file.metadata().unwrap().mtime(), 10);
        file.write_all_at(b"new", 0).unwrap();
        assert!(file.metadata().unwrap().mtime() > 1_000_000_000);
        drop(file);
        assert!(fs::metadata(&path).unwrap().mtime() > 1_000_000_000);
        let made = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
        assert!(made.stx_mask & StatxFlags::BTIME.bits() != 0 && made.stx_btime.tv_sec > 0);
        let before = fs::metadata(&mounted.root).unwrap().mtime_nsec();
        // The coarse clock of the kernel, by which all file systems go, moves by up to 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(30));
        fs::remove_file(&path).unwrap();
        assert_ne!(before, fs::metadata(&mounted.root).unwrap().mtime_nsec());
    });
}

#[test]
fn no_file_is_changed_before_it_was_made() {
    in_both_modes(|mounted| {
        for number in 0..300 {
            let path = mounted.root.join(format!("file{number}"));
            fs::write(&path, b"x").unwrap();
            let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            let found = rustix::fs::statx(CWD, &path, AtFlags::empty(), wanted).unwrap();
            let made = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
            for later in [found.stx_mtime, found.stx_ctime] {
                assert!((later.tv_sec, later.tv_nsec) >= made, "{found:?}");
            }
        }
    });
}

#[test]
fn reading_moves_no_time_and_a_time_that_is_set_stays() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, b"x").unwrap();
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 1000,
                tv_nsec: 5,
            },
            last_modification: Timespec {
                tv_sec: 2000,
                tv_nsec: 6,
            },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), (1000, 5));
        assert_eq!((found.mtime(), found.mtime_nsec()), (2000, 6));
    });
}

#[test]
fn blocks_are_not_shared_between_files_and_who_asks_for_that_is_told() {
    in_both_modes(|mounted| {
        let from = mounted.root.join("from");
        fs::write(&from, b"x").unwrap();
        let to = read_write(&mounted.root.join("to"));
        let from = File::open(from).unwrap();
        assert_eq!(rustix::fs::ioctl_ficlone(&to, &from), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn access_control_lists_are_refused_and_not_stored_without_being_obeyed() {
    in_both_modes(|mounted| {
        // "user 1001 may write", as setfacl(1) says it: the version, then tag, permissions and id.
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in [
            (0x01_u16, 6_u16, u32::MAX),
            (0x02, 6, 1001),
            (0x04, 4, u32::MAX),
            (0x10, 6, u32::MAX),
            (0x20, 4, u32::MAX),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let path = mounted.root.join("directory");
        fs::create_dir(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            let set = rustix::fs::setxattr(&path, name, &list, XattrFlags::empty());
            assert_eq!(set, Err(Errno::OPNOTSUPP));
            let mut value = [0; 64];
            let got = rustix::fs::getxattr(&path, name, &mut value);
            assert_eq!(got, Err(Errno::OPNOTSUPP));
        }
        assert_eq!(fs::metadata(&path).unwrap().mode(), mode);
    });
}

#[test]
fn extended_attributes_of_a_file_are_bounded_and_can_be_listed() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, b"x").unwrap();
        let set = |name: String, value: &[u8]| {
            rustix::fs::setxattr(&path, name, value, XattrFlags::empty())
        };
        let too_large = vec![0; (64 << 10) + 1];
        assert_eq!(set("user.large".to_owned(), &too_large), Err(Errno::TOOBIG));
        let refused = (0..2000)
            .map(|number| set(format!("user.{number:0200}"), b"v"))
            .find(Result::is_err);
        assert_eq!(refused, Some(Err(Errno::NOSPC)));
        let mut names = vec![0; 64 << 10];
        assert!(rustix::fs::listxattr(&path, &mut names).unwrap() > 60_000);
    });
}

#[test]
fn a_directory_with_set_group_id_passes_its_group_on() {
    in_both_modes(|mounted| {
        let directory = mounted.root.join("shared");
        fs::create_dir(&directory).unwrap();
        rustix::fs::chown(&directory, None, Some(Gid::from_raw(77))).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
        fs::write(directory.join("file"), b"").unwrap();
        fs::create_dir(directory.join("below")).unwrap();
        assert_eq!(fs::metadata(directory.join("file")).unwrap().gid(), 77);
        let below = fs::metadata(directory.join("below")).unwrap();
        assert_eq!((below.gid(), below.mode() & 0o2000), (77, 0o2000));
    });
}

#[test]
fn extended_attributes_are_set_listed_replaced_and_removed() {
    in_both_modes(|mounted| {
        let path = mounted.root.join("file");
        fs::write(&path, b"").unwrap();
        let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.colour", value, flags);
        let get = || {
            let mut room = [0; 100];
            let length = rustix::fs::getxattr(&path, "user.colour", &mut room[..])?;
            Ok::<_, Errno>(room[..length].to_vec())
        };
        assert_eq!(get(), Err(Errno::NODATA));
        assert_eq!(set(b"red", XattrFlags::REPLACE), Err(Errno::NODATA));
        set(b"red", XattrFlags::CREATE).unwrap();
        assert_eq!(set(b"blue", XattrFlags::CREATE), Err(Errno::EXIST));
        set(b"blue", XattrFlags::REPLACE).unwrap();
        rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!(get().unwrap(), b"blue");
        let mut little = [0; 2];
        let short = rustix::fs::getxattr(&path, "user.colour", &mut little[..]);
        assert_eq!(short, Err(Errno::RANGE));
        let mut room = [0; 200];
        let length = rustix::fs::listxattr(&path, &mut room[..]).unwrap();
        let mut listed: Vec<&[u8]> = room[..length].split(|byte| *byte == 0).collect();
        listed.sort_unstable();
        assert_eq!(listed, [b"".as_slice(), b"user.colour", b"user.empty"]);
        rustix::fs::removexattr(&path, "user.colour").unwrap();
        assert_eq!(get(), Err(Errno::NODATA));
    });
}

#[test]
fn names_up_to_255_bytes_of_any_kind_work_and_longer_ones_do_not() {
    in_both_modes(|mounted| {
        let longest = "n".repeat(255);
        fs::write(mounted.root.join(&longest), b"x").unwrap();
        assert_eq!(names(&mounted.root), [longest]);
        let longer = fs::write(mounted.root.join("n".repeat(256)), b"x").unwrap_err();
        assert_eq!(
            longer.raw_os_error(),
            Some(Errno::NAMETOOLONG.raw_os_error())
        );
        let odd = std::ffi::OsStr::from_bytes(b"\xff\n\x01 *");
        fs::write(mounted.root.join(odd), b"odd").unwrap();
        assert_eq!(fs::read(mounted.root.join(odd)).unwrap(), b"odd");
    });
}

#[test]
fn what_is_not_there_or_of_the_wrong_kind_is_told_apart() {
    in_both_modes(|mounted| {
        let path = |name: &str| mounted.root.join(name);
        let code = |result: std::io::Result<()>| {
            Errno::from_raw_os_error(result.unwrap_err().raw_os_error().unwrap())
        };
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("directory/file"), b"").unwrap();
        assert_eq!(code(File::open(path("none")).map(drop)), Errno::NOENT);
        assert_eq!(code(fs::create_dir(path("directory"))), Errno::EXIST);
        assert_eq!(code(fs::remove_dir(path("directory"))), Errno::NOTEMPTY);
        assert_eq!(code(fs::remove_dir(path("directory/file"))), Errno::NOTDIR);
        let unlinked = rustix::fs::unlinkat(CWD, path("directory"), AtFlags::empty());
        assert_eq!(unlinked, Err(Errno::ISDIR));
        assert_eq!(
            code(File::open(path("directory/file/x")).map(drop)),
            Errno::NOTDIR
        );
        let exclusive = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path("directory/file"));
        assert_eq!(code(exclusive.map(drop)), Errno::EXIST);
        // A name that was missing is found once it is made.
        File::create(path("none")).unwrap();
        assert!(path("none").exists());
    });
}

#[test]
fn space_is_shown_and_syncs_return() {
    in_both_modes(|mounted| {
        let shown = rustix::fs::statvfs(&mounted.root).unwrap();
        assert!(shown.f_blocks >= shown.f_bfree && shown.f_bavail > 0 && shown.f_bsize >= 4096);
        assert_eq!(shown.f_namemax, 255);
        let file = read_write(&mounted.root.join("file"));
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= 8_192);
        File::open(&mounted.root).unwrap().sync_all().unwrap();
        rustix::fs::syncfs(&file).unwrap();
        let flags = i32::try_from((OFlags::DSYNC | OFlags::SYNC).bits()).unwrap();
        let mut synchronous = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(mounted.root.join("file"))
            .unwrap();
        synchronous.write_all(b"at once").unwrap();
    });
}

#[test]
fn renaming_one_link_of_a_file_over_another_changes_nothing() {
    in_both_modes(|mounted| {
        let (one, two) = (mounted.root.join("one"), mounted.root.join("two"));
        fs::write(&one, b"x").unwrap();
        fs::hard_link(&one, &two).unwrap();
        fs::rename(&one, &two).unwrap();
        assert_eq!(names(&mounted.root), ["one", "two"]);
        assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
    });
}

#[test]
fn a_size_beyond_the_largest_file_is_refused_and_changes_nothing() {
    in_both_modes(|mounted| {
        let file = read_write(&mounted.root.join("file"));
        file.write_all_at(b"kept", 0).unwrap();
        let error = file.set_len(1 << 50).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
        let refused = rustix::fs::fallocate(&file, FallocateFlags::empty(), 1 << 50, 1);
        assert_eq!(refused, Err(Errno::FBIG));
        assert_eq!(file.metadata().unwrap().len(), 4);
        let mut back = [0; 4];
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(&back, b"kept");
    });
}

#[test]
fn a_full_group_refuses_more_and_harms_nothing() {
    for direct in [false, true] {
        let Some(mounted) = Mounted::with_disks(direct, 96 << 20) else {
            return;
        };
        let (kept, big) = (mounted.root.join("kept"), mounted.root.join("big"));
        let bytes: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&kept, &bytes).unwrap();
        File::open(&kept).unwrap().sync_all().unwrap();
        let free = |when: &str| {
            let shown = rustix::fs::statvfs(&mounted.root).unwrap();
            eprintln!("{when}: {} blocks free", shown.f_bavail);
            shown.f_bavail * shown.f_frsize
        };
        let free_before = free("before");
        let too_much = |file: &File| {
            for offset in (0..4 * free_before).step_by(1 << 20) {
                file.write_all_at(&[5; 1 << 20], offset)?;
            }
            file.sync_all()
        };
        let error = too_much(&read_write(&big)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(free("full") < free_before / 10);
        let refused = rustix::fs::fallocate(
            read_write(&mounted.root.join("third")),
            FallocateFlags::empty(),
            0,
            free_before,
        );
        assert_eq!(refused, Err(Errno::NOSPC));
        assert!(fs::read(&kept).unwrap() == bytes);
        fs::remove_file(&big).unwrap();
        File::open(&mounted.root).unwrap().sync_all().unwrap();
        assert!(free("after") > free_before / 10 * 9);
        fs::write(&big, &bytes).unwrap();
        assert!(fs::read(&big).unwrap() == bytes);
    }
}
