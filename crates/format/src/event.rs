//! A row of the event log: what happened in the group, when, and on which host.
//!
//! Keys are the severity's code (u8), then a number that grows with each event of the group (u64
//! big-endian), so that the events of one severity lie together, the oldest first, and a storm
//! of small ones makes room among its own.

use serde::{Deserialize, Serialize};
use spindle_base::{DiskNumber, FileId};

use crate::error::{FormatError, FormatErrorKind, Structure};
use crate::field::{Reader, Writer};

/// The version of the event record that this program writes.
pub const EVENT_RECORD_VERSION: u8 = 1;
/// The bytes of an event record before its texts.
pub const EVENT_RECORD_HEADER_BYTES: usize = 32;
/// The most bytes of an event's message; what is longer is cut.
pub const EVENT_MESSAGE_BYTES_MAX: usize = 2048;
/// The most bytes of the name of an event's kind, and of its host.
pub const EVENT_NAME_BYTES_MAX: usize = 255;

const NO_DISK: u16 = u16::MAX;

/// How much an event matters to the person who runs the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Nothing is lost, but something failed or is about to.
    Warning,
    /// Redundancy or data is lost, or the group cannot go on: a person must look.
    Critical,
}

impl Severity {
    /// Every severity, the least first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The word that JSON, metrics and filters have.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity that the word means.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.name() == name)
    }

    /// Its number on disk.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Info => 1,
            Self::Warning => 2,
            Self::Critical => 3,
        }
    }

    /// The severity of that number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.code() == code)
    }
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// An event as the catalog keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRecord {
    /// How much it matters.
    pub severity: Severity,
    /// The disk it happened to, if one.
    pub disk: Option<DiskNumber>,
    /// When it was kept, milliseconds since 1970 by its host's clock.
    pub time_ms: u64,
    /// The file it happened to, if one.
    pub file: Option<FileId>,
    /// The name of its kind; a newer Spindle knows kinds that this one does not.
    pub kind: String,
    /// The host that kept it.
    pub host: String,
    /// What a person reads.
    pub message: String,
}

impl EventRecord {
    /// Checks a record's bytes.
    ///
    /// # Errors
    /// [`FormatError`] where they are no event record.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(Structure::EventRecord, bytes);
        reader.record_version(EVENT_RECORD_VERSION)?;
        let severity = reader.judged("severity", Reader::u8, Severity::from_code)?;
        let disk = reader.u16()?;
        let kind_bytes = usize::from(reader.u8()?);
        let host_bytes = usize::from(reader.u8()?);
        let message_bytes = reader.judged("message length", Reader::u16, |length| {
            let length = usize::from(length);
            (length <= EVENT_MESSAGE_BYTES_MAX).then_some(length)
        })?;
        let time_ms = reader.u64()?;
        let file = reader.u64()?;
        reader.reserved_until(EVENT_RECORD_HEADER_BYTES)?;
        let kind = text(&mut reader, "kind", kind_bytes)?;
        let host = text(&mut reader, "host", host_bytes)?;
        let message = text(&mut reader, "message", message_bytes)?;
        reader.end()?;
        Ok(Self {
            severity,
            disk: (disk != NO_DISK).then_some(DiskNumber(disk)),
            time_ms,
            file: (file != 0).then_some(FileId(file)),
            kind,
            host,
            message,
        })
    }

    /// The record's bytes. Texts that are too long are cut at a character.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let kind = cut(&self.kind, EVENT_NAME_BYTES_MAX);
        let host = cut(&self.host, EVENT_NAME_BYTES_MAX);
        let message = cut(&self.message, EVENT_MESSAGE_BYTES_MAX);
        let texts_bytes = kind.len() + host.len() + message.len();
        let mut writer = Writer::with_capacity(EVENT_RECORD_HEADER_BYTES + texts_bytes);
        writer.u8(EVENT_RECORD_VERSION);
        writer.u8(self.severity.code());
        writer.u16(self.disk.map_or(NO_DISK, |disk| disk.0));
        writer.u8(u8::try_from(kind.len()).expect("it was cut"));
        writer.u8(u8::try_from(host.len()).expect("it was cut"));
        writer.u16(u16::try_from(message.len()).expect("it was cut"));
        writer.u64(self.time_ms);
        writer.u64(self.file.map_or(0, |file| file.0));
        writer.reserved_until(EVENT_RECORD_HEADER_BYTES);
        for text in [kind, host, message] {
            writer.bytes(text.as_bytes());
        }
        writer.finish()
    }
}

fn text(
    reader: &mut Reader<'_>,
    what: &'static str,
    length_bytes: usize,
) -> Result<String, FormatError> {
    let bad = reader.error(FormatErrorKind::Value(what));
    let bytes = reader.bytes(length_bytes)?;
    let text = std::str::from_utf8(bytes).map_err(|_| bad)?;
    Ok(text.to_owned())
}

/// The text up to so many bytes, ended between two characters.
fn cut(text: &str, most_bytes: usize) -> &str {
    if text.len() <= most_bytes {
        return text;
    }
    let end = (0..=most_bytes)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
