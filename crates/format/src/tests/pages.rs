//! The pages of `docs/format/` against the bytes that are written: each row of each table names a
//! field, and at its offset lies exactly that field's value in the golden image.

use std::path::PathBuf;

use super::golden::{self, disk_record, event_record, inode};
use super::places::{checksum_block, journal, label, opener, state};
use crate::HEADER_CHECKSUM_OFFSET;

/// A row of a layout table.
#[derive(Debug)]
struct Row {
    offset: usize,
    size: usize,
    kind: String,
    field: String,
}

/// The layout tables of a page by their headings.
fn tables(page: &str) -> Vec<(String, Vec<Row>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/format")
        .join(page)
        .with_extension("md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut tables: Vec<(String, Vec<Row>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            tables.push((title.to_owned(), Vec::new()));
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, offset, size, kind, field, _, since, _] = cells.as_slice()
            && let (Ok(offset), Ok(size)) = (offset.parse(), size.parse())
        {
            assert!(["1", "2", "3"].contains(since), "{page}: {line}");
            tables.last_mut().unwrap().1.push(Row {
                offset,
                size,
                kind: (*kind).to_owned(),
                field: (*field).to_owned(),
            });
        }
    }
    tables.retain(|(_, rows)| !rows.is_empty());
    tables
}

type Fields = Vec<(&'static str, Vec<u8>)>;

/// One table against `bytes`: without gaps, to the end, reserved bytes zero, and each field's
/// value where the table says.
fn check(page: &str, title: &str, bytes: &[u8], fields: &Fields) {
    let tables = tables(page);
    let (_, rows) = tables.iter().find(|(found, _)| found == title).unwrap();
    let mut end = 0;
    let mut fields = fields.iter();
    for row in rows {
        let what = format!("{page}, {title}, {row:?}");
        assert_eq!(row.offset, end, "{what}");
        end += row.size;
        let found = &bytes[row.offset..end];
        if row.kind == "zero" {
            assert_eq!(row.field, "reserved", "{what}");
            assert!(found.iter().all(|byte| *byte == 0), "{what}");
            continue;
        }
        let (name, value) = fields.next().expect(&what);
        assert_eq!(row.field, *name, "{what}");
        assert_eq!(found, &value[..], "{what}");
        let size = match row.kind.as_str() {
            "u8" => 1,
            "u16" => 2,
            "u24" => 3,
            "u32" => 4,
            "u40" => 5,
            "u64" => 8,
            "i64, u32" => 12,
            "uuid" => 16,
            "name" => 32,
            _ => row.size,
        };
        assert_eq!(row.size, size, "{what}");
    }
    assert_eq!(fields.next(), None, "{page}, {title}");
    assert_eq!(end, bytes.len(), "{page}, {title}");
}

fn text(text: &str, size: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len()).unwrap()];
    bytes.extend(text.as_bytes());
    bytes.resize(size, 0);
    bytes
}

fn image(name: &str) -> Vec<u8> {
    let mut images = golden::images().into_iter();
    images.find(|image| image.name == name).unwrap().bytes
}

/// The fields of the common header, the checksum taken from the bytes: other tests judge it.
fn header(bytes: &[u8], magic: &str, place: u64, sequence: &'static str) -> Fields {
    let checksum = HEADER_CHECKSUM_OFFSET..HEADER_CHECKSUM_OFFSET + 4;
    vec![
        ("magic", magic.as_bytes().to_vec()),
        ("version", 1_u32.to_le_bytes().to_vec()),
        ("checksum", bytes[checksum].to_vec()),
        ("place", place.to_le_bytes().to_vec()),
        (sequence, 0x0102_0304_0506_0708_u64.to_le_bytes().to_vec()),
    ]
}

fn uuids() -> Fields {
    vec![
        ("group uuid", vec![0x11; 16]),
        ("disk uuid", vec![0x22; 16]),
    ]
}

#[test]
fn every_page_shows_the_layout_that_is_written() {
    check_label();
    check_opener();
    check_journal();
    check_group_state();
    check_checksum_block();
    check_extent_row();
    check_records();
    check_inode();
    check_event();
}

