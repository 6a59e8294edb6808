//! Where the extents of a file lie, small enough for a picture: a row for each disk that holds some
//! of it, a column for each stretch of the file.

use std::collections::BTreeMap;

use serde::Serialize;
use spindle_base::{Redundancy, Striping};

use crate::api::view::MapReport;

/// Stretches that a file is shown in.
const COLUMNS_COUNT: usize = 64;

/// A file over the disks.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct FilePicture {
    path: String,
    size_bytes: u64,
    redundancy: Redundancy,
    striping: Striping,
    extents_count: usize,
    missing_copies_count: usize,
    /// Bytes of the file in each column.
    column_bytes: u64,
    rows: Vec<Row>,
}

/// What one disk holds of it.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    disk: u16,
    disk_name: String,
    extents_count: u64,
    bytes: u64,
    /// Bytes in each stretch of the file, every copy counted.
    columns_bytes: Vec<u64>,
}

/// The picture of a map. Of a file with fine striping an extent lies where its column begins.
pub(super) fn picture(map: &MapReport) -> FilePicture {
    let ends = map
        .extents
        .iter()
        .map(|it| it.offset_bytes.saturating_add(it.length_bytes));
    let end_bytes = ends.max().unwrap_or(0).max(map.size_bytes).max(1);
    let column_bytes = end_bytes.div_ceil(COLUMNS_COUNT as u64);
    let mut rows: BTreeMap<u16, Row> = (map.disks.iter())
        .map(|share| {
            let row = Row {
                disk: share.disk,
                disk_name: share.disk_name.clone(),
                extents_count: share.extents_count,
                bytes: share.bytes,
                columns_bytes: vec![0; COLUMNS_COUNT],
            };
            (share.disk, row)
        })
        .collect();
    let mut missing_copies_count = 0;
    for extent in &map.extents {
        let (begin, end) = (
            extent.offset_bytes,
            extent.offset_bytes.saturating_add(extent.length_bytes),
        );
        for copy in &extent.copies {
            let Some(row) = copy.as_ref().and_then(|copy| rows.get_mut(&copy.disk)) else {
                missing_copies_count += 1;
                continue;
            };
            let first = usize::try_from(begin / column_bytes).unwrap_or(0);
            for (column, bytes) in row.columns_bytes.iter_mut().enumerate().skip(first) {
                let from = column as u64 * column_bytes;
                if from >= end {
                    break;
                }
                *bytes += end.min(from + column_bytes).saturating_sub(begin.max(from));
            }
        }
    }
    FilePicture {
        path: map.path.clone(),
        size_bytes: map.size_bytes,
        redundancy: map.redundancy,
        striping: map.striping,
        extents_count: map.extents.len(),
        missing_copies_count,
        column_bytes,
        rows: rows.into_values().collect(),
    }
}

#[cfg(test)]
mod tests {
    use spindle_base::{Redundancy, Striping};

    use super::{COLUMNS_COUNT, picture};
    use crate::api::view::{CopyReport, ExtentReport, MapReport, ShareReport};

    fn share(disk: u16, bytes: u64) -> ShareReport {
        ShareReport {
            disk,
            disk_name: format!("d{disk}"),
            extents_count: 1,
            bytes,
        }
    }

    fn extent(offset_bytes: u64, length_bytes: u64, disks: [Option<u16>; 2]) -> ExtentReport {
        let copy = |disk: u16| CopyReport {
            disk,
            disk_name: format!("d{disk}"),
            offset_bytes: 0,
        };
        ExtentReport {
            index: 0,
            offset_bytes,
            length_bytes,
            initialised_bytes: length_bytes,
            copies: disks.map(|disk| disk.map(copy)).to_vec(),
        }
    }

    #[test]
    fn every_byte_of_every_copy_is_in_one_column_of_its_disk() {
        let map = MapReport {
            path: "/file".to_owned(),
            id: 1,
            size_bytes: 6_400,
            redundancy: Redundancy::Normal,
            striping: Striping::Coarse,
            extents: vec![
                extent(0, 150, [Some(0), Some(1)]),
                extent(6_250, 150, [Some(1), None]),
            ],
            disks: vec![share(0, 150), share(1, 300)],
        };
        let drawn = picture(&map);
        assert_eq!((drawn.column_bytes, drawn.missing_copies_count), (100, 1));
        assert_eq!(drawn.rows[0].columns_bytes[..3], [100, 50, 0]);
        assert_eq!(
            drawn.rows[1].columns_bytes[COLUMNS_COUNT - 3..],
            [0, 50, 100]
        );
        for row in &drawn.rows {
            assert_eq!(row.columns_bytes.iter().sum::<u64>(), row.bytes, "{row:?}");
        }
    }

    #[test]
    fn an_empty_file_has_a_picture_too() {
        let map = MapReport {
            path: "/file".to_owned(),
            id: 1,
            size_bytes: 0,
            redundancy: Redundancy::Normal,
            striping: Striping::Coarse,
            extents: Vec::new(),
            disks: Vec::new(),
        };
        assert_eq!(picture(&map).rows, []);
    }
}
