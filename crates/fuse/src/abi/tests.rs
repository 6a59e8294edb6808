//! Numbers that are compared with what the kernel sends, held to the kernel's own headers.

use std::collections::HashMap;

use rustix::event::PollFlags;
use rustix::fs::{SealFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::*;

/// A number of ours or of a library, by its name in the kernel's header, and what it must be.
struct Number {
    header: &'static str,
    name: &'static str,
    ours: u64,
    kernels: u64,
}

const fn number(header: &'static str, name: &'static str, ours: u64, kernels: u64) -> Number {
    Number {
        header,
        name,
        ours,
        kernels,
    }
}

const FUSE: &str = "linux/fuse.h";
const FCNTL: &str = "asm-generic/fcntl.h";
const STAT: &str = "linux/stat.h";

fn numbers() -> Vec<Number> {
    let mut all = of_requests();
    all.extend(attribute_changes());
    all.extend(capabilities());
    all.extend(of_libraries());
    all
}

const fn signed(value: i32) -> u64 {
    value.cast_unsigned() as u64
}

const fn narrow(value: u32) -> u64 {
    value as u64
}

fn of_requests() -> Vec<Number> {
    vec![
        number(FCNTL, "O_EXCL", narrow(open_flags::EXCLUSIVE), 0o200),
        number(FCNTL, "O_TRUNC", narrow(open_flags::TRUNCATE), 0o1000),
        number(FCNTL, "O_DSYNC", narrow(open_flags::DATA_SYNC), 0x1000),
        number(FCNTL, "__O_SYNC", narrow(open_flags::FULL_SYNC), 0x10_0000),
        number(FUSE, "FOPEN_DIRECT_IO", narrow(open_answer::DIRECT_IO), 1),
        number(
            FUSE,
            "FOPEN_KEEP_CACHE",
            narrow(open_answer::KEEP_CACHE),
            1 << 1,
        ),
        number(
            FUSE,
            "FOPEN_PARALLEL_DIRECT_WRITES",
            narrow(open_answer::PARALLEL_DIRECT_WRITES),
            1 << 6,
        ),
        number(FUSE, "FUSE_UNIQUE_RESEND", UNIQUE_RESENT, 1 << 63),
        number(
            FUSE,
            "FUSE_OPEN_KILL_SUIDGID",
            narrow(OPEN_KILL_PRIVILEGES),
            1,
        ),
        number(FUSE, "FUSE_WRITE_CACHE", narrow(WRITE_FROM_CACHE), 1),
        number(
            FUSE,
            "FUSE_WRITE_KILL_SUIDGID",
            narrow(WRITE_KILL_PRIVILEGES),
            1 << 2,
        ),
        number(FUSE, "FUSE_FSYNC_FDATASYNC", narrow(FSYNC_DATA_ONLY), 1),
        number(
            FUSE,
            "FUSE_NOTIFY_INVAL_INODE",
            signed(notify::INVALIDATE_INODE),
            2,
        ),
        number(
            FUSE,
            "FUSE_NOTIFY_INVAL_ENTRY",
            signed(notify::INVALIDATE_ENTRY),
            3,
        ),
        number(FUSE, "FUSE_NOTIFY_RESEND", signed(notify::RESEND), 7),
    ]
}

fn attribute_changes() -> Vec<Number> {
    vec![
        number(FUSE, "FATTR_MODE", narrow(set_attributes::MODE), 1),
        number(FUSE, "FATTR_UID", narrow(set_attributes::USER), 1 << 1),
        number(FUSE, "FATTR_GID", narrow(set_attributes::GROUP), 1 << 2),
        number(FUSE, "FATTR_SIZE", narrow(set_attributes::SIZE), 1 << 3),
        number(
            FUSE,
            "FATTR_ATIME",
            narrow(set_attributes::ACCESSED),
            1 << 4,
        ),
        number(
            FUSE,
            "FATTR_MTIME",
            narrow(set_attributes::MODIFIED),
            1 << 5,
        ),
        number(
            FUSE,
            "FATTR_ATIME_NOW",
            narrow(set_attributes::ACCESSED_NOW),
            1 << 7,
        ),
        number(
            FUSE,
            "FATTR_MTIME_NOW",
            narrow(set_attributes::MODIFIED_NOW),
            1 << 8,
        ),
        number(
            FUSE,
            "FATTR_CTIME",
            narrow(set_attributes::CHANGED),
            1 << 10,
        ),
        number(
            FUSE,
            "FATTR_KILL_SUIDGID",
            narrow(set_attributes::KILL_PRIVILEGES),
            1 << 11,
        ),
    ]
}

fn capabilities() -> Vec<Number> {
    vec![
        number(FUSE, "FUSE_ASYNC_READ", capability::ASYNC_READ, 1),
        number(
            FUSE,
            "FUSE_EXPORT_SUPPORT",
            capability::EXPORT_SUPPORT,
            1 << 4,
        ),
        number(FUSE, "FUSE_BIG_WRITES", capability::BIG_WRITES, 1 << 5),
        number(
            FUSE,
            "FUSE_DO_READDIRPLUS",
            capability::READDIRPLUS,
            1 << 13,
        ),
        number(
            FUSE,
            "FUSE_READDIRPLUS_AUTO",
            capability::READDIRPLUS_AUTO,
            1 << 14,
        ),
        number(FUSE, "FUSE_ASYNC_DIO", capability::ASYNC_DIO, 1 << 15),
        number(
            FUSE,
            "FUSE_WRITEBACK_CACHE",
            capability::WRITEBACK_CACHE,
            1 << 16,
        ),
        number(
            FUSE,
            "FUSE_PARALLEL_DIROPS",
            capability::PARALLEL_DIROPS,
            1 << 18,
        ),
        number(FUSE, "FUSE_ABORT_ERROR", capability::ABORT_ERROR, 1 << 21),
        number(FUSE, "FUSE_MAX_PAGES", capability::MAX_PAGES, 1 << 22),
        number(
            FUSE,
            "FUSE_CACHE_SYMLINKS",
            capability::CACHE_SYMLINKS,
            1 << 23,
        ),
        number(
            FUSE,
            "FUSE_NO_OPENDIR_SUPPORT",
            capability::NO_OPENDIR_SUPPORT,
            1 << 24,
        ),
        number(
            FUSE,
            "FUSE_EXPLICIT_INVAL_DATA",
            capability::EXPLICIT_INVAL_DATA,
            1 << 25,
        ),
        number(
            FUSE,
            "FUSE_HANDLE_KILLPRIV_V2",
            capability::HANDLE_KILLPRIV_V2,
            1 << 28,
        ),
        number(FUSE, "FUSE_INIT_EXT", capability::INIT_EXT, 1 << 30),
        number(
            FUSE,
            "FUSE_DIRECT_IO_ALLOW_MMAP",
            capability::DIRECT_IO_ALLOW_MMAP,
            1 << 36,
        ),
        number(FUSE, "FUSE_HAS_RESEND", capability::HAS_RESEND, 1 << 39),
    ]
}

/// Wherever an answer of the kernel is compared with a library's name.
fn of_libraries() -> Vec<Number> {
    vec![
        number(
            "linux/fs.h",
            "RWF_DSYNC",
            narrow(ReadWriteFlags::DSYNC.bits()),
            2,
        ),
        number(
            STAT,
            "STATX_DIOALIGN",
            narrow(StatxFlags::DIOALIGN.bits()),
            0x2000,
        ),
        number(
            STAT,
            "STATX_ATTR_MOUNT_ROOT",
            StatxAttributes::MOUNT_ROOT.bits(),
            0x2000,
        ),
        number(
            "asm-generic/poll.h",
            "POLLERR",
            PollFlags::ERR.bits().into(),
            8,
        ),
        number(
            "linux/fcntl.h",
            "F_SEAL_SHRINK",
            narrow(SealFlags::SHRINK.bits()),
            2,
        ),
        number(
            "asm-generic/errno.h",
            "EOPNOTSUPP",
            signed(Errno::OPNOTSUPP.raw_os_error()),
            95,
        ),
        number(
            "asm-generic/errno.h",
            "ESTALE",
            signed(Errno::STALE.raw_os_error()),
            116,
        ),
        number(
            "asm-generic/errno.h",
            "ENOTCONN",
            signed(Errno::NOTCONN.raw_os_error()),
            107,
        ),
        number(
            "asm-generic/errno.h",
            "ENODATA",
            signed(Errno::NODATA.raw_os_error()),
            61,
        ),
        number(
            "asm-generic/errno.h",
            "EBADE",
            signed(Errno::BADE.raw_os_error()),
            52,
        ),
    ]
}

/// `7`, `0x7`, `07`, `(1 << 7)`, `(1ULL << 7)`, `((some_type)0x7)`.
fn value_of(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some((one, shift)) = text
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
        .and_then(|inner| inner.split_once("<<"))
    {
        return Some(value_of(one)? << value_of(shift)?);
    }
    let bare = text.rsplit_once("t)").map_or(text, |(_, value)| value);
    let bare = bare
        .trim_matches(['(', ')', ' '])
        .trim_end_matches(['U', 'L']);
    if let Some(digits) = bare.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    match bare.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => bare.parse().ok(),
    }
}

