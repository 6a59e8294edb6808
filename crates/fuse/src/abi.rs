//! The structures and numbers of the FUSE kernel protocol, version 7, as `linux/fuse.h` has them.
//!
//! Field names are spelled out; their order, widths and padding are the kernel's. Nothing here
//! decides anything. Bytes come from the kernel, so a structure that is cut short is an error of
//! the one who reads it, not a panic.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol that this crate speaks; minor versions are negotiated downwards.
pub const MAJOR: u32 = 7;
/// The newest minor version whose structures are described here.
pub const MINOR: u32 = 45;
/// The oldest minor version with everything that the bridge relies on (`FUSE_TMPFILE`).
pub const OLDEST_MINOR: u32 = 37;

macro_rules! opcodes {
    ($($name:ident = $number:literal),+ $(,)?) => {
        /// What a request asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Opcode {
            $(
                #[doc = concat!("Request ", $number, " of `enum fuse_opcode`.")]
                $name = $number
            ),+
        }

        impl Opcode {
            /// Every opcode known.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The opcode of that number, if it is known.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, GetAttributes = 3, SetAttributes = 4, ReadLink = 5, Symlink = 6,
    MakeNode = 8, MakeDirectory = 9, Unlink = 10, RemoveDirectory = 11, Rename = 12, Link = 13,
    Open = 14, Read = 15, Write = 16, StatFs = 17, Release = 18, Fsync = 20,
    SetExtendedAttribute = 21, GetExtendedAttribute = 22, ListExtendedAttributes = 23,
    RemoveExtendedAttribute = 24, Flush = 25, Init = 26, OpenDirectory = 27, ReadDirectory = 28,
    ReleaseDirectory = 29, FsyncDirectory = 30, GetLock = 31, SetLock = 32, SetLockWait = 33,
    Access = 34, Create = 35, Interrupt = 36, BlockMap = 37, Destroy = 38, IoControl = 39,
    Poll = 40, NotifyReply = 41, BatchForget = 42, Allocate = 43, ReadDirectoryPlus = 44,
    Rename2 = 45, Seek = 46, CopyRange = 47, SyncFs = 50, TemporaryFile = 51, Statx = 52,
    CopyRange64 = 53,
}

/// Capabilities exchanged by `INIT`; bits from 32 on travel in `flags2`.
pub mod capability {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const HAS_RESEND: u64 = 1 << 39;
}

/// Which fields of a [`SetAttributesIn`] count.
pub mod set_attributes {
    pub const MODE: u32 = 1 << 0;
    pub const USER: u32 = 1 << 1;
    pub const GROUP: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ACCESSED: u32 = 1 << 4;
    pub const MODIFIED: u32 = 1 << 5;
    pub const ACCESSED_NOW: u32 = 1 << 7;
    pub const MODIFIED_NOW: u32 = 1 << 8;
    pub const CHANGED: u32 = 1 << 10;
    pub const KILL_PRIVILEGES: u32 = 1 << 11;
}

/// What an answer to `OPEN` tells the kernel of the file's cache.
pub mod open_answer {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Flags of open(2) as requests carry them, with the kernel's values (asm-generic/fcntl.h). They
/// are compared, so they are written out: a library may give one name the value of another, as
/// `O_DSYNC` is often `O_SYNC`.
pub mod open_flags {
    #[cfg(any(
        target_arch = "mips",
        target_arch = "mips64",
        target_arch = "sparc",
        target_arch = "sparc64"
    ))]
    compile_error!("this kernel has numbers of its own for these flags");

    pub const EXCLUSIVE: u32 = 0o200;
    pub const TRUNCATE: u32 = 0o1000;
    /// The caller wants no cache between itself and the disks.
    #[cfg(target_arch = "x86_64")]
    pub const DIRECT: u32 = 0o40_000;
    /// The caller wants no cache between itself and the disks.
    #[cfg(target_arch = "aarch64")]
    pub const DIRECT: u32 = 0o200_000;
    /// A write is answered when its data is durable.
    pub const DATA_SYNC: u32 = 0o10_000;
    /// Times as well. `O_SYNC` is this bit beside [`DATA_SYNC`].
    pub const FULL_SYNC: u32 = 0o4_000_000;
}

/// In a request's number: it was sent before, to a process that did not answer.
pub const UNIQUE_RESENT: u64 = 1 << 63;

/// In the request of an open: clear set-user-id and set-group-id while truncating.
pub const OPEN_KILL_PRIVILEGES: u32 = 1 << 0;
/// In a `WRITE`: pages of the kernel's cache, the handle is a guess.
pub const WRITE_FROM_CACHE: u32 = 1 << 0;
/// In a `WRITE`: a program's own bytes, which pass the kernel's cache. The flag says that an owner of
/// locks is named, which the kernel does in these alone; and so it is in a `READ`.
pub const WRITE_PAST_CACHE: u32 = 1 << 1;
/// In a `READ`: the bytes are for the program, and not for the kernel's cache.
pub const READ_PAST_CACHE: u32 = 1 << 1;
/// In a `WRITE`: clear set-user-id and set-group-id.
pub const WRITE_KILL_PRIVILEGES: u32 = 1 << 2;
/// In an `FSYNC`: the caller asked for `fdatasync`.
pub const FSYNC_DATA_ONLY: u32 = 1 << 0;

