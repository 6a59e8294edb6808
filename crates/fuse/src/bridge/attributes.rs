//! What `stat` and `statfs` show, and what changes it.

use rustix::io::Errno;
use spindle_fs::{AttributeChange, Attributes, Kind, Time};

use super::{Answer, Bridge, Served, arguments, node, now, permissions};
use crate::abi::{self, InHeader, SetAttributesIn, StatFsOut, StatxOut, StatxTime, set_attributes};
use crate::transport::Transport;

/// How long the kernel may believe names and attributes: nothing changes them behind its back.
pub(super) const VALID_S: u64 = 10 * 365 * 86_400;
/// What programs are told to read and write at a time; also the unit of the kernel's cache.
const BLOCK_SIZE_BYTES: u32 = 4096;
/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_MASK: u32 = 0xfff;

pub(super) const fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Fifo => 0o010_000,
        Kind::CharacterDevice => 0o020_000,
        Kind::Directory => 0o040_000,
        Kind::BlockDevice => 0o060_000,
        Kind::Regular => 0o100_000,
        Kind::Symlink => 0o120_000,
        Kind::Socket => 0o140_000,
    }
}

pub(super) const fn kind_of_mode(mode: u32) -> Option<Kind> {
    Some(match mode & 0o170_000 {
        0o010_000 => Kind::Fifo,
        0o020_000 => Kind::CharacterDevice,
        0o040_000 => Kind::Directory,
        0o060_000 => Kind::BlockDevice,
        0 | 0o100_000 => Kind::Regular,
        0o120_000 => Kind::Symlink,
        0o140_000 => Kind::Socket,
        _ => return None,
    })
}

pub(super) fn to_abi(attributes: &Attributes) -> abi::Attributes {
    abi::Attributes {
        inode: attributes.id.0,
        size_bytes: attributes.size_bytes,
        blocks: attributes.allocated_bytes.div_ceil(512),
        accessed_s: attributes.accessed.seconds.cast_unsigned(),
        modified_s: attributes.modified.seconds.cast_unsigned(),
        changed_s: attributes.changed.seconds.cast_unsigned(),
        accessed_ns: attributes.accessed.nanoseconds,
        modified_ns: attributes.modified.nanoseconds,
        changed_ns: attributes.changed.nanoseconds,
        mode: kind_bits(attributes.kind) | u32::from(attributes.permissions),
        links_count: attributes.links_count,
        user: attributes.user,
        group: attributes.group,
        device: attributes.device,
        block_size_bytes: BLOCK_SIZE_BYTES,
        flags: 0,
    }
}

fn out(attributes: &Attributes) -> abi::AttributesOut {
    abi::AttributesOut {
        valid_s: VALID_S,
        attributes: to_abi(attributes),
        ..abi::AttributesOut::default()
    }
}

const fn statx_time(time: Time) -> StatxTime {
    StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    }
}

/// The change that a request asks for.
fn change_of(request: &SetAttributesIn, now: Time) -> AttributeChange {
    let asked = |bit: u32| request.valid & bit != 0;
    let time = |bit: u32, bit_now: u32, seconds: u64, nanoseconds: u32| {
        if asked(bit_now) {
            Some(now)
        } else {
            asked(bit).then(|| Time {
                seconds: seconds.cast_signed(),
                nanoseconds,
            })
        }
    };
    let owner_changes = asked(set_attributes::USER) || asked(set_attributes::GROUP);
    AttributeChange {
        permissions: asked(set_attributes::MODE).then(|| permissions(request.mode)),
        user: asked(set_attributes::USER).then_some(request.user),
        group: asked(set_attributes::GROUP).then_some(request.group),
        size_bytes: asked(set_attributes::SIZE).then_some(request.size_bytes),
        accessed: time(
            set_attributes::ACCESSED,
            set_attributes::ACCESSED_NOW,
            request.accessed_s,
            request.accessed_ns,
        ),
        modified: time(
            set_attributes::MODIFIED,
            set_attributes::MODIFIED_NOW,
            request.modified_s,
            request.modified_ns,
        ),
        changed: time(
            set_attributes::CHANGED,
            0,
            request.changed_s,
            request.changed_ns,
        ),
        // The kernel left this to us for chown too, where it sends no flag.
        kill_privileges: asked(set_attributes::KILL_PRIVILEGES)
            || (owner_changes && !asked(set_attributes::MODE)),
    }
}

impl Bridge {
    pub(super) fn get_attributes(&self, header: &InHeader) -> Served {
        let found = self.file_system.attributes(node(header))?;
        Ok(Answer::structure(&out(&found)))
    }

    pub(super) fn set_attributes<T: Transport>(&self, header: &InHeader, transport: &T) -> Served {
        let request: SetAttributesIn = arguments(transport)?;
        let now = now();
        let change = change_of(&request, now);
        let changed = self
            .file_system
            .set_attributes(node(header), &change, now)?;
        Ok(Answer::told(changed.id, &out(&changed)))
    }

    /// Beyond `GETATTR` it shows when a file was made.
    pub(super) fn statx(&self, header: &InHeader) -> Served {
        let found = self.file_system.attributes(node(header))?;
        let basic = to_abi(&found);
        Ok(Answer::structure(&StatxOut {
            valid_s: VALID_S,
            mask: STATX_MASK,
            block_size_bytes: BLOCK_SIZE_BYTES,
            links_count: basic.links_count,
            user: basic.user,
            group: basic.group,
            mode: u16::try_from(basic.mode).map_err(|_| Errno::IO)?,
            inode: basic.inode,
            size_bytes: basic.size_bytes,
            blocks: basic.blocks,
            accessed: statx_time(found.accessed),
            created: statx_time(found.created),
            changed: statx_time(found.changed),
            modified: statx_time(found.modified),
            device_major: (found.device >> 8) & 0xfff,
            device_minor: (found.device & 0xff) | ((found.device >> 12) & 0xf_ff00),
            ..StatxOut::default()
        }))
    }

    pub(super) fn stat_fs(&self) -> Served {
        let space = self.file_system.space()?;
        let block = u32::try_from(space.block_size_bytes).map_err(|_| Errno::OVERFLOW)?;
        Ok(Answer::structure(&StatFsOut {
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            blocks_available: space.blocks_free,
            files: space.files,
            files_free: space.files_free,
            block_size_bytes: block,
            name_length_bytes: 255,
            fragment_size_bytes: block,
            ..StatFsOut::default()
        }))
    }
}