fn check_label() {
    let (bytes, label) = (image("label"), label());
    let mut fields = header(&bytes, "SPNDLABL", 524_288, "sequence");
    fields.extend(uuids());
    fields.extend([
        ("group name", text("DATA", 32)),
        ("disk name", text("DATA_0003", 32)),
        ("failure group", text("Cabinet-B", 32)),
        ("disk number", label.number.0.to_le_bytes().to_vec()),
        ("au size", vec![20]),
        ("redundancy", vec![3]),
        ("status", vec![2]),
        ("features", vec![0; 4]),
        ("size", label.size_bytes.to_le_bytes().to_vec()),
        ("created", label.created_s.to_le_bytes().to_vec()),
    ]);
    check("label", "Layout", &bytes, &fields);
}

fn check_opener() {
    let (bytes, opener) = (image("opener"), opener());
    let mut fields = header(&bytes, "SPNDOPEN", 65_536, "sequence");
    fields.extend(uuids());
    fields.extend([
        ("boot", vec![0x33; 16]),
        ("host", text("db-07.example", 128)),
        ("process", opener.process_id.to_le_bytes().to_vec()),
        ("state", vec![2]),
        ("heartbeats", opener.heartbeats_count.to_le_bytes().to_vec()),
        ("heartbeat", opener.heartbeat_s.to_le_bytes().to_vec()),
        ("opened", opener.opened_s.to_le_bytes().to_vec()),
    ]);
    check("opener", "Layout", &bytes, &fields);
}

fn check_journal() {
    let (bytes, journal) = (image("journal"), journal());
    let mut fields = header(&bytes, "SPNDJRNL", 655_360, "number");
    fields.extend([
        ("group uuid", vec![0x11; 16]),
        ("generation", journal.generation.to_le_bytes().to_vec()),
        ("length", 91_u32.to_le_bytes().to_vec()),
        ("changes", 2_u32.to_le_bytes().to_vec()),
    ]);
    check("journal", "Layout", &bytes[..64], &fields);
    let fields = vec![
        ("table", vec![6]),
        ("kind", vec![2]),
        ("key length", 3_u16.to_le_bytes().to_vec()),
        ("value length", 5_u32.to_le_bytes().to_vec()),
    ];
    check("journal", "A change", &bytes[64..72], &fields);
    assert_eq!(&bytes[72..80], b"keyvalue");
    assert!(bytes[91..].iter().all(|byte| *byte == 0));
}

fn check_group_state() {
    let (bytes, state) = (image("group-state"), state());
    let mut fields = header(&bytes, "SPNDSTAT", 131_072, "epoch");
    fields.extend(uuids());
    let length = u32::try_from(bytes.len()).unwrap();
    fields.extend([
        ("group name", text("DATA", 32)),
        ("length", length.to_le_bytes().to_vec()),
        ("disks count", 4_u16.to_le_bytes().to_vec()),
        ("clean", vec![1]),
        ("redundancy", vec![2]),
        ("au size", vec![20]),
        ("replicas count", vec![2]),
        (
            "next disk number",
            state.next_disk_number.to_le_bytes().to_vec(),
        ),
        (
            "region size",
            state.region_size_bytes.to_le_bytes().to_vec(),
        ),
        ("features", vec![0; 4]),
    ]);
    let (head, rest) = bytes.split_at(256);
    check("group-state", "Header", head, &fields);
    let statuses = [1, 2, 4, 1];
    let flags = [1, 0, 0, 3];
    for (index, disk) in state.disks.iter().enumerate() {
        let fields = vec![
            ("number", disk.number.0.to_le_bytes().to_vec()),
            ("failure group", disk.failure_group.to_le_bytes().to_vec()),
            ("size", disk.size_aus.to_le_bytes().to_vec()),
            ("uuid start", disk.uuid_start.to_vec()),
            ("status epoch", disk.status_epoch.to_le_bytes().to_vec()),
            ("status", vec![statuses[index]]),
            ("flags", vec![flags[index]]),
            ("lost", vec![0; 2]),
        ];
        check(
            "group-state",
            "Disk",
            &rest[index * 28..(index + 1) * 28],
            &fields,
        );
    }
    let mut rest = &rest[4 * 28..];
    for replica in &state.replicas {
        let fields = vec![
            ("disk", replica.disk.0.to_le_bytes().to_vec()),
            ("runs count", 2_u16.to_le_bytes().to_vec()),
        ];
        check("group-state", "Replica", &rest[..8], &fields);
        rest = &rest[8..];
        for run in &replica.runs {
            let fields = vec![
                ("start", run.start_au.to_le_bytes().to_vec()),
                ("aus", run.aus.to_le_bytes().to_vec()),
            ];
            check("group-state", "Run", &rest[..8], &fields);
            rest = &rest[8..];
        }
    }
    assert!(rest.is_empty());
}