/// Codes of messages that nobody asked for, in the error field of an answer's header.
pub mod notify {
    pub const INVALIDATE_INODE: i32 = 2;
    pub const INVALIDATE_ENTRY: i32 = 3;
    pub const RESEND: i32 = 7;
}

macro_rules! structures {
    ($($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ty),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind),+ }
    )+};
}

structures! {
    /// Before every request.
    InHeader {
        length_bytes: u32, opcode: u32, unique: u64, node: u64, user: u32, group: u32,
        process: u32, extensions_words: u16, padding: u16,
    }
    /// Before every answer.
    OutHeader { length_bytes: u32, error: i32, unique: u64 }
    InitIn { major: u32, minor: u32, max_read_ahead_bytes: u32, flags: u32 }
    InitOut {
        major: u32, minor: u32, max_read_ahead_bytes: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write_bytes: u32, time_granularity_ns: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    Attributes {
        inode: u64, size_bytes: u64, blocks: u64, accessed_s: u64, modified_s: u64,
        changed_s: u64, accessed_ns: u32, modified_ns: u32, changed_ns: u32, mode: u32,
        links_count: u32, user: u32, group: u32, device: u32, block_size_bytes: u32, flags: u32,
    }
    EntryOut {
        node: u64, generation: u64, entry_valid_s: u64, attributes_valid_s: u64,
        entry_valid_ns: u32, attributes_valid_ns: u32, attributes: Attributes,
    }
    AttributesOut {
        valid_s: u64, valid_ns: u32, padding: u32, attributes: Attributes,
    }
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    StatxOut {
        valid_s: u64, valid_ns: u32, flags: u32, spare: [u64; 2],
        mask: u32, block_size_bytes: u32, attributes: u64, links_count: u32, user: u32,
        group: u32, mode: u16, padding: u16, inode: u64, size_bytes: u64, blocks: u64,
        attributes_mask: u64, accessed: StatxTime, created: StatxTime, changed: StatxTime,
        modified: StatxTime, device_major: u32, device_minor: u32, on_major: u32, on_minor: u32,
        spare_end: [u64; 14],
    }
    SetAttributesIn {
        valid: u32, padding: u32, handle: u64, size_bytes: u64, lock_owner: u64, accessed_s: u64,
        modified_s: u64, changed_s: u64, accessed_ns: u32, modified_ns: u32, changed_ns: u32,
        mode: u32, unused4: u32, user: u32, group: u32, unused5: u32,
    }
    ForgetIn { count: u64 }
    ForgetOne { node: u64, count: u64 }
    BatchForgetIn { count: u32, unused: u32 }
    MakeNodeIn { mode: u32, device: u32, umask: u32, padding: u32 }
    MakeDirectoryIn { mode: u32, umask: u32 }
    RenameIn { new_parent: u64 }
    Rename2In { new_parent: u64, flags: u32, padding: u32 }
    LinkIn { node: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { handle: u64, flags: u32, padding: u32 }
    CreateOut { entry: EntryOut, open: OpenOut }
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    ReadIn {
        handle: u64, offset_bytes: u64, size_bytes: u32, read_flags: u32, lock_owner: u64,
        flags: u32, padding: u32,
    }
    WriteIn {
        handle: u64, offset_bytes: u64, size_bytes: u32, write_flags: u32, lock_owner: u64,
        flags: u32, padding: u32,
    }
    WriteOut { size_bytes: u32, padding: u32 }
    StatFsOut {
        blocks: u64, blocks_free: u64, blocks_available: u64, files: u64, files_free: u64,
        block_size_bytes: u32, name_length_bytes: u32, fragment_size_bytes: u32, padding: u32,
        spare: [u32; 6],
    }
    FsyncIn { handle: u64, flags: u32, padding: u32 }
    SetExtendedAttributeIn { size_bytes: u32, flags: u32 }
    GetExtendedAttributeIn { size_bytes: u32, padding: u32 }
    GetExtendedAttributeOut { size_bytes: u32, padding: u32 }
    AllocateIn { handle: u64, offset_bytes: u64, length_bytes: u64, mode: u32, padding: u32 }
    SeekIn { handle: u64, offset_bytes: u64, whence: u32, padding: u32 }
    SeekOut { offset_bytes: u64 }
    CopyRangeIn {
        from_handle: u64, from_offset_bytes: u64, to_node: u64, to_handle: u64,
        to_offset_bytes: u64, length_bytes: u64, flags: u64,
    }
    CopyRange64Out { copied_bytes: u64 }
    /// A directory entry; its name follows, padded to 8 bytes.
    DirectoryEntry { inode: u64, cookie: u64, name_length_bytes: u32, kind: u32 }
    NotifyInodeOut { node: u64, offset_bytes: i64, length_bytes: i64 }
    NotifyEntryOut { parent: u64, name_length_bytes: u32, flags: u32 }
}

// The kernel's sizes: a field that is missing or too wide does not compile.
const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<Attributes>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttributesOut>() == 104);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<SetAttributesIn>() == 88);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<StatFsOut>() == 80);
    assert!(size_of::<CopyRangeIn>() == 56);
    assert!(size_of::<DirectoryEntry>() == 24);
};

#[cfg(test)]
mod tests;
