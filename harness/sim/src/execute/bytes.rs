//! Operations on a file's bytes.

use std::sync::Arc;

use spindle_base::FileId;
use spindle_fs::{AttributeChange, FsResult, Handle};

use crate::content::{SECTOR_BYTES, describe, described_bytes, index};
use crate::fault::pick;
use crate::operation::{ByteOperation, Place};
use crate::run::{Answer, Run, Step};

/// A gap before a write, a stripe set, and what shared AUs hold in pieces.
const PLENTY_BYTES: u64 = 20 << 20;
const BLOCK_BYTES: usize = 4096;
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

impl Run {
    pub(super) fn execute_on_bytes(&mut self, operation: ByteOperation) -> Step<()> {
        use ByteOperation as Op;
        match operation {
            Op::Write {
                file,
                place,
                length,
            } => self.write(file, place, length, false),
            Op::Append { file, length } => self.write(file, Place::End, length, true),
            Op::Read {
                file,
                place,
                length,
            } => self.read(file, place, length),
            Op::Truncate { file, place } => self.truncate(file, place),
            Op::Allocate {
                file,
                place,
                length,
                keep_size,
            } => self.allocate(file, place, length, keep_size),
            Op::Punch {
                file,
                place,
                length,
            } => self.zero(file, place, length, PUNCH_HOLE | KEEP_SIZE),
            Op::ZeroRange {
                file,
                place,
                length,
            } => self.zero(file, place, length, ZERO_RANGE | KEEP_SIZE),
            Op::CopyRange {
                from,
                to,
                place,
                length,
            } => self.copy_range(from, to, place, length),
            Op::Seek { file, place, hole } => self.seek(file, place, hole),
        }
    }

    /// Files that have a name or are kept open.
    fn reachable_file(&self, number: u64) -> Option<FileId> {
        let mut files = self.model.names().files();
        files.extend(
            self.kept
                .keys()
                .filter(|id| !self.model.names().inodes.contains_key(id)),
        );
        let files: Vec<FileId> = files
            .into_iter()
            .filter(|id| {
                !self
                    .model
                    .contents
                    .get(id)
                    .is_none_or(|content| content.is_lost)
            })
            .collect();
        pick(&files, number)
    }

    fn handle(&mut self, id: FileId) -> Step<Answer<Arc<Handle>>> {
        if let Some(handle) = self.kept.get(&id) {
            return Ok(Answer::Done(Arc::clone(handle)));
        }
        let result = self.system().open_file(id);
        self.judge("open", result)
    }

    fn size_bytes(&self, id: FileId) -> u64 {
        self.model.contents[&id].size_bytes()
    }

    fn content_mut(&mut self, id: FileId) -> &mut crate::content::Content {
        self.model
            .contents
            .get_mut(&id)
            .expect("the model has the bytes of each file")
    }