fn check_checksum_block() {
    let (bytes, block) = (image("checksum-block"), checksum_block());
    let mut fields = header(&bytes, "SPNDSUMS", golden::SUMS_PLACE, "sequence");
    fields.extend(uuids());
    let sums = block
        .sums
        .iter()
        .flat_map(|sum| sum.to_le_bytes())
        .collect();
    fields.extend([
        ("first block", block.first_block.to_le_bytes().to_vec()),
        ("sums", sums),
    ]);
    check("checksum-block", "Layout", &bytes, &fields);
}

fn check_extent_row() {
    let bytes = image("extent-row");
    let header = vec![
        ("version", vec![1]),
        ("copies", vec![2]),
        ("extents count", vec![3]),
        ("marks count", vec![1]),
    ];
    check("extent-row", "Header", &bytes[..4], &header);
    let entry = vec![
        ("start", vec![0x9a, 0x78, 0x56, 0x34, 0x12]),
        ("class", vec![18]),
        ("disk", vec![0x02, 0x01]),
    ];
    check("extent-row", "Entry", &bytes[4 + 4 * 8..4 + 5 * 8], &entry);
    assert_eq!(
        bytes[4 + 2 * 8..4 + 4 * 8],
        [0; 16],
        "a hole in both copies"
    );
    assert_eq!(bytes[4 + 5 * 8..4 + 6 * 8], [0xff; 8], "a missing copy");
    let mark = vec![("index", vec![2]), ("blocks", vec![0x45, 0x23, 0x01])];
    check("extent-row", "Mark", &bytes[4 + 6 * 8..], &mark);
}

fn check_records() {
    let file = vec![
        ("version", vec![1]),
        ("redundancy", vec![2]),
        ("striping", vec![2]),
    ];
    check("records", "File", &image("file"), &file);
    let dirty = image("dirty-region");
    let fields = vec![
        ("version", vec![2]),
        ("state", vec![2]),
        ("disks count", vec![2, 0]),
    ];
    check("records", "Dirty region", &dirty[..4], &fields);
    let fields = vec![("disk", vec![3, 0]), ("runs count", vec![2, 0])];
    check("records", "Stale disk", &dirty[4..8], &fields);
    assert_eq!(dirty[8..12], [0, 0, 2, 0]);
    let fields = vec![("first block", vec![2, 1]), ("blocks", vec![4, 3])];
    check("records", "Stale run", &dirty[12..16], &fields);
    assert_eq!(dirty[16..], [4, 1, 1, 0, 0, 0, 0, 0x40]);
    let (disk, record) = (image("disk"), disk_record());
    let fields = vec![
        ("version", vec![1]),
        ("partners count", vec![2, 0]),
        ("size", record.size_aus.to_le_bytes().to_vec()),
        ("disk uuid", vec![0x22; 16]),
        ("disk name", text("DATA_0003", 32)),
        ("failure group", text("Cabinet-B", 32)),
    ];
    check("records", "Disk", &disk[..96], &fields);
    assert_eq!(disk[96..], [1, 0, 2, 1]);
}