/// What a header defines as a plain number, by `#define` or in an enumeration.
fn defined(header: &str) -> Option<HashMap<String, u64>> {
    let text = std::fs::read_to_string(format!("/usr/include/{header}")).ok()?;
    let mut found = HashMap::new();
    for line in text.lines() {
        let line = line.split("/*").next().unwrap_or_default().trim();
        let pair = match line.strip_prefix("#define") {
            Some(rest) => rest.trim().split_once(char::is_whitespace),
            None => line.trim_end_matches(',').split_once('='),
        };
        if let Some((name, value)) = pair
            && let Some(value) = value_of(value)
        {
            found.insert(name.trim().to_owned(), value);
        }
    }
    Some(found)
}

#[test]
fn every_number_that_is_compared_has_the_kernels_value() {
    let mut headers: HashMap<&str, Option<HashMap<String, u64>>> = HashMap::new();
    let mut held_count = 0;
    for number in numbers() {
        let name = number.name;
        assert_eq!(number.ours, number.kernels, "{name} of ours");
        let header = headers
            .entry(number.header)
            .or_insert_with(|| defined(number.header));
        // An older header lacks what is newer.
        if let Some(value) = header.as_ref().and_then(|header| header.get(name)) {
            assert_eq!(*value, number.kernels, "{name} in {}", number.header);
            held_count += 1;
        }
    }
    if headers.values().all(Option::is_none) {
        println!("skipped: no headers of the kernel are installed to compare with");
        return;
    }
    assert!(
        held_count > 30,
        "only {held_count} were found in the headers"
    );
}

