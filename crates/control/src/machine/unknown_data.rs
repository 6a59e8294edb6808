//! Whether a plain file holds anything: only then is it no loss to make a disk of it.
//!
//! A disk that bears nobody's mark is free to be used, as ever: whatever it held was given up when
//! it was taken out of use. A plain file without a mark that anybody knows is somebody's archive,
//! dump or image, unless it reads as zeros from end to end.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use spindle_device::{DiskSlot, Disks};

use crate::api::error::{ControlError, ControlResult};
use crate::machine::probe::read_at;

const PIECE_BYTES: usize = 1 << 20;

/// What a file holds, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Holes and zeros; all of them where `whole`.
    Zeros {
        /// Whether it was read to its end.
        whole: bool,
    },
    /// Something, from this byte on.
    Data {
        /// The first byte that is not zero.
        offset_bytes: u64,
    },
    /// It is no plain file.
    NoFile,
}

/// Reads what is not a hole until something is found or `most_bytes` were zeros.
///
/// # Errors
/// Where the file cannot be read.
pub fn look_for_data(path: &Path, most_bytes: u64) -> ControlResult<Contents> {
    let fail = |error: std::io::Error| ControlError::io("read", path.display(), &error);
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)
        .map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Ok(Contents::NoFile);
    }
    // A file system in user space may know no data yet that the kernel has not written back, and
    // tell a hole there.
    file.sync_all().map_err(fail)?;
    let mut left_bytes = most_bytes;
    let mut at = 0;
    while let Some((start, end)) = next_data(&file, at, metadata.len()).map_err(fail)? {
        let mut piece = vec![0; PIECE_BYTES];
        at = start;
        while at < end {
            if left_bytes == 0 {
                return Ok(Contents::Zeros { whole: false });
            }
            let length = (end - at).min(left_bytes).min(PIECE_BYTES as u64);
            let length = usize::try_from(length).unwrap_or(PIECE_BYTES);
            let count = file.read_at(&mut piece[..length], at).map_err(fail)?;
            if count == 0 {
                break;
            }
            if let Some(within) = piece[..count].iter().position(|byte| *byte != 0) {
                let offset_bytes = at + within as u64;
                return Ok(Contents::Data { offset_bytes });
            }
            at += count as u64;
            left_bytes -= count as u64;
        }
        at = end;
    }
    Ok(Contents::Zeros { whole: true })
}

/// As [`look_for_data`], of a disk whose holes nobody tells.
///
/// # Errors
/// Where the disk cannot be read.
pub(crate) fn look_on_disk(
    disks: &dyn Disks,
    slot: DiskSlot,
    most_bytes: u64,
) -> ControlResult<Contents> {
    let size_bytes = disks.size_bytes(slot);
    let end = size_bytes.min(most_bytes);
    let mut at = 0;
    while at < end {
        let length = (end - at).min(PIECE_BYTES as u64);
        let length = usize::try_from(length).unwrap_or(PIECE_BYTES);
        let piece = read_at(disks, slot, at, length)?;
        if let Some(within) = piece.iter().position(|byte| *byte != 0) {
            let offset_bytes = at + within as u64;
            return Ok(Contents::Data { offset_bytes });
        }
        at += length as u64;
    }
    Ok(Contents::Zeros {
        whole: end == size_bytes,
    })
}

/// The next stretch from `at` on that is no hole; all of the rest where the file system does not
/// tell holes.
fn next_data(file: &File, at: u64, length_bytes: u64) -> std::io::Result<Option<(u64, u64)>> {
    if at >= length_bytes {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, length_bytes))),
        Err(error) => return Err(error.into()),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(length_bytes);
    Ok(Some((start, end.max(start + 1).min(length_bytes))))
}

#[cfg(test)]
mod tests {
    use super::{Contents, look_for_data};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_and_written_zeros_are_nothing_and_one_byte_anywhere_is_something() {
        let path = std::env::temp_dir().join(format!("spindle-unknown-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert_eq!(
            look_for_data(&path, u64::MAX).unwrap(),
            Contents::Zeros { whole: true }
        );
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&vec![0; 3 << 20], 5 << 20).unwrap();
        assert_eq!(
            look_for_data(&path, u64::MAX).unwrap(),
            Contents::Zeros { whole: true }
        );
        assert_eq!(
            look_for_data(&path, 1 << 20).unwrap(),
            Contents::Zeros { whole: false }
        );
        let offset_bytes = (64 << 20) - 1;
        file.write_all_at(b"x", offset_bytes).unwrap();
        assert_eq!(
            look_for_data(&path, u64::MAX).unwrap(),
            Contents::Data { offset_bytes }
        );
        std::fs::remove_file(&path).unwrap();
        let directory = std::env::temp_dir();
        assert_eq!(
            look_for_data(&directory, u64::MAX).unwrap(),
            Contents::NoFile
        );
    }
}