fn check_inode() {
    let (bytes, inode) = (image("inode"), inode());
    let time = |time: crate::Timestamp| {
        let mut bytes = time.seconds.to_le_bytes().to_vec();
        bytes.extend(time.nanoseconds.to_le_bytes());
        bytes
    };
    let fields = vec![
        ("version", vec![1]),
        ("kind", vec![3]),
        ("permissions", inode.permissions.to_le_bytes().to_vec()),
        ("flags", vec![0; 4]),
        ("user", inode.user.to_le_bytes().to_vec()),
        ("group", inode.group.to_le_bytes().to_vec()),
        ("links", inode.links_count.to_le_bytes().to_vec()),
        ("device", inode.device.to_le_bytes().to_vec()),
        ("size", inode.size_bytes.to_le_bytes().to_vec()),
        ("parent", 0x8899_u64.to_le_bytes().to_vec()),
        ("next cookie", inode.next_cookie.to_le_bytes().to_vec()),
        ("accessed", time(inode.accessed)),
        ("modified", time(inode.modified)),
        ("changed", time(inode.changed)),
        ("created", time(inode.created)),
        ("target length", vec![8, 0]),
    ];
    check("inode", "Inode", &bytes[..112], &fields);
    assert_eq!(bytes[112..], *b"../other");
    let fields = vec![
        ("version", vec![1]),
        ("kind", vec![2]),
        ("file", 0x0102_0304_u64.to_le_bytes().to_vec()),
        ("cookie", 0x55_u64.to_le_bytes().to_vec()),
    ];
    check("inode", "Directory entry", &image("name"), &fields);
}

fn check_event() {
    let (bytes, event) = (image("event"), event_record());
    let fields = vec![
        ("version", vec![1]),
        ("severity", vec![3]),
        ("disk", vec![2, 1]),
        ("kind length", vec![12]),
        ("host length", vec![5]),
        ("message length", vec![21, 0]),
        ("time", event.time_ms.to_le_bytes().to_vec()),
        ("file", 0x0809_u64.to_le_bytes().to_vec()),
    ];
    check("event", "Event", &bytes[..32], &fields);
    assert_eq!(bytes[32..], *b"disk_offlinedb-07disk 258 goes offline");
}

/// The names of the tests in a source.
fn tests_of(source: &str) -> Vec<&str> {
    let functions = source.split("#[test]\nfn ").skip(1);
    functions
        .filter_map(|rest| rest.split('(').next())
        .collect()
}

/// The names of tests that the rows of the page's tables end with.
fn tests_named_by(page: &str) -> Vec<&str> {
    let rows = (page.lines()).filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.flat_map(|row| {
        let shown_by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        shown_by.split('`').skip(1).step_by(2)
    })
    .collect()
}

#[test]
fn the_start_up_page_names_tests_that_exist_and_all_of_what_an_opening_finds() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    let mut folders = vec![
        root.join("crates/catalog/src"),
        root.join("crates/group/src"),
        root.join("crates/group/tests"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                sources += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    let page = std::fs::read_to_string(root.join("docs/format/start-up.md")).unwrap();
    let named = tests_named_by(&page);
    let existing = tests_of(&sources);
    for name in &named {
        assert!(existing.contains(name), "there is no test {name}");
    }
    assert!(named.len() > 45, "the tables are read");
    let quorum = root.join("crates/group/src/quorum");
    for place in ["tests/starts.rs", "election/tests.rs"] {
        let source = std::fs::read_to_string(quorum.join(place)).unwrap();
        for name in tests_of(&source) {
            assert!(named.contains(&name), "start-up.md names no row for {name}");
        }
    }
    for place in ["election.rs", "../region.rs"] {
        let source = std::fs::read_to_string(quorum.join(place)).unwrap();
        let head = source.lines().take_while(|line| line.starts_with("//!"));
        for line in head.filter(|line| line.starts_with("//! | ")) {
            let row = line.trim_start_matches("//! ");
            for name in tests_named_by(row) {
                assert!(named.contains(&name), "start-up.md names no row for {name}");
            }
        }
    }
}