#[test]
fn every_opcode_has_the_kernels_number() {
    let Some(header) = defined(FUSE) else {
        println!("skipped: no headers of the kernel are installed to compare with");
        return;
    };
    let name_of = |opcode: Opcode| {
        Some(match opcode {
            Opcode::Lookup => "FUSE_LOOKUP",
            Opcode::Forget => "FUSE_FORGET",
            Opcode::GetAttributes => "FUSE_GETATTR",
            Opcode::SetAttributes => "FUSE_SETATTR",
            Opcode::ReadLink => "FUSE_READLINK",
            Opcode::Symlink => "FUSE_SYMLINK",
            Opcode::MakeNode => "FUSE_MKNOD",
            Opcode::MakeDirectory => "FUSE_MKDIR",
            Opcode::Unlink => "FUSE_UNLINK",
            Opcode::RemoveDirectory => "FUSE_RMDIR",
            Opcode::Rename => "FUSE_RENAME",
            Opcode::Rename2 => "FUSE_RENAME2",
            Opcode::Link => "FUSE_LINK",
            Opcode::Open => "FUSE_OPEN",
            Opcode::Read => "FUSE_READ",
            Opcode::Write => "FUSE_WRITE",
            Opcode::StatFs => "FUSE_STATFS",
            Opcode::Release => "FUSE_RELEASE",
            Opcode::Fsync => "FUSE_FSYNC",
            Opcode::Create => "FUSE_CREATE",
            Opcode::Allocate => "FUSE_FALLOCATE",
            Opcode::Seek => "FUSE_LSEEK",
            Opcode::CopyRange => "FUSE_COPY_FILE_RANGE",
            Opcode::SyncFs => "FUSE_SYNCFS",
            Opcode::FsyncDirectory => "FUSE_FSYNCDIR",
            Opcode::ReadDirectory => "FUSE_READDIR",
            Opcode::ReadDirectoryPlus => "FUSE_READDIRPLUS",
            Opcode::SetExtendedAttribute => "FUSE_SETXATTR",
            Opcode::GetExtendedAttribute => "FUSE_GETXATTR",
            Opcode::ListExtendedAttributes => "FUSE_LISTXATTR",
            Opcode::RemoveExtendedAttribute => "FUSE_REMOVEXATTR",
            Opcode::BatchForget => "FUSE_BATCH_FORGET",
            Opcode::TemporaryFile => "FUSE_TMPFILE",
            Opcode::Statx => "FUSE_STATX",
            _ => return None,
        })
    };
    let mut held_count = 0;
    for opcode in Opcode::ALL {
        if let Some(number) = name_of(*opcode).and_then(|name| header.get(name)) {
            assert_eq!(*opcode as u64, *number, "{opcode:?}");
            held_count += 1;
        }
    }
    assert!(
        held_count > 25,
        "only {held_count} were found in the header"
    );
}
