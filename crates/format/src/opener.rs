//! Who has the group open: on every voter, rewritten by each heartbeat.
//!
//! Everything but zeros lies in the first 512 bytes, so that a heartbeat that a crash tears
//! leaves the old record or the new one.

use serde::Serialize;
use spindle_base::Uuid;

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::Reader;
use crate::header::Header;
use crate::place::OPENER_BYTES;

/// What the record begins with.
pub const OPENER_MAGIC: &[u8; 8] = b"SPNDOPEN";
/// The version of the record that this program writes.
pub const OPENER_VERSION: u32 = 1;
/// Bytes of the field for the host's name: its length, at most 126 bytes, zero beyond.
pub const HOST_FIELD_BYTES: usize = 128;
/// Hexadecimal digits of a process namespace.
const NAMESPACE_DIGITS: usize = 16;
/// Bytes of the record that are not reserved.
pub const OPENER_USED_BYTES: usize = 240;

const _: () = assert!(OPENER_USED_BYTES <= 512, "a heartbeat is torn nowhere");

const HEADER: Header = Header {
    structure: Structure::Opener,
    magic: OPENER_MAGIC,
    version: OPENER_VERSION,
};

/// What tells a host from others of its name, and a process from others of its number. It
/// follows the host's name in its field, so that programs that do not know it see another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The machine id; zeros where there is none.
    pub machine: Uuid,
    /// The kernel's number of the process namespace.
    pub process_namespace: u64,
}

impl Origin {
    /// The machine id, where there is one.
    #[must_use]
    pub fn known_machine(self) -> Option<Uuid> {
        (self.machine.0 != [0; 16]).then_some(self.machine)
    }

    /// The origin at the end of the host's field, and what comes before.
    fn split(text: &str) -> (&str, Option<Self>) {
        let found = || {
            let (rest, namespace) = text.rsplit_once('/')?;
            let (host, machine) = rest.rsplit_once('/')?;
            let whole = machine.len() == 32 && namespace.len() == NAMESPACE_DIGITS;
            let number = u128::from_str_radix(machine, 16).ok().filter(|_| whole)?;
            let origin = Self {
                machine: Uuid(number.to_be_bytes()),
                process_namespace: u64::from_str_radix(namespace, 16).ok()?,
            };
            // What is written another way is somebody else's.
            text.ends_with(&origin.suffix()).then_some((host, origin))
        };
        found().map_or((text, None), |(host, origin)| (host, Some(origin)))
    }

    fn suffix(self) -> String {
        let machine = u128::from_be_bytes(self.machine.0);
        format!(
            "/{machine:032x}/{:0NAMESPACE_DIGITS$x}",
            self.process_namespace
        )
    }
}

/// Who has, or last had, the group open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenerRecord {
    /// Rises with each opening and closing; of two records the higher one is right.
    pub sequence: u64,
    /// The group's identity.
    pub group_uuid: Uuid,
    /// The disk's identity.
    pub disk_uuid: Uuid,
    /// The boot id of the opener's kernel.
    pub boot: Uuid,
    /// The opener's host name; cut to what the field holds.
    pub host: String,
    /// The opener's host and process namespace, beyond its name, where they are known.
    pub origin: Option<Origin>,
    /// The opener's process.
    pub process_id: u32,
    /// Whether it is open; false after a clean close.
    pub open: bool,
    /// Heartbeats since it was opened.
    pub heartbeats_count: u64,
    /// When the newest heartbeat was, in seconds since 1970.
    pub heartbeat_s: u64,
    /// When it was opened, in seconds since 1970.
    pub opened_s: u64,
}

impl OpenerRecord {
    /// Checks 4 KiB that were read at `place`.
    ///
    /// # Errors
    /// [`FormatError`] where they are no opener record, or one that was damaged.
    pub fn parse(bytes: &[u8], place: u64) -> Result<Self, FormatError> {
        let Some(bytes) = bytes.get(..OPENER_BYTES) else {
            return Err(HEADER.error(bytes.len(), FormatErrorKind::TooShort));
        };
        let (sequence, mut reader) = HEADER.read(bytes, place)?;
        let group_uuid = reader.uuid()?;
        let disk_uuid = reader.uuid()?;
        let boot = reader.uuid()?;
        let (host, origin) = Origin::split(reader.text("host", HOST_FIELD_BYTES)?);
        let host = host.to_owned();
        let process_id = reader.u32()?;
        let open = reader.judged("state", Reader::u8, |code| match code {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        })?;
        reader.reserved(3)?;
        let heartbeats_count = reader.u64()?;
        let heartbeat_s = reader.u64()?;
        let opened_s = reader.u64()?;
        reader.reserved_until(OPENER_BYTES)?;
        Ok(Self {
            sequence,
            group_uuid,
            disk_uuid,
            boot,
            host,
            origin,
            process_id,
            open,
            heartbeats_count,
            heartbeat_s,
            opened_s,
        })
    }

    /// The bytes of the record for `place`.
    #[must_use]
    pub fn encode(&self, place: u64) -> Vec<u8> {
        let mut writer = HEADER.begin(OPENER_BYTES, place, self.sequence);
        writer.bytes(&self.group_uuid.0);
        writer.bytes(&self.disk_uuid.0);
        writer.bytes(&self.boot.0);
        let suffix = self.origin.map(Origin::suffix).unwrap_or_default();
        let mut host_bytes = self.host.len().min(HOST_FIELD_BYTES - 2 - suffix.len());
        while !self.host.is_char_boundary(host_bytes) {
            host_bytes -= 1;
        }
        let text = format!("{}{suffix}", &self.host[..host_bytes]);
        writer.text(&text, HOST_FIELD_BYTES);
        writer.u32(self.process_id);
        writer.u8(if self.open { 2 } else { 1 });
        writer.reserved(3);
        writer.u64(self.heartbeats_count);
        writer.u64(self.heartbeat_s);
        writer.u64(self.opened_s);
        writer.reserved_until(OPENER_BYTES);
        Header::finish(writer)
    }
}