    fn write(&mut self, file: u64, place: Place, length: u64, append: bool) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let offset = Self::offset_bytes(place, self.size_bytes(id));
        let tag = self.model.contents[&id].tag;
        let version = self.next_version;
        self.next_version += 1;
        let data = described_bytes(tag, version, offset, index(length));
        self.note(format!(
            "file {id} (tag {tag}) version {version}: {length} bytes at {offset}"
        ));
        let now = self.now();
        // An append finds its place itself.
        let given = if append { 0 } else { offset };
        let result = self.system().write(&handle, given, &data, append, now);
        self.finish_write(id, offset, data, "write", result)
    }

    /// Enters what a write did, or may have done, into the model.
    fn finish_write(
        &mut self,
        id: FileId,
        offset: u64,
        data: Vec<u8>,
        what: &str,
        result: FsResult<()>,
    ) -> Step<()> {
        let length = data.len();
        self.finish_pieces(id, offset, data, length, what, result)
    }

    /// As [`Self::finish_write`], of bytes that are written one piece after the other, each of
    /// which a power cut may leave out: the first has `first_length` bytes, others a block.
    fn finish_pieces(
        &mut self,
        id: FileId,
        offset: u64,
        data: Vec<u8>,
        first_length: usize,
        what: &str,
        result: FsResult<()>,
    ) -> Step<()> {
        let clock = self.model.clock;
        match self.judge(what, result)? {
            _ if data.is_empty() => Ok(()),
            Answer::Done(()) | Answer::PowerLost => {
                let (first, others) = data.split_at(first_length.min(data.len()));
                let content = self.content_mut(id);
                let mut at = offset;
                for piece in std::iter::once(first).chain(others.chunks(BLOCK_BYTES)) {
                    content.write(clock, at, piece.to_vec());
                    at += piece.len() as u64;
                }
                Ok(())
            }
            Answer::Full => {
                self.check_full(id, data.len() as u64)?;
                self.reconcile(id, offset, data)
            }
            Answer::Failed => self.reconcile(id, offset, data),
        }
    }

    /// "No room" must not be said where there is plenty.
    fn check_full(&mut self, id: FileId, asked_bytes: u64) -> Step<()> {
        let group = Arc::clone(self.system().group());
        let Some(file) = group.file(id) else {
            return Ok(());
        };
        let usable_bytes = group.usable_bytes(group.layout(&file));
        if usable_bytes > asked_bytes + PLENTY_BYTES {
            return Err(Self::wrong(&format!(
                "no room for {asked_bytes} bytes of file {id}, with {usable_bytes} usable"
            )));
        }
        Ok(())
    }

    /// A write that failed left each sector as it was or as it was to be, and the size between
    /// the two: what is found is entered as written.
    fn reconcile(&mut self, id: FileId, offset: u64, data: Vec<u8>) -> Step<()> {
        let clock = self.model.clock;
        let found = self
            .system()
            .attributes(id)
            .and_then(|attributes| self.read_all(id, attributes.size_bytes));
        let found = match self.judge("reading after a failed write", found)? {
            Answer::Done(found) => found,
            Answer::PowerLost => {
                self.content_mut(id).write(clock, offset, data);
                return Ok(());
            }
            Answer::Full | Answer::Failed => {
                self.content_mut(id).is_lost = true;
                return Ok(());
            }
        };
        let former_size = self.size_bytes(id);
        let intended_size = former_size.max(offset + data.len() as u64);
        let size_bytes = found.len() as u64;
        let mut possible = self.model.contents[&id].clone();
        possible.write(clock, offset, data);
        if size_bytes < former_size || size_bytes > intended_size {
            return Err(Self::wrong(&format!(
                "after a failed write file {id} has {size_bytes} bytes, before {former_size}"
            )));
        }
        // Compared as of now, not as a power cut may leave it: only this write is undecided.
        possible.synced_at = clock - 1;
        possible.check(clock - 1, &found).map_err(|reason| {
            Self::wrong(&format!("after a failed write of file {id}: {reason}"))
        })?;
        let from = index(offset).min(found.len());
        let written = found[from..].to_vec();
        let content = self.content_mut(id);
        if size_bytes != former_size {
            content.resize(clock, size_bytes, false);
        }
        if !written.is_empty() {
            content.write(clock, from as u64, written);
        }
        Ok(())
    }

    fn read(&mut self, file: u64, place: Place, length: u64) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let offset = Self::offset_bytes(place, self.size_bytes(id));
        let mut bytes = vec![0xAA; index(length)];
        let result = self.system().read(&handle, offset, &mut bytes);
        self.note(format!("file {id}: reads {length} bytes at {offset}"));
        let Answer::Done(count) = self.judge("read", result)? else {
            return Ok(());
        };
        let content = &self.model.contents[&id];
        let expected = content.expected(offset, bytes.len());
        if count != expected.len() {
            return Err(Self::wrong(&format!(
                "a read of file {id} gives {count} bytes, expected {}",
                expected.len()
            )));
        }
        if content.is_undecided() && content.may_read(offset, &bytes[..count]) {
            return Ok(());
        }
        Self::same_bytes(id, offset, expected, &bytes[..count])
    }

    fn same_bytes(id: FileId, offset: u64, expected: &[u8], found: &[u8]) -> Step<()> {
        if expected == found {
            return Ok(());
        }
        let first = expected
            .iter()
            .zip(found)
            .position(|(one, other)| one != other);
        let first = first.unwrap_or(0);
        // Words are described whole: from the last border on.
        let skew = (offset + first as u64) % 8;
        let begin = first.saturating_sub(index(skew));
        let end = (begin + SECTOR_BYTES).min(found.len());
        Err(Self::wrong(&format!(
            "file {id} offset {}: read {}, expected {}",
            offset + first as u64,
            describe(&found[begin..end]),
            describe(&expected[begin..end])
        )))
    }

    fn truncate(&mut self, file: u64, place: Place) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let size_bytes = Self::offset_bytes(place, self.size_bytes(id));
        let change = AttributeChange {
            size_bytes: Some(size_bytes),
            ..AttributeChange::default()
        };
        self.note(format!(
            "file {id}: {} to {size_bytes} bytes",
            self.size_bytes(id)
        ));
        let now = self.now();
        let result = self.system().set_attributes(id, &change, now);
        let clock = self.model.clock;
        match self.judge("truncate", result)? {
            Answer::Done(_) => self.content_mut(id).resize(clock, size_bytes, true),
            Answer::PowerLost => self.content_mut(id).resize(clock, size_bytes, false),
            Answer::Full | Answer::Failed => self.failed_truncation(id, size_bytes)?,
        }
        Ok(())
    }

    /// The size comes first, so a truncation that failed may have set it already; what it could
    /// not zero lies beyond the end, where nobody reads it.
    fn failed_truncation(&mut self, id: FileId, size_bytes: u64) -> Step<()> {
        let clock = self.model.clock;
        let attributes = self.system().attributes(id);
        let former = self.size_bytes(id);
        match self.judge("the size after a failed truncation", attributes)? {
            Answer::Done(attributes) if attributes.size_bytes == size_bytes => {
                self.content_mut(id).resize(clock, size_bytes, false);
            }
            Answer::Done(attributes) if attributes.size_bytes != former => {
                return Err(Self::wrong(&format!(
                    "after a failed truncation file {id} has {} bytes",
                    attributes.size_bytes
                )));
            }
            Answer::Done(_) => self.failed_in_place(id, former.min(size_bytes), u64::MAX)?,
            Answer::PowerLost => self.content_mut(id).resize(clock, size_bytes, false),
            Answer::Full | Answer::Failed => self.content_mut(id).is_lost = true,
        }
        Ok(())
    }

    /// A truncation or a zeroing that failed may have zeroed a part of its range.
    fn failed_in_place(&mut self, id: FileId, offset: u64, length: u64) -> Step<()> {
        let size_bytes = self.size_bytes(id);
        let end = offset.saturating_add(length).min(size_bytes);
        let zeros = vec![0; index(end.saturating_sub(offset))];
        if !zeros.is_empty() {
            self.reconcile(id, offset, zeros)?;
        }
        Ok(())
    }

    fn allocate(&mut self, file: u64, place: Place, length: u64, keep_size: bool) -> Step<()> {
        let Some(id) = self.reachable_file(file).filter(|_| length > 0) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let offset = Self::offset_bytes(place, self.size_bytes(id));
        let mode = if keep_size { KEEP_SIZE } else { 0 };
        let now = self.now();
        let result = self.system().allocate(&handle, offset, length, mode, now);
        let clock = self.model.clock;
        let end = offset + length;
        if let Answer::Done(()) | Answer::PowerLost = self.judge("fallocate", result)?
            && !keep_size
            && end > self.size_bytes(id)
        {
            self.content_mut(id).resize(clock, end, false);
        }
        Ok(())
    }

    fn zero(&mut self, file: u64, place: Place, length: u64, mode: u32) -> Step<()> {
        let Some(id) = self.reachable_file(file).filter(|_| length > 0) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let offset = Self::offset_bytes(place, self.size_bytes(id));
        self.note(format!("file {id}: zeroes {length} bytes at {offset}"));
        let now = self.now();
        let result = self.system().allocate(&handle, offset, length, mode, now);
        let clock = self.model.clock;
        match self.judge("zeroing", result)? {
            Answer::Done(()) | Answer::PowerLost => {
                self.content_mut(id).zero(clock, offset, length)
            }
            Answer::Full | Answer::Failed => self.failed_in_place(id, offset, length)?,
        }
        Ok(())
    }

    fn copy_range(&mut self, from: u64, to: u64, place: Place, length: u64) -> Step<()> {
        let (Some(source), Some(target)) = (self.reachable_file(from), self.reachable_file(to))
        else {
            return Ok(());
        };
        // Nobody knows what would be copied of a source that told of a loss.
        if source == target || self.model.contents[&source].is_undecided() {
            return Ok(());
        }
        let Answer::Done(source_handle) = self.handle(source)? else {
            return Ok(());
        };
        let Answer::Done(target_handle) = self.handle(target)? else {
            return Ok(());
        };
        let from_offset = self.size_bytes(source) / 3;
        let offset = Self::offset_bytes(place, self.size_bytes(target));
        let data = self.model.contents[&source]
            .expected(from_offset, index(length))
            .to_vec();
        self.note(format!(
            "file {source} at {from_offset} to file {target} at {offset}: {} bytes",
            data.len()
        ));
        let now = self.now();
        let result = self.system().copy_range(
            &source_handle,
            from_offset,
            &target_handle,
            offset,
            length,
            now,
        );
        // What fails after a part was copied is told by a smaller count.
        let is_short = matches!(result, Ok(count) if count != data.len() as u64);
        if is_short && self.disks.is_powered() {
            if self.faults_count == 0 {
                self.check_full(target, data.len() as u64)?;
            }
            return self.reconcile(target, offset, data);
        }
        // Data and holes of the source take turns.
        let first_length = BLOCK_BYTES - index(from_offset) % BLOCK_BYTES;
        let result = result.map(|_| ());
        self.finish_pieces(target, offset, data, first_length, "copy", result)
    }

    /// Reserves space beyond the end of a file until little is left.
    pub(super) fn fill(&mut self, file: u64, left_bytes: u64) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let group = Arc::clone(self.system().group());
        let Some(reserved) = group.file(id) else {
            return Ok(());
        };
        let usable_bytes = group.usable_bytes(group.layout(&reserved));
        let length = usable_bytes.saturating_sub(left_bytes);
        if length == 0 {
            return Ok(());
        }
        self.note(format!("file {id}: reserves {length} of {usable_bytes}"));
        let now = self.now();
        let size_bytes = self.size_bytes(id);
        let result = self
            .system()
            .allocate(&handle, size_bytes, length, KEEP_SIZE, now);
        self.judge("filling", result)?;
        Ok(())
    }

    /// Where the answer says there is no data, there must be none.
    fn seek(&mut self, file: u64, place: Place, hole: bool) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        let size_bytes = self.size_bytes(id);
        let offset = Self::offset_bytes(place, size_bytes);
        let result = self.system().seek(&handle, offset, hole);
        let Answer::Done(answer) = self.judge("seek", result)? else {
            return Ok(());
        };
        let beyond = offset >= size_bytes;
        let good = match answer {
            // Whether what was lost is a hole is as undecided as its bytes.
            _ if self.model.contents[&id].is_undecided() => true,
            None => beyond || (!hole && self.is_zero(id, offset, size_bytes)),
            Some(at) if beyond || at < offset || at > size_bytes => false,
            Some(at) => hole || self.is_zero(id, offset, at),
        };
        if good {
            return Ok(());
        }
        Err(Self::wrong(&format!(
            "seek of file {id} from {offset} (hole: {hole}, size {size_bytes}) answers {answer:?}"
        )))
    }

    fn is_zero(&self, id: FileId, from: u64, to: u64) -> bool {
        let bytes = self.model.contents[&id].bytes();
        bytes[index(from)..index(to)].iter().all(|byte| *byte == 0)
    }

    pub(super) fn keep_open(&mut self, file: u64) -> Step<()> {
        let Some(id) = pick(&self.model.names().files(), file) else {
            return Ok(());
        };
        if let Answer::Done(handle) = self.handle(id)? {
            self.note(format!("keeps file {id} open"));
            self.kept.insert(id, handle);
        }
        Ok(())
    }

    pub(super) fn sync_file(&mut self, file: u64, data_only: bool) -> Step<()> {
        let Some(id) = self.reachable_file(file) else {
            return Ok(());
        };
        let Answer::Done(handle) = self.handle(id)? else {
            return Ok(());
        };
        self.note(format!("syncs file {id}"));
        let result = self.system().sync_file(&handle, data_only);
        let clock = self.model.clock;
        match self.judge("fsync", result)? {
            Answer::Done(()) => self.model.file_synced(id, data_only),
            Answer::Failed => self.content_mut(id).tell_of_loss(clock),
            Answer::PowerLost | Answer::Full => {}
        }
        Ok(())
    }
}
