//! Fields one after another: the reading and the writing of little-endian bytes.
//!
//! The reader never goes beyond its bytes and never panics; it answers with the offset at which
//! they were not what they must be. The writer is for our own state and asserts.

use spindle_base::{AuSize, DiskName, DiskNumber, FailureGroupName, FileId, GroupName, Uuid};

use crate::error::{FormatError, FormatErrorKind, Structure};

/// The bytes that a name takes: its length in one byte, then 30 bytes, zero beyond its length,
/// then one zero.
pub(crate) const NAME_FIELD_BYTES: usize = 32;

const NAME_LENGTH_MAX: usize = 30;

/// Takes fields from bytes of unknown worth.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset_bytes: usize,
    structure: Structure,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(structure: Structure, bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            offset_bytes: 0,
            structure,
        }
    }

    /// An error about the byte that will be read next.
    pub(crate) const fn error(&self, kind: FormatErrorKind) -> FormatError {
        self.error_at(self.offset_bytes, kind)
    }

    pub(crate) const fn error_at(&self, offset_bytes: usize, kind: FormatErrorKind) -> FormatError {
        FormatError {
            structure: self.structure,
            kind,
            offset_bytes,
        }
    }

    pub(crate) fn bytes(&mut self, length_bytes: usize) -> Result<&'a [u8], FormatError> {
        let end = self.offset_bytes.saturating_add(length_bytes);
        let Some(taken) = self.bytes.get(self.offset_bytes..end) else {
            return Err(self.error(FormatErrorKind::TooShort));
        };
        self.offset_bytes = end;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, FormatError> {
        Ok(Uuid(self.array()?))
    }

    /// A file id, which is never 0.
    pub(crate) fn file_id(&mut self) -> Result<FileId, FormatError> {
        let at = self.offset_bytes;
        match self.u64()? {
            0 => Err(self.error_at(at, FormatErrorKind::Value("file id"))),
            id => Ok(FileId(id)),
        }
    }

    /// A value that `judge` accepts; else `what` is named as impossible.
    pub(crate) fn judged<T, V>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Result<V, FormatError>,
        judge: impl FnOnce(V) -> Option<T>,
    ) -> Result<T, FormatError> {
        let at = self.offset_bytes;
        let value = read(self)?;
        judge(value).ok_or_else(|| self.error_at(at, FormatErrorKind::Value(what)))
    }

    /// The one-byte version of a record; rows of the catalog need no magic, their table is one.
    pub(crate) fn record_version(&mut self, known: u8) -> Result<(), FormatError> {
        self.record_versions(known..=known).map(drop)
    }

    /// As [`Self::record_version`], where several are read; which it is.
    pub(crate) fn record_versions(
        &mut self,
        known: std::ops::RangeInclusive<u8>,
    ) -> Result<u8, FormatError> {
        let at = self.offset_bytes;
        let version = self.u8()?;
        if known.contains(&version) {
            Ok(version)
        } else {
            Err(self.error_at(at, FormatErrorKind::Version(u32::from(version))))
        }
    }

    /// A disk number above `last`: a set is written in ascending order, one way only.
    pub(crate) fn disk_above(
        &mut self,
        last: Option<DiskNumber>,
    ) -> Result<DiskNumber, FormatError> {
        self.judged("disk number", Self::u16, |number| {
            let disk = DiskNumber(number);
            (number != u16::MAX && last.is_none_or(|last| last < disk)).then_some(disk)
        })
    }

    /// So many disk numbers in strictly ascending order.
    pub(crate) fn ascending_disks(&mut self, count: usize) -> Result<Vec<DiskNumber>, FormatError> {
        let mut disks: Vec<DiskNumber> = Vec::new();
        for _ in 0..count {
            let disk = self.disk_above(disks.last().copied())?;
            disks.push(disk);
        }
        Ok(disks)
    }

    pub(crate) fn reserved(&mut self, length_bytes: usize) -> Result<(), FormatError> {
        let start = self.offset_bytes;
        match self.bytes(length_bytes)?.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(index) => Err(self.error_at(start + index, FormatErrorKind::Reserved)),
        }
    }

    /// A text of at most `field_bytes - 2` bytes in a field of fixed length.
    pub(crate) fn text(
        &mut self,
        what: &'static str,
        field_bytes: usize,
    ) -> Result<&'a str, FormatError> {
        let at = self.offset_bytes;
        let field = self.bytes(field_bytes)?;
        let bad = self.error_at(at, FormatErrorKind::Value(what));
        let length_bytes = usize::from(field[0]);
        if length_bytes + 2 > field_bytes {
            return Err(bad);
        }
        let (text, padding) = field[1..].split_at(length_bytes);
        if let Some(index) = padding.iter().position(|&byte| byte != 0) {
            let offset = at + 1 + length_bytes + index;
            return Err(self.error_at(offset, FormatErrorKind::Reserved));
        }
        std::str::from_utf8(text).map_err(|_| bad)
    }

    pub(crate) fn group_name(&mut self) -> Result<GroupName, FormatError> {
        self.judged(
            "group name",
            |reader| reader.text("group name", NAME_FIELD_BYTES),
            |text| GroupName::new(text).ok(),
        )
    }

    pub(crate) fn disk_name(&mut self) -> Result<DiskName, FormatError> {
        self.judged(
            "disk name",
            |reader| reader.text("disk name", NAME_FIELD_BYTES),
            |text| DiskName::new(text).ok(),
        )
    }

    pub(crate) fn failure_group_name(&mut self) -> Result<FailureGroupName, FormatError> {
        self.judged(
            "failure group name",
            |reader| reader.text("failure group name", NAME_FIELD_BYTES),
            |text| FailureGroupName::new(text).ok(),
        )
    }

    /// The base-2 logarithm of an AU size in bytes.
    pub(crate) fn au_size(&mut self) -> Result<AuSize, FormatError> {
        self.judged("AU size", Self::u8, |log2_bytes| {
            let bytes = 1_u64.checked_shl(u32::from(log2_bytes))?;
            AuSize::from_bytes(bytes).ok()
        })
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), FormatError> {
        if self.offset_bytes == self.bytes.len() {
            Ok(())
        } else {
            Err(self.error(FormatErrorKind::TooLong))
        }
    }

    /// Everything up to `end_bytes` must be zero.
    pub(crate) fn reserved_until(&mut self, end_bytes: usize) -> Result<(), FormatError> {
        self.reserved(end_bytes.saturating_sub(self.offset_bytes))
    }
}

/// Puts fields one after another.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn reserved(&mut self, length_bytes: usize) {
        self.bytes.resize(self.bytes.len() + length_bytes, 0);
    }

    pub(crate) fn reserved_until(&mut self, end_bytes: usize) {
        assert!(
            self.bytes.len() <= end_bytes,
            "the fields end before the reserved bytes do"
        );
        self.bytes.resize(end_bytes, 0);
    }

    pub(crate) fn text(&mut self, text: &str, field_bytes: usize) {
        assert!(
            text.len() + 2 <= field_bytes,
            "a text is made to fit its field"
        );
        let start = self.bytes.len();
        self.u8(u8::try_from(text.len()).expect("a text has at most 253 bytes"));
        self.bytes(text.as_bytes());
        self.reserved_until(start + field_bytes);
    }

    pub(crate) fn au_size(&mut self, au_size: AuSize) {
        self.u8(au_size.class() + 12);
    }

    pub(crate) fn name(&mut self, text: &str) {
        assert!(text.len() <= NAME_LENGTH_MAX, "a name is checked when made");
        self.text(text, NAME_FIELD_BYTES);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
